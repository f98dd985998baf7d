//! Programs that read the exporter's pages. Each test runs a program's own code or its own queries, with an engine that
//! is busy, idle, stale and gone.

mod gateway;
mod native;
mod publisher;
mod victoria;
mod vllm;
