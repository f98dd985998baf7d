//! The JSON of `trtllm-bench … --report_json` since TensorRT-LLM 0.17. Sections and values are null or missing where a mode, a
//! backend or a release does not have them. Left out: paths, the memory of the GPU, and `issue_rate`, whose values are nanoseconds × 10⁹.

use serde_json::{Map, Value};

use trtllm_model::BenchReport;
use trtllm_model::bench_report::{
    BenchConfiguration, BenchEnergy, BenchLatencies, BenchLengths, BenchMetadata, BenchPerformance, BenchRequests,
    BenchSpeculation, Distribution,
};

use super::BenchReportError;
use super::sections::{Sections, Statistics};

/// Older releases have no `p90`.
const STATISTICS: Statistics = ["p50", "p90", "p95", "p99", "minimum", "maximum", "average"];

pub(super) fn parse(report: &Map<String, Value>) -> Result<BenchReport, BenchReportError> {
    let from = Sections { report, statistics: STATISTICS };
    Ok(BenchReport {
        metadata: metadata(&from)?,
        performance: performance(&from)?,
        latency_stats: BenchLatencies {
            ttft_ms: with_mean(&from, ("streaming_metrics", "ttft_percentiles"), "avg_ttft_ms")?,
            tbt_ms: with_mean(&from, ("streaming_metrics", "tpot_percentiles"), "avg_tpot_ms")?,
            e2e_ms: with_mean(&from, ("performance", "request_latency_percentiles_ms"), "avg_request_latency_ms")?,
        },
        input_output_stats: BenchLengths {
            input_tokens: lengths(&from, "isl_stats", "isl", Some("avg_input_length"))?,
            output_tokens: lengths(&from, "osl_stats", "osl", Some("avg_output_length"))?,
            sequence_tokens: lengths(&from, "seq_len_stats", "sequence_length", None)?,
        },
        configuration: configuration(&from)?,
        requests: BenchRequests {
            count: from.number("request_info", "num_requests")?.or(from.number("dataset", "num_requests")?),
            concurrent: from.number("request_info", "avg_num_concurrent_requests")?,
        },
        energy: BenchEnergy {
            joules: from.number("energy", "total_energy_j")?,
            output_tokens_per_joule: from.number("energy", "output_tps_per_w")?,
            power_watts: from.number("energy", "average_gpu_power")?,
        },
        speculation: BenchSpeculation {
            draft_tokens: from.distribution("decoding_stats", "num_draft_tokens_percentiles")?,
            accepted_tokens: from.distribution("decoding_stats", "num_accepted_draft_tokens_percentiles")?,
            acceptance_ratio: from.distribution("decoding_stats", "draft_acceptance_rate_percentiles")?,
            acceptance_length: from.distribution("decoding_stats", "acceptance_length_percentiles")?,
        },
    })
}

fn metadata(from: &Sections<'_>) -> Result<BenchMetadata, BenchReportError> {
    Ok(BenchMetadata {
        model: from.text("engine", "model")?,
        timestamp: None,
        gpu: from.text("machine", "name")?,
        num_gpus: from.number("world_info", "world_size")?,
        version: from.text("engine", "version")?,
        backend: from.text("engine", "backend")?,
        dtype: from.text("engine", "dtype")?,
        quantization: from.text("engine", "quantization")?,
        kv_cache_dtype: from.text("engine", "kv_cache_dtype")?,
        decoding_mode: from.text("decoding_stats", "mode")?,
    })
}

fn performance(from: &Sections<'_>) -> Result<BenchPerformance, BenchReportError> {
    let speed = with_mean(from, ("streaming_metrics", "gen_tps_percentiles"), "token_output_speed_tok_s")?;
    Ok(BenchPerformance {
        token_throughput_per_sec: from.number("performance", "system_output_throughput_tok_s")?,
        total_token_throughput_per_sec: from.number("performance", "system_total_throughput_tok_s")?,
        request_throughput_per_sec: from.number("performance", "request_throughput_req_s")?,
        total_latency_ms: from.number("performance", "total_latency_ms")?,
        gpu_token_throughput_per_sec: from.number("performance", "output_throughput_per_gpu_tok_s")?,
        user_token_throughput_per_sec: from.number("performance", "output_throughput_per_user_tok_s")?,
        user_generation_per_sec: speed,
    })
}

fn configuration(from: &Sections<'_>) -> Result<BenchConfiguration, BenchReportError> {
    Ok(BenchConfiguration {
        tp_size: from.number("world_info", "tp_size")?,
        pp_size: from.number("world_info", "pp_size")?,
        ep_size: from.number("world_info", "ep_size")?,
        max_batch_size: from.number("world_info", "max_batch_size")?,
        max_num_tokens: from.number("world_info", "max_num_tokens")?,
        max_input_length: from.number("engine", "max_input_length")?,
        max_sequence_length: from.number("engine", "max_sequence_length")?,
        scheduler_policy: from.text("world_info", "scheduling_policy")?,
        kv_memory_percentage: from.number("world_info", "kv_cache_percentage")?,
    })
}

/// Percentiles, with the mean that stands beside them where they have none.
fn with_mean(
    from: &Sections<'_>,
    (section, percentiles): (&str, &str),
    mean: &str,
) -> Result<Distribution, BenchReportError> {
    let distribution = from.distribution(section, percentiles)?;
    Ok(Distribution { avg: distribution.avg.or(from.number(section, mean)?), ..distribution })
}

/// The lengths of the data set. Requests can end early, so the mean is that of the tokens which were sent and generated.
fn lengths(
    from: &Sections<'_>,
    statistics: &str,
    of: &str,
    mean: Option<&str>,
) -> Result<Distribution, BenchReportError> {
    let dataset = from.distribution("dataset", statistics)?;
    let measured = mean.map_or(Ok(None), |mean| from.number("request_info", mean))?;
    let max = from.number("dataset", &format!("max_{of}"))?;
    let avg = from.number("dataset", &format!("avg_{of}"))?;
    Ok(Distribution { max: dataset.max.or(max), avg: measured.or(dataset.avg).or(avg), ..dataset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_json(report: Value) -> Result<BenchReport, BenchReportError> {
        parse(report.as_object().unwrap())
    }

    #[test]
    fn sections_and_values_may_be_null_or_missing() {
        let report = parse_json(serde_json::json!({
            "engine": {"model": "m", "engine_dir": "None", "backend": "Pytorch", "quantization": null},
            "machine": null,
            "world_info": {"tp_size": 4, "world_size": 4, "kv_cache_percentage": null},
            "performance": {
                "system_output_throughput_tok_s": 12.5,
                // Of a release without p90.
                "request_latency_percentiles_ms": {"p50": 1, "p95": 2, "p99": 3, "minimum": 0.5, "maximum": 4, "average": 1.5},
            },
            "streaming_metrics": null,
            "decoding_stats": {"mode": "Eagle", "acceptance_length_percentiles": {"p50": 2.5}, "num_draft_tokens_percentiles": null},
        }));
        let expected = BenchReport {
            metadata: BenchMetadata {
                model: Some("m".to_owned()),
                backend: Some("Pytorch".to_owned()),
                num_gpus: Some(4.0),
                decoding_mode: Some("Eagle".to_owned()),
                ..BenchMetadata::default()
            },
            performance: BenchPerformance { token_throughput_per_sec: Some(12.5), ..BenchPerformance::default() },
            latency_stats: BenchLatencies {
                e2e_ms: Distribution {
                    p50: Some(1.0),
                    p90: None,
                    p95: Some(2.0),
                    p99: Some(3.0),
                    min: Some(0.5),
                    max: Some(4.0),
                    avg: Some(1.5),
                },
                ..BenchLatencies::default()
            },
            configuration: BenchConfiguration { tp_size: Some(4.0), ..BenchConfiguration::default() },
            speculation: BenchSpeculation {
                acceptance_length: Distribution { p50: Some(2.5), ..Distribution::default() },
                ..BenchSpeculation::default()
            },
            ..BenchReport::default()
        };
        assert_eq!(report.unwrap(), expected);
    }

    #[test]
    fn a_number_that_is_text_is_an_error_with_its_key() {
        let report = serde_json::json!({"world_info": {}, "performance": {"total_latency_ms": "fast"}});
        let error = parse_json(report).unwrap_err().to_string();
        assert!(error.contains("performance.total_latency_ms is \"fast\", not a number"), "{error}");
    }

    /// The run of a small model on one GPU, reduced by its author.
    #[test]
    fn a_real_report_of_release_1_3_is_read() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_report_1.3.0rc12_gb10_REDUCED.json");
        let report = parse_json(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(report.metadata.gpu.as_deref(), Some("NVIDIA GB10"));
        assert_eq!(report.performance.token_throughput_per_sec, Some(3.37));
        assert_eq!((report.latency_stats.ttft_ms.avg, report.latency_stats.tbt_ms.p99), (Some(4533.1), Some(14.03)));
        assert_eq!((report.requests.count, report.requests.concurrent), (Some(1.0), Some(1.0)));
        let BenchEnergy { joules, output_tokens_per_joule, power_watts } = report.energy;
        assert_eq!((joules, output_tokens_per_joule, power_watts), (Some(56.1), Some(0.285), Some(11.83)));
        // Tokens per second and watt are tokens per joule.
        assert!((report.performance.token_throughput_per_sec.unwrap() / power_watts.unwrap() - 0.285).abs() < 1e-3);
        assert_eq!(report.input_output_stats.input_tokens.max, Some(64.0));
        assert_eq!(report.speculation, BenchSpeculation::default());
    }
}
