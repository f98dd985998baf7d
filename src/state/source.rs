//! The status and the metrics of an engine's source. The engine's intake keeps them; a snapshot publishes them.

use std::array;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};

use crate::engine::native;
use crate::model::{BenchReport, ErrorKind, RejectReason};

/// Upper bounds in seconds.
const POLL_SECONDS: [f64; 11] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

/// What the intake counts. A clone shares the counters, so an old snapshot shows the current counts.
#[derive(Debug, Clone)]
pub struct SourceMetrics {
    pub polls: Counter,
    /// Failed polls, indexed by [`ErrorKind`].
    pub errors: [Counter; ErrorKind::ALL.len()],
    /// Rejected records, indexed by [`RejectReason`].
    pub rejected: [Counter; RejectReason::ALL.len()],
    /// Seconds.
    pub poll_duration: Histogram,
}

impl Default for SourceMetrics {
    fn default() -> Self {
        let native = NativeHistogramConfig::default().max_buckets(native::SLOTS);
        Self {
            polls: Counter::default(),
            errors: array::from_fn(|_| Counter::default()),
            rejected: array::from_fn(|_| Counter::default()),
            poll_duration: Histogram::new_classic_and_native(POLL_SECONDS, native),
        }
    }
}

/// The source at the end of its last poll. `up`, the last success and the connections are gauges on the page, but plain
/// here: they belong to this snapshot, and two of them may be absent.
#[derive(Debug, Clone, Default)]
pub struct SourceStatus {
    pub metrics: SourceMetrics,
    /// The last poll succeeded.
    pub up: bool,
    /// At least one poll has succeeded.
    pub ready: bool,
    /// End of the last poll, successful or not, in microseconds since 1970 UTC.
    pub last_poll_us: Option<i64>,
    /// End of the last successful poll, in microseconds since 1970 UTC.
    pub last_success_us: Option<i64>,
    /// Connected publishers, for sources that listen.
    pub connections: Option<u64>,
    /// PIDs of the connected publishers, if all of them are visible here.
    pub processes: Vec<u32>,
    /// Why the source is not ready, or why the last poll failed. For `/readyz`.
    pub last_error: Option<String>,
    /// Why the last poll failed. `None` if it succeeded.
    pub last_failure: Option<ErrorKind>,
    /// What is wrong with the statistics although polls succeed. For `/readyz`.
    pub notice: Option<&'static str>,
    /// The benchmark to compare the engine with, or that the source replays instead of an engine's records.
    pub bench_report: Option<Arc<BenchReport>>,
}
