//! The vocabulary: the data of engines and GPUs as plain structs. No I/O, no async, no metric names.

pub mod bench_report;
mod bounded;
pub mod gpu;
pub mod iteration;
pub mod kv_event;
pub mod named_numbers;
pub mod perf_metrics;
pub mod request;
pub mod rows;
pub mod server_metrics;
pub mod source;
pub mod timestamp;

pub use bench_report::BenchReport;
pub use iteration::IterationStats;
pub use kv_event::KvCacheEvent;
pub use perf_metrics::PerfMetricsEntry;
pub use request::{RequestStats, RequestStatsPerIteration};
pub use server_metrics::ServerMetrics;
pub use source::{EngineAbout, ErrorKind, PublisherRefusal, RefusedPublishers, RejectCounts, RejectReason};
pub use timestamp::RecordTime;
