//! The numbers of a benchmark report, in base units.

use std::sync::Arc;

use trtllm_model::BenchReport;
use trtllm_model::bench_report::Distribution;

use super::catalog::Id;
use super::catalog::table::benchmark::{BenchSettings, BenchStatistics};
use super::page::Labels;
use super::writer::SampleWriter;

/// Characters of a label's value.
const MAX_LABEL: usize = 64;

impl SampleWriter<'_> {
    pub(super) fn bench_report(&mut self, report: &BenchReport) {
        let BenchReport { metadata, performance, latency_stats, input_output_stats, configuration, .. } = report;
        let BenchReport { requests, energy, speculation, .. } = report;
        self.put(Id::BenchTokenRate, performance.token_throughput_per_sec);
        self.put(Id::BenchTotalTokenRate, performance.total_token_throughput_per_sec);
        self.put(Id::BenchGpuTokenRate, performance.gpu_token_throughput_per_sec);
        self.put(Id::BenchUserTokenRate, performance.user_token_throughput_per_sec);
        self.put(Id::BenchRequestRate, performance.request_throughput_per_sec);
        self.put(Id::BenchDuration, performance.total_latency_ms.map(|ms| ms / 1000.0));
        self.put(Id::BenchRequests, requests.count);
        self.put(Id::BenchConcurrentRequests, requests.concurrent);
        for (family, distribution, unit) in [
            (Id::BenchTimeToFirstToken, latency_stats.ttft_ms, 1000.0),
            (Id::BenchTimePerOutputToken, latency_stats.tbt_ms, 1000.0),
            (Id::BenchE2eLatency, latency_stats.e2e_ms, 1000.0),
            (Id::BenchInputTokens, input_output_stats.input_tokens, 1.0),
            (Id::BenchOutputTokens, input_output_stats.output_tokens, 1.0),
            (Id::BenchSequenceTokens, input_output_stats.sequence_tokens, 1.0),
            (Id::BenchUserGenerationRate, performance.user_generation_per_sec, 1.0),
            (Id::BenchSpecDraftTokens, speculation.draft_tokens, 1.0),
            (Id::BenchSpecAcceptedTokens, speculation.accepted_tokens, 1.0),
            (Id::BenchSpecAcceptanceRatio, speculation.acceptance_ratio, 1.0),
            (Id::BenchSpecAcceptanceLength, speculation.acceptance_length, 1.0),
        ] {
            self.each(family, statistics(distribution, unit));
        }
        self.put(Id::BenchEnergy, energy.joules);
        self.put(Id::BenchTokensPerJoule, energy.output_tokens_per_joule);
        self.put(Id::BenchPower, energy.power_watts);
        let settings = BenchSettings {
            gpus: metadata.num_gpus,
            tensor_parallel: configuration.tp_size,
            pipeline_parallel: configuration.pp_size,
            expert_parallel: configuration.ep_size,
            max_batch_size: configuration.max_batch_size,
            max_tokens: configuration.max_num_tokens,
            max_input_length: configuration.max_input_length,
            max_sequence_length: configuration.max_sequence_length,
            kv_memory: configuration.kv_memory_percentage,
        };
        self.each(Id::BenchConfig, settings);
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
        let short = |value: &Option<String>| value.as_ref().map(|value| value.chars().take(MAX_LABEL).collect());
        let labels = labels.map(|(name, value)| (name, short(value).unwrap_or_else(|| "unknown".to_owned())));
        self.page.push(Id::BenchInfo, &Arc::new(Labels::extend(self.labels.base(), labels)), 1_u64);
    }
}

fn statistics(distribution: Distribution, unit: f64) -> BenchStatistics {
    let Distribution { p50, p90, p95, p99, min, max, avg } = distribution;
    let base = |value: Option<f64>| value.map(|value| value / unit);
    BenchStatistics {
        p50: base(p50),
        p90: base(p90),
        p95: base(p95),
        p99: base(p99),
        min: base(min),
        max: base(max),
        avg: base(avg),
    }
}
