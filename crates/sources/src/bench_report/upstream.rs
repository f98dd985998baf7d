//! The JSON of `trtllm-bench … --report_json` since TensorRT-LLM 0.17. Sections and values are null or missing where a mode, a
//! backend or a release does not have them.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use trtllm_model::BenchReport;
use trtllm_model::bench_report::{
    BenchConfiguration, BenchEnergy, BenchLatencies, BenchLengths, BenchMetadata, BenchPerformance, BenchRequests,
    BenchSpeculation, Distribution,
};

pub(super) fn parse(report: Value) -> serde_json::Result<BenchReport> {
    Report::deserialize(report).map(BenchReport::from)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    #[serde(deserialize_with = "or_default")]
    engine: Engine,
    #[serde(deserialize_with = "or_default")]
    machine: Machine,
    #[serde(deserialize_with = "or_default")]
    world_info: World,
    #[serde(deserialize_with = "or_default")]
    request_info: Requests,
    #[serde(deserialize_with = "or_default")]
    performance: Performance,
    #[serde(deserialize_with = "or_default")]
    streaming_metrics: Streaming,
    #[serde(deserialize_with = "or_default")]
    decoding_stats: Decoding,
    #[serde(deserialize_with = "or_default")]
    dataset: Dataset,
    #[serde(deserialize_with = "or_default")]
    energy: Energy,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Engine {
    model: Option<String>,
    version: Option<String>,
    backend: Option<String>,
    quantization: Option<String>,
    kv_cache_dtype: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Machine {
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct World {
    tp_size: Option<f64>,
    pp_size: Option<f64>,
    ep_size: Option<f64>,
    world_size: Option<f64>,
    max_batch_size: Option<f64>,
    max_num_tokens: Option<f64>,
    scheduling_policy: Option<String>,
    kv_cache_percentage: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Requests {
    num_requests: Option<f64>,
    avg_num_concurrent_requests: Option<f64>,
    avg_input_length: Option<f64>,
    avg_output_length: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Performance {
    total_latency_ms: Option<f64>,
    avg_request_latency_ms: Option<f64>,
    request_throughput_req_s: Option<f64>,
    system_output_throughput_tok_s: Option<f64>,
    system_total_throughput_tok_s: Option<f64>,
    request_latency_percentiles_ms: Option<Percentiles>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Streaming {
    avg_ttft_ms: Option<f64>,
    avg_tpot_ms: Option<f64>,
    ttft_percentiles: Option<Percentiles>,
    tpot_percentiles: Option<Percentiles>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Decoding {
    num_draft_tokens_percentiles: Option<Percentiles>,
    num_accepted_draft_tokens_percentiles: Option<Percentiles>,
    draft_acceptance_rate_percentiles: Option<Percentiles>,
    acceptance_length_percentiles: Option<Percentiles>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Dataset {
    isl_stats: Option<Percentiles>,
    osl_stats: Option<Percentiles>,
    avg_isl: Option<f64>,
    avg_osl: Option<f64>,
    max_isl: Option<f64>,
    max_osl: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Energy {
    total_energy_j: Option<f64>,
    output_tps_per_w: Option<f64>,
    average_gpu_power: Option<f64>,
}

/// Older releases have no `p90`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Percentiles {
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    average: Option<f64>,
}

/// The mean and the maximum, where the report has them outside of the percentiles.
fn distribution(percentiles: Option<Percentiles>, avg: Option<f64>, max: Option<f64>) -> Distribution {
    let Percentiles { p50, p90, p95, p99, minimum, maximum, average } = percentiles.unwrap_or_default();
    Distribution { p50, p90, p95, p99, min: minimum, max: maximum.or(max), avg: average.or(avg) }
}

impl From<Report> for BenchReport {
    fn from(report: Report) -> Self {
        let Report { engine, machine, world_info, request_info, performance, streaming_metrics, .. } = report;
        let Report { decoding_stats, dataset, energy, .. } = report;
        let plain = |percentiles| distribution(percentiles, None, None);
        Self {
            metadata: BenchMetadata {
                model: engine.model,
                timestamp: None,
                gpu: machine.name,
                num_gpus: world_info.world_size,
                version: engine.version,
                backend: engine.backend,
                quantization: engine.quantization,
                kv_cache_dtype: engine.kv_cache_dtype,
            },
            performance: BenchPerformance {
                token_throughput_per_sec: performance.system_output_throughput_tok_s,
                total_token_throughput_per_sec: performance.system_total_throughput_tok_s,
                request_throughput_per_sec: performance.request_throughput_req_s,
                total_latency_ms: performance.total_latency_ms,
            },
            latency_stats: BenchLatencies {
                ttft_ms: distribution(streaming_metrics.ttft_percentiles, streaming_metrics.avg_ttft_ms, None),
                tbt_ms: distribution(streaming_metrics.tpot_percentiles, streaming_metrics.avg_tpot_ms, None),
                e2e_ms: distribution(
                    performance.request_latency_percentiles_ms,
                    performance.avg_request_latency_ms,
                    None,
                ),
            },
            input_output_stats: BenchLengths {
                input_tokens: distribution(
                    dataset.isl_stats,
                    request_info.avg_input_length.or(dataset.avg_isl),
                    dataset.max_isl,
                ),
                output_tokens: distribution(
                    dataset.osl_stats,
                    request_info.avg_output_length.or(dataset.avg_osl),
                    dataset.max_osl,
                ),
            },
            configuration: BenchConfiguration {
                tp_size: world_info.tp_size,
                pp_size: world_info.pp_size,
                ep_size: world_info.ep_size,
                max_batch_size: world_info.max_batch_size,
                max_num_tokens: world_info.max_num_tokens,
                scheduler_policy: world_info.scheduling_policy,
                kv_memory_percentage: world_info.kv_cache_percentage,
            },
            requests: BenchRequests {
                count: request_info.num_requests,
                concurrent: request_info.avg_num_concurrent_requests,
            },
            energy: BenchEnergy {
                joules: energy.total_energy_j,
                output_tokens_per_joule: energy.output_tps_per_w,
                power_watts: energy.average_gpu_power,
            },
            speculation: BenchSpeculation {
                draft_tokens: plain(decoding_stats.num_draft_tokens_percentiles),
                accepted_tokens: plain(decoding_stats.num_accepted_draft_tokens_percentiles),
                acceptance_ratio: plain(decoding_stats.draft_acceptance_rate_percentiles),
                acceptance_length: plain(decoding_stats.acceptance_length_percentiles),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_values_may_be_null_or_missing() {
        let report = parse(serde_json::json!({
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
    fn a_number_that_is_text_is_an_error() {
        let report = serde_json::json!({"world_info": {}, "performance": {"total_latency_ms": "fast"}});
        assert!(parse(report).unwrap_err().to_string().contains("fast"));
    }
}
