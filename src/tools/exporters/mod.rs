//! Reads running exporters: connections (`client`), and the JSON API (`api`).

pub mod api;
pub(crate) mod client;
