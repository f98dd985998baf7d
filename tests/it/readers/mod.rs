//! What programs that read the exporter make of its pages, judged by their own code or their own queries, with an engine that
//! is busy, idle, stale and gone.

mod gateway;
mod native;
mod publisher;
mod victoria;
mod vllm;
