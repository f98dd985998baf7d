//! One iteration as the engine reports it. Fields have TensorRT-LLM's names, and are absent if they were not sent. Keys may
//! be camelCase (TensorRT-LLM's JSON) or snake_case (its Python attributes). `trtllm-fold` corrects wrong values later.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bounded;
use super::lenient::{self, unreadable};
use super::request::RequestStats;
use super::rows::PoolRows;
use super::timestamp::{RecordTime, timestamp};

/// One IterationStats record. Source: executor, trtllm-serve `GET /metrics`, `get_stats()`, the socket.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
    Option<KvCacheStats> => #[serde(deserialize_with = "lenient::object")],
    Option<StaticBatchingStats> => #[serde(deserialize_with = "lenient::object")],
    Option<InflightBatchingStats> => #[serde(deserialize_with = "lenient::object")],
    Option<SpecDecodingStats> => #[serde(deserialize_with = "lenient::object")],
    Option<PoolRows<KvCacheIterationStats>> => #[serde(deserialize_with = "lenient::object")],
    Option<PoolRows<KvCacheLifecycleStats>> => #[serde(deserialize_with = "lenient::object")],
    Option<SchedulerMode> => #[serde(deserialize_with = "lenient::name")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IterationStats {
    /// When the C++ executor wrote the record, or when the PyTorch engine started the batch. Absent if it was sent as
    /// `""`.
    #[serde(deserialize_with = "timestamp")]
    pub timestamp: Option<RecordTime>,
    /// Iteration number, counted by the engine from its start.
    pub iter: Option<u64>,
    /// Milliseconds. The C++ executor reports the duration of the previous pass of its loop.
    #[serde(rename = "iterLatencyMS", alias = "iter_latency_ms")]
    pub iter_latency_ms: Option<f64>,
    /// Milliseconds, *sum* over the requests that became active in this iteration. The PyTorch engine sends seconds,
    /// summed since its start.
    #[serde(rename = "newActiveRequestsQueueLatencyMS", alias = "new_active_requests_queue_latency_ms")]
    pub new_active_requests_queue_latency_ms: Option<f64>,
    /// Requests that became active in this iteration.
    #[serde(alias = "num_new_active_requests")]
    pub num_new_active_requests: Option<i64>,
    #[serde(alias = "num_active_requests")]
    pub num_active_requests: Option<i64>,
    /// Requests in the executor's own queue, not yet active.
    #[serde(alias = "num_queued_requests")]
    pub num_queued_requests: Option<i64>,
    /// Requests completed in this iteration.
    #[serde(alias = "num_completed_requests")]
    pub num_completed_requests: Option<i64>,
    #[serde(alias = "max_num_active_requests")]
    pub max_num_active_requests: Option<i64>,
    #[serde(alias = "max_batch_size_static")]
    pub max_batch_size_static: Option<i64>,
    #[serde(alias = "max_batch_size_tuner_recommended")]
    pub max_batch_size_tuner_recommended: Option<i64>,
    #[serde(alias = "max_batch_size_runtime")]
    pub max_batch_size_runtime: Option<i64>,
    #[serde(alias = "max_num_tokens_static")]
    pub max_num_tokens_static: Option<i64>,
    #[serde(alias = "max_num_tokens_tuner_recommended")]
    pub max_num_tokens_tuner_recommended: Option<i64>,
    #[serde(alias = "max_num_tokens_runtime")]
    pub max_num_tokens_runtime: Option<i64>,
    /// Bytes. The C++ backend reports the memory of its process's buffer managers. The PyTorch backend reports the
    /// memory of all processes on the GPU.
    #[serde(alias = "gpu_mem_usage")]
    pub gpu_mem_usage: Option<i64>,
    /// Bytes.
    #[serde(alias = "cpu_mem_usage")]
    pub cpu_mem_usage: Option<i64>,
    /// Bytes.
    #[serde(alias = "pinned_mem_usage")]
    pub pinned_mem_usage: Option<i64>,
    #[serde(alias = "kv_cache_stats")]
    pub kv_cache_stats: Option<KvCacheStats>,
    /// Sent only for encoder-decoder models. The C++ JSON serializer omits this field.
    #[serde(alias = "cross_kv_cache_stats")]
    pub cross_kv_cache_stats: Option<KvCacheStats>,
    #[serde(alias = "static_batching_stats")]
    pub static_batching_stats: Option<StaticBatchingStats>,
    #[serde(alias = "inflight_batching_stats")]
    pub inflight_batching_stats: Option<InflightBatchingStats>,
    /// Sent only by the PyTorch backend.
    #[serde(alias = "spec_decoding_stats", alias = "specdec_stats")]
    pub spec_decoding_stats: Option<SpecDecodingStats>,
    /// Sent only by trtllm-serve with `enable_iter_req_stats`.
    #[serde(alias = "request_stats", deserialize_with = "bounded::requests")]
    pub request_stats: Option<Vec<RequestStats>>,
    /// Rank in attention data parallelism. Each rank sends its own record for an iteration, with the same `iter`.
    #[serde(alias = "attention_dp_rank")]
    pub attention_dp_rank: Option<i64>,
    pub rank: Option<i64>,
    /// Milliseconds of one pass of the host loop. Under the overlap scheduler this is the latency of an iteration.
    #[serde(rename = "hostStepTimeMS", alias = "host_step_time_ms")]
    pub host_step_time_ms: Option<f64>,
    /// Milliseconds.
    #[serde(rename = "prevDeviceStepTimeMS", alias = "prev_device_step_time_ms")]
    pub prev_device_step_time_ms: Option<f64>,
    /// Milliseconds.
    #[serde(rename = "gpuForwardTimeMS", alias = "gpu_forward_time_ms")]
    pub gpu_forward_time_ms: Option<f64>,
    #[serde(alias = "scheduler_mode")]
    pub scheduler_mode: Option<SchedulerMode>,
    /// Sequence number of the record (the statistics frame). A gap means that records were lost.
    #[serde(alias = "stats_sequence")]
    pub stats_sequence: Option<u64>,
    /// Number of records that the engine has dropped itself since its start.
    #[serde(alias = "stats_dropped_frames")]
    pub stats_dropped_frames: Option<u64>,
    /// Statistics for each attention window size.
    #[serde(alias = "kv_cache_iteration_stats")]
    pub kv_cache_iteration_stats: Option<PoolRows<KvCacheIterationStats>>,
    /// Statistics for each pool group on the GPU. A pool that several windows share appears once. Only KV cache manager
    /// V2 sends this field and all fields below.
    #[serde(alias = "kv_cache_iteration_stats_by_pool_group")]
    pub kv_cache_iteration_stats_by_pool_group: Option<PoolRows<KvCacheIterationStats>>,
    /// Statistics for each pool group on host and disk. These groups differ from the pool groups on the GPU.
    #[serde(alias = "kv_cache_iteration_stats_by_cold_pool_group")]
    pub kv_cache_iteration_stats_by_cold_pool_group: Option<PoolRows<KvCacheIterationStats>>,
    /// Statistics for each life cycle (a group of layers) that looked up blocks in this iteration.
    #[serde(alias = "kv_cache_iteration_stats_by_lifecycle")]
    pub kv_cache_iteration_stats_by_lifecycle: Option<PoolRows<KvCacheLifecycleStats>>,
    /// Requests whose KV cache was evicted in this iteration.
    #[serde(alias = "iter_suspended_requests")]
    pub iter_suspended_requests: Option<i64>,
    #[serde(alias = "iter_resumed_requests")]
    pub iter_resumed_requests: Option<i64>,
    #[serde(alias = "iter_disk_prefetch_blocks")]
    pub iter_disk_prefetch_blocks: Option<i64>,
    /// Prompt tokens found in the KV cache in this iteration, by level: GPU first.
    #[serde(alias = "iter_cached_tokens_by_level", deserialize_with = "bounded::levels")]
    pub iter_cached_tokens_by_level: Option<Vec<i64>>,
    /// Denoising steps since the start of VisualGen, which writes a record when a request comes, starts or ends. No other engine
    /// sends this field.
    #[serde(alias = "current_steps_processed")]
    pub current_steps_processed: Option<i64>,
    /// The name of each level, e.g. `gpu`, `host`, `disk`.
    #[serde(alias = "kv_cache_level_tiers", deserialize_with = "bounded::level_names")]
    pub kv_cache_level_tiers: Option<Vec<String>>,
}

/// The backend of TensorRT-LLM that wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Backend {
    /// The C++ Executor.
    TensorRt,
    PyTorch,
    /// Generates images and videos, without batches of tokens. Its records only tell which requests are active and queued.
    VisualGen,
}

impl IterationStats {
    /// Detects the backend from values that only one backend writes. For static batching, PyTorch sends zeros and C++
    /// sends null. Newer PyTorch releases send a scheduler mode and a rank; older ones send no timestamp.
    #[must_use]
    pub fn backend(&self) -> Backend {
        let has_batch = self.inflight_batching_stats.is_some() || self.static_batching_stats.is_some();
        if self.current_steps_processed.is_some() && !has_batch {
            return Backend::VisualGen;
        }
        let pytorch = self.attention_dp_rank.is_some()
            || self.scheduler_mode.is_some()
            || self.timestamp.is_none()
            || self.inflight_batching_stats.is_some()
                && self.static_batching_stats.as_ref().is_some_and(StaticBatchingStats::is_all_zero);
        if pytorch { Backend::PyTorch } else { Backend::TensorRt }
    }
}

/// Blocks of one KV cache. `alloc*`, `reused` and `missed` are cumulative since the cache was created.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KvCacheStats {
    #[serde(alias = "max_num_blocks")]
    pub max_num_blocks: Option<i64>,
    /// Includes blocks that are kept only for reuse.
    #[serde(alias = "free_num_blocks")]
    pub free_num_blocks: Option<i64>,
    #[serde(alias = "used_num_blocks")]
    pub used_num_blocks: Option<i64>,
    #[serde(alias = "tokens_per_block")]
    pub tokens_per_block: Option<i64>,
    #[serde(alias = "alloc_total_blocks")]
    pub alloc_total_blocks: Option<i64>,
    #[serde(alias = "alloc_new_blocks")]
    pub alloc_new_blocks: Option<i64>,
    #[serde(alias = "reused_blocks")]
    pub reused_blocks: Option<i64>,
    #[serde(alias = "missed_blocks")]
    pub missed_blocks: Option<i64>,
    /// Cumulative hit rate, 0..1.
    #[serde(alias = "cache_hit_rate")]
    pub cache_hit_rate: Option<f64>,
}

impl KvCacheStats {
    /// Used share of the blocks, 0..1. It is 0 for a cache without blocks, because a router must never read NaN.
    #[must_use]
    pub fn used_fraction(&self) -> Option<f64> {
        let (used, max) = self.used_num_blocks.zip(self.max_num_blocks)?;
        Some(if max > 0 { (used as f64 / max as f64).clamp(0.0, 1.0) } else { 0.0 })
    }
}

/// Statistics of in-flight batching. Other projects call the context and generation phases prefill and decode.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InflightBatchingStats {
    #[serde(alias = "num_scheduled_requests")]
    pub num_scheduled_requests: Option<i64>,
    #[serde(alias = "num_context_requests")]
    pub num_context_requests: Option<i64>,
    #[serde(alias = "num_gen_requests")]
    pub num_gen_requests: Option<i64>,
    #[serde(alias = "num_paused_requests")]
    pub num_paused_requests: Option<i64>,
    /// Context tokens computed in this iteration. Tokens found in the cache are not included.
    #[serde(alias = "num_ctx_tokens")]
    pub num_ctx_tokens: Option<i64>,
    #[serde(alias = "micro_batch_id")]
    pub micro_batch_id: Option<i64>,
    /// Tokens per generation request. Some releases of the PyTorch backend send 0.
    #[serde(alias = "avg_num_decoded_tokens_per_iter")]
    pub avg_num_decoded_tokens_per_iter: Option<f64>,
    #[serde(alias = "num_ctx_kv_tokens")]
    pub num_ctx_kv_tokens: Option<i64>,
    #[serde(alias = "num_gen_kv_tokens")]
    pub num_gen_kv_tokens: Option<i64>,
    #[serde(alias = "num_queued_context_requests")]
    pub num_queued_context_requests: Option<i64>,
    #[serde(alias = "num_queued_ctx_tokens")]
    pub num_queued_ctx_tokens: Option<i64>,
    #[serde(alias = "num_queued_gen_requests")]
    pub num_queued_gen_requests: Option<i64>,
    #[serde(alias = "num_queued_gen_kv_tokens")]
    pub num_queued_gen_kv_tokens: Option<i64>,
    #[serde(alias = "num_paused_kv_tokens")]
    pub num_paused_kv_tokens: Option<i64>,
}

/// Statistics of static batching. PyTorch always sends this object, with zeros if it does not batch statically.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticBatchingStats {
    #[serde(alias = "num_scheduled_requests")]
    pub num_scheduled_requests: Option<i64>,
    #[serde(alias = "num_context_requests")]
    pub num_context_requests: Option<i64>,
    #[serde(alias = "num_ctx_tokens")]
    pub num_ctx_tokens: Option<i64>,
    #[serde(alias = "num_gen_tokens")]
    pub num_gen_tokens: Option<i64>,
    /// Unused generation slots of the padded batch.
    #[serde(alias = "empty_gen_slots")]
    pub empty_gen_slots: Option<i64>,
}

impl StaticBatchingStats {
    /// True if all values are 0, which means that there is no static batching.
    #[must_use]
    pub fn is_all_zero(&self) -> bool {
        *self
            == Self {
                num_scheduled_requests: Some(0),
                num_context_requests: Some(0),
                num_ctx_tokens: Some(0),
                num_gen_tokens: Some(0),
                empty_gen_slots: Some(0),
            }
    }
}

/// Statistics of speculative decoding, summed over the generation requests of this iteration.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecDecodingStats {
    #[serde(alias = "num_draft_tokens")]
    pub num_draft_tokens: Option<i64>,
    #[serde(alias = "num_accepted_tokens")]
    pub num_accepted_tokens: Option<i64>,
    #[serde(alias = "num_requests_with_draft_tokens")]
    pub num_requests_with_draft_tokens: Option<i64>,
    /// Tokens per step: the accepted draft tokens plus one.
    #[serde(alias = "acceptance_length")]
    pub acceptance_length: Option<f64>,
    /// Milliseconds spent drafting.
    #[serde(rename = "iterLatencyMS", alias = "iter_latency_ms")]
    pub iter_latency_ms: Option<f64>,
    /// Draft time divided by iteration time.
    #[serde(alias = "draft_overhead")]
    pub draft_overhead: Option<f64>,
}

impl SpecDecodingStats {
    /// The fields that are about drafts of this record. Without drafts, the engine repeats the last time of drafting, and its tokens
    /// per step are those of no step. The accepted tokens stay: they are of the batch before, whose drafts an earlier record has.
    #[must_use]
    pub fn measured(self) -> Self {
        if self.num_draft_tokens != Some(0) && self.num_requests_with_draft_tokens != Some(0) {
            return self;
        }
        Self { acceptance_length: None, iter_latency_ms: None, draft_overhead: None, ..self }
    }
}

/// KV cache pools of one attention window or pool group. Fields `iter*` count events since the previous record.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KvCacheIterationStats {
    /// Bytes of a block, summed over the pools of a pool group. TensorRT-LLM sends a list, one number per pool.
    #[serde(deserialize_with = "bounded::sum", alias = "slot_size")]
    #[serde_with(skip_apply)]
    pub slot_size: Option<i64>,
    #[serde(alias = "primary_max_num_blocks")]
    pub primary_max_num_blocks: Option<i64>,
    #[serde(alias = "primary_free_num_blocks")]
    pub primary_free_num_blocks: Option<i64>,
    #[serde(alias = "primary_used_num_blocks")]
    pub primary_used_num_blocks: Option<i64>,
    #[serde(alias = "primary_evictable_num_blocks")]
    pub primary_evictable_num_blocks: Option<i64>,
    #[serde(alias = "primary_peak_free_num_blocks")]
    pub primary_peak_free_num_blocks: Option<i64>,
    #[serde(alias = "primary_peak_used_num_blocks")]
    pub primary_peak_used_num_blocks: Option<i64>,
    #[serde(alias = "primary_peak_evictable_num_blocks")]
    pub primary_peak_evictable_num_blocks: Option<i64>,
    #[serde(alias = "secondary_max_num_blocks")]
    pub secondary_max_num_blocks: Option<i64>,
    #[serde(alias = "secondary_free_num_blocks")]
    pub secondary_free_num_blocks: Option<i64>,
    #[serde(alias = "secondary_used_num_blocks")]
    pub secondary_used_num_blocks: Option<i64>,
    #[serde(alias = "secondary_evictable_num_blocks")]
    pub secondary_evictable_num_blocks: Option<i64>,
    #[serde(alias = "secondary_peak_free_num_blocks")]
    pub secondary_peak_free_num_blocks: Option<i64>,
    #[serde(alias = "secondary_peak_used_num_blocks")]
    pub secondary_peak_used_num_blocks: Option<i64>,
    #[serde(alias = "secondary_peak_evictable_num_blocks")]
    pub secondary_peak_evictable_num_blocks: Option<i64>,
    #[serde(alias = "iter_alloc_total_blocks")]
    pub iter_alloc_total_blocks: Option<i64>,
    #[serde(alias = "iter_alloc_new_blocks")]
    pub iter_alloc_new_blocks: Option<i64>,
    #[serde(alias = "iter_reused_blocks")]
    pub iter_reused_blocks: Option<i64>,
    #[serde(alias = "iter_full_reused_blocks")]
    pub iter_full_reused_blocks: Option<i64>,
    #[serde(alias = "iter_partial_reused_blocks")]
    pub iter_partial_reused_blocks: Option<i64>,
    #[serde(alias = "iter_missed_blocks")]
    pub iter_missed_blocks: Option<i64>,
    #[serde(alias = "iter_cache_hit_rate")]
    pub iter_cache_hit_rate: Option<f64>,
    #[serde(alias = "iter_gen_alloc_blocks")]
    pub iter_gen_alloc_blocks: Option<i64>,
    #[serde(alias = "iter_onboard_blocks")]
    pub iter_onboard_blocks: Option<i64>,
    #[serde(alias = "iter_onboard_bytes")]
    pub iter_onboard_bytes: Option<i64>,
    #[serde(alias = "iter_offload_blocks")]
    pub iter_offload_blocks: Option<i64>,
    #[serde(alias = "iter_offload_bytes")]
    pub iter_offload_bytes: Option<i64>,
    #[serde(alias = "iter_intra_device_copy_blocks")]
    pub iter_intra_device_copy_blocks: Option<i64>,
    #[serde(alias = "iter_intra_device_copy_bytes")]
    pub iter_intra_device_copy_bytes: Option<i64>,
    #[serde(alias = "iter_host_dropped_blocks")]
    pub iter_host_dropped_blocks: Option<i64>,
    #[serde(alias = "iter_host_dropped_bytes")]
    pub iter_host_dropped_bytes: Option<i64>,
}

/// Blocks that one life cycle found in the cache since the previous record. A life cycle is a group of layers that keep
/// their blocks for the same time.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<LifecycleKind> => #[serde(deserialize_with = "lenient::name")],
    Option<SsmSnapshotStats> => #[serde(deserialize_with = "lenient::object")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KvCacheLifecycleStats {
    /// An absent kind means attention.
    pub kind: Option<LifecycleKind>,
    #[serde(alias = "iter_reused_blocks")]
    pub iter_reused_blocks: Option<i64>,
    #[serde(alias = "iter_full_reused_blocks")]
    pub iter_full_reused_blocks: Option<i64>,
    #[serde(alias = "iter_partial_reused_blocks")]
    pub iter_partial_reused_blocks: Option<i64>,
    #[serde(alias = "iter_missed_blocks")]
    pub iter_missed_blocks: Option<i64>,
    /// Blocks by the cache level from which they were read, GPU first.
    #[serde(deserialize_with = "bounded::levels", alias = "iter_full_reused_blocks_by_level")]
    pub iter_full_reused_blocks_by_level: Option<Vec<i64>>,
    #[serde(deserialize_with = "bounded::levels", alias = "iter_partial_reused_blocks_by_level")]
    pub iter_partial_reused_blocks_by_level: Option<Vec<i64>>,
    /// Sent only for state space models.
    #[serde(alias = "snapshot_stats")]
    pub snapshot_stats: Option<SsmSnapshotStats>,
}

/// The kind of layers that share a life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleKind {
    Attention,
    /// Layers of a state space model.
    Ssm,
    #[serde(other)]
    Unknown,
}

/// Snapshots of the state of a state space model that requests looked up since the previous record.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SsmSnapshotStats {
    #[serde(alias = "iter_snapshot_lookups")]
    pub iter_snapshot_lookups: Option<i64>,
    #[serde(alias = "iter_snapshot_misses")]
    pub iter_snapshot_misses: Option<i64>,
    /// Prompt tokens that a snapshot covers.
    #[serde(alias = "iter_reused_tokens")]
    pub iter_reused_tokens: Option<i64>,
    #[serde(alias = "iter_unreused_tokens")]
    pub iter_unreused_tokens: Option<i64>,
    /// Lookups that found a snapshot at the end of a block.
    #[serde(alias = "iter_aligned_snapshot_hits")]
    pub iter_aligned_snapshot_hits: Option<i64>,
    #[serde(alias = "iter_unaligned_snapshot_hits")]
    pub iter_unaligned_snapshot_hits: Option<i64>,
}

/// How the PyTorch scheduler interleaves host and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerMode {
    Overlap,
    NonOverlap,
    #[serde(other)]
    Unknown,
}

unreadable! {
    KvCacheStats { max_num_blocks: i64::MIN + 1 },
    InflightBatchingStats { num_scheduled_requests: i64::MIN + 1 },
    StaticBatchingStats { num_scheduled_requests: i64::MIN + 1 },
    SpecDecodingStats { num_draft_tokens: i64::MIN + 1 },
    KvCacheIterationStats { slot_size: i64::MIN + 1 },
    KvCacheLifecycleStats { iter_reused_blocks: i64::MIN + 1 },
    SsmSnapshotStats { iter_snapshot_lookups: i64::MIN + 1 },
}
