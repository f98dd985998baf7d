//! The meaning of the bit masks and codes in the rows.

use crate::ffi::{IterationRow, KvEventKind, KvEventRow, PerfRow, RequestRow, Stage};

/// Bits of [`IterationRow::present`]: which optional members a record has. A bit is also 0 if the TensorRT-LLM release
/// that this crate was compiled against does not have the member.
pub mod iteration_present {
    use crate::ffi::IterationPresent as Bit;

    /// `timestamp_local_us`: the record had a valid timestamp.
    pub const TIMESTAMP: u64 = Bit::Timestamp.repr;
    /// `iter_latency_ms`
    pub const ITER_LATENCY: u64 = Bit::IterLatency.repr;
    /// `new_active_requests_queue_latency_ms`
    pub const QUEUE_LATENCY: u64 = Bit::QueueLatency.repr;
    /// `num_new_active_requests`
    pub const NEW_ACTIVE_REQUESTS: u64 = Bit::NewActiveRequests.repr;
    /// `num_queued_requests`
    pub const QUEUED_REQUESTS: u64 = Bit::QueuedRequests.repr;
    /// `num_completed_requests`
    pub const COMPLETED_REQUESTS: u64 = Bit::CompletedRequests.repr;
    /// `max_batch_size_*`
    pub const BATCH_SIZE_LIMITS: u64 = Bit::BatchSizeLimits.repr;
    /// `max_num_tokens_*`
    pub const TOKEN_LIMITS: u64 = Bit::TokenLimits.repr;
    /// `kv_max_num_blocks`, `kv_free_num_blocks`, `kv_used_num_blocks`, `kv_tokens_per_block`
    pub const KV: u64 = Bit::Kv.repr;
    /// `kv_alloc_total_blocks`, `kv_alloc_new_blocks`, `kv_reused_blocks`
    pub const KV_ALLOC: u64 = Bit::KvAlloc.repr;
    /// `kv_missed_blocks`, `kv_cache_hit_rate`
    pub const KV_MISSED: u64 = Bit::KvMissed.repr;
    /// Like [`KV`], for the cross-attention cache.
    pub const CROSS_KV: u64 = Bit::CrossKv.repr;
    /// Like [`KV_ALLOC`], for the cross-attention cache.
    pub const CROSS_KV_ALLOC: u64 = Bit::CrossKvAlloc.repr;
    /// Like [`KV_MISSED`], for the cross-attention cache.
    pub const CROSS_KV_MISSED: u64 = Bit::CrossKvMissed.repr;
    /// `static_*`
    pub const STATIC: u64 = Bit::Static.repr;
    /// `inflight_num_scheduled_requests` to `inflight_micro_batch_id`
    pub const INFLIGHT: u64 = Bit::Inflight.repr;
    /// `inflight_avg_num_decoded_tokens_per_iter`
    pub const INFLIGHT_DECODED: u64 = Bit::InflightDecoded.repr;
    /// `inflight_num_ctx_kv_tokens` to `inflight_num_paused_kv_tokens`
    pub const INFLIGHT_KV_TOKENS: u64 = Bit::InflightKvTokens.repr;
    /// `spec_*`
    pub const SPEC: u64 = Bit::Spec.repr;
}

/// Bits of [`RequestRow::present`]. See [`iteration_present`].
pub mod request_present {
    use crate::ffi::RequestPresent as Bit;

    /// `avg_num_decoded_tokens_per_iter`
    pub const DECODED: u64 = Bit::Decoded.repr;
    /// `alloc_total_blocks`, `alloc_new_blocks`, `reused_blocks`
    pub const KV_ALLOC: u64 = Bit::KvAlloc.repr;
    /// `missed_blocks`, `kv_cache_hit_rate`
    pub const KV_MISSED: u64 = Bit::KvMissed.repr;
    /// `kv_cache_transfer_ms`
    pub const DIS_SERVING: u64 = Bit::DisServing.repr;
    /// `kv_cache_size`
    pub const DIS_SERVING_SIZE: u64 = Bit::DisServingSize.repr;
}

/// Bits of [`PerfRow::present`]. See [`iteration_present`].
pub mod perf_present {
    use crate::ffi::PerfPresent as Bit;

    /// `finish_reason`
    pub const FINISH_REASON: u64 = Bit::FinishReason.repr;
    /// `arrival_s`
    pub const ARRIVAL: u64 = Bit::Arrival.repr;
    /// `first_scheduled_s`
    pub const FIRST_SCHEDULED: u64 = Bit::FirstScheduled.repr;
    /// `first_token_s`
    pub const FIRST_TOKEN: u64 = Bit::FirstToken.repr;
    /// `last_token_s`
    pub const LAST_TOKEN: u64 = Bit::LastToken.repr;
    /// `kv_cache_transfer_start_s`, `kv_cache_transfer_end_s`, `kv_cache_size`
    pub const KV_TRANSFER: u64 = Bit::KvTransfer.repr;
    /// `num_*_blocks`, `kv_cache_hit_rate`
    pub const KV: u64 = Bit::Kv.repr;
    /// `acceptance_rate`, `total_accepted_draft_tokens`, `total_draft_tokens`
    pub const SPEC: u64 = Bit::Spec.repr;
    /// `first_iter`, `last_iter`
    pub const ITERATIONS: u64 = Bit::Iterations.repr;
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    EndId,
    StopWords,
    Length,
    TimedOut,
    Cancelled,
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestStage {
    Queued,
    EncoderInProgress,
    ContextInProgress,
    GenerationInProgress,
    GenerationComplete,
}

impl IterationRow {
    /// True if all of these bits of [`iteration_present`] are set.
    pub fn has(&self, bits: u64) -> bool {
        self.present & bits == bits
    }
}

/// An empty row for [`drain_kv_events`](crate::Executor::drain_kv_events) to fill.
impl Default for KvEventRow {
    fn default() -> Self {
        KvEventRow {
            event_id: 0,
            kind: KvEventKind::Unknown,
            empty: false,
            has_rank: false,
            rank: 0,
            has_level: false,
            level: 0,
            value: 0,
        }
    }
}

impl RequestRow {
    /// True if all of these bits of [`request_present`] are set.
    pub fn has(&self, bits: u64) -> bool {
        self.present & bits == bits
    }

    /// Converts `stage`. None for a stage that a newer release added.
    pub fn request_stage(&self) -> Option<RequestStage> {
        match (Stage { repr: self.stage }) {
            Stage::Queued => Some(RequestStage::Queued),
            Stage::EncoderInProgress => Some(RequestStage::EncoderInProgress),
            Stage::ContextInProgress => Some(RequestStage::ContextInProgress),
            Stage::GenerationInProgress => Some(RequestStage::GenerationInProgress),
            Stage::GenerationComplete => Some(RequestStage::GenerationComplete),
            _ => None,
        }
    }
}

impl PerfRow {
    /// True if all of these bits of [`perf_present`] are set.
    pub fn has(&self, bits: u64) -> bool {
        self.present & bits == bits
    }

    /// Converts `finish_reason`. None if the engine gave no reason, or one that a newer release added.
    pub fn reason(&self) -> Option<FinishReason> {
        match self.finish_reason {
            1 => Some(FinishReason::EndId),
            2 => Some(FinishReason::StopWords),
            3 => Some(FinishReason::Length),
            4 => Some(FinishReason::TimedOut),
            5 => Some(FinishReason::Cancelled),
            _ => None,
        }
    }
}
