//! Reads running exporters, for the commands that do so: the metrics page, the JSON API.

pub mod engines;
pub mod page;
