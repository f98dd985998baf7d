//! trtllm-serve's own families (`--metrics.compat trtllm`), with the meaning that trtllm-serve gives them. As on its
//! page, most counters appear with their first increase, and a histogram with its first observation.

use trtllm_fold::cache_tiers::{LevelTokens, MAX_LEVELS, Tier};
use trtllm_fold::share::ratio;
use trtllm_records::server_metrics::ConfigSection;

use super::{EngineView, FamilyWriter, Id, Metric, When, families, increased, seen};

const TRTLLM: Metric = Metric::compat("trtllm", &["engine_type", "model_name"]);

/// The labels of trtllm-serve's own family, without those that the engine's series have anyway.
fn configuration(engine: &EngineView<'_>, series: &mut FamilyWriter<'_>, section: ConfigSection) {
    if let Some(labels) = engine.requests.server.config.get(&section) {
        let more: Vec<_> = labels.iter().filter(|(name, _)| !series.has_label(name)).cloned().collect();
        series.with(more, 1_u64);
    }
}

families! {
    Trtllm of EngineView<'_> => FamilyWriter<'_>;

    TrtllmNumRequestsRunning(|engine| engine.load?.active) = TRTLLM.gauge("trtllm_num_requests_running")
        .help("Active requests.").on_gateway("Requests scheduled in the last iteration.")
        .feeds("numActiveRequests InflightBatchingStats.numScheduledRequests");
    TrtllmNumRequestsWaiting(|engine| engine.load?.queued) = TRTLLM.gauge("trtllm_num_requests_waiting")
        .help("Requests in the executor's queue.")
        .on_gateway("Requests queued in the executor, and active requests that are not scheduled.")
        .feeds("numQueuedRequests");
    TrtllmMaxNumActiveRequests(|engine| engine.latest?.max_active) = TRTLLM.gauge("trtllm_max_num_active_requests")
        .help("Maximum number of active requests.").feeds("maxNumActiveRequests");
    TrtllmNumContextRequests(|engine| engine.load?.inflight?.num_context_requests) =
        TRTLLM.gauge("trtllm_num_context_requests").help("Requests in context phase.")
        .feeds("InflightBatchingStats.numContextRequests");
    TrtllmNumGenerationRequests(|engine| engine.load?.inflight?.num_gen_requests) =
        TRTLLM.gauge("trtllm_num_generation_requests").help("Requests in generation phase.").feeds("numGenRequests");
    TrtllmNumPausedRequests(|engine| engine.load?.inflight?.num_paused_requests) =
        TRTLLM.gauge("trtllm_num_paused_requests").help("Paused requests.").feeds("numPausedRequests");
    TrtllmNumScheduledRequests(|engine| engine.load?.inflight?.num_scheduled_requests) =
        TRTLLM.gauge("trtllm_num_scheduled_requests").help("Requests scheduled in the last iteration.")
        .feeds("InflightBatchingStats.numScheduledRequests");
    TrtllmTotalContextTokens(|engine| engine.load?.inflight?.num_ctx_tokens) =
        TRTLLM.gauge("trtllm_total_context_tokens").help("Context tokens of the last iteration.")
        .feeds("InflightBatchingStats.numCtxTokens");
    TrtllmAvgDecodedTokensPerIter(|engine| engine.load?.inflight?.avg_num_decoded_tokens_per_iter) =
        TRTLLM.gauge("trtllm_avg_decoded_tokens_per_iter")
        .help("Mean number of tokens decoded per generation request and iteration.")
        .feeds("InflightBatchingStats.avgNumDecodedTokensPerIter");
    TrtllmPrefillBatchOccupancy(
        |engine| ratio(engine.load?.inflight?.num_context_requests, engine.load?.max_active_of_all())
    ) = TRTLLM.gauge("trtllm_prefill_batch_occupancy")
        .help("Requests in context phase as a share (0-1) of the maximum number of active requests.")
        .feeds("InflightBatchingStats.numContextRequests maxNumActiveRequests");
    TrtllmKvCacheUtilization(|engine| engine.kv_cache_utilization()) = TRTLLM.gauge("trtllm_kv_cache_utilization")
        .help("Share (0-1) of KV cache blocks in use.").feeds("usedNumBlocks maxNumBlocks");
    TrtllmKvCacheHitRate(|engine| engine.load?.kv?.cache_hit_rate) = TRTLLM.gauge("trtllm_kv_cache_hit_rate")
        .help("Share (0-1) of KV cache blocks found in the cache, since the engine started.")
        .feeds("KvCacheStats.cacheHitRate");
    TrtllmKvCacheMaxBlocks(|engine| engine.load?.kv?.max_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_max_blocks")
        .help("KV cache capacity in blocks.").feeds("maxNumBlocks");
    TrtllmKvCacheFreeBlocks(|engine| engine.load?.kv?.free_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_free_blocks")
        .help("Free KV cache blocks.").feeds("freeNumBlocks");
    TrtllmKvCacheUsedBlocks(|engine| engine.load?.kv?.used_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_used_blocks")
        .help("Used KV cache blocks.").feeds("usedNumBlocks");
    TrtllmKvCacheTokensPerBlock(|engine| engine.load?.kv?.tokens_per_block) =
        TRTLLM.gauge("trtllm_kv_cache_tokens_per_block").help("Tokens per KV cache block.").feeds("tokensPerBlock");
    TrtllmGpuMemoryUsage(|engine| engine.load?.gpu_memory) = TRTLLM.gauge("trtllm_gpu_memory_usage_bytes")
        .help("GPU memory in use in bytes.").feeds("gpuMemUsage");
    TrtllmCpuMemoryUsage(|engine| engine.load?.cpu_memory) = TRTLLM.gauge("trtllm_cpu_memory_usage_bytes")
        .help("CPU memory in use in bytes.").feeds("cpuMemUsage");
    TrtllmPinnedMemoryUsage(|engine| engine.load?.pinned_memory) = TRTLLM.gauge("trtllm_pinned_memory_usage_bytes")
        .help("Pinned memory in use in bytes.").feeds("pinnedMemUsage");
    TrtllmMaxBatchSizeStatic(|engine| engine.latest?.batch_size_limits.fixed) =
        TRTLLM.gauge("trtllm_max_batch_size_static").help("Batch size limit of the engine as built.")
        .feeds("maxBatchSizeStatic");
    TrtllmMaxBatchSizeRuntime(|engine| engine.latest?.batch_size_limits.runtime) =
        TRTLLM.gauge("trtllm_max_batch_size_runtime").help("Batch size limit in force.").feeds("maxBatchSizeRuntime");
    TrtllmMaxNumTokensRuntime(|engine| engine.latest?.token_limits.runtime) =
        TRTLLM.gauge("trtllm_max_num_tokens_runtime").help("Limit in force for tokens in a batch.")
        .feeds("maxNumTokensRuntime");
    TrtllmIterationLatency(|engine| engine.load?.iter_latency_ms? / 1000.0) =
        TRTLLM.gauge("trtllm_iteration_latency_seconds").help("Duration of the last iteration in seconds.")
        .feeds("IterationStats.iterLatencyMS");
    TrtllmSpecAcceptanceLength(|engine| engine.load?.spec_decoding?.acceptance_length) =
        TRTLLM.gauge("trtllm_spec_decode_acceptance_length")
        .help("Mean number of tokens per decoding step with speculative decoding.").feeds("acceptanceLength");
    TrtllmSpecDraftOverhead(|engine| engine.load?.spec_decoding?.draft_overhead) =
        TRTLLM.gauge("trtllm_spec_decode_draft_overhead").help("Share (0-1) of the iteration's time spent drafting.")
        .feeds("draftOverhead");
    TrtllmNumRequestsCompleted(|engine| increased(engine.totals.requests_completed)) =
        TRTLLM.counter("trtllm_num_requests_completed_total").help("Completed requests.").feeds("numCompletedRequests");

    // trtllm-serve reads its engine from the start, so it shows these two as soon as they are above 0. The exporter may
    // start later, and the next increase may take long, so it shows them from the first record that has them.
    TrtllmKvCacheReusedBlocks(|engine| engine.totals.kv.reused_blocks) =
        TRTLLM.counter("trtllm_kv_cache_reused_blocks_total").help("KV cache blocks found in the cache.")
        .feeds("reusedBlocks");
    TrtllmKvCacheMissedBlocks(|engine| engine.totals.kv.missed_blocks) =
        TRTLLM.counter("trtllm_kv_cache_missed_blocks_total").help("KV cache blocks not found in the cache.")
        .like(Id::KvBlocksMissed);

    TrtllmSpecDraftTokens(|engine| increased(engine.totals.reported_drafts.num_draft_tokens?)) =
        TRTLLM.counter("trtllm_spec_decode_num_draft_tokens_total").help("Draft tokens.").feeds("numDraftTokens rank");
    TrtllmSpecAcceptedTokens(|engine| increased(engine.totals.reported_drafts.num_accepted_tokens?)) =
        TRTLLM.counter("trtllm_spec_decode_num_accepted_tokens_total").help("Accepted draft tokens.")
        .feeds("numAcceptedTokens");
    TrtllmRequestSuccess(|engine, series| {
        // trtllm-serve has only the first four of our finish reasons.
        series.all(engine.requests.finished?.map(increased))
    }) = TRTLLM.counter("trtllm_request_success_total")
        .by("finished_reason", &["stop", "length", "timeout", "cancelled"]).help("Finished requests, by finish reason.")
        .like(Id::RequestsFinished);
    TrtllmKvHostUtilization(|engine| engine.load?.pools.last_host_utilization) =
        TRTLLM.gauge("trtllm_kv_cache_host_utilization").help("Share (0-1) of KV cache blocks on the host in use.")
        .feeds("secondaryUsedNumBlocks secondaryMaxNumBlocks kvCacheIterationStatsByColdPoolGroup \
            kvCacheIterationStatsByPoolGroup kvCacheIterationStats");
    TrtllmKvIterReuseRate(|engine| engine.load?.pools.last_hit_ratio) = TRTLLM.gauge("trtllm_kv_cache_iter_reuse_rate")
        .help("Share (0-1) of the KV cache blocks looked up in the last iteration that were found.")
        .feeds("iterReusedBlocks iterMissedBlocks kvCacheIterationStatsByLifecycle kind kvCacheIterationStats");
    TrtllmKvIterReused(|engine| increased(engine.totals.pools.events.iter_reused_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_reused_blocks_total").help("KV cache blocks reused.")
        .feeds("iterReusedBlocks");
    TrtllmKvIterFullReused(|engine| increased(engine.totals.pools.events.iter_full_reused_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_full_reused_blocks_total").help("KV cache blocks fully reused.")
        .feeds("iterFullReusedBlocks");
    TrtllmKvIterPartialReused(|engine| increased(engine.totals.pools.events.iter_partial_reused_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_partial_reused_blocks_total").help("KV cache blocks partially reused.")
        .feeds("iterPartialReusedBlocks");
    TrtllmKvIterMissed(|engine| increased(engine.totals.pools.events.iter_missed_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_missed_blocks_total").help("KV cache blocks not found in the cache.")
        .feeds("iterMissedBlocks");
    TrtllmKvGenAlloc(|engine| increased(engine.totals.pools.events.iter_gen_alloc_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_gen_alloc_blocks_total").help("KV cache blocks allocated in generation phases.")
        .feeds("iterGenAllocBlocks");
    TrtllmKvOnboardBytes(|engine| increased(engine.totals.pools.events.iter_onboard_bytes?)) =
        TRTLLM.counter("trtllm_kv_cache_onboard_bytes_total").help("KV cache bytes copied from host to GPU.")
        .feeds("iterOnboardBytes");
    TrtllmKvOffloadBytes(|engine| increased(engine.totals.pools.events.iter_offload_bytes?)) =
        TRTLLM.counter("trtllm_kv_cache_offload_bytes_total").help("KV cache bytes copied from GPU to host.")
        .feeds("iterOffloadBytes");
    TrtllmKvCopyBytes(|engine| increased(engine.totals.pools.events.iter_intra_device_copy_bytes?)) =
        TRTLLM.counter("trtllm_kv_cache_intra_device_copy_bytes_total").help("KV cache bytes copied within the GPU.")
        .feeds("iterIntraDeviceCopyBytes");
    TrtllmKvDiskPrefetchBlocks(|engine| increased(engine.totals.pools.disk_prefetched_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_disk_prefetch_blocks_total")
        .help("KV cache blocks prefetched from disk to host.").feeds("iterDiskPrefetchBlocks");
    TrtllmPromptCacheHitTokens(|engine, series| {
        // Unlike trtllm-serve's other counters, these start at 0.
        for (level, LevelTokens { unnamed, by_tier }) in engine.totals.pools.cached_tokens.by_level.iter().enumerate() {
            let name = if level < MAX_LEVELS { level.to_string() } else { "other".to_owned() };
            for (tier, tokens) in std::iter::once(("", *unnamed)).chain(Tier::NAMES.into_iter().zip(*by_tier)) {
                series.with([("cache_level", name.clone()), ("cache_tier", tier.to_owned())], tokens);
            }
        }
    }) = TRTLLM.counter("trtllm_prompt_cache_hit_tokens_total")
        .labels(&["cache_level", "cache_tier", "engine_type", "model_name"])
        .help("Prompt tokens found in the KV cache, by cache level.")
        .feeds("iterCachedTokensByLevel kvCacheLevelTiers");
    TrtllmPromptTokens(|engine| engine.requests.prompt_tokens()) = TRTLLM.counter("trtllm_prompt_tokens_total")
        .help("Prompt tokens of finished requests.").when(&[When::Rows, When::Entries, When::ServerPage]);
    TrtllmGenerationTokens(|engine| engine.requests.generation_tokens()) =
        TRTLLM.counter("trtllm_generation_tokens_total").help("Generated tokens of finished requests.")
        .when(&[When::Rows, When::Entries, When::ServerPage]);
    TrtllmPromptCachedTokens(|engine| engine.requests.cached_tokens()) =
        TRTLLM.counter("trtllm_prompt_cached_tokens_total")
        .help("Prompt tokens of finished requests that were found in the KV cache.")
        .when(&[When::Entries, When::ServerPage]);
    TrtllmRequestError(|engine, series| series.by_label("http_code", &engine.requests.server.errors)) =
        TRTLLM.counter("trtllm_request_error_total").labels(&["engine_type", "http_code", "model_name"])
        .help("Refused requests, by HTTP status.").like(Id::RequestErrors);
    TrtllmSpecDraftedByPosition(
        |engine, series| series.by_label("token_position", &engine.requests.server.drafted_tokens)
    ) = TRTLLM.counter("trtllm_spec_decode_drafted_tokens_total")
        .labels(&["engine_type", "model_name", "token_position"]).help("Draft tokens, by position in the draft.")
        .when(&[When::ServerPage]);
    TrtllmSpecAcceptedByPosition(
        |engine, series| series.by_label("token_position", &engine.requests.server.accepted_tokens)
    ) = TRTLLM.counter("trtllm_spec_decode_accepted_tokens_total")
        .labels(&["engine_type", "model_name", "token_position"])
        .help("Accepted draft tokens, by position in the draft.").when(&[When::ServerPage]);
    TrtllmModelConfig(|engine, series| configuration(engine, series, ConfigSection::Model)) =
        TRTLLM.gauge("trtllm_model_config_info").help("The model's configuration as labels; always 1.")
        .when(&[When::ServerPage]);
    TrtllmParallelConfig(|engine, series| configuration(engine, series, ConfigSection::Parallel)) =
        TRTLLM.gauge("trtllm_parallel_config_info").help("The parallelism's configuration as labels; always 1.")
        .like(Id::TrtllmModelConfig);
    TrtllmSpeculativeConfig(|engine, series| configuration(engine, series, ConfigSection::Speculative)) =
        TRTLLM.gauge("trtllm_speculative_config_info")
        .help("The configuration of speculative decoding as labels; always 1.").like(Id::TrtllmModelConfig);
    TrtllmKvCacheConfig(|engine, series| configuration(engine, series, ConfigSection::KvCache)) =
        TRTLLM.gauge("trtllm_kv_cache_config_info").help("The KV cache's configuration as labels; always 1.")
        .like(Id::TrtllmModelConfig);
    TrtllmTimeToFirstToken(|engine| seen(&engine.times.time_to_first_token)) =
        TRTLLM.histogram("trtllm_time_to_first_token_seconds").unit("seconds")
        .help("Time to the first token in seconds.").like(Id::TimeToFirstToken);
    TrtllmTimePerOutputToken(|engine| engine.requests.time_per_output_token()) =
        TRTLLM.histogram("trtllm_time_per_output_token_seconds").unit("seconds")
        .help("Time per output token after the first in seconds.").like(Id::TimePerOutputToken);
    TrtllmE2eLatency(|engine| seen(&engine.times.e2e_latency)) = TRTLLM.histogram("trtllm_e2e_request_latency_seconds")
        .unit("seconds").help("Time from a request's arrival to its last token in seconds.").like(Id::E2eLatency);
    TrtllmRequestQueueTime(|engine| seen(&engine.times.queue_time)) =
        TRTLLM.histogram("trtllm_request_queue_time_seconds").unit("seconds")
        .help("Time from a request's arrival to its first scheduling in seconds.").like(Id::RequestQueueTime);
    TrtllmRequestPrefillTime(|engine| seen(&engine.times.prefill_time)) =
        TRTLLM.histogram("trtllm_request_prefill_time_seconds").unit("seconds")
        .help("Time from a request's first scheduling to its first token in seconds.").like(Id::RequestPrefillTime);
    TrtllmRequestDecodeTime(|engine| seen(&engine.times.decode_time)) =
        TRTLLM.histogram("trtllm_request_decode_time_seconds").unit("seconds")
        .help("Time from a request's first token to its last in seconds.").like(Id::RequestDecodeTime);
    TrtllmRequestInferenceTime(|engine| seen(&engine.times.inference_time)) =
        TRTLLM.histogram("trtllm_request_inference_time_seconds").unit("seconds")
        .help("Time from a request's first scheduling to its last token in seconds.").like(Id::RequestInferenceTime);
    TrtllmPromptCachedTokensPerRequest(|engine| seen(&engine.times.cached_tokens)) =
        TRTLLM.histogram("trtllm_prompt_cached_tokens_per_request")
        .help("Tokens of a request's prompt that were found in the KV cache.").like(Id::RequestCachedTokens);
    TrtllmPrefillPerplexity(|engine| seen(&engine.times.perplexity[0])) = TRTLLM.histogram("trtllm_prefill_perplexity")
        .help("Perplexity of a request's prompt, of requests that ask for log probabilities.")
        .when(&[When::ServerPage]);
    TrtllmGenerationPerplexity(|engine| seen(&engine.times.perplexity[1])) =
        TRTLLM.histogram("trtllm_generation_perplexity")
        .help("Perplexity of a request's answer, of requests that ask for log probabilities.")
        .when(&[When::ServerPage]);
    TrtllmPrefillBatchTokens(|engine| seen(&engine.totals.row_context_tokens)) =
        TRTLLM.histogram("trtllm_prefill_batch_tokens").unit("tokens")
        .help("Context tokens of one iteration and rank; those without such tokens are left out.")
        .feeds("InflightBatchingStats.numCtxTokens");
}
