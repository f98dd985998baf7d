//! One engine of the host: its options, its records and its polls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use trtllm_intake::{Intake, Moment};
use trtllm_model::{EngineAbout, RejectReason};
use trtllm_page::state::EngineSlot;
use trtllm_sources::keys::LineParser;
use trtllm_sources::trtllm_json::{Hello, PublisherLine};
use trtllm_sources::{Batch, Presence, SourceError};

/// Longest line in bytes. The ingest socket has the same limit.
const MAX_LINE: usize = 1 << 20;

/// The options of the host. They are one JSON text, so that headers and libraries of different versions work together.
/// Unknown keys are ignored, and missing keys have defaults.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct EngineOptions {
    pub(crate) listen: String,
    pub(crate) telemetry_path: String,
    /// The same object as in the first line of a connection to the ingest socket.
    pub(crate) hello: Hello,
    pub(crate) engine_version: String,
    pub(crate) stale_after_ms: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            listen: String::new(),
            telemetry_path: "/metrics".to_owned(),
            hello: Hello::default(),
            engine_version: String::new(),
            stale_after_ms: 15_000,
        }
    }
}

/// Folds the lines of one engine.
#[derive(Debug)]
pub(crate) struct HostedFold {
    intake: Intake,
    lines: LineParser,
    batch: Batch,
}

impl HostedFold {
    pub(crate) fn new(slot: Arc<EngineSlot>, stale_after: Duration, about: EngineAbout) -> Self {
        let now = Instant::now();
        let mut intake = Intake::new(slot, stale_after);
        intake.publish_running(about, now);
        Self { intake, lines: LineParser::default(), batch: Batch::default() }
    }

    pub(crate) fn absorb(&mut self, line: &[u8]) -> Result<(), RejectReason> {
        let is_short = line.len() <= MAX_LINE;
        let parsed = if is_short { self.lines.parse(line, &mut self.batch.keys) } else { Err(RejectReason::TooLong) };
        let result = match parsed {
            Ok(PublisherLine::Item(item)) => {
                self.intake.absorb(item, Moment::now());
                Ok(())
            }
            // The hello comes with the options, so a line must not be a hello.
            Ok(PublisherLine::Hello(_)) => Err(RejectReason::NotARecord),
            Err(reason) => Err(reason),
        };
        result.inspect_err(|reason| self.batch.reject(*reason))
    }

    pub(crate) fn end_poll(&mut self, duration: Duration, failure: Option<String>) {
        let failure = failure.map(|cause| SourceError::Engine { cause });
        let result = failure.as_ref().map_or(Ok(Presence::Present), Err);
        self.intake.end_poll(&mut self.batch, duration, result, Moment::now());
    }

    /// Called between polls, so that an engine that hangs does not keep its old values on the page.
    pub(crate) fn check_health(&mut self) {
        self.intake.check_health(Instant::now());
    }
}
