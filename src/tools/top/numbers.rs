//! The numbers of an engine: gauges of one page, and what changed between two of them. Pure.

use super::super::exporters::page::Page;
use super::histogram::Histogram;
use super::sides::OrchestratorTotals;
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

    /// The gauges and the totals of a page with one engine only.
    #[must_use]
    pub fn of(page: &Page) -> Self {
        let value = |name: &str, labels: &[(&str, &str)]| page.get(name, labels);
        let request = |kind| value("nv_trt_llm_request_metrics", &[("request_type", kind)]);
        let paused = [("inflight_batcher_specific_metric", "paused_requests")];
        let mut numbers = Self::default();
        for (number, gauge) in [
            (Number::Active, request("active")),
            (Number::Max, request("max")),
            (Number::Waiting, request("waiting")),
            (Number::Queued, value("nv_trt_llm_queued_requests", &[])),
            (Number::Paused, value("nv_trt_llm_inflight_batcher_metrics", &paused)),
            (Number::KvUsed, value("nv_trt_llm_kv_cache_block_metrics", &[("kv_cache_block_type", "fraction")])),
            (Number::Acceptance, value("nv_trt_llm_spec_decode_acceptance_ratio", &[])),
            (Number::Completed, value("nv_trt_llm_requests_completed_total", &[])),
            (Number::Lost, value("nv_trt_llm_iterations_lost_total", &[])),
            (Number::Restarts, value("nv_trt_llm_engine_restarts_total", &[])),
        ] {
            numbers.set(number, gauge);
        }
        numbers
    }

    /// Adds what changed since the read before: rates and iterations. Iterations are frequent, so one interval has enough.
    pub fn add_interval(&mut self, seconds: f64, before: &Totals, now: &Totals) {
        let rate =
            |of: fn(&Totals) -> Option<f64>| Some(growth(of(before), of(now))? / seconds).filter(|_| seconds > 0.0);
        let latency = now.latency.since(&before.latency);
        if now.iterations.is_none_or(|iterations| iterations == 0.0) {
            // All counters are 0 before the first record. A rate of 0 would look like an idle engine.
            return;
        }
        self.set(Number::Generated, rate(|totals| totals.generated));
        self.set(Number::Context, rate(|totals| totals.context));
        self.set(Number::Iterations, rate(|totals| totals.iterations));
        self.set(Number::LatencyMean, latency.as_ref().and_then(Histogram::mean));
        self.set(Number::LatencyP99, latency.as_ref().and_then(|latency| latency.quantile(0.99)));
    }

    /// Adds what requests observed since an older read. They are rarer than iterations, so they need a longer time.
    pub fn add_recent(&mut self, before: &Totals, now: &Totals) {
        let quantile = |between: &Option<Histogram>, quantile| between.as_ref().and_then(|of| of.quantile(quantile));
        let first = now.first_token.since(&before.first_token);
        let output = now.per_token.since(&before.per_token);
        self.set(Number::FirstP50, quantile(&first, 0.5));
        self.set(Number::FirstP95, quantile(&first, 0.95));
        self.set(Number::OutputP50, quantile(&output, 0.5));
        self.set(Number::OutputP95, quantile(&output, 0.95));
        let reused = growth(before.reused, now.reused);
        let looked_up = reused.zip(growth(before.missed, now.missed)).map(|(reused, missed)| reused + missed);
        self.set(Number::Hits, reused.zip(looked_up).map(|(reused, of)| reused / of));
    }
}

/// `None` after a restart.
pub(super) fn growth(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    let growth = now? - before?;
    (growth >= 0.0).then_some(growth)
}

/// Counters and histograms of one engine at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    iterations: Option<f64>,
    generated: Option<f64>,
    context: Option<f64>,
    reused: Option<f64>,
    missed: Option<f64>,
    latency: Histogram,
    first_token: Histogram,
    per_token: Histogram,
    pub orchestrator: OrchestratorTotals,
}

impl Totals {
    /// Of a page with one engine only.
    #[must_use]
    pub fn of(page: &Page) -> Self {
        Self {
            iterations: page.get("nv_trt_llm_iterations_total", &[]),
            generated: page.get("nv_trt_llm_generation_tokens_total", &[]),
            context: page.get("nv_trt_llm_context_tokens_total", &[]),
            reused: page.get("nv_trt_llm_kv_cache_blocks_reused_total", &[]),
            missed: page.get("nv_trt_llm_kv_cache_blocks_missed_total", &[]),
            latency: histogram(page, "nv_trt_llm_iteration_latency_seconds"),
            first_token: histogram(page, "nv_trt_llm_time_to_first_token_seconds"),
            per_token: histogram(page, "nv_trt_llm_time_per_output_token_seconds"),
            orchestrator: OrchestratorTotals::of(page),
        }
    }
}

/// Buckets of a histogram. The exporter has a few dozen.
const MAX_BUCKETS: usize = 256;

pub(super) fn histogram(page: &Page, name: &str) -> Histogram {
    let (buckets, sum) = (format!("{name}_bucket"), format!("{name}_sum"));
    let series = page.0.iter().filter(|series| series.name == buckets);
    let bucket =
        |series: &super::super::exporters::page::Series| Some((series.label("le")?.parse().ok()?, series.value));
    Histogram::new(series.filter_map(bucket).take(MAX_BUCKETS).collect(), page.get(&sum, &[]).unwrap_or(0.0))
}
