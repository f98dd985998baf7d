//! Causes that make requests wait: limits of the batch, of tokens and of the KV cache, or too many requests.

use trtllm_analysis::iteration_sums::ALONE;
use trtllm_analysis::numbers::share;

use crate::cause::Cause;
use crate::input::VerdictInput;
use crate::verdict::{Found, Severity, Unit, percent, time};

/// A limit is the cause if it is reached in at least this share of the iterations in which requests wait.
const MOST: f64 = 0.5;
/// No setting helps if the engine would need at least this share of its time for all requests that arrive.
pub(super) const NO_ROOM: f64 = 0.8;
/// Missing reuse matters only if context takes at least this share of the time.
pub(super) const REUSE_MATTERS: f64 = 0.4;
/// It is uncertain whether a larger batch is enough if this many times as many requests wait as run.
const MANY_WAIT: f64 = 3.0;
/// The KV cache is too small if at least this share of it is used, or would be if the running requests were at their end. If less, requests
/// wait for blocks that are reserved and never used.
const CACHE_USED: f64 = 0.7;
/// The KV cache is too small if there are at least this many pauses of requests per iteration.
const PAUSES: f64 = 0.005;
/// The same if computing paused requests again takes this share of the time: a pause of a long request costs more than one of a short one.
const AGAIN: f64 = 0.05;
/// Static batches are the cause if less than this share of their slots is used.
const SLOTS_USED: f64 = 0.8;
/// Batches that have fewer requests than this on average are not static: requests run one by one, for want of blocks.
const SEVERAL: f64 = 1.5;
/// Requests wait for blocks that others hold if hardly any of them begins before another one ends: at most the share BEFORE_ENDS of what chance
/// would give, which must be at least ENOUGH_CHANCES.
const BEFORE_ENDS: f64 = 0.3;
const ENOUGH_CHANCES: f64 = 3.0;
/// The tuner is the cause if it has both raised and lowered the limit at least this many times in the window.
const MOVES: f64 = 2.0;

/// Begins the result of a rule of this module: how many requests wait, and how long.
fn waiting(input: &VerdictInput, says: &str) -> Found {
    let queue = input.queue_time();
    let long = queue.map(|time_| format!(", {} on average", time(time_))).unwrap_or_default();
    // The PyTorch engine does not report how many wait for a seat.
    let about = input.by_backend("about ", "");
    let backlog = input.of_iterations(input.now.sums.backlog);
    let found = input.found(format!("{says}: {about}{backlog:.0} requests wait{long}."));
    found.with("mean time in the queue", queue, Unit::Seconds, None)
}

pub(super) fn tuner(input: &VerdictInput) -> Option<Found> {
    let sums = &input.kept.sums;
    let moves = sums.limit_rises.min(sums.limit_falls);
    (moves >= MOVES && input.has_work && input.waits()).then(|| {
        waiting(input, "The tuner moves the batch limit up and down")
            .with("rises and falls of the limit", moves, Unit::Count, MOVES)
            .remedy(Cause::Tuner.remedy(), &["dynamic_batch_config"])
    })
}

pub(super) fn static_batching(input: &VerdictInput) -> Option<Found> {
    static_slots(input).or_else(|| static_policy(input))
}

fn static_policy(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let has_several = input.of_iterations(sums.scheduled) >= SEVERAL;
    let is_static = !input.facts.is_pytorch && has_several && sums.admits_into_empty_batches();
    (is_static && input.has_work && input.waits()).then(|| {
        waiting(input, "A batch takes new requests only when all of its requests have ended")
            .with("prompts that begin while no request decodes", sums.alone_share(), Unit::Share, ALONE)
            .remedy(
                Cause::StaticBatching.remedy_for("a static policy"),
                &["capacity_scheduler_policy", "batch_scheduler_policy"],
            )
    })
}

fn static_slots(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let used = share(sums.static_slots_used, sums.static_slots);
    (sums.static_slots > 0.0 && used < SLOTS_USED && input.has_work && input.waits()).then(|| {
        waiting(input, &format!("Only {} of the slots of static batches are in use", percent(used)))
            .with("generation slots in use", used, Unit::Share, SLOTS_USED)
            .remedy(Cause::StaticBatching.remedy_for("static slots"), &["batching_type", "gpt_model_type"])
    })
}

pub(super) fn kv_capacity(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let used = input.now.cache_peak().filter(|_| input.has_work)?;
    let pauses = share(input.now.pauses(), sums.iterations);
    let tokens = input.now.pauses() * share(sums.work.kv_tokens, sums.generation_requests);
    let again = input.costs.map(|costs| costs.context_token * tokens / input.now.seconds).filter(|share| *share > 0.0);
    let pausing = (pauses >= PAUSES || again.is_some_and(|share| share >= AGAIN)) && used >= CACHE_USED;
    let at_batch = input.of_waits(sums.waits_at_batch_limit) >= MOST;
    let at_end = waits_for_reserved(input).map(|_| used_at_end(input, used)).filter(|used| *used >= CACHE_USED);
    let is_used = used >= CACHE_USED || input.of_waits(sums.waits_at_full_cache) >= MOST || at_end.is_some();
    let full = input.waits() && !at_batch && is_used;
    if !(pausing || full) {
        return None;
    }
    let hits_are_unknown = input.now.distributions.hit_ratio.count <= 0.0;
    let setting = input.by_backend("kv_cache_config", "kv_cache_free_gpu_mem_fraction");
    // A paused request is computed again. KV cache manager V2 has no other policy.
    let (of, settings) = match pausing && !input.facts.never_reserves {
        true => (input.by_backend("PyTorch with pauses", "TensorRT with pauses"), vec![policy(input), setting]),
        false => (input.backend(), vec![setting]),
    };
    Some(
        waiting(input, &format!("{} of the KV cache are used", percent(used)))
            .with("used share of the KV cache", used, Unit::Share, CACHE_USED)
            .with("used share if all answers were at their end", at_end, Unit::Share, CACHE_USED)
            .with("pauses for each iteration", pauses, Unit::Ratio, PAUSES)
            .with("time to compute paused requests again", again, Unit::Share, AGAIN)
            // Without the costs of iterations, it is unknown whether computing prompts keeps the blocks in use. Without the hits of requests,
            // it is unknown whether prompts are computed again.
            .unsure(input.demand().is_none_or(|(context, _)| context >= REUSE_MATTERS && hits_are_unknown))
            .remedy(Cause::KvCapacity.remedy_for(of), &settings),
    )
}

/// The setting with the policy of the capacity scheduler.
fn policy(input: &VerdictInput) -> &'static str {
    input.by_backend("scheduler_config", "batch_scheduler_policy")
}

/// True if a larger limit would help, because the engine has time for all requests that arrive.
fn has_room(input: &VerdictInput) -> bool {
    input.offered().is_none_or(|offered| offered < NO_ROOM)
}

pub(super) fn token_limit(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let share = input.of_waits(sums.waits_at_token_limit);
    (input.has_work && input.waits() && share >= MOST && has_room(input)).then(|| {
        waiting(input, "Iterations have no room for more tokens")
            .with("waits at the token limit", share, Unit::Share, MOST)
            .with("time needed for all that arrives", input.offered(), Unit::Share, None)
            .unsure(input.costs.is_none())
            .remedy(Cause::TokenLimit.remedy_for(input.backend()), &["max_num_tokens"])
    })
}

/// The rule for users who are hurt although no other rule applies: requests wait at no limit that can be seen, and nothing tells the limit
/// of tokens.
pub(crate) fn unseen_limit(input: &VerdictInput) -> Option<(Cause, Found)> {
    let sums = &input.now.sums;
    let is_only_unknown = sums.token_limit_known < sums.iterations && sums.batch_limit_known >= sums.iterations;
    let at_limit = input.of_waits(sums.waits_at_batch_limit.max(sums.waits_at_full_cache));
    // A generation server waits for transfers, too.
    let computes_prompts = sums.work.context_tokens > 0.0;
    let waits = input.severity() >= Severity::Warning && input.has_work && input.waits();
    (waits && is_only_unknown && computes_prompts && at_limit < MOST).then(|| {
        let found = waiting(
            input,
            "Requests wait at no limit that can be seen, and nothing tells how many tokens an iteration may have",
        )
        .with("waits at the batch limit or a full KV cache", at_limit, Unit::Share, MOST)
        .with("context tokens of an iteration", share(sums.work.context_tokens, sums.iterations), Unit::Count, None)
        .unsure(true)
        .remedy(Cause::TokenLimit.remedy_for("an unknown limit"), &["max_num_tokens"]);
        (Cause::TokenLimit, found)
    })
}

/// Requests with seats that are in no batch, while nothing tells how long: no request is known to start or to end.
pub(crate) fn standing(input: &VerdictInput) -> Option<Found> {
    let held = input.of_iterations(input.now.sums.held);
    let is_standing = input.has_work && held >= 1.0 && input.queue_time().is_none();
    is_standing.then(|| {
        Found::new(
            Severity::Info,
            format!(
                "About {held:.0} requests have seats but are in no batch. No request is known to start or end, so it is unknown how long \
                 they wait."
            ),
        )
        .with("requests with a seat that are in no batch", held, Unit::Count, 1.0)
        .unsure(true)
        .remedy(Cause::None.remedy_for("requests in no batch"), &[])
    })
}

pub(super) fn batch_limit(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let share = input.of_waits(sums.waits_at_batch_limit);
    (input.has_work && input.waits() && share >= MOST && has_room(input)).then(|| {
        waiting(input, &format!("The batch is full with {:.0} requests", input.of_iterations(sums.scheduled)))
            .with("waits at the batch limit", share, Unit::Share, MOST)
            .with("time needed for all that arrives", input.offered(), Unit::Share, None)
            // So many wait that clients may give up, or a gateway may hold requests back. Then more arrives than is seen here.
            .unsure(input.costs.is_none() || sums.backlog > MANY_WAIT * sums.scheduled)
            .remedy(Cause::BatchLimit.remedy_for(input.backend()), &["max_batch_size"])
    })
}

/// Requests with a seat begin only after others have ended, although no other limit is reached. So these hold what the waiting ones need.
/// Returns the share of the waits that are at no other limit, and the share of the prompts that begin before another request ends.
fn waits_for_reserved(input: &VerdictInput) -> Option<(f64, f64)> {
    let sums = &input.now.sums;
    let by_chance = sums.admissions * share(sums.chances_without_end, sums.chances);
    let before_ends = share(sums.admissions_without_end, by_chance);
    if input.facts.never_reserves || by_chance < ENOUGH_CHANCES || before_ends > BEFORE_ENDS {
        return None;
    }
    let at_none = 1.0 - input.of_waits(sums.waits_at_a_limit());
    (at_none >= MOST && input.has_work && input.waits()).then_some((at_none, before_ends))
}

/// The share of the KV cache that the running requests would use if all were at their end: on average, half of an answer is computed.
fn used_at_end(input: &VerdictInput, used: f64) -> f64 {
    let sums = &input.now.sums;
    let all = sums.work.context_tokens + sums.decoded_tokens;
    used / (1.0 - 0.5 * share(sums.decoded_tokens, all))
}

pub(super) fn kv_reservation(input: &VerdictInput) -> Option<Found> {
    let (at_none, before_ends) = waits_for_reserved(input)?;
    let used = input.now.cache_peak().filter(|used| used_at_end(input, *used) < CACHE_USED)?;
    Some(
        waiting(input, &format!("Requests wait for blocks of the KV cache although only {} are used", percent(used)))
            .with("used share of the KV cache", used, Unit::Share, CACHE_USED)
            .with("waits at no other limit", at_none, Unit::Share, MOST)
            .with("prompts that begin before another request ends", before_ends, Unit::Share, BEFORE_ENDS)
            .remedy(Cause::KvReservation.remedy_for(input.backend()), &[policy(input)]),
    )
}

pub(super) fn load(input: &VerdictInput) -> Option<Found> {
    let offered = input.offered().filter(|offered| *offered >= NO_ROOM)?;
    (input.has_work && input.waits()).then(|| {
        waiting(input, "More arrives than the engine can serve")
            .with("time needed for all that arrives", offered, Unit::Share, NO_ROOM)
            .remedy(Cause::Load.remedy(), &[])
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trtllm_analysis::ObservedEngine;
    use trtllm_analysis::window::{Mark, Window};
    use trtllm_fold::EngineState;

    use super::*;
    use crate::input::EngineFacts;

    #[test]
    fn blocks_that_answers_will_use_are_not_only_reserved() {
        let named = |used: f64| {
            let (engine, mut window) = (ObservedEngine::new(Duration::from_secs(15)), Window::default());
            for slot in 0..13_u8 {
                let (mut mark, past) = (Mark::of(&engine, 5.0 * f64::from(slot)), f64::from(slot));
                let sums = &mut mark.sums;
                (sums.iterations, sums.waits, sums.backlog) = (200.0 * past, 200.0 * past, 2000.0 * past);
                (sums.cache_known, sums.cache_peak) = (200.0 * past, 200.0 * used * past);
                // Half of the tokens are of answers. Each request begins after another one has ended.
                (sums.work.context_tokens, sums.decoded_tokens) = (1000.0 * past, 1000.0 * past);
                (sums.admissions, sums.chances, sums.chances_without_end) = (4.0 * past, 100.0 * past, 96.0 * past);
                mark.counts.started = 4.0 * past;
                window.push(mark);
            }
            let facts = EngineFacts { state: EngineState::Busy, ..EngineFacts::default() };
            let input = VerdictInput::of(facts, &window, &[]).unwrap();
            (kv_capacity(&input).is_some(), kv_reservation(&input).is_some())
        };
        // At their end, requests use 4/3 of the blocks that they use now.
        assert_eq!([0.3, 0.5, 0.55, 0.75].map(named), [(false, true), (false, true), (true, false), (true, false)]);
    }
}
