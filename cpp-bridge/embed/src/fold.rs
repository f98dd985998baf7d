//! One poll's records into the engine's totals, and these to the state that the page is made of. What `poll::Driver` does
//! for a source it asks; this one is told.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use exporter::engine::{Engine, EngineState};
use exporter::model::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};
use exporter::sources::{ErrorKind, RejectReason};
use exporter::state::{EngineAbout, EngineSnapshot, SourceStatus, State};

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
        while let Some((kind, item)) = next(&mut records) {
            if self.absorb_item(kind, item, now, wall_us).is_err() {
                self.source.rejected[RejectReason::NotARecord as usize] += 1;
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

    /// Kinds as `detail/pack.h` has them. One that a newer header has and this library does not is passed over.
    fn absorb_item(
        &mut self,
        kind: u8,
        item: &[u8],
        now: Instant,
        wall_us: i64,
    ) -> Result<(), rmp_serde::decode::Error> {
        match kind {
            b'i' => self.engine.absorb(&rmp_serde::from_slice::<IterationStats>(item)?, now, wall_us),
            b'r' => self.engine.absorb_requests(&rmp_serde::from_slice::<RequestStatsPerIteration>(item)?, now),
            b'p' => self.engine.absorb_perf_metrics(&rmp_serde::from_slice::<PerfMetricsEntry>(item)?),
            _ => {}
        }
        Ok(())
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

/// The next item's kind and MessagePack; None at the end.
fn next<'a>(records: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&kind, rest) = records.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (item, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *records = rest;
    Some((kind, item))
}

/// Microseconds since 1970 UTC.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
