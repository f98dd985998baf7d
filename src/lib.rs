//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
//!
//! Data flows one way, in this order; a module imports only from above itself (`tests/layering.rs` holds it to that):
//!
//! 1. [`model`]: the vocabulary, plain data.
//! 2. [`engine`]: folds records into totals that never fall; pure, one owner, time is an argument.
//! 3. [`gpu`]: owns NVML on threads of its own.
//! 4. [`state`]: an immutable snapshot per engine and of all GPUs; readers never wait.
//! 5. [`metrics`]: snapshots to one ordered page, by one catalog.
//! 6. [`exposition`]: a page to bytes.
//! 7. [`sources`]: fetch and parse, nothing else. They never see `gpu` and `http`, nor these them.
//! 8. [`intake`]: folds the polls of one source and publishes the result; the one place that counts and logs a source.
//! 9. [`poll`]: opens and polls each source on its schedule.
//! 10. [`http`]: serves bytes; knows no engine and no GPU.
//!
//! `unsafe` stands in `gpu/raw.rs` and, for one call, in [`heap`] (`tests/layering.rs`).
#![deny(unsafe_code)]

pub mod cli;
pub mod config;
pub mod engine;
pub mod exposition;
pub mod gpu;
pub mod heap;
pub mod http;
pub mod intake;
pub mod log;
pub mod metrics;
pub mod model;
pub mod poll;
pub mod shutdown;
pub mod sources;
pub mod state;
pub mod tools;
