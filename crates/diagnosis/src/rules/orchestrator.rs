//! The orchestrator of disaggregated serving: whether it can serve, and what fails on its way to the workers.

use super::super::finding::{Check, Fact, Facts, Rule, Severity, count, share, text};
use super::super::observation::Engine;
use super::super::thresholds::ORCHESTRATOR_ERRORS;

/// Fewer requests in the window prove nothing.
const ENOUGH_REQUESTS: f64 = 20.0;

const SIDES: [&str; 3] = ["context", "generation", "encoder"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "orchestrator-not-ready",
        severity: Severity::Critical,
        check: Check::Engine(not_ready),
        says: "The orchestrator cannot serve: it says that it is not ready, or a side has too few workers.",
        when: "nv_trt_llm_disagg_ready is 0, or nv_trt_llm_disagg_ready_workers of a side is 0 or below \
               nv_trt_llm_disagg_minimal_workers.",
        guideline: "A request needs a context worker and a generation worker. A worker that loads its model is not counted yet.",
        change: "Start workers of this side, or read the log of those that ended. minimal_instances in the file of the orchestrator \
                 says how many it waits for.",
        alerts: &["TrtllmDisaggNotReady"],
    },
    Rule {
        name: "orchestrator-errors",
        severity: Severity::Warning,
        check: Check::Engine(errors),
        says: "Requests through the orchestrator fail.",
        when: "More than 5 % of at least 20 accepted requests ended with an error status, or of the requests to the workers of one side \
               failed.",
        guideline: "An error status of a worker may be the client's fault: the orchestrator does not tell 4xx from 5xx.",
        change: "Read the log of the workers of the side that fails, or of the orchestrator if no side does. Timeouts of transfers: \
                 check the network between the sides.",
        alerts: &["TrtllmDisaggRequestsFailing"],
    },
    Rule {
        name: "orchestrator-retries",
        severity: Severity::Warning,
        check: Check::Engine(retries),
        says: "The orchestrator repeats requests to the workers of a side.",
        when: "Retries are more than 5 % of at least 20 requests to the workers of a side.",
        guideline: "It waits a second before each attempt, so users wait longer.",
        change: "The log of the orchestrator names the worker that breaks connections or answers with an error.",
        alerts: &["TrtllmDisaggRetries"],
    },
];

fn not_ready(engine: &Engine) -> Facts {
    let workers = |name, side| engine.page.now(name, &[("side", side)]);
    let mut facts = Vec::new();
    for side in SIDES {
        let Some(ready) = workers("nv_trt_llm_disagg_ready_workers", side) else { continue };
        let needed = workers("nv_trt_llm_disagg_minimal_workers", side).unwrap_or(0.0).max(1.0);
        if ready < needed {
            facts.extend([text("side", side), count("workers", ready), count("workers needed", needed)]);
        }
    }
    if engine.page.now("nv_trt_llm_disagg_ready", &[]) == Some(0.0) {
        facts.push(count("nv_trt_llm_disagg_ready", 0.0));
    }
    (!facts.is_empty()).then_some(facts)
}

fn errors(engine: &Engine) -> Facts {
    let mut facts = Vec::new();
    let kinds = [("http", "requests with an error status"), ("internal", "requests with an internal error")];
    let requests = engine.page.grew("nv_trt_llm_disagg_requests_total", &[]);
    for (kind, name) in kinds {
        let failed = engine.page.grew("nv_trt_llm_disagg_request_errors_total", &[("kind", kind)]);
        if requests >= ENOUGH_REQUESTS && failed > ORCHESTRATOR_ERRORS * requests {
            facts.push(share(name, failed / requests));
        }
    }
    facts.extend(of_sides(engine, "nv_trt_llm_disagg_worker_errors_total", "failed requests to its workers"));
    (!facts.is_empty()).then_some(facts)
}

fn retries(engine: &Engine) -> Facts {
    let facts = of_sides(engine, "nv_trt_llm_disagg_worker_retries_total", "retries of requests to its workers");
    (!facts.is_empty()).then_some(facts)
}

/// The sides of which `counter` grew by more than a few requests in a hundred.
fn of_sides(engine: &Engine, counter: &str, name: &'static str) -> Vec<Fact> {
    let grew = |counter: &str, side| engine.page.grew(counter, &[("side", side)]);
    let of_side = |side: &'static str| {
        let requests = grew("nv_trt_llm_disagg_worker_requests_total", side);
        let part = grew(counter, side);
        let much = requests >= ENOUGH_REQUESTS && part > ORCHESTRATOR_ERRORS * requests;
        much.then(|| [text("side", side), share(name, part / requests)])
    };
    SIDES.into_iter().filter_map(of_side).flatten().collect()
}
