//! Findings about an orchestrator of disaggregated serving: it cannot serve, or requests to its workers fail.

use std::collections::VecDeque;

use trtllm_analysis::numbers::share;
use trtllm_analysis::totals;
use trtllm_analysis::window::{Distribution, SLOT_SECONDS};
use trtllm_fold::orchestrator::{OrchestratorTotals, SideTotals};
use trtllm_records::orchestrator::Side;

use super::finding::{Finding, TEXTS};
use crate::finding_rules;
use crate::verdict::{Unit, percent};

finding_rules! {
    TEXTS;
    NOT_READY = "orchestrator-not-ready", Engine, Critical;
    ERRORS = "orchestrator-errors", Engine, Warning;
    RETRIES = "orchestrator-retries", Engine, Warning;
}

/// A finding needs more failed or repeated requests than this share, in the orchestrator or to the workers of one side.
pub const ORCHESTRATOR_ERRORS: f64 = 0.05;
/// With fewer requests, the share may be chance.
const ENOUGH_REQUESTS: f64 = 20.0;
/// Seconds over which requests, errors and retries are counted.
const MINUTE: f64 = 60.0;
/// Number of marks, one every five seconds, that span five minutes. Streams without an answer need this longer span, because its last
/// seconds do not count: those streams may still wait.
pub const MARKS: usize = 61;
/// Every stream gets this many seconds until its first bytes, so a short stall of a worker does not count as a failure.
const LEAST_WAIT: f64 = 10.0;
/// Seconds that a stream gets if no stream has ever been answered, so that the usual time is unknown.
const UNKNOWN_WAIT: f64 = 60.0;
/// Seconds that a request may need from its acceptance through the context side to the generation side.
const CONTEXT_SECONDS: f64 = 30.0;

/// The counters of an orchestrator at one moment, or how much they grew in a span. Counters that it does not report are absent.
#[derive(Debug, Clone, PartialEq)]
pub struct OrchestratorMark {
    /// The time of the moment, or the length of the span, in seconds.
    pub at: f64,
    pub requests: Option<f64>,
    /// The part of `requests` that is not streamed.
    pub whole: Option<f64>,
    pub http_errors: f64,
    pub internal_errors: f64,
    /// Requests that the orchestrator did not accept.
    pub invalid: f64,
    pub sides: Vec<(Side, SideMark)>,
}

totals! {
    /// Requests to the workers of one side.
    pub struct SideMark of (totals: &SideTotals) {
        sent: f64 = totals.sent as f64,
        failed: f64 = totals.failed as f64,
        retried: f64 = totals.retried as f64,
        streams_begun: f64 = totals.streams_begun as f64,
        answers: f64 = totals.answers as f64,
        first_bytes: Distribution = Distribution::of(&totals.first_bytes),
        complete: Distribution = Distribution::of(&totals.complete),
    }
}

impl OrchestratorMark {
    pub fn of(totals: &OrchestratorTotals, at: f64) -> Self {
        let number = |value: Option<u64>| value.map(|value| value as f64);
        let requests = number(totals.streamed).zip(number(totals.whole)).map(|(streamed, whole)| streamed + whole);
        let sides = Side::ALL.into_iter().zip(&totals.sides);
        Self {
            at,
            requests,
            whole: number(totals.whole),
            http_errors: number(totals.http_errors).unwrap_or(0.0),
            internal_errors: number(totals.internal_errors).unwrap_or(0.0),
            invalid: number(totals.invalid).unwrap_or(0.0),
            sides: sides.filter_map(|(side, counted)| Some((side, SideMark::of(counted.as_ref()?)))).collect(),
        }
    }

    /// How much the counters grew in the last `seconds`. `marks` were taken every five seconds, oldest first.
    pub fn span(marks: &VecDeque<Self>, seconds: f64) -> Option<Self> {
        let last = marks.back()?;
        let first = marks.iter().find(|mark| last.at - mark.at <= seconds + 0.5 * SLOT_SECONDS)?;
        (last.at > first.at).then(|| last.since(first))
    }

    /// How much the counters grew since `before`.
    fn since(&self, before: &Self) -> Self {
        let grew = |(side, now): &(Side, SideMark)| (*side, before.side(*side).map_or(*now, |old| now.since(old)));
        let grown = |now: Option<f64>, before: Option<f64>| now.zip(before).map(|(now, before)| now - before);
        Self {
            at: self.at - before.at,
            requests: grown(self.requests, before.requests),
            whole: grown(self.whole, before.whole),
            http_errors: self.http_errors - before.http_errors,
            internal_errors: self.internal_errors - before.internal_errors,
            invalid: self.invalid - before.invalid,
            sides: self.sides.iter().map(grew).collect(),
        }
    }

    fn side(&self, side: Side) -> Option<&SideMark> {
        self.sides.iter().find(|(known, _)| *known == side).map(|(_, counted)| counted)
    }

    /// Share of the requests that ended with an error or were not accepted.
    pub fn error_share(&self) -> Option<f64> {
        let errors = self.http_errors + self.internal_errors + self.invalid;
        let requests = self.requests?.max(errors);
        (requests > 0.0).then(|| errors / requests)
    }
}

impl SideMark {
    /// Failed requests, without attempts that were repeated. In most releases, `_response_generator` in openai_client.py
    /// counts an error if a stream breaks before its first line, although `_post_with_retry` then sends the request again.
    /// The orchestrator does not say which errors these are, but they are at most as many as the retries, and as the streams
    /// with first bytes. So each error counts on a side without streams: context workers, whose requests never stream
    /// (`_get_ctx_request`), and a side that answers nothing.
    pub fn errors(&self) -> f64 {
        let repeated = self.retried.min(self.streams_begun);
        (self.failed - repeated).clamp(0.0, self.sent.max(0.0))
    }
}

/// All findings about an orchestrator. `marks` are its counters of the last five minutes, taken every five seconds, oldest first.
pub fn findings(subject: &str, now: &OrchestratorTotals, marks: &VecDeque<OrchestratorMark>) -> Vec<Finding> {
    let mut found = Vec::new();
    let sides = [
        (Side::Context, now.workers.context, now.minimal_workers.context),
        (Side::Generation, now.workers.generation, now.minimal_workers.generation),
    ];
    let short: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, ready, needed)| {
            let needed = needed.unwrap_or(0).max(1);
            ready.filter(|ready| *ready < needed).map(|ready| format!("{ready} of {needed} {} workers", side.name()))
        })
        .collect();
    if now.ready == Some(false) || !short.is_empty() {
        let detail = if short.is_empty() { "it says that it is not ready".to_owned() } else { short.join(", ") };
        found.push(NOT_READY.about(subject).detail(&detail));
    }
    let Some(minute) = OrchestratorMark::span(marks, MINUTE) else { return found };
    let mut failing = Vec::new();
    for (failed, of) in [(minute.http_errors, "error status"), (minute.internal_errors, "internal error")] {
        let share = many(failed, minute.requests.unwrap_or(0.0));
        failing.extend(share.map(|share| format!("{} with an {of}", percent(share))));
    }
    let of_sides = |part: fn(&SideMark) -> f64| {
        let share = move |(side, counted): &(Side, SideMark)| {
            many(part(counted), counted.sent).map(|share| format!("{} to {} workers", percent(share), side.name()))
        };
        minute.sides.iter().filter_map(share).collect::<Vec<_>>()
    };
    failing.extend(of_sides(SideMark::errors));
    let unanswered = unanswered_streams(marks).and_then(|(lost, streams)| many(lost, streams));
    failing.extend(unanswered.map(|share| {
        format!("{} of the streams to {} workers got no answer", percent(share), Side::Generation.name())
    }));
    if !failing.is_empty() {
        let errors = ERRORS.about(subject).detail(&failing.join(", "));
        // Streams without an answer are counted over a longer time, in which fewer requests a minute are enough.
        let requests = minute.requests.filter(|requests| *requests >= ENOUGH_REQUESTS);
        found.push(errors.with("requests", requests, Unit::Count, ENOUGH_REQUESTS));
    }
    let repeated = of_sides(|counted| counted.retried);
    if !repeated.is_empty() {
        found.push(RETRIES.about(subject).detail(&repeated.join(", ")));
    }
    found
}

/// Streams to generation workers that have waited too long for their first bytes, and all streams that were sent as long ago.
///
/// The error counters of most releases miss them: for a stream, `_send_request` in openai_client.py returns a generator
/// before anything is sent, so nothing counts a refused connection or an error status, neither as an error nor as
/// completed. The first bytes are the earliest sign of an accepted stream. `completed_requests` would show the same, but
/// only after the time of the longest answers.
fn unanswered_streams(marks: &VecDeque<OrchestratorMark>) -> Option<(f64, f64)> {
    let (oldest, last) = (marks.front()?, marks.back()?);
    let side = last.side(Side::Generation)?;
    if side.streams_begun == 0.0 && side.answers > 0.0 {
        // No answer is streamed, or the orchestrator does not have this histogram.
        return None;
    }
    let minute = OrchestratorMark::span(marks, MINUTE)?;
    // In a growing queue, those that still wait will need longer than those that were answered.
    let usual = [side, minute.side(Side::Generation)?].map(|side| side.first_bytes.quantile(0.95).unwrap_or(0.0));
    let wait = if side.streams_begun > 0.0 { LEAST_WAIT.max(2.0 * usual[0].max(usual[1])) } else { UNKNOWN_WAIT };
    let settled = marks.iter().rev().find(|mark| last.at - mark.at >= wait)?;
    let first = marks.iter().find(|mark| mark.at - oldest.at >= CONTEXT_SECONDS)?;
    // A side that the orchestrator did not have yet had no requests.
    let of = |mark: &OrchestratorMark, part: fn(&SideMark) -> f64| mark.side(Side::Generation).map_or(0.0, part);
    // The orchestrator counts requests without streaming when it accepts them, and the side counts them when they are
    // sent to it. So those that were accepted shortly before `first` count, too.
    let whole = settled.whole? - oldest.whole?;
    let streams = of(settled, |side| side.sent) - of(first, |side| side.sent) - whole;
    let answered = of(last, |side| side.streams_begun) - of(first, |side| side.streams_begun);
    Some((streams - answered, streams))
}

/// `part` ÷ `of`, if it is above [`ORCHESTRATOR_ERRORS`] and `of` is large enough.
fn many(part: f64, of: f64) -> Option<f64> {
    let share = share(part, of);
    (of >= ENOUGH_REQUESTS && share > ORCHESTRATOR_ERRORS).then_some(share)
}
