//! The result of a benchmark, from a trtllm-bench report.

use crate::model::named_numbers::{NamedNumbers, named_numbers};

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const ENGINE: Area = Area::new(Group::Engine, Stability::Experimental, &["model", "version"]);

// The numbers of the families below that have several series, by label value.
named_numbers! {
    pub struct Statistics: f64 { p50 = "p50", p90 = "p90", p95 = "p95", p99 = "p99", min = "min", max = "max", avg = "avg" }
}
named_numbers! {
    pub struct BenchSettings: f64 {
        gpus = "num_gpus",
        tensor_parallel = "tp_size",
        pipeline_parallel = "pp_size",
        max_batch_size = "max_batch_size",
        max_tokens = "max_num_tokens",
        kv_memory = "kv_memory_ratio",
    }
}

families! {
    first: super::engine_gauges::END;

    BenchTokenRate = ENGINE.gauge("nv_trt_llm_bench_output_tokens_per_second")
        .help("Output tokens per second in the benchmark.").origin("report.json: performance.token_throughput_per_sec");
    BenchRequestRate = ENGINE.gauge("nv_trt_llm_bench_requests_per_second")
        .help("Requests per second in the benchmark.").origin("report.json: performance.request_throughput_per_sec");
    BenchDuration = ENGINE.gauge("nv_trt_llm_bench_duration_seconds").unit("seconds")
        .help("Duration of the benchmark in seconds.").origin("report.json: performance.total_latency_ms");
    BenchTimeToFirstToken = ENGINE.gauge("nv_trt_llm_bench_time_to_first_token_seconds").unit("seconds")
        .by("statistic", Statistics::NAMES)
        .help("Time to first token in the benchmark in seconds.").origin("report.json: latency_stats.ttft_ms");
    BenchTimePerOutputToken = ENGINE.gauge("nv_trt_llm_bench_time_per_output_token_seconds").unit("seconds")
        .by("statistic", Statistics::NAMES)
        .help("Time per output token after the first in the benchmark in seconds.")
        .origin("report.json: latency_stats.tbt_ms");
    BenchE2eLatency = ENGINE.gauge("nv_trt_llm_bench_e2e_request_latency_seconds").unit("seconds")
        .by("statistic", Statistics::NAMES)
        .help("End-to-end request latency in the benchmark in seconds.").origin("report.json: latency_stats.e2e_ms");
    BenchInputTokens = ENGINE.gauge("nv_trt_llm_bench_input_tokens").unit("tokens").by("statistic", Statistics::NAMES)
        .help("Prompt tokens per request in the benchmark.").origin("report.json: input_output_stats.input_tokens");
    BenchOutputTokens = ENGINE.gauge("nv_trt_llm_bench_output_tokens").unit("tokens").by("statistic", Statistics::NAMES)
        .help("Generated tokens per request in the benchmark.").origin("report.json: input_output_stats.output_tokens");
    BenchConfig = ENGINE.gauge("nv_trt_llm_bench_config").by("setting", BenchSettings::NAMES)
        .help("Configuration of the benchmark, by setting.")
        .origin("report.json: metadata.num_gpus; configuration: tp_size, pp_size, max_batch_size, max_num_tokens, kv_memory_percentage");
    BenchInfo = ENGINE.gauge("nv_trt_llm_bench_info").labels(&["bench_model", "bench_timestamp", "gpu_name", "model", "scheduler_policy", "version"])
        .help("Benchmark description in labels (model, GPU, scheduling policy, time); always 1.")
        .origin("report.json: metadata.model, gpu, timestamp; configuration.scheduler_policy");
}
