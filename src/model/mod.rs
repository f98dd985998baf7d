//! The vocabulary: what an engine and a GPU say, as plain data. No I/O, no async, no metric names.

pub mod gpu;
pub mod iteration;
pub mod perf_metrics;
pub mod request;
pub mod timestamp;

pub use iteration::IterationStats;
pub use perf_metrics::PerfMetricsEntry;
pub use request::{RequestStats, RequestStatsPerIteration};
pub use timestamp::RecordTime;
