//! The JSON of the first report format: that of the metrics specification. No release writes it.

use serde_json::{Map, Value};

use trtllm_model::BenchReport;
use trtllm_model::bench_report::{BenchConfiguration, BenchLatencies, BenchLengths, BenchMetadata, BenchPerformance};

use super::BenchReportError;
use super::sections::{Sections, Statistics};

const STATISTICS: Statistics = ["p50", "p90", "p95", "p99", "min", "max", "avg"];

pub(super) fn parse(report: &Map<String, Value>) -> Result<BenchReport, BenchReportError> {
    let from = Sections { report, statistics: STATISTICS };
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
            kv_memory_percentage: from.number("configuration", "kv_memory_percentage")?,
            ..BenchConfiguration::default()
        },
        ..BenchReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_read_and_sections_may_be_missing() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_report.json");
        let mut report: Map<String, Value> = serde_json::from_str(text).unwrap();
        let read = parse(&report).unwrap();
        assert_eq!(read.performance.token_throughput_per_sec, Some(28390.4265));
        assert_eq!((read.latency_stats.ttft_ms.p99, read.configuration.tp_size), (Some(512.34), Some(2.0)));
        report.remove("metadata");
        report.insert("configuration".to_owned(), Value::Null);
        let read = parse(&report).unwrap();
        assert_eq!((read.metadata, read.configuration), (BenchMetadata::default(), BenchConfiguration::default()));
    }
}
