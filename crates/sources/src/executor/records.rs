//! Converts the bridge's structs to the model's. A new member of the bridge breaks the build until it is listed here.

use trtllm_bridge::{self as bridge, Known as _};
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use trtllm_records::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use trtllm_records::request::{DisServingRequestStats, RequestStage, RequestStats};
use trtllm_records::timestamp::parse_timestamp;
use trtllm_records::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};

/// Converts a struct whose members have the same names in the bridge and in the model. `with` has the members that need
/// another conversion. With `present`, the struct may be absent.
macro_rules! convert {
    (present $from:expr => $Struct:ident { $($member:ident),* $(,)? } $(with { $($other:ident: $value:expr),* $(,)? })?) => {{
        let bridge::$Struct { present, $($member,)* $($($other: _,)*)? } = $from;
        #[allow(clippy::needless_update)] // some structs have members that the C++ Executor never has
        present.then(|| $Struct { $($member: $member.known(),)* $($($other: $value,)*)? ..$Struct::default() })
    }};
    ($from:expr => $Struct:ident { $($member:ident),* $(,)? } $(with { $($other:ident: $value:expr),* $(,)? })?) => {{
        let bridge::$Struct { $($member,)* $($($other: _,)*)? } = $from;
        #[allow(clippy::needless_update)] // some structs have members that the C++ Executor never has
        $Struct { $($member: $member.known(),)* $($($other: $value,)*)? ..$Struct::default() }
    }};
}

#[must_use]
pub fn iteration(from: &bridge::IterationStats) -> IterationStats {
    convert!(*from => IterationStats {
        iter, iter_latency_ms, new_active_requests_queue_latency_ms, num_new_active_requests, num_active_requests,
        num_queued_requests, num_completed_requests, max_num_active_requests, max_batch_size_static,
        max_batch_size_tuner_recommended, max_batch_size_runtime, max_num_tokens_static, max_num_tokens_tuner_recommended,
        max_num_tokens_runtime, gpu_mem_usage, cpu_mem_usage, pinned_mem_usage,
    } with {
        timestamp: text(&from.timestamp).and_then(parse_timestamp),
        kv_cache_stats: cache(from.kv_cache_stats),
        cross_kv_cache_stats: cache(from.cross_kv_cache_stats),
        inflight_batching_stats: convert!(present from.inflight_batching_stats => InflightBatchingStats {
            num_scheduled_requests, num_context_requests, num_gen_requests, num_paused_requests, num_ctx_tokens,
            micro_batch_id, avg_num_decoded_tokens_per_iter, num_ctx_kv_tokens, num_gen_kv_tokens,
            num_queued_context_requests, num_queued_ctx_tokens, num_queued_gen_requests, num_queued_gen_kv_tokens,
            num_paused_kv_tokens,
        }),
        static_batching_stats: convert!(present from.static_batching_stats => StaticBatchingStats {
            num_scheduled_requests, num_context_requests, num_ctx_tokens, num_gen_tokens, empty_gen_slots,
        }),
        spec_decoding_stats: convert!(present from.spec_decoding_stats => SpecDecodingStats {
            num_draft_tokens, num_accepted_tokens, num_requests_with_draft_tokens, acceptance_length, iter_latency_ms,
            draft_overhead,
        }),
    })
}

fn cache(from: bridge::KvCacheStats) -> Option<KvCacheStats> {
    convert!(present from => KvCacheStats {
        max_num_blocks, free_num_blocks, used_num_blocks, tokens_per_block, alloc_total_blocks, alloc_new_blocks,
        reused_blocks, missed_blocks, cache_hit_rate,
    })
}

/// The text before the first zero byte. `None` if it is empty or not UTF-8.
fn text(padded: &[u8]) -> Option<&str> {
    let text = padded.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
}

#[must_use]
pub fn requests(from: &bridge::RequestStatsPerIteration) -> RequestStatsPerIteration {
    let requests = from.request_stats.iter().map(request).collect();
    RequestStatsPerIteration { iter: Some(from.iter), request_stats: Some(requests) }
}

fn request(from: &bridge::RequestStats) -> RequestStats {
    convert!(*from => RequestStats {
        id, context_prefill_position, num_generated_tokens, avg_num_decoded_tokens_per_iter, scheduled, paused,
        alloc_total_blocks_per_request, alloc_new_blocks_per_request, reused_blocks_per_request,
        missed_blocks_per_request, kv_cache_hit_rate_per_request,
    } with {
        stage: Some(match from.stage {
            bridge::RequestStage::Queued => RequestStage::Queued,
            bridge::RequestStage::EncoderInProgress => RequestStage::Encoder,
            bridge::RequestStage::ContextInProgress => RequestStage::Context,
            bridge::RequestStage::GenerationInProgress => RequestStage::Generation,
            bridge::RequestStage::GenerationComplete => RequestStage::Complete,
            _ => RequestStage::Unknown,
        }),
        dis_serving_stats: convert!(present from.dis_serving_stats => DisServingRequestStats {
            kv_cache_transfer_ms, kv_cache_size,
        }),
    })
}

#[must_use]
pub fn finished(from: &bridge::FinishedRequest) -> PerfMetricsEntry {
    let bridge::FinishedRequest { request_id, finish_reason, prompt_tokens, output_tokens, perf_metrics } = *from;
    PerfMetricsEntry {
        request_id: Some(request_id),
        executor_id: Some(request_id),
        finish_reason: match finish_reason {
            bridge::FinishReason::Absent => None,
            bridge::FinishReason::EndId | bridge::FinishReason::StopWords => Some(FinishReason::Stop),
            bridge::FinishReason::Length => Some(FinishReason::Length),
            bridge::FinishReason::TimedOut => Some(FinishReason::Timeout),
            bridge::FinishReason::Cancelled => Some(FinishReason::Cancelled),
            _ => Some(FinishReason::Other),
        },
        prompt_tokens: prompt_tokens.known(),
        output_tokens: output_tokens.known(),
        perf_metrics: times_and_costs(&perf_metrics),
        ..PerfMetricsEntry::default()
    }
}

fn times_and_costs(from: &bridge::RequestPerfMetrics) -> Option<RequestPerfMetrics> {
    convert!(present *from => RequestPerfMetrics { first_iter, last_iter, iter } with {
        timing_metrics: convert!(present from.timing_metrics => TimingMetrics {
            arrival_time, first_scheduled_time, first_token_time, last_token_time, kv_cache_transfer_start,
            kv_cache_transfer_end, kv_cache_size,
        }),
        kv_cache_metrics: convert!(present from.kv_cache_metrics => RequestKvCacheMetrics {
            num_total_allocated_blocks, num_new_allocated_blocks, num_reused_blocks, num_missed_blocks, kv_cache_hit_rate,
        }),
        speculative_decoding: convert!(present from.speculative_decoding => SpeculativeDecodingMetrics {
            acceptance_rate, total_accepted_draft_tokens, total_draft_tokens,
        }),
    })
}
