//! Finds values that no engine can have, e.g. from a publisher with a bug. A record with such a value is rejected as a
//! whole: a sum cannot be corrected later, and one absurd number would spoil a counter for ever.

use trtllm_model::iteration::{
    InflightBatchingStats, KvCacheIterationStats, KvCacheLifecycleStats, KvCacheStats, SpecDecodingStats,
    StaticBatchingStats,
};
use trtllm_model::kv_event::{KvCacheEvent, KvCacheEventKind};
use trtllm_model::named_numbers::NamedNumbers as _;
use trtllm_model::perf_metrics::RequestPerfMetrics;
use trtllm_model::rows::PoolRows;
use trtllm_model::{IterationStats, PerfMetricsEntry, RequestStats, StepTimes};

use super::pools::{primary, secondary};

/// Most bits of a number of requests, tokens, blocks or iterations. 2^40 iterations take 30 years at 1000 per second.
const COUNT: u32 = 40;
/// Limits of cumulative counts. The C++ executor narrows them to 32 bits, so they can be negative.
const CUMULATIVE: std::ops::RangeInclusive<i64> = -(1 << 31)..=1 << 53;
/// Most bits of a number of bytes: 1 EiB.
const BYTES: u32 = 60;
/// Limit of times, which are milliseconds or seconds. 1e12 seconds are 30,000 years.
const TIME: f64 = 1e12;

/// A record, row, entry or event has a value beyond the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Implausible;

pub(crate) fn check_record(record: &IterationStats) -> Result<(), Implausible> {
    let view = |view: &Option<PoolRows<_>>| view.as_ref().is_none_or(|view| view.values().all(pools));
    let plausible = numbers([record.iter, record.stats_sequence, record.stats_dropped_frames])
        && within(
            COUNT,
            [
                record.num_new_active_requests,
                record.num_active_requests,
                record.num_queued_requests,
                record.num_completed_requests,
                record.max_num_active_requests,
                record.max_batch_size_static,
                record.max_batch_size_tuner_recommended,
                record.max_batch_size_runtime,
                record.max_num_tokens_static,
                record.max_num_tokens_tuner_recommended,
                record.max_num_tokens_runtime,
                record.iter_suspended_requests,
                record.iter_resumed_requests,
                record.iter_disk_prefetch_blocks,
            ],
        )
        && within(BYTES, [record.gpu_mem_usage, record.cpu_mem_usage, record.pinned_mem_usage])
        && times([
            record.iter_latency_ms,
            record.new_active_requests_queue_latency_ms,
            record.host_step_time_ms,
            record.prev_device_step_time_ms,
            record.gpu_forward_time_ms,
        ])
        && record.inflight_batching_stats.as_ref().is_none_or(inflight_batching)
        && record.static_batching_stats.as_ref().is_none_or(static_batching)
        && record.spec_decoding_stats.as_ref().is_none_or(spec_decoding)
        && record.kv_cache_stats.as_ref().is_none_or(kv_cache)
        && record.cross_kv_cache_stats.as_ref().is_none_or(kv_cache)
        && view(&record.kv_cache_iteration_stats)
        && view(&record.kv_cache_iteration_stats_by_pool_group)
        && view(&record.kv_cache_iteration_stats_by_cold_pool_group)
        && record.kv_cache_iteration_stats_by_lifecycle.as_ref().is_none_or(|view| view.values().all(lifecycle))
        && record.iter_cached_tokens_by_level.as_ref().is_none_or(|levels| all_within(COUNT, levels))
        && record.request_stats.as_deref().is_none_or(|rows| check_rows(rows).is_ok());
    if plausible { Ok(()) } else { Err(Implausible) }
}

pub(crate) fn check_rows(rows: &[RequestStats]) -> Result<(), Implausible> {
    let row = |row: &RequestStats| {
        let transfer = row.dis_serving_stats.unwrap_or_default();
        within(
            COUNT,
            [
                row.context_prefill_position,
                row.num_generated_tokens,
                row.alloc_total_blocks_per_request,
                row.alloc_new_blocks_per_request,
                row.reused_blocks_per_request,
                row.missed_blocks_per_request,
            ],
        ) && within(BYTES, [transfer.kv_cache_size])
            && times([row.avg_num_decoded_tokens_per_iter, transfer.kv_cache_transfer_ms])
    };
    if rows.iter().all(row) { Ok(()) } else { Err(Implausible) }
}

pub(crate) fn check_entry(entry: &PerfMetricsEntry) -> Result<(), Implausible> {
    let parts = [&entry.ctx_perf_metrics, &entry.gen_perf_metrics];
    let plausible = numbers([entry.prompt_tokens, entry.output_tokens])
        && times([entry.disagg_server_arrival_time, entry.disagg_server_first_token_time])
        && entry.perf_metrics.as_ref().is_none_or(request)
        && entry.time_breakdown_metrics.as_ref().is_none_or(|breakdown| steps(breakdown))
        && parts.into_iter().flatten().all(|part| check_entry(part).is_ok());
    if plausible { Ok(()) } else { Err(Implausible) }
}

pub(crate) fn check_event(event: &KvCacheEvent) -> Result<(), Implausible> {
    let levels = &event.data.num_blocks_per_cache_level;
    let created = event.data.kind != KvCacheEventKind::Created || all_within(COUNT, levels);
    if created && numbers([event.event_id]) { Ok(()) } else { Err(Implausible) }
}

fn steps(breakdown: &StepTimes) -> bool {
    [&breakdown.ctx_chunk_metrics, &breakdown.step_metrics].into_iter().all(|steps| {
        times([steps.gpu_forward_ms, steps.gpu_sample_ms]) && steps.token_times.iter().all(|time| times([Some(*time)]))
    })
}

fn request(metrics: &RequestPerfMetrics) -> bool {
    let timing = metrics.timing_metrics.unwrap_or_default();
    let kv = metrics.kv_cache_metrics.unwrap_or_default();
    let spec = metrics.speculative_decoding.unwrap_or_default();
    numbers([metrics.first_iter, metrics.last_iter])
        && times([
            timing.server_arrival_time,
            timing.server_first_token_time,
            timing.arrival_time,
            timing.first_scheduled_time,
            timing.first_token_time,
            timing.last_token_time,
            timing.kv_cache_transfer_start,
            timing.kv_cache_transfer_end,
            spec.acceptance_rate,
        ])
        && timing.kv_cache_size.is_none_or(|bytes| bytes >> BYTES == 0)
        && within(
            COUNT,
            [
                kv.num_total_allocated_blocks,
                kv.num_new_allocated_blocks,
                kv.num_reused_blocks,
                kv.num_missed_blocks,
                spec.total_accepted_draft_tokens,
                spec.total_draft_tokens,
            ],
        )
}

fn inflight_batching(stats: &InflightBatchingStats) -> bool {
    within(
        COUNT,
        [
            stats.num_scheduled_requests,
            stats.num_context_requests,
            stats.num_gen_requests,
            stats.num_paused_requests,
            stats.num_ctx_tokens,
            stats.num_ctx_kv_tokens,
            stats.num_gen_kv_tokens,
            stats.num_queued_context_requests,
            stats.num_queued_ctx_tokens,
            stats.num_queued_gen_requests,
            stats.num_queued_gen_kv_tokens,
            stats.num_paused_kv_tokens,
        ],
    ) && times([stats.avg_num_decoded_tokens_per_iter])
}

fn static_batching(stats: &StaticBatchingStats) -> bool {
    within(
        COUNT,
        [
            stats.num_scheduled_requests,
            stats.num_context_requests,
            stats.num_ctx_tokens,
            stats.num_gen_tokens,
            stats.empty_gen_slots,
        ],
    )
}

fn spec_decoding(stats: &SpecDecodingStats) -> bool {
    within(COUNT, [stats.num_draft_tokens, stats.num_accepted_tokens, stats.num_requests_with_draft_tokens])
        && times([stats.acceptance_length, stats.iter_latency_ms, stats.draft_overhead])
}

fn kv_cache(stats: &KvCacheStats) -> bool {
    let cumulative = [stats.alloc_total_blocks, stats.alloc_new_blocks, stats.reused_blocks, stats.missed_blocks];
    within(COUNT, [stats.max_num_blocks, stats.free_num_blocks, stats.used_num_blocks, stats.tokens_per_block])
        && cumulative.into_iter().flatten().all(|count| CUMULATIVE.contains(&count))
}

fn pools(row: &KvCacheIterationStats) -> bool {
    // `slot_size` is in bytes, but even large blocks have only some MiB. Products with numbers of blocks saturate.
    within(COUNT, [row.slot_size])
        && within(COUNT, primary(row).numbers())
        && within(COUNT, secondary(row).numbers())
        && within(
            COUNT,
            [
                row.iter_alloc_total_blocks,
                row.iter_alloc_new_blocks,
                row.iter_reused_blocks,
                row.iter_full_reused_blocks,
                row.iter_partial_reused_blocks,
                row.iter_missed_blocks,
                row.iter_gen_alloc_blocks,
                row.iter_onboard_blocks,
                row.iter_offload_blocks,
                row.iter_intra_device_copy_blocks,
                row.iter_host_dropped_blocks,
            ],
        )
        && within(
            BYTES,
            [
                row.iter_onboard_bytes,
                row.iter_offload_bytes,
                row.iter_intra_device_copy_bytes,
                row.iter_host_dropped_bytes,
            ],
        )
}

fn lifecycle(row: &KvCacheLifecycleStats) -> bool {
    let levels = [&row.iter_full_reused_blocks_by_level, &row.iter_partial_reused_blocks_by_level];
    let snapshots = row.snapshot_stats.unwrap_or_default();
    within(
        COUNT,
        [
            row.iter_reused_blocks,
            row.iter_full_reused_blocks,
            row.iter_partial_reused_blocks,
            row.iter_missed_blocks,
            snapshots.iter_snapshot_lookups,
            snapshots.iter_snapshot_misses,
            snapshots.iter_aligned_snapshot_hits,
            snapshots.iter_unaligned_snapshot_hits,
            snapshots.iter_reused_tokens,
            snapshots.iter_unreused_tokens,
        ],
    ) && levels.into_iter().flatten().all(|blocks| all_within(COUNT, blocks))
}

/// This has no branches, because a record has dozens of numbers and almost all of them are valid.
fn within(bits: u32, numbers: impl IntoIterator<Item = Option<i64>>) -> bool {
    // A negative number has the highest bit set, so it is out of range.
    numbers.into_iter().fold(0, |bits, number| bits | number.unwrap_or(0)).cast_unsigned() >> bits == 0
}

fn all_within(bits: u32, numbers: &[i64]) -> bool {
    numbers.iter().all(|number| within(bits, [Some(*number)]))
}

fn numbers<const N: usize>(numbers: [Option<u64>; N]) -> bool {
    numbers.iter().fold(0, |bits, number| bits | number.unwrap_or(0)) >> COUNT == 0
}

/// A clock that was set back may give a negative time. It is accepted here and not observed later.
fn times<const N: usize>(times: [Option<f64>; N]) -> bool {
    times.iter().fold(true, |all, time| all & (time.unwrap_or(0.0).abs() <= TIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_absurd_value_anywhere_in_an_entry_rejects_it() {
        let check = |entry: Value| check_entry(&serde_json::from_value(entry).unwrap());
        let times = |seconds: f64| json!({"perf_metrics": {"timing_metrics": {"first_token_time": seconds}}});
        for part in ["ctx_perf_metrics", "gen_perf_metrics"] {
            assert_eq!(check(json!({part: times(1.5)})), Ok(()), "{part}");
            assert_eq!(check(json!({part: times(1e308)})), Err(Implausible), "{part}");
            assert_eq!(check(json!({part: {"output_tokens": u64::MAX}})), Err(Implausible), "{part}");
        }
        for time in ["disagg_server_arrival_time", "disagg_server_first_token_time"] {
            assert_eq!(check(json!({time: 1.5})), Ok(()), "{time}");
            assert_eq!(check(json!({time: 1e308})), Err(Implausible), "{time}");
        }
        assert_eq!(check(times(1e308)), Err(Implausible));
    }
}
