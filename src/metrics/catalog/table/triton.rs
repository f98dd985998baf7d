//! Triton's families: names, labels and help byte for byte; and `spec`'s spellings, which share two of them.

macro_rules! triton {
    ($($before:tt)*) => { engine! { $($before)*
    // Triton's: names, labels and help byte for byte; no label value beyond these, public dashboards sum whole families.
    RequestMetrics = "nv_trt_llm_request_metrics" Gauge Triton ENGINE
        ["request_type": "active" | "max" | "scheduled" | "context" | "waiting"]
        "TRT LLM request metrics"
        from "numActiveRequests, maxNumActiveRequests, numScheduledRequests, numContextRequests; waiting = max(0, active − scheduled)";
    RuntimeMemoryMetrics = "nv_trt_llm_runtime_memory_metrics" Gauge Triton ENGINE
        ["memory_type": "cpu" | "gpu" | "pinned"]
        "TRT LLM runtime memory metrics"
        from "cpuMemUsage, gpuMemUsage, pinnedMemUsage, in bytes";
    KvCacheBlockMetrics = "nv_trt_llm_kv_cache_block_metrics" Gauge Triton ENGINE
        ["kv_cache_block_type": "max" | "free" | "used" | "tokens_per" | "reused" | "fraction"]
        "TRT LLM KV cache block metrics"
        from "kvCacheStats: maxNumBlocks, freeNumBlocks, usedNumBlocks, tokensPerBlock, reusedBlocks (cumulative); fraction = used / max, 0 where max is 0";
    // spec: the founding specification's spellings of the same values, on request; `collect[]=triton` leaves them out.
    SpecKvCacheBlockMetrics = "nv_trt_llm_kv_cache_block_metrics" Gauge Compat ENGINE
        ["kv_cache_block_type": "tokens_per_block" | "used_blocks" | "free_blocks" | "max_blocks" | "cache_block_fraction"]
        "TRT LLM KV cache block metrics"
        from "spec: as tokens_per, used, free, max, fraction";
    InflightBatcherMetrics = "nv_trt_llm_inflight_batcher_metrics" Gauge Triton ENGINE
        ["inflight_batcher_specific_metric": "total_context_tokens" | "generation_requests" | "micro_batch_id" | "paused_requests"]
        "TRT LLM inflight_batcher-specific metrics"
        from "inflightBatchingStats: numCtxTokens, numGenRequests, microBatchId, numPausedRequests";
    V1Metrics = "nv_trt_llm_v1_metrics" Gauge Triton ENGINE
        ["v1_specific_metric": "total_context_tokens" | "total_generation_tokens" | "empty_generation_slots"]
        "TRT LLM v1-specific metrics"
        from "staticBatchingStats: numCtxTokens, numGenTokens, emptyGenSlots; only with static batching";
    GeneralMetrics = "nv_trt_llm_general_metrics" Gauge Triton ENGINE
        ["general_type": "timestamp" | "iteration_counter"]
        "General TRT LLM metrics"
        from "timestamp in microseconds since 1970 UTC (of receipt where the engine sends none), iter";
    DisaggregatedServingMetrics = "nv_trt_llm_disaggregated_serving_metrics" LegacyCounter Triton ENGINE
        ["disaggregated_serving_type": "kv_cache_transfer_ms" | "request_count"]
        "TRT LLM disaggregated serving metrics"
        from "disServingStats.kvCacheTransferMS of completed requests, and their number; without request statistics from RequestPerfMetrics";
    SpecDisaggregatedServingMetrics = "nv_trt_llm_disaggregated_serving_metrics" LegacyCounter Compat ENGINE
        ["disaggregated_serving_type": "kv_cache_transfer_time"]
        "TRT LLM disaggregated serving metrics"
        from "spec: as kv_cache_transfer_ms";
    InputTokenLen = "nv_llm_input_token_len" Histogram Triton ENGINE ["response_metric_type": "total_input_tokens"]
        "TRT LLM response metrics"
        from "contextPrefillPosition of completed requests; without request statistics promptTokens beside RequestPerfMetrics";
    OutputTokenLen = "nv_llm_output_token_len" Histogram Triton ENGINE ["response_metric_type": "total_output_tokens"]
        "TRT LLM response metrics"
        from "numGeneratedTokens of completed requests; without request statistics outputTokens beside RequestPerfMetrics";
    } };
}
