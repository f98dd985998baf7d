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
    SpecDraftTokens = "nv_trt_llm_spec_decode_draft_tokens_total" Counter Engine ENGINE
        "Draft tokens proposed by speculative decoding."
        from "specDecodingStats.numDraftTokens";
    SpecAcceptedTokens = "nv_trt_llm_spec_decode_accepted_tokens_total" Counter Engine ENGINE
        "Draft tokens the model accepted."
        from "specDecodingStats.numAcceptedTokens";

    RequestPauses = "nv_trt_llm_request_pauses_total" Counter Engine ENGINE
        "Times a request was paused for lack of resources; counted where the engine reports its requests."
        from "RequestStats.paused becoming true";

    // Ours: histograms over iterations.
    IterationLatency = "nv_trt_llm_iteration_latency_seconds" Histogram Engine ENGINE unit "seconds"
        "Time of one iteration in seconds; iterations whose reported time contains the wait for work are left out."
        from "iterLatencyMS, under the overlap scheduler hostStepTimeMS";
    IterationScheduledRequests = "nv_trt_llm_iteration_scheduled_requests" Histogram Engine ENGINE unit "requests"
        "Requests scheduled in one iteration."
        from "numScheduledRequests";
    IterationContextTokens = "nv_trt_llm_iteration_context_tokens" Histogram Engine ENGINE unit "tokens"
        "Tokens computed in context phases in one iteration that had any."
        from "numCtxTokens";
    NewRequestQueueTime = "nv_trt_llm_new_request_queue_time_seconds" Histogram Engine ENGINE unit "seconds"
        "Time requests waited in the executor's queue in seconds; the mean of those one iteration activated, once per request."
        from "newActiveRequestsQueueLatencyMS / numNewActiveRequests";

    // Ours: histograms over requests: exact from RequestPerfMetrics, else from RequestStats at iteration resolution
    // (nv_trt_llm_request_latency_info tells which).
    TimeToFirstToken = "nv_trt_llm_time_to_first_token_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's arrival to its first token in seconds."
        from "RequestPerfMetrics firstTokenTime − arrivalTime; else stage changes in RequestStats";
    TimePerOutputToken = "nv_trt_llm_time_per_output_token_seconds" Histogram Engine ENGINE unit "seconds"
        "Time from a request's first token to its last, per token after the first, in seconds."
        from "(last − first token) / (numGeneratedTokens − 1), where the number of tokens is known";
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
        from "RequestPerfMetrics kvCacheTransferEnd − kvCacheTransferStart";
    KvCacheTransferBytes = "nv_trt_llm_kv_cache_transfer_bytes" Histogram Engine ENGINE unit "bytes"
        "Size of a request's KV cache transfer in bytes."
        from "RequestPerfMetrics kvCacheSize";
    RequestKvHitRatio = "nv_trt_llm_request_kv_cache_hit_ratio" Histogram Engine ENGINE unit "ratio"
        "Share (0-1) of a request's KV cache blocks that were found in the cache."
        from "RequestPerfMetrics numReusedBlocks / (numReusedBlocks + numMissedBlocks)";

    // Ours: gauges.
    QueuedRequests = "nv_trt_llm_queued_requests" Gauge Engine ENGINE unit "requests"
        "Requests in the executor's own queue, not yet active (Triton's waiting does not contain them)."
        from "numQueuedRequests";
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
    KvCacheAvailableTokens = "nv_trt_llm_kv_cache_available_tokens" Gauge Engine ENGINE unit "tokens"
        "Tokens the free KV cache blocks can hold."
        from "freeNumBlocks × tokensPerBlock";
    KvCachePressureRatio = "nv_trt_llm_kv_cache_pressure_ratio" Gauge Engine ENGINE unit "ratio"
        "Share (0-1) of KV cache blocks that are not free."
        from "1 − freeNumBlocks / maxNumBlocks";
    BatchOccupancyRatio = "nv_trt_llm_batch_occupancy_ratio" Gauge Engine ENGINE unit "ratio"
        "Requests in context and generation phase as a share (0-1) of the most that may be active."
        from "(numContextRequests + numGenRequests) / maxNumActiveRequests";
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
    } };
}
