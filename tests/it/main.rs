//! All integration tests in one binary, one module per subject. `cargo test --test it golden::` runs one module.
// Tests may panic and print: a failed test panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]
#![cfg_attr(not(feature = "executor"), allow(dead_code, unused_imports))]

mod activation;
mod aliases;
mod api;
mod api_golden;
mod autoscaling;
mod bad_flags;
mod bad_input;
mod bench_report;
mod command_line;
mod compare;
mod compatibility;
mod connections;
mod disaggregated;
mod discovery;
mod doctor;
mod drift;
mod engines_of_2026;
mod errors;
mod fairness;
mod faults;
mod fields;
mod file_faults;
mod fixtures;
mod formats;
mod frontends;
mod fuzz_targets;
mod golden;
mod gpu;
#[cfg(feature = "executor")]
mod hosted;
mod https;
mod iteration_log;
mod kubernetes;
mod kv_cache_v2;
mod latency_sources;
mod layering;
mod live_page;
mod log_pipe;
mod lookalike;
mod memory;
mod mistakes;
mod naming;
mod new_keys;
mod objectives;
mod opentelemetry;
mod orchestrator;
mod other_servers;
mod otlp;
mod parsers;
mod perf_metrics_dir;
mod profiles;
mod prometheus;
mod readers;
mod recorder;
mod reference_page;
mod reload;
#[cfg(feature = "executor")]
mod rulings;
mod server_page;
mod simulated;
mod step_times;
mod support;
mod tls;
mod top;
mod trace_viewer;
mod web_config;
