//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
//!
//! Data flows one way, in this order. No part uses one that follows it in this list. Each part is a crate, so the compiler checks
//! this.
//!
//! 1. [`trtllm_model`]: the vocabulary, plain data. [`trtllm_service`]: what a service needs besides its task.
//! 2. [`trtllm_engine`]: folds records into totals that never fall. Pure: one owner, time is an argument.
//! 3. [`trtllm_gpu`]: calls NVML on its own threads, and knows which GPUs each engine uses.
//! 4. [`trtllm_recording`]: what engines sent, on disk and back. [`trtllm_sources`]: fetch and parse, nothing else.
//! 5. [`trtllm_verdict`]: what limits an engine, and findings about other problems. Pure.
//! 6. [`trtllm_page`]: an immutable snapshot per engine and of all GPUs, and the pages made of them.
//! 7. [`trtllm_intake`]: polls a source on its schedule, folds what it sends and publishes the result.
//! 8. [`trtllm_http`]: the server: metrics, the JSON API and the page for people. [`exporter_web_config`]: TLS and access rules.
//!
//! This crate is the daemon and its commands: [`cli`] and [`config`] read what the user asks for, [`start`] wires
//! everything, and [`tools`] are the subcommands.
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod start;
pub mod tools;
