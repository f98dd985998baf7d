//! Drains the statistics of a TensorRT-LLM C++ Executor into structs that Rust and C++ share.
//!
//! The Executor is a real one (built with `TENSORRT_LLM_ROOT`) or comes from the simulated SDK under `sim/`, which has
//! the same class and headers. This crate returns records unchanged, including the engine's quirks. It does not
//! correct, count or name them. It is the only crate with C++.

mod error;
mod executor;
mod ffi;
mod options;
mod records;

// Links the C functions that only the simulated SDK calls.
#[cfg(simulated_sdk)]
use trtllm_sim_c as _;

pub use error::BridgeError;
pub use executor::{Executor, SyntheticLoad, exit_now, is_simulated};
pub use ffi::{
    DisServingRequestStats, FinishReason, FinishedRequest, InflightBatchingStats, IterationStats, KvCacheStats,
    RequestKvCacheMetrics, RequestPerfMetrics, RequestStage, RequestStats, RequestStatsPerIteration, SpecDecodingStats,
    SpeculativeDecodingMetrics, StaticBatchingStats, TimingMetrics, Truth,
};
pub use options::ExecutorOptions;
pub use records::{ABSENT, Known};
