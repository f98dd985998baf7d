//! Triton's families: names, labels and HELP are byte for byte Triton's. Public dashboards sum whole families, so no
//! label value may be added.

use trtllm_fold::Latest;

use super::{EngineView, FamilyWriter, Group, Id, Metric, Stability, families};

const TRITON: Metric = Metric::area(Group::Triton, Stability::Inherited, &["model", "version"]);
const SPEC: Metric = Metric::compat("spec", &["model", "version"]);

families! {
    Triton of EngineView<'_> => FamilyWriter<'_>;

    RequestMetrics(|engine| let load = engine.load; by request_type {
        active: load.and_then(Latest::active_of_all),
        // The limit stays valid while an engine does not answer.
        max: engine.latest?.max_active_of_all(),
        scheduled: load.and_then(Latest::scheduled),
        context: load.and_then(Latest::context_requests), waiting: load.and_then(Latest::waiting),
    }) = TRITON.gauge("nv_trt_llm_request_metrics").help("TRT LLM request metrics")
        .on_gateway("TRT LLM request metrics: requests scheduled in the last iteration, and requests waiting (queued \
            in the executor, or active but not scheduled)")
        .feeds("numActiveRequests maxNumActiveRequests rank numScheduledRequests numContextRequests");
    RuntimeMemoryMetrics(|engine| let load = engine.load?; by memory_type {
        cpu: load.cpu_memory, gpu: load.gpu_memory, pinned: load.pinned_memory,
    }) = TRITON.gauge("nv_trt_llm_runtime_memory_metrics")
        .help("TRT LLM runtime memory metrics").feeds("gpuMemUsage cpuMemUsage pinnedMemUsage");
    KvCacheBlockMetrics(|engine| let kv = engine.load?.kv?; by kv_cache_block_type {
        max: kv.max_num_blocks, free: kv.free_num_blocks, used: kv.used_num_blocks, tokens_per: kv.tokens_per_block,
        reused: kv.reused_blocks, fraction: kv.used_fraction(),
    }) = TRITON.gauge("nv_trt_llm_kv_cache_block_metrics")
        .help("TRT LLM KV cache block metrics")
        .feeds("kvCacheStats maxNumBlocks freeNumBlocks usedNumBlocks tokensPerBlock reusedBlocks usedShare");

    // The same values with the label values of the original metrics specification (`--metrics.compat spec`).
    SpecKvCacheBlockMetrics(|engine| let kv = engine.load?.kv?; by kv_cache_block_type {
        tokens_per_block: kv.tokens_per_block, used_blocks: kv.used_num_blocks, free_blocks: kv.free_num_blocks,
        max_blocks: kv.max_num_blocks, cache_block_fraction: kv.used_fraction(),
    }) = SPEC.gauge("nv_trt_llm_kv_cache_block_metrics").stable()
        .help("TRT LLM KV cache block metrics").like(Id::KvCacheBlockMetrics);
    InflightBatcherMetrics(|engine| let batch = engine.load?.inflight?; by inflight_batcher_specific_metric {
        total_context_tokens: batch.num_ctx_tokens, generation_requests: batch.num_gen_requests,
        micro_batch_id: batch.micro_batch_id, paused_requests: batch.num_paused_requests,
    }) = TRITON.gauge("nv_trt_llm_inflight_batcher_metrics").help("TRT LLM inflight_batcher-specific metrics")
        .feeds("inflightBatchingStats numGenRequests numPausedRequests InflightBatchingStats.numCtxTokens \
            microBatchId");
    V1Metrics(|engine| let batch = engine.load?.static_batching?; by v1_specific_metric {
        total_context_tokens: batch.num_ctx_tokens, total_generation_tokens: batch.num_gen_tokens,
        empty_generation_slots: batch.empty_gen_slots,
    }) = TRITON.gauge("nv_trt_llm_v1_metrics").help("TRT LLM v1-specific metrics")
        .feeds("staticBatchingStats StaticBatchingStats.numCtxTokens numGenTokens emptyGenSlots");
    GeneralMetrics(|engine| let latest = engine.latest?; by general_type {
        timestamp: latest.time_us, iteration_counter: latest.iter,
    }) = TRITON.gauge("nv_trt_llm_general_metrics").help("General TRT LLM metrics").feeds("timestamp iter");
    DisaggregatedServingMetrics(|engine| by disaggregated_serving_type {
        kv_cache_transfer_ms: engine.requests.kv_cache_transfer_ms,
        request_count: engine.requests.disaggregated_requests,
    }) = TRITON.legacy_counter("nv_trt_llm_disaggregated_serving_metrics")
        .help("TRT LLM disaggregated serving metrics").feeds("disServingStats kvCacheTransferMS ctxRequestId");
    SpecDisaggregatedServingMetrics(|engine| engine.requests.kv_cache_transfer_ms) =
        SPEC.legacy_counter("nv_trt_llm_disaggregated_serving_metrics").stable()
        .by("disaggregated_serving_type", &["kv_cache_transfer_time"]).help("TRT LLM disaggregated serving metrics")
        .like(Id::DisaggregatedServingMetrics);
    InputTokenLen(|engine| &engine.requests.input_token_len) = TRITON.histogram("nv_llm_input_token_len")
        .by("response_metric_type", &["total_input_tokens"]).help("TRT LLM response metrics")
        .feeds("contextPrefillPosition promptTokens");
    OutputTokenLen(|engine| &engine.requests.output_token_len) = TRITON.histogram("nv_llm_output_token_len")
        .by("response_metric_type", &["total_output_tokens"]).help("TRT LLM response metrics")
        .feeds("numGeneratedTokens outputTokens");
}
