//! Other exporters' name sets, each on request.

macro_rules! compat {
    ($($before:tt)*) => { dcgm! { $($before)*
    // Other name sets, each on request (--metrics.compat) and each computed from the meaning its own exporter gives it.
    // trtllm: trtllm-serve's own families, for what routes or draws by them.
    TrtllmNumRequestsRunning = "trtllm_num_requests_running" Gauge Compat TRTLLM "Active requests."
        from "trtllm: numActiveRequests";
    TrtllmNumRequestsWaiting = "trtllm_num_requests_waiting" Gauge Compat TRTLLM "Requests in the executor's queue."
        from "trtllm: numQueuedRequests";
    TrtllmMaxNumActiveRequests = "trtllm_max_num_active_requests" Gauge Compat TRTLLM "Most requests that may be active."
        from "trtllm: maxNumActiveRequests";
    TrtllmNumContextRequests = "trtllm_num_context_requests" Gauge Compat TRTLLM "Requests in context phase."
        from "trtllm: numContextRequests";
    TrtllmNumGenerationRequests = "trtllm_num_generation_requests" Gauge Compat TRTLLM "Requests in generation phase."
        from "trtllm: numGenRequests";
    TrtllmNumPausedRequests = "trtllm_num_paused_requests" Gauge Compat TRTLLM "Paused requests."
        from "trtllm: numPausedRequests";
    TrtllmNumScheduledRequests = "trtllm_num_scheduled_requests" Gauge Compat TRTLLM "Requests scheduled in the last iteration."
        from "trtllm: numScheduledRequests";
    TrtllmTotalContextTokens = "trtllm_total_context_tokens" Gauge Compat TRTLLM "Context tokens of the last iteration."
        from "trtllm: numCtxTokens";
    TrtllmAvgDecodedTokensPerIter = "trtllm_avg_decoded_tokens_per_iter" Gauge Compat TRTLLM "Tokens decoded per generation request and iteration."
        from "trtllm: avgNumDecodedTokensPerIter";
    TrtllmPrefillBatchOccupancy = "trtllm_prefill_batch_occupancy" Gauge Compat TRTLLM
        "Requests in context phase as a share (0-1) of the most that may be active."
        from "trtllm: numContextRequests / maxNumActiveRequests";
    TrtllmKvCacheUtilization = "trtllm_kv_cache_utilization" Gauge Compat TRTLLM "Share (0-1) of KV cache blocks in use."
        from "trtllm: usedNumBlocks / maxNumBlocks";
    TrtllmKvCacheHitRate = "trtllm_kv_cache_hit_rate" Gauge Compat TRTLLM "Share (0-1) of KV cache blocks found, since the engine's start."
        from "trtllm: cacheHitRate";
    TrtllmKvCacheMaxBlocks = "trtllm_kv_cache_max_blocks" Gauge Compat TRTLLM "KV cache blocks there are."
        from "trtllm: maxNumBlocks";
    TrtllmKvCacheFreeBlocks = "trtllm_kv_cache_free_blocks" Gauge Compat TRTLLM "Free KV cache blocks."
        from "trtllm: freeNumBlocks";
    TrtllmKvCacheUsedBlocks = "trtllm_kv_cache_used_blocks" Gauge Compat TRTLLM "Used KV cache blocks."
        from "trtllm: usedNumBlocks";
    TrtllmKvCacheTokensPerBlock = "trtllm_kv_cache_tokens_per_block" Gauge Compat TRTLLM "Tokens a KV cache block holds."
        from "trtllm: tokensPerBlock";
    TrtllmGpuMemoryUsage = "trtllm_gpu_memory_usage_bytes" Gauge Compat TRTLLM "GPU memory in use in bytes."
        from "trtllm: gpuMemUsage";
    TrtllmCpuMemoryUsage = "trtllm_cpu_memory_usage_bytes" Gauge Compat TRTLLM "CPU memory in use in bytes."
        from "trtllm: cpuMemUsage";
    TrtllmPinnedMemoryUsage = "trtllm_pinned_memory_usage_bytes" Gauge Compat TRTLLM "Pinned memory in use in bytes."
        from "trtllm: pinnedMemUsage";
    TrtllmMaxBatchSizeStatic = "trtllm_max_batch_size_static" Gauge Compat TRTLLM "Batch size the engine was built for."
        from "trtllm: maxBatchSizeStatic";
    TrtllmMaxBatchSizeRuntime = "trtllm_max_batch_size_runtime" Gauge Compat TRTLLM "Batch size in force."
        from "trtllm: maxBatchSizeRuntime";
    TrtllmMaxNumTokensRuntime = "trtllm_max_num_tokens_runtime" Gauge Compat TRTLLM "Most tokens in a batch."
        from "trtllm: maxNumTokensRuntime";
    TrtllmIterationLatency = "trtllm_iteration_latency_seconds" Gauge Compat TRTLLM "Time of the last iteration in seconds."
        from "trtllm: iterLatencyMS of the last record, as reported";
    TrtllmSpecAcceptanceLength = "trtllm_spec_decode_acceptance_length" Gauge Compat TRTLLM "Tokens per decoding step."
        from "trtllm: acceptanceLength";
    TrtllmSpecDraftOverhead = "trtllm_spec_decode_draft_overhead" Gauge Compat TRTLLM "Time spent drafting as a share (0-1) of the iteration."
        from "trtllm: draftOverhead";
    TrtllmNumRequestsCompleted = "trtllm_num_requests_completed_total" Counter Compat TRTLLM "Completed requests."
        from "trtllm: numCompletedRequests";
    TrtllmKvCacheReusedBlocks = "trtllm_kv_cache_reused_blocks_total" Counter Compat TRTLLM "KV cache blocks found in the cache."
        from "trtllm: increases of reusedBlocks";
    TrtllmKvCacheMissedBlocks = "trtllm_kv_cache_missed_blocks_total" Counter Compat TRTLLM "KV cache blocks not found in the cache."
        from "trtllm: increases of missedBlocks";
    TrtllmSpecDraftTokens = "trtllm_spec_decode_num_draft_tokens_total" Counter Compat TRTLLM "Draft tokens."
        from "trtllm: numDraftTokens";
    TrtllmSpecAcceptedTokens = "trtllm_spec_decode_num_accepted_tokens_total" Counter Compat TRTLLM "Accepted draft tokens."
        from "trtllm: numAcceptedTokens";
    TrtllmRequestSuccess = "trtllm_request_success_total" Counter Compat TRTLLM
        ["finished_reason": "stop" | "length" | "timeout" | "cancelled"]
        "Finished requests by reason."
        from "trtllm: finishReason beside RequestPerfMetrics";
    TrtllmKvHostUtilization = "trtllm_kv_cache_host_utilization" Gauge Compat TRTLLM "Share (0-1) of KV cache blocks on the host in use."
        from "trtllm: secondaryUsedNumBlocks / secondaryMaxNumBlocks over all windows";
    TrtllmKvIterReuseRate = "trtllm_kv_cache_iter_reuse_rate" Gauge Compat TRTLLM "Share (0-1) of the last iteration's looked-up KV cache blocks that were found."
        from "trtllm: iterReusedBlocks / (iterReusedBlocks + iterMissedBlocks), unset where both are 0";
    TrtllmKvIterReused = "trtllm_kv_cache_iter_reused_blocks_total" Counter Compat TRTLLM "KV cache blocks reused."
        from "trtllm: iterReusedBlocks";
    TrtllmKvIterFullReused = "trtllm_kv_cache_iter_full_reused_blocks_total" Counter Compat TRTLLM "KV cache blocks reused whole."
        from "trtllm: iterFullReusedBlocks";
    TrtllmKvIterPartialReused = "trtllm_kv_cache_iter_partial_reused_blocks_total" Counter Compat TRTLLM "KV cache blocks reused in part."
        from "trtllm: iterPartialReusedBlocks";
    TrtllmKvIterMissed = "trtllm_kv_cache_iter_missed_blocks_total" Counter Compat TRTLLM "KV cache blocks looked up and not found."
        from "trtllm: iterMissedBlocks";
    TrtllmKvGenAlloc = "trtllm_kv_cache_gen_alloc_blocks_total" Counter Compat TRTLLM "KV cache blocks allocated in generation phases."
        from "trtllm: iterGenAllocBlocks";
    TrtllmKvOnboardBytes = "trtllm_kv_cache_onboard_bytes_total" Counter Compat TRTLLM "Bytes of KV cache brought from the host to the GPU."
        from "trtllm: iterOnboardBytes";
    TrtllmKvOffloadBytes = "trtllm_kv_cache_offload_bytes_total" Counter Compat TRTLLM "Bytes of KV cache brought from the GPU to the host."
        from "trtllm: iterOffloadBytes";
    TrtllmKvCopyBytes = "trtllm_kv_cache_intra_device_copy_bytes_total" Counter Compat TRTLLM "Bytes of KV cache copied within the GPU."
        from "trtllm: iterIntraDeviceCopyBytes";
    TrtllmPromptTokens = "trtllm_prompt_tokens_total" Counter Compat TRTLLM "Prompt tokens of finished requests."
        from "trtllm: sum of nv_llm_input_token_len";
    TrtllmGenerationTokens = "trtllm_generation_tokens_total" Counter Compat TRTLLM "Generated tokens of finished requests."
        from "trtllm: sum of nv_llm_output_token_len";
    TrtllmTimeToFirstToken = "trtllm_time_to_first_token_seconds" Histogram Compat TRTLLM unit "seconds" "Time to the first token in seconds."
        from "trtllm: as nv_trt_llm_time_to_first_token_seconds";
    TrtllmTimePerOutputToken = "trtllm_time_per_output_token_seconds" Histogram Compat TRTLLM unit "seconds" "Time per token after the first in seconds."
        from "trtllm: as nv_trt_llm_time_per_output_token_seconds";
    TrtllmE2eLatency = "trtllm_e2e_request_latency_seconds" Histogram Compat TRTLLM unit "seconds"
        "Time of a request from its arrival to its last token in seconds."
        from "trtllm: as nv_trt_llm_e2e_request_latency_seconds";
    TrtllmRequestQueueTime = "trtllm_request_queue_time_seconds" Histogram Compat TRTLLM unit "seconds"
        "Time of a request from its arrival to its first scheduling in seconds."
        from "trtllm: as nv_trt_llm_request_queue_time_seconds";
    TrtllmRequestPrefillTime = "trtllm_request_prefill_time_seconds" Histogram Compat TRTLLM unit "seconds"
        "Time of a request from its first scheduling to its first token in seconds."
        from "trtllm: as nv_trt_llm_request_prefill_time_seconds";
    TrtllmRequestDecodeTime = "trtllm_request_decode_time_seconds" Histogram Compat TRTLLM unit "seconds"
        "Time of a request from its first token to its last in seconds."
        from "trtllm: as nv_trt_llm_request_decode_time_seconds";
    TrtllmRequestInferenceTime = "trtllm_request_inference_time_seconds" Histogram Compat TRTLLM unit "seconds"
        "Time of a request from its first scheduling to its last token in seconds."
        from "trtllm: as nv_trt_llm_request_inference_time_seconds";
    TrtllmPrefillBatchTokens = "trtllm_prefill_batch_tokens" Histogram Compat TRTLLM unit "tokens" "Context tokens of iterations that had any."
        from "trtllm: numCtxTokens";

    // triton-core: Triton's request counters, so that autoscaling rules written for them work.
    InferenceRequestSuccess = "nv_inference_request_success" LegacyCounter Compat ENGINE "Number of successful inference requests, all batch sizes"
        from "triton-core: completed requests";
    InferenceRequestFailure = "nv_inference_request_failure" LegacyCounter Compat ENGINE
        ["reason": "BACKEND" | "CANCELED" | "OTHER" | "REJECTED"]
        "Number of failed inference requests, all batch sizes"
        from "triton-core: requests whose finishReason was told: cancelled is CANCELED, timeout is OTHER; the engine tells of no other failures";
    InferenceCount = "nv_inference_count" LegacyCounter Compat ENGINE "Number of inferences performed (does not include cached requests)"
        from "triton-core: completed requests";
    InferenceExecCount = "nv_inference_exec_count" LegacyCounter Compat ENGINE "Number of model executions performed (does not include cached requests)"
        from "triton-core: iterations";
    InferenceRequestDuration = "nv_inference_request_duration_us" LegacyCounter Compat ENGINE
        "Cumulative inference request duration in microseconds (includes cached requests)"
        from "triton-core: sum of end-to-end request latencies";
    InferenceQueueDuration = "nv_inference_queue_duration_us" LegacyCounter Compat ENGINE
        "Cumulative inference queuing duration in microseconds (includes cached requests)"
        from "triton-core: sum of request queue times; durations are absent where requests' times are not told";
    InferenceComputeInput = "nv_inference_compute_input_duration_us" LegacyCounter Compat ENGINE
        "Cumulative compute input duration in microseconds (does not include cached requests)"
        from "triton-core: 0: an executor's request is in its queue until its inference begins";
    InferenceComputeInfer = "nv_inference_compute_infer_duration_us" LegacyCounter Compat ENGINE
        "Cumulative compute inference duration in microseconds (does not include cached requests)"
        from "triton-core: sum of request inference times";
    InferenceComputeOutput = "nv_inference_compute_output_duration_us" LegacyCounter Compat ENGINE
        "Cumulative inference compute output duration in microseconds (does not include cached requests)"
        from "triton-core: 0: queue and inference make up the whole of an executor's request";
    InferencePending = "nv_inference_pending_request_count" Gauge Compat ENGINE "Instantaneous number of pending requests awaiting execution per-model."
        from "triton-core: numQueuedRequests + max(0, active − scheduled)";
    } };
}
