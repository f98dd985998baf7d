//! Snapshots in, one ordered [`page::Page`] out, by the [`catalog`]. Knows no format and no HTTP.

mod bench_report;
pub mod catalog;
pub mod compat;
pub mod engine;
pub mod exporter;
pub mod gpu;
mod kv_cache;
pub mod page;
pub mod whole;
