//! The table itself: one entry a family, in page order. A new metric is a new entry here.

use super::{Group, Kind, Metric, Variant};

const ENGINE: &[&str] = &["model", "version"];
const SOURCE: &[&str] = &["model", "source", "version"];
const GPU: &[&str] = &["gpu_uuid"];
const TRTLLM: &[&str] = &["engine_type", "model_name"];
const DCGM: &[&str] = &["Hostname", "UUID", "device", "gpu", "hostname", "modelName", "pci_bus_id"];
const NONE: &[&str] = &[];
const ENGINE_INFO: &[&str] = &["backend", "engine_version", "model", "simulated", "source", "version"];
const GPU_INFO: &[&str] = &["driver_version", "gpu_uuid", "index", "name", "pci_bus_id"];
const BUILD: &[&str] = &["rustversion", "version"];
const CALL: &[&str] = &["call", "error"];

macro_rules! catalog {
    ($($id:ident = $name:literal $kind:ident $group:ident $labels:ident $([$label:literal: $($value:literal)|+])? $(unit $unit:literal)?
        $help:literal from $origin:literal;)*) => {
        /// Index of a family in [`CATALOG`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Id { $($id),* }

        /// All families in page order.
        pub static CATALOG: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            group: Group::$group,
            unit: catalog!(@optional $($unit)?),
            labels: $labels,
            variant: catalog!(@variant $($label: $($value)|+)?),
            help: $help,
            origin: $origin,
        }),*];
    };
    (@optional) => { None };
    (@optional $value:literal) => { Some($value) };
    (@variant) => { None };
    (@variant $label:literal: $($value:literal)|+) => { Some(Variant { label: $label, values: &[$($value),+] }) };
}

catalog! {
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
        from "disServingStats.kvCacheTransferMS of completed requests, and their number";
    SpecDisaggregatedServingMetrics = "nv_trt_llm_disaggregated_serving_metrics" LegacyCounter Compat ENGINE
        ["disaggregated_serving_type": "kv_cache_transfer_time"]
        "TRT LLM disaggregated serving metrics"
        from "spec: as kv_cache_transfer_ms";
    InputTokenLen = "nv_llm_input_token_len" Histogram Triton ENGINE ["response_metric_type": "total_input_tokens"]
        "TRT LLM response metrics"
        from "contextPrefillPosition of completed requests";
    OutputTokenLen = "nv_llm_output_token_len" Histogram Triton ENGINE ["response_metric_type": "total_output_tokens"]
        "TRT LLM response metrics"
        from "numGeneratedTokens of completed requests";

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
    TrtllmPromptTokens = "trtllm_prompt_tokens_total" Counter Compat TRTLLM "Prompt tokens of finished requests."
        from "trtllm: contextPrefillPosition of completed requests";
    TrtllmGenerationTokens = "trtllm_generation_tokens_total" Counter Compat TRTLLM "Generated tokens of finished requests."
        from "trtllm: numGeneratedTokens of completed requests";
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
    InferenceCount = "nv_inference_count" LegacyCounter Compat ENGINE "Number of inferences performed (does not include cached requests)"
        from "triton-core: completed requests";
    InferenceExecCount = "nv_inference_exec_count" LegacyCounter Compat ENGINE "Number of model executions performed (does not include cached requests)"
        from "triton-core: iterations";
    InferenceRequestDuration = "nv_inference_request_duration_us" LegacyCounter Compat ENGINE
        "Cumulative inference request duration in microseconds (includes cached requests)"
        from "triton-core: sum of end-to-end request latencies";
    InferenceQueueDuration = "nv_inference_queue_duration_us" LegacyCounter Compat ENGINE
        "Cumulative inference queuing duration in microseconds (includes cached requests)"
        from "triton-core: sum of request queue times, or of newActiveRequestsQueueLatencyMS where no request times are known";
    InferenceComputeInfer = "nv_inference_compute_infer_duration_us" LegacyCounter Compat ENGINE
        "Cumulative compute inference duration in microseconds (does not include cached requests)"
        from "triton-core: sum of request inference times";
    InferencePending = "nv_inference_pending_request_count" Gauge Compat ENGINE "Instantaneous number of pending requests awaiting execution per-model."
        from "triton-core: numQueuedRequests + max(0, active − scheduled)";

    // dcgm: dcgm-exporter's families, in its units and with its labels.
    DcgmGpuUtil = "DCGM_FI_DEV_GPU_UTIL" Gauge Compat DCGM "GPU utilization (in %)."
        from "dcgm: nv_gpu_utilization × 100";
    DcgmFbUsed = "DCGM_FI_DEV_FB_USED" Gauge Compat DCGM "Framebuffer memory used (in MiB)."
        from "dcgm: nv_gpu_memory_used_bytes / 1048576";
    DcgmFbFree = "DCGM_FI_DEV_FB_FREE" Gauge Compat DCGM "Framebuffer memory free (in MiB)."
        from "dcgm: total less used, / 1048576";
    DcgmPowerUsage = "DCGM_FI_DEV_POWER_USAGE" Gauge Compat DCGM "Power draw (in W)."
        from "dcgm: nv_gpu_power_usage";
    DcgmEnergy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" LegacyCounter Compat DCGM "Total energy consumption since boot (in mJ)."
        from "dcgm: nv_energy_consumption × 1000, so since this exporter's start";
    DcgmGpuTemp = "DCGM_FI_DEV_GPU_TEMP" Gauge Compat DCGM "GPU temperature (in C)."
        from "dcgm: nv_gpu_temperature_celsius";

    // GPU: Triton's six exactly, then ours.
    GpuUtilization = "nv_gpu_utilization" Gauge Gpu GPU
        "GPU utilization rate [0.0 - 1.0)"
        from "nvmlDeviceGetUtilizationRates";
    GpuMemoryTotal = "nv_gpu_memory_total_bytes" Gauge Gpu GPU unit "bytes"
        "GPU total memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuMemoryUsed = "nv_gpu_memory_used_bytes" Gauge Gpu GPU unit "bytes"
        "GPU used memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuPowerUsage = "nv_gpu_power_usage" Gauge Gpu GPU
        "GPU power usage in watts"
        from "nvmlDeviceGetPowerUsage";
    GpuPowerLimit = "nv_gpu_power_limit" Gauge Gpu GPU
        "GPU power management limit in watts"
        from "nvmlDeviceGetPowerManagementLimit";
    EnergyConsumption = "nv_energy_consumption" LegacyCounter Gpu GPU
        "GPU energy consumption in joules since the Triton Server started"
        from "increases of nvmlDeviceGetTotalEnergyConsumption since this exporter started, over driver reloads";
    GpuTemperature = "nv_gpu_temperature_celsius" Gauge Gpu GPU unit "celsius"
        "GPU temperature in degrees Celsius."
        from "nvmlDeviceGetTemperature";
    GpuUp = "nv_gpu_up" Gauge Gpu GPU
        "Whether the last poll of the GPU answered."
        from "the GPU's worker";
    GpuState = "nv_gpu_state" Gauge Gpu GPU ["state": "ok" | "lost" | "stalled" | "reset_required" | "no_permission"]
        "How the GPU answers: 1 for the state it is in."
        from "the GPU's worker";
    GpuInfo = "nv_gpu_info" Gauge Gpu GPU_INFO
        "Which GPU this is."
        from "nvmlDeviceGetName, nvmlDeviceGetIndex, nvmlDeviceGetPciInfo_v3";

    // The exporter itself.
    BuildInfo = "trtllm_exporter_build_info" Gauge Exporter BUILD
        "Version of this exporter and the compiler it was built with."
        from "the build";
    SourceUp = "trtllm_exporter_source_up" Gauge Exporter SOURCE
        "Whether the last poll of the engine's source succeeded."
        from "the poll driver";
    Polls = "trtllm_exporter_polls_total" Counter Exporter SOURCE
        "Polls of the engine's source."
        from "the poll driver";
    PollErrors = "trtllm_exporter_poll_errors_total" Counter Exporter SOURCE
        ["kind": "connect" | "timeout" | "http_status" | "not_json" | "truncated" | "too_large" | "io" | "engine"]
        "Polls of the engine's source that failed, by kind."
        from "the poll driver";
    PollDuration = "trtllm_exporter_poll_duration_seconds" Histogram Exporter SOURCE unit "seconds"
        "Time of one poll of the engine's source in seconds."
        from "the poll driver";
    LastSuccess = "trtllm_exporter_last_success_timestamp_seconds" Gauge Exporter SOURCE unit "seconds"
        "When a poll of the engine's source last succeeded, in seconds since 1970 UTC."
        from "the poll driver";
    RecordsRejected = "trtllm_exporter_records_rejected_total" Counter Exporter SOURCE
        ["reason": "not_json" | "not_a_record" | "too_long" | "truncated"]
        "Records of the engine's source that could not be read and were skipped, by reason."
        from "the source's parser";
    IngestConnections = "trtllm_exporter_ingest_connections" Gauge Exporter SOURCE
        "Publishers connected to the ingest socket."
        from "the socket";
    NvmlUp = "trtllm_exporter_nvml_up" Gauge Exporter NONE
        "Whether the NVIDIA Management Library is loaded and initialised."
        from "nvmlInit_v2";
    NvmlState = "trtllm_exporter_nvml_state" Gauge Exporter NONE
        ["state": "off" | "starting" | "up" | "library_not_found" | "driver_not_loaded" | "version_mismatch" | "no_permission" | "failed"]
        "State of the NVIDIA Management Library: 1 for the state it is in."
        from "nvmlInit_v2";
    NvmlInitErrors = "trtllm_exporter_nvml_init_errors_total" Counter Exporter NONE
        "Failed initialisations of the NVIDIA Management Library."
        from "nvmlInit_v2";
    NvmlReadErrors = "trtllm_exporter_nvml_read_errors_total" Counter Exporter CALL
        "NVML calls that failed, by call and error; a reading the GPU does not support is not an error."
        from "the GPU workers";
    NvmlGpus = "trtllm_exporter_nvml_gpus" Gauge Exporter NONE
        "GPUs seen now."
        from "nvmlDeviceGetCount_v2, less those --gpu.uuid leaves out";
    NvmlGpusExpected = "trtllm_exporter_nvml_gpus_expected" Gauge Exporter NONE
        "Most GPUs seen since the exporter started: more than the GPUs seen now means that one has vanished."
        from "nvmlDeviceGetCount_v2";
    Scrapes = "trtllm_exporter_scrapes_total" Counter Exporter NONE
        "Answered requests for the metrics page, as of its last rendering."
        from "the HTTP server";
    HttpRefused = "trtllm_exporter_http_refused_total" Counter Exporter NONE
        ["reason": "tls_handshake" | "unauthorized" | "rate_limited" | "overloaded" | "timeout"]
        "Requests and connections that were not served, by reason."
        from "the HTTP server";
    ScrapeDuration = "trtllm_exporter_scrape_duration_seconds" Histogram Exporter NONE unit "seconds"
        "Time to answer a request for the metrics page in seconds; the first one after a change of data renders it."
        from "the HTTP server";
    ProcessCpu = "process_cpu_seconds_total" Counter Exporter NONE unit "seconds"
        "Total user and system CPU time spent in seconds."
        from "/proc/self/stat";
    ProcessOpenFds = "process_open_fds" Gauge Exporter NONE
        "Number of open file descriptors."
        from "/proc/self/fd";
    ProcessMaxFds = "process_max_fds" Gauge Exporter NONE
        "Maximum number of open file descriptors."
        from "/proc/self/limits";
    ProcessVirtualMemory = "process_virtual_memory_bytes" Gauge Exporter NONE unit "bytes"
        "Virtual memory size in bytes."
        from "/proc/self/stat";
    ProcessResidentMemory = "process_resident_memory_bytes" Gauge Exporter NONE unit "bytes"
        "Resident memory size in bytes."
        from "/proc/self/stat";
    ProcessStartTime = "process_start_time_seconds" Gauge Exporter NONE unit "seconds"
        "Start time of the process since unix epoch in seconds."
        from "/proc/self/stat";
    ProcessThreads = "process_threads" Gauge Exporter NONE
        "Number of OS threads in the process."
        from "/proc/self/stat";
}
