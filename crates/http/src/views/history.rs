//! The last minutes in numbers: of one span for `/api/v1/engines`, and slot by slot for `/api/v1/history`. Unknown numbers are
//! left out.

use serde::Serialize;
use serde_json::{Value, json};

use trtllm_engine::window::{Distribution, Mark, Span};
use trtllm_page::state::{EngineSlot, Judged, State};
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};

use super::api::without_nulls;

/// Seconds of `window` in `/api/v1/engines`, and the most of `/api/v1/history`.
const WINDOW: f64 = 30.0;
pub const MOST_SECONDS: f64 = 300.0;

/// What happened in a span. Rates are per second, times in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Numbers {
    seconds: f64,
    iterations_per_second: f64,
    busy_ratio: f64,
    requests_started_per_second: f64,
    requests_completed_per_second: f64,
    context_tokens_per_second: f64,
    generation_tokens_per_second: f64,
    scheduled: Option<f64>,
    waiting: Option<f64>,
    kv_cache_used_ratio: Option<f64>,
    iteration_seconds: Option<f64>,
    ttft_seconds: Option<Times>,
    tpot_seconds: Option<Times>,
    e2e_seconds: Option<Times>,
    queue_seconds: Option<Times>,
    objectives_met_ratio: Option<f64>,
    failed_per_second: f64,
    cancelled_per_second: f64,
}

#[derive(Debug, Serialize)]
struct Times {
    mean: f64,
    p50: Option<f64>,
    p95: Option<f64>,
}

impl Numbers {
    fn of(span: &Span) -> Self {
        let (counts, sums, times) = (&span.counts, &span.sums, &span.distributions);
        let mean = |sum: f64| (sums.iterations > 0.0).then(|| sum / sums.iterations);
        let judged = counts.met_all + counts.missed_all;
        Self {
            seconds: span.seconds,
            iterations_per_second: span.rate(counts.iterations),
            busy_ratio: span.busy(),
            requests_started_per_second: span.rate(counts.started),
            requests_completed_per_second: span.rate(counts.completed),
            context_tokens_per_second: span.rate(sums.context_tokens * span.sampling),
            generation_tokens_per_second: span.rate((sums.generation_requests + sums.accepted_tokens) * span.sampling),
            scheduled: mean(sums.scheduled),
            waiting: mean(sums.backlog),
            kv_cache_used_ratio: (sums.cache_known > 0.0).then(|| sums.cache_used / sums.cache_known),
            iteration_seconds: times.iteration.mean(),
            ttft_seconds: Times::of(&times.ttft),
            tpot_seconds: Times::of(&times.tpot),
            e2e_seconds: Times::of(&times.e2e),
            queue_seconds: Times::of(&times.queue),
            objectives_met_ratio: (judged > 0.0).then(|| counts.met_all / judged),
            failed_per_second: span.rate(counts.failed + counts.timed_out + counts.refused),
            cancelled_per_second: span.rate(counts.cancelled),
        }
    }
}

impl Times {
    fn of(times: &Distribution) -> Option<Self> {
        Some(Self { mean: times.mean()?, p50: times.quantile(0.5), p95: times.quantile(0.95) })
    }
}

/// The numbers of the last half minute.
pub(super) fn window(judged: &Judged) -> Option<Value> {
    judged.window.span(WINDOW).map(|span| without_nulls(&Numbers::of(&span)))
}

/// Slots of the last `seconds`, oldest first, of these engines and of all GPUs. `ago` is the end of a slot before the newest one.
#[must_use]
pub fn history(state: &State, engines: &[std::sync::Arc<EngineSlot>], seconds: f64) -> Value {
    let of_engine = |engine: &EngineSlot| {
        let slots = engine.with_judged(|judged| {
            let newest = judged.window.last().map_or(0.0, |mark| mark.at);
            let recent = |(_, mark): &(Span, &Mark)| newest - mark.at < seconds;
            judged
                .window
                .slots()
                .filter(recent)
                .map(|(span, mark)| slot_json(&span, newest - mark.at))
                .collect::<Value>()
        });
        json!({"model": engine.name.model, "version": engine.name.version, "slots": slots})
    };
    let gpus = state.gpu_windows();
    json!({
        "apiVersion": super::API_VERSION,
        "slotSeconds": trtllm_engine::window::SLOT_SECONDS,
        "engines": engines.iter().map(|engine| of_engine(engine)).collect::<Value>(),
        "gpus": gpus.iter().map(|gpu| gpu_json(gpu, seconds)).collect::<Value>(),
    })
}

fn slot_json(span: &Span, ago: f64) -> Value {
    let mut numbers = without_nulls(&Numbers::of(span));
    numbers["ago"] = json!(ago);
    numbers
}

fn gpu_json(gpu: &GpuWindow, seconds: f64) -> Value {
    let newest = gpu.marks().next_back().map_or(0.0, |mark| mark.at);
    let recent = gpu.marks().filter(|mark| newest - mark.at < seconds);
    let slot = |mark: &GpuMark| {
        let GpuMark { utilization, watts, clock_share, is_ok, .. } = *mark;
        let ago = newest - mark.at;
        without_nulls(
            &json!({"ago": ago, "ok": is_ok, "utilizationRatio": utilization, "watts": watts, "clockRatio": clock_share}),
        )
    };
    json!({"uuid": gpu.uuid, "slots": recent.map(slot).collect::<Value>()})
}
