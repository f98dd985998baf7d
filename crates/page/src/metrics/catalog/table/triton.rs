//! Triton's families: names, labels and HELP are byte for byte Triton's. Public dashboards sum whole families, so no
//! label value may be added.

use trtllm_fold::Latest;
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats};

use super::{EngineView, FamilyWriter, Group, Id, Metric, Stability, Value, families};

const TRITON: Metric = Metric::area(Group::Triton, Stability::Inherited, &["model", "version"]);
const SPEC: Metric = Metric::compat("spec", &["model", "version"]);
pub(super) const KV_CACHE_BLOCKS: &[&str] = &["max", "free", "used", "tokens_per", "reused", "fraction"];

/// The numbers of blocks, in the order of [`KV_CACHE_BLOCKS`].
pub(in crate::metrics) fn kv_cache_blocks(kv: &KvCacheStats) -> [Option<Value>; 6] {
    let [max, free, used, tokens_per, reused] =
        [kv.max_num_blocks, kv.free_num_blocks, kv.used_num_blocks, kv.tokens_per_block, kv.reused_blocks]
            .map(|blocks| blocks.map(Value::from));
    [max, free, used, tokens_per, reused, kv.used_fraction().map(Value::from)]
}

families! {
    Triton of EngineView<'_> => FamilyWriter<'_>;

    RequestMetrics(|engine, series| {
        let load = engine.load;
        // The limit stays valid while an engine does not answer.
        let max = engine.latest?.max_active_of_all();
        let [active, scheduled] = [Latest::active_of_all, Latest::scheduled].map(|read| load.and_then(read));
        series.all([active, max, scheduled, load.and_then(Latest::context_requests), load.and_then(Latest::waiting)])
    }) = TRITON.gauge("nv_trt_llm_request_metrics")
        .by("request_type", &["active", "max", "scheduled", "context", "waiting"]).help("TRT LLM request metrics")
        .on_gateway("TRT LLM request metrics: requests scheduled in the last iteration, and requests waiting (queued \
            in the executor, or active but not scheduled)")
        .feeds("numActiveRequests maxNumActiveRequests rank numScheduledRequests numContextRequests");
    RuntimeMemoryMetrics(|engine, series| {
        let load = engine.load?;
        series.all([load.cpu_memory, load.gpu_memory, load.pinned_memory])
    }) = TRITON.gauge("nv_trt_llm_runtime_memory_metrics").by("memory_type", &["cpu", "gpu", "pinned"])
        .help("TRT LLM runtime memory metrics").feeds("gpuMemUsage cpuMemUsage pinnedMemUsage");
    KvCacheBlockMetrics(|engine, series| series.all(kv_cache_blocks(engine.load?.kv.as_ref()?))) =
        TRITON.gauge("nv_trt_llm_kv_cache_block_metrics").by("kv_cache_block_type", KV_CACHE_BLOCKS)
        .help("TRT LLM KV cache block metrics")
        .feeds("kvCacheStats maxNumBlocks freeNumBlocks usedNumBlocks tokensPerBlock reusedBlocks usedShare");

    // The same values with the label values of the original metrics specification (`--metrics.compat spec`).
    SpecKvCacheBlockMetrics(|engine, series| {
        let [max, free, used, tokens_per, _, fraction] = kv_cache_blocks(engine.load?.kv.as_ref()?);
        series.all([tokens_per, used, free, max, fraction])
    }) = SPEC.gauge("nv_trt_llm_kv_cache_block_metrics").stable()
        .by("kv_cache_block_type", &[
            "tokens_per_block", "used_blocks", "free_blocks", "max_blocks", "cache_block_fraction",
        ]).help("TRT LLM KV cache block metrics").like(Id::KvCacheBlockMetrics);
    InflightBatcherMetrics(|engine, series| {
        let batch = engine.load?.inflight?;
        let InflightBatchingStats { num_ctx_tokens, num_gen_requests, micro_batch_id, .. } = batch;
        series.all([num_ctx_tokens, num_gen_requests, micro_batch_id, batch.num_paused_requests])
    }) = TRITON.gauge("nv_trt_llm_inflight_batcher_metrics")
        .by("inflight_batcher_specific_metric", &[
            "total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests",
        ]).help("TRT LLM inflight_batcher-specific metrics")
        .feeds("inflightBatchingStats numGenRequests numPausedRequests InflightBatchingStats.numCtxTokens \
            microBatchId");
    V1Metrics(|engine, series| {
        let batch = engine.load?.static_batching?;
        series.all([batch.num_ctx_tokens, batch.num_gen_tokens, batch.empty_gen_slots])
    }) = TRITON.gauge("nv_trt_llm_v1_metrics")
        .by("v1_specific_metric", &["total_context_tokens", "total_generation_tokens", "empty_generation_slots"])
        .help("TRT LLM v1-specific metrics")
        .feeds("staticBatchingStats StaticBatchingStats.numCtxTokens numGenTokens emptyGenSlots");
    GeneralMetrics(|engine, series| {
        let latest = engine.latest?;
        series.all([Some(Value::from(latest.time_us)), latest.iter.map(Value::from)])
    }) = TRITON.gauge("nv_trt_llm_general_metrics").by("general_type", &["timestamp", "iteration_counter"])
        .help("General TRT LLM metrics").feeds("timestamp iter");
    DisaggregatedServingMetrics(|engine, series| {
        let requests = engine.requests;
        series.all([Value::from(requests.kv_cache_transfer_ms), requests.disaggregated_requests.into()].map(Some))
    }) = TRITON.legacy_counter("nv_trt_llm_disaggregated_serving_metrics")
        .by("disaggregated_serving_type", &["kv_cache_transfer_ms", "request_count"])
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
