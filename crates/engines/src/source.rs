//! The status and the metrics of an engine's source. The engine's intake keeps them.

use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};

use trtllm_fold::native;
use trtllm_records::named_variants::named_variants;
use trtllm_records::{BenchReport, ErrorKind, ForwardedSpans, PodTrouble, PollFailure, RejectReason, SpanDropCounts};

/// Upper bounds of the buckets of poll durations, in seconds.
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

named_variants! {
    /// What a starting engine waits for.
    pub enum StartPhase {
        /// The source is being opened, or its model is being loaded.
        Loading = "loading",
        /// No poll has ever succeeded.
        NeverAnswered = "never_answered",
        /// The source answers, and has sent no record yet.
        NoRecord = "no_record",
        /// A source that listens has no publisher yet.
        NoPublisher = "no_publisher",
    }
}

/// The source at the end of its last poll. Only `metrics` are shared with later snapshots.
#[derive(Debug, Clone, Default)]
pub struct SourceStatus {
    pub metrics: SourceMetrics,
    /// Impossible values that were left out, by field.
    pub values_rejected: Arc<BTreeMap<&'static str, u64>>,
    /// Spans that are no finished requests, for a source that receives spans.
    pub spans_dropped: Option<SpanDropCounts>,
    /// `None` if spans are not forwarded.
    pub spans_forwarded: Option<ForwardedSpans>,
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
    /// Why there is no poll yet: the source is being opened, or its engine loads the model.
    pub loading: Option<&'static str>,
    /// What keeps the engine's pod from serving.
    pub pod_trouble: Option<PodTrouble>,
    /// Why the last poll failed. `None` if it succeeded.
    pub last_failure: Option<PollFailure>,
    /// The time since which the source has not answered, in microseconds since 1970 UTC. `None` if its last poll succeeded.
    pub unanswered_since_us: Option<i64>,
    /// Keys of the engine's messages that this exporter does not know. `None` until they are checked.
    pub unread_keys: Option<Arc<[String]>>,
    /// Endpoints that the server does not have.
    pub missing_endpoints: Vec<&'static str>,
    /// The server has answered, which it does once its model is loaded, and no connection to it has failed since.
    pub server_has_served: bool,
    /// Why an endpoint besides the records cannot be read although the server has it. It may name an address.
    pub endpoint_error: Option<Arc<str>>,
    /// The source has finished requests and never has records of iterations.
    pub only_requests: bool,
    /// The records come from an iteration log, which does not tell everything that other records do.
    pub only_log: bool,
    /// The server answers, and has never had statistics.
    pub no_statistics: bool,
    /// Requests end while no iteration records arrive.
    pub records_missing: bool,
    /// What the user should change, because statistics are missing although polls succeed.
    pub notice: Option<&'static str>,
    /// The benchmark with which the engine is compared, or which the source replays instead of records.
    pub bench_report: Option<Arc<BenchReport>>,
}

impl SourceStatus {
    /// Whether the server still answers although its engine has ended. Such a server answers 503 until it is restarted, which
    /// interrupts its connections.
    pub fn has_lost_engine(&self) -> bool {
        self.server_has_served && self.last_failure.as_ref().is_some_and(|failure| failure.not_ready)
    }

    /// Whether the source cannot be opened, so that it was never polled.
    pub fn is_closed(&self) -> bool {
        self.last_failure.is_some() && self.last_poll_us.is_none()
    }

    /// What the status 503 of the last poll means, in the words of every surface. `None` if the last poll had another
    /// result.
    pub fn meaning_of_503(&self) -> Option<&'static str> {
        let not_ready = self.last_failure.as_ref().is_some_and(|failure| failure.not_ready);
        not_ready.then_some(if self.server_has_served { "the server has lost its engine" } else { "the model loads" })
    }

    /// Whether the pod of a server that does not answer is scheduled, pulled or started.
    pub fn pod_is_loading(&self) -> bool {
        self.last_failure.is_some()
            && matches!(self.pod_trouble, Some(PodTrouble::Loading(_) | PodTrouble::Restarted(_)))
    }

    /// Why the engine cannot be read, as Kubernetes says.
    pub fn pod_failure(&self) -> Option<String> {
        let trouble = self.pod_trouble.as_ref().filter(|_| self.last_failure.is_some())?;
        Some(match trouble {
            PodTrouble::Loading(why) | PodTrouble::Restarted(why) => format!("the pod is loading: {why}"),
            PodTrouble::Down(why) => format!("the pod is down: {why}"),
        })
    }

    /// The phase of an engine that is starting.
    pub fn start_phase(&self) -> StartPhase {
        match &self.last_failure {
            _ if self.loading.is_some() => StartPhase::Loading,
            None if self.last_poll_us.is_none() && !self.ready => StartPhase::Loading,
            Some(failure) if failure.not_ready => StartPhase::Loading,
            Some(_) if self.pod_is_loading() => StartPhase::Loading,
            Some(_) if !self.ready => StartPhase::NeverAnswered,
            _ if self.last_success_us.is_none() && self.connections == Some(0) => StartPhase::NoPublisher,
            _ => StartPhase::NoRecord,
        }
    }
}
