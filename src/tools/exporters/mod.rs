//! Reads running exporters, for the commands that do so: connections, the metrics page, the JSON API.

pub(crate) mod client;
pub mod engines;

pub use trtllm_diagnosis::page;
