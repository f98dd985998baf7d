//! The names that other engines and exporters use for the same concepts, for users who migrate from them.

use super::id::Id;

/// One concept with its name in each project; `–` if a project has none.
#[derive(Debug, Clone, Copy)]
pub struct Equivalent {
    pub concept: &'static str,
    pub vllm: &'static str,
    pub sglang: &'static str,
    pub trtllm_serve: &'static str,
    pub triton: &'static str,
    pub dynamo: &'static str,
    /// Families of this exporter. A label value selects one series of the family.
    pub ours: &'static [(Id, Option<&'static str>)],
}

macro_rules! equivalents {
    ($($concept:literal: $vllm:literal, $sglang:literal, $serve:literal, $triton:literal, $dynamo:literal
        => $($id:ident $(= $value:literal)?),+;)*) => {
        /// The names are those of the 2026 releases of vLLM, SGLang, trtllm-serve, Triton and Dynamo.
        pub static EQUIVALENTS: &[Equivalent] = &[$(Equivalent {
            concept: $concept,
            vllm: $vllm,
            sglang: $sglang,
            trtllm_serve: $serve,
            triton: $triton,
            dynamo: $dynamo,
            ours: &[$((Id::$id, equivalents!(@value $($value)?))),+],
        }),*];
    };
    (@value) => { None };
    (@value $value:literal) => { Some($value) };
}

equivalents! {
    "time to first token": "vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds",
        "trtllm_time_to_first_token_seconds", "nv_inference_first_response_histogram_ms",
        "dynamo_frontend_time_to_first_token_seconds"
        => TimeToFirstToken, ServerTimeToFirstToken;
    "time per output token": "vllm:request_time_per_output_token_seconds", "–", "trtllm_time_per_output_token_seconds", "–", "–"
        => TimePerOutputToken;
    "time between tokens (all requests)": "vllm:inter_token_latency_seconds", "sglang:inter_token_latency_seconds", "–", "–",
        "dynamo_frontend_inter_token_latency_seconds"
        => InterTokenLatency, IterationLatency, DecodedTokensPerIteration;
    "end-to-end latency": "vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds",
        "trtllm_e2e_request_latency_seconds", "nv_inference_request_duration_us", "dynamo_frontend_request_duration_seconds"
        => E2eLatency, InferenceRequestDuration;
    "queue time": "vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "trtllm_request_queue_time_seconds",
        "nv_inference_queue_duration_us", "–"
        => RequestQueueTime, NewRequestQueueTime, InferenceQueueDuration;
    "prefill time": "vllm:request_prefill_time_seconds", "sglang:per_stage_req_latency_seconds{stage=prefill_forward}",
        "trtllm_request_prefill_time_seconds", "–", "–"
        => RequestPrefillTime;
    "decode time": "vllm:request_decode_time_seconds", "sglang:per_stage_req_latency_seconds",
        "trtllm_request_decode_time_seconds", "–", "–"
        => RequestDecodeTime;
    "inference time": "vllm:request_inference_time_seconds", "–", "trtllm_request_inference_time_seconds",
        "nv_inference_compute_infer_duration_us", "–"
        => RequestInferenceTime, InferenceComputeInfer;
    "prompt tokens": "vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "trtllm_prompt_tokens_total",
        "nv_llm_input_token_len", "dynamo_frontend_input_sequence_tokens"
        => InputTokenLen, ContextTokens;
    "generated tokens": "vllm:generation_tokens_total", "sglang:generation_tokens_total", "trtllm_generation_tokens_total",
        "nv_llm_output_token_len", "dynamo_frontend_output_tokens_total"
        => OutputTokenLen, GenerationTokens;
    "running requests": "vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
        "nv_trt_llm_request_metrics{request_type=scheduled}", "dynamo_frontend_inflight_requests"
        => RequestMetrics = "scheduled", RequestMetrics = "active";
    "waiting requests": "vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting",
        "nv_trt_llm_request_metrics{request_type=waiting}", "dynamo_frontend_queued_requests"
        => RequestMetrics = "waiting", QueuedRequests;
    "KV cache usage": "vllm:kv_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}", "dynamo_component_gpu_cache_usage_percent"
        => KvCacheBlockMetrics = "fraction", KvCachePressureRatio;
    "KV cache size": "vllm:cache_config_info{block_size,num_gpu_blocks}", "sglang:cache_config_info{page_size,num_pages}",
        "trtllm_kv_cache_max_blocks, trtllm_kv_cache_tokens_per_block",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}", "dynamo_frontend_model_total_kv_blocks"
        => KvCacheBlockMetrics = "max", KvCacheBlockMetrics = "tokens_per";
    "prefix cache hits": "vllm:prefix_cache_hits_total, vllm:prefix_cache_queries_total", "sglang:cache_hit_rate",
        "trtllm_kv_cache_hit_rate", "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=reused}",
        "dynamo_component_router_kv_hit_rate"
        => KvBlocksReused, KvBlocksMissed, KvCacheHitRatio, RequestKvHitRatio;
    "preemptions": "vllm:num_preemptions_total", "sglang:num_retracted_reqs", "trtllm_num_paused_requests",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric=paused_requests}", "–"
        => RequestPauses, InflightBatcherMetrics = "paused_requests";
    "speculative decoding": "vllm:spec_decode_num_accepted_tokens_total", "sglang:spec_accept_rate, sglang:spec_accept_length",
        "trtllm_spec_decode_num_accepted_tokens_total", "–", "–"
        => SpecDraftTokens, SpecAcceptedTokens, SpecAcceptanceLength, RequestSpecAcceptance;
    "finished requests": "vllm:request_success_total", "sglang:num_requests_total", "trtllm_request_success_total",
        "nv_inference_request_success", "dynamo_frontend_requests_total"
        => RequestsCompleted, RequestsFinished, InferenceRequestSuccess;
    "failed requests": "vllm:request_success_total{finished_reason=abort}", "–", "trtllm_request_error_total",
        "nv_inference_request_failure", "dynamo_frontend_requests_total{error_type}"
        => RequestsFinished = "cancelled", InferenceRequestFailure;
    "KV cache transfer": "–", "sglang:kv_transfer_latency_ms, sglang:kv_transfer_total_mb",
        "–", "nv_trt_llm_disaggregated_serving_metrics", "trtllm_kv_transfer_latency_seconds, trtllm_kv_transfer_bytes"
        => KvCacheTransferTime, KvCacheTransferBytes, DisaggregatedServingMetrics;
    "iterations": "vllm:iteration_tokens_total", "–", "trtllm_iteration_latency_seconds",
        "nv_trt_llm_general_metrics{general_type=iteration_counter}", "–"
        => Iterations, IterationLatency, IterationContextTokens, IterationScheduledRequests;
    "memory": "–", "–", "trtllm_gpu_memory_usage_bytes", "nv_trt_llm_runtime_memory_metrics", "–"
        => RuntimeMemoryMetrics;
    "lost statistics": "–", "–", "–", "–", "–"
        => IterationsLost, EngineRestarts;
}
