//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
//!
//! Data flows one way, in this order. What stands lower does not see what stands higher.
//!
//! Crates, where the compiler sees to it:
//!
//! 1. [`trtllm_model`]: the vocabulary, plain data. [`trtllm_service`]: what a service needs beside its task.
//! 2. [`trtllm_engine`]: folds records into totals that never fall. Pure: one owner, time is an argument.
//! 3. [`trtllm_gpu`]: owns NVML, on threads of its own, and knows what each engine uses of its GPUs.
//! 4. [`trtllm_recording`]: what engines sent, on disk and back. [`trtllm_sources`]: fetch and parse, nothing else.
//! 5. [`trtllm_page`]: an immutable snapshot per engine and of all GPUs, and the pages made of them.
//!
//! Modules of this crate, where `tests/layering.rs` sees to it:
//!
//! 1. [`intake`]: folds the polls of one source and publishes the result. The one place that counts and logs a source.
//! 2. [`poll`]: opens and polls each source on its schedule.
//! 3. [`diagnosis`]: the rules that say what limits an engine. Pure.
//! 4. [`views`]: the page for people and the JSON API.
//! 5. [`http`]: the server, its routes and handlers. TLS and access rules are the crate [`exporter_web_config`].
//! 6. [`start`]: wires everything, for `main`.
#![deny(unsafe_code)]

pub mod cli;
pub mod config;
pub mod diagnosis;
pub mod http;
pub mod intake;
pub mod listen;
pub mod poll;
#[cfg(test)]
mod simulation;
pub mod start;
pub mod tools;
pub mod views;
