//! Requests as the engine reports them at each iteration. Values are cumulative over the lifetime of a request.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bounded;
use super::lenient::{self, unreadable};

/// One request at one iteration. Source: RequestStatsPerIteration, or `requestStats` inside a record.
#[serde_with::apply(
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
    Option<RequestStage> => #[serde(deserialize_with = "lenient::name")],
    Option<bool> => #[serde(deserialize_with = "lenient::name")],
    Option<DisServingRequestStats> => #[serde(deserialize_with = "lenient::object")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStats {
    pub id: Option<u64>,
    pub stage: Option<RequestStage>,
    /// Tokens of the prompt processed so far (chunked context).
    #[serde(alias = "context_prefill_position")]
    pub context_prefill_position: Option<i64>,
    #[serde(alias = "num_generated_tokens")]
    pub num_generated_tokens: Option<i64>,
    #[serde(alias = "avg_num_decoded_tokens_per_iter")]
    pub avg_num_decoded_tokens_per_iter: Option<f64>,
    pub scheduled: Option<bool>,
    pub paused: Option<bool>,
    #[serde(alias = "dis_serving_stats")]
    pub dis_serving_stats: Option<DisServingRequestStats>,
    #[serde(alias = "alloc_total_blocks_per_request")]
    pub alloc_total_blocks_per_request: Option<i64>,
    #[serde(alias = "alloc_new_blocks_per_request")]
    pub alloc_new_blocks_per_request: Option<i64>,
    #[serde(alias = "reused_blocks_per_request")]
    pub reused_blocks_per_request: Option<i64>,
    #[serde(alias = "missed_blocks_per_request")]
    pub missed_blocks_per_request: Option<i64>,
    /// 0..1
    #[serde(alias = "kv_cache_hit_rate_per_request")]
    pub kv_cache_hit_rate_per_request: Option<f64>,
}

/// The KV cache transfer of a request that a context and a generation server handle together.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisServingRequestStats {
    /// Milliseconds.
    #[serde(rename = "kvCacheTransferMS", alias = "kv_cache_transfer_ms")]
    pub kv_cache_transfer_ms: Option<f64>,
    /// Bytes.
    #[serde(alias = "kv_cache_size")]
    pub kv_cache_size: Option<i64>,
}

/// All requests of the engine at one iteration.
#[serde_with::apply(
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatsPerIteration {
    pub iter: Option<u64>,
    #[serde(alias = "request_stats", deserialize_with = "bounded::requests")]
    pub request_stats: Option<Vec<RequestStats>>,
}

/// The stage of a request. The names without `_IN_PROGRESS` are from older documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum RequestStage {
    #[serde(rename = "QUEUED")]
    Queued,
    #[serde(rename = "ENCODER_IN_PROGRESS", alias = "ENCODER")]
    Encoder,
    #[serde(rename = "CONTEXT_IN_PROGRESS", alias = "CONTEXT", alias = "CONTEXT_INIT")]
    Context,
    #[serde(rename = "GENERATION_IN_PROGRESS", alias = "GENERATION", alias = "GENERATION_INIT")]
    Generation,
    #[serde(rename = "GENERATION_COMPLETE")]
    Complete,
    #[serde(other)]
    Unknown,
}

unreadable! {
    RequestStats { id: u64::MAX },
    DisServingRequestStats { kv_cache_size: i64::MIN + 1 },
}
