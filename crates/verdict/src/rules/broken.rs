//! Causes that mean that something is broken: the engine, its requests, its memory, its statistics.

use trtllm_analysis::numbers::share;
use trtllm_analysis::window::Span;
use trtllm_fold::EngineState;
use trtllm_records::PodTrouble;

use crate::cause::Cause;
use crate::input::{Silence, VerdictInput};
use crate::verdict::{Found, Severity, Unit, percent, time};

/// Seconds without an answer from which the severity is a warning: LONG_LOAD while a model loads whose usual load time is unknown,
/// else SILENT.
const SILENT: f64 = 120.0;
const LONG_LOAD: f64 = 900.0;
/// Failed requests are a cause from the share FAILED on, and critical from the share FAILED_CRITICAL on. Fewer failed requests than
/// ENOUGH_FAILED may be chance.
const FAILED: f64 = 0.02;
const FAILED_CRITICAL: f64 = 0.5;
const ENOUGH_FAILED: f64 = 5.0;
/// Host memory leaks (and not only fills a cache) if it grew by GROWTH bytes, and in at least the share GROWS of the slots.
const GROWTH: f64 = 1_073_741_824.0;
const GROWS: f64 = 0.8;
/// Host memory must have grown for this many seconds.
const GROWTH_SECONDS: f64 = 120.0;
/// If at least the share MANY_FAILED of the requests fails, growth in SOME_RISES slots is enough for a leak.
const MANY_FAILED: f64 = 0.1;
const SOME_RISES: f64 = 3.0;
/// Iterations without a record are a cause from this share on.
const LOST: f64 = 0.1;
/// Fewer iterations without a record may be chance.
const ENOUGH_LOST: f64 = 50.0;
/// From this many records per poll on, the engine's buffer may overflow. It holds 1000 records by default.
const NEAR_OVERFLOW: f64 = 500.0;
/// Failed polls explain missing records if their share times this reaches the share of these: many polls find no record to lose.
const SAME_SHARE: f64 = 2.0;
/// An engine that was busy or idle counts as silent only after this many seconds without an answer.
const HICCUP: f64 = 10.0;

pub(super) fn unavailable(input: &VerdictInput) -> Option<Found> {
    if input.facts.state == EngineState::Stalled {
        let says = match input.facts.notices.is_wedged {
            true => {
                "The engine runs no batch: active requests are at their limit and the KV cache is nearly full, as after transfers that were \
                 cancelled and kept their blocks."
            }
            false => "Requests are active, and the engine runs no batch.",
        };
        // An engine that sends records runs its loop.
        let of = if input.has_records { "a loop without batches" } else { "a stalled engine" };
        return Some(Found::new(Severity::Critical, says).remedy(Cause::Unavailable.remedy_for(of), &[]));
    }
    silent(input.facts.state, input.facts.silence.as_ref())
}

/// The rule for an engine or orchestrator that does not answer.
pub(crate) fn silent(state: EngineState, silence: Option<&Silence>) -> Option<Found> {
    let silence = silence?;
    let (seconds, long, why) = (silence.seconds, time(silence.seconds), silence.why.trim_end_matches('.'));
    let found = |severity, says: String, name, limit: Option<f64>, case| {
        let found = Found::new(severity, says).with(name, seconds, Unit::Seconds, limit);
        found.remedy(Cause::Unavailable.remedy_for(case), &[])
    };
    let by_kubernetes = match &silence.pod {
        Some(PodTrouble::Down(reason)) => Some(("The engine's pod is down", reason)),
        Some(PodTrouble::Restarted(reason)) => {
            Some(("The engine's container has failed, and loads the model again", reason))
        }
        Some(PodTrouble::Loading(_)) | None => None,
    };
    if let Some((what, reason)) = by_kubernetes {
        let says = format!("{what}, for {long} so far: {reason}.");
        // The reason is known, so waiting shows nothing more.
        return Some(found(Severity::Critical, says, "time without an answer", None, "a failed container"));
    }
    if matches!(state, EngineState::Busy | EngineState::Idle) && seconds < HICCUP {
        return None;
    }
    if silence.is_no_engine {
        let says = format!("The address answers, but not with statistics of an engine: {why}.");
        return Some(Found::warning(says).remedy(Cause::Unavailable.remedy_for("another server"), &[]));
    }
    if silence.has_lost_engine {
        let severity = if seconds >= SILENT { Severity::Critical } else { Severity::Warning };
        let says = format!("The server has lost its engine: it has served, and answers 503 for {long}.");
        return Some(found(severity, says, "time with status 503", Some(SILENT), "a lost engine"));
    }
    if silence.is_loading {
        let limit = silence.longest_load.map_or(LONG_LOAD, |longest| 2.0 * longest);
        let severity = if seconds > limit { Severity::Warning } else { Severity::Info };
        let of_pod = silence.pod.as_ref().map_or(String::new(), |pod| format!(" ({})", pod.why()));
        let says = format!("The model loads, for {long} so far{of_pod}.");
        return Some(found(severity, says, "time of the load", Some(limit), "a load"));
    }
    let severity = if seconds >= SILENT { Severity::Warning } else { Severity::Info };
    if silence.publisher_left {
        let says = format!("The engine's publisher is gone for {long}.");
        return Some(found(severity, says, "time without a publisher", Some(SILENT), "a missing publisher"));
    }
    let (what, case) = if silence.is_closed {
        ("The source could not be opened", "a closed source")
    } else if silence.has_status {
        ("The server answers without statistics", "an error status")
    } else if silence.is_slow {
        ("The server does not answer in time", "a timeout")
    } else {
        ("Nothing answers", "silence")
    };
    Some(found(severity, format!("{what} for {long}: {why}."), "time without an answer", Some(SILENT), case))
}

pub(super) fn memory(input: &VerdictInput) -> Option<Found> {
    let bytes = &input.host_bytes;
    let growth = bytes.last()? - bytes.first()?;
    let rises = bytes.windows(2).filter(|two| two[1] > two[0]).count() as f64;
    let steady = rises >= GROWS * (bytes.len() - 1) as f64 && input.kept.seconds >= GROWTH_SECONDS;
    let (ended, failed) = input.failures();
    let fails = failed >= ENOUGH_FAILED && failed >= MANY_FAILED * ended;
    if growth < GROWTH || !(steady || fails && rises >= SOME_RISES) {
        return None;
    }
    let (grown, share) = (format!("{:.1} GB", growth / 1e9), percent(share(failed, ended)));
    let (severity, says) = match fails {
        true => (Severity::Critical, format!("Host memory grew by {grown}, and now {share} of the requests fail.")),
        false => {
            let says = format!("Host memory of the engine grows without end: {grown} in {}.", time(input.kept.seconds));
            (Severity::Warning, says)
        }
    };
    Some(
        Found::new(severity, says)
            .with("growth of host memory", growth, Unit::Bytes, GROWTH)
            .remedy(Cause::Memory.remedy(), &[]),
    )
}

pub(super) fn errors(input: &VerdictInput) -> Option<Found> {
    let (ended, failed) = input.failures();
    let share = share(failed, ended);
    if failed < ENOUGH_FAILED || share < FAILED {
        return None;
    }
    let counts = &input.now.counts;
    let (fail, of) = match counts.timed_out >= 0.5 * failed {
        true => ("time out in the server", "timeouts"),
        false => ("fail", "other errors"),
    };
    let severity = if share >= FAILED_CRITICAL { Severity::Critical } else { Severity::Warning };
    Some(
        Found::new(severity, format!("{} of the requests {fail}.", percent(share)))
            .with("requests that failed or timed out", share, Unit::Share, FAILED)
            .remedy(Cause::Errors.remedy_for(of), &[]),
    )
}

pub(super) fn statistics(input: &VerdictInput) -> Option<Found> {
    let counts = &input.now.counts;
    let is_off = counts.iterations <= 0.0 || input.facts.notices.several_engines;
    // A few lost records are a finding, but not the cause of a verdict.
    let many = is_off || counts.iterations_lost + counts.iterations_unexplained >= ENOUGH_LOST;
    incomplete(input).filter(|(missing, _)| many && *missing >= LOST).map(|(_, found)| found)
}

/// The share of the iterations that have no record, and why.
pub(crate) fn incomplete(input: &VerdictInput) -> Option<(f64, Found)> {
    let counts = &input.now.counts;
    let (ended, _) = input.failures();
    let ended = ended.max(input.now.distributions.e2e.count).max(counts.completed);
    let is_off = counts.iterations <= 0.0 && input.kept.counts.iterations <= 0.0;
    if input.facts.notices.only_requests {
        return None;
    }
    if input.facts.notices.several_engines {
        let found = Found::warning(
            "Several engines answer at one address, each with iteration numbers of its own, so nothing is counted.",
        )
        .remedy(Cause::Statistics.remedy_for("several engines"), &[]);
        return Some((1.0, found));
    }
    if is_off && ended >= ENOUGH_FAILED || input.facts.notices.records_missing {
        return Some((1.0, off(input, ended)));
    }
    let lost = share(counts.iterations_lost, counts.iterations + counts.iterations_lost);
    // Gaps are normal if the engine reports only some iterations. They are also normal in an engine that waits for KV caches: a pass of
    // its loop without a batch has no record.
    let is_meant = input.now.sampling > 1.0 || input.now.distributions.transfer.count > 0.0;
    let gaps = if is_meant { 0.0 } else { counts.iterations_unexplained };
    let unreported = share(gaps, counts.iterations + gaps);
    let missing = if unreported >= LOST { lost.max(unreported) } else { lost };
    let share = percent(missing);
    let (says, of, settings): (_, _, &[&str]) = if input.facts.notices.several_frontends {
        let says = "Several frontends answer for this engine, so its server's own numbers are unknown and records can be lost.";
        (says.to_owned(), "several frontends", &["num_serve_frontends"])
    } else if missing <= 0.0 {
        return None;
    } else if overflows(input) {
        let says = format!("{share} of the iterations have no record: the engine drops them before they are read.");
        (says, "dropped records", &["iter_stats_max_iterations"])
    } else if SAME_SHARE * of_failed_polls(input) >= missing {
        let why = "polls that failed have probably taken them";
        (format!("{share} of the iterations have no record: {why}."), "failed polls", &[])
    } else {
        let why = "another program takes them, or the engine keeps too few between two polls";
        (format!("{share} of the iterations have no record: {why}."), "another reader", &[])
    };
    let found = Found::warning(says)
        .with("iterations without a record", missing, Unit::Share, LOST)
        .unsure(lost < LOST)
        .remedy(Cause::Statistics.remedy_for(of), settings);
    Some((missing, found))
}

fn off(input: &VerdictInput, ended: f64) -> Found {
    let setting = input.by_backend("enable_iter_perf_stats", "iterStatsMaxIterations");
    Found::warning("Requests end, and the engine writes no records of its iterations.")
        .with("requests that ended", ended, Unit::Count, None)
        .remedy(Cause::Statistics.remedy_for(input.backend()), &[setting])
}

/// True if the engine's ring buffer cannot have kept all records until the next poll.
fn overflows(input: &VerdictInput) -> bool {
    let Span { counts, polling, .. } = &input.now;
    let per_poll = share(counts.iterations + counts.iterations_lost, polling.polls);
    counts.dropped_by_engine > 0.0 || per_poll >= NEAR_OVERFLOW
}

/// Share of the polls that failed. A server removes the records before it sends its answer, so those of a failed poll are gone.
fn of_failed_polls(input: &VerdictInput) -> f64 {
    share(input.now.polling.polls_failed, input.now.polling.polls)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trtllm_analysis::ObservedEngine;
    use trtllm_analysis::window::{Mark, Window};

    use super::*;
    use crate::input::EngineFacts;

    fn told(change: fn(&mut Silence)) -> (String, Severity) {
        let mut silence = Silence { seconds: 150.0, why: "http://e:8000 answered".to_owned(), ..Silence::default() };
        change(&mut silence);
        let found = silent(EngineState::Unreachable, Some(&silence)).unwrap();
        (found.says, found.severity)
    }

    #[test]
    fn a_server_that_has_served_and_answers_503_has_lost_its_engine() {
        let (says, severity) = told(|silence| (silence.has_lost_engine, silence.has_status) = (true, true));
        assert!(says.starts_with("The server has lost its engine"), "{says}");
        assert_eq!(severity, Severity::Critical);
        let (says, severity) = told(|silence| (silence.is_loading, silence.has_status) = (true, true));
        assert!(says.starts_with("The model loads"), "{says}");
        assert_eq!(severity, Severity::Info);
    }

    #[test]
    fn the_reasons_of_kubernetes_are_named_and_a_pod_that_is_down_is_told_at_once() {
        let down = PodTrouble::Down("Evicted".to_owned());
        let silence = |seconds| Silence { seconds, pod: Some(down.clone()), ..Silence::default() };
        let found = silent(EngineState::Busy, Some(&silence(5.0))).unwrap();
        assert_eq!(
            (&*found.says, found.severity),
            ("The engine's pod is down, for 5.0 s so far: Evicted.", Severity::Critical)
        );
        assert_eq!(silent(EngineState::Unreachable, Some(&silence(150.0))).unwrap().severity, Severity::Critical);
        let (says, severity) = told(|silence| {
            (silence.is_loading, silence.pod) = (true, Some(PodTrouble::Loading("ImagePullBackOff".to_owned())));
        });
        assert_eq!((&*says, severity), ("The model loads, for 2 min so far (ImagePullBackOff).", Severity::Info));
        let twice = |silence: &mut Silence| (silence.is_loading, silence.longest_load) = (true, Some(75.0));
        assert_eq!(told(twice).1, Severity::Info, "twice the usual time is not too long");
        let (says, severity) = told(|silence| {
            (silence.is_loading, silence.pod) = (true, Some(PodTrouble::Restarted("OOMKilled".to_owned())));
        });
        assert!(says.starts_with("The engine's container has failed, and loads the model again"), "{says}");
        assert_eq!(severity, Severity::Critical);
    }

    #[test]
    fn nobody_is_told_to_restart_an_engine_that_sends_records() {
        let told = |iterations: f64| {
            let engine = ObservedEngine::new(Duration::from_secs(15));
            let mut window = Window::default();
            for (at, iterations) in [(0.0, 0.0), (60.0, 9.0), (65.0, 9.0 + iterations)] {
                let mut mark = Mark::of(&engine, at);
                mark.counts.iterations = iterations;
                window.push(mark);
            }
            let facts = EngineFacts { state: EngineState::Stalled, ..EngineFacts::default() };
            let found = unavailable(&VerdictInput::of(facts, &window, &[]).unwrap()).unwrap();
            assert_eq!(found.severity, Severity::Critical);
            found.remedy
        };
        assert!(told(0.0).starts_with("Restart the engine"));
        assert!(!told(5.0).contains("Restart"));
    }

    #[test]
    fn an_answer_with_a_status_is_not_silence() {
        let (says, severity) = told(|silence| silence.has_status = true);
        assert_eq!(
            (&*says, severity),
            ("The server answers without statistics for 2 min: http://e:8000 answered.", Severity::Warning)
        );
        let (says, severity) = told(|silence| silence.is_slow = true);
        assert!(says.starts_with("The server does not answer in time for 2 min"), "{says}");
        assert_eq!(severity, Severity::Warning);
        let (says, severity) = told(|_| ());
        assert_eq!((&*says, severity), ("Nothing answers for 2 min: http://e:8000 answered.", Severity::Warning));
    }
}
