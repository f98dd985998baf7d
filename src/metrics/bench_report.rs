//! A benchmark's numbers beside the live ones, in base units.

use std::sync::Arc;

use crate::model::BenchReport;
use crate::model::bench_report::Distribution;

use super::catalog::Id;
use super::engine::Writer;

impl Writer<'_> {
    pub(super) fn bench_report(&mut self, report: &BenchReport) {
        let BenchReport { metadata, performance, latency_stats, input_output_stats, configuration } = report;
        self.put(Id::BenchTokenRate, 0, performance.token_throughput_per_sec);
        self.put(Id::BenchRequestRate, 0, performance.request_throughput_per_sec);
        self.put(Id::BenchDuration, 0, performance.total_latency_ms.map(|ms| ms / 1000.0));
        for (metric, distribution, unit) in [
            (Id::BenchTimeToFirstToken, latency_stats.ttft_ms, 1000.0),
            (Id::BenchTimePerOutputToken, latency_stats.tbt_ms, 1000.0),
            (Id::BenchE2eLatency, latency_stats.e2e_ms, 1000.0),
            (Id::BenchInputTokens, input_output_stats.input_tokens, 1.0),
            (Id::BenchOutputTokens, input_output_stats.output_tokens, 1.0),
        ] {
            let Distribution { p50, p90, p95, p99, min, max, avg } = distribution;
            for (at, value) in [p50, p90, p95, p99, min, max, avg].into_iter().enumerate() {
                self.put(metric, at, value.map(|value| value / unit));
            }
        }
        for (at, value) in [
            metadata.num_gpus,
            configuration.tp_size,
            configuration.pp_size,
            configuration.max_batch_size,
            configuration.max_num_tokens,
            configuration.kv_memory_percentage,
        ]
        .into_iter()
        .enumerate()
        {
            self.put(Id::BenchConfig, at, value);
        }
        let labels = [
            ("bench_model", &metadata.model),
            ("bench_timestamp", &metadata.timestamp),
            ("gpu_name", &metadata.gpu),
            ("scheduler_policy", &configuration.scheduler_policy),
        ];
        let labels = labels.iter().fold(self.series.base().clone(), |base, (name, value)| {
            base.with(name, value.as_deref().unwrap_or("unknown"))
        });
        self.page.push(Id::BenchInfo, &Arc::new(labels), 1_u64);
    }
}
