//! The counters that this exporter defines for an engine.

use trtllm_analysis::attribution::{PARTS, RequestParts};
use trtllm_analysis::objectives::{ObjectiveTotals, Outcomes};
use trtllm_fold::cache_tiers::Tier;
use trtllm_fold::rank_totals::Rank;
use trtllm_fold::request_totals::DraftTokens;
use trtllm_records::iteration::KvCacheStats;
use trtllm_records::named_numbers::NamedNumbers as _;
use trtllm_records::perf_metrics::FinishReason;

use super::{ENGINE, EngineView, FamilyWriter, RANK, When, families, rank_name};

/// The tokens of each rank. Absent if statistics are sampled.
fn rank_tokens(engine: &EngineView<'_>, series: &mut FamilyWriter<'_>, tokens: fn(&Rank) -> u64) {
    if let (Some(_), Some(totals)) = (engine.batch(), &engine.totals.ranks) {
        totals.ranks.iter().for_each(|rank| series.with([("rank", rank_name(rank))], tokens(rank)));
    }
}

/// Where the time of requests went. Absent before the first request has ended.
fn parts<'e>(engine: &EngineView<'e>) -> Option<&'e RequestParts> {
    let totals = engine.engine.observed.analysis.attribution.totals.as_ref();
    totals.filter(|parts| parts.all.iter().sum::<f64>() > 0.0)
}

families! {
    EngineCounters of EngineView<'_> => FamilyWriter<'_>;

    Iterations(|engine| engine.iterations()) = ENGINE.counter("nv_trt_llm_iterations_total").in_default().stable()
        .help("Iterations reported by the engine, each counted once.").feeds("iter");
    IterationsLost(|engine| engine.totals.losses.lost) =
        ENGINE.counter("nv_trt_llm_iterations_lost_total").in_default().stable()
        .help("Iterations whose record was lost, unreadable or rejected, counted by gaps in the engine's numbering.")
        .feeds("iter statsSequence statsDroppedFrames");
    IterationsUnreported(|engine| engine.totals.losses.unreported) =
        ENGINE.counter("nv_trt_llm_iterations_unreported_total")
        .help("Iterations without a record that are not known to be lost: sampled statistics, or loop passes without a \
            batch.").feeds("iter");
    EngineRestarts(|engine| engine.totals.engine_restarts) =
        ENGINE.counter("nv_trt_llm_engine_restarts_total").in_default().stable()
        .help("Engine restarts seen by this exporter.").feeds("iter");
    RequestsStarted(|engine| engine.told(engine.totals.requests_started)) =
        ENGINE.counter("nv_trt_llm_requests_started_total").in_default().stable()
        .help("Requests that became active.").feeds("numNewActiveRequests");
    RequestsCompleted(|engine| engine.told(engine.totals.requests_completed)) =
        ENGINE.counter("nv_trt_llm_requests_completed_total").in_default().stable()
        .help("Requests completed by the engine, each counted once.").feeds("numCompletedRequests");
    ContextTokens(|engine| engine.batch()?.tokens.context) =
        ENGINE.counter("nv_trt_llm_context_tokens_total").in_default().stable()
        .help("Tokens computed in context phases (prefill), excluding tokens found in the KV cache.")
        .feeds("numCtxTokens");
    GenerationTokens(|engine| engine.batch()?.decoded_tokens()) =
        ENGINE.counter("nv_trt_llm_generation_tokens_total").in_default()
        .stable().help("Tokens decoded in generation phases, excluding each request's first token.")
        .feeds("numGenRequests InflightBatchingStats.avgNumDecodedTokensPerIter");
    RankContextTokens(|engine, series| rank_tokens(engine, series, |rank| rank.tokens.context)) =
        ENGINE.counter("nv_trt_llm_rank_context_tokens_total").labels(RANK)
        .help("Tokens computed in context phases, by attention data parallel rank; ranks above 63 are summed as other.")
        .feeds("attentionDpRank");
    RankGenerationTokens(|engine, series| rank_tokens(engine, series, |rank| rank.tokens.generation)) =
        ENGINE.counter("nv_trt_llm_rank_generation_tokens_total").labels(RANK)
        .help("Tokens decoded in generation phases, by attention data parallel rank; ranks above 63 are summed as \
            other.").feeds("attentionDpRank");
    KvBlocksAllocated(|engine| engine.told(engine.totals.kv.alloc_total_blocks.unwrap_or(0))) =
        ENGINE.counter("nv_trt_llm_kv_cache_blocks_allocated_total").stable()
        .help("KV cache blocks allocated for prompts and generated tokens, excluding blocks found in the cache.")
        .feeds("allocTotalBlocks");
    KvBlocksNewlyAllocated(|engine| engine.told(engine.totals.kv.alloc_new_blocks.unwrap_or(0))) =
        ENGINE.counter("nv_trt_llm_kv_cache_blocks_newly_allocated_total").stable()
        .help("Allocated KV cache blocks that held no cached content before; the other allocations displaced cached \
            content.").feeds("allocNewBlocks");
    KvBlocksReused(|engine| engine.told(engine.totals.kv.reused_blocks.unwrap_or(0))) =
        ENGINE.counter("nv_trt_llm_kv_cache_blocks_reused_total").in_default().stable()
        .help("KV cache blocks found in the cache (hits).").feeds("reusedBlocks");
    KvBlocksMissed(|engine| engine.told(missed_blocks(&engine.totals.kv)?)) =
        ENGINE.counter("nv_trt_llm_kv_cache_blocks_missed_total").in_default().stable()
        .help("KV cache blocks not found in the cache (misses).").feeds("missedBlocks");
    CrossKvBlocks(|engine, series| series.all(engine.totals.cross_kv?.events())) =
        ENGINE.counter("nv_trt_llm_cross_kv_cache_blocks_total").by("event", &KvCacheStats::EVENTS)
        .help("KV cache blocks of cross attention (encoder-decoder models), by event.").when(&[When::CrossAttention]);
    WindowBlocks(|engine| let events = &engine.totals.pools.events; by event {
        allocated: events.iter_alloc_total_blocks, newly_allocated: events.iter_alloc_new_blocks,
        reused: events.iter_reused_blocks, full_reused: events.iter_full_reused_blocks,
        partial_reused: events.iter_partial_reused_blocks, missed: events.iter_missed_blocks,
        generation_allocated: events.iter_gen_alloc_blocks, onboarded: events.iter_onboard_blocks,
        offloaded: events.iter_offload_blocks, copied: events.iter_intra_device_copy_blocks,
        host_dropped: events.iter_host_dropped_blocks,
    }) = ENGINE.counter("nv_trt_llm_kv_cache_window_blocks_total")
        .help("KV cache blocks by event, summed over all attention windows or pool groups; copied means within the \
            GPU.")
        .feeds("kvCacheIterationStatsByPoolGroup kvCacheIterationStatsByLifecycle iterAllocTotalBlocks \
            iterAllocNewBlocks iterReusedBlocks iterFullReusedBlocks iterPartialReusedBlocks iterMissedBlocks \
            iterGenAllocBlocks iterOnboardBlocks iterOffloadBlocks iterIntraDeviceCopyBlocks iterHostDroppedBlocks \
            kind");
    WindowBytes(|engine| let events = &engine.totals.pools.events; by event {
        onboarded: events.iter_onboard_bytes, offloaded: events.iter_offload_bytes,
        copied: events.iter_intra_device_copy_bytes, host_dropped: events.iter_host_dropped_bytes,
    }) = ENGINE.counter("nv_trt_llm_kv_cache_window_bytes_total").unit("bytes")
        .help("KV cache bytes moved or dropped by iterations, by event, summed over all attention windows or pool \
            groups.")
        .feeds("kvCacheIterationStatsByPoolGroup iterOnboardBytes iterOffloadBytes iterIntraDeviceCopyBytes \
            iterHostDroppedBytes");
    KvFullReusedBlocks(|engine, series| series.all(engine.totals.pools.full_reused)) =
        ENGINE.counter("nv_trt_llm_kv_cache_full_reused_blocks_total").by("tier", &Tier::NAMES)
        .help("KV cache blocks reused completely, by the tier from which they were read.")
        .feeds("iterFullReusedBlocksByLevel");
    KvPartialReusedBlocks(|engine, series| series.all(engine.totals.pools.partial_reused)) =
        ENGINE.counter("nv_trt_llm_kv_cache_partial_reused_blocks_total").by("tier", &Tier::NAMES)
        .help("KV cache blocks reused in part, by the tier from which they were read.")
        .feeds("iterPartialReusedBlocksByLevel");
    SsmSnapshotLookups(|engine| engine.totals.pools.snapshots.iter_snapshot_lookups) =
        ENGINE.counter("nv_trt_llm_ssm_snapshot_lookups_total")
        .help("Lookups of state snapshots for prompts of state space models.")
        .feeds("snapshotStats iterSnapshotLookups");
    SsmSnapshotHits(|engine| let snapshots = &engine.totals.pools.snapshots; by alignment {
        aligned: snapshots.iter_aligned_snapshot_hits, unaligned: snapshots.iter_unaligned_snapshot_hits,
    }) = ENGINE.counter("nv_trt_llm_ssm_snapshot_hits_total")
        .help("Lookups that found a state snapshot; aligned means that it ends where a KV cache block ends.")
        .feeds("iterAlignedSnapshotHits iterUnalignedSnapshotHits");
    SsmSnapshotMisses(|engine| engine.totals.pools.snapshots.iter_snapshot_misses) =
        ENGINE.counter("nv_trt_llm_ssm_snapshot_misses_total").help("Lookups that found no state snapshot.")
        .feeds("iterSnapshotMisses");
    SsmSnapshotTokens(|engine| let snapshots = &engine.totals.pools.snapshots; by outcome {
        reused: snapshots.iter_reused_tokens, unreused: snapshots.iter_unreused_tokens,
    }) = ENGINE.counter("nv_trt_llm_ssm_snapshot_tokens_total")
        .help("Prompt tokens of state snapshot lookups, by whether a snapshot covered them (reused).")
        .feeds("iterReusedTokens iterUnreusedTokens");
    DiskPrefetchedBlocks(|engine| engine.totals.pools.disk_prefetched_blocks) =
        ENGINE.counter("nv_trt_llm_kv_cache_disk_prefetched_blocks_total")
        .help("KV cache blocks prefetched from disk to host.").feeds("iterDiskPrefetchBlocks");
    CachedTokens(|engine, series| series.all(engine.totals.pools.cached_tokens.by_tier)) =
        ENGINE.counter("nv_trt_llm_cached_tokens_total").by("tier", &Tier::NAMES)
        .help("Prompt tokens found in the KV cache, by tier.").feeds("iterCachedTokensByLevel kvCacheLevelTiers");
    SpecDraftTokens(|engine| engine.told(engine.batch()?.spec_decode_draft_tokens)) =
        ENGINE.counter("nv_trt_llm_spec_decode_draft_tokens_total").stable()
        .help("Draft tokens proposed by speculative decoding.").feeds("numDraftTokens");
    SpecAcceptedTokens(|engine| engine.told(engine.batch()?.spec_decode_accepted_tokens)) =
        ENGINE.counter("nv_trt_llm_spec_decode_accepted_tokens_total").stable()
        .help("Draft tokens accepted by the model.").feeds("numAcceptedTokens");
    SpecDraftedRequests(|engine| engine.told(engine.batch()?.spec_decode_drafted_requests)) =
        ENGINE.counter("nv_trt_llm_spec_decode_drafted_requests_total")
        .help("Generation requests with draft tokens, summed over iterations.").feeds("numRequestsWithDraftTokens");
    SpecDraftTime(|engine| engine.told(engine.batch()?.spec_decode_draft_seconds)) =
        ENGINE.counter("nv_trt_llm_spec_decode_draft_seconds_total").unit("seconds")
        .help("Time spent drafting in seconds.").feeds("SpecDecodingStats.iterLatencyMS");
    RequestDraftTokens(|engine, series| series.each(engine.requests.draft_tokens)) =
        ENGINE.counter("nv_trt_llm_request_draft_tokens_total").by("outcome", DraftTokens::NAMES)
        .help("Draft tokens of finished requests, by outcome; proposed includes accepted.")
        .feeds("totalAcceptedDraftTokens totalDraftTokens");
    RequestsFinished(|engine, series| series.all(engine.requests.finished?.map(Some))) =
        ENGINE.counter("nv_trt_llm_requests_finished_total").in_default().stable()
        .by("reason", &FinishReason::NAMES).help("Finished requests, by finish reason.")
        .feeds("finishReason").when(&[When::ServerPage]);
    RequestErrors(|engine, series| series.by_label("code", &engine.requests.server.errors)) =
        ENGINE.counter("nv_trt_llm_request_errors_total").in_default().labels(&["code", "model", "version"])
        .help("Requests that trtllm-serve refused, by HTTP status.").when(&[When::ServerPage]);
    ObjectiveRequests(|engine, series| {
        let ObjectiveTotals { each: [ttft, tpot, e2e], all, .. } = *engine.objectives()?;
        for (objective, outcomes) in [("ttft", ttft), ("tpot", tpot), ("e2e", e2e), ("all", Some(all))] {
            let Some(Outcomes { met, missed, unknown }) = outcomes else { continue };
            for (outcome, requests) in [("met", met), ("missed", missed), ("unknown", unknown)] {
                series.with([("objective", objective), ("outcome", outcome)], requests);
            }
        }
    }) = ENGINE.counter("nv_trt_llm_objective_requests_total").in_default().labels(&["model", "objective", "version"])
        .by("outcome", &["met", "missed", "unknown"])
        .help("Finished requests by objective (ttft, tpot, e2e, all) and outcome; all is unknown if any objective is.")
        .feeds("finishReason arrivalTime lastTokenTime").when(&[When::Rows, When::ServerPage]);
    GoodputTokens(|engine| engine.objectives()?.goodput_tokens) =
        ENGINE.counter("nv_trt_llm_goodput_tokens_total").in_default()
        .help("Output tokens of requests that met all objectives.").feeds("outputTokens").when(&[When::Rows]);
    RequestTime(|engine, series| series.all(parts(engine)?.all.map(Some))) =
        ENGINE.counter("nv_trt_llm_request_time_seconds_total").unit("seconds").by("part", &PARTS)
        .help("Time of finished requests in seconds, by where it went: see request-time.md.")
        .when(&[When::Rows, When::Entries]);
    MissedRequestTime(|engine, series| {
        let limits = engine.engine.objectives().map(|objectives| objectives.limits).unwrap_or_default().limits();
        let missed = limits.into_iter().zip(parts(engine)?.missed).filter(|((_, limit), _)| limit.is_some());
        for ((objective, _), seconds) in missed {
            for (part, seconds) in PARTS.into_iter().zip(seconds) {
                series.with([("objective", objective), ("part", part)], seconds);
            }
        }
    }) = ENGINE.counter("nv_trt_llm_missed_request_time_seconds_total").unit("seconds")
        .labels(&["model", "objective", "version"]).by("part", &PARTS)
        .help("Time of requests that missed an objective in seconds, by where it went: until the first token for ttft, \
            after it for tpot, all of it for e2e.").when(&[When::Rows, When::Entries]);
    RequestsUnattributed(|engine| engine.engine.observed.analysis.attribution.totals?.unattributed) =
        ENGINE.counter("nv_trt_llm_requests_unattributed_total")
        .help("Finished requests whose time is not in nv_trt_llm_request_time_seconds_total because it could not be \
            attributed.").when(&[When::Rows, When::Entries]);
    RequestSuspensions(|engine| engine.totals.pools.suspended_requests) =
        ENGINE.counter("nv_trt_llm_request_suspensions_total").in_default()
        .help("Request suspensions, in which a request loses its KV cache to other requests.")
        .feeds("iterSuspendedRequests");
    RequestResumptions(|engine| engine.totals.pools.resumed_requests) =
        ENGINE.counter("nv_trt_llm_request_resumptions_total").help("Resumptions of suspended requests.")
        .feeds("iterResumedRequests");
    RequestPauses(|engine| engine.totals.request_pauses) =
        ENGINE.counter("nv_trt_llm_request_pauses_total").in_default().stable()
        .help("Request pauses for lack of resources.").feeds("paused");
    RecomputedTokens(|engine| engine.totals.recomputed_tokens) =
        ENGINE.counter("nv_trt_llm_recomputed_tokens_total")
        .help("Context tokens that were computed again after a pause of their request.")
        .when(&[When::Rows]);
}

/// Absent if the engine counts hits and no misses, as releases before 0.16.
fn missed_blocks(kv: &KvCacheStats) -> Option<i64> {
    kv.missed_blocks.or(kv.reused_blocks.is_none().then_some(0))
}
