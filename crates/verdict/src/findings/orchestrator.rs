//! Findings about an orchestrator of disaggregated serving: it cannot serve, or requests to its workers fail.

use trtllm_engine::orchestrator::{OrchestratorTotals, SideTotals};
use trtllm_engine::window::Distribution;
use trtllm_model::orchestrator::Side;

use super::Finding;
use crate::finding_rules;
use crate::reading::Reading;
use crate::verdict::{Unit, percent};

finding_rules! {
    NOT_READY = "orchestrator-not-ready", Engine, Critical:
        "The orchestrator cannot serve",
        "nv_trt_llm_disagg_ready is 0, or nv_trt_llm_disagg_ready_workers of a side is 0 or below nv_trt_llm_disagg_minimal_workers. A \
         worker that loads its model is not counted yet.",
        "Start workers of this side, or read the log of those that ended. minimal_instances in the file of the orchestrator says how many it \
         waits for.";
    ERRORS = "orchestrator-errors", Engine, Warning:
        "Requests through the orchestrator fail",
        "More than 5 % of at least 20 requests in a minute ended with an error status, or of the requests to the workers of one side failed. \
         The orchestrator does not tell 4xx from 5xx: the client may be at fault.",
        "Read the log of the workers of the side that fails, or of the orchestrator if no side does. Timeouts of transfers: check the \
         network between the sides.";
    RETRIES = "orchestrator-retries", Engine, Warning:
        "The orchestrator repeats requests to its workers, and users wait a second longer for each",
        "Retries are more than 5 % of at least 20 requests in a minute to the workers of a side.",
        "The log of the orchestrator names the worker that breaks connections or answers with an error.";
}

/// A finding needs more failed or repeated requests than this share, in the orchestrator or to the workers of one side.
pub const ORCHESTRATOR_ERRORS: f64 = 0.05;
/// With fewer requests, the share may be chance.
const ENOUGH_REQUESTS: f64 = 20.0;

/// The counters of an orchestrator at one moment, or how much they grew in a span. Counters that it does not report are absent.
#[derive(Debug, Clone, PartialEq)]
pub struct OrchestratorMark {
    /// The time of the moment, or the length of the span, in seconds.
    pub at: f64,
    pub requests: Option<f64>,
    pub http_errors: f64,
    pub internal_errors: f64,
    /// Requests that the orchestrator did not accept.
    pub invalid: f64,
    pub sides: Vec<(Side, SideMark)>,
}

/// Requests to the workers of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideMark {
    pub sent: f64,
    pub failed: f64,
    pub retried: f64,
    pub ended: f64,
    pub first_bytes: Distribution,
    pub complete: Distribution,
}

impl OrchestratorMark {
    #[must_use]
    pub fn of(totals: &OrchestratorTotals, at: f64) -> Self {
        let number = |value: Option<u64>| value.map(|value| value as f64);
        let requests = number(totals.streamed).zip(number(totals.whole)).map(|(streamed, whole)| streamed + whole);
        let sides = Side::ALL.into_iter().zip(&totals.sides);
        Self {
            at,
            requests,
            http_errors: number(totals.http_errors).unwrap_or(0.0),
            internal_errors: number(totals.internal_errors).unwrap_or(0.0),
            invalid: number(totals.invalid).unwrap_or(0.0),
            sides: sides.filter_map(|(side, counted)| Some((side, SideMark::of(counted.as_ref()?)))).collect(),
        }
    }

    /// How much the counters grew since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let old = |side: Side| before.sides.iter().find(|(known, _)| *known == side).map(|(_, counted)| counted);
        let grew = |(side, now): &(Side, SideMark)| (*side, old(*side).map_or(*now, |old| now.since(old)));
        Self {
            at: self.at - before.at,
            requests: self.requests.zip(before.requests).map(|(now, before)| now - before),
            http_errors: self.http_errors - before.http_errors,
            internal_errors: self.internal_errors - before.internal_errors,
            invalid: self.invalid - before.invalid,
            sides: self.sides.iter().map(grew).collect(),
        }
    }

    /// Share of the requests that ended with an error or were not accepted.
    #[must_use]
    pub fn error_share(&self) -> Option<f64> {
        let errors = self.http_errors + self.internal_errors + self.invalid;
        let requests = self.requests?.max(errors);
        (requests > 0.0).then(|| errors / requests)
    }
}

impl SideMark {
    fn of(totals: &SideTotals) -> Self {
        Self {
            sent: totals.sent as f64,
            failed: totals.failed as f64,
            retried: totals.retried as f64,
            ended: totals.ended as f64,
            first_bytes: Distribution::of(&totals.first_bytes),
            complete: Distribution::of(&totals.complete),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            failed: self.failed - before.failed,
            retried: self.retried - before.retried,
            ended: self.ended - before.ended,
            first_bytes: self.first_bytes.since(&before.first_bytes),
            complete: self.complete.since(&before.complete),
        }
    }
}

/// All findings about an orchestrator. `minute` is how much its counters grew in the last minute, if that is known.
#[must_use]
pub fn findings(subject: &str, now: &OrchestratorTotals, minute: Option<&OrchestratorMark>) -> Vec<Finding> {
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
    let Some(minute) = minute else { return found };
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
    failing.extend(of_sides(|counted| counted.failed));
    if !failing.is_empty() {
        let requests = minute.requests.unwrap_or(0.0);
        let errors = ERRORS.about(subject).detail(&failing.join(", "));
        found.push(errors.with("requests", requests, Unit::Count, ENOUGH_REQUESTS));
    }
    let repeated = of_sides(|counted| counted.retried);
    if !repeated.is_empty() {
        found.push(RETRIES.about(subject).detail(&repeated.join(", ")));
    }
    found
}

/// `part` ÷ `of`, if it is above [`ORCHESTRATOR_ERRORS`] and `of` is large enough.
fn many(part: f64, of: f64) -> Option<f64> {
    let share = Reading::share(part, of);
    (of >= ENOUGH_REQUESTS && share > ORCHESTRATOR_ERRORS).then_some(share)
}
