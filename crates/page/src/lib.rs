//! The metrics pages of the exporter, from the state of engines and GPUs to the bytes of a response.
//!
//! - [`metrics`]: turns engines and GPUs into one ordered page, using one catalog.
//! - [`exposition`]: turns a page into bytes.
//! - [`pages`]: renders a page for each request, and keeps only the length of the last one.
//! - [`build`]: the version, commit and compiler of this program, which are labels of a metric.
#![forbid(unsafe_code)]

pub mod build;
pub mod exposition;
pub mod metrics;
pub mod pages;
