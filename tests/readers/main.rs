//! What programs that read the exporter make of its pages, judged by their own code or their own queries, with an engine that
//! is busy, idle, stale and gone.
// A test fails on the first unexpected result.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../e2e/mod.rs"]
mod e2e;
mod gateway;
mod native;
mod publisher;
mod victoria;
mod vllm;
