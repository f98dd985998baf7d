//! The metrics pages of the exporter, from what is known of engines and GPUs to the bytes of an answer.
//!
//! - [`state`]: an immutable snapshot per engine and of all GPUs. Readers never wait.
//! - [`metrics`]: turns snapshots into one ordered page, by one catalog.
//! - [`exposition`]: turns a page into bytes.
//! - [`pages`]: makes pages of the state when a reader asks, and caches them.
//! - [`build`]: what the program was built from, which is one of the metrics.
#![forbid(unsafe_code)]

pub mod build;
pub mod exposition;
pub mod metrics;
pub mod pages;
pub mod state;
