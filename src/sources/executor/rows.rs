//! Converts the rows of the bridge into the model's records, field by field. An absent value stays absent.

use trtllm_bridge::{
    IterationRow, KvEventKind, KvEventRow, PerfRow, RequestRow, iteration_present as it, perf_present as pf,
    request_present as rq,
};

use crate::model::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use crate::model::kv_event::{BlockHash, KvCacheEventData, KvCacheEventKind, LevelChange, StoredBlock};
use crate::model::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use crate::model::request::{DisServingRequestStats, RequestStage, RequestStats};
use crate::model::{IterationStats, KvCacheEvent, PerfMetricsEntry, RecordTime};

pub(super) fn record(row: &IterationRow) -> IterationStats {
    let time = |micros| RecordTime { micros, zoned: false };
    let int = |bit, value: i32| row.has(bit).then_some(i64::from(value));
    let bytes = |value: u64| i64::try_from(value).ok();
    IterationStats {
        timestamp: row.has(it::TIMESTAMP).then(|| time(row.timestamp_local_us)),
        iter: Some(row.iter),
        iter_latency_ms: row.has(it::ITER_LATENCY).then_some(row.iter_latency_ms),
        new_active_requests_queue_latency_ms: row
            .has(it::QUEUE_LATENCY)
            .then_some(row.new_active_requests_queue_latency_ms),
        num_new_active_requests: int(it::NEW_ACTIVE_REQUESTS, row.num_new_active_requests),
        num_active_requests: Some(row.num_active_requests.into()),
        num_queued_requests: int(it::QUEUED_REQUESTS, row.num_queued_requests),
        num_completed_requests: int(it::COMPLETED_REQUESTS, row.num_completed_requests),
        max_num_active_requests: Some(row.max_num_active_requests.into()),
        max_batch_size_static: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_static),
        max_batch_size_tuner_recommended: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_tuner_recommended),
        max_batch_size_runtime: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_runtime),
        max_num_tokens_static: int(it::TOKEN_LIMITS, row.max_num_tokens_static),
        max_num_tokens_tuner_recommended: int(it::TOKEN_LIMITS, row.max_num_tokens_tuner_recommended),
        max_num_tokens_runtime: int(it::TOKEN_LIMITS, row.max_num_tokens_runtime),
        gpu_mem_usage: bytes(row.gpu_mem_usage),
        cpu_mem_usage: bytes(row.cpu_mem_usage),
        pinned_mem_usage: bytes(row.pinned_mem_usage),
        kv_cache_stats: row.has(it::KV).then(|| KvCacheStats {
            max_num_blocks: Some(row.kv_max_num_blocks.into()),
            free_num_blocks: Some(row.kv_free_num_blocks.into()),
            used_num_blocks: Some(row.kv_used_num_blocks.into()),
            tokens_per_block: Some(row.kv_tokens_per_block.into()),
            alloc_total_blocks: int(it::KV_ALLOC, row.kv_alloc_total_blocks),
            alloc_new_blocks: int(it::KV_ALLOC, row.kv_alloc_new_blocks),
            reused_blocks: int(it::KV_ALLOC, row.kv_reused_blocks),
            missed_blocks: int(it::KV_MISSED, row.kv_missed_blocks),
            cache_hit_rate: row.has(it::KV_MISSED).then_some(row.kv_cache_hit_rate.into()),
        }),
        cross_kv_cache_stats: row.has(it::CROSS_KV).then(|| KvCacheStats {
            max_num_blocks: Some(row.cross_kv_max_num_blocks.into()),
            free_num_blocks: Some(row.cross_kv_free_num_blocks.into()),
            used_num_blocks: Some(row.cross_kv_used_num_blocks.into()),
            tokens_per_block: Some(row.cross_kv_tokens_per_block.into()),
            alloc_total_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_alloc_total_blocks),
            alloc_new_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_alloc_new_blocks),
            reused_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_reused_blocks),
            missed_blocks: int(it::CROSS_KV_MISSED, row.cross_kv_missed_blocks),
            cache_hit_rate: row.has(it::CROSS_KV_MISSED).then_some(row.cross_kv_cache_hit_rate.into()),
        }),
        inflight_batching_stats: row.has(it::INFLIGHT).then(|| inflight(row)),
        static_batching_stats: row.has(it::STATIC).then(|| StaticBatchingStats {
            num_scheduled_requests: Some(row.static_num_scheduled_requests.into()),
            num_context_requests: Some(row.static_num_context_requests.into()),
            num_ctx_tokens: Some(row.static_num_ctx_tokens.into()),
            num_gen_tokens: Some(row.static_num_gen_tokens.into()),
            empty_gen_slots: Some(row.static_empty_gen_slots.into()),
        }),
        spec_decoding_stats: row.has(it::SPEC).then_some(SpecDecodingStats {
            num_draft_tokens: Some(row.spec_num_draft_tokens),
            num_accepted_tokens: Some(row.spec_num_accepted_tokens),
            num_requests_with_draft_tokens: Some(row.spec_num_requests_with_draft_tokens),
            acceptance_length: Some(row.spec_acceptance_length),
            iter_latency_ms: Some(row.spec_iter_latency_ms),
            draft_overhead: Some(row.spec_draft_overhead),
        }),
        ..IterationStats::default()
    }
}

fn inflight(row: &IterationRow) -> InflightBatchingStats {
    let tokens = |value: i64| row.has(it::INFLIGHT_KV_TOKENS).then_some(value);
    InflightBatchingStats {
        num_scheduled_requests: Some(row.inflight_num_scheduled_requests.into()),
        num_context_requests: Some(row.inflight_num_context_requests.into()),
        num_gen_requests: Some(row.inflight_num_gen_requests.into()),
        num_paused_requests: Some(row.inflight_num_paused_requests.into()),
        num_ctx_tokens: Some(row.inflight_num_ctx_tokens.into()),
        micro_batch_id: Some(row.inflight_micro_batch_id.into()),
        avg_num_decoded_tokens_per_iter: row
            .has(it::INFLIGHT_DECODED)
            .then_some(row.inflight_avg_num_decoded_tokens_per_iter.into()),
        num_ctx_kv_tokens: tokens(row.inflight_num_ctx_kv_tokens),
        num_gen_kv_tokens: tokens(row.inflight_num_gen_kv_tokens),
        num_queued_context_requests: tokens(row.inflight_num_queued_context_requests),
        num_queued_ctx_tokens: tokens(row.inflight_num_queued_ctx_tokens),
        num_queued_gen_requests: tokens(row.inflight_num_queued_gen_requests),
        num_queued_gen_kv_tokens: tokens(row.inflight_num_queued_gen_kv_tokens),
        num_paused_kv_tokens: tokens(row.inflight_num_paused_kv_tokens),
    }
}

pub(super) fn request(row: &RequestRow) -> RequestStats {
    use trtllm_bridge::RequestStage as Stage;
    let int = |bit, value: i32| row.has(bit).then_some(i64::from(value));
    RequestStats {
        id: Some(row.id),
        stage: Some(match row.request_stage() {
            Some(Stage::Queued) => RequestStage::Queued,
            Some(Stage::EncoderInProgress) => RequestStage::Encoder,
            Some(Stage::ContextInProgress) => RequestStage::Context,
            Some(Stage::GenerationInProgress) => RequestStage::Generation,
            Some(Stage::GenerationComplete) => RequestStage::Complete,
            None => RequestStage::Unknown,
        }),
        context_prefill_position: Some(row.context_prefill_position.into()),
        num_generated_tokens: Some(row.num_generated_tokens.into()),
        avg_num_decoded_tokens_per_iter: row.has(rq::DECODED).then_some(row.avg_num_decoded_tokens_per_iter.into()),
        scheduled: Some(row.scheduled),
        paused: Some(row.paused),
        dis_serving_stats: row.has(rq::DIS_SERVING).then(|| DisServingRequestStats {
            kv_cache_transfer_ms: Some(row.kv_cache_transfer_ms),
            kv_cache_size: row.has(rq::DIS_SERVING_SIZE).then(|| i64::try_from(row.kv_cache_size).ok()).flatten(),
        }),
        alloc_total_blocks_per_request: int(rq::KV_ALLOC, row.alloc_total_blocks),
        alloc_new_blocks_per_request: int(rq::KV_ALLOC, row.alloc_new_blocks),
        reused_blocks_per_request: int(rq::KV_ALLOC, row.reused_blocks),
        missed_blocks_per_request: int(rq::KV_MISSED, row.missed_blocks),
        kv_cache_hit_rate_per_request: row.has(rq::KV_MISSED).then_some(row.kv_cache_hit_rate.into()),
    }
}

/// A finished request: its finish reason, its lengths, and its times if this release of TensorRT-LLM has them.
pub(super) fn finished(row: &PerfRow) -> PerfMetricsEntry {
    let tokens = |count: i32| u64::try_from(count).ok().filter(|_| !row.failed);
    PerfMetricsEntry {
        request_id: Some(row.id),
        perf_metrics: row.has(pf::ARRIVAL).then(|| perf_metrics(row)),
        finish_reason: finish_reason(row),
        prompt_tokens: tokens(row.prompt_tokens),
        output_tokens: tokens(row.output_tokens),
        ..PerfMetricsEntry::default()
    }
}

fn finish_reason(row: &PerfRow) -> Option<FinishReason> {
    use trtllm_bridge::FinishReason as Upstream;
    let known = match row.reason() {
        Some(Upstream::EndId | Upstream::StopWords) => FinishReason::Stop,
        Some(Upstream::Length) => FinishReason::Length,
        Some(Upstream::TimedOut) => FinishReason::Timeout,
        Some(Upstream::Cancelled) => FinishReason::Cancelled,
        None => FinishReason::Other,
    };
    if row.failed { Some(FinishReason::Other) } else { row.has(pf::FINISH_REASON).then_some(known) }
}

fn perf_metrics(row: &PerfRow) -> RequestPerfMetrics {
    let at = |bit, seconds: f64| row.has(bit).then_some(seconds);
    RequestPerfMetrics {
        first_iter: row.has(pf::ITERATIONS).then_some(row.first_iter),
        last_iter: row.has(pf::ITERATIONS).then_some(row.last_iter),
        timing_metrics: Some(TimingMetrics {
            arrival_time: at(pf::ARRIVAL, row.arrival_s),
            first_scheduled_time: at(pf::FIRST_SCHEDULED, row.first_scheduled_s),
            first_token_time: at(pf::FIRST_TOKEN, row.first_token_s),
            last_token_time: at(pf::LAST_TOKEN, row.last_token_s),
            kv_cache_transfer_start: at(pf::KV_TRANSFER, row.kv_cache_transfer_start_s),
            kv_cache_transfer_end: at(pf::KV_TRANSFER, row.kv_cache_transfer_end_s),
            kv_cache_size: row.has(pf::KV_TRANSFER).then_some(row.kv_cache_size),
            ..TimingMetrics::default()
        }),
        kv_cache_metrics: row.has(pf::KV).then(|| RequestKvCacheMetrics {
            num_total_allocated_blocks: Some(row.num_total_allocated_blocks.into()),
            num_new_allocated_blocks: Some(row.num_new_allocated_blocks.into()),
            num_reused_blocks: Some(row.num_reused_blocks.into()),
            num_missed_blocks: Some(row.num_missed_blocks.into()),
            kv_cache_hit_rate: Some(row.kv_cache_hit_rate.into()),
        }),
        speculative_decoding: row.has(pf::SPEC).then(|| SpeculativeDecodingMetrics {
            acceptance_rate: Some(row.acceptance_rate.into()),
            total_accepted_draft_tokens: Some(row.total_accepted_draft_tokens.into()),
            total_draft_tokens: Some(row.total_draft_tokens.into()),
        }),
        ..RequestPerfMetrics::default()
    }
}

/// One event from all of its rows.
pub(super) fn kv_event(rows: &[KvEventRow]) -> KvCacheEvent {
    let first = rows[0];
    let of_blocks = || rows.iter().filter(|row| !row.empty);
    let level = |row: &KvEventRow| row.has_level.then(|| u64::try_from(row.level).ok()).flatten();
    let mut data = KvCacheEventData::default();
    match first.kind {
        KvEventKind::Created => {
            data.kind = KvCacheEventKind::Created;
            data.num_blocks_per_cache_level = of_blocks().map(|row| row.value.cast_signed()).collect();
        }
        KvEventKind::Stored => {
            data.kind = KvCacheEventKind::Stored;
            let stored = |row: &KvEventRow| StoredBlock { block_hash: BlockHash(row.value), cache_level: level(row) };
            data.blocks = of_blocks().map(stored).collect();
        }
        KvEventKind::Removed => {
            data.kind = KvCacheEventKind::Removed;
            data.block_hashes = of_blocks().map(|row| BlockHash(row.value)).collect();
        }
        KvEventKind::Updated => {
            data.kind = KvCacheEventKind::Updated;
            data.block_hash = Some(BlockHash(first.value));
            data.cache_level = first.has_level.then(|| LevelChange { new_value: level(&first) });
        }
        _ => {}
    }
    KvCacheEvent {
        event_id: Some(first.event_id),
        attention_dp_rank: first.has_rank.then_some(first.rank.into()),
        data,
    }
}
