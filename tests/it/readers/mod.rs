//! Programs that read the exporter's pages, run with their own code or their own queries, with an engine that is busy,
//! idle, stale and gone.

mod gateway;
mod native;
mod publisher;
mod victoria;
mod vllm;
