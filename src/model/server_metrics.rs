//! What trtllm-serve's own Prometheus page says that its JSON does not: how requests ended, their tokens, HTTP errors and
//! the configuration. The page has several series for one number if the server has several processes.

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
}

/// Names and values, as the server writes them.
pub type Configuration = BTreeMap<ConfigSection, Vec<(String, String)>>;

/// One counter series. It falls only if its process was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCount {
    pub counter: ServerCounter,
    /// Differs between the series of one counter.
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
    /// Observations of the time per output token, by the upper bound of their bucket: `0.01` … `+Inf`.
    TimePerOutputToken(String),
    /// The sum of those times, in nanoseconds: a whole number like the other counts.
    TimePerOutputTokenNanos,
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
        *self == Self::default()
    }
}
