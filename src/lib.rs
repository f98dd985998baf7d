//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
//!
//! Data flows one way, in the order of this list. Each part is a crate. `docs/ARCHITECTURE.md` describes all crates, and
//! `tests/it/layering.rs` lists the crates that each one may use.
//!
//! 1. [`trtllm_records`]: the data types that all crates share. [`trtllm_service`]: what any service needs, such as logs and shutdown.
//! 2. [`trtllm_fold`]: folds records into totals that never fall. It does no I/O and gets the time as an argument.
//! 3. [`trtllm_gpu`]: calls NVML on its own threads, and knows which GPUs each engine uses.
//! 4. [`trtllm_recording`]: writes what engines sent to disk and reads it back. [`trtllm_sources`]: fetches and parses statistics.
//! 5. [`trtllm_verdict`]: decides what limits an engine, and finds other problems. `trtllm_what_if`: predicts what an engine would do with
//!    another limit or load. Both do no I/O.
//! 6. [`trtllm_engines`]: the engines, each behind one lock, and the GPUs. [`trtllm_page`]: locks each engine while it copies its samples
//!    into a page.
//! 7. [`trtllm_intake`]: polls a source on its schedule, folds what it sends and publishes the result.
//! 8. [`trtllm_http`]: serves the metrics, the JSON API and the page for browsers. [`exporter_web_config`]: TLS and access rules.
//!
//! This crate is the daemon: [`cli`] and [`trtllm_config`] read what the user asks for, [`start`] wires everything, and [`tools`] are
//! the subcommands. `trtllm-doctor` (crates/doctor) is the program that reads running exporters.
#![forbid(unsafe_code)]

pub mod cli;
pub mod start;
pub mod tools;
