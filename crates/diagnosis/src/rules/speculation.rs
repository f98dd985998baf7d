//! Speculative decoding.

use super::super::finding::{Check, Facts, Rule, Severity, count, share};
use super::super::observation::Engine;
use super::super::thresholds::SPECULATION_GAIN;

/// Steps with draft tokens in the window.
const ENOUGH_STEPS: f64 = 20.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "poor-speculation",
        severity: Severity::Warning,
        check: Check::Engine(poor_speculation),
        says: "The model rejects most draft tokens, so speculative decoding saves nothing or costs more than it saves.",
        when: "The acceptance length divided by 1 + overhead is below 1.1. The overhead is the time spent drafting divided by the \
               rest of the iteration (draftOverhead), 0 where the engine does not measure it. Not if the length is not known.",
        guideline: "A step yields as many tokens as the acceptance length, 1 without speculative decoding. Target: above 2.0.",
        change: "Remove speculative_config and compare the time per output token; or another speculative_model or decoding_type, a \
                 lower max_draft_len, or acceptance_rate_threshold with acceptance_rate_window_size (before release 1.3: \
                 acceptance_length_threshold with acceptance_window), which stops it by itself.",
        alerts: &["TrtllmSpecDecodeAcceptanceLow"],
    },
    Rule {
        name: "speculation-rarely-used",
        severity: Severity::Info,
        check: Check::Engine(speculation_rarely_used),
        says: "Speculative decoding is on, but few requests have draft tokens.",
        when: "Less than 30 % of the scheduled requests have draft tokens. Not if poor-speculation applies, or with several attention \
               data parallel ranks, of which only one tells its draft tokens.",
        guideline: "numRequestsWithDraftTokens low: enable speculative decoding for more requests.",
        change: "Nothing, if it is meant: above speculative_config.max_concurrency requests, the engine does not speculate, because a \
                 large batch gains little.",
        alerts: &[],
    },
];

/// Proposed and accepted draft tokens, and steps with draft tokens. Engines that tell drafts only for each request tell no steps.
fn drafts(engine: &Engine) -> Option<(f64, f64, f64)> {
    let grew = |name| engine.page.growth(name, &[]).filter(|grew| *grew > 0.0);
    let draft = grew("nv_trt_llm_spec_decode_draft_tokens_total")?;
    let accepted = engine.page.growth("nv_trt_llm_spec_decode_accepted_tokens_total", &[])?;
    Some((draft, accepted, grew("nv_trt_llm_spec_decode_drafted_requests_total")?))
}

fn poor_speculation(engine: &Engine) -> Facts {
    let (draft, accepted, steps) = drafts(engine).filter(|(.., steps)| *steps >= ENOUGH_STEPS)?;
    // As TensorRT-LLM: the token that each step yields anyway counts.
    let length = 1.0 + accepted / steps;
    // The engine tells the share of the whole iteration.
    let overhead = engine.batches.draft_share.filter(|share| *share < 1.0).map(|share| share / (1.0 - share));
    let gain = length / (1.0 + overhead.unwrap_or(0.0));
    (gain < SPECULATION_GAIN).then(|| {
        let mut facts = vec![
            count("draft tokens", draft),
            share("draft tokens accepted", accepted / draft),
            count("acceptance length", length),
        ];
        facts.extend(overhead.map(|overhead| share("overhead of drafting", overhead)));
        facts.push(count("acceptance length / (1 + overhead)", gain));
        facts
    })
}

fn speculation_rarely_used(engine: &Engine) -> Facts {
    let scheduled = engine.page.growth("nv_trt_llm_iteration_scheduled_requests_sum", &[])?;
    let (.., steps) = drafts(engine).filter(|(.., steps)| *steps < 0.3 * scheduled)?;
    (engine.was_busy() && engine.batches.ranks == 1 && poor_speculation(engine).is_none()).then(|| {
        vec![
            count("requests with draft tokens, over all iterations", steps),
            count("scheduled requests, over all iterations", scheduled),
        ]
    })
}
