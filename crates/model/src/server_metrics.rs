//! What trtllm-serve's own Prometheus page says that its JSON does not: how requests ended, their times and tokens, HTTP
//! errors and the configuration. The page has several series for one number if the server has several processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::perf_metrics::FinishReason;

/// One reading of `GET /prometheus/metrics`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerMetrics {
    pub counts: Vec<ServerCount>,
    /// Requests in the last batch, summed over ranks. 0 if the server is idle.
    pub scheduled_batch_size: Option<u64>,
    pub config: Configuration,
    /// The server has no entries of finished requests (`/perf_metrics`), so only this page has the times of requests.
    #[serde(default)]
    pub without_entries: bool,
    /// Several processes answer on the port of the server, each with counts of its own. So `counts` is empty.
    #[serde(default)]
    pub several_frontends: bool,
}

/// What the exporter says of such a server.
pub const SEVERAL_FRONTENDS: &str = "several frontends answer on this port, each with counts of its own in /prometheus/metrics, so \
    the numbers of that page are absent, and records that another frontend has taken are lost: start the server with one frontend \
    (--num_serve_frontends 1), or set PROMETHEUS_MULTIPROC_DIR for it, or read its perf_metrics_dir";

/// Names and values, as the server writes them.
pub type Configuration = BTreeMap<ConfigSection, Vec<(String, String)>>;

/// One counter series. It falls only if its process was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCount {
    pub counter: ServerCounter,
    /// Differs between the series of one counter. All buckets and the sum of one histogram have the same number.
    pub series: u64,
    pub value: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServerCounter {
    Finished(FinishReason),
    PromptTokens,
    GenerationTokens,
    CachedTokens,
    /// By HTTP status.
    Errors(String),
    /// By position in the draft.
    DraftedTokens(String),
    AcceptedTokens(String),
    /// Observations of a histogram of requests, by the upper bound of their bucket: `0.01` … `+Inf`.
    #[serde(rename = "RequestTime")]
    HistogramBucket(RequestHistogram, String),
    /// The sum of a histogram, as a whole number like the other counts: in parts of [`RequestHistogram::parts`].
    #[serde(rename = "RequestTimeNanos")]
    HistogramSum(RequestHistogram),
}

/// A histogram of finished requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestHistogram {
    FirstToken,
    PerOutputToken,
    EndToEnd,
    Queue,
    Prefill,
    Decode,
    Inference,
    /// Tokens of the prompt that were found in the KV cache.
    CachedTokens,
}

impl RequestHistogram {
    pub const ALL: [Self; 8] = [
        Self::FirstToken,
        Self::PerOutputToken,
        Self::EndToEnd,
        Self::Queue,
        Self::Prefill,
        Self::Decode,
        Self::Inference,
        Self::CachedTokens,
    ];

    /// The name of its family without `trtllm_`.
    #[must_use]
    pub const fn family(self) -> &'static str {
        match self {
            Self::FirstToken => "time_to_first_token_seconds",
            Self::PerOutputToken => "time_per_output_token_seconds",
            Self::EndToEnd => "e2e_request_latency_seconds",
            Self::Queue => "request_queue_time_seconds",
            Self::Prefill => "request_prefill_time_seconds",
            Self::Decode => "request_decode_time_seconds",
            Self::Inference => "request_inference_time_seconds",
            Self::CachedTokens => "prompt_cached_tokens_per_request",
        }
    }

    /// Whole numbers of this part of the unit are counted: nanoseconds, or tokens.
    #[must_use]
    pub const fn parts(self) -> f64 {
        if matches!(self, Self::CachedTokens) { 1.0 } else { 1e9 }
    }

    /// The entries of finished requests do not have it, because they have no number of tokens.
    #[must_use]
    pub const fn is_only_on_page(self) -> bool {
        matches!(self, Self::PerOutputToken | Self::CachedTokens)
    }
}

/// A `*_config_info` family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConfigSection {
    Model,
    Parallel,
    Speculative,
    KvCache,
}

impl ServerMetrics {
    /// Whether the page has none of these families. Releases before the prefix `trtllm_` have such a page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.scheduled_batch_size.is_none() && self.config.is_empty()
    }

    /// Requests that have finished, by the histogram of their end-to-end times: the server observes each one there.
    #[must_use]
    pub fn finished_requests(&self) -> u64 {
        let all = ServerCounter::HistogramBucket(RequestHistogram::EndToEnd, "+Inf".to_owned());
        let of_processes = self.counts.iter().filter(|count| count.counter == all).map(|count| count.value);
        of_processes.fold(0, u64::saturating_add)
    }
}
