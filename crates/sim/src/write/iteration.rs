//! The JSON of IterationStats and RequestStats.

use serde_json::{Map, Value, json};

use crate::config::{CacheManager, Era, Release};
use crate::record::{CacheCounts, CacheView, Record, Row, Stage};

/// The size of the attention window with full attention, in tokens.
const WINDOW: u64 = 32_768;

/// A record as this release writes it. `epoch_us`: the wall clock at virtual time 0 in the engine's time zone, in microseconds since
/// 1970.
#[must_use]
pub fn record(record: &Record, release: Release, epoch_us: i64) -> Value {
    match release {
        Release::Cpp { .. } => cpp(record, release, epoch_us),
        Release::PyTorch { era, cache } => pytorch(record, era, cache, epoch_us),
    }
}

/// RequestStatsPerIteration of the C++ Executor.
#[must_use]
pub fn rows(iter: u64, rows: &[Row], release: Release) -> Value {
    let rows: Vec<_> = rows.iter().map(|each| row(each, release)).collect();
    json!({"iter": iter, "requestStats": rows})
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

/// Whether the release has what the C++ Executor writes since 0.`minor`. The PyTorch engine writes all of it.
fn is_since(release: Release, minor: u32) -> bool {
    !matches!(release, Release::Cpp { major: 0, minor: own } if own < minor)
}

fn cpp(record: &Record, release: Release, epoch_us: i64) -> Value {
    let since = |minor: u32| is_since(release, minor);
    let work = &record.work;
    let mut value = object(json!({
        "timestamp": timestamp(epoch_us + (record.at * 1e6) as i64),
        "iter": record.iter,
        "numActiveRequests": record.active,
        "maxNumActiveRequests": record.max_active,
        "gpuMemUsage": record.gpu_memory,
        "cpuMemUsage": record.cpu_memory,
        "pinnedMemUsage": 536_870_912,
        "kvCacheStats": cache(&record.cache, since(11), since(16)),
        "staticBatchingStats": null,
        "inflightBatchingStats": null,
    }));
    if let Some(batch) = record.static_batch {
        value["staticBatchingStats"] = json!({
            "numScheduledRequests": work.scheduled, "numContextRequests": work.context_requests,
            "numCtxTokens": batch.context_tokens, "numGenTokens": batch.generation_tokens,
            "emptyGenSlots": batch.empty_slots,
        });
    } else {
        let mut inflight = object(json!({
            "numScheduledRequests": work.scheduled, "numContextRequests": work.context_requests,
            "numGenRequests": work.generation_requests, "numPausedRequests": work.paused,
            "numCtxTokens": work.context_tokens, "microBatchId": record.micro_batch,
        }));
        if since(11) {
            inflight.insert("avgNumDecodedTokensPerIter".into(), json!(record.tokens_per_step));
        }
        value["inflightBatchingStats"] = inflight.into();
    }
    let mut insert = |is_known: bool, key: &str, known: Value| {
        if is_known {
            value.insert(key.into(), known);
        }
    };
    insert(since(11), "iterLatencyMS", json!(record.latency * 1e3));
    insert(since(11), "numQueuedRequests", json!(record.queued));
    insert(since(13), "newActiveRequestsQueueLatencyMS", json!(record.queue_latency * 1e3));
    insert(since(13), "numCompletedRequests", json!(record.completed));
    insert(since(15), "numNewActiveRequests", json!(record.new_active));
    insert(since(16), "maxBatchSizeStatic", json!(record.batch_limit));
    insert(since(16), "maxBatchSizeTunerRecommended", json!(record.batch_limit_runtime));
    insert(since(16), "maxBatchSizeRuntime", json!(record.batch_limit_runtime));
    insert(since(19), "maxNumTokensStatic", json!(record.token_limit));
    insert(since(19), "maxNumTokensTunerRecommended", json!(0));
    insert(since(19), "maxNumTokensRuntime", json!(record.token_limit));
    // A key of 1.0, which the C++ Executor never fills.
    insert(!matches!(release, Release::Cpp { major: 0, .. }), "specDecodingStats", Value::Null);
    value.into()
}

fn pytorch(record: &Record, era: Era, manager: CacheManager, epoch_us: i64) -> Value {
    let (work, view) = (&record.work, &record.cache);
    let mut inflight = object(json!({
        "numScheduledRequests": work.scheduled, "numContextRequests": work.context_requests,
        "numGenRequests": work.generation_requests,
        // The requests that the second cache manager suspends are in `iterSuspendedRequests`, too.
        "numPausedRequests": work.paused,
        // 1.0 and 1.1 always write 0. The first release that does not is not known.
        "numCtxTokens": work.context_tokens, "microBatchId": if era >= Era::Ranks { record.micro_batch } else { 0 },
        "avgNumDecodedTokensPerIter": 0.0,
    }));
    if era >= Era::Ranks {
        let queued = (record.queued, record.queued_tokens);
        let (contexts, generations) = if record.queues_generation { ((0, 0), queued) } else { (queued, (0, 0)) };
        inflight.extend(object(json!({
            "numCtxKvTokens": work.context_kv_tokens, "numGenKvTokens": work.generation_kv_tokens,
            "numQueuedContextRequests": contexts.0, "numQueuedCtxTokens": contexts.1,
            "numQueuedGenRequests": generations.0, "numQueuedGenKvTokens": generations.1, "numPausedKvTokens": 0,
        })));
    }
    let mut value = object(json!({
        // Early releases leave the timestamp empty.
        "timestamp": if era >= Era::One { timestamp(epoch_us + (record.at * 1e6) as i64) } else { String::new() },
        "iter": record.iter, "iterLatencyMS": record.latency * 1e3,
        // In seconds despite the `MS` in the name, and summed since the start.
        "newActiveRequestsQueueLatencyMS": record.queue_latency,
        "numNewActiveRequests": record.new_active, "numActiveRequests": record.active,
        "numQueuedRequests": record.queued, "numCompletedRequests": record.completed,
        "maxNumActiveRequests": record.max_active,
        "maxBatchSizeStatic": 0, "maxBatchSizeTunerRecommended": 0, "maxBatchSizeRuntime": 0,
        "maxNumTokensStatic": 0, "maxNumTokensTunerRecommended": 0, "maxNumTokensRuntime": 0,
        "gpuMemUsage": record.gpu_memory, "cpuMemUsage": 0, "pinnedMemUsage": 0,
        "kvCacheStats": cache(view, true, true),
        "inflightBatchingStats": inflight,
    }));
    if era >= Era::One {
        value.insert("staticBatchingStats".into(), json!({
            "numScheduledRequests": 0, "numContextRequests": 0, "numCtxTokens": 0, "numGenTokens": 0, "emptyGenSlots": 0,
        }));
        value.insert("specDecodingStats".into(), speculation(record));
    }
    if era >= Era::Ranks {
        value.extend(object(json!({
            "attentionDpRank": record.rank.unwrap_or(0),
            "schedulerMode": if record.overlap { "overlap" } else { "non_overlap" },
            "hostStepTimeMS": record.host_seconds * 1e3,
            "prevDeviceStepTimeMS": record.previous_device_seconds * 1e3,
            "gpuForwardTimeMS": record.gpu_seconds * 1e3,
        })));
        // Only the first rank writes the statistics of the cache per iteration.
        if record.rank.unwrap_or(0) == 0 {
            cache_iteration(&mut value, record, manager);
        }
    }
    if era == Era::Frames {
        value.insert("statsSequence".into(), json!(record.sequence));
        value.insert("statsDroppedFrames".into(), json!(0));
    }
    if record.gathered {
        value.insert("rank".into(), json!(record.rank.unwrap_or(0)));
    }
    if let Some(rows) = &record.rows {
        let release = Release::PyTorch { era, cache: manager };
        value.insert("requestStats".into(), rows.iter().map(|each| row(each, release)).collect());
    }
    value.into()
}

fn speculation(record: &Record) -> Value {
    let Some(counts) = record.speculation else { return Value::Null };
    let length = match counts.requests {
        0 => 0.0,
        requests => (counts.accepted + requests) as f64 / requests as f64,
    };
    json!({
        "numDraftTokens": counts.drafted, "numAcceptedTokens": counts.accepted,
        "numRequestsWithDraftTokens": counts.requests,
        "acceptanceLength": length,
        "iterLatencyMS": counts.seconds * 1e3,
        "draftOverhead": if record.latency > 0.0 { counts.seconds / record.latency } else { 0.0 },
    })
}

fn cache(view: &CacheView, allocations: bool, misses: bool) -> Value {
    let counts = &view.total;
    let mut value = object(json!({
        "maxNumBlocks": view.max, "freeNumBlocks": view.free, "usedNumBlocks": view.max - view.free,
        "tokensPerBlock": view.tokens_per_block,
    }));
    if allocations {
        value.insert("allocTotalBlocks".into(), json!(counts.alloc_total));
        value.insert("allocNewBlocks".into(), json!(counts.alloc_new));
        value.insert("reusedBlocks".into(), json!(counts.reused()));
    }
    if misses {
        value.insert("missedBlocks".into(), json!(counts.missed));
        value.insert("cacheHitRate".into(), json!(hit_rate(counts)));
    }
    value.into()
}

fn hit_rate(counts: &CacheCounts) -> f32 {
    let looked_up = counts.reused() + counts.missed;
    if looked_up == 0 { 0.0 } else { counts.reused() as f32 / looked_up as f32 }
}

/// Adds the statistics of the cache for one iteration, in the form of this cache manager.
fn cache_iteration(value: &mut Map<String, Value>, record: &Record, manager: CacheManager) {
    let (view, counts) = (&record.cache, &record.cache.iteration);
    let bytes = |blocks: u64| blocks * view.bytes_per_block;
    let levels = |prefix: &str, max: u32, free: u32, evictable: u32, peak_used: u32| {
        let mut levels = Map::new();
        // The simulation tracks only the peak of used blocks. The others are the values at the record.
        for (name, blocks) in [
            ("Max", max),
            ("Free", free),
            ("Used", max - free),
            ("Evictable", evictable),
            ("PeakFree", free),
            ("PeakUsed", peak_used),
            ("PeakEvictable", evictable),
        ] {
            levels.insert(format!("{prefix}{name}NumBlocks"), json!(blocks));
        }
        levels
    };
    let primary = levels("primary", view.max, view.free, view.evictable, view.peak_used);
    let host_free = view.host_max - view.host_used.min(view.host_max);
    let secondary = levels("secondary", view.host_max, host_free, view.host_used, view.host_max - host_free);
    let allocation = object(json!({
        "iterAllocTotalBlocks": counts.alloc_total, "iterAllocNewBlocks": counts.alloc_new,
        "iterGenAllocBlocks": counts.generation_alloc,
    }));
    let reuse = object(json!({
        "iterReusedBlocks": counts.reused(), "iterFullReusedBlocks": counts.full_reused,
        "iterPartialReusedBlocks": counts.partial_reused, "iterMissedBlocks": counts.missed,
        "iterCacheHitRate": hit_rate(counts),
    }));
    let transfer = object(json!({
        "iterOnboardBlocks": counts.onboarded, "iterOnboardBytes": bytes(counts.onboarded),
        "iterOffloadBlocks": counts.offloaded, "iterOffloadBytes": bytes(counts.offloaded),
        "iterIntraDeviceCopyBlocks": counts.copied, "iterIntraDeviceCopyBytes": bytes(counts.copied),
        "iterHostDroppedBlocks": counts.host_dropped, "iterHostDroppedBytes": bytes(counts.host_dropped),
    }));
    let join = |parts: &[&Map<String, Value>]| -> Map<String, Value> {
        parts.iter().flat_map(|part| part.iter().map(|(key, value)| (key.clone(), value.clone()))).collect()
    };
    let window = match manager {
        CacheManager::V1 => join(&[&primary, &secondary, &allocation, &reuse, &transfer]),
        CacheManager::V2 => join(&[&primary, &allocation, &reuse, &transfer]),
    };
    value.insert("kvCacheIterationStats".into(), json!({WINDOW.to_string(): window}));
    if manager == CacheManager::V1 {
        return;
    }
    let pool = object(json!({"poolGroupId": 0, "slotSize": [view.bytes_per_block], "windowSizes": [WINDOW]}));
    value.insert(
        "kvCacheIterationStatsByPoolGroup".into(),
        json!({"0": join(&[&pool, &primary, &allocation, &transfer])}),
    );
    if view.host_max > 0 {
        let cold = object(json!({"coldPoolGroupId": 0, "slotSize": [view.bytes_per_block], "windowSizes": [WINDOW]}));
        value.insert("kvCacheIterationStatsByColdPoolGroup".into(), json!({"0": join(&[&cold, &secondary])}));
    }
    let from_gpu = counts.full_reused.saturating_sub(counts.onboarded);
    let by_level: Vec<u64> = if view.host_max > 0 { vec![from_gpu, counts.onboarded] } else { vec![from_gpu] };
    let life = object(json!({
        "lifeCycleId": 0, "poolGroupId": 0, "windowSize": WINDOW, "kind": "attention",
        "iterFullReusedBlocksByLevel": by_level,
    }));
    value.insert("kvCacheIterationStatsByLifecycle".into(), json!({"0": join(&[&life, &reuse])}));
    let tokens: Vec<u64> = by_level.iter().map(|blocks| blocks * u64::from(view.tokens_per_block)).collect();
    value.extend(object(json!({
        "iterSuspendedRequests": record.work.paused, "iterResumedRequests": record.resumed,
        "iterDiskPrefetchBlocks": 0, "iterCachedTokensByLevel": tokens,
        "kvCacheLevelTiers": if view.host_max > 0 { json!(["gpu", "host"]) } else { json!(["gpu"]) },
    })));
}

fn row(row: &Row, release: Release) -> Value {
    let since = |minor: u32| is_since(release, minor);
    let stage = match row.stage {
        Stage::Queued => "QUEUED",
        Stage::Context => "CONTEXT_IN_PROGRESS",
        Stage::Generation => "GENERATION_IN_PROGRESS",
        Stage::Complete => "GENERATION_COMPLETE",
    };
    let mut value = object(json!({
        "id": row.id, "stage": stage, "contextPrefillPosition": row.prefill_position,
        "numGeneratedTokens": row.generated, "scheduled": row.scheduled,
        // The PyTorch loop never sets it.
        "paused": row.paused && release.is_cpp(),
    }));
    let mut insert = |is_known: bool, key: &str, known: Value| {
        if is_known {
            value.insert(key.into(), known);
        }
    };
    let generated = f64::from(row.generated.saturating_sub(1));
    let mean = if row.steps > 0 { generated / f64::from(row.steps) } else { 0.0 };
    insert(since(11), "avgNumDecodedTokensPerIter", json!(mean));
    insert(since(15), "allocTotalBlocksPerRequest", json!(row.counts.alloc_total));
    insert(since(15), "allocNewBlocksPerRequest", json!(row.counts.alloc_new));
    insert(since(15), "reusedBlocksPerRequest", json!(row.counts.reused()));
    insert(since(16), "missedBlocksPerRequest", json!(row.counts.missed));
    insert(since(16), "kvCacheHitRatePerRequest", json!(hit_rate(&row.counts)));
    let transfer = row.transfer.map(|(ms, bytes)| json!({"kvCacheTransferMS": ms, "kvCacheSize": bytes}));
    insert(since(14), "disServingStats", transfer.unwrap_or(Value::Null));
    value.into()
}

/// `%m-%d-%Y %H:%M:%S.uuuuuu`.
pub(super) fn timestamp(us: i64) -> String {
    let (days, in_day) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    let (year, month, day) = civil(days);
    let seconds = in_day / 1_000_000;
    format!(
        "{month:02}-{day:02}-{year:04} {:02}:{:02}:{:02}.{:06}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        in_day % 1_000_000
    )
}

/// Year, month and day, from the number of days since 1970. The calculation uses years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_those_of_the_sample() {
        assert_eq!(timestamp(1_753_462_474_140_189), "07-25-2025 16:54:34.140189");
        assert_eq!(timestamp(951_782_400_000_000), "02-29-2000 00:00:00.000000");
    }
}
