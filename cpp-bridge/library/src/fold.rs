//! Turns the rows of one poll into the model's records and passes them to the intake of the one engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_intake::{Intake, Moment};
use trtllm_model::{EngineAbout, RejectReason};
use trtllm_page::state::EngineSlot;
use trtllm_sources::{Batch, Presence, SourceError, cpp_rows};

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
    pub(crate) fn absorb(&mut self, rows: &[u8], duration: Duration, failure: Option<String>) {
        let at = Moment::now();
        let (items, complete) = cpp_rows::items(rows);
        for item in items {
            self.intake.absorb(item, at);
        }
        if !complete {
            self.batch.reject(RejectReason::Truncated);
        }
        let failure = failure.map(|cause| SourceError::Engine { cause });
        let result = failure.as_ref().map_or(Ok(Presence::Present), Err);
        self.intake.end_poll(&mut self.batch, duration, result, at);
    }

    /// Called between polls: an engine that hangs must not keep its old numbers on the page.
    pub(crate) fn check_health(&mut self) {
        self.intake.check_health(Instant::now());
    }
}
