//! Drains the statistics of a TensorRT-LLM C++ Executor into plain structs in the caller's slice.
//!
//! The Executor is a real one (built with `TENSORRT_LLM_ROOT`) or that of the simulated SDK under `sim/`, which has the
//! same class and headers. This crate returns records unchanged, including the engine's quirks. It does not correct,
//! count or name them. It is the only crate with C++.

mod error;
mod executor;
mod ffi;
mod load;
mod options;
mod rows;

pub use error::BridgeError;
pub use executor::{Executor, exit_now};
pub use ffi::{IterationRow, KvEventKind, KvEventRow, LoadProgress, PerfRow, RequestRow, Truth};
pub use load::Load;
pub use options::{BatchingType, CommMode, ExecutorOptions, HostOptions, ModelType};
pub use rows::{FinishReason, RequestStage, iteration_present, perf_present, request_present};
