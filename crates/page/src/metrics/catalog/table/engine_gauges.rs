//! The gauges that this exporter defines for an engine.

use trtllm_analysis::saturation::Saturation;
use trtllm_fold::EngineState;
use trtllm_fold::lifecycle::Stages;
use trtllm_fold::pools::PoolBytes;
use trtllm_fold::rank_totals::RankLoad;
use trtllm_fold::request_totals::RequestSource;
use trtllm_fold::share::{ratio, share};
use trtllm_records::named_numbers::NamedNumbers as _;

use super::{ENGINE, EngineView, FamilyWriter, Id, RANK, Value, When, families, rank_name, unknown};

/// The requests of an idle engine have ended, even if the rows of the last record have some.
fn requests_by_stage(engine: &EngineView<'_>) -> Option<Stages> {
    let stages = engine.load.and(engine.engine.observed.fold.stages())?;
    Some(if engine.engine.state == EngineState::Idle { Stages::default() } else { stages })
}

/// The load of each rank. Absent with one rank.
fn rank_load<V: Into<Value>>(
    engine: &EngineView<'_>,
    series: &mut FamilyWriter<'_>,
    number: fn(RankLoad) -> Option<V>,
) {
    if engine.totals.ranks.is_some() {
        for (rank, load) in engine.engine.ranks() {
            series.with([("rank", rank_name(rank))], load.and_then(number));
        }
    }
}

families! {
    EngineGauges of EngineView<'_> => FamilyWriter<'_>;

    // Queue.
    QueuedRequests(|engine| engine.load?.queued) =
        ENGINE.gauge("nv_trt_llm_queued_requests").in_default().unit("requests").stable()
        .help("Requests in the executor's queue, not yet active (Triton's waiting does not include them; PyTorch \
            reports only those that came during one pass).").feeds("numQueuedRequests");
    WaitingRequestsEstimate(|engine| engine.load?.waiting_for_seat) =
        ENGINE.gauge("nv_trt_llm_waiting_requests_estimate").in_default()
        .help("Requests that wait for a seat, because the engine has no more active requests at a time; an estimate \
            for the PyTorch engine.").feeds("numQueuedRequests");
    OldestWaitingRequest(|engine| {
        let seconds = engine.load.and(engine.engine.observed.fold.oldest_waiting_seconds())?;
        Some(if engine.engine.state == EngineState::Idle { 0.0 } else { seconds })
    }) = ENGINE.gauge("nv_trt_llm_oldest_waiting_request_seconds").unit("seconds")
        .help("Seconds that the oldest request in the queue has waited, as rows of requests show it; at least that \
            long for the PyTorch engine, whose rows leave some waiting requests out.").feeds("requestStats");
    QueuedRequestsByPhase(|engine| let batch = engine.load?.inflight?; by phase {
        context: batch.num_queued_context_requests, generation: batch.num_queued_gen_requests,
    }) = ENGINE.gauge("nv_trt_llm_queued_requests_by_phase")
        .help("Queued requests, by the phase they wait for.").feeds("numQueuedContextRequests numQueuedGenRequests");
    QueuedContextTokens(|engine| engine.load?.inflight?.num_queued_ctx_tokens) =
        ENGINE.gauge("nv_trt_llm_queued_context_tokens").unit("tokens").help("Prompt tokens of queued requests.")
        .feeds("numQueuedCtxTokens");

    // Requests, by what the executor does with them.
    RequestKvTokens(|engine| let batch = engine.load?.inflight?; by phase {
        context: batch.num_ctx_kv_tokens, generation: batch.num_gen_kv_tokens,
        paused: batch.num_paused_kv_tokens, queued_generation: batch.num_queued_gen_kv_tokens,
    }) = ENGINE.gauge("nv_trt_llm_request_kv_tokens").unit("tokens")
        .help("KV cache tokens held by requests, by phase.")
        .feeds("numCtxKvTokens numGenKvTokens numQueuedGenKvTokens numPausedKvTokens");
    RequestsByStage(|engine| let stages = requests_by_stage(engine)?; by stage {
        queued: stages.queued, encoder: stages.encoder, context: stages.context, generation: stages.generation,
    }) = ENGINE.gauge("nv_trt_llm_requests_by_stage").stable().help("Requests, by stage.")
        .feeds("requestStats stage");
    RequestLatencyInfo(|engine, series| {
        let sources = std::iter::once(None).chain(RequestSource::ALL.map(Some));
        series.all(sources.map(|source| (source == engine.requests.source).then_some(1_u64)))
    }) = ENGINE.gauge("nv_trt_llm_request_latency_info")
        .by("from", &["none", "request_stats", "perf_metrics", "server_metrics", "otlp"])
        .help("1 for the source of the request latency histograms: perf_metrics and otlp are exact, server_metrics is \
            exact to the buckets of the server, request_stats is accurate to one iteration.")
        .when(&[When::Rows, When::Entries]);

    // Limits.
    BatchSizeLimit(|engine| let limits = engine.latest?.batch_size_limits; by limit {
        static: limits.fixed, tuner: limits.tuner, runtime: limits.runtime,
    }) = ENGINE.gauge("nv_trt_llm_batch_size_limit").in_default().stable()
        .help("Maximum number of requests in a batch: as built (static), recommended (tuner) and in force (runtime).")
        .feeds("maxBatchSizeStatic maxBatchSizeTunerRecommended maxBatchSizeRuntime");
    TokenLimit(|engine| let limits = engine.latest?.token_limits; by limit {
        static: limits.fixed, tuner: limits.tuner, runtime: limits.runtime,
    }) = ENGINE.gauge("nv_trt_llm_token_limit").stable()
        .help("Maximum number of tokens in a batch: as built (static), recommended (tuner) and in force (runtime).")
        .feeds("maxNumTokensStatic maxNumTokensTunerRecommended maxNumTokensRuntime");

    // KV cache.
    KvCacheHitRatio(|engine| engine.hit_ratio()) = ENGINE.gauge("nv_trt_llm_kv_cache_hit_ratio").unit("ratio").stable()
        .help("Share (0-1) of looked-up KV cache blocks found in the cache, since this exporter first saw the engine.")
        .feeds("reusedBlocks").like(Id::KvBlocksMissed);
    KvReuseEfficiency(|engine| engine.reuse_efficiency()) = ENGINE.gauge("nv_trt_llm_kv_cache_reuse_efficiency_ratio")
        .unit("ratio")
        .help("Share (0-1) of a prompt's KV cache blocks that were reused, since this exporter first saw the engine.")
        .feeds("reusedBlocks").like(Id::KvBlocksMissed);
    KvIterationHitRatio(|engine| engine.load?.pools.hit_ratio) = ENGINE.gauge("nv_trt_llm_kv_cache_iteration_hit_ratio")
        .unit("ratio").help("Share (0-1) of the KV cache blocks looked up in the last iteration that were found.")
        .feeds("kvCacheIterationStatsByLifecycle iterReusedBlocks iterMissedBlocks");
    PrimaryPoolBlocks(|engine| let pools = &engine.load?.pools.gpu; by state {
        max: pools.primary_max_num_blocks, free: pools.primary_free_num_blocks, used: pools.primary_used_num_blocks,
        evictable: pools.primary_evictable_num_blocks, peak_free: pools.primary_peak_free_num_blocks,
        peak_used: pools.primary_peak_used_num_blocks, peak_evictable: pools.primary_peak_evictable_num_blocks,
    }) = ENGINE.gauge("nv_trt_llm_kv_cache_primary_pool_blocks").unit("blocks")
        .help("KV cache blocks on the GPU, by state, summed over all pools; peaks are since the previous record.")
        .feeds("kvCacheIterationStats kvCacheIterationStatsByPoolGroup primaryMaxNumBlocks primaryFreeNumBlocks \
            primaryUsedNumBlocks primaryEvictableNumBlocks primaryPeakFreeNumBlocks primaryPeakUsedNumBlocks \
            primaryPeakEvictableNumBlocks");
    SecondaryPoolBlocks(|engine| let pools = &engine.load?.pools.cold; by state {
        max: pools.secondary_max_num_blocks, free: pools.secondary_free_num_blocks,
        used: pools.secondary_used_num_blocks, evictable: pools.secondary_evictable_num_blocks,
        peak_free: pools.secondary_peak_free_num_blocks, peak_used: pools.secondary_peak_used_num_blocks,
        peak_evictable: pools.secondary_peak_evictable_num_blocks,
    }) = ENGINE.gauge("nv_trt_llm_kv_cache_secondary_pool_blocks").unit("blocks")
        .help("KV cache blocks on host and disk, by state, summed over all pools; peaks are since the previous record.")
        .feeds("kvCacheIterationStatsByColdPoolGroup secondaryMaxNumBlocks secondaryFreeNumBlocks \
            secondaryUsedNumBlocks secondaryEvictableNumBlocks secondaryPeakFreeNumBlocks secondaryPeakUsedNumBlocks \
            secondaryPeakEvictableNumBlocks");
    PoolByteSizes(|engine, series| {
        let pools = &engine.load?.pools;
        for (tier, bytes) in [("gpu", pools.gpu_bytes), ("cold", pools.cold_bytes)] {
            for (state, bytes) in PoolBytes::NAMES.iter().zip(bytes.numbers()) {
                series.with([("state", *state), ("tier", tier)], bytes);
            }
        }
    }) = ENGINE.gauge("nv_trt_llm_kv_cache_pool_bytes").unit("bytes").labels(&["model", "tier", "version"])
        .by("state", PoolBytes::NAMES)
        .help("KV cache in bytes of one rank, by tier (gpu, or cold for host and disk) and state.").feeds("slotSize");
    KvCacheAvailableTokens(|engine| engine.available_tokens()) =
        ENGINE.gauge("nv_trt_llm_kv_cache_available_tokens").in_default()
        .unit("tokens").stable().help("Free KV cache capacity in tokens.")
        .feeds("kvCacheIterationStatsByPoolGroup freeNumBlocks tokensPerBlock");
    KvCachePressureRatio(|engine| engine.kv_cache_pressure()) = ENGINE.gauge("nv_trt_llm_kv_cache_pressure_ratio")
        .unit("ratio").stable().help("Share (0-1) of KV cache blocks that are not free.")
        .feeds("maxNumBlocks freeNumBlocks");

    // Batch.
    BatchOccupancyRatio(|engine| share(engine.batch_requests(), engine.load?.max_active_of_all())) =
        ENGINE.gauge("nv_trt_llm_batch_occupancy_ratio").in_default().unit("ratio").stable()
        .help("Requests in context and generation phase as a share (0-1) of the maximum number of active requests.")
        .feeds("maxNumActiveRequests InflightBatchingStats.numContextRequests numGenRequests");
    BatchEfficiencyRatio(|engine| ratio(engine.load?.active_of_all(), engine.load?.batch_size_limits.runtime)) =
        ENGINE.gauge("nv_trt_llm_batch_efficiency_ratio").unit("ratio")
        .help("Active requests divided by the batch size limit in force; above 1 if requests wait.")
        .feeds("numActiveRequests maxBatchSizeRuntime");
    SaturationRatio(|engine| let used = Saturation::of(engine.load?); by resource {
        batch: used.batch, tokens: used.tokens, kv_cache: used.kv_cache, queue: used.queue,
    }) = ENGINE.gauge("nv_trt_llm_saturation_ratio").in_default().unit("ratio")
        .help("Share of a resource of the engine that is in use, 1 if it is full; for the queue, waiting requests \
            divided by the batch limit.")
        .feeds("numActiveRequests numQueuedRequests maxBatchSizeRuntime maxNumTokensRuntime maxNumBlocks usedNumBlocks \
            numScheduledRequests numGenRequests numCtxTokens InflightBatchingStats.avgNumDecodedTokensPerIter");
    ContextRequestRatio(|engine| share(engine.load?.inflight?.num_context_requests, engine.batch_requests())) =
        ENGINE.gauge("nv_trt_llm_context_request_ratio").unit("ratio").stable()
        .help("Share (0-1) of the batch's requests that are in context phase.")
        .feeds("InflightBatchingStats.numContextRequests numGenRequests");
    StaticBatchEfficiencyRatio(|engine| engine.static_batch_efficiency()) =
        ENGINE.gauge("nv_trt_llm_static_batch_efficiency_ratio").unit("ratio").stable()
        .help("Share (0-1) of a static batch's generation slots in use.").feeds("numGenTokens emptyGenSlots");
    DecodedTokensPerIteration(|engine| engine.decoded_tokens_per_iteration()) =
        ENGINE.gauge("nv_trt_llm_decoded_tokens_per_iteration").stable()
        .help("Mean number of tokens decoded per generation request and iteration.")
        .feeds("InflightBatchingStats.avgNumDecodedTokensPerIter");

    // Speculative decoding, cross attention and ranks.
    SpecAcceptanceLength(|engine| engine.load?.spec_decoding?.acceptance_length) =
        ENGINE.gauge("nv_trt_llm_spec_decode_acceptance_length").stable()
        .help("Mean number of tokens per decoding step with speculative decoding in the last iteration.")
        .feeds("specDecodingStats acceptanceLength");
    SpecAcceptanceRatio(|engine| engine.load?.spec_acceptance_ratio()) =
        ENGINE.gauge("nv_trt_llm_spec_decode_acceptance_ratio").unit("ratio").stable()
        .help("Share (0-1) of the last iteration's draft tokens accepted by the model.")
        .feeds("numDraftTokens numAcceptedTokens");
    SpecDraftOverheadRatio(|engine| engine.measured_drafts()?.draft_overhead) =
        ENGINE.gauge("nv_trt_llm_spec_decode_draft_overhead_ratio").unit("ratio").stable()
        .help("Share (0-1) of the iteration's time spent drafting.").feeds("draftOverhead");
    CrossKvCacheBlockMetrics(|engine| let kv = engine.load?.cross_kv?; by kv_cache_block_type {
        max: kv.max_num_blocks, free: kv.free_num_blocks, used: kv.used_num_blocks, tokens_per: kv.tokens_per_block,
        reused: kv.reused_blocks, fraction: kv.used_fraction(),
    }) = ENGINE.gauge("nv_trt_llm_cross_kv_cache_block_metrics").stable()
        .help("KV cache blocks of cross attention (encoder-decoder models), by type.").feeds("crossKvCacheStats");
    AttentionDpRanks(|engine| engine.latest?.attention_dp_ranks()) = ENGINE.gauge("nv_trt_llm_attention_dp_ranks")
        .help("Attention data parallel ranks that share the requests of one iteration.").feeds("attentionDpRank rank");
    RankScheduledRequests(|engine, series| rank_load(engine, series, |load| load.batch.num_scheduled_requests)) =
        ENGINE.gauge("nv_trt_llm_rank_scheduled_requests").unit("requests").labels(RANK)
        .help("Requests scheduled in the last iteration, by attention data parallel rank; ranks above 63 are summed as \
            other.").feeds("attentionDpRank");
    RankActiveRequests(|engine, series| rank_load(engine, series, |load| load.active.filter(|_| !load.is_copy))) =
        ENGINE.gauge("nv_trt_llm_rank_active_requests").unit("requests").labels(RANK)
        .help("Active requests, by attention data parallel rank; ranks above 63 are summed as other.").feeds("rank");

    // The engine, its settings and its state.
    StatisticsInterval(|engine| engine.totals.statistics_interval) =
        ENGINE.gauge("nv_trt_llm_statistics_interval_iterations").unit("iterations")
        .help("Iterations per statistics record; above 1, the engine samples its statistics.").when(&[When::PyTorch]);
    SchedulerInfo(|engine, series| {
        let current = engine.latest?.scheduler_mode? as usize;
        series.all((0..=current).map(|mode| (mode == current).then_some(1_u64)))
    }) = ENGINE.gauge("nv_trt_llm_scheduler_info").by("mode", &["overlap", "non_overlap", "other"])
        .help("1 for the scheduler mode of the PyTorch engine.").feeds("schedulerMode");
    LastIterationTimestamp(|engine| engine.latest?.time_us as f64 / 1e6) =
        ENGINE.gauge("nv_trt_llm_last_iteration_timestamp_seconds").in_default().unit("seconds").stable()
        .help("End of the last iteration as a Unix timestamp in seconds.").feeds("timestamp");
    EngineState(|engine, series| series.one_of(engine.engine.state as usize)) =
        ENGINE.gauge("nv_trt_llm_engine_state").in_default()
        .stable().by("state", &EngineState::NAMES)
        .help("1 for the current state of the engine.").when(&[When::Any]);
    EngineConfigInfo(|engine, series| {
        let settings = engine.engine.settings();
        let is_known = settings.iter().any(|(_, value)| value.is_some());
        let known = settings.map(|(label, value)| (label, value.unwrap_or_else(unknown)));
        series.with(known, is_known.then_some(1_u64))
    }) = ENGINE.gauge("nv_trt_llm_engine_config_info").in_default()
        .labels(&[
            "dtype", "expert_parallel_size", "kv_cache_dtype", "max_batch_size", "max_num_tokens", "model",
            "pipeline_parallel_size", "quantization", "speculative_method", "tensor_parallel_size", "tokens_per_block",
            "version",
        ]).help("Always 1; the labels are the engine's settings, unknown if it does not report them.")
        .when(&[When::Iterations]);
    StartupTime(|engine, series| {
        for (stage, seconds) in &engine.engine.about.startup {
            series.with([("stage", stage.clone())], *seconds);
        }
    }) = ENGINE.gauge("nv_trt_llm_startup_seconds").in_default().unit("seconds").labels(&["model", "stage", "version"])
        .help("Duration of each stage of the engine's start in seconds; stages named total_* contain others.")
        .when(&[When::ServerPage]);
    ObjectiveLimit(|engine, series| {
        for (objective, limit) in engine.engine.objectives()?.limits.limits() {
            series.with([("objective", objective)], limit.map(|limit| limit.as_secs_f64()));
        }
    }) = ENGINE.gauge("nv_trt_llm_objective_seconds").in_default().unit("seconds")
        .labels(&["model", "objective", "version"])
        .help("Configured objectives in seconds: the longest time to the first token (ttft), per further token (tpot), \
            and end to end (e2e).").when(&[When::Any]);
    EngineInfo(|engine, series| {
        let about = &engine.engine.about;
        let labels = [
            ("backend", about.backend.clone().unwrap_or_else(unknown)),
            ("engine_version", about.version.clone().unwrap_or_else(unknown)),
            ("simulated", about.simulated.to_string()),
            ("source", engine.source.to_owned()),
        ];
        series.with(labels, 1_u64)
    }) = ENGINE.gauge("nv_trt_llm_engine_info").in_default()
        .labels(&["backend", "engine_version", "model", "simulated", "source", "version"]).stable()
        .help("Engine description in labels (source, backend, version, whether it is simulated); always 1.")
        .when(&[When::Any]);
}
