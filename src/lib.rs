//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
//!
//! Data flows one way, in this order. A module imports only from those above it (`tests/layering.rs` checks that):
//!
//! 1. [`model`]: the vocabulary, plain data.
//! 2. [`engine`]: folds records into totals that never fall. Pure: one owner, time is an argument.
//! 3. [`gpu`]: owns NVML, on threads of its own.
//! 4. [`gpu_use`]: what each engine uses of its GPUs. Pure. [`state`]: an immutable snapshot per engine and of all GPUs.
//!    Readers never wait.
//! 5. [`metrics`]: turns snapshots into one ordered page, by one catalog.
//! 6. [`exposition`]: turns a page into bytes. [`pages`]: makes pages of the state and caches them.
//! 7. [`recording`]: the format of the flight recorder, and [`sources`]: fetch and parse, nothing else.
//! 8. [`recorder`]: keeps what sources send on disk. [`intake`]: folds the polls of one source and publishes the result. The
//!    one place that counts and logs a source.
//! 9. [`poll`]: opens and polls each source on its schedule.
//! 10. [`diagnosis`]: the rules that say what limits an engine. Pure.
//! 11. [`views`]: the page for people and the JSON API.
//! 12. [`http`]: the server, its routes and handlers. TLS and access rules are the crate [`exporter_web_config`].
//! 13. [`start`]: wires everything, for `main`.
//!
//! `unsafe` code is in `gpu/raw.rs` and in [`process`] only.
#![deny(unsafe_code)]

pub mod build;
pub mod cli;
pub mod config;
pub mod diagnosis;
pub mod engine;
pub mod exposition;
pub mod gpu;
pub mod gpu_use;
pub mod http;
pub mod intake;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod model;
pub mod pages;
pub mod poll;
pub mod printable;
pub mod process;
pub mod recorder;
pub mod recording;
pub mod shutdown;
#[cfg(test)]
mod simulation;
pub mod small_file;
pub mod sources;
pub mod start;
pub mod state;
pub mod supervise;
pub mod tools;
pub mod unix_socket;
pub mod views;
