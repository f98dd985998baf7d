//! The members of the bridge's structs under short names, with 0 for an absent member.

use trtllm_bridge::{FinishReason, FinishedRequest, IterationStats, Known, RequestStage, RequestStats};

pub(crate) const QUEUED: u64 = RequestStage::Queued.repr;
pub(crate) const COMPLETE: u64 = RequestStage::GenerationComplete.repr;

pub(crate) fn text(timestamp: &[u8; 32]) -> [u8; 26] {
    timestamp[..26].try_into().unwrap()
}

macro_rules! row {
    ($name:ident of $From:ident { $($field:ident: $type:ty = $from:ident => $value:expr,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl $name {
            pub(crate) fn of(from: &$From) -> Self {
                $name { $($field: { let $from = from; $value },)* }
            }
        }
    };
}

/// The value of a member of a nested struct. 0 if it or its struct is absent.
macro_rules! of {
    ($from:ident . $member:ident) => { $from.$member.known().unwrap_or_default() };
    ($from:ident . $($nested:ident).+ => $member:ident) => {
        if $from.$($nested).+.present { $from.$($nested).+.$member.known().unwrap_or_default() } else { Default::default() }
    };
}

/// True if a member is present.
fn has(member: impl Known<f64>) -> bool {
    member.known().is_some()
}

row!(IterationRow of IterationStats {
    timestamp: [u8; 26] = from => text(&from.timestamp),
    iter: i64 = from => of!(from.iter),
    iter_latency_ms: f64 = from => of!(from.iter_latency_ms),
    new_active_requests_queue_latency_ms: f64 = from => of!(from.new_active_requests_queue_latency_ms),
    num_new_active_requests: i64 = from => of!(from.num_new_active_requests),
    num_active_requests: i64 = from => of!(from.num_active_requests),
    num_queued_requests: i64 = from => of!(from.num_queued_requests),
    num_completed_requests: i64 = from => of!(from.num_completed_requests),
    max_num_active_requests: i64 = from => of!(from.max_num_active_requests),
    kv_max_num_blocks: i64 = from => of!(from.kv_cache_stats => max_num_blocks),
    kv_free_num_blocks: i64 = from => of!(from.kv_cache_stats => free_num_blocks),
    kv_used_num_blocks: i64 = from => of!(from.kv_cache_stats => used_num_blocks),
    kv_alloc_total_blocks: i64 = from => of!(from.kv_cache_stats => alloc_total_blocks),
    kv_alloc_new_blocks: i64 = from => of!(from.kv_cache_stats => alloc_new_blocks),
    kv_reused_blocks: i64 = from => of!(from.kv_cache_stats => reused_blocks),
    kv_missed_blocks: i64 = from => of!(from.kv_cache_stats => missed_blocks),
    kv_cache_hit_rate: f64 = from => of!(from.kv_cache_stats => cache_hit_rate),
    has_inflight: bool = from => from.inflight_batching_stats.present,
    inflight_num_scheduled_requests: i64 = from => of!(from.inflight_batching_stats => num_scheduled_requests),
    inflight_num_context_requests: i64 = from => of!(from.inflight_batching_stats => num_context_requests),
    inflight_num_gen_requests: i64 = from => of!(from.inflight_batching_stats => num_gen_requests),
    inflight_num_paused_requests: i64 = from => of!(from.inflight_batching_stats => num_paused_requests),
    inflight_num_ctx_tokens: i64 = from => of!(from.inflight_batching_stats => num_ctx_tokens),
    has_static: bool = from => from.static_batching_stats.present,
    static_num_gen_tokens: i64 = from => of!(from.static_batching_stats => num_gen_tokens),
    static_empty_gen_slots: i64 = from => of!(from.static_batching_stats => empty_gen_slots),
    has_spec: bool = from => from.spec_decoding_stats.present,
    spec_num_draft_tokens: i64 = from => of!(from.spec_decoding_stats => num_draft_tokens),
    spec_num_accepted_tokens: i64 = from => of!(from.spec_decoding_stats => num_accepted_tokens),
    spec_acceptance_length: f64 = from => of!(from.spec_decoding_stats => acceptance_length),
    spec_draft_overhead: f64 = from => of!(from.spec_decoding_stats => draft_overhead),
});

row!(RequestRow of RequestStats {
    iteration: u64 = _from => 0,
    id: i64 = from => of!(from.id),
    stage: u64 = from => from.stage.repr,
    scheduled: i64 = from => of!(from.scheduled),
    paused: i64 = from => of!(from.paused),
    context_prefill_position: i64 = from => of!(from.context_prefill_position),
    num_generated_tokens: i64 = from => of!(from.num_generated_tokens),
    has_decoded: bool = from => has(from.avg_num_decoded_tokens_per_iter),
    avg_num_decoded_tokens_per_iter: f64 = from => of!(from.avg_num_decoded_tokens_per_iter),
    alloc_total_blocks: i64 = from => of!(from.alloc_total_blocks_per_request),
    alloc_new_blocks: i64 = from => of!(from.alloc_new_blocks_per_request),
    reused_blocks: i64 = from => of!(from.reused_blocks_per_request),
    has_hit_rate: bool = from => has(from.kv_cache_hit_rate_per_request),
    has_transfer: bool = from => from.dis_serving_stats.present,
    kv_cache_transfer_ms: f64 = from => of!(from.dis_serving_stats => kv_cache_transfer_ms),
    kv_cache_size: i64 = from => of!(from.dis_serving_stats => kv_cache_size),
});

row!(PerfRow of FinishedRequest {
    id: u64 = from => from.request_id,
    reason: FinishReason = from => from.finish_reason,
    prompt_tokens: i64 = from => of!(from.prompt_tokens),
    output_tokens: i64 = from => of!(from.output_tokens),
    has_metrics: bool = from => from.perf_metrics.present,
    has_kv_cache: bool = from => from.perf_metrics.present && from.perf_metrics.kv_cache_metrics.present,
    has_transfer: bool = from => from.perf_metrics.present && has(from.perf_metrics.timing_metrics.kv_cache_transfer_end),
    first_iter: i64 = from => of!(from.perf_metrics => first_iter),
    last_iter: i64 = from => of!(from.perf_metrics => last_iter),
    arrival_s: f64 = from => of!(from.perf_metrics.timing_metrics => arrival_time),
    first_scheduled_s: f64 = from => of!(from.perf_metrics.timing_metrics => first_scheduled_time),
    first_token_s: f64 = from => of!(from.perf_metrics.timing_metrics => first_token_time),
    last_token_s: f64 = from => of!(from.perf_metrics.timing_metrics => last_token_time),
    kv_cache_transfer_start_s: f64 = from => of!(from.perf_metrics.timing_metrics => kv_cache_transfer_start),
    kv_cache_transfer_end_s: f64 = from => of!(from.perf_metrics.timing_metrics => kv_cache_transfer_end),
    kv_cache_size: i64 = from => of!(from.perf_metrics.timing_metrics => kv_cache_size),
    num_reused_blocks: i64 = from => of!(from.perf_metrics.kv_cache_metrics => num_reused_blocks),
    acceptance_rate: f64 = from => of!(from.perf_metrics.speculative_decoding => acceptance_rate),
    total_accepted_draft_tokens: i64 = from => of!(from.perf_metrics.speculative_decoding => total_accepted_draft_tokens),
    total_draft_tokens: i64 = from => of!(from.perf_metrics.speculative_decoding => total_draft_tokens),
});
