//! What trtllm-bench prints at its end: lines of `Name: value` below headings. Up to 0.16 there is nothing else.

use std::collections::HashMap;

use trtllm_model::BenchReport;
use trtllm_model::bench_report::{BenchConfiguration, BenchMetadata, BenchPerformance, BenchRequests, Distribution};

/// The first heading. What stands above is the log of the engine.
pub(super) const BEGIN: &str = "= ENGINE DETAILS";

/// `None` if the text has no such lines.
pub(super) fn parse(text: &str) -> Option<BenchReport> {
    // A file may have several runs: the last one counts.
    let (_, text) = text.rsplit_once(BEGIN)?;
    let values: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim())).collect();
    let words = |name: &str| values.get(name).map(|value| (*value).to_owned()).filter(|value| !value.is_empty());
    let number = |name: &str| values.get(name).and_then(|value| value.parse::<f64>().ok()).filter(|n| n.is_finite());
    let mean = |name: &str| Distribution { avg: number(name), ..Distribution::default() };
    let percent = |name: &str| values.get(name)?.strip_suffix('%')?.trim().parse::<f64>().ok();
    let mut report = BenchReport {
        metadata: BenchMetadata {
            model: words("Model"),
            version: words("TensorRT-LLM Version"),
            backend: words("Backend"),
            quantization: words("Quantization"),
            kv_cache_dtype: words("KV Cache Dtype"),
            ..BenchMetadata::default()
        },
        performance: BenchPerformance {
            // Up to 0.16, the only throughput of tokens is that of output tokens.
            token_throughput_per_sec: number("Total Output Throughput (tokens/sec)")
                .or_else(|| number("Token Throughput (tokens/sec)")),
            total_token_throughput_per_sec: number("Total Token Throughput (tokens/sec)"),
            request_throughput_per_sec: number("Request Throughput (req/sec)"),
            total_latency_ms: number("Total Latency (ms)"),
        },
        configuration: BenchConfiguration {
            tp_size: number("TP Size"),
            pp_size: number("PP Size"),
            ep_size: number("EP Size"),
            max_batch_size: number("Max Runtime Batch Size"),
            max_num_tokens: number("Max Runtime Tokens"),
            scheduler_policy: words("Scheduling Policy"),
            kv_memory_percentage: percent("KV Memory Percentage").map(|percent| percent / 100.0),
        },
        requests: BenchRequests {
            count: number("Number of requests"),
            concurrent: number("Average Concurrent Requests").or_else(|| number("Number of concurrent requests")),
        },
        ..BenchReport::default()
    };
    report.input_output_stats.input_tokens = mean("Average Input Length (tokens)");
    report.input_output_stats.output_tokens = mean("Average Output Length (tokens)");
    // A run that was ended early has headings and no result.
    report.performance.total_latency_ms.is_some().then_some(report)
}
