//! trtllm-serve's own families (`--metrics.compat trtllm`), with the meaning that trtllm-serve gives them. As on its page, most
//! counters appear with their first increase, and a histogram with its first observation.

use trtllm_fold::cache_tiers::{LevelTokens, MAX_LEVELS, TierNumbers};
use trtllm_fold::share::ratio;
use trtllm_records::named_numbers::NamedNumbers as _;
use trtllm_records::server_metrics::ConfigSection;

use super::{Area, EngineReadings, EngineWriter, Group, Stability, When, families, increased, seen};

const TRTLLM: Area =
    Area::new(Group::Compat, Stability::Inherited, &["engine_type", "model_name"]).when(&[When::Iterations]);

/// The labels of trtllm-serve's own family, without those that the engine's series have anyway.
fn configuration(engine: &EngineReadings<'_>, series: &mut EngineWriter<'_>, section: ConfigSection) {
    if let Some(labels) = engine.requests.server.config.get(&section) {
        let more: Vec<_> = labels.iter().filter(|(name, _)| !series.has_label(name)).cloned().collect();
        series.with(more, 1_u64);
    }
}

families! {
    Trtllm of EngineReadings<'_> => EngineWriter<'_>;

    TrtllmNumRequestsRunning(|engine| engine.load?.active) = TRTLLM.gauge("trtllm_num_requests_running")
        .help("Active requests.").on_gateway("Requests scheduled in the last iteration.")
        .origin("trtllm: numActiveRequests; on /metrics/gateway: numScheduledRequests");
    TrtllmNumRequestsWaiting(|engine| engine.load?.queued) = TRTLLM.gauge("trtllm_num_requests_waiting")
        .help("Requests in the executor's queue.")
        .on_gateway("Requests queued in the executor, and active requests that are not scheduled.")
        .origin("trtllm: numQueuedRequests; on /metrics/gateway: as nv_trt_llm_request_metrics{request_type=\"waiting\"} there");
    TrtllmMaxNumActiveRequests(|engine| engine.latest?.max_active) = TRTLLM.gauge("trtllm_max_num_active_requests")
        .help("Maximum number of active requests.").origin("trtllm: maxNumActiveRequests");
    TrtllmNumContextRequests(|engine| engine.load?.inflight?.num_context_requests) = TRTLLM.gauge("trtllm_num_context_requests")
        .help("Requests in context phase.").origin("trtllm: numContextRequests");
    TrtllmNumGenerationRequests(|engine| engine.load?.inflight?.num_gen_requests) = TRTLLM.gauge("trtllm_num_generation_requests")
        .help("Requests in generation phase.").origin("trtllm: numGenRequests");
    TrtllmNumPausedRequests(|engine| engine.load?.inflight?.num_paused_requests) = TRTLLM.gauge("trtllm_num_paused_requests")
        .help("Paused requests.").origin("trtllm: numPausedRequests");
    TrtllmNumScheduledRequests(|engine| engine.load?.inflight?.num_scheduled_requests) = TRTLLM.gauge("trtllm_num_scheduled_requests")
        .help("Requests scheduled in the last iteration.").origin("trtllm: numScheduledRequests");
    TrtllmTotalContextTokens(|engine| engine.load?.inflight?.num_ctx_tokens) = TRTLLM.gauge("trtllm_total_context_tokens")
        .help("Context tokens of the last iteration.").origin("trtllm: numCtxTokens");
    TrtllmAvgDecodedTokensPerIter(|engine| engine.load?.inflight?.avg_num_decoded_tokens_per_iter) =
        TRTLLM.gauge("trtllm_avg_decoded_tokens_per_iter")
        .help("Mean number of tokens decoded per generation request and iteration.")
        .origin("trtllm: avgNumDecodedTokensPerIter");
    TrtllmPrefillBatchOccupancy(|engine| ratio(engine.load?.inflight?.num_context_requests, engine.load?.max_active_of_all())) =
        TRTLLM.gauge("trtllm_prefill_batch_occupancy")
        .help("Requests in context phase as a share (0-1) of the maximum number of active requests.")
        .origin("trtllm: numContextRequests / maxNumActiveRequests");
    TrtllmKvCacheUtilization(|engine| engine.kv_cache_utilization()) = TRTLLM.gauge("trtllm_kv_cache_utilization")
        .help("Share (0-1) of KV cache blocks in use.").origin("trtllm: usedNumBlocks / maxNumBlocks; absent where maxNumBlocks is 0");
    TrtllmKvCacheHitRate(|engine| engine.load?.kv?.cache_hit_rate) = TRTLLM.gauge("trtllm_kv_cache_hit_rate")
        .help("Share (0-1) of KV cache blocks found in the cache, since the engine started.")
        .origin("trtllm: cacheHitRate");
    TrtllmKvCacheMaxBlocks(|engine| engine.load?.kv?.max_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_max_blocks")
        .help("KV cache capacity in blocks.").origin("trtllm: maxNumBlocks");
    TrtllmKvCacheFreeBlocks(|engine| engine.load?.kv?.free_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_free_blocks")
        .help("Free KV cache blocks.").origin("trtllm: freeNumBlocks");
    TrtllmKvCacheUsedBlocks(|engine| engine.load?.kv?.used_num_blocks) = TRTLLM.gauge("trtllm_kv_cache_used_blocks")
        .help("Used KV cache blocks.").origin("trtllm: usedNumBlocks");
    TrtllmKvCacheTokensPerBlock(|engine| engine.load?.kv?.tokens_per_block) = TRTLLM.gauge("trtllm_kv_cache_tokens_per_block")
        .help("Tokens per KV cache block.").origin("trtllm: tokensPerBlock");
    TrtllmGpuMemoryUsage(|engine| engine.load?.gpu_memory) = TRTLLM.gauge("trtllm_gpu_memory_usage_bytes")
        .help("GPU memory in use in bytes.").origin("trtllm: gpuMemUsage");
    TrtllmCpuMemoryUsage(|engine| engine.load?.cpu_memory) = TRTLLM.gauge("trtllm_cpu_memory_usage_bytes")
        .help("CPU memory in use in bytes.").origin("trtllm: cpuMemUsage");
    TrtllmPinnedMemoryUsage(|engine| engine.load?.pinned_memory) = TRTLLM.gauge("trtllm_pinned_memory_usage_bytes")
        .help("Pinned memory in use in bytes.").origin("trtllm: pinnedMemUsage");
    TrtllmMaxBatchSizeStatic(|engine| engine.latest?.batch_size_limits.fixed) = TRTLLM.gauge("trtllm_max_batch_size_static")
        .help("Batch size limit of the engine as built.").origin("trtllm: maxBatchSizeStatic; absent where the engine sends 0")
        .when(&[When::Cpp]);
    TrtllmMaxBatchSizeRuntime(|engine| engine.latest?.batch_size_limits.runtime) = TRTLLM.gauge("trtllm_max_batch_size_runtime")
        .help("Batch size limit in force.").origin("trtllm: maxBatchSizeRuntime; absent where the engine sends 0")
        .when(&[When::Cpp]);
    TrtllmMaxNumTokensRuntime(|engine| engine.latest?.token_limits.runtime) = TRTLLM.gauge("trtllm_max_num_tokens_runtime")
        .help("Limit in force for tokens in a batch.").origin("trtllm: maxNumTokensRuntime; absent where the engine sends 0")
        .when(&[When::Cpp]);
    TrtllmIterationLatency(|engine| engine.load?.iter_latency_ms? / 1000.0) = TRTLLM.gauge("trtllm_iteration_latency_seconds")
        .help("Duration of the last iteration in seconds.")
        .origin("trtllm: iterLatencyMS of the last record, as reported");
    TrtllmSpecAcceptanceLength(|engine| engine.load?.spec_decoding?.acceptance_length) =
        TRTLLM.gauge("trtllm_spec_decode_acceptance_length")
        .help("Mean number of tokens per decoding step with speculative decoding.").origin("trtllm: acceptanceLength; absent where nothing was drafted, where upstream shows 1")
        .when(&[When::Speculation]);
    TrtllmSpecDraftOverhead(|engine| engine.load?.spec_decoding?.draft_overhead) = TRTLLM.gauge("trtllm_spec_decode_draft_overhead")
        .help("Share (0-1) of the iteration's time spent drafting.").origin("trtllm: draftOverhead; absent where nothing was drafted, where upstream repeats the last one")
        .when(&[When::Speculation]);
    TrtllmNumRequestsCompleted(|engine| increased(engine.totals.requests_completed)) = TRTLLM.counter("trtllm_num_requests_completed_total")
        .help("Completed requests.").origin("trtllm: numCompletedRequests");

    // trtllm-serve reads its engine from the start, so it shows these two as soon as they are above 0. The exporter may start later, and
    // the next increase may take long, so it shows them from the first record that has them.
    TrtllmKvCacheReusedBlocks(|engine| engine.totals.reports_reused_blocks.then_some(engine.totals.kv_cache_blocks_reused)) =
        TRTLLM.counter("trtllm_kv_cache_reused_blocks_total")
        .help("KV cache blocks found in the cache.").origin("trtllm: increases of reusedBlocks, from the first record that has it");
    TrtllmKvCacheMissedBlocks(|engine| engine.totals.reports_missed_blocks.then_some(engine.totals.kv_cache_blocks_missed)) =
        TRTLLM.counter("trtllm_kv_cache_missed_blocks_total")
        .help("KV cache blocks not found in the cache.").origin("trtllm: increases of missedBlocks, from the first record that has it");

    TrtllmSpecDraftTokens(|engine| increased(engine.totals.reported_draft_tokens)) =
        TRTLLM.counter("trtllm_spec_decode_num_draft_tokens_total")
        .help("Draft tokens.").origin("trtllm: numDraftTokens; with attention data parallelism those of rank 0, which the rows of all ranks repeat")
        .when(&[When::Speculation, When::AttentionDp]);
    TrtllmSpecAcceptedTokens(|engine| increased(engine.totals.reported_accepted_tokens)) =
        TRTLLM.counter("trtllm_spec_decode_num_accepted_tokens_total")
        .help("Accepted draft tokens.").origin("trtllm: numAcceptedTokens; as trtllm_spec_decode_num_draft_tokens_total")
        .when(&[When::Speculation]);
    TrtllmRequestSuccess(|engine, series| {
        // trtllm-serve has only the first four of our finish reasons.
        series.all(engine.requests.finished?.map(increased))
    }) = TRTLLM.counter("trtllm_request_success_total")
        .by("finished_reason", &["stop", "length", "timeout", "cancelled"])
        .help("Finished requests, by finish reason.").origin("trtllm: as nv_trt_llm_requests_finished_total")
        .when(&[When::Entries, When::ServerPage]);
    TrtllmKvHostUtilization(|engine| engine.load?.pools.last_host_utilization) = TRTLLM.gauge("trtllm_kv_cache_host_utilization")
        .help("Share (0-1) of KV cache blocks on the host in use.")
        .origin("trtllm: secondaryUsedNumBlocks / secondaryMaxNumBlocks of kvCacheIterationStatsByColdPoolGroup (which includes disk), else of kvCacheIterationStatsByPoolGroup, else of kvCacheIterationStats; keeps its last value where the sum of the maxima is 0")
        .when(&[When::Windows, When::V2]);
    TrtllmKvIterReuseRate(|engine| engine.load?.pools.last_hit_ratio) = TRTLLM.gauge("trtllm_kv_cache_iter_reuse_rate")
        .help("Share (0-1) of the KV cache blocks looked up in the last iteration that were found.")
        .origin("trtllm: iterReusedBlocks / (iterReusedBlocks + iterMissedBlocks) of kvCacheIterationStatsByLifecycle (kind attention), else of kvCacheIterationStats; keeps its last value where both are 0")
        .when(&[When::Windows, When::V2]);
    TrtllmKvIterReused(|engine| increased(engine.totals.pools.blocks.reused?)) = TRTLLM.counter("trtllm_kv_cache_iter_reused_blocks_total")
        .help("KV cache blocks reused.").origin("trtllm: iterReusedBlocks").when(&[When::Windows, When::V2]);
    TrtllmKvIterFullReused(|engine| increased(engine.totals.pools.blocks.full_reused?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_full_reused_blocks_total")
        .help("KV cache blocks fully reused.").origin("trtllm: iterFullReusedBlocks")
        .when(&[When::Windows, When::V2]);
    TrtllmKvIterPartialReused(|engine| increased(engine.totals.pools.blocks.partial_reused?)) =
        TRTLLM.counter("trtllm_kv_cache_iter_partial_reused_blocks_total")
        .help("KV cache blocks partially reused.").origin("trtllm: iterPartialReusedBlocks")
        .when(&[When::Windows, When::V2]);
    TrtllmKvIterMissed(|engine| increased(engine.totals.pools.blocks.missed?)) = TRTLLM.counter("trtllm_kv_cache_iter_missed_blocks_total")
        .help("KV cache blocks not found in the cache.").origin("trtllm: iterMissedBlocks")
        .when(&[When::Windows, When::V2]);
    TrtllmKvGenAlloc(|engine| increased(engine.totals.pools.blocks.generation_allocated?)) =
        TRTLLM.counter("trtllm_kv_cache_gen_alloc_blocks_total")
        .help("KV cache blocks allocated in generation phases.").origin("trtllm: iterGenAllocBlocks")
        .when(&[When::Windows]);
    TrtllmKvOnboardBytes(|engine| increased(engine.totals.pools.bytes.onboarded?)) = TRTLLM.counter("trtllm_kv_cache_onboard_bytes_total")
        .help("KV cache bytes copied from host to GPU.").origin("trtllm: iterOnboardBytes").when(&[When::Windows]);
    TrtllmKvOffloadBytes(|engine| increased(engine.totals.pools.bytes.offloaded?)) = TRTLLM.counter("trtllm_kv_cache_offload_bytes_total")
        .help("KV cache bytes copied from GPU to host.").origin("trtllm: iterOffloadBytes").when(&[When::Windows]);
    TrtllmKvCopyBytes(|engine| increased(engine.totals.pools.bytes.copied?)) =
        TRTLLM.counter("trtllm_kv_cache_intra_device_copy_bytes_total")
        .help("KV cache bytes copied within the GPU.").origin("trtllm: iterIntraDeviceCopyBytes")
        .when(&[When::Windows]);
    TrtllmKvDiskPrefetchBlocks(|engine| increased(engine.totals.pools.disk_prefetched_blocks?)) =
        TRTLLM.counter("trtllm_kv_cache_disk_prefetch_blocks_total")
        .help("KV cache blocks prefetched from disk to host.").origin("trtllm: iterDiskPrefetchBlocks")
        .when(&[When::V2]);
    TrtllmPromptCacheHitTokens(|engine, series| {
        // Unlike trtllm-serve's other counters, these start at 0.
        for (level, LevelTokens { unnamed, by_tier }) in engine.totals.pools.cached_tokens.by_level.iter().enumerate() {
            let name = if level < MAX_LEVELS { level.to_string() } else { "other".to_owned() };
            let tiers = TierNumbers::NAMES.iter().copied().zip(by_tier.numbers());
            for (tier, tokens) in std::iter::once(("", *unnamed)).chain(tiers) {
                series.with([("cache_level", name.clone()), ("cache_tier", tier.to_owned())], tokens);
            }
        }
    }) = TRTLLM.counter("trtllm_prompt_cache_hit_tokens_total")
        .labels(&["cache_level", "cache_tier", "engine_type", "model_name"])
        .help("Prompt tokens found in the KV cache, by cache level.")
        .origin("trtllm: iterCachedTokensByLevel, all levels from 0; cache_level is the position in the list (other from 64 on), cache_tier is gpu, host, disk or other by kvCacheLevelTiers, empty where the engine does not send it")
        .when(&[When::V2]);
    TrtllmPromptTokens(|engine| engine.requests.prompt_tokens()) = TRTLLM.counter("trtllm_prompt_tokens_total")
        .help("Prompt tokens of finished requests.").origin("trtllm: the larger of trtllm-serve's own counter and the sum of nv_llm_input_token_len; absent without both")
        .when(&[When::Rows, When::Entries, When::ServerPage]);
    TrtllmGenerationTokens(|engine| engine.requests.generation_tokens()) = TRTLLM.counter("trtllm_generation_tokens_total")
        .help("Generated tokens of finished requests.").origin("trtllm: the larger of trtllm-serve's own counter and the sum of nv_llm_output_token_len; absent without both")
        .when(&[When::Rows, When::Entries, When::ServerPage]);
    TrtllmPromptCachedTokens(|engine| engine.requests.cached_tokens()) = TRTLLM.counter("trtllm_prompt_cached_tokens_total")
        .help("Prompt tokens of finished requests that were found in the KV cache.")
        .origin("trtllm: trtllm-serve's own counter; else the sum of nv_trt_llm_request_cached_tokens")
        .when(&[When::Entries, When::ServerPage]);
    TrtllmRequestError(|engine, series| series.by_label("http_code", &engine.requests.server.errors)) = TRTLLM.counter("trtllm_request_error_total").labels(&["engine_type", "http_code", "model_name"])
        .help("Refused requests, by HTTP status.").origin("trtllm: as nv_trt_llm_request_errors_total")
        .when(&[When::ServerPage]);
    TrtllmSpecDraftedByPosition(|engine, series| series.by_label("token_position", &engine.requests.server.drafted_tokens)) = TRTLLM.counter("trtllm_spec_decode_drafted_tokens_total")
        .labels(&["engine_type", "model_name", "token_position"])
        .help("Draft tokens, by position in the draft.")
        .origin("trtllm: trtllm-serve's own counter; at most 64 positions, further ones are other")
        .when(&[When::ServerPage]);
    TrtllmSpecAcceptedByPosition(|engine, series| series.by_label("token_position", &engine.requests.server.accepted_tokens)) = TRTLLM.counter("trtllm_spec_decode_accepted_tokens_total")
        .labels(&["engine_type", "model_name", "token_position"])
        .help("Accepted draft tokens, by position in the draft.")
        .origin("trtllm: trtllm-serve's own counter; at most 64 positions, further ones are other")
        .when(&[When::ServerPage]);
    TrtllmModelConfig(|engine, series| configuration(engine, series, ConfigSection::Model)) = TRTLLM.gauge("trtllm_model_config_info")
        .help("The model's configuration as labels; always 1.")
        .origin("trtllm: trtllm-serve's own labels, at most 32 with 64 characters each").when(&[When::ServerPage]);
    TrtllmParallelConfig(|engine, series| configuration(engine, series, ConfigSection::Parallel)) = TRTLLM.gauge("trtllm_parallel_config_info")
        .help("The parallelism's configuration as labels; always 1.").origin("trtllm: trtllm-serve's own labels, as trtllm_model_config_info")
        .when(&[When::ServerPage]);
    TrtllmSpeculativeConfig(|engine, series| configuration(engine, series, ConfigSection::Speculative)) = TRTLLM.gauge("trtllm_speculative_config_info")
        .help("The configuration of speculative decoding as labels; always 1.")
        .origin("trtllm: trtllm-serve's own labels, as trtllm_model_config_info").when(&[When::ServerPage]);
    TrtllmKvCacheConfig(|engine, series| configuration(engine, series, ConfigSection::KvCache)) = TRTLLM.gauge("trtllm_kv_cache_config_info")
        .help("The KV cache's configuration as labels; always 1.").origin("trtllm: trtllm-serve's own labels, as trtllm_model_config_info")
        .when(&[When::ServerPage]);
    TrtllmTimeToFirstToken(|engine| seen(&engine.times.time_to_first_token)) = TRTLLM.histogram("trtllm_time_to_first_token_seconds")
        .unit("seconds").help("Time to the first token in seconds.").origin("trtllm: as nv_trt_llm_time_to_first_token_seconds")
        .when(&[When::Rows, When::Entries]);
    TrtllmTimePerOutputToken(|engine| engine.requests.time_per_output_token()) = TRTLLM.histogram("trtllm_time_per_output_token_seconds")
        .unit("seconds").help("Time per output token after the first in seconds.")
        .origin("trtllm: as nv_trt_llm_time_per_output_token_seconds")
        .when(&[When::Rows, When::Entries, When::ServerPage]);
    TrtllmE2eLatency(|engine| seen(&engine.times.e2e_latency)) = TRTLLM.histogram("trtllm_e2e_request_latency_seconds").unit("seconds")
        .help("Time from a request's arrival to its last token in seconds.")
        .origin("trtllm: as nv_trt_llm_e2e_request_latency_seconds").when(&[When::Rows, When::Entries]);
    TrtllmRequestQueueTime(|engine| seen(&engine.times.queue_time)) = TRTLLM.histogram("trtllm_request_queue_time_seconds").unit("seconds")
        .help("Time from a request's arrival to its first scheduling in seconds.")
        .origin("trtllm: as nv_trt_llm_request_queue_time_seconds").when(&[When::Rows, When::Entries]);
    TrtllmRequestPrefillTime(|engine| seen(&engine.times.prefill_time)) = TRTLLM.histogram("trtllm_request_prefill_time_seconds")
        .unit("seconds").help("Time from a request's first scheduling to its first token in seconds.")
        .origin("trtllm: as nv_trt_llm_request_prefill_time_seconds").when(&[When::Rows, When::Entries]);
    TrtllmRequestDecodeTime(|engine| seen(&engine.times.decode_time)) = TRTLLM.histogram("trtllm_request_decode_time_seconds")
        .unit("seconds").help("Time from a request's first token to its last in seconds.")
        .origin("trtllm: as nv_trt_llm_request_decode_time_seconds").when(&[When::Rows, When::Entries]);
    TrtllmRequestInferenceTime(|engine| seen(&engine.times.inference_time)) = TRTLLM.histogram("trtllm_request_inference_time_seconds")
        .unit("seconds").help("Time from a request's first scheduling to its last token in seconds.")
        .origin("trtllm: as nv_trt_llm_request_inference_time_seconds").when(&[When::Rows, When::Entries]);
    TrtllmPromptCachedTokensPerRequest(|engine| seen(&engine.times.cached_tokens)) =
        TRTLLM.histogram("trtllm_prompt_cached_tokens_per_request")
        .help("Tokens of a request's prompt that were found in the KV cache.")
        .origin("trtllm: as nv_trt_llm_request_cached_tokens").when(&[When::Entries, When::ServerPage]);
    TrtllmPrefillPerplexity(|engine| seen(&engine.times.perplexity[0])) = TRTLLM.histogram("trtllm_prefill_perplexity")
        .help("Perplexity of a request's prompt, of requests that ask for log probabilities.")
        .origin("trtllm: trtllm-serve's own histogram, bucket by bucket").when(&[When::ServerPage]);
    TrtllmGenerationPerplexity(|engine| seen(&engine.times.perplexity[1])) = TRTLLM.histogram("trtllm_generation_perplexity")
        .help("Perplexity of a request's answer, of requests that ask for log probabilities.")
        .origin("trtllm: trtllm-serve's own histogram, bucket by bucket").when(&[When::ServerPage]);
    TrtllmPrefillBatchTokens(|engine| seen(&engine.totals.row_context_tokens)) = TRTLLM.histogram("trtllm_prefill_batch_tokens")
        .unit("tokens").help("Context tokens of one iteration and rank; those without such tokens are left out.")
        .origin("trtllm: numCtxTokens of each row, so one observation for each attention data parallel rank");
}
