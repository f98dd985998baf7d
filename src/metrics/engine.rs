//! One engine's snapshot as samples. What is stale leaves here, what is idle reads 0 here, and what the engine did not
//! say is absent.

use std::sync::Arc;

use crate::engine::histogram::Histogram;
use crate::engine::lifecycle::Stages;
use crate::engine::requests::LatencySource;
use crate::engine::{EngineState, Latest};
use crate::model::iteration::KvCacheStats;
use crate::state::{EngineName, EngineSnapshot};

use super::catalog::{CATALOG, Id};
use super::compat::{self, CompatSets};
use super::page::{Labels, Page, Value};

/// The labels of every series an engine can have, made once: a page allocates no label text.
#[derive(Debug)]
pub struct EngineSeries {
    /// By family, then by the catalog's label value.
    labels: Vec<Vec<Arc<Labels>>>,
    base: Arc<Labels>,
    source_labels: Arc<Labels>,
    name: EngineName,
    /// No other engine has this model's name.
    model_is_unique: bool,
}

impl EngineSeries {
    #[must_use]
    pub fn new(name: &EngineName, model_is_unique: bool) -> Self {
        let ours = [("model", name.model.as_str()), ("version", name.version.as_str())];
        let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let base = Arc::new(Labels::new(ours.into_iter().chain(extra)));
        let source_labels = Arc::new(base.with("source", name.source));
        let labels = CATALOG
            .iter()
            .map(|metric| {
                match metric.variant {
                    // Most families: one text for all of them.
                    None => vec![Arc::clone(&base)],
                    Some(variant) => {
                        variant.values.iter().map(|value| Arc::new(base.with(variant.label, value))).collect()
                    }
                }
            })
            .collect();
        Self { labels, base, source_labels, name: name.clone(), model_is_unique }
    }

    /// Labels of every series of the engine.
    pub(super) fn base(&self) -> &Labels {
        &self.base
    }

    /// Labels of the series that describe the engine's source.
    pub(super) fn source_labels(&self) -> &Arc<Labels> {
        &self.source_labels
    }

    /// Samples of one engine, in any order: [`Page::join`] sorts them.
    #[must_use]
    pub fn page(&self, snapshot: &EngineSnapshot, compat: CompatSets) -> Page {
        let mut page = Writer { series: self, page: Page::default() };
        let stale = snapshot.state.is_stale();
        if let Some(latest) = &snapshot.latest {
            let latest = if snapshot.state == EngineState::Idle { latest.idle() } else { *latest };
            if !stale {
                page.triton_load(&latest);
                page.load(&latest);
                page.stages(snapshot);
            }
            page.limits(&latest, stale);
        }
        page.totals(snapshot);
        page.requests(snapshot);
        page.state(snapshot);
        if let Some(report) = &snapshot.source.bench_report {
            page.bench_report(report);
        }
        let mut page = page.page;
        if compat != CompatSets::default() {
            page = Page::join([page, self.compat_page(snapshot, compat)]);
        }
        page
    }

    fn compat_page(&self, snapshot: &EngineSnapshot, compat: CompatSets) -> Page {
        let latest = snapshot.latest.filter(|_| !snapshot.state.is_stale());
        let latest = latest.map(|latest| if snapshot.state == EngineState::Idle { latest.idle() } else { latest });
        let mut parts = Vec::new();
        if compat.trtllm {
            let labels = compat::trtllm_labels(&self.name, snapshot.about.backend.as_deref(), self.model_is_unique);
            parts.push(compat::trtllm_page(labels, snapshot, latest.as_ref()));
        }
        if compat.triton_core {
            let labels = &self.labels[Id::InferenceCount as usize][0];
            let failures = &self.labels[Id::InferenceRequestFailure as usize];
            parts.push(compat::triton_core_page(labels, failures, snapshot, latest.as_ref()));
        }
        if compat.spec {
            let mut page = Writer { series: self, page: Page::default() };
            let kv = latest.as_ref().and_then(|latest| latest.kv);
            if let Some(kv) = kv {
                let values = [kv.tokens_per_block, kv.used_num_blocks, kv.free_num_blocks, kv.max_num_blocks];
                for (at, value) in values.into_iter().enumerate() {
                    page.put(Id::SpecKvCacheBlockMetrics, at, value);
                }
                page.put(Id::SpecKvCacheBlockMetrics, 4, fraction(&kv));
            }
            page.one(Id::SpecDisaggregatedServingMetrics, snapshot.requests.kv_cache_transfer_ms);
            parts.push(page.page);
        }
        Page::join(parts)
    }

    /// The five series the Kubernetes gateway's picker reads. They leave together: one that stayed would refresh the
    /// picker's idea of the pod and keep the others' last values alive.
    #[must_use]
    pub fn gateway_page(&self, snapshot: &EngineSnapshot) -> Page {
        let mut page = Writer { series: self, page: Page::default() };
        if let (Some(latest), false) = (&snapshot.latest, snapshot.state.is_stale()) {
            let latest = if snapshot.state == EngineState::Idle { latest.idle() } else { *latest };
            page.put(Id::RequestMetrics, SCHEDULED, latest.scheduled());
            page.put(Id::RequestMetrics, WAITING, waiting(&latest));
            if let Some(kv) = &latest.kv {
                page.put(Id::KvCacheBlockMetrics, KV_MAX, kv.max_num_blocks);
                page.put(Id::KvCacheBlockMetrics, KV_TOKENS_PER, kv.tokens_per_block);
                page.put(Id::KvCacheBlockMetrics, KV_FRACTION, fraction(kv));
            }
        }
        page.page
    }
}

// Positions of the catalog's label values, checked against it below.
const ACTIVE: usize = 0;
const MAX: usize = 1;
const SCHEDULED: usize = 2;
const CONTEXT: usize = 3;
const WAITING: usize = 4;
const KV_MAX: usize = 0;
const KV_FREE: usize = 1;
const KV_USED: usize = 2;
const KV_TOKENS_PER: usize = 3;
const KV_REUSED: usize = 4;
const KV_FRACTION: usize = 5;

/// A page being written from one snapshot; each area of the page adds its part in a file of its own.
pub(super) struct Writer<'a> {
    pub(super) series: &'a EngineSeries,
    pub(super) page: Page,
}

impl Writer<'_> {
    /// Absent stays absent.
    pub(super) fn put<V: Into<Value>>(&mut self, metric: Id, value_of_label: usize, value: Option<V>) {
        if let (Some(value), Some(labels)) = (value, self.series.labels[metric as usize].get(value_of_label)) {
            self.page.push(metric, labels, value);
        }
    }

    pub(super) fn one(&mut self, metric: Id, value: impl Into<Value>) {
        self.put(metric, 0, Some(value));
    }

    fn triton_load(&mut self, latest: &Latest) {
        self.put(Id::RequestMetrics, ACTIVE, latest.active);
        self.put(Id::RequestMetrics, MAX, latest.max_active);
        self.put(Id::RequestMetrics, SCHEDULED, latest.scheduled());
        self.put(Id::RequestMetrics, CONTEXT, latest.context_requests());
        self.put(Id::RequestMetrics, WAITING, waiting(latest));
        for (at, bytes) in [latest.cpu_memory, latest.gpu_memory, latest.pinned_memory].into_iter().enumerate() {
            self.put(Id::RuntimeMemoryMetrics, at, bytes);
        }
        if let Some(kv) = &latest.kv {
            self.kv_blocks(Id::KvCacheBlockMetrics, kv);
        }
        if let Some(inflight) = &latest.inflight {
            let values = [
                inflight.num_ctx_tokens,
                inflight.num_gen_requests,
                inflight.micro_batch_id,
                inflight.num_paused_requests,
            ];
            for (at, value) in values.into_iter().enumerate() {
                self.put(Id::InflightBatcherMetrics, at, value);
            }
        }
        if let Some(fixed) = &latest.static_batching {
            for (at, value) in
                [fixed.num_ctx_tokens, fixed.num_gen_tokens, fixed.empty_gen_slots].into_iter().enumerate()
            {
                self.put(Id::V1Metrics, at, value);
            }
        }
    }

    fn kv_blocks(&mut self, metric: Id, kv: &KvCacheStats) {
        self.put(metric, KV_MAX, kv.max_num_blocks);
        self.put(metric, KV_FREE, kv.free_num_blocks);
        self.put(metric, KV_USED, kv.used_num_blocks);
        self.put(metric, KV_TOKENS_PER, kv.tokens_per_block);
        self.put(metric, KV_REUSED, kv.reused_blocks);
        self.put(metric, KV_FRACTION, fraction(kv));
    }

    fn load(&mut self, latest: &Latest) {
        self.put(Id::QueuedRequests, 0, latest.queued);
        if let Some(kv) = &latest.kv {
            let available =
                kv.free_num_blocks.zip(kv.tokens_per_block).map(|(free, tokens)| free.saturating_mul(tokens));
            self.put(Id::KvCacheAvailableTokens, 0, available);
            let not_free = kv.max_num_blocks.zip(kv.free_num_blocks).map(|(max, free)| max.saturating_sub(free));
            self.put(Id::KvCachePressureRatio, 0, ratio(not_free, kv.max_num_blocks));
        }
        if let Some(kv) = &latest.cross_kv {
            self.kv_blocks(Id::CrossKvCacheBlockMetrics, kv);
        }
        if let Some(inflight) = &latest.inflight {
            let in_batch =
                inflight.num_context_requests.zip(inflight.num_gen_requests).map(|(c, g)| c.saturating_add(g));
            self.put(Id::BatchOccupancyRatio, 0, ratio(in_batch, latest.max_active.filter(|max| *max > 0)));
            self.put(Id::ContextRequestRatio, 0, ratio(inflight.num_context_requests, in_batch));
            let decoded = inflight.avg_num_decoded_tokens_per_iter.filter(|mean| *mean > 0.0);
            // A float32 on its way through doubles: 1.2 is meant, not 1.2000000476837158.
            self.put(Id::DecodedTokensPerIteration, 0, decoded.map(shortest_f32));
            let queued = [inflight.num_queued_context_requests, inflight.num_queued_gen_requests];
            for (at, requests) in queued.into_iter().enumerate() {
                self.put(Id::QueuedRequestsByPhase, at, requests);
            }
            self.put(Id::QueuedContextTokens, 0, inflight.num_queued_ctx_tokens);
            let held = [
                inflight.num_ctx_kv_tokens,
                inflight.num_gen_kv_tokens,
                inflight.num_paused_kv_tokens,
                inflight.num_queued_gen_kv_tokens,
            ];
            for (at, tokens) in held.into_iter().enumerate() {
                self.put(Id::RequestKvTokens, at, tokens);
            }
        }
        self.put(Id::BatchEfficiencyRatio, 0, ratio(latest.active, latest.batch_size_limits.runtime));
        self.pools(latest);
        if let Some(fixed) = &latest.static_batching {
            let slots = fixed.num_gen_tokens.zip(fixed.empty_gen_slots).map(|(used, empty)| used.saturating_add(empty));
            self.put(Id::StaticBatchEfficiencyRatio, 0, ratio(fixed.num_gen_tokens, slots));
        }
        if let Some(spec) = &latest.spec_decoding {
            self.put(Id::SpecAcceptanceLength, 0, spec.acceptance_length);
            self.put(Id::SpecAcceptanceRatio, 0, ratio(spec.num_accepted_tokens, spec.num_draft_tokens));
            self.put(Id::SpecDraftOverheadRatio, 0, spec.draft_overhead);
        }
    }

    fn stages(&mut self, snapshot: &EngineSnapshot) {
        let Some(stages) = snapshot.stages else { return };
        let stages = if snapshot.state == EngineState::Idle { Stages::default() } else { stages };
        for (at, count) in [stages.queued, stages.encoder, stages.context, stages.generation].into_iter().enumerate() {
            self.put(Id::RequestsByStage, at, Some(count));
        }
    }

    /// What stays true of an engine that does not answer.
    fn limits(&mut self, latest: &Latest, stale: bool) {
        if stale {
            self.put(Id::RequestMetrics, MAX, latest.max_active);
        }
        for (metric, limits) in [(Id::BatchSizeLimit, latest.batch_size_limits), (Id::TokenLimit, latest.token_limits)]
        {
            for (at, limit) in [limits.fixed, limits.tuner, limits.runtime].into_iter().enumerate() {
                self.put(metric, at, limit);
            }
        }
        self.put(Id::AttentionDpRanks, 0, latest.attention_dp_ranks);
        if let Some(mode) = latest.scheduler_mode {
            self.put(Id::SchedulerInfo, mode as usize, Some(1_u64));
        }
        self.put(Id::GeneralMetrics, 0, Some(latest.time_us));
        self.put(Id::GeneralMetrics, 1, latest.iter);
        self.one(Id::LastIterationTimestamp, latest.time_us as f64 / 1e6);
    }

    fn totals(&mut self, snapshot: &EngineSnapshot) {
        let totals = &snapshot.totals;
        for (metric, count) in [
            (Id::Iterations, totals.iterations),
            (Id::IterationsLost, totals.iterations_lost),
            (Id::EngineRestarts, totals.engine_restarts),
            (Id::RequestsStarted, totals.requests_started),
            (Id::RequestsCompleted, totals.requests_completed),
            (Id::ContextTokens, totals.context_tokens),
            (Id::GenerationTokens, totals.generation_tokens),
            (Id::KvBlocksAllocated, totals.kv_cache_blocks_allocated),
            (Id::KvBlocksNewlyAllocated, totals.kv_cache_blocks_newly_allocated),
            (Id::KvBlocksReused, totals.kv_cache_blocks_reused),
            (Id::KvBlocksMissed, totals.kv_cache_blocks_missed),
            (Id::SpecDraftTokens, totals.spec_decode_draft_tokens),
            (Id::SpecAcceptedTokens, totals.spec_decode_accepted_tokens),
            (Id::RequestPauses, totals.request_pauses),
        ] {
            self.one(metric, count);
        }
        let looked_up = totals.kv_cache_blocks_reused.saturating_add(totals.kv_cache_blocks_missed);
        if looked_up > 0 {
            self.one(Id::KvCacheHitRatio, totals.kv_cache_blocks_reused as f64 / looked_up as f64);
        }
        for (metric, histogram) in [
            (Id::IterationLatency, &totals.iteration_latency),
            (Id::IterationScheduledRequests, &totals.iteration_scheduled_requests),
            (Id::IterationContextTokens, &totals.iteration_context_tokens),
            (Id::NewRequestQueueTime, &totals.new_request_queue_time),
        ] {
            self.one(metric, histogram);
        }
        for (metric, histogram) in [
            (Id::HostStep, &totals.host_step),
            (Id::DeviceStep, &totals.device_step),
            (Id::GpuForward, &totals.gpu_forward),
        ] {
            self.told(metric, histogram);
        }
        self.one(Id::SpecDraftedRequests, totals.spec_decode_drafted_requests);
        self.one(Id::SpecDraftTime, totals.spec_decode_draft_seconds);
        self.kv_cache_totals(totals);
    }

    /// A histogram that only some engines feed: absent until its first observation.
    pub(super) fn told(&mut self, metric: Id, histogram: &Histogram) {
        self.put(metric, 0, (histogram.count() > 0).then_some(histogram));
    }

    fn state(&mut self, snapshot: &EngineSnapshot) {
        for (at, source) in LatencySource::ALL.into_iter().enumerate() {
            if source == snapshot.requests.source {
                self.put(Id::RequestLatencyInfo, at, Some(1_u64));
            }
        }
        for (at, state) in EngineState::ALL.into_iter().enumerate() {
            self.put(Id::EngineState, at, Some(state == snapshot.state));
        }
        let about = &snapshot.about;
        let labels = Labels::new(
            self.series.base.pairs().iter().cloned().chain(
                [
                    ("backend", about.backend.as_deref().unwrap_or("unknown")),
                    ("engine_version", about.version.as_deref().unwrap_or("unknown")),
                    ("simulated", if about.simulated { "true" } else { "false" }),
                    ("source", self.series.name.source),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
            ),
        );
        self.page.push(Id::EngineInfo, &Arc::new(labels), 1_u64);
    }
}

/// Active requests that this iteration did not schedule; the executor's own queue is not in it.
pub(super) fn waiting(latest: &Latest) -> Option<i64> {
    latest.active.zip(latest.scheduled()).map(|(active, scheduled)| active.saturating_sub(scheduled).max(0))
}

/// Used share of the KV cache, 0..1; 0 for a cache of no blocks, so that a router never meets NaN.
pub(super) fn fraction(kv: &KvCacheStats) -> Option<f64> {
    let (used, max) = kv.used_num_blocks.zip(kv.max_num_blocks)?;
    Some(if max > 0 { (used as f64 / max as f64).clamp(0.0, 1.0) } else { 0.0 })
}

/// Absent where there is nothing to divide by.
pub(super) fn ratio(part: Option<i64>, whole: Option<i64>) -> Option<f64> {
    let (part, whole) = part.zip(whole)?;
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn shortest_f32(value: f64) -> f64 {
    let narrow = value as f32;
    if f64::from(narrow) == value { narrow.to_string().parse().unwrap_or(value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::iteration::SchedulerMode;
    use crate::model::perf_metrics::FinishReason;

    #[test]
    fn the_positions_are_the_catalogs() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        let requests = values(Id::RequestMetrics);
        let found = [ACTIVE, MAX, SCHEDULED, CONTEXT, WAITING].map(|at| requests[at]);
        assert_eq!(found, ["active", "max", "scheduled", "context", "waiting"]);
        let blocks = [KV_MAX, KV_FREE, KV_USED, KV_TOKENS_PER, KV_REUSED, KV_FRACTION];
        for id in [Id::KvCacheBlockMetrics, Id::CrossKvCacheBlockMetrics] {
            assert_eq!(blocks.map(|at| values(id)[at]), ["max", "free", "used", "tokens_per", "reused", "fraction"]);
        }
        assert_eq!(values(Id::EngineState), EngineState::ALL.map(EngineState::name));
        assert_eq!(values(Id::RequestLatencyInfo), LatencySource::ALL.map(LatencySource::name));
        assert_eq!(values(Id::RequestsFinished), FinishReason::ALL.map(FinishReason::name));
        assert_eq!(values(Id::SchedulerInfo)[SchedulerMode::NonOverlap as usize], "non_overlap");
    }

    #[test]
    fn waiting_is_never_negative_and_fraction_never_nan() {
        let latest = Latest { active: Some(0), ..Latest::default() };
        assert_eq!(waiting(&latest), None);
        let kv = KvCacheStats { max_num_blocks: Some(0), used_num_blocks: Some(0), ..KvCacheStats::default() };
        assert_eq!(fraction(&kv), Some(0.0));
    }
}
