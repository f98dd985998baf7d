//! Sends recorded requests at their times. Runs on the thread of the executor, between polls.

use std::time::{Duration, Instant};

use trtllm_bridge::{BridgeError, Executor};

use super::hosting::Recorded;
use super::recording::{Recording, Request};

/// How often to check an engine that has the maximum number of requests in flight.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// Requests sent in a row, so that polls are not delayed.
const MAX_AT_ONCE: usize = 256;
/// Requests in flight if the file has no times and the configuration sets no limit.
const UNTIMED_IN_FLIGHT: u64 = 8;

/// Sends a recording to an engine.
#[derive(Debug)]
pub(super) struct Feed {
    plan: Recorded,
    recording: Recording,
    next: Option<Request>,
    started: Option<Instant>,
    /// The time of the first request with one. It is sent at once, so a part of a longer trace has no wait at its start.
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

    /// Sends all requests that are due. Returns the time until the next call, or None at the end of the recording.
    pub(super) fn run(&mut self, executor: &mut Executor, now: Instant) -> Option<Duration> {
        for _ in 0..MAX_AT_ONCE {
            let Some(at) = self.upcoming().map(|request| request.at) else {
                let Self { sent, refused, unreadable, .. } = self;
                tracing::info!(sent, refused, unreadable, "all recorded requests were sent");
                return None;
            };
            let timed = at.is_some() && self.plan.speed.is_finite();
            if let Some(wait) = self.wait(at, now) {
                return Some(wait);
            }
            let limit = self.plan.in_flight.map(u64::from).or((!timed).then_some(UNTIMED_IN_FLIGHT));
            if let Some(limit) = limit {
                let progress = executor.load_progress();
                if progress.enqueued.saturating_sub(progress.finished) >= limit {
                    return Some(CHECK_INTERVAL);
                }
            }
            let Some(request) = self.next.take() else { continue };
            match executor.enqueue(&request.prompt, request.output_tokens) {
                Ok(_) => self.sent += 1,
                Err(error @ (BridgeError::ShutDown | BridgeError::NotLeader)) => {
                    tracing::warn!(%error, "the engine has shut down and accepts no more requests; to send them again, restart the exporter");
                    return None;
                }
                Err(error) => {
                    self.refused += 1;
                    if self.refused == 1 {
                        tracing::warn!(%error, "the engine refused a recorded request; this and further ones are skipped; choose requests within its limits");
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
                Err(error) => {
                    self.unreadable += 1;
                    if self.unreadable == 1 {
                        let path = self.plan.path.display();
                        tracing::warn!(%path, error, "a recorded request is invalid; this and further ones are skipped; fix the line");
                    }
                }
            }
        }
        self.next.as_ref()
    }

    /// The time until a request recorded at `at` is due. None: now.
    fn wait(&mut self, at: Option<f64>, now: Instant) -> Option<Duration> {
        let after = at? - *self.first_at.get_or_insert(at?);
        let due = *self.started.get_or_insert(now) + Duration::try_from_secs_f64(after / self.plan.speed).ok()?;
        due.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}
