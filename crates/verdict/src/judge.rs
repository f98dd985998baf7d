//! Chooses the cause. A cause that is found for a moment only does not replace the current one.

use trtllm_fold::EngineState;

use super::blind::{BlindSpot, is_costly, needed};
use super::cause::Cause;
use super::input::{Silence, VerdictInput};
use super::rules::{RULES, alone, before_batch, silent, standing, unseen_limit};
use super::verdict::{Confidence, Found, Severity, Verdict};

/// The verdict at this moment. Absent while too little is known. `wall` is the time in seconds since 1970.
pub fn judge(input: &VerdictInput, wall: f64) -> Option<Verdict> {
    let mut found = RULES.iter().filter_map(|(cause, rule)| Some((*cause, rule(input)?)));
    let Some((cause, first)) = found.next().or_else(|| alone(input)).or_else(|| unseen_limit(input)) else {
        // The engine has sent no record yet.
        if input.facts.state == EngineState::Starting {
            return None;
        }
        // A working engine is called healthy only after some time slots with work, an idle engine at once.
        let is_known = input.has_work || input.kept.sums.iterations <= 0.0 || input.now.sums.iterations <= 0.0;
        return is_known.then(|| certain(input, healthy(input, wall)));
    };
    // While the engine does not answer, its statistics are old, and other causes that they show mean nothing.
    let consequences = match cause {
        Cause::Unavailable => Vec::new(),
        _ => found.map(|(cause, _)| cause).collect(),
    };
    Some(certain(input, verdict(cause, first, consequences, input.cost(), wall)))
}

/// Adds to a verdict what cannot be seen, and what that means for it.
fn certain(input: &VerdictInput, mut verdict: Verdict) -> Verdict {
    let blind = input.blind_spots();
    let missing: Vec<_> = blind.iter().filter(|blind| needed(verdict.cause).contains(blind)).collect();
    verdict.blind = blind.iter().map(|blind| BlindSpot::of(*blind, input.facts.notices.only_log)).collect();
    if !missing.is_empty() {
        verdict.confidence = Confidence::Low;
        if is_costly(verdict.cause) {
            let names: Vec<_> = missing.iter().map(|blind| blind.name()).collect();
            verdict.remedy = format!(
                "Another cause is possible, because these cannot be seen here: {}. See that first. If nothing else shows: {}",
                names.join(", ").replace('_', " "),
                verdict.remedy
            );
        }
    }
    verdict
}

/// The verdict on an orchestrator. It runs no iterations, so the only possible cause is that it does not answer.
pub fn judge_orchestrator(state: EngineState, silence: Option<&Silence>, wall: f64) -> Option<Verdict> {
    silent(state, silence).map(|found| verdict(Cause::Unavailable, found, Vec::new(), None, wall))
}

/// A text for markdown as plain text.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

fn healthy(input: &VerdictInput, wall: f64) -> Verdict {
    if let Some(unclear) = standing(input).or_else(|| before_batch(input)) {
        return verdict(Cause::None, unclear, Vec::new(), input.cost(), wall);
    }
    let says = match input.has_work {
        true => "The engine serves what arrives.",
        false if input.facts.notices.only_requests && input.now.distributions.e2e.count > 0.0 => {
            "Nothing delays the first tokens of these requests; what limits the engines is unknown here."
        }
        false if input.facts.state == EngineState::Busy => {
            "Requests are active, and the records do not show any batch."
        }
        false => "The engine is idle.",
    };
    verdict(Cause::None, Found::new(Severity::None, says), Vec::new(), input.cost(), wall)
}

fn verdict(cause: Cause, found: Found, consequences: Vec<Cause>, cost: Option<String>, since: f64) -> Verdict {
    let Found { severity, confidence, says, evidence, remedy, settings } = found;
    let (blind, trade_off) = (Vec::new(), plain(cause.trade_off()).into());
    Verdict {
        cause,
        severity,
        confidence,
        says,
        evidence,
        cost,
        remedy,
        trade_off,
        helped_if: cause.helped_if().into(),
        settings,
        consequences,
        blind,
        since,
    }
}

/// How many times in a row another cause must be found before it replaces the current one.
const STEADY: u32 = 2;
/// How many times in a row no cause must be found before the engine counts as recovered.
const RECOVERED: u32 = 3;

/// The verdict on one engine over time. It does not change if another cause is found only for a moment.
#[derive(Debug, Clone, Default)]
pub struct DebouncedVerdict {
    verdict: Option<Verdict>,
    candidate: Option<(Cause, u32)>,
}

impl DebouncedVerdict {
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    pub fn cause(&self) -> Option<Cause> {
        self.verdict.as_ref().map(|verdict| verdict.cause)
    }

    /// Updates the verdict with the one of the next moment.
    pub fn update(&mut self, next: Option<Verdict>) {
        let Some(mut next) = next else {
            (self.verdict, self.candidate) = (None, None);
            return;
        };
        let Some(now) = &self.verdict else {
            self.verdict = Some(next);
            return;
        };
        if next.cause == now.cause {
            next.since = now.since;
            (self.verdict, self.candidate) = (Some(next), None);
            return;
        }
        let times = match self.candidate {
            Some((cause, times)) if cause == next.cause => times + 1,
            _ => 1,
        };
        let needed = match (now.cause, next.cause) {
            // Whether an engine answers is certain, so this cause begins and ends without a delay.
            (Cause::Unavailable, _) | (_, Cause::Unavailable) => 1,
            (_, Cause::None) => RECOVERED,
            (Cause::None, _) if next.confidence == Confidence::High => 1,
            _ => STEADY,
        };
        if times >= needed {
            (self.verdict, self.candidate) = (Some(next), None);
        } else {
            self.candidate = Some((next.cause, times));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trtllm_analysis::ObservedEngine;
    use trtllm_analysis::window::{Mark, Window};

    use super::*;
    use crate::input::EngineFacts;

    #[test]
    fn an_engine_with_active_requests_is_not_called_idle() {
        let says = |state| {
            let (engine, mut window) = (ObservedEngine::new(Duration::from_secs(15)), Window::default());
            [0.0, 60.0].into_iter().for_each(|at| window.push(Mark::of(&engine, at)));
            let facts = EngineFacts { state, ..EngineFacts::default() };
            judge(&VerdictInput::of(facts, &window, &[]).unwrap(), 0.0).unwrap().says
        };
        assert_eq!(says(EngineState::Idle), "The engine is idle.");
        assert!(says(EngineState::Busy).contains("do not show any batch"));
    }

    #[test]
    fn an_engine_that_leaves_requests_with_seats_out_of_its_batches_does_not_serve_what_arrives() {
        let told = |held: f64, started: f64| {
            let (engine, mut window) = (ObservedEngine::new(Duration::from_secs(15)), Window::default());
            for slot in 0..13_u8 {
                let (mut mark, past) = (Mark::of(&engine, 5.0 * f64::from(slot)), f64::from(slot));
                let sums = &mut mark.sums;
                (sums.iterations, sums.scheduled) = (100.0 * past, 100.0 * past);
                (sums.held, sums.backlog, sums.waits) = (100.0 * held * past, 100.0 * held * past, 100.0 * past);
                (mark.counts.iterations, mark.counts.started) = (100.0 * past, started * past);
                window.push(mark);
            }
            let facts = EngineFacts { state: EngineState::Busy, ..EngineFacts::default() };
            judge(&VerdictInput::of(facts, &window, &[]).unwrap(), 0.0).unwrap()
        };
        let verdict = told(7.0, 0.0);
        assert!(verdict.says.starts_with("About 7 requests have seats but are in no batch."), "{}", verdict.says);
        assert_eq!(
            (verdict.cause, verdict.severity, verdict.confidence),
            (Cause::None, Severity::Info, Confidence::Low)
        );
        assert_eq!(told(0.0, 0.0).says, "The engine serves what arrives.");
    }

    #[test]
    fn a_wait_before_the_first_batch_without_times_of_transfers_is_not_blamed_on_the_http_server() {
        let told = |context_tokens: f64| {
            let (engine, mut window) = (ObservedEngine::new(Duration::from_secs(15)), Window::default());
            for slot in 0..13_u8 {
                let (mut mark, past) = (Mark::of(&engine, 5.0 * f64::from(slot)), f64::from(slot));
                let (sums, times) = (&mut mark.sums, &mut mark.distributions);
                (sums.iterations, sums.generation_requests, sums.scheduled) =
                    (100.0 * past, 200.0 * past, 200.0 * past);
                (sums.seats_known, sums.work.context_tokens) = (100.0 * past, context_tokens * past);
                (times.queue.count, times.queue.sum) = (10.0 * past, 2.9 * past);
                (times.ttft.count, times.ttft.sum) = (10.0 * past, 3.2 * past);
                (mark.counts.iterations, mark.counts.started) = (100.0 * past, 10.0 * past);
                window.push(mark);
            }
            let facts = EngineFacts { state: EngineState::Busy, is_pytorch: true, ..EngineFacts::default() };
            judge(&VerdictInput::of(facts, &window, &[]).unwrap(), 0.0).unwrap()
        };
        let verdict = told(0.0);
        assert!(verdict.says.starts_with("Requests wait 290 ms of 320 ms to the first token"), "{}", verdict.says);
        assert_eq!((verdict.cause, verdict.confidence), (Cause::None, Confidence::Low));
        assert_eq!(told(500.0).cause, Cause::Frontend, "an engine that computes prompts");
    }
}
