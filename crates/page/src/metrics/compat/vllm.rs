//! vLLM's names. Each value has the meaning that vLLM gives it, as far as TensorRT-LLM's statistics can tell it.

use std::sync::Arc;

use crate::state::EngineSnapshot;
use trtllm_engine::Latest;
use trtllm_engine::cache_tiers::TierNumbers;
use trtllm_engine::histogram::{Histogram, NO_BOUNDS};
use trtllm_engine::request_totals::RequestTotals;
use trtllm_model::EngineName;
use trtllm_model::named_numbers::NamedNumbers as _;
use trtllm_model::perf_metrics::FinishReason;
use trtllm_model::server_metrics::ConfigSection;

use super::super::catalog::Id;
use super::super::catalog::table::OF_VLLM;
use super::super::page::{Labels, Page};
use super::super::series_labels::SeriesLabels;
use super::super::value::ratio;
use super::super::writer::SampleWriter;

/// Labels `engine` and `model_name`, and `version` if several engines have the same model name. vLLM numbers the engines of one
/// server from 0. Numbers would move to another engine when one leaves, so all have 0 and the version tells them apart.
#[must_use]
pub(in crate::metrics) fn vllm_labels(name: &EngineName, model_is_unique: bool) -> SeriesLabels {
    let version = (!model_is_unique).then_some(("version", name.version.as_str()));
    let ours = [("engine", "0"), ("model_name", name.model.as_str())];
    let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    SeriesLabels::new(Labels::new(ours.into_iter().chain(version).chain(extra)), OF_VLLM)
}

/// vLLM's families. `load`: the values for load gauges; absent for a stale engine.
#[must_use]
pub(in crate::metrics) fn vllm_page(labels: &SeriesLabels, snapshot: &EngineSnapshot, load: Option<&Latest>) -> Page {
    let mut page = SampleWriter::new(labels);
    let (totals, requests) = (&snapshot.totals, &snapshot.requests);
    if let Some(latest) = load {
        page.put(Id::VllmRunning, latest.active_of_all());
        page.put(Id::VllmWaiting, latest.queued);
        if let Some(kv) = &latest.kv {
            page.put(Id::VllmKvCacheUsage, ratio(kv.used_num_blocks, kv.max_num_blocks));
        }
        // A router takes an engine for fresh as long as it finds any of these, so the configuration leaves with the load.
        page.cache_config(latest, requests);
    }
    page.put(Id::VllmPreemptions, totals.pools.suspended_requests);
    page.tokens(snapshot);
    if let Some(finished) = requests.finished {
        let [stop, length, timeout, cancelled, other] = FinishReason::ALL.map(|reason| finished[reason as usize]);
        let reasons = [stop, length, timeout.saturating_add(cancelled), other];
        page.in_order(Id::VllmRequestSuccess, reasons.map(Some));
    }
    if totals.batch.spec_decode_draft_tokens > 0 && !totals.is_sampled() {
        page.one(Id::VllmSpecDrafts, totals.batch.spec_decode_drafted_requests);
        page.one(Id::VllmSpecDraftTokens, totals.batch.spec_decode_draft_tokens);
        page.one(Id::VllmSpecAcceptedTokens, totals.batch.spec_decode_accepted_tokens);
    }
    let times = &requests.times;
    for (family, histogram) in [
        (Id::VllmTimeToFirstToken, &times.time_to_first_token),
        (Id::VllmInterTokenLatency, &times.inter_token),
        (Id::VllmTimePerOutputToken, &times.time_per_output_token),
        (Id::VllmE2eLatency, &times.e2e_latency),
        (Id::VllmRequestQueueTime, &times.queue_time),
        (Id::VllmRequestInferenceTime, &times.inference_time),
        (Id::VllmRequestPrefillTime, &times.prefill_time),
        (Id::VllmRequestDecodeTime, &times.decode_time),
    ] {
        page.observed(family, histogram);
    }
    page.page
}

impl SampleWriter<'_> {
    /// Readers multiply the two sizes. With several pool groups the product would not be the capacity.
    fn cache_config(&mut self, latest: &Latest, requests: &RequestTotals) {
        let sizes = latest.kv.and_then(|kv| kv.tokens_per_block.zip(kv.max_num_blocks));
        let one_pool = latest.pools.groups.is_none_or(|groups| groups <= 1);
        let Some((block_size, blocks)) = sizes.filter(|_| one_pool) else { return };
        let config = requests.server.config.get(&ConfigSection::KvCache).into_iter().flatten();
        let reuse = config.filter(|(name, _)| name == "enable_block_reuse").map(|(_, value)| value.clone()).next();
        let labels = [
            ("block_size", block_size.to_string()),
            ("enable_prefix_caching", reuse.unwrap_or_else(|| "None".to_owned())),
            ("num_gpu_blocks", blocks.to_string()),
        ];
        self.page.push(Id::VllmCacheConfig, &Arc::new(Labels::extend(self.labels.base(), labels)), 1_u64);
    }

    fn tokens(&mut self, snapshot: &EngineSnapshot) {
        let requests = &snapshot.requests;
        let (prompt, generation) = (requests.prompt_tokens(), requests.generation_tokens());
        let cached = requests.cached_tokens().max(cached_tokens(&snapshot.totals.pools.cached_tokens.by_tier));
        self.put(Id::VllmPromptTokens, prompt);
        self.put(Id::VllmGenerationTokens, generation);
        self.put(Id::VllmPromptTokensCached, cached);
        if let (Some(queries), Some(hits)) = (prompt, cached) {
            self.one(Id::VllmPrefixCacheQueries, queries);
            self.one(Id::VllmPrefixCacheHits, hits);
        }
        let finished = requests.finished.map(|finished| finished.into_iter().fold(0, u64::saturating_add));
        for (family, lengths, tokens) in [
            (Id::VllmRequestPromptTokens, &requests.prompt_length, prompt),
            (Id::VllmRequestGenerationTokens, &requests.generation_length, generation),
        ] {
            match finished.zip(tokens) {
                Some((requests @ 1.., tokens)) if lengths.count() == 0 => self.one(family, sum_only(requests, tokens)),
                _ => self.observed(family, lengths),
            }
        }
    }
}

fn cached_tokens(by_tier: &TierNumbers) -> Option<u64> {
    by_tier.numbers().flatten().reduce(u64::saturating_add)
}

/// trtllm-serve tells how many tokens its requests had together, not how many each had.
fn sum_only(requests: u64, tokens: u64) -> Histogram {
    let mut histogram = Histogram::new(NO_BOUNDS);
    histogram.add_buckets([(f64::INFINITY, requests)], tokens as f64);
    histogram
}
