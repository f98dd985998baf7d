//! One poll's records into the engine's totals, and these to the state that the page is made of. What `poll::Driver` does
//! for a source it asks; this one is told.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::rows::{Kind, Row};
use exporter::engine::{Engine, EngineState};
use exporter::model::RequestStatsPerIteration;
use exporter::sources::{ErrorKind, RejectReason};
use exporter::state::{EngineAbout, SourceStatus, State};

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
        let mut rows = None;
        while let Some(row) = Row::next(&mut records) {
            match row.kind {
                Kind::Iteration => {
                    self.absorb_requests(rows.take(), now);
                    self.engine.absorb(&row.iteration(), now, wall_us);
                }
                Kind::Requests => {
                    self.absorb_requests(rows.take(), now);
                    rows = Some(RequestStatsPerIteration { iter: row.count(0), request_stats: Some(Vec::new()) });
                }
                Kind::Request => {
                    if let Some(requests) = rows.as_mut().and_then(|rows| rows.request_stats.as_mut()) {
                        requests.push(row.request());
                    }
                }
                Kind::Finished => self.engine.absorb_perf_metrics(&row.finished(), now),
                Kind::Unknown => {}
            }
        }
        self.absorb_requests(rows, now);
        if !records.is_empty() {
            self.source.rejected[RejectReason::Truncated as usize] += 1;
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

    fn absorb_requests(&mut self, rows: Option<RequestStatsPerIteration>, now: Instant) {
        if let Some(rows) = rows {
            self.engine.absorb_requests(&rows, now);
        }
    }

    /// Time passes also while no poll returns: an engine that hangs must not keep its old numbers on the page.
    pub(crate) fn tick(&mut self) {
        if self.engine.health.state(Instant::now()) != self.published {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.published = self.engine.health.state(Instant::now());
        self.state.update_engine(0, |snapshot| snapshot.write(self.published, &self.engine, &self.source, &self.about));
    }
}

/// Microseconds since 1970 UTC.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
