//! Where a report has each number: in the JSON of `trtllm-bench … --report_json` since TensorRT-LLM 0.17, and in the text that the
//! program prints. A section or a value that is null counts as missing. An error names the key.

use serde_json::{Map, Value};

use trtllm_records::BenchReport;
use trtllm_records::bench_report::{
    BenchConfiguration, BenchEnergy, BenchLatencies, BenchLengths, BenchMetadata, BenchPerformance, BenchRequests,
    BenchSpeculation, Percentiles,
};

use super::BenchReportError;
use crate::error::shortened;

/// Limit of the characters that an error quotes of a value.
const MAX_QUOTE: usize = 40;

/// The values of a report. JSON has `section.key`. What trtllm-bench prints has names without a section, such as `TP Size`.
pub(super) struct Values(pub(super) Map<String, Value>);

impl Values {
    /// Leaves out paths, the memory of the GPU, and `issue_rate`, whose values are nanoseconds × 10⁹. Which values exist depends
    /// on the mode, backend and release. Fails if a value of the JSON has another type, or is below 0.
    pub(super) fn report(&self) -> Result<BenchReport, BenchReportError> {
        let decoding = |key: &str| self.percentiles(&format!("decoding_stats.{key}"), "", &[]);
        Ok(BenchReport {
            metadata: BenchMetadata {
                model: self.text(&["engine.model", "Model"])?,
                timestamp: None,
                gpu: self.text(&["machine.name"])?,
                num_gpus: self.number(&["world_info.world_size"])?,
                version: self.text(&["engine.version", "TensorRT LLM Version", "TensorRT-LLM Version"])?,
                backend: self.text(&["engine.backend"])?,
                dtype: self.text(&["engine.dtype", "Dtype"])?,
                quantization: self.text(&["engine.quantization", "Quantization"])?,
                kv_cache_dtype: self.text(&["engine.kv_cache_dtype", "KV Cache Dtype"])?,
                decoding_mode: self.text(&["decoding_stats.mode"])?,
            },
            performance: BenchPerformance {
                token_throughput_per_sec: self.number(&[
                    "performance.system_output_throughput_tok_s",
                    "Total Output Throughput (tokens/sec)",
                    // Up to 0.16, the only throughput of tokens is that of output tokens.
                    "Token Throughput (tokens/sec)",
                ])?,
                total_token_throughput_per_sec: self
                    .number(&["performance.system_total_throughput_tok_s", "Total Token Throughput (tokens/sec)"])?,
                request_throughput_per_sec: self
                    .number(&["performance.request_throughput_req_s", "Request Throughput (req/sec)"])?,
                total_latency_ms: self.number(&["performance.total_latency_ms", "Total Latency (ms)"])?,
                gpu_token_throughput_per_sec: self
                    .number(&["performance.output_throughput_per_gpu_tok_s", "Per GPU Output Throughput (tps/gpu)"])?,
                user_token_throughput_per_sec: self.number(&[
                    "performance.output_throughput_per_user_tok_s",
                    "Per User Output Throughput [w/ ctx] (tps/user)",
                ])?,
                user_generation_per_sec: self.percentiles(
                    "streaming_metrics.gen_tps_percentiles",
                    "[GTPS]",
                    &["streaming_metrics.token_output_speed_tok_s", "Per User Output Speed (tps/user)"],
                )?,
            },
            latency_stats: BenchLatencies {
                ttft_ms: self.percentiles(
                    "streaming_metrics.ttft_percentiles",
                    "[TTFT]",
                    &["streaming_metrics.avg_ttft_ms", "Average time-to-first-token [TTFT] (ms)"],
                )?,
                tbt_ms: self.percentiles(
                    "streaming_metrics.tpot_percentiles",
                    "[TPOT]",
                    &["streaming_metrics.avg_tpot_ms", "Average time-per-output-token [TPOT] (ms)"],
                )?,
                e2e_ms: self.percentiles(
                    "performance.request_latency_percentiles_ms",
                    "[Latency]",
                    &["performance.avg_request_latency_ms", "Average request latency (ms)"],
                )?,
            },
            input_output_stats: BenchLengths {
                input_tokens: self
                    .lengths("isl", &["request_info.avg_input_length", "Average Input Length (tokens)"])?,
                output_tokens: self
                    .lengths("osl", &["request_info.avg_output_length", "Average Output Length (tokens)"])?,
                sequence_tokens: self.lengths("sequence_length", &[])?,
            },
            configuration: BenchConfiguration {
                tp_size: self.number(&["world_info.tp_size", "TP Size"])?,
                pp_size: self.number(&["world_info.pp_size", "PP Size"])?,
                ep_size: self.number(&["world_info.ep_size", "EP Size"])?,
                max_batch_size: self.number(&["world_info.max_batch_size", "Max Runtime Batch Size"])?,
                max_num_tokens: self.number(&["world_info.max_num_tokens", "Max Runtime Tokens"])?,
                max_input_length: self.number(&["engine.max_input_length", "Max Input Length"])?,
                max_sequence_length: self.number(&["engine.max_sequence_length", "Max Sequence Length"])?,
                scheduler_policy: self.text(&["world_info.scheduling_policy", "Scheduling Policy"])?,
                // Release 0.20 writes 80, and the text says 80 %, where others write 0.8.
                kv_memory_percentage: self
                    .number(&["world_info.kv_cache_percentage", "KV Memory Percentage"])?
                    .map(|share| if share > 1.0 { share / 100.0 } else { share }),
            },
            requests: BenchRequests {
                count: self.number(&["request_info.num_requests", "dataset.num_requests", "Number of requests"])?,
                concurrent: self.number(&[
                    "request_info.avg_num_concurrent_requests",
                    "Average Concurrent Requests",
                    "Number of concurrent requests",
                ])?,
            },
            energy: BenchEnergy {
                joules: self.number(&["energy.total_energy_j"])?,
                output_tokens_per_joule: self.number(&["energy.output_tps_per_w"])?,
                power_watts: self.number(&["energy.average_gpu_power"])?,
            },
            speculation: BenchSpeculation {
                draft_tokens: decoding("num_draft_tokens_percentiles")?,
                accepted_tokens: decoding("num_accepted_draft_tokens_percentiles")?,
                acceptance_ratio: decoding("draft_acceptance_rate_percentiles")?,
                acceptance_length: decoding("acceptance_length_percentiles")?,
            },
        })
    }

    /// The value with the first of these names that has one. Fails if its section is not an object.
    fn find<'n>(&self, names: &[&'n str]) -> Result<Option<(&'n str, &Value)>, BenchReportError> {
        for &name in names {
            let value = match name.split_once('.') {
                None => self.0.get(name),
                Some((section, key)) => match self.0.get(section) {
                    None | Some(Value::Null) => None,
                    Some(Value::Object(values)) => values.get(key),
                    Some(other) => return Err(invalid(section, other, "an object")),
                },
            };
            if let Some(value) = value.filter(|value| !value.is_null()) {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    /// Fails if the value is not a finite number, or is below 0.
    fn number(&self, names: &[&str]) -> Result<Option<f64>, BenchReportError> {
        self.find(names)?.map(|(name, value)| number(name, value)).transpose()
    }

    /// Fails if the value is not a string.
    fn text(&self, names: &[&str]) -> Result<Option<String>, BenchReportError> {
        match self.find(names)? {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((name, other)) => Err(invalid(name, other, "a string")),
        }
    }

    /// The distribution `key` of the JSON, or `printed` of the text. If it has no mean, that is one of `means`. Fails if it is not an
    /// object, or has a value that is not a number.
    fn percentiles(&self, key: &str, printed: &str, means: &[&str]) -> Result<Percentiles, BenchReportError> {
        let none = Map::new();
        let (of, values) = match self.find(&[key, printed])? {
            None => (key, &none),
            Some((of, Value::Object(values))) => (of, values),
            Some((name, other)) => return Err(invalid(name, other, "an object")),
        };
        let statistic = |name: &str| {
            let value = values.get(name).filter(|value| !value.is_null());
            value.map(|value| number(&format!("{of}.{name}"), value)).transpose()
        };
        Ok(Percentiles {
            p50: statistic("p50")?,
            // Older releases have none.
            p90: statistic("p90")?,
            p95: statistic("p95")?,
            p99: statistic("p99")?,
            min: statistic("minimum")?,
            max: statistic("maximum")?,
            avg: statistic("average")?.or(self.number(means)?),
        })
    }

    /// The lengths in the data set. Requests can end early, so the measured mean of their tokens has priority.
    fn lengths(&self, of: &str, measured: &[&str]) -> Result<Percentiles, BenchReportError> {
        let statistics = if of == "sequence_length" { "seq_len" } else { of };
        let mean = format!("dataset.avg_{of}");
        let dataset = self.percentiles(&format!("dataset.{statistics}_stats"), "", &[&mean])?;
        let max = self.number(&[&format!("dataset.max_{of}")])?;
        Ok(Percentiles { max: dataset.max.or(max), avg: self.number(measured)?.or(dataset.avg), ..dataset })
    }
}

fn number(name: &str, value: &Value) -> Result<f64, BenchReportError> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| invalid(name, value, "a number of 0 or more"))
}

fn invalid(name: &str, value: &Value, expected: &str) -> BenchReportError {
    let found = shortened(&value.to_string(), MAX_QUOTE);
    BenchReportError::Invalid(format!("{name} is {found}, not {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(report: Value) -> Values {
        serde_json::from_value(report).map(Values).unwrap()
    }

    fn parse_json(report: Value) -> Result<BenchReport, BenchReportError> {
        values(report).report()
    }

    #[test]
    fn a_percentage_of_the_memory_is_a_share_of_it() {
        for (written, share) in [(80.0, 0.8), (95.0, 0.95), (0.9, 0.9), (1.0, 1.0), (0.0, 0.0)] {
            let report = parse_json(serde_json::json!({"world_info": {"kv_cache_percentage": written}}));
            assert_eq!(report.unwrap().configuration.kv_memory_percentage, Some(share), "{written}");
        }
    }

    /// The report of a small model on one GPU. Its author had shortened it.
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

    #[test]
    fn what_is_null_or_missing_is_absent() {
        let report = values(serde_json::json!({"a": null, "b": {"x": null, "d": {"p50": null, "maximum": 3}}}));
        for name in ["a.x", "b.x", "b.y", "c.x", "c"] {
            assert_eq!(report.number(&[name]), Ok(None));
            assert_eq!(report.text(&[name]), Ok(None));
            assert_eq!(report.percentiles(name, "", &[]), Ok(Percentiles::default()));
        }
        let most = Percentiles { max: Some(3.0), ..Percentiles::default() };
        assert_eq!(report.percentiles("b.d", "", &[]), Ok(most));
    }

    #[test]
    fn an_error_names_the_key_and_what_it_should_be() {
        let long = "x".repeat(500);
        let report = values(serde_json::json!({"a": 7, "b": {"x": "fast", "y": -1, "z": [long], "d": {"p50": true}}}));
        for (error, words) in [
            (report.number(&["a.x"]).unwrap_err(), "a is 7, not an object"),
            (report.number(&["b.x"]).unwrap_err(), "b.x is \"fast\", not a number of 0 or more"),
            (report.number(&["b.y"]).unwrap_err(), "b.y is -1, not a number of 0 or more"),
            (report.text(&["b.y"]).unwrap_err(), "b.y is -1, not a string"),
            (report.percentiles("b.x", "", &[]).unwrap_err(), "b.x is \"fast\", not an object"),
            (report.percentiles("b.d", "", &[]).unwrap_err(), "b.d.p50 is true, not a number of 0 or more"),
        ] {
            assert_eq!(error, BenchReportError::Invalid(words.to_owned()));
        }
        assert!(report.text(&["b.z"]).unwrap_err().to_string().len() < 120);
    }
}
