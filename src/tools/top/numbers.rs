//! The numbers of an engine, as its exporter's API has them. Pure.

use trtllm_http::views::numbers::{Numbers as Span, Times};

use super::super::exporters::api::Engine;
use super::units::Unit;

/// What is known about an engine, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Active,
    Queued,
    Waiting,
    Paused,
    Generated,
    Context,
    LatencyMean,
    LatencyP99,
    FirstP50,
    FirstP95,
    OutputP50,
    OutputP95,
    KvUsed,
    Hits,
    /// The rest is not in the table.
    Scheduled,
    Max,
    Iterations,
    Completed,
    Lost,
    Restarts,
    Acceptance,
}

impl Number {
    pub const TABLE: [Self; 14] = [
        Self::Active,
        Self::Queued,
        Self::Waiting,
        Self::Paused,
        Self::Generated,
        Self::Context,
        Self::LatencyMean,
        Self::LatencyP99,
        Self::FirstP50,
        Self::FirstP95,
        Self::OutputP50,
        Self::OutputP95,
        Self::KvUsed,
        Self::Hits,
    ];
    const COUNT: usize = Self::Acceptance as usize + 1;

    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Generated | Self::Context | Self::Iterations => Unit::PerSecond,
            Self::LatencyMean
            | Self::LatencyP99
            | Self::FirstP50
            | Self::FirstP95
            | Self::OutputP50
            | Self::OutputP95 => Unit::Seconds,
            Self::KvUsed | Self::Hits | Self::Acceptance => Unit::Share,
            _ => Unit::Count,
        }
    }
}

/// The numbers of one engine. Those that are unknown are absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers([Option<f64>; Number::COUNT]);

impl Numbers {
    #[must_use]
    pub fn get(&self, number: Number) -> Option<f64> {
        self.0[number as usize]
    }

    /// With its unit.
    #[must_use]
    pub fn text(&self, number: Number) -> Option<String> {
        self.get(number).map(|value| number.unit().text(value))
    }

    fn set(&mut self, number: Number, value: Option<f64>) {
        self.0[number as usize] = value.filter(|value| value.is_finite());
    }

    /// The last iteration and the last half minute of an engine.
    #[must_use]
    pub fn of(engine: &Engine) -> Self {
        let count = |value: Option<i64>| value.map(|value| value as f64);
        let mut numbers = engine.window.as_ref().map(Self::of_span).unwrap_or_default();
        let load = engine.load.clone().unwrap_or_default();
        for (number, value) in [
            (Number::Active, count(load.active)),
            (Number::Max, count(load.max_active)),
            (Number::Waiting, count(load.waiting)),
            (Number::Queued, count(load.queued)),
            (Number::Paused, count(load.paused)),
            (Number::KvUsed, load.kv_cache_used_ratio),
            (Number::Acceptance, load.spec_decode_acceptance_ratio),
        ] {
            numbers.set(number, value);
        }
        if let Some(totals) = engine.totals {
            // Before the first record, rates of 0 would look like an idle engine.
            if totals.iterations == 0 {
                numbers = Self::default();
            }
            numbers.set(Number::Completed, Some(totals.requests_completed as f64));
            numbers.set(Number::Lost, Some(totals.iterations_lost as f64));
            numbers.set(Number::Restarts, Some(totals.engine_restarts as f64));
        }
        numbers
    }

    /// What happened in a span. Levels are means over its iterations.
    #[must_use]
    pub fn of_span(span: &Span) -> Self {
        let mut numbers = Self::default();
        let times = |of: Option<Times>, part: fn(Times) -> Option<f64>| of.and_then(part);
        for (number, value) in [
            (Number::Scheduled, span.scheduled),
            (Number::Waiting, span.waiting),
            (Number::Generated, Some(span.generation_tokens_per_second)),
            (Number::Context, Some(span.context_tokens_per_second)),
            (Number::Iterations, Some(span.iterations_per_second)),
            (Number::LatencyMean, times(span.iteration_seconds, |times| Some(times.mean))),
            (Number::LatencyP99, times(span.iteration_seconds, |times| times.p99)),
            (Number::FirstP50, times(span.ttft_seconds, |times| times.p50)),
            (Number::FirstP95, times(span.ttft_seconds, |times| times.p95)),
            (Number::OutputP50, times(span.tpot_seconds, |times| times.p50)),
            (Number::OutputP95, times(span.tpot_seconds, |times| times.p95)),
            (Number::KvUsed, span.kv_cache_used_ratio),
            (Number::Hits, span.kv_cache_hit_ratio),
        ] {
            numbers.set(number, value);
        }
        numbers
    }
}
