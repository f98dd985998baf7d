//! Other exporters' names for the same engine. Each value has the meaning that its own exporter gives it: what trtllm-serve
//! calls running is not what Triton calls scheduled. All sets are off by default.

mod dynamo;
mod vllm;

use std::sync::Arc;

use crate::state::EngineSnapshot;
use trtllm_engine::Latest;
use trtllm_engine::cache_tiers::{LevelTokens, MAX_LEVELS, TierNumbers};
use trtllm_engine::histogram::FIRST_TOKEN_MILLISECONDS;
use trtllm_engine::pools::PoolTotals;
use trtllm_engine::request_totals::{LatencySource, RequestTotals};
use trtllm_model::EngineName;
use trtllm_model::named_numbers::NamedNumbers as _;
use trtllm_model::perf_metrics::FinishReason;
use trtllm_model::server_metrics::ConfigSection;

use super::catalog::Id;
use super::catalog::table::OF_TRTLLM;
use super::catalog::table::triton::SpecKvCacheBlocks;
use super::catalog::table::triton_core::FailedRequests;
use super::page::{Labels, Page, Value};
use super::series_labels::SeriesLabels;
use super::value::ratio;
use super::writer::SampleWriter;

pub(super) use dynamo::{dynamo_labels, dynamo_page};
pub(super) use vllm::{vllm_labels, vllm_page};

/// `--metrics.compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompatSets {
    /// trtllm-serve's `trtllm_*`, and those that Dynamo's worker adds.
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

/// Labels `model_name` and `engine_type`, and `version` if several engines have the same model name.
#[must_use]
pub(super) fn trtllm_labels(name: &EngineName, backend: Option<&str>, model_is_unique: bool) -> SeriesLabels {
    let version = (!model_is_unique).then_some(("version", name.version.as_str()));
    let ours = [("engine_type", backend.unwrap_or("unknown")), ("model_name", name.model.as_str())];
    let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    SeriesLabels::new(Labels::new(ours.into_iter().chain(version).chain(extra)), OF_TRTLLM)
}

/// trtllm-serve's families. `load`: the values for load gauges; absent for a stale engine. As on trtllm-serve's page, most
/// counters appear with their first increase and a histogram with its first observation.
#[must_use]
pub(super) fn trtllm_page(labels: &SeriesLabels, snapshot: &EngineSnapshot, load: Option<&Latest>) -> Page {
    let mut page = SampleWriter::new(labels);
    if let Some(latest) = &snapshot.latest {
        // The limits of a stale engine are still valid.
        page.put(Id::TrtllmMaxNumActiveRequests, latest.max_active);
        page.put(Id::TrtllmMaxBatchSizeStatic, latest.batch_size_limits.fixed);
        page.put(Id::TrtllmMaxBatchSizeRuntime, latest.batch_size_limits.runtime);
        page.put(Id::TrtllmMaxNumTokensRuntime, latest.token_limits.runtime);
    }
    if let Some(latest) = load {
        trtllm_load(latest, &mut page);
    }
    let (totals, requests) = (&snapshot.totals, &snapshot.requests);
    trtllm_pools(&totals.pools, &mut page);
    for (family, count) in [
        (Id::TrtllmNumRequestsCompleted, totals.requests_completed),
        (Id::TrtllmSpecDraftTokens, totals.reported_draft_tokens),
        (Id::TrtllmSpecAcceptedTokens, totals.reported_accepted_tokens),
    ] {
        page.put(family, increased(count));
    }
    trtllm_reuse(snapshot, &mut page);
    let times = &requests.times;
    for (family, histogram) in [
        (Id::TrtllmTimeToFirstToken, &times.time_to_first_token),
        (Id::TrtllmE2eLatency, &times.e2e_latency),
        (Id::TrtllmRequestQueueTime, &times.queue_time),
        (Id::TrtllmRequestPrefillTime, &times.prefill_time),
        (Id::TrtllmRequestDecodeTime, &times.decode_time),
        (Id::TrtllmRequestInferenceTime, &times.inference_time),
        (Id::TrtllmPromptCachedTokensPerRequest, &times.cached_tokens),
        (Id::TrtllmPrefillBatchTokens, &totals.row_context_tokens),
    ] {
        page.observed(family, histogram);
    }
    trtllm_requests(requests, &mut page);
    page.page
}

/// trtllm-serve reads its engine from the start, so it shows these counts as soon as the engine has any. The exporter can meet the
/// engine later: it shows them from the first record that has them, however long the next increase takes.
fn trtllm_reuse(snapshot: &EngineSnapshot, page: &mut SampleWriter<'_>) {
    let totals = &snapshot.totals;
    for (family, count, reported) in [
        (Id::TrtllmKvCacheReusedBlocks, totals.kv_cache_blocks_reused, totals.reports_reused_blocks),
        (Id::TrtllmKvCacheMissedBlocks, totals.kv_cache_blocks_missed, totals.reports_missed_blocks),
    ] {
        page.put(family, reported.then_some(count));
    }
}

/// What is known only where the engine or a publisher reports how its requests ended.
fn trtllm_requests(requests: &RequestTotals, page: &mut SampleWriter<'_>) {
    page.put(Id::TrtllmPromptTokens, requests.prompt_tokens());
    page.put(Id::TrtllmGenerationTokens, requests.generation_tokens());
    page.put(Id::TrtllmTimePerOutputToken, requests.time_per_output_token());
    // trtllm-serve has the first four of our reasons.
    page.in_order(Id::TrtllmRequestSuccess, requests.finished.into_iter().flatten().map(increased));
    let server = &requests.server;
    page.put(Id::TrtllmPromptCachedTokens, requests.cached_tokens());
    page.by_label(Id::TrtllmRequestError, "http_code", &server.errors);
    page.by_label(Id::TrtllmSpecDraftedByPosition, "token_position", &server.drafted_tokens);
    page.by_label(Id::TrtllmSpecAcceptedByPosition, "token_position", &server.accepted_tokens);
    for (section, configuration) in &server.config {
        let family = match section {
            ConfigSection::Model => Id::TrtllmModelConfig,
            ConfigSection::Parallel => Id::TrtllmParallelConfig,
            ConfigSection::Speculative => Id::TrtllmSpeculativeConfig,
            ConfigSection::KvCache => Id::TrtllmKvCacheConfig,
        };
        // The engine's own labels have precedence.
        let own = |name: &str| page.labels.base().pairs().iter().any(|(own, _)| own == name);
        let more = configuration.iter().filter(|(name, _)| !own(name)).cloned();
        let labels = Labels::extend(page.labels.base(), more);
        page.page.push(family, &Arc::new(labels), 1_u64);
    }
}

/// A counter without an increase is not on trtllm-serve's page.
fn increased(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

fn trtllm_load(latest: &Latest, page: &mut SampleWriter<'_>) {
    page.put(Id::TrtllmNumRequestsRunning, latest.active);
    page.put(Id::TrtllmNumRequestsWaiting, latest.queued);
    page.put(Id::TrtllmGpuMemoryUsage, latest.gpu_memory);
    page.put(Id::TrtllmCpuMemoryUsage, latest.cpu_memory);
    page.put(Id::TrtllmPinnedMemoryUsage, latest.pinned_memory);
    page.put(Id::TrtllmIterationLatency, latest.iter_latency_ms.map(|ms| ms / 1000.0));
    if let Some(inflight) = &latest.inflight {
        page.put(Id::TrtllmNumContextRequests, inflight.num_context_requests);
        page.put(Id::TrtllmNumGenerationRequests, inflight.num_gen_requests);
        page.put(Id::TrtllmNumPausedRequests, inflight.num_paused_requests);
        page.put(Id::TrtllmNumScheduledRequests, inflight.num_scheduled_requests);
        page.put(Id::TrtllmTotalContextTokens, inflight.num_ctx_tokens);
        page.put(Id::TrtllmAvgDecodedTokensPerIter, inflight.avg_num_decoded_tokens_per_iter);
        page.put(Id::TrtllmPrefillBatchOccupancy, ratio(inflight.num_context_requests, latest.max_active_of_all()));
    }
    if let Some(kv) = &latest.kv {
        page.put(Id::TrtllmKvCacheUtilization, ratio(kv.used_num_blocks, kv.max_num_blocks));
        page.put(Id::TrtllmKvCacheHitRate, kv.cache_hit_rate);
        page.put(Id::TrtllmKvCacheMaxBlocks, kv.max_num_blocks);
        page.put(Id::TrtllmKvCacheFreeBlocks, kv.free_num_blocks);
        page.put(Id::TrtllmKvCacheUsedBlocks, kv.used_num_blocks);
        page.put(Id::TrtllmKvCacheTokensPerBlock, kv.tokens_per_block);
    }
    if let Some(spec) = &latest.spec_decoding {
        page.put(Id::TrtllmSpecAcceptanceLength, spec.acceptance_length);
        page.put(Id::TrtllmSpecDraftOverhead, spec.draft_overhead);
    }
    page.put(Id::TrtllmKvHostUtilization, latest.pools.last_host_utilization);
    page.put(Id::TrtllmKvIterReuseRate, latest.pools.last_hit_ratio);
}

fn trtllm_pools(pools: &PoolTotals, page: &mut SampleWriter<'_>) {
    let (blocks, bytes) = (&pools.blocks, &pools.bytes);
    for (family, count) in [
        (Id::TrtllmKvIterReused, blocks.reused),
        (Id::TrtllmKvIterFullReused, blocks.full_reused),
        (Id::TrtllmKvIterPartialReused, blocks.partial_reused),
        (Id::TrtllmKvIterMissed, blocks.missed),
        (Id::TrtllmKvGenAlloc, blocks.generation_allocated),
        (Id::TrtllmKvOnboardBytes, bytes.onboarded),
        (Id::TrtllmKvOffloadBytes, bytes.offloaded),
        (Id::TrtllmKvCopyBytes, bytes.copied),
        (Id::TrtllmKvDiskPrefetchBlocks, pools.disk_prefetched_blocks),
    ] {
        page.put(family, count.and_then(increased));
    }
    // Unlike the others, these start at 0.
    for (level, LevelTokens { unnamed, by_tier }) in pools.cached_tokens.by_level.iter().enumerate() {
        let name = if level < MAX_LEVELS { level.to_string() } else { "other".to_owned() };
        let tiers = TierNumbers::NAMES.iter().copied().zip(by_tier.numbers());
        for (tier, tokens) in std::iter::once(("", *unnamed)).chain(tiers) {
            let Some(tokens) = tokens else { continue };
            let labels = [("cache_level", name.clone()), ("cache_tier", tier.to_owned())];
            let labels = Labels::extend(page.labels.base(), labels);
            page.page.push(Id::TrtllmPromptCacheHitTokens, &Arc::new(labels), tokens);
        }
    }
}

/// Triton's request counters.
#[must_use]
pub(super) fn triton_core_page(labels: &SeriesLabels, snapshot: &EngineSnapshot, load: Option<&Latest>) -> Page {
    let mut page = SampleWriter::new(labels);
    let (totals, times) = (&snapshot.totals, &snapshot.requests.times);
    page.one(Id::InferenceRequestSuccess, snapshot.requests.succeeded);
    page.one(Id::InferenceCount, snapshot.requests.succeeded);
    page.one(Id::InferenceExecCount, totals.iterations);
    // The durations are unknown once a request without known times has completed.
    if snapshot.requests.source != LatencySource::None || totals.requests_completed == 0 {
        let micros = |seconds: f64| (seconds * 1e6).round() as u64;
        page.one(Id::InferenceRequestDuration, micros(times.e2e_latency.sum()));
        page.one(Id::InferenceQueueDuration, micros(times.queue_time.sum()));
        // Triton splits a request in four parts; an executor's request has only queue and inference.
        page.one(Id::InferenceComputeInput, 0_u64);
        page.one(Id::InferenceComputeInfer, micros(times.inference_time.sum()));
        page.one(Id::InferenceComputeOutput, 0_u64);
    }
    let finished = snapshot.requests.finished.unwrap_or_default();
    let failed = FailedRequests {
        backend: Some(0),
        canceled: Some(finished[FinishReason::Cancelled as usize]),
        other: Some(finished[FinishReason::Timeout as usize].saturating_add(finished[FinishReason::Other as usize])),
        rejected: Some(0),
    };
    page.each(Id::InferenceRequestFailure, failed);
    let first_token = &times.time_to_first_token;
    let milliseconds = || first_token.in_unit(FIRST_TOKEN_MILLISECONDS, 1000.0);
    page.put(Id::InferenceFirstResponse, (first_token.count() > 0).then(milliseconds));
    let pending = |latest: &Latest| latest.queued.map(|queued| queued.saturating_add(latest.waiting().unwrap_or(0)));
    page.put(Id::InferencePending, load.and_then(pending));
    page.page
}

/// The original metrics specification's label values.
#[must_use]
pub(super) fn spec_page(labels: &SeriesLabels, snapshot: &EngineSnapshot, load: Option<&Latest>) -> Page {
    let mut page = SampleWriter::new(labels);
    if let Some(kv) = load.and_then(|latest| latest.kv) {
        let number = |number: Option<i64>| number.map(Value::from);
        let blocks = SpecKvCacheBlocks {
            tokens_per_block: number(kv.tokens_per_block),
            used: number(kv.used_num_blocks),
            free: number(kv.free_num_blocks),
            max: number(kv.max_num_blocks),
            fraction: kv.used_fraction().map(Value::from),
        };
        page.each(Id::SpecKvCacheBlockMetrics, blocks);
    }
    page.one(Id::SpecDisaggregatedServingMetrics, snapshot.requests.kv_cache_transfer_ms);
    page.page
}

#[cfg(test)]
mod tests {
    use super::super::catalog::table::OF_ENGINES;
    use super::*;
    use trtllm_engine::latest::EngineLimits;

    #[test]
    fn tritons_successes_leave_out_the_requests_that_failed() {
        let mut snapshot = EngineSnapshot::starting();
        snapshot.totals.requests_completed = 5;
        (snapshot.requests.succeeded, snapshot.requests.finished) = (3, Some([2, 1, 0, 2, 0]));
        let page = triton_core_page(&SeriesLabels::new(Labels::default(), OF_ENGINES), &snapshot, None);
        let shown =
            |id| page.samples().iter().filter(move |sample| sample.metric == id).map(|sample| sample.value.clone());
        for id in [Id::InferenceRequestSuccess, Id::InferenceCount] {
            assert_eq!(shown(id).collect::<Vec<_>>(), [Value::Count(3)]);
        }
        assert_eq!(shown(Id::InferenceRequestFailure).collect::<Vec<_>>(), [0, 2, 0, 0].map(Value::Count));
    }

    #[test]
    fn a_stale_engine_keeps_its_limits_and_loses_its_load() {
        let limits = EngineLimits { fixed: Some(64), runtime: Some(48), ..EngineLimits::default() };
        let latest = Latest {
            active: Some(3),
            max_active: Some(64),
            batch_size_limits: limits,
            token_limits: limits,
            ..Latest::default()
        };
        let snapshot = EngineSnapshot { latest: Some(latest), ..EngineSnapshot::starting() };
        let shown = |latest| {
            let page = trtllm_page(&SeriesLabels::new(Labels::default(), OF_TRTLLM), &snapshot, latest);
            let has = |id| page.samples().iter().any(|sample| sample.metric == id);
            [
                has(Id::TrtllmNumRequestsRunning),
                has(Id::TrtllmMaxNumActiveRequests),
                has(Id::TrtllmMaxBatchSizeStatic),
                has(Id::TrtllmMaxBatchSizeRuntime),
                has(Id::TrtllmMaxNumTokensRuntime),
            ]
        };
        assert_eq!(shown(Some(&latest)), [true; 5]);
        assert_eq!(shown(None), [false, true, true, true, true]);
    }
}
