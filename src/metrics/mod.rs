//! Snapshots in, one ordered [`page::Page`] out, by the [`catalog`]. Knows no format and no HTTP.

mod bench_report;
pub mod catalog;
pub mod compat;
pub mod dcgm;
pub mod engine;
pub mod gpu;
mod gpu_health;
mod kv_cache;
pub mod label_cache;
pub mod own;
pub mod page;
mod requests;
pub mod whole;
