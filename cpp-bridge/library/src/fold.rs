//! Turns the rows of one poll into the model's records and passes them to the intake of the one engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::rows::{Kind, Row};
use exporter::intake::{Intake, Moment};
use exporter::model::{EngineAbout, RejectReason, RequestStatsPerIteration};
use exporter::sources::{Batch, Item, Presence, SourceError};
use exporter::state::EngineSlot;

/// The one engine of an embedded exporter.
#[derive(Debug)]
pub(crate) struct Fold {
    intake: Intake,
    batch: Batch,
}

impl Fold {
    pub(crate) fn new(slot: Arc<EngineSlot>, stale_after: Duration, about: EngineAbout) -> Self {
        let now = Instant::now();
        let mut intake = Intake::new(slot, stale_after);
        intake.publish_running(about, now);
        Self { intake, batch: Batch::default() }
    }

    /// Folds one poll: its rows, its duration, and the reason if it failed.
    pub(crate) fn absorb(&mut self, mut rows: &[u8], duration: Duration, failure: Option<String>) {
        let at = Moment::now();
        let mut requests = None;
        while let Some(row) = Row::next(&mut rows) {
            match row.kind {
                Kind::Iteration => {
                    self.absorb_requests(requests.take(), at);
                    self.intake.absorb_record(&row.iteration(), at);
                }
                Kind::Requests => {
                    self.absorb_requests(requests.take(), at);
                    requests = Some(RequestStatsPerIteration { iter: row.count(0), request_stats: Some(Vec::new()) });
                }
                Kind::Request => {
                    if let Some(requests) = requests.as_mut().and_then(|requests| requests.request_stats.as_mut()) {
                        requests.push(row.request());
                    }
                }
                Kind::Finished => self.intake.absorb(Item::PerfMetrics(Box::new(row.finished())), at),
                Kind::Unknown => {}
            }
        }
        self.absorb_requests(requests, at);
        if !rows.is_empty() {
            self.batch.reject(RejectReason::Truncated);
        }
        let failure = failure.map(|cause| SourceError::Engine { cause });
        let result = failure.as_ref().map_or(Ok(Presence::Present), Err);
        self.intake.end_poll(&mut self.batch, duration, result, at);
    }

    fn absorb_requests(&mut self, requests: Option<RequestStatsPerIteration>, at: Moment) {
        if let Some(requests) = requests {
            self.intake.absorb(Item::Requests(requests), at);
        }
    }

    /// Called between polls: an engine that hangs must not keep its old numbers on the page.
    pub(crate) fn check_health(&mut self) {
        self.intake.check_health(Instant::now());
    }
}
