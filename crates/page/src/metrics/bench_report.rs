//! Writes those families of a benchmark report that have several series, in base units.

use trtllm_records::BenchReport;
use trtllm_records::bench_report::Percentiles;

use super::catalog::Id;
use super::writer::EngineWriter;

/// Longest value of a label, in characters.
const MAX_LABEL: usize = 64;

impl EngineWriter<'_> {
    pub(super) fn bench_report(&mut self, report: &BenchReport) {
        let BenchReport {
            metadata, performance, latency_stats, input_output_stats, configuration, speculation, ..
        } = report;
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
            self.named(family, statistics(distribution, unit));
        }
        let settings = [
            ("num_gpus", metadata.num_gpus),
            ("tp_size", configuration.tp_size),
            ("pp_size", configuration.pp_size),
            ("ep_size", configuration.ep_size),
            ("max_batch_size", configuration.max_batch_size),
            ("max_num_tokens", configuration.max_num_tokens),
            ("max_input_length", configuration.max_input_length),
            ("max_sequence_length", configuration.max_sequence_length),
            ("kv_memory_ratio", configuration.kv_memory_percentage),
        ];
        self.named(Id::BenchConfig, settings);
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
        self.with(Id::BenchInfo, labels, 1_u64);
    }
}

/// `unit`: how many of the report's units make one base unit.
fn statistics(distribution: Percentiles, unit: f64) -> [(&'static str, Option<f64>); 7] {
    let Percentiles { p50, p90, p95, p99, min, max, avg } = distribution;
    [("p50", p50), ("p90", p90), ("p95", p95), ("p99", p99), ("min", min), ("max", max), ("avg", avg)]
        .map(|(name, value)| (name, value.map(|value| value / unit)))
}
