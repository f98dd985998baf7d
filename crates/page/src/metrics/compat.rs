//! Writes an engine's values under other exporters' names. Each value has the meaning that the other exporter gives it, as far
//! as TensorRT-LLM's statistics allow: trtllm-serve's "running" is not Triton's "scheduled". All name sets are off by default.

use trtllm_engines::Engine;
use trtllm_fold::Latest;
use trtllm_fold::cache_tiers::{CachedTokens, LevelTokens, MAX_LEVELS, TierNumbers};
use trtllm_fold::request_totals::RequestTotals;
use trtllm_records::named_numbers::NamedNumbers as _;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::ConfigSection;

use super::catalog::Id;
use super::catalog::table::{
    OF_DYNAMO, OF_TRTLLM, OF_VLLM, VALUES_OF_DYNAMO, VALUES_OF_TRITON_CORE, VALUES_OF_TRTLLM, VALUES_OF_VLLM,
};
use super::engine_readings::EngineReadings;
use super::engine_series::EngineSeries;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::value::{Value, increased};
use super::writer::EngineWriter;

/// `--metrics.compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompatSets {
    /// trtllm-serve's `trtllm_*`, and the families that Dynamo's worker adds.
    pub trtllm: bool,
    /// vLLM's `vllm:*`.
    pub vllm: bool,
    /// Triton's `nv_inference_*`.
    pub triton_core: bool,
    /// dcgm-exporter's `DCGM_FI_*`.
    pub dcgm: bool,
    /// The label values of the original metrics specification.
    pub spec: bool,
}

impl EngineSeries {
    pub(super) fn write_compat(&self, engine: &EngineReadings<'_>, sets: CompatSets, page: &mut Page) {
        let model = self.name.model.as_str();
        if sets.trtllm {
            let labels = self.trtllm_labels(engine.engine);
            let mut writer = EngineWriter { page, labels: &labels };
            writer.put_all(VALUES_OF_TRTLLM, engine);
            writer.trtllm_requests(engine.requests);
            writer.trtllm_cached_tokens(&engine.totals.pools.cached_tokens);
            // Dynamo's worker calls every engine `trtllm`. Only a worker that decodes receives a KV cache, so `decode`
            // is the mode of all transfers.
            let theirs = [("disaggregation_mode", "decode"), ("engine_type", "trtllm"), ("model_name", model)];
            let labels = self.compat_labels(theirs, OF_DYNAMO);
            EngineWriter { page, labels: &labels }.put_all(VALUES_OF_DYNAMO, engine);
        }
        if sets.vllm {
            // vLLM numbers the engines of one server from 0. Here, such a number would pass to another engine when an
            // engine disappears, so all engines have 0, and the label `version` distinguishes them.
            let labels = self.compat_labels([("engine", "0"), ("model_name", model)], OF_VLLM);
            let mut writer = EngineWriter { page, labels: &labels };
            writer.put_all(VALUES_OF_VLLM, engine);
            if let Some(latest) = engine.load {
                // A router treats an engine as fresh while it finds any of these series, so this one disappears with the load.
                writer.vllm_cache_config(latest, engine.requests);
            }
            if let Some([stop, length, timeout, cancelled, other]) = engine.requests.finished {
                let reasons = [stop, length, timeout.saturating_add(cancelled), other];
                writer.in_order(Id::VllmRequestSuccess, reasons.map(Some));
            }
        }
        let mut writer = EngineWriter { page, labels: &self.labels };
        if sets.triton_core {
            writer.put_all(VALUES_OF_TRITON_CORE, engine);
            writer.triton_failures(engine.requests);
        }
        if sets.spec {
            writer.spec(engine);
        }
    }

    pub(super) fn trtllm_labels(&self, engine: &Engine) -> SeriesLabels {
        let backend = engine.about.backend.as_deref().unwrap_or("unknown");
        self.compat_labels([("engine_type", backend), ("model_name", &self.name.model)], OF_TRTLLM)
    }
}

impl EngineWriter<'_> {
    /// Families that are known only where the engine or a publisher reports how its requests ended.
    fn trtllm_requests(&mut self, requests: &RequestTotals) {
        // trtllm-serve has only the first four of our finish reasons.
        self.in_order(Id::TrtllmRequestSuccess, requests.finished.into_iter().flatten().map(increased));
        let server = &requests.server;
        self.by_label(Id::TrtllmRequestError, "http_code", &server.errors);
        self.by_label(Id::TrtllmSpecDraftedByPosition, "token_position", &server.drafted_tokens);
        self.by_label(Id::TrtllmSpecAcceptedByPosition, "token_position", &server.accepted_tokens);
        for (section, configuration) in &server.config {
            let family = match section {
                ConfigSection::Model => Id::TrtllmModelConfig,
                ConfigSection::Parallel => Id::TrtllmParallelConfig,
                ConfigSection::Speculative => Id::TrtllmSpeculativeConfig,
                ConfigSection::KvCache => Id::TrtllmKvCacheConfig,
            };
            // The engine's own labels have precedence.
            let own = |name: &str| self.labels.base().pairs().iter().any(|(own, _)| own == name);
            let more: Vec<_> = configuration.iter().filter(|(name, _)| !own(name)).cloned().collect();
            self.with(family, more, 1_u64);
        }
    }

    /// Unlike trtllm-serve's other counters, the counters of cached tokens start at 0.
    fn trtllm_cached_tokens(&mut self, cached: &CachedTokens) {
        for (level, LevelTokens { unnamed, by_tier }) in cached.by_level.iter().enumerate() {
            let name = if level < MAX_LEVELS { level.to_string() } else { "other".to_owned() };
            let tiers = TierNumbers::NAMES.iter().copied().zip(by_tier.numbers());
            for (tier, tokens) in std::iter::once(("", *unnamed)).chain(tiers) {
                let Some(tokens) = tokens else { continue };
                let labels = [("cache_level", name.clone()), ("cache_tier", tier.to_owned())];
                self.with(Id::TrtllmPromptCacheHitTokens, labels, tokens);
            }
        }
    }

    /// Readers multiply the block size by the number of blocks. With several pool groups the product would not be the capacity,
    /// so the family is absent.
    fn vllm_cache_config(&mut self, latest: &Latest, requests: &RequestTotals) {
        let sizes = latest.kv.and_then(|kv| kv.tokens_per_block.zip(kv.max_num_blocks));
        let one_pool = latest.pools.groups.is_none_or(|groups| groups <= 1);
        let Some((block_size, blocks)) = sizes.filter(|_| one_pool) else { return };
        let mut config = requests.server.config.get(&ConfigSection::KvCache).into_iter().flatten();
        let reuse = config.find(|(name, _)| name == "enable_block_reuse").map(|(_, value)| value.clone());
        let labels = [
            ("block_size", block_size.to_string()),
            ("enable_prefix_caching", reuse.unwrap_or_else(|| "None".to_owned())),
            ("num_gpu_blocks", blocks.to_string()),
        ];
        self.with(Id::VllmCacheConfig, labels, 1_u64);
    }

    fn triton_failures(&mut self, requests: &RequestTotals) {
        let finished = requests.finished.unwrap_or_default();
        let other = finished[FinishReason::Timeout as usize].saturating_add(finished[FinishReason::Other as usize]);
        let canceled = finished[FinishReason::Cancelled as usize];
        let failed = [("BACKEND", 0), ("CANCELED", canceled), ("OTHER", other), ("REJECTED", 0)];
        self.named(Id::InferenceRequestFailure, failed.map(|(reason, requests)| (reason, Some(requests))));
    }

    /// Writes values with the label values of the original metrics specification.
    fn spec(&mut self, engine: &EngineReadings<'_>) {
        if let Some(kv) = engine.load.and_then(|latest| latest.kv) {
            let blocks = [
                ("tokens_per_block", kv.tokens_per_block.map(Value::from)),
                ("used_blocks", kv.used_num_blocks.map(Value::from)),
                ("free_blocks", kv.free_num_blocks.map(Value::from)),
                ("max_blocks", kv.max_num_blocks.map(Value::from)),
                ("cache_block_fraction", kv.used_fraction().map(Value::from)),
            ];
            self.named(Id::SpecKvCacheBlockMetrics, blocks);
        }
        self.put(Id::SpecDisaggregatedServingMetrics, engine.requests.kv_cache_transfer_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::page_of;
    use super::*;
    use trtllm_fold::EngineState;

    #[test]
    fn tritons_successes_leave_out_the_requests_that_failed() {
        let finished = |engine: &mut Engine| {
            let fold = &mut engine.observed.fold;
            fold.totals.requests_completed = 5;
            let requests = &mut fold.requests.totals;
            (requests.succeeded, requests.finished) = (3, Some([2, 1, 0, 2, 0]));
        };
        let page = page_of(finished, CompatSets { triton_core: true, ..CompatSets::default() });
        let shown =
            |id| page.samples().iter().filter(move |sample| sample.metric == id).map(|sample| sample.value.clone());
        for id in [Id::InferenceRequestSuccess, Id::InferenceCount] {
            assert_eq!(shown(id).collect::<Vec<_>>(), [Value::Count(3)]);
        }
        assert_eq!(shown(Id::InferenceRequestFailure).collect::<Vec<_>>(), [0, 2, 0, 0].map(Value::Count));
    }

    #[test]
    fn a_stale_engine_keeps_its_limits_and_loses_its_load() {
        let record = serde_json::json!({"numActiveRequests": 3, "maxNumActiveRequests": 64, "maxBatchSizeStatic": 64,
            "maxBatchSizeRuntime": 48, "maxNumTokensStatic": 64, "maxNumTokensRuntime": 48});
        let record = serde_json::from_value(record).unwrap();
        let shown = |state| {
            let read = |engine: &mut Engine| {
                engine.observed.absorb(&record, std::time::Instant::now(), 0).unwrap();
                engine.state = state;
            };
            let page = page_of(read, CompatSets { trtllm: true, ..CompatSets::default() });
            let has = |id| page.samples().iter().any(|sample| sample.metric == id);
            [
                has(Id::TrtllmNumRequestsRunning),
                has(Id::TrtllmMaxNumActiveRequests),
                has(Id::TrtllmMaxBatchSizeStatic),
                has(Id::TrtllmMaxBatchSizeRuntime),
                has(Id::TrtllmMaxNumTokensRuntime),
            ]
        };
        assert_eq!(shown(EngineState::Busy), [true; 5]);
        assert_eq!(shown(EngineState::Unreachable), [false, true, true, true, true]);
    }
}
