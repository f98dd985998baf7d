//! Parses what trtllm-bench prints at its end: lines of `Name: value` below headings. Releases up to 0.16 write no
//! other report. Later releases print the percentiles, too.

use std::collections::HashMap;

use trtllm_records::BenchReport;
use trtllm_records::bench_report::{
    BenchConfiguration, BenchLatencies, BenchMetadata, BenchPerformance, BenchRequests, Percentiles,
};

/// The first heading, by backend. The text above it is the log of the engine.
pub(super) const HEADINGS: [&str; 2] = ["= ENGINE DETAILS", "= PYTORCH BACKEND"];

/// `None` if the text contains no complete result.
pub(super) fn parse(text: &str) -> Option<BenchReport> {
    // A file may have several runs: the last one counts.
    let begin = HEADINGS.iter().filter_map(|heading| text.rfind(heading)).max()?;
    let text = &text[begin..];
    let values: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim())).collect();
    let is_told = |value: &String| !value.is_empty() && value != "None";
    let words = |name: &str| values.get(name).map(|value| (*value).to_owned()).filter(is_told);
    let number = |name: &str| values.get(name).and_then(|value| value.parse::<f64>().ok()).filter(|n| n.is_finite());
    let mean = |name: &str| Percentiles { avg: number(name), ..Percentiles::default() };
    // `[TTFT] P50    : 12.5`
    let percentiles = |of: &str, mean: &str| {
        let statistic = |name: &str| number(format!("[{of}] {name:<7}").trim_end());
        Percentiles {
            p50: statistic("P50"),
            p90: statistic("P90"),
            p95: statistic("P95"),
            p99: statistic("P99"),
            min: statistic("MINIMUM"),
            max: statistic("MAXIMUM"),
            avg: statistic("AVERAGE").or(number(mean)),
        }
    };
    let percent = |name: &str| values.get(name)?.strip_suffix('%')?.trim().parse::<f64>().ok();
    let mut report = BenchReport {
        metadata: BenchMetadata {
            model: words("Model"),
            version: words("TensorRT LLM Version").or_else(|| words("TensorRT-LLM Version")),
            backend: Some(if text.starts_with(HEADINGS[1]) { "Pytorch" } else { "TRT" }.to_owned()),
            dtype: words("Dtype"),
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
            gpu_token_throughput_per_sec: number("Per GPU Output Throughput (tps/gpu)"),
            user_token_throughput_per_sec: number("Per User Output Throughput [w/ ctx] (tps/user)"),
            user_generation_per_sec: percentiles("GTPS", "Per User Output Speed (tps/user)"),
        },
        latency_stats: BenchLatencies {
            ttft_ms: percentiles("TTFT", "Average time-to-first-token [TTFT] (ms)"),
            tbt_ms: percentiles("TPOT", "Average time-per-output-token [TPOT] (ms)"),
            e2e_ms: percentiles("Latency", "Average request latency (ms)"),
        },
        configuration: BenchConfiguration {
            tp_size: number("TP Size"),
            pp_size: number("PP Size"),
            ep_size: number("EP Size"),
            max_batch_size: number("Max Runtime Batch Size"),
            max_num_tokens: number("Max Runtime Tokens"),
            max_input_length: number("Max Input Length"),
            max_sequence_length: number("Max Sequence Length"),
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
    // A run that was aborted has headings and no result.
    report.performance.total_latency_ms.is_some().then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_real_run_of_release_0_16_is_read() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_console_0.16.0_llama70b_tp8.txt");
        let report = parse(text).unwrap();
        assert_eq!(report.metadata.model.as_deref(), Some("meta-llama/Llama-3.1-70B-Instruct"));
        assert_eq!(
            (report.metadata.version.as_deref(), report.metadata.backend.as_deref()),
            (Some("0.16.0"), Some("TRT"))
        );
        assert_eq!(report.performance.token_throughput_per_sec, Some(3575.3588));
        assert_eq!((report.configuration.tp_size, report.configuration.kv_memory_percentage), (Some(8.0), Some(0.9)));
        assert_eq!(report.configuration.max_sequence_length, Some(25_000.0));
        assert_eq!((report.requests.count, report.requests.concurrent), (Some(7500.0), None));
        assert_eq!(report.latency_stats, BenchLatencies::default());
    }
}
