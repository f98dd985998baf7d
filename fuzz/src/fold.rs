//! Folds and publishes the records of one engine as the daemon does. The target sets the time. After each poll, no total
//! may have decreased or disappeared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_engines::State;
use trtllm_intake::{Intake, Moment};
use trtllm_page::metrics::catalog::{Group, Id, MetricKind, Profile};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::metrics::page::{Page, Sample, Value};
use trtllm_page::metrics::page_builder::{PageBuilder, Selection};
use trtllm_records::{EngineName, Objectives};
use trtllm_sources::{Batch, Presence, SourceError};

use super::session::Poll;

/// Triton's durations are withdrawn once a request without times has completed. Other totals are withdrawn if the engine
/// reports only some iterations.
const UNKNOWN_DURATIONS: [Id; 5] = [
    Id::InferenceRequestDuration,
    Id::InferenceQueueDuration,
    Id::InferenceComputeInput,
    Id::InferenceComputeInfer,
    Id::InferenceComputeOutput,
];

pub struct Fold {
    state: Arc<State>,
    intake: Intake,
    builder: PageBuilder,
    batch: Batch,
    now: Instant,
    /// The page after the previous poll.
    before: Page,
    withdrawn: Vec<Sample>,
}

impl Fold {
    pub fn new(name: EngineName) -> Self {
        let state = Arc::new(State::new(vec![name]));
        let all = CompatSets { trtllm: true, vllm: true, triton_core: true, dcgm: true, spec: true };
        Self {
            intake: Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15)),
            builder: PageBuilder::new(all, Profile::Full),
            state,
            batch: Batch::default(),
            // Begin in the future: readers of the state use the real clock, and must not find outdated values.
            now: Instant::now() + Duration::from_secs(3600),
            before: Page::default(),
            withdrawn: Vec::new(),
        }
    }

    pub fn poll(&mut self, poll: &Poll) {
        let complete = poll.answer.parse(&mut self.batch);
        self.end_poll(poll.gap, poll.unix_us, complete);
    }

    /// Parses with `parse`, which returns false if the poll failed, and folds the result.
    pub fn poll_with(&mut self, parse: impl FnOnce(&mut Batch) -> bool) {
        let complete = parse(&mut self.batch);
        self.end_poll(Duration::from_millis(100), 1_753_462_474_000_000, complete);
    }

    fn end_poll(&mut self, gap: Duration, unix_us: i64, complete: bool) {
        self.now += gap;
        let error = SourceError::Truncated { target: String::new() };
        let result = if complete { Ok(Presence::Present) } else { Err(&error) };
        self.intake.end_poll(&mut self.batch, Duration::ZERO, result, Moment { instant: self.now, unix_us });
        self.check_totals();
    }

    /// The page with the families of the engine, including all sets of additional names.
    pub fn page(&self) -> Page {
        let groups = Selection::of(&[Group::Triton, Group::Engine, Group::Compat]);
        self.builder.page(&self.state, &HttpMetrics::new(), groups)
    }

    /// The same page with the exporter's own families.
    pub fn whole_page(&self) -> Page {
        self.builder.page(&self.state, &HttpMetrics::new(), Selection::All)
    }

    pub fn gateway_page(&self) -> Page {
        self.builder.page(&self.state, &HttpMetrics::new(), Selection::Gateway)
    }

    /// A total may be withdrawn. When it returns, it must have at least its old value.
    fn check_totals(&mut self) {
        let page = self.page();
        let series: HashMap<_, _> = page
            .samples()
            .iter()
            .map(|sample| ((sample.metric.metric().name, sample.labels.series()), &sample.value))
            .collect();
        let sampled = self.state.slots().iter().any(|slot| slot.lock().totals().is_sampled());
        let mut withdrawn = Vec::new();
        for before in self.before.samples().iter().chain(&self.withdrawn).filter(|sample| is_total(sample)) {
            match series.get(&(before.metric.metric().name, before.labels.series())) {
                Some(now) => assert!(has_not_fallen(&before.value, now), "a total has fallen: {before:?} to {now:?}"),
                None => {
                    let id = before.metric;
                    let allowed =
                        if UNKNOWN_DURATIONS.contains(&id) { before.value == Value::Count(0) } else { sampled };
                    assert!(allowed, "a total has vanished: {before:?}");
                    withdrawn.push(before.clone());
                }
            }
        }
        self.withdrawn = withdrawn;
        self.before = page;
    }
}

fn is_total(sample: &Sample) -> bool {
    sample.metric.metric().kind != MetricKind::Gauge
}

fn has_not_fallen(before: &Value, now: &Value) -> bool {
    match (before, now) {
        (Value::Count(before), Value::Count(now)) => now >= before,
        (Value::Integer(before), Value::Integer(now)) => now >= before && *before >= 0,
        (Value::Float(before), Value::Float(now)) => now >= before && *before >= 0.0,
        (Value::Histogram(before), Value::Histogram(now)) => {
            let mut buckets = before.cumulative().zip(now.cumulative());
            buckets.all(|((_, before), (_, now))| now >= before)
                && now.count() >= before.count()
                && now.sum() >= before.sum()
        }
        _ => false,
    }
}

/// An engine with the default labels.
pub fn engine() -> EngineName {
    let text = |text: &str| text.to_owned();
    EngineName {
        model: text("m"),
        version: text("1"),
        labels: Vec::new(),
        source: "trtllm-serve",
        objectives: Objectives::default(),
    }
}
