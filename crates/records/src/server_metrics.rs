//! Values that only trtllm-serve's own metrics have: how requests ended, their times and tokens, HTTP errors and
//! the configuration. A server with several processes has several series for one value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::named_variants::named_variants;
use super::perf_metrics::FinishReason;

/// One reading of `GET /prometheus/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerMetrics {
    pub counts: Vec<ServerCount>,
    /// Requests in the last batch, summed over ranks. 0 if the server is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_batch_size: Option<u64>,
    pub config: Configuration,
    /// True if the server does not offer `/perf_metrics` (the times of each finished request), so only these metrics have
    /// the times of requests.
    #[serde(default)]
    pub without_entries: bool,
    /// True if the exporter also receives the OTLP spans of this server.
    #[serde(default)]
    pub with_spans: bool,
    /// True if several processes answer on the port of the server, each with its own counts. `counts` is empty then.
    #[serde(default)]
    pub several_frontends: bool,
}

/// The exporter's message about a server with several frontends.
pub const SEVERAL_FRONTENDS: &str = "several frontends answer on this port, each with counts of its own in /prometheus/metrics, so \
    the numbers of that page are absent, and records that another frontend has taken are lost: start the server with one frontend \
    (--num_serve_frontends 1), or set PROMETHEUS_MULTIPROC_DIR for it, or read its perf_metrics_dir";

/// Names and values of the server's configuration, as the server writes them.
pub type Configuration = BTreeMap<ConfigSection, Vec<(String, String)>>;

/// One counter series. Its value decreases if the server has restarted, if another process answers, or if the files of an ended
/// process are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCount {
    pub counter: ServerCounter,
    /// Distinguishes the series of one counter. All buckets and the sum of one histogram have the same number.
    pub series: u64,
    pub value: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServerCounter {
    Finished(FinishReason),
    PromptTokens,
    GenerationTokens,
    CachedTokens,
    /// HTTP errors. The text is the HTTP status.
    Errors(String),
    /// Draft tokens. The text is the position in the draft.
    DraftedTokens(String),
    AcceptedTokens(String),
    /// One bucket of a histogram. The text is the upper bound of the bucket: `0.01` … `+Inf`.
    #[serde(rename = "RequestTime")]
    HistogramBucket(RequestHistogram, String),
    /// The sum of a histogram. It is a whole number like the other counts; [`RequestHistogram::parts`] converts it.
    #[serde(rename = "RequestTimeNanos")]
    HistogramSum(RequestHistogram),
}

named_variants! {
    /// A histogram of finished requests, with the name of its metric family without `trtllm_`.
    #[derive(Hash, Serialize, Deserialize)]
    pub enum RequestHistogram {
        FirstToken = "time_to_first_token_seconds",
        PerOutputToken = "time_per_output_token_seconds",
        EndToEnd = "e2e_request_latency_seconds",
        Queue = "request_queue_time_seconds",
        Prefill = "request_prefill_time_seconds",
        Decode = "request_decode_time_seconds",
        Inference = "request_inference_time_seconds",
        /// Tokens of the prompt that were found in the KV cache.
        CachedTokens = "prompt_cached_tokens_per_request",
        /// How unlikely the model finds the tokens of a request, if its client asks for log probabilities.
        PrefillPerplexity = "prefill_perplexity",
        GenerationPerplexity = "generation_perplexity",
    }
}

impl RequestHistogram {
    /// The divisor that converts the whole number in [`ServerCounter::HistogramSum`] to the unit of the histogram: 1e9
    /// for nanoseconds, 1 for tokens.
    #[must_use]
    pub const fn parts(self) -> f64 {
        match self {
            Self::CachedTokens => 1.0,
            Self::PrefillPerplexity | Self::GenerationPerplexity => 1e6,
            _ => 1e9,
        }
    }

    /// True if `/perf_metrics` lacks this value, because it has neither numbers nor probabilities of tokens.
    #[must_use]
    pub const fn is_only_in_server_metrics(self) -> bool {
        matches!(self, Self::PerOutputToken | Self::CachedTokens | Self::PrefillPerplexity | Self::GenerationPerplexity)
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
    /// True if the server has none of the families above. Releases that do not use the prefix `trtllm_` have none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.scheduled_batch_size.is_none() && self.config.is_empty()
    }

    /// Number of finished requests: the count of the end-to-end histogram, in which the server observes each of them.
    #[must_use]
    pub fn finished_requests(&self) -> u64 {
        let all = ServerCounter::HistogramBucket(RequestHistogram::EndToEnd, "+Inf".to_owned());
        let of_processes = self.counts.iter().filter(|count| count.counter == all).map(|count| count.value);
        of_processes.fold(0, u64::saturating_add)
    }
}
