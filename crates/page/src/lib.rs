//! The metrics pages of the exporter, from the state of engines and GPUs to the bytes of a response.
//!
//! A *page* is a list of samples. A *family* is all samples with one metric name. The catalog has one entry for each
//! family, with the closure that reads its values. Follow one scrape:
//!
//! 1. [`pages`] answers the request, and keeps only the length of the last page.
//! 2. [`metrics::page_builder`] locks one engine after the other, and adds its samples. Then it adds GPUs and the
//!    exporter itself.
//! 3. The closures are in `metrics/catalog/table`. For an engine, they read an `EngineView` and write to a
//!    `FamilyWriter`.
//! 4. [`exposition`] turns the page into text, OpenMetrics or protobuf, and compresses it.
//!
//! [`build`] has the version, commit and compiler of this program, which are labels of a metric.
#![forbid(unsafe_code)]

pub mod build;
pub mod exposition;
pub mod metrics;
pub mod pages;
