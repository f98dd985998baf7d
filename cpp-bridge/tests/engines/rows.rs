//! The slots of a row under short names, with 0 for an absent slot.

use trtllm_rows::slots::{
    dis_serving_request_stats as serving, inflight_batching_stats as batching, iteration_stats as it,
    kv_cache_stats as kv, request_kv_cache_metrics as cache, request_perf_metrics as perf, request_stats as rq,
    spec_decoding_stats as spec, speculative_decoding_metrics as draft, static_batching_stats as fixed,
    timing_metrics as timing,
};
use trtllm_rows::{Kind, Row, finished};

pub(crate) const QUEUED: i64 = 0;
pub(crate) const COMPLETE: i64 = 4;
/// The finish reasons.
pub(crate) const LENGTH: i64 = 2;
pub(crate) const OTHER: i64 = 99;

const COUNT: i64 = 0;
const NUMBER: f64 = 0.0;

macro_rules! row {
    ($name:ident { $($field:ident: $absent:ident = $slot:expr,)* }) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub(crate) struct $name {
            /// A bit for each slot that is present.
            pub(crate) present: u64,
            /// The number of the iteration of a request row.
            pub(crate) iteration: u64,
            pub(crate) timestamp: [u8; 26],
            $(pub(crate) $field: row!(@type $absent),)*
        }

        impl $name {
            pub(crate) fn of(row: &Row<'_>, iteration: u64) -> Self {
                let present = (0..64).filter(|slot| row.get::<u64>(*slot).is_some()).fold(0, |bits, slot| bits | 1 << slot);
                let timestamp = row.text().as_bytes().try_into().unwrap_or_default();
                $name { present, iteration, timestamp, $($field: row.get($slot).unwrap_or($absent),)* }
            }

            pub(crate) fn has(&self, slot: usize) -> bool {
                self.present >> slot & 1 == 1
            }
        }
    };
    (@type COUNT) => { i64 };
    (@type NUMBER) => { f64 };
}

row!(IterationRow {
    iter: COUNT = it::ITER,
    iter_latency_ms: NUMBER = it::ITER_LATENCY_MS,
    new_active_requests_queue_latency_ms: NUMBER = it::NEW_ACTIVE_REQUESTS_QUEUE_LATENCY_MS,
    num_new_active_requests: COUNT = it::NUM_NEW_ACTIVE_REQUESTS,
    num_active_requests: COUNT = it::NUM_ACTIVE_REQUESTS,
    num_queued_requests: COUNT = it::NUM_QUEUED_REQUESTS,
    num_completed_requests: COUNT = it::NUM_COMPLETED_REQUESTS,
    max_num_active_requests: COUNT = it::MAX_NUM_ACTIVE_REQUESTS,
    kv_max_num_blocks: COUNT = it::KV_CACHE_STATS + kv::MAX_NUM_BLOCKS,
    kv_free_num_blocks: COUNT = it::KV_CACHE_STATS + kv::FREE_NUM_BLOCKS,
    kv_used_num_blocks: COUNT = it::KV_CACHE_STATS + kv::USED_NUM_BLOCKS,
    kv_alloc_total_blocks: COUNT = it::KV_CACHE_STATS + kv::ALLOC_TOTAL_BLOCKS,
    kv_alloc_new_blocks: COUNT = it::KV_CACHE_STATS + kv::ALLOC_NEW_BLOCKS,
    kv_reused_blocks: COUNT = it::KV_CACHE_STATS + kv::REUSED_BLOCKS,
    kv_missed_blocks: COUNT = it::KV_CACHE_STATS + kv::MISSED_BLOCKS,
    kv_cache_hit_rate: NUMBER = it::KV_CACHE_STATS + kv::CACHE_HIT_RATE,
    inflight_num_scheduled_requests: COUNT = it::INFLIGHT_BATCHING_STATS + batching::NUM_SCHEDULED_REQUESTS,
    inflight_num_context_requests: COUNT = it::INFLIGHT_BATCHING_STATS + batching::NUM_CONTEXT_REQUESTS,
    inflight_num_gen_requests: COUNT = it::INFLIGHT_BATCHING_STATS + batching::NUM_GEN_REQUESTS,
    inflight_num_paused_requests: COUNT = it::INFLIGHT_BATCHING_STATS + batching::NUM_PAUSED_REQUESTS,
    inflight_num_ctx_tokens: COUNT = it::INFLIGHT_BATCHING_STATS + batching::NUM_CTX_TOKENS,
    static_num_gen_tokens: COUNT = it::STATIC_BATCHING_STATS + fixed::NUM_GEN_TOKENS,
    static_empty_gen_slots: COUNT = it::STATIC_BATCHING_STATS + fixed::EMPTY_GEN_SLOTS,
    spec_num_draft_tokens: COUNT = it::SPEC_DECODING_STATS + spec::NUM_DRAFT_TOKENS,
    spec_num_accepted_tokens: COUNT = it::SPEC_DECODING_STATS + spec::NUM_ACCEPTED_TOKENS,
    spec_acceptance_length: NUMBER = it::SPEC_DECODING_STATS + spec::ACCEPTANCE_LENGTH,
    spec_draft_overhead: NUMBER = it::SPEC_DECODING_STATS + spec::DRAFT_OVERHEAD,
});

row!(RequestRow {
    id: COUNT = rq::ID,
    stage: COUNT = rq::STAGE,
    scheduled: COUNT = rq::SCHEDULED,
    paused: COUNT = rq::PAUSED,
    context_prefill_position: COUNT = rq::CONTEXT_PREFILL_POSITION,
    num_generated_tokens: COUNT = rq::NUM_GENERATED_TOKENS,
    avg_num_decoded_tokens_per_iter: NUMBER = rq::AVG_NUM_DECODED_TOKENS_PER_ITER,
    alloc_total_blocks: COUNT = rq::ALLOC_TOTAL_BLOCKS_PER_REQUEST,
    alloc_new_blocks: COUNT = rq::ALLOC_NEW_BLOCKS_PER_REQUEST,
    reused_blocks: COUNT = rq::REUSED_BLOCKS_PER_REQUEST,
    kv_cache_transfer_ms: NUMBER = rq::DIS_SERVING_STATS + serving::KV_CACHE_TRANSFER_MS,
    kv_cache_size: COUNT = rq::DIS_SERVING_STATS + serving::KV_CACHE_SIZE,
});

row!(PerfRow {
    id: COUNT = finished::REQUEST,
    reason: COUNT = finished::REASON,
    prompt_tokens: COUNT = finished::PROMPT_TOKENS,
    output_tokens: COUNT = finished::OUTPUT_TOKENS,
    first_iter: COUNT = perf::FIRST_ITER,
    last_iter: COUNT = perf::LAST_ITER,
    arrival_s: NUMBER = perf::TIMING_METRICS + timing::ARRIVAL_TIME,
    first_scheduled_s: NUMBER = perf::TIMING_METRICS + timing::FIRST_SCHEDULED_TIME,
    first_token_s: NUMBER = perf::TIMING_METRICS + timing::FIRST_TOKEN_TIME,
    last_token_s: NUMBER = perf::TIMING_METRICS + timing::LAST_TOKEN_TIME,
    kv_cache_transfer_start_s: NUMBER = perf::TIMING_METRICS + timing::KV_CACHE_TRANSFER_START,
    kv_cache_transfer_end_s: NUMBER = perf::TIMING_METRICS + timing::KV_CACHE_TRANSFER_END,
    kv_cache_size: COUNT = perf::TIMING_METRICS + timing::KV_CACHE_SIZE,
    num_reused_blocks: COUNT = perf::KV_CACHE_METRICS + cache::NUM_REUSED_BLOCKS,
    acceptance_rate: NUMBER = perf::SPECULATIVE_DECODING + draft::ACCEPTANCE_RATE,
    total_accepted_draft_tokens: COUNT = perf::SPECULATIVE_DECODING + draft::TOTAL_ACCEPTED_DRAFT_TOKENS,
    total_draft_tokens: COUNT = perf::SPECULATIVE_DECODING + draft::TOTAL_DRAFT_TOKENS,
});

/// Calls `use_row` for each row, with the number of its iteration if it belongs to one of request statistics.
pub(crate) fn for_each(mut rows: &[u8], mut use_row: impl FnMut(&Row<'_>, u64)) {
    let mut iteration = 0;
    while let Some(row) = Row::next(&mut rows) {
        match row.kind {
            Kind::Requests => iteration = row.get(0).unwrap(),
            _ => use_row(&row, iteration),
        }
    }
    assert!(rows.is_empty(), "the last row is truncated");
}
