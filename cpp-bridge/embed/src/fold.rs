//! One poll's records into the engine's totals, and these to the state that the page is made of. What `poll::Driver` does
//! for a source it asks; this one is told.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use exporter::engine::{Engine, EngineState};
use exporter::model::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};
use exporter::sources::{ErrorKind, RejectReason};
use exporter::state::{EngineAbout, EngineSnapshot, SourceStatus, State};
use serde::Deserialize as _;

/// What the header sends, each as a map of one key.
#[derive(Debug, serde::Deserialize)]
enum Item {
    #[serde(rename = "record")]
    Record(Box<IterationStats>),
    #[serde(rename = "requests")]
    Requests(RequestStatsPerIteration),
    #[serde(rename = "perf")]
    PerfMetrics(Box<PerfMetricsEntry>),
}

/// The one engine of an embedded exporter.
#[derive(Debug)]
pub(crate) struct Fold {
    engine: Engine,
    source: SourceStatus,
    about: EngineAbout,
    published: EngineState,
    state: Arc<State>,
}

impl Fold {
    pub(crate) fn new(state: Arc<State>, stale_after: Duration, about: EngineAbout) -> Self {
        let engine = Engine::new(Instant::now(), stale_after);
        let source = SourceStatus { ready: true, ..SourceStatus::new() };
        let mut fold = Self { engine, source, about, published: EngineState::Starting, state };
        fold.publish();
        fold
    }

    /// One poll: the records it brought, how long it took, and why it failed if it did.
    pub(crate) fn absorb(&mut self, mut records: &[u8], took: Duration, failure: Option<String>) {
        let now = Instant::now();
        let wall_us = wall_us();
        while !records.is_empty() {
            let mut reader = rmp_serde::Deserializer::new(&mut records);
            match Item::deserialize(&mut reader) {
                Ok(Item::Record(record)) => self.engine.absorb(&record, now, wall_us),
                Ok(Item::Requests(rows)) => self.engine.absorb_requests(&rows, now),
                Ok(Item::PerfMetrics(entry)) => self.engine.absorb_perf_metrics(&entry),
                Err(_) => {
                    // Where the next one begins is unknown.
                    self.source.rejected[RejectReason::NotARecord as usize] += 1;
                    break;
                }
            }
        }
        self.engine.settle(now);
        self.source.polls += 1;
        self.source.poll_duration.observe(took.as_secs_f64());
        self.source.up = failure.is_none();
        if failure.is_none() {
            self.engine.health.answered(now);
            self.source.last_success_us = Some(wall_us);
        } else {
            self.source.errors[ErrorKind::Engine as usize] += 1;
        }
        self.source.last_error = failure;
        self.publish();
    }

    /// Time passes also while no poll returns: an engine that hangs must not keep its old numbers on the page.
    pub(crate) fn tick(&mut self) {
        if self.engine.health.state(Instant::now()) != self.published {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.published = self.engine.health.state(Instant::now());
        self.state.publish_engine(
            0,
            EngineSnapshot {
                state: self.published,
                latest: self.engine.latest().copied(),
                totals: self.engine.totals,
                requests: self.engine.requests.totals,
                stages: self.engine.stages(),
                source: self.source.clone(),
                about: self.about.clone(),
            },
        );
    }
}

/// Microseconds since 1970 UTC.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
