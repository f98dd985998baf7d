//! Parses a JSON report: that of `trtllm-bench … --report_json` since TensorRT-LLM 0.17, or one in the first report
//! format. A section or a value that is null counts as missing. An error names the key.

use serde_json::{Map, Value};

use trtllm_records::BenchReport;
use trtllm_records::bench_report::{
    BenchConfiguration, BenchEnergy, BenchLatencies, BenchLengths, BenchMetadata, BenchPerformance, BenchRequests,
    BenchSpeculation, Percentiles,
};

use super::BenchReportError;

/// Limit of the characters that an error quotes of a value.
const MAX_QUOTE: usize = 40;

/// A report, and the keys of its distributions in the order of the fields of [`Percentiles`].
struct Sections<'a> {
    report: &'a Map<String, Value>,
    statistics: [&'static str; 7],
}

/// Parses a report. Leaves out paths, the memory of the GPU, and `issue_rate`, whose values are nanoseconds × 10⁹.
/// Which keys exist depends on the mode, backend and release. Fails if a value has another type, or is below 0.
pub(super) fn parse(report: &Map<String, Value>) -> Result<BenchReport, BenchReportError> {
    // Older releases have no `p90`.
    let from = Sections { report, statistics: ["p50", "p90", "p95", "p99", "minimum", "maximum", "average"] };
    Ok(BenchReport {
        metadata: BenchMetadata {
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
        },
        performance: BenchPerformance {
            token_throughput_per_sec: from.number("performance", "system_output_throughput_tok_s")?,
            total_token_throughput_per_sec: from.number("performance", "system_total_throughput_tok_s")?,
            request_throughput_per_sec: from.number("performance", "request_throughput_req_s")?,
            total_latency_ms: from.number("performance", "total_latency_ms")?,
            gpu_token_throughput_per_sec: from.number("performance", "output_throughput_per_gpu_tok_s")?,
            user_token_throughput_per_sec: from.number("performance", "output_throughput_per_user_tok_s")?,
            user_generation_per_sec: from.with_mean(
                "streaming_metrics",
                "gen_tps_percentiles",
                "token_output_speed_tok_s",
            )?,
        },
        latency_stats: BenchLatencies {
            ttft_ms: from.with_mean("streaming_metrics", "ttft_percentiles", "avg_ttft_ms")?,
            tbt_ms: from.with_mean("streaming_metrics", "tpot_percentiles", "avg_tpot_ms")?,
            e2e_ms: from.with_mean("performance", "request_latency_percentiles_ms", "avg_request_latency_ms")?,
        },
        input_output_stats: BenchLengths {
            input_tokens: from.lengths("isl_stats", "isl", Some("avg_input_length"))?,
            output_tokens: from.lengths("osl_stats", "osl", Some("avg_output_length"))?,
            sequence_tokens: from.lengths("seq_len_stats", "sequence_length", None)?,
        },
        configuration: BenchConfiguration {
            tp_size: from.number("world_info", "tp_size")?,
            pp_size: from.number("world_info", "pp_size")?,
            ep_size: from.number("world_info", "ep_size")?,
            max_batch_size: from.number("world_info", "max_batch_size")?,
            max_num_tokens: from.number("world_info", "max_num_tokens")?,
            max_input_length: from.number("engine", "max_input_length")?,
            max_sequence_length: from.number("engine", "max_sequence_length")?,
            scheduler_policy: from.text("world_info", "scheduling_policy")?,
            kv_memory_percentage: from.number("world_info", "kv_cache_percentage")?.map(share),
        },
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

/// Parses the first format. The metrics specification defines it, and no release writes it. Fails like [`parse`].
pub(super) fn parse_first_format(report: &Map<String, Value>) -> Result<BenchReport, BenchReportError> {
    let from = Sections { report, statistics: ["p50", "p90", "p95", "p99", "min", "max", "avg"] };
    Ok(BenchReport {
        metadata: BenchMetadata {
            model: from.text("metadata", "model")?,
            timestamp: from.text("metadata", "timestamp")?,
            gpu: from.text("metadata", "gpu")?,
            num_gpus: from.number("metadata", "num_gpus")?,
            ..BenchMetadata::default()
        },
        performance: BenchPerformance {
            token_throughput_per_sec: from.number("performance", "token_throughput_per_sec")?,
            request_throughput_per_sec: from.number("performance", "request_throughput_per_sec")?,
            total_latency_ms: from.number("performance", "total_latency_ms")?,
            ..BenchPerformance::default()
        },
        latency_stats: BenchLatencies {
            ttft_ms: from.distribution("latency_stats", "ttft_ms")?,
            tbt_ms: from.distribution("latency_stats", "tbt_ms")?,
            e2e_ms: from.distribution("latency_stats", "e2e_ms")?,
        },
        input_output_stats: BenchLengths {
            input_tokens: from.distribution("input_output_stats", "input_tokens")?,
            output_tokens: from.distribution("input_output_stats", "output_tokens")?,
            ..BenchLengths::default()
        },
        configuration: BenchConfiguration {
            tp_size: from.number("configuration", "tp_size")?,
            pp_size: from.number("configuration", "pp_size")?,
            max_batch_size: from.number("configuration", "max_batch_size")?,
            max_num_tokens: from.number("configuration", "max_num_tokens")?,
            scheduler_policy: from.text("configuration", "scheduler_policy")?,
            kv_memory_percentage: from.number("configuration", "kv_memory_percentage")?.map(share),
            ..BenchConfiguration::default()
        },
        ..BenchReport::default()
    })
}

impl Sections<'_> {
    /// Fails if the value is not a finite number, or is below 0.
    fn number(&self, section: &str, key: &str) -> Result<Option<f64>, BenchReportError> {
        self.value(section, key)?.map(|value| number(value, &[section, key])).transpose()
    }

    /// Fails if the value is not a string.
    fn text(&self, section: &str, key: &str) -> Result<Option<String>, BenchReportError> {
        match self.value(section, key)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(invalid(&[section, key], other, "a string")),
        }
    }

    /// Fails if the value is not an object, or has a value that is not a number.
    fn distribution(&self, section: &str, key: &str) -> Result<Percentiles, BenchReportError> {
        let values = match self.value(section, key)? {
            None => return Ok(Percentiles::default()),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(invalid(&[section, key], other, "an object")),
        };
        let [p50, p90, p95, p99, min, max, avg] = self.statistics.map(|name| {
            let value = values.get(name).filter(|value| !value.is_null());
            value.map(|value| number(value, &[section, key, name])).transpose()
        });
        Ok(Percentiles { p50: p50?, p90: p90?, p95: p95?, p99: p99?, min: min?, max: max?, avg: avg? })
    }

    /// Reads percentiles. If they have no mean, it is read from the section's key `mean`.
    fn with_mean(&self, section: &str, percentiles: &str, mean: &str) -> Result<Percentiles, BenchReportError> {
        let distribution = self.distribution(section, percentiles)?;
        Ok(Percentiles { avg: distribution.avg.or(self.number(section, mean)?), ..distribution })
    }

    /// The lengths in the data set. Requests can end early, so the measured mean of their tokens has priority.
    fn lengths(&self, statistics: &str, of: &str, mean: Option<&str>) -> Result<Percentiles, BenchReportError> {
        let dataset = self.distribution("dataset", statistics)?;
        let measured = mean.map_or(Ok(None), |mean| self.number("request_info", mean))?;
        let max = self.number("dataset", &format!("max_{of}"))?;
        let avg = self.number("dataset", &format!("avg_{of}"))?;
        Ok(Percentiles { max: dataset.max.or(max), avg: measured.or(dataset.avg).or(avg), ..dataset })
    }

    fn value(&self, section: &str, key: &str) -> Result<Option<&Value>, BenchReportError> {
        match self.report.get(section) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(values)) => Ok(values.get(key).filter(|value| !value.is_null())),
            Some(other) => Err(invalid(&[section], other, "an object")),
        }
    }
}

/// A share of the GPU's memory. Release 0.20 writes 80, where others write 0.8.
fn share(number: f64) -> f64 {
    if number > 1.0 { number / 100.0 } else { number }
}

fn number(value: &Value, path: &[&str]) -> Result<f64, BenchReportError> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| invalid(path, value, "a number of 0 or more"))
}

fn invalid(path: &[&str], value: &Value, expected: &str) -> BenchReportError {
    let found = value.to_string();
    let mut quoted: String = found.chars().take(MAX_QUOTE).collect();
    if quoted.len() < found.len() {
        quoted.push('…');
    }
    BenchReportError::Invalid(format!("{} is {quoted}, not {expected}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_json(report: Value) -> Result<BenchReport, BenchReportError> {
        parse(report.as_object().unwrap())
    }

    #[test]
    fn a_percentage_of_the_memory_is_a_share_of_it() {
        for (written, share) in [(80.0, 0.8), (95.0, 0.95), (0.9, 0.9), (1.0, 1.0), (0.0, 0.0)] {
            let report = parse_json(serde_json::json!({"world_info": {"kv_cache_percentage": written}}));
            assert_eq!(report.unwrap().configuration.kv_memory_percentage, Some(share), "{written}");
            let first = serde_json::json!({"performance": {}, "configuration": {"kv_memory_percentage": written}});
            assert_eq!(
                parse_first_format(first.as_object().unwrap()).unwrap().configuration.kv_memory_percentage,
                Some(share),
                "{written}"
            );
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
    fn the_example_of_the_specification_is_read_and_sections_may_be_missing() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_report.json");
        let mut report: Map<String, Value> = serde_json::from_str(text).unwrap();
        let read = parse_first_format(&report).unwrap();
        assert_eq!(read.performance.token_throughput_per_sec, Some(28390.4265));
        assert_eq!((read.latency_stats.ttft_ms.p99, read.configuration.tp_size), (Some(512.34), Some(2.0)));
        report.remove("metadata");
        report.insert("configuration".to_owned(), Value::Null);
        let read = parse_first_format(&report).unwrap();
        assert_eq!((read.metadata, read.configuration), (BenchMetadata::default(), BenchConfiguration::default()));
    }

    fn of(report: &Value) -> Sections<'_> {
        Sections { report: report.as_object().unwrap(), statistics: ["p50", "p90", "p95", "p99", "min", "max", "avg"] }
    }

    #[test]
    fn what_is_null_or_missing_is_absent() {
        let report = serde_json::json!({"a": null, "b": {"x": null, "d": {"p50": null, "max": 3}}});
        let report = of(&report);
        for (section, key) in [("a", "x"), ("b", "x"), ("b", "y"), ("c", "x")] {
            assert_eq!(report.number(section, key), Ok(None));
            assert_eq!(report.text(section, key), Ok(None));
            assert_eq!(report.distribution(section, key), Ok(Percentiles::default()));
        }
        assert_eq!(report.distribution("b", "d"), Ok(Percentiles { max: Some(3.0), ..Percentiles::default() }));
    }

    #[test]
    fn an_error_names_the_key_and_what_it_should_be() {
        let long = "x".repeat(500);
        let report = serde_json::json!({"a": 7, "b": {"x": "fast", "y": -1, "z": [long], "d": {"p50": true}}});
        let report = of(&report);
        for (error, words) in [
            (report.number("a", "x").unwrap_err(), "a is 7, not an object"),
            (report.number("b", "x").unwrap_err(), "b.x is \"fast\", not a number of 0 or more"),
            (report.number("b", "y").unwrap_err(), "b.y is -1, not a number of 0 or more"),
            (report.text("b", "y").unwrap_err(), "b.y is -1, not a string"),
            (report.distribution("b", "x").unwrap_err(), "b.x is \"fast\", not an object"),
            (report.distribution("b", "d").unwrap_err(), "b.d.p50 is true, not a number of 0 or more"),
        ] {
            assert_eq!(error, BenchReportError::Invalid(words.to_owned()));
        }
        assert!(report.text("b", "z").unwrap_err().to_string().len() < 120);
    }
}
