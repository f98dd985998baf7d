//! Sends recorded requests when their time has come. Runs on the executor's thread, between polls.

use std::time::{Duration, Instant};

use trtllm_bridge::{BridgeError, Executor};

use super::hosting::Recorded;
use super::recording::{Recording, Request};

/// How often an engine that has all it may have is looked at again.
const LOOK: Duration = Duration::from_millis(2);
/// Requests sent before polls have their turn.
const AT_ONCE: usize = 256;
/// In flight where the file has no times and nobody said how many.
const UNTIMED_IN_FLIGHT: u64 = 8;

/// A recording being played to an engine.
#[derive(Debug)]
pub(super) struct Feed {
    plan: Recorded,
    recording: Recording,
    next: Option<Request>,
    started: Option<Instant>,
    /// Of the first request that has a time, so that a trace cut from a longer one starts at once.
    first_at: Option<f64>,
    sent: u64,
    refused: u64,
    unreadable: u64,
}

impl Feed {
    pub(super) fn open(plan: Recorded) -> std::io::Result<Self> {
        let recording = Recording::open(&plan.path)?;
        let feed =
            Self { plan, recording, next: None, started: None, first_at: None, sent: 0, refused: 0, unreadable: 0 };
        Ok(feed)
    }

    /// Sends what is due; when to come again, or None at the end.
    pub(super) fn run(&mut self, executor: &mut Executor, now: Instant) -> Option<Duration> {
        for _ in 0..AT_ONCE {
            let Some(at) = self.upcoming().map(|request| request.at) else {
                let Self { sent, refused, unreadable, .. } = self;
                tracing::info!(sent, refused, unreadable, "the recorded requests have all been sent");
                return None;
            };
            let timed = at.is_some() && self.plan.speed.is_some();
            if let Some(wait) = self.wait(at, now) {
                return Some(wait);
            }
            let limit = self.plan.in_flight.map(u64::from).or((!timed).then_some(UNTIMED_IN_FLIGHT));
            if let Some(limit) = limit {
                let progress = executor.load_progress();
                if progress.enqueued.saturating_sub(progress.finished) >= limit {
                    return Some(LOOK);
                }
            }
            let Some(request) = self.next.take() else { continue };
            match executor.enqueue(&request.prompt, request.output_tokens) {
                Ok(_) => self.sent += 1,
                Err(error @ (BridgeError::ShutDown | BridgeError::NotLeader)) => {
                    tracing::warn!(%error, "the recorded requests end here");
                    return None;
                }
                Err(error) => {
                    self.refused += 1;
                    if self.refused == 1 {
                        tracing::warn!(%error, "the engine refused a recorded request; it is left out, as are more");
                    }
                }
            }
        }
        Some(Duration::ZERO)
    }

    fn upcoming(&mut self) -> Option<&Request> {
        while self.next.is_none() {
            match self.recording.next()? {
                Ok(request) => self.next = Some(request),
                Err(why) => {
                    self.unreadable += 1;
                    if self.unreadable == 1 {
                        let path = self.plan.path.display();
                        tracing::warn!(%path, why, "a recorded request cannot be read; it is left out, as are more");
                    }
                }
            }
        }
        self.next.as_ref()
    }

    fn wait(&mut self, at: Option<f64>, now: Instant) -> Option<Duration> {
        let (at, speed) = (at?, self.plan.speed?);
        let first = *self.first_at.get_or_insert(at);
        let due = *self.started.get_or_insert(now) + Duration::try_from_secs_f64((at - first) / speed).ok()?;
        let wait = due.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }
}
