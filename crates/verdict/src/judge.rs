//! Chooses the cause, and keeps it while it flickers.

use trtllm_engine::EngineState;

use super::cause::Cause;
use super::reading::{Reading, Silence};
use super::rules::{RULES, alone, silent};
use super::verdict::{Confidence, Found, Severity, Verdict};

/// The verdict at this moment. Absent while too little is known. `wall`: seconds since 1970.
#[must_use]
pub fn judge(reading: &Reading, wall: f64) -> Option<Verdict> {
    let mut found = RULES.iter().filter_map(|(cause, rule)| Some((*cause, rule(reading)?)));
    let Some((cause, first)) = found.next().or_else(|| alone(reading)) else {
        // A busy engine needs some slots. An idle one needs none.
        let is_known = reading.has_work || reading.kept.sums.iterations <= 0.0 || reading.now.sums.iterations <= 0.0;
        return is_known.then(|| healthy(reading, wall));
    };
    let consequences = if is_broken(cause) { Vec::new() } else { found.map(|(cause, _)| cause).collect() };
    Some(verdict(cause, first, consequences, reading.cost(), wall))
}

/// The verdict on an orchestrator, which runs no iterations: only whether it answers.
#[must_use]
pub fn judge_orchestrator(state: EngineState, silence: Option<&Silence>, wall: f64) -> Option<Verdict> {
    silent(state, silence).map(|found| verdict(Cause::Unavailable, found, Vec::new(), None, wall))
}

/// Nothing that is concluded from the work of such an engine means anything.
fn is_broken(cause: Cause) -> bool {
    matches!(cause, Cause::Unavailable)
}

fn healthy(reading: &Reading, wall: f64) -> Verdict {
    let says = match reading.has_work {
        true => "The engine serves what arrives.",
        false => "The engine is idle.",
    };
    verdict(Cause::None, Found::new(says).severity(Severity::None), Vec::new(), reading.cost(), wall)
}

fn verdict(cause: Cause, found: Found, consequences: Vec<Cause>, cost: Option<String>, since: f64) -> Verdict {
    let Found { severity, confidence, says, evidence, remedy, settings } = found;
    Verdict { cause, severity, confidence, says, evidence, cost, remedy, settings, consequences, since }
}

/// Times in a row that another cause must be found before it replaces the present one.
const STEADY: u32 = 2;
/// The same for the end of all trouble.
const RECOVERED: u32 = 3;

/// The verdict on one engine over time. A cause that comes and goes is one finding.
#[derive(Debug, Clone, Default)]
pub struct Steady {
    verdict: Option<Verdict>,
    other: Option<(Cause, u32)>,
}

impl Steady {
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.verdict.as_ref().map(|verdict| verdict.cause)
    }

    /// Takes the verdict of the next moment.
    pub fn follow(&mut self, next: Option<Verdict>) {
        let Some(mut next) = next else {
            (self.verdict, self.other) = (None, None);
            return;
        };
        let Some(now) = &self.verdict else {
            self.verdict = Some(next);
            return;
        };
        if next.cause == now.cause {
            next.since = now.since;
            (self.verdict, self.other) = (Some(next), None);
            return;
        }
        let times = match self.other {
            Some((cause, times)) if cause == next.cause => times + 1,
            _ => 1,
        };
        let needed = match (now.cause, next.cause) {
            // Whether an engine answers is known at once.
            (Cause::Unavailable, _) | (_, Cause::Unavailable) => 1,
            (_, Cause::None) => RECOVERED,
            (Cause::None, _) if next.confidence == Confidence::High => 1,
            _ => STEADY,
        };
        if times >= needed {
            (self.verdict, self.other) = (Some(next), None);
        } else {
            self.other = Some((next.cause, times));
        }
    }
}
