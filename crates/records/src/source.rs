//! Why reading a source can fail, and facts about its engine that are not numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use super::settings::EngineSettings;
use crate::named_variants::named_variants;

/// Whether a source of this kind has finished requests, and never has records of iterations.
#[must_use]
pub fn has_only_requests(kind: &str) -> bool {
    matches!(kind, "perf-metrics" | "otlp")
}

/// Whether a source of this kind is an iteration log.
#[must_use]
pub fn is_iteration_log(kind: &str) -> bool {
    kind == "log"
}

named_variants! {
    /// Why a poll failed. The kinds differ in what an operator can do.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorKind {
        Connect = "connect",
        Timeout = "timeout",
        HttpStatus = "http_status",
        NotJson = "not_json",
        Truncated = "truncated",
        TooLarge = "too_large",
        Io = "io",
        Engine = "engine",
    }
}

impl ErrorKind {
    /// The failure in words, without an address.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Timeout => "no answer in time",
            Self::HttpStatus => "an error status",
            Self::NotJson => "not the statistics of an engine",
            Self::Truncated => "an incomplete answer",
            Self::TooLarge => "an answer that is too long",
            Self::Io => "reading failed",
            Self::Engine => "the engine failed",
        }
    }
}

named_variants! {
    /// Why a record was skipped.
    pub enum RejectReason {
        NotJson = "not_json",
        NotARecord = "not_a_record",
        TooLong = "too_long",
        Truncated = "truncated",
        /// A value is impossible for an engine.
        Implausible = "implausible",
        /// The answer has more records than the exporter reads at once.
        TooMany = "too_many",
    }
}

named_variants! {
    /// Why an OTLP span is no finished request.
    pub enum SpanDrop {
        /// It lacks the times of an engine (`gen_ai.latency.*`): the span of an HTTP server, or of another program.
        NotARequest = "not_a_request",
        /// It has neither a time nor a length that the engine knows.
        Incomplete = "incomplete",
    }
}

/// Spans that were dropped since the source was opened, in the order of [`SpanDrop::ALL`].
pub type SpanDropCounts = [u64; SpanDrop::ALL.len()];

named_variants! {
    /// Why a span was not forwarded.
    pub enum SpanLoss {
        /// The next receiver is slower than spans come.
        QueueFull = "queue_full",
        /// The next receiver did not answer, or refused the request or these spans of it.
        Failed = "failed",
    }
}

/// Spans since the source was opened that were to be forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedSpans {
    pub sent: u64,
    /// In the order of [`SpanLoss::ALL`].
    pub lost: [u64; SpanLoss::ALL.len()],
}

/// A poll that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollFailure {
    pub kind: ErrorKind,
    /// Printable and short. It names the address of the source, so it must not be shown to everybody.
    pub text: String,
    /// The server answered that it is not ready yet.
    pub not_ready: bool,
}

/// One count per [`RejectReason`], in the same order.
pub type RejectCounts = [u64; RejectReason::ALL.len()];

named_variants! {
    /// Why a publisher was refused or dropped.
    pub enum PublisherRefusal {
        /// The publisher sent no line for a while, and another publisher needed its slot.
        Silent = "silent",
        /// All slots are in use.
        Full = "full",
        /// The publisher's user is not allowed to publish.
        Uid = "uid",
        /// Another publisher or a configured engine already has the publisher's name, or the name is invalid.
        Name = "name",
        /// There are too many engines.
        Engines = "engines",
    }
}

/// Counts the refused publishers of all ingest sockets. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct RefusedPublishers(Arc<[AtomicU64; PublisherRefusal::ALL.len()]>);

impl RefusedPublishers {
    pub fn count(&self, reason: PublisherRefusal) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// One count per [`PublisherRefusal`], in the same order.
    #[must_use]
    pub fn counts(&self) -> [u64; PublisherRefusal::ALL.len()] {
        self.0.each_ref().map(|count| count.load(Relaxed))
    }
}

/// Facts about an engine that are not numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineAbout {
    /// The backend that runs the model, e.g. `tensorrt` or `pytorch`.
    pub backend: Option<String>,
    /// Version of the engine's software.
    pub version: Option<String>,
    /// True if the engine is the built-in simulation.
    pub simulated: bool,
    /// How long each stage of its start took, in seconds.
    #[serde(default)]
    pub startup: StartupTimes,
    /// Settings from the publisher or the engine directory. Those that a server reports in its own metrics are in
    /// [`ServerMetrics`](super::ServerMetrics).
    #[serde(default)]
    pub settings: EngineSettings,
}

impl EngineAbout {
    /// Whether the engine stamps the first token of a request in the first pass after it has a seat, even if its prompt is not computed
    /// yet. The PyTorch engine of 0.20 to 1.0 does: its `_handle_responses` calls `update_perf_metrics` for each active request.
    #[must_use]
    pub fn stamps_first_token_early(&self) -> bool {
        let mut numbers =
            self.version.iter().flat_map(|version| version.split('.')).map(|number| number.parse::<u32>().ok());
        let release = (numbers.next().flatten(), numbers.next().flatten());
        self.backend.as_deref() != Some("tensorrt") && matches!(release, (Some(0), Some(20..)) | (Some(1), Some(0)))
    }
}

/// Seconds per stage. The name of a stage is the path of its key in the server's JSON, joined with dots.
pub type StartupTimes = BTreeMap<String, f64>;

/// Seconds of a whole start, as the alerts take them: the stage of the executor has all others. Without it, the sum of all stages, although
/// some have others, because a start takes longer than the stages that are known. `None` if no stage is known.
#[must_use]
pub fn whole_start(stages: &StartupTimes) -> Option<f64> {
    let is_of_executor =
        |path: &str| ["", "py_"].iter().any(|of| path.ends_with(&format!("total_{of}executor_creation_seconds")));
    let of_executor = stages.iter().filter(|(path, _)| is_of_executor(path)).map(|(_, seconds)| *seconds);
    of_executor
        .reduce(f64::max)
        .or_else(|| stages.values().copied().reduce(|a, b| a + b))
        .filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_pytorch_engines_stamp_the_first_token_early() {
        let is_early = |backend: Option<&str>, version: Option<&str>| {
            let (backend, version) = (backend.map(str::to_owned), version.map(str::to_owned));
            EngineAbout { backend, version, ..EngineAbout::default() }.stamps_first_token_early()
        };
        for version in ["0.20.0", "0.21.0rc1", "1.0.0rc6.post2", "1.0"] {
            assert!(
                is_early(Some("pytorch"), Some(version)) && !is_early(Some("tensorrt"), Some(version)),
                "{version}"
            );
        }
        for version in ["0.19.0", "1.1.0", "1.3.0rc29", "2.0.0", "main", ""] {
            assert!(!is_early(Some("pytorch"), Some(version)), "{version}");
        }
        assert!(!is_early(Some("pytorch"), None), "the release is unknown");
    }

    #[test]
    fn a_start_is_as_long_as_its_stage_that_has_all_others() {
        let loading =
            [("model_loader.weight_population_seconds", 80.0), ("model_loader.total_model_loading_seconds", 100.0)];
        let warmup = [("final_model_engine.total_warmup_seconds", 50.0)];
        let executor = [
            ("py_executor.model_engine_creation_seconds", 110.0),
            ("py_executor.total_executor_creation_seconds", 170.0),
        ];
        let start = |stages: &[&[(&str, f64)]]| {
            let stages = stages.concat().into_iter().map(|(path, seconds)| (path.to_owned(), seconds));
            whole_start(&stages.collect())
        };
        assert_eq!(start(&[&loading, &warmup, &executor]), Some(170.0));
        assert_eq!(start(&[&loading, &warmup]), Some(230.0));
        assert_eq!(start(&[&[("load_seconds", 7.0), ("worker_start_seconds", 2.0)]]), Some(9.0));
        assert_eq!(start(&[]), None);
    }
}
