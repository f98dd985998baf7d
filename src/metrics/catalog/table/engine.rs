//! Our own families of an engine.

macro_rules! engine {
    ($($before:tt)*) => { compat! { $($before)*
    // Ours: counters.
    Iterations = "nv_trt_llm_iterations_total" Counter Engine ENGINE
        "Iterations the engine reported, each counted once."
        from "one per distinct iter; the idle flush record and further attention-DP rows are not iterations";
    IterationsLost = "nv_trt_llm_iterations_lost_total" Counter Engine ENGINE
        "Iterations whose record never arrived here, from gaps in the engine's numbering."
        from "gaps in iter or statsSequence, or statsDroppedFrames where that is larger";
    EngineRestarts = "nv_trt_llm_engine_restarts_total" Counter Engine ENGINE
        "Times the engine was seen to have started anew."
        from "iter going backwards, or another process behind the source";
    RequestsStarted = "nv_trt_llm_requests_started_total" Counter Engine ENGINE
        "Requests that became active."
        from "numNewActiveRequests, without the stale value of the idle flush record";
    RequestsCompleted = "nv_trt_llm_requests_completed_total" Counter Engine ENGINE
        "Requests the engine completed, each counted once."
        from "numCompletedRequests, once per iter";
    ContextTokens = "nv_trt_llm_context_tokens_total" Counter Engine ENGINE
        "Tokens computed in context phases (prefill), so without those found in the KV cache."
        from "numCtxTokens";
    GenerationTokens = "nv_trt_llm_generation_tokens_total" Counter Engine ENGINE
        "Tokens decoded in generation phases; a request's first token comes from its context phase and is not included."
        from "numGenRequests × avgNumDecodedTokensPerIter (1 where that is 0), or numGenTokens with static batching";
    KvBlocksAllocated = "nv_trt_llm_kv_cache_blocks_allocated_total" Counter Engine ENGINE
        "KV cache blocks allocated, new or reused."
        from "increases of kvCacheStats.allocTotalBlocks";
    KvBlocksNewlyAllocated = "nv_trt_llm_kv_cache_blocks_newly_allocated_total" Counter Engine ENGINE
        "KV cache blocks allocated that were not reused."
        from "increases of kvCacheStats.allocNewBlocks";
    KvBlocksReused = "nv_trt_llm_kv_cache_blocks_reused_total" Counter Engine ENGINE
        "KV cache blocks found in the cache (hits)."
        from "increases of kvCacheStats.reusedBlocks";
    KvBlocksMissed = "nv_trt_llm_kv_cache_blocks_missed_total" Counter Engine ENGINE
        "KV cache blocks looked up and not found (misses)."
        from "increases of kvCacheStats.missedBlocks";
    CrossKvBlocks = "nv_trt_llm_cross_kv_cache_blocks_total" Counter Engine ENGINE
        ["event": "allocated" | "newly_allocated" | "reused" | "missed"]
        "KV cache blocks of the cross attention of encoder-decoder models, by what happened to them."
        from "increases of crossKvCacheStats: allocTotalBlocks, allocNewBlocks, reusedBlocks, missedBlocks";
    WindowBlocks = "nv_trt_llm_kv_cache_window_blocks_total" Counter Engine ENGINE
        ["event": "allocated" | "newly_allocated" | "reused" | "full_reused" | "partial_reused" | "missed" | "generation_allocated" | "onboarded" | "offloaded" | "copied" | "host_dropped"]
        "KV cache blocks by what iterations did with them, over all attention windows; copied is within the GPU."
        from "kvCacheIterationStats, summed over windows: iterAllocTotalBlocks, iterAllocNewBlocks, iterReusedBlocks, iterFullReusedBlocks, iterPartialReusedBlocks, iterMissedBlocks, iterGenAllocBlocks, iterOnboardBlocks, iterOffloadBlocks, iterIntraDeviceCopyBlocks, iterHostDroppedBlocks";
    WindowBytes = "nv_trt_llm_kv_cache_window_bytes_total" Counter Engine ENGINE
        ["event": "onboarded" | "offloaded" | "copied" | "host_dropped"] unit "bytes"
        "Bytes of the KV cache that iterations moved between host and GPU or within the GPU, or dropped on the host."
        from "kvCacheIterationStats, summed over windows: iterOnboardBytes, iterOffloadBytes, iterIntraDeviceCopyBytes, iterHostDroppedBytes";
    DiskPrefetchedBlocks = "nv_trt_llm_kv_cache_disk_prefetched_blocks_total" Counter Engine ENGINE
        "KV cache blocks fetched from disk ahead of their use."
        from "iterDiskPrefetchBlocks";
    CachedTokens = "nv_trt_llm_cached_tokens_total" Counter Engine ENGINE ["tier": "gpu" | "host" | "disk" | "other"]
        "Prompt tokens found in the KV cache, by the tier they were found in."
        from "iterCachedTokensByLevel, levels named by kvCacheLevelTiers where it is sent";
    KvEvents = "nv_trt_llm_kv_cache_events_total" Counter Engine ENGINE
        ["event": "created" | "stored" | "removed" | "updated" | "other"]
        "Events of the KV cache (kv_cache_events=true, or event_buffer_max_size of a hosted engine)."
        from "/kv_cache_events, getKVCacheEventManager: data.type";
    KvEventsLost = "nv_trt_llm_kv_cache_events_lost_total" Counter Engine ENGINE
        "Events of the KV cache that never arrived here, from gaps in their numbers."
        from "/kv_cache_events: event_id";
    KvBlocksStored = "nv_trt_llm_kv_cache_blocks_stored_total" Counter Engine ENGINE
        ["tier": "gpu" | "host" | "disk" | "other"]
        "KV cache blocks that became reusable, by the tier they are in."
        from "/kv_cache_events: blocks of stored events, by cache_level";
    KvBlocksRemoved = "nv_trt_llm_kv_cache_blocks_removed_total" Counter Engine ENGINE
        ["tier": "gpu" | "host" | "disk" | "other"]
        "KV cache blocks that cannot be reused any more, by the tier they were in; other where they were not seen stored."
        from "/kv_cache_events: block_hashes of removed events";
    KvBlocksUpdated = "nv_trt_llm_kv_cache_blocks_updated_total" Counter Engine ENGINE
        ["tier": "gpu" | "host" | "disk" | "other"]
        "KV cache blocks that changed their tier or priority, by the tier they are in now."
        from "/kv_cache_events: updated events, cache_level";
    SpecDraftTokens = "nv_trt_llm_spec_decode_draft_tokens_total" Counter Engine ENGINE
        "Draft tokens proposed by speculative decoding."
        from "specDecodingStats.numDraftTokens";
    SpecAcceptedTokens = "nv_trt_llm_spec_decode_accepted_tokens_total" Counter Engine ENGINE
        "Draft tokens the model accepted."
        from "specDecodingStats.numAcceptedTokens";

    SpecDraftedRequests = "nv_trt_llm_spec_decode_drafted_requests_total" Counter Engine ENGINE
        "Generation requests that had draft tokens, summed over iterations: accepted tokens per one of them is the gain of a step."
        from "specDecodingStats.numRequestsWithDraftTokens";
    SpecDraftTime = "nv_trt_llm_spec_decode_draft_seconds_total" Counter Engine ENGINE unit "seconds"
        "Time spent drafting in seconds."
        from "specDecodingStats.iterLatencyMS, set where the draft model runs by itself";
    RequestDraftTokens = "nv_trt_llm_request_draft_tokens_total" Counter Engine ENGINE ["outcome": "proposed" | "accepted"]
        "Draft tokens of finished requests: all that were proposed, and those of them that were accepted."
        from "RequestPerfMetrics totalDraftTokens, totalAcceptedDraftTokens";
    RequestsFinished = "nv_trt_llm_requests_finished_total" Counter Engine ENGINE
        ["reason": "stop" | "length" | "timeout" | "cancelled" | "other"]
        "Finished requests by why they ended, where a publisher tells."
        from "finishReason beside RequestPerfMetrics (END_ID and STOP_WORDS are stop)";
    RequestSuspensions = "nv_trt_llm_request_suspensions_total" Counter Engine ENGINE
        "Times a request lost its KV cache to others."
        from "iterSuspendedRequests";
    RequestResumptions = "nv_trt_llm_request_resumptions_total" Counter Engine ENGINE
        "Times a suspended request went on."
        from "iterResumedRequests";
    RequestPauses = "nv_trt_llm_request_pauses_total" Counter Engine ENGINE
        "Times a request was paused for lack of resources; counted where the engine reports its requests."
        from "RequestStats.paused becoming true";

    // Ours: histograms over iterations.
    IterationLatency = "nv_trt_llm_iteration_latency_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of one iteration in seconds; iterations whose reported time contains the wait for work are left out."
        from "iterLatencyMS, under the overlap scheduler hostStepTimeMS; not the iterations after an idle time";
    IterationScheduledRequests = "nv_trt_llm_iteration_scheduled_requests" Histogram Engine ENGINE unit "requests"
        "Requests scheduled in one iteration."
        from "numScheduledRequests; with attention data parallelism of the rank whose row comes first";
    IterationContextTokens = "nv_trt_llm_iteration_context_tokens" Histogram Engine ENGINE unit "tokens"
        "Tokens computed in context phases in one iteration that had any."
        from "numCtxTokens";
    NewRequestQueueTime = "nv_trt_llm_new_request_queue_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time requests waited in the executor's queue in seconds; the mean of those one iteration activated, once per request."
        from "newActiveRequestsQueueLatencyMS / numNewActiveRequests";
    HostStep = "nv_trt_llm_host_step_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of one pass of the host's loop in seconds."
        from "hostStepTimeMS";
    DeviceStep = "nv_trt_llm_device_step_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of the device step before an iteration in seconds: less than the host's step means that the GPU waits."
        from "prevDeviceStepTimeMS";
    GpuForward = "nv_trt_llm_gpu_forward_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of the forward pass on the GPU in seconds."
        from "gpuForwardTimeMS";

    // Ours: histograms over requests: exact from RequestPerfMetrics, else from RequestStats at iteration resolution
    // (nv_trt_llm_request_latency_info tells which).
    TimeToFirstToken = "nv_trt_llm_time_to_first_token_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's arrival to its first token in seconds."
        from "RequestPerfMetrics firstTokenTime − arrivalTime; else stage changes in RequestStats";
    ServerTimeToFirstToken = "nv_trt_llm_server_time_to_first_token_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's arrival at the HTTP server to its first token leaving it, in seconds."
        from "RequestPerfMetrics server_first_token_time − server_arrival_time";
    TimePerOutputToken = "nv_trt_llm_time_per_output_token_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's first token to its last, per token after the first, in seconds."
        from "(last − first token) / (tokens − 1), where the number of tokens is known: outputTokens, else numGeneratedTokens";
    E2eLatency = "nv_trt_llm_e2e_request_latency_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's arrival to its last token in seconds."
        from "RequestPerfMetrics lastTokenTime − arrivalTime; else stage changes in RequestStats";
    RequestQueueTime = "nv_trt_llm_request_queue_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's arrival to its first scheduling in seconds."
        from "RequestPerfMetrics firstScheduledTime − arrivalTime; else stage changes in RequestStats";
    RequestPrefillTime = "nv_trt_llm_request_prefill_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's first scheduling to its first token in seconds."
        from "RequestPerfMetrics firstTokenTime − firstScheduledTime; else stage changes in RequestStats";
    RequestDecodeTime = "nv_trt_llm_request_decode_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's first token to its last in seconds."
        from "RequestPerfMetrics lastTokenTime − firstTokenTime; else stage changes in RequestStats";
    RequestInferenceTime = "nv_trt_llm_request_inference_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's first scheduling to its last token in seconds."
        from "RequestPerfMetrics lastTokenTime − firstScheduledTime; else stage changes in RequestStats";
    KvCacheTransferTime = "nv_trt_llm_kv_cache_transfer_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of a request's KV cache transfer between instances in seconds."
        from "RequestPerfMetrics kvCacheTransferEnd − kvCacheTransferStart; else disServingStats.kvCacheTransferMS";
    KvCacheTransferBytes = "nv_trt_llm_kv_cache_transfer_bytes" Histogram Engine ENGINE unit "bytes"
        "Size of a request's KV cache transfer in bytes."
        from "RequestPerfMetrics kvCacheSize; else disServingStats.kvCacheSize";
    RequestKvHitRatio = "nv_trt_llm_request_kv_cache_hit_ratio" Histogram Engine ENGINE unit "ratio"
        "Share (0-1) of a request's KV cache blocks that were found in the cache."
        from "RequestPerfMetrics numReusedBlocks / (numReusedBlocks + numMissedBlocks); else reusedBlocksPerRequest, missedBlocksPerRequest";
    RequestKvBlocks = "nv_trt_llm_request_kv_cache_blocks" Histogram Engine ENGINE unit "blocks"
        "KV cache blocks allocated to a request over its life."
        from "RequestPerfMetrics numTotalAllocatedBlocks; else allocTotalBlocksPerRequest";
    RequestKvNewBlocks = "nv_trt_llm_request_kv_cache_new_blocks" Histogram Engine ENGINE unit "blocks"
        "KV cache blocks allocated to a request over its life that were not reused."
        from "RequestPerfMetrics numNewAllocatedBlocks; else allocNewBlocksPerRequest";
    RequestIterations = "nv_trt_llm_request_iterations" Histogram Engine ENGINE unit "iterations"
        "Iterations from a request's first to its last."
        from "RequestPerfMetrics lastIter − firstIter + 1";
    RequestDecodedTokens = "nv_trt_llm_request_decoded_tokens_per_iteration" Histogram Engine ENGINE
        "Tokens a request decoded in one of its iterations, on average over its life."
        from "RequestStats.avgNumDecodedTokensPerIter of completed requests";
    RequestSpecAcceptance = "nv_trt_llm_request_spec_decode_acceptance_ratio" Histogram Engine ENGINE unit "ratio"
        "Share (0-1) of a request's draft tokens that were accepted."
        from "RequestPerfMetrics totalAcceptedDraftTokens / totalDraftTokens, or acceptanceRate where they are not sent";

    // Ours: gauges.
    QueuedRequests = "nv_trt_llm_queued_requests" Gauge Engine ENGINE unit "requests"
        "Requests in the executor's own queue, not yet active (Triton's waiting does not contain them)."
        from "numQueuedRequests";
    QueuedRequestsByPhase = "nv_trt_llm_queued_requests_by_phase" Gauge Engine ENGINE ["phase": "context" | "generation"]
        "Queued requests by the phase they wait for; those that wait for generation come from another instance."
        from "inflightBatchingStats: numQueuedContextRequests, numQueuedGenRequests";
    QueuedContextTokens = "nv_trt_llm_queued_context_tokens" Gauge Engine ENGINE unit "tokens"
        "Prompt tokens of the queued requests."
        from "inflightBatchingStats: numQueuedCtxTokens";
    RequestKvTokens = "nv_trt_llm_request_kv_tokens" Gauge Engine ENGINE
        ["phase": "context" | "generation" | "paused" | "queued_generation"] unit "tokens"
        "Tokens that requests hold in the KV cache, by where the requests are."
        from "inflightBatchingStats: numCtxKvTokens, numGenKvTokens, numPausedKvTokens, numQueuedGenKvTokens";
    RequestsByStage = "nv_trt_llm_requests_by_stage" Gauge Engine ENGINE
        ["stage": "queued" | "encoder" | "context" | "generation"]
        "Requests by the stage they are in, where the engine reports its requests."
        from "RequestStats.stage in the last iteration";
    RequestLatencyInfo = "nv_trt_llm_request_latency_info" Gauge Engine ENGINE
        ["from": "none" | "request_stats" | "perf_metrics"]
        "What feeds the request latency histograms: perf_metrics are exact, request_stats right to one iteration."
        from "the kind of request statistics the source delivers";
    BatchSizeLimit = "nv_trt_llm_batch_size_limit" Gauge Engine ENGINE ["limit": "static" | "tuner" | "runtime"]
        "Most requests in a batch: as built, as the tuner recommends, as in force."
        from "maxBatchSizeStatic, maxBatchSizeTunerRecommended, maxBatchSizeRuntime; absent where 0";
    TokenLimit = "nv_trt_llm_token_limit" Gauge Engine ENGINE ["limit": "static" | "tuner" | "runtime"]
        "Most tokens in a batch: as built, as the tuner recommends, as in force."
        from "maxNumTokensStatic, maxNumTokensTunerRecommended, maxNumTokensRuntime; absent where 0";
    KvCacheHitRatio = "nv_trt_llm_kv_cache_hit_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of looked-up KV cache blocks found, since this exporter met the engine; for a recent value use the rates of the block counters."
        from "increases of reusedBlocks / (reusedBlocks + missedBlocks)";
    KvReuseEfficiency = "nv_trt_llm_kv_cache_reuse_efficiency_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of allocated KV cache blocks that were reused, since this exporter met the engine."
        from "increases of reusedBlocks / allocTotalBlocks";
    KvIterationHitRatio = "nv_trt_llm_kv_cache_iteration_hit_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of the KV cache blocks looked up in the last iteration that were found."
        from "kvCacheIterationStats: iterReusedBlocks / (iterReusedBlocks + iterMissedBlocks) over all windows";
    PrimaryPoolBlocks = "nv_trt_llm_kv_cache_primary_pool_blocks" Gauge Engine ENGINE
        ["state": "max" | "free" | "used" | "evictable" | "peak_free" | "peak_used" | "peak_evictable"] unit "blocks"
        "KV cache blocks on the GPU, over all attention windows; peaks are since the record before."
        from "kvCacheIterationStats: primaryMaxNumBlocks, primaryFreeNumBlocks, primaryUsedNumBlocks, primaryEvictableNumBlocks, primaryPeakFreeNumBlocks, primaryPeakUsedNumBlocks, primaryPeakEvictableNumBlocks";
    SecondaryPoolBlocks = "nv_trt_llm_kv_cache_secondary_pool_blocks" Gauge Engine ENGINE
        ["state": "max" | "free" | "used" | "evictable" | "peak_free" | "peak_used" | "peak_evictable"] unit "blocks"
        "KV cache blocks on the host, over all attention windows; peaks are since the record before."
        from "kvCacheIterationStats: secondaryMaxNumBlocks, secondaryFreeNumBlocks, secondaryUsedNumBlocks, secondaryEvictableNumBlocks, secondaryPeakFreeNumBlocks, secondaryPeakUsedNumBlocks, secondaryPeakEvictableNumBlocks";
    KvTierBlocks = "nv_trt_llm_kv_cache_tier_blocks" Gauge Engine ENGINE ["tier": "gpu" | "host" | "disk" | "other"] unit "blocks"
        "KV cache blocks there are, by tier, as the engine said when it made them."
        from "/kv_cache_events: num_blocks_per_cache_level of the last created event";
    KvCacheAvailableTokens = "nv_trt_llm_kv_cache_available_tokens" Gauge Engine ENGINE unit "tokens"
        "Tokens the free KV cache blocks can hold."
        from "freeNumBlocks × tokensPerBlock";
    KvCachePressureRatio = "nv_trt_llm_kv_cache_pressure_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of KV cache blocks that are not free."
        from "1 − freeNumBlocks / maxNumBlocks";
    BatchOccupancyRatio = "nv_trt_llm_batch_occupancy_ratio" Gauge Engine ENGINE unit "ratio"
        "Requests in context and generation phase as a share (0-1) of the most that may be active."
        from "(numContextRequests + numGenRequests) / maxNumActiveRequests";
    BatchEfficiencyRatio = "nv_trt_llm_batch_efficiency_ratio" Gauge Engine ENGINE unit "ratio"
        "Active requests as a share of the batch size in force; above 1 some of them wait."
        from "numActiveRequests / maxBatchSizeRuntime";
    ContextRequestRatio = "nv_trt_llm_context_request_ratio" Gauge Engine ENGINE unit "ratio"
        "Requests in context phase as a share (0-1) of those in the batch."
        from "numContextRequests / (numContextRequests + numGenRequests)";
    StaticBatchEfficiencyRatio = "nv_trt_llm_static_batch_efficiency_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of a static batch's generation slots that were used."
        from "1 − emptyGenSlots / (numGenTokens + emptyGenSlots)";
    DecodedTokensPerIteration = "nv_trt_llm_decoded_tokens_per_iteration" Gauge Engine ENGINE
        "Tokens a generation request decodes in one iteration, on average over the batch."
        from "avgNumDecodedTokensPerIter; absent where 0";
    SpecAcceptanceLength = "nv_trt_llm_spec_decode_acceptance_length" Gauge Engine ENGINE
        "Tokens per decoding step with speculative decoding, on average over the last iteration."
        from "specDecodingStats.acceptanceLength";
    SpecAcceptanceRatio = "nv_trt_llm_spec_decode_acceptance_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of the last iteration's draft tokens that were accepted."
        from "numAcceptedTokens / numDraftTokens";
    SpecDraftOverheadRatio = "nv_trt_llm_spec_decode_draft_overhead_ratio" Gauge Engine ENGINE unit "ratio"
        "Time spent drafting as a share (0-1) of the iteration."
        from "specDecodingStats.draftOverhead";
    CrossKvCacheBlockMetrics = "nv_trt_llm_cross_kv_cache_block_metrics" Gauge Engine ENGINE
        ["kv_cache_block_type": "max" | "free" | "used" | "tokens_per" | "reused" | "fraction"]
        "KV cache blocks of the cross attention of encoder-decoder models."
        from "crossKvCacheStats, as nv_trt_llm_kv_cache_block_metrics";
    AttentionDpRanks = "nv_trt_llm_attention_dp_ranks" Gauge Engine ENGINE
        "Ranks that share the requests of one iteration (attention data parallelism)."
        from "rows of one iter by attentionDpRank";
    SchedulerInfo = "nv_trt_llm_scheduler_info" Gauge Engine ENGINE ["mode": "overlap" | "non_overlap" | "other"]
        "How the PyTorch engine interleaves host and device: 1 for the mode it is in."
        from "schedulerMode";
    LastIterationTimestamp = "nv_trt_llm_last_iteration_timestamp_seconds" Gauge Engine ENGINE unit "seconds"
        "When the last iteration ended, in seconds since 1970 UTC."
        from "timestamp, or the time of receipt where the engine sends none";
    EngineState = "nv_trt_llm_engine_state" Gauge Engine ENGINE
        ["state": "starting" | "busy" | "idle" | "stalled" | "unreachable"]
        "What the engine is doing: 1 for the state it is in."
        from "polls, records and --stale-after";
    EngineInfo = "nv_trt_llm_engine_info" Gauge Engine ENGINE_INFO
        "Which engine this is: kind of source, backend, engine version, and whether it is simulated."
        from "the source";

    // Ours: a benchmark's numbers, from a trtllm-bench report.
    BenchTokenRate = "nv_trt_llm_bench_output_tokens_per_second" Gauge Engine ENGINE
        "Output tokens per second of the benchmark."
        from "report.json: performance.token_throughput_per_sec";
    BenchRequestRate = "nv_trt_llm_bench_requests_per_second" Gauge Engine ENGINE
        "Requests per second of the benchmark."
        from "report.json: performance.request_throughput_per_sec";
    BenchDuration = "nv_trt_llm_bench_duration_seconds" Gauge Engine ENGINE unit "seconds"
        "Time the benchmark took in seconds."
        from "report.json: performance.total_latency_ms";
    BenchTimeToFirstToken = "nv_trt_llm_bench_time_to_first_token_seconds" Gauge Engine ENGINE
        ["statistic": "p50" | "p90" | "p95" | "p99" | "min" | "max" | "avg"] unit "seconds"
        "Time to the first token in the benchmark in seconds."
        from "report.json: latency_stats.ttft_ms";
    BenchTimePerOutputToken = "nv_trt_llm_bench_time_per_output_token_seconds" Gauge Engine ENGINE
        ["statistic": "p50" | "p90" | "p95" | "p99" | "min" | "max" | "avg"] unit "seconds"
        "Time per token after the first in the benchmark in seconds."
        from "report.json: latency_stats.tbt_ms";
    BenchE2eLatency = "nv_trt_llm_bench_e2e_request_latency_seconds" Gauge Engine ENGINE
        ["statistic": "p50" | "p90" | "p95" | "p99" | "min" | "max" | "avg"] unit "seconds"
        "Time of a request from its arrival to its last token in the benchmark in seconds."
        from "report.json: latency_stats.e2e_ms";
    BenchInputTokens = "nv_trt_llm_bench_input_tokens" Gauge Engine ENGINE
        ["statistic": "p50" | "p90" | "p95" | "p99" | "min" | "max" | "avg"] unit "tokens"
        "Prompt tokens of the benchmark's requests."
        from "report.json: input_output_stats.input_tokens";
    BenchOutputTokens = "nv_trt_llm_bench_output_tokens" Gauge Engine ENGINE
        ["statistic": "p50" | "p90" | "p95" | "p99" | "min" | "max" | "avg"] unit "tokens"
        "Generated tokens of the benchmark's requests."
        from "report.json: input_output_stats.output_tokens";
    BenchConfig = "nv_trt_llm_bench_config" Gauge Engine ENGINE
        ["setting": "num_gpus" | "tp_size" | "pp_size" | "max_batch_size" | "max_num_tokens" | "kv_memory_ratio"]
        "What the benchmark was run with."
        from "report.json: metadata.num_gpus; configuration: tp_size, pp_size, max_batch_size, max_num_tokens, kv_memory_percentage";
    BenchInfo = "nv_trt_llm_bench_info" Gauge Engine BENCH_INFO
        "Which benchmark this is: model, GPU, scheduling policy and time as the report says them."
        from "report.json: metadata.model, gpu, timestamp; configuration.scheduler_policy";
    } };
}
