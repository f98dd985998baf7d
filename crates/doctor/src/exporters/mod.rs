//! Reads running exporters: connections (`client`), and the JSON API (`api`).

pub(crate) mod api;
pub(crate) mod client;
