//! Reads running exporters, for the commands that do so: connections, and the JSON API.

pub mod api;
pub(crate) mod client;
