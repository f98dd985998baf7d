//! Defines every metric of the page once, in page order: name, type, unit, labels and their values, stability, help,
//! the fields that feed it, and the closure that reads it. The page, the renderers, the metrics reference and the tests
//! all read this table. Few other texts of the code spell a metric's name, and a test checks these names.

pub mod feeds;
mod id;
mod metric;
pub mod not_read;
pub mod table;

pub use id::Id;
pub use metric::{Group, InDefault, Metric, MetricKind, Profile, Stability, Variant};
pub use table::{CATALOG, Table};

#[cfg(test)]
mod tests;
