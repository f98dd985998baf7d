//! Drains the statistics of a TensorRT-LLM C++ Executor into plain structs in the caller's slice.
//!
//! The Executor is either a real one (built with `TENSORRT_LLM_ROOT`) or the simulated SDK under `sim/`, which has the
//! same class behind the same headers. This crate hands records over as the engine wrote them, quirks included;
//! correcting, counting and naming them is not its business. It is the only crate with C++.

mod error;
mod executor;
mod ffi;
mod host;
mod load;
mod rows;

pub use error::BridgeError;
pub use executor::{Executor, ExecutorOptions, exit_now};
pub use ffi::{IterationRow, KvEventKind, KvEventRow, LoadProgress, PerfRow, RequestRow, Truth};
pub use host::{BatchingType, CommMode, HostOptions, ModelType};
pub use load::Load;
pub use rows::{FinishReason, RequestStage, iteration_present, perf_present, request_present};
