//! The result of a benchmark, from a trtllm-bench report.

use trtllm_records::BenchReport;
use trtllm_records::bench_report::Percentiles;

use super::{ENGINE, EngineView, FamilyWriter, Metric, When, families, unknown};

const STATISTICS: &[&str] = &["p50", "p90", "p95", "p99", "min", "max", "avg"];

/// The area of the families of a benchmark's report.
const BENCH: Metric = ENGINE.when(&[When::Report]);

/// Longest value of a label, in characters.
const MAX_LABEL: usize = 64;

/// In the order of [`STATISTICS`]. `unit`: how many of the report's units make one base unit.
fn statistics(distribution: Percentiles, unit: f64) -> [Option<f64>; 7] {
    let Percentiles { p50, p90, p95, p99, min, max, avg } = distribution;
    [p50, p90, p95, p99, min, max, avg].map(|value| Some(value? / unit))
}

families! {
    Benchmark of EngineView<'_> => FamilyWriter<'_>;

    BenchTokenRate(|engine| engine.bench?.performance.token_throughput_per_sec) =
        BENCH.gauge("nv_trt_llm_bench_output_tokens_per_second").in_default()
        .help("Output tokens per second in the benchmark.");
    BenchTotalTokenRate(|engine| engine.bench?.performance.total_token_throughput_per_sec) =
        BENCH.gauge("nv_trt_llm_bench_total_tokens_per_second")
        .help("Input and output tokens per second in the benchmark.");
    BenchGpuTokenRate(|engine| engine.bench?.performance.gpu_token_throughput_per_sec) =
        BENCH.gauge("nv_trt_llm_bench_gpu_output_tokens_per_second")
        .help("Output tokens per second and GPU in the benchmark.");
    BenchUserTokenRate(|engine| engine.bench?.performance.user_token_throughput_per_sec) =
        BENCH.gauge("nv_trt_llm_bench_user_output_tokens_per_second")
        .help("Output tokens per second of one request in the benchmark, from its start to its end, on average.");
    BenchUserGenerationRate(
        |engine, series| series.all(statistics(engine.bench?.performance.user_generation_per_sec, 1.0))
    ) = BENCH.gauge("nv_trt_llm_bench_user_generation_tokens_per_second").by("statistic", STATISTICS)
        .help("Output tokens per second of one request after its first token in the benchmark.");
    BenchRequestRate(|engine| engine.bench?.performance.request_throughput_per_sec) =
        BENCH.gauge("nv_trt_llm_bench_requests_per_second").help("Requests per second in the benchmark.");
    BenchDuration(|engine| engine.bench?.performance.total_latency_ms? / 1000.0) =
        BENCH.gauge("nv_trt_llm_bench_duration_seconds").unit("seconds").help("Duration of the benchmark in seconds.");
    BenchRequests(|engine| engine.bench?.requests.count) = BENCH.gauge("nv_trt_llm_bench_requests")
        .help("Number of requests in the benchmark.");
    BenchConcurrentRequests(|engine| engine.bench?.requests.concurrent) =
        BENCH.gauge("nv_trt_llm_bench_concurrent_requests").in_default()
        .help("Mean number of requests in the benchmark that were sent and had not ended, those in the queue \
            included.");
    BenchTimeToFirstToken(|engine, series| series.all(statistics(engine.bench?.latency_stats.ttft_ms, 1000.0))) =
        BENCH.gauge("nv_trt_llm_bench_time_to_first_token_seconds").unit("seconds").by("statistic", STATISTICS)
        .help("Time to first token in the benchmark in seconds.");
    BenchTimePerOutputToken(|engine, series| series.all(statistics(engine.bench?.latency_stats.tbt_ms, 1000.0))) =
        BENCH.gauge("nv_trt_llm_bench_time_per_output_token_seconds").unit("seconds").by("statistic", STATISTICS)
        .help("Time per output token after the first in the benchmark in seconds.");
    BenchE2eLatency(|engine, series| series.all(statistics(engine.bench?.latency_stats.e2e_ms, 1000.0))) =
        BENCH.gauge("nv_trt_llm_bench_e2e_request_latency_seconds").unit("seconds").by("statistic", STATISTICS)
        .help("End-to-end request latency in the benchmark in seconds.");
    BenchInputTokens(|engine, series| series.all(statistics(engine.bench?.input_output_stats.input_tokens, 1.0))) =
        BENCH.gauge("nv_trt_llm_bench_input_tokens").in_default().unit("tokens").by("statistic", STATISTICS)
        .help("Prompt tokens per request in the benchmark.");
    BenchOutputTokens(|engine, series| series.all(statistics(engine.bench?.input_output_stats.output_tokens, 1.0))) =
        BENCH.gauge("nv_trt_llm_bench_output_tokens").in_default().unit("tokens").by("statistic", STATISTICS)
        .help("Generated tokens per request in the benchmark.");
    BenchSequenceTokens(
        |engine, series| series.all(statistics(engine.bench?.input_output_stats.sequence_tokens, 1.0))
    ) = BENCH.gauge("nv_trt_llm_bench_sequence_tokens").unit("tokens").by("statistic", STATISTICS)
        .help("Prompt and generated tokens together per request in the benchmark.");
    BenchSpecDraftTokens(|engine, series| series.all(statistics(engine.bench?.speculation.draft_tokens, 1.0))) =
        BENCH.gauge("nv_trt_llm_bench_spec_decode_draft_tokens").unit("tokens").by("statistic", STATISTICS)
        .help("Draft tokens per request in the benchmark.");
    BenchSpecAcceptedTokens(|engine, series| series.all(statistics(engine.bench?.speculation.accepted_tokens, 1.0))) =
        BENCH.gauge("nv_trt_llm_bench_spec_decode_accepted_tokens").unit("tokens").by("statistic", STATISTICS)
        .help("Accepted draft tokens per request in the benchmark.");
    BenchSpecAcceptanceRatio(|engine, series| series.all(statistics(engine.bench?.speculation.acceptance_ratio, 1.0))) =
        BENCH.gauge("nv_trt_llm_bench_spec_decode_acceptance_ratio").unit("ratio").by("statistic", STATISTICS)
        .help("Share (0-1) of draft tokens per request that were accepted in the benchmark.");
    BenchSpecAcceptanceLength(
        |engine, series| series.all(statistics(engine.bench?.speculation.acceptance_length, 1.0))
    ) = BENCH.gauge("nv_trt_llm_bench_spec_decode_acceptance_length").by("statistic", STATISTICS)
        .help("Tokens per decoding step with speculative decoding in the benchmark.");
    BenchEnergy(|engine| engine.bench?.energy.joules) = BENCH.gauge("nv_trt_llm_bench_energy_joules").unit("joules")
        .help("Energy used by the GPUs in the benchmark in joules.");
    BenchTokensPerJoule(|engine| engine.bench?.energy.output_tokens_per_joule) =
        BENCH.gauge("nv_trt_llm_bench_output_tokens_per_joule").help("Output tokens per joule in the benchmark.");
    BenchPower(|engine| engine.bench?.energy.power_watts) = BENCH.gauge("nv_trt_llm_bench_power_watts").unit("watts")
        .help("Mean power of the GPUs in the benchmark in watts.");
    BenchConfig(|engine| let config = &engine.bench?.configuration; by setting {
        num_gpus: engine.bench?.metadata.num_gpus, tp_size: config.tp_size, pp_size: config.pp_size,
        ep_size: config.ep_size, max_batch_size: config.max_batch_size, max_num_tokens: config.max_num_tokens,
        max_input_length: config.max_input_length, max_sequence_length: config.max_sequence_length,
        kv_memory_ratio: config.kv_memory_percentage,
    }) = BENCH.gauge("nv_trt_llm_bench_config")
        .help("Configuration of the benchmark, by setting.");
    BenchInfo(|engine, series| {
        let BenchReport { metadata, configuration, .. } = engine.bench?;
        let labels = [
            ("backend", &metadata.backend),
            ("bench_model", &metadata.model),
            ("bench_timestamp", &metadata.timestamp),
            ("decoding_mode", &metadata.decoding_mode),
            ("dtype", &metadata.dtype),
            ("engine_version", &metadata.version),
            ("gpu_name", &metadata.gpu),
            ("kv_cache_dtype", &metadata.kv_cache_dtype),
            ("quantization", &metadata.quantization),
            ("scheduler_policy", &configuration.scheduler_policy),
        ];
        let short = |value: &Option<String>| Some(value.as_ref()?.chars().take(MAX_LABEL).collect());
        series.with(labels.map(|(name, value)| (name, short(value).unwrap_or_else(unknown))), 1_u64)
    }) = BENCH.gauge("nv_trt_llm_bench_info")
        .labels(&[
            "backend", "bench_model", "bench_timestamp", "decoding_mode", "dtype", "engine_version", "gpu_name",
            "kv_cache_dtype", "model", "quantization", "scheduler_policy", "version",
        ])
        .help("Benchmark description in labels (model, TensorRT-LLM, GPU, quantization, scheduling policy, speculative \
            decoding, time); always 1.");
}
