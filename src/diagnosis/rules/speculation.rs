//! Speculative decoding.

use super::super::finding::{Check, Facts, Rule, Severity, count, share};
use super::super::observation::Engine;

/// Tuning guideline: below this acceptance length, the draft is too poor; the target is above 2.
const ACCEPTANCE_LENGTH: f64 = 1.5;
/// Troubleshooting guideline: below this share, the draft is poor; the target is above 60 %.
const ACCEPTANCE: f64 = 0.5;
/// Steps with draft tokens in the window.
const ENOUGH_STEPS: f64 = 20.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "poor-speculation",
        severity: Severity::Warning,
        check: Check::Engine(poor_speculation),
        says: "The model rejects most draft tokens, so speculative decoding costs more than it saves.",
        when: "The acceptance length is below 1.5, or less than 50 % of the draft tokens are accepted.",
        guideline: "Speculative decoding: acceptanceLength above 2.0, acceptance rate above 60 %; below 1.5 the draft is too poor.",
        change: "speculative_config: another speculative_model or decoding_type, a smaller max_draft_len, or \
                 acceptance_rate_threshold with acceptance_rate_window_size, which stops it by itself.",
        alerts: &["TrtllmSpecDecodeAcceptanceLow"],
    },
    Rule {
        name: "speculation-rarely-used",
        severity: Severity::Info,
        check: Check::Engine(speculation_rarely_used),
        says: "Speculative decoding is on, but few requests have draft tokens.",
        when: "Less than 30 % of the scheduled requests have draft tokens.",
        guideline: "numRequestsWithDraftTokens low: enable speculative decoding for more requests.",
        change: "speculative_config.max_concurrency: above this number of requests, the engine does not speculate.",
        alerts: &[],
    },
];

/// Proposed and accepted draft tokens, and steps with draft tokens where the engine reports them.
fn drafts(engine: &Engine) -> Option<(f64, f64, Option<f64>)> {
    let grew = |name, labels| engine.page.growth(name, labels);
    let by_iteration = grew("nv_trt_llm_spec_decode_draft_tokens_total", &[]).filter(|draft| *draft > 0.0);
    match by_iteration {
        Some(draft) => {
            let accepted = grew("nv_trt_llm_spec_decode_accepted_tokens_total", &[])?;
            Some((draft, accepted, grew("nv_trt_llm_spec_decode_drafted_requests_total", &[])))
        }
        None => {
            let draft = grew("nv_trt_llm_request_draft_tokens_total", &[("outcome", "proposed")])?;
            Some((draft, grew("nv_trt_llm_request_draft_tokens_total", &[("outcome", "accepted")])?, None))
        }
    }
}

fn poor_speculation(engine: &Engine) -> Facts {
    let (draft, accepted, steps) = drafts(engine)?;
    if draft < ENOUGH_STEPS || steps.is_some_and(|steps| steps < ENOUGH_STEPS) {
        return None;
    }
    // As TensorRT-LLM: the token that each step yields anyway counts.
    let length = steps.map(|steps| 1.0 + accepted / steps);
    if accepted / draft >= ACCEPTANCE && length.is_none_or(|length| length >= ACCEPTANCE_LENGTH) {
        return None;
    }
    let mut facts = vec![count("draft tokens", draft), share("draft tokens accepted", accepted / draft)];
    facts.extend(length.map(|length| count("acceptance length", length)));
    Some(facts)
}

fn speculation_rarely_used(engine: &Engine) -> Facts {
    let (draft, _, steps) = drafts(engine)?;
    let scheduled = engine.page.growth("nv_trt_llm_iteration_scheduled_requests_sum", &[])?;
    let steps = steps.filter(|steps| draft > 0.0 && *steps < 0.3 * scheduled)?;
    (engine.was_busy()).then(|| {
        vec![
            count("requests with draft tokens, over all iterations", steps),
            count("scheduled requests, over all iterations", scheduled),
        ]
    })
}
