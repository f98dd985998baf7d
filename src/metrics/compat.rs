//! Other exporters' names for the same engine and GPUs, each value by the meaning its own exporter gives it: what
//! trtllm-serve calls running is not what Triton calls scheduled. None is on unless asked for.

use std::sync::Arc;

use crate::engine::requests::LatencySource;
use crate::engine::{Latest, Totals};
use crate::model::perf_metrics::FinishReason;
use crate::state::{EngineName, EngineSnapshot};

use super::catalog::Id;
use super::engine::{fraction, ratio, waiting};
use super::page::{Labels, Page, Value};

/// `--metrics.compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompatSets {
    /// trtllm-serve's `trtllm_*`.
    pub trtllm: bool,
    /// Triton's `nv_inference_*`.
    pub triton_core: bool,
    /// dcgm-exporter's `DCGM_FI_*`.
    pub dcgm: bool,
    /// The founding specification's label values.
    pub spec: bool,
}

/// Labels `model_name` and `engine_type`; `version` too where the model alone does not tell the engines apart.
#[must_use]
pub fn trtllm_labels(name: &EngineName, backend: Option<&str>, model_is_unique: bool) -> Labels {
    let version = (!model_is_unique).then_some(("version", name.version.as_str()));
    let ours = [("engine_type", backend.unwrap_or("unknown")), ("model_name", name.model.as_str())];
    let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Labels::new(ours.into_iter().chain(version).chain(extra))
}

/// trtllm-serve's families. `latest` is what gauges may read: absent where the engine is stale.
#[must_use]
pub fn trtllm_page(labels: Labels, snapshot: &EngineSnapshot, latest: Option<&Latest>) -> Page {
    let (mut page, labels) = (Page::default(), Arc::new(labels));
    let mut put = |id: Id, value: Option<Value>| {
        if let Some(value) = value {
            page.push(id, &labels, value);
        }
    };
    let int = |value: Option<i64>| value.map(Value::from);
    let float = |value: Option<f64>| value.map(Value::from);
    if let Some(latest) = &snapshot.latest {
        // Limits stay where load leaves.
        put(Id::TrtllmMaxNumActiveRequests, int(latest.max_active));
        put(Id::TrtllmMaxBatchSizeStatic, int(latest.batch_size_limits.fixed));
        put(Id::TrtllmMaxBatchSizeRuntime, int(latest.batch_size_limits.runtime));
        put(Id::TrtllmMaxNumTokensRuntime, int(latest.token_limits.runtime));
    }
    if let Some(latest) = latest {
        put(Id::TrtllmNumRequestsRunning, int(latest.active));
        put(Id::TrtllmNumRequestsWaiting, int(latest.queued));
        put(Id::TrtllmGpuMemoryUsage, int(latest.gpu_memory));
        put(Id::TrtllmCpuMemoryUsage, int(latest.cpu_memory));
        put(Id::TrtllmPinnedMemoryUsage, int(latest.pinned_memory));
        put(Id::TrtllmIterationLatency, float(latest.iter_latency_ms.map(|ms| ms / 1000.0)));
        if let Some(inflight) = &latest.inflight {
            put(Id::TrtllmNumContextRequests, int(inflight.num_context_requests));
            put(Id::TrtllmNumGenerationRequests, int(inflight.num_gen_requests));
            put(Id::TrtllmNumPausedRequests, int(inflight.num_paused_requests));
            put(Id::TrtllmNumScheduledRequests, int(inflight.num_scheduled_requests));
            put(Id::TrtllmTotalContextTokens, int(inflight.num_ctx_tokens));
            put(Id::TrtllmAvgDecodedTokensPerIter, float(inflight.avg_num_decoded_tokens_per_iter));
            put(Id::TrtllmPrefillBatchOccupancy, float(ratio(inflight.num_context_requests, latest.max_active)));
        }
        if let Some(kv) = &latest.kv {
            put(Id::TrtllmKvCacheUtilization, float(fraction(kv)));
            put(Id::TrtllmKvCacheHitRate, float(kv.cache_hit_rate));
            put(Id::TrtllmKvCacheMaxBlocks, int(kv.max_num_blocks));
            put(Id::TrtllmKvCacheFreeBlocks, int(kv.free_num_blocks));
            put(Id::TrtllmKvCacheUsedBlocks, int(kv.used_num_blocks));
            put(Id::TrtllmKvCacheTokensPerBlock, int(kv.tokens_per_block));
        }
        if let Some(spec) = &latest.spec_decoding {
            put(Id::TrtllmSpecAcceptanceLength, float(spec.acceptance_length));
            put(Id::TrtllmSpecDraftOverhead, float(spec.draft_overhead));
        }
    }
    let (totals, requests) = (&snapshot.totals, &snapshot.requests);
    trtllm_pools(totals, latest, &mut put);
    for (id, count) in [
        (Id::TrtllmNumRequestsCompleted, totals.requests_completed),
        (Id::TrtllmKvCacheReusedBlocks, totals.kv_cache_blocks_reused),
        (Id::TrtllmKvCacheMissedBlocks, totals.kv_cache_blocks_missed),
        (Id::TrtllmSpecDraftTokens, totals.spec_decode_draft_tokens),
        (Id::TrtllmSpecAcceptedTokens, totals.spec_decode_accepted_tokens),
        (Id::TrtllmPromptTokens, requests.input_token_len.sum() as u64),
        (Id::TrtllmGenerationTokens, requests.output_token_len.sum() as u64),
    ] {
        put(id, Some(Value::from(count)));
    }
    let times = &requests.times;
    for (id, histogram) in [
        (Id::TrtllmTimeToFirstToken, &times.time_to_first_token),
        (Id::TrtllmTimePerOutputToken, &times.time_per_output_token),
        (Id::TrtllmE2eLatency, &times.e2e_latency),
        (Id::TrtllmRequestQueueTime, &times.queue_time),
        (Id::TrtllmRequestPrefillTime, &times.prefill_time),
        (Id::TrtllmRequestDecodeTime, &times.decode_time),
        (Id::TrtllmRequestInferenceTime, &times.inference_time),
        (Id::TrtllmPrefillBatchTokens, &totals.iteration_context_tokens),
    ] {
        put(id, Some(Value::from(histogram)));
    }
    // Upstream knows four reasons.
    let reasons = Id::TrtllmRequestSuccess.metric().variant.map_or(&[][..], |variant| variant.values);
    for (reason, count) in reasons.iter().zip(requests.finished.into_iter().flatten()) {
        page.push(Id::TrtllmRequestSuccess, &Arc::new(labels.with("finished_reason", reason)), count);
    }
    page
}

/// Of the KV cache's pools, as trtllm-serve's collector sums them over windows.
fn trtllm_pools(totals: &Totals, latest: Option<&Latest>, put: &mut impl FnMut(Id, Option<Value>)) {
    if let Some(pools) = latest.and_then(|latest| latest.pools) {
        let [max, _, used, ..] = pools.secondary;
        put(Id::TrtllmKvHostUtilization, ratio(used, max).map(Value::from));
        let looked_up = pools.looked_up.map(|(reused, missed)| (reused, reused.saturating_add(missed))).unzip();
        put(Id::TrtllmKvIterReuseRate, ratio(looked_up.0, looked_up.1).map(Value::from));
    }
    let [_, _, reused, full, partial, missed, generation, ..] = totals.pools.blocks;
    let [onboarded, offloaded, copied, _] = totals.pools.bytes;
    for (id, count) in [
        (Id::TrtllmKvIterReused, reused),
        (Id::TrtllmKvIterFullReused, full),
        (Id::TrtllmKvIterPartialReused, partial),
        (Id::TrtllmKvIterMissed, missed),
        (Id::TrtllmKvGenAlloc, generation),
        (Id::TrtllmKvOnboardBytes, onboarded),
        (Id::TrtllmKvOffloadBytes, offloaded),
        (Id::TrtllmKvCopyBytes, copied),
    ] {
        put(id, count.map(Value::from));
    }
}

/// Triton's request counters. `labels`: model, version and the engine's own.
#[must_use]
pub fn triton_core_page(
    labels: &Arc<Labels>,
    failures: &[Arc<Labels>],
    snapshot: &EngineSnapshot,
    latest: Option<&Latest>,
) -> Page {
    let mut page = Page::default();
    let (totals, times) = (&snapshot.totals, &snapshot.requests.times);
    let micros = |seconds: f64| (seconds * 1e6).round() as u64;
    for (id, count) in [
        (Id::InferenceRequestSuccess, totals.requests_completed),
        (Id::InferenceCount, totals.requests_completed),
        (Id::InferenceExecCount, totals.iterations),
    ] {
        page.push(id, labels, count);
    }
    // Requests whose times nobody tells have no duration; one of no requests is 0.
    let timed = snapshot.requests.source != LatencySource::None || totals.requests_completed == 0;
    for (id, count) in [
        (Id::InferenceRequestDuration, micros(times.e2e_latency.sum())),
        (Id::InferenceQueueDuration, micros(times.queue_time.sum())),
        // Queue and inference are the whole of an executor's request, as Triton's four parts are of its own.
        (Id::InferenceComputeInput, 0),
        (Id::InferenceComputeInfer, micros(times.inference_time.sum())),
        (Id::InferenceComputeOutput, 0),
    ] {
        if timed {
            page.push(id, labels, count);
        }
    }
    let finished = snapshot.requests.finished.unwrap_or_default();
    let (cancelled, timed_out) = (FinishReason::Cancelled as usize, FinishReason::Timeout as usize);
    for (labels, count) in failures.iter().zip([0, finished[cancelled], finished[timed_out], 0]) {
        page.push(Id::InferenceRequestFailure, labels, count);
    }
    if let Some(latest) = latest
        && let Some(pending) = latest.queued.map(|queued| queued.saturating_add(waiting(latest).unwrap_or(0)))
    {
        page.push(Id::InferencePending, labels, pending);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::latest::Limits;

    #[test]
    fn of_a_stale_engine_the_load_leaves_and_the_limits_stay() {
        let limits = Limits { fixed: Some(64), runtime: Some(48), ..Limits::default() };
        let latest = Latest {
            active: Some(3),
            max_active: Some(64),
            batch_size_limits: limits,
            token_limits: limits,
            ..Latest::default()
        };
        let snapshot = EngineSnapshot { latest: Some(latest), ..EngineSnapshot::starting() };
        let shown = |latest| {
            let page = trtllm_page(Labels::default(), &snapshot, latest);
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
