//! Causes in the work itself: prompts, answers, drafts, prompts that are computed again.

use trtllm_analysis::numbers::share;

use super::waiting::{NO_ROOM, REUSE_MATTERS};
use crate::cause::Cause;
use crate::input::{HURT_FIRST_TOKEN, HURT_PER_TOKEN, VerdictInput, hurts};
use crate::verdict::{Found, Severity, Unit, percent, time};

/// A phase is the cause if it needs at least this share of the time, which is less while the engine is overloaded.
const CONTEXT: f64 = 0.7;
const GENERATION: f64 = 0.5;
const OVERLOADED: f64 = 0.4;
/// The phase must also take at least this share of the time that all work takes.
const OF_WORK: f64 = 0.75;
/// The same for decoding: even a few prompts in each iteration take a part of its time.
const DECODING_OF_WORK: f64 = 0.7;
/// Speculation costs more than it saves if tokens per second with it ÷ without it are below this.
const GAIN: f64 = 0.95;
/// The KV cache is too small if at least WITHOUT_HITS of the requests have hardly any hits, and at least WITH_HITS have many.
const WITHOUT_HITS: f64 = 0.3;
const WITH_HITS: f64 = 0.1;
/// It is also too small if the share of hits was at least HITS_BEFORE, and has fallen to FEWER_HITS × that share.
const HITS_BEFORE: f64 = 0.1;
const FEWER_HITS: f64 = 0.4;
/// A prompt is the cause if computing it takes at least this share of the time to the first token.
const MOST_OF_FIRST_TOKEN: f64 = 0.5;
/// Long prompts are the cause if they stop the answers of other requests for at least this share of the time.
const BLOCKED: f64 = 0.08;

pub(super) fn speculation(input: &VerdictInput) -> Option<Found> {
    let (sums, costs) = (&input.now.sums, input.costs?);
    if sums.drafted_requests <= 0.0 || !input.has_work {
        return None;
    }
    let length = 1.0 + sums.accepted_tokens / sums.drafted_requests;
    let [decoding, mixed] = sums.mean_seconds();
    let iteration = if sums.generation_iterations > 0.0 { decoding } else { mixed };
    // Engines do not measure a model that drafts itself. Without that time, the gain is the highest possible one.
    let drafting = (sums.draft_iterations > 0.0).then(|| sums.draft_overhead / sums.draft_iterations * iteration);
    let checking = costs.generation_token * share(sums.draft_tokens, sums.iterations);
    let overhead = (drafting.unwrap_or(0.0) + checking).min(0.95 * iteration);
    let gain = length * share(iteration - overhead, iteration);
    (iteration > 0.0 && gain < GAIN).then(|| {
        input
            .found(format!(
                "Speculation gives {length:.2} tokens a step, and drafts take {} of it.",
                percent(overhead / iteration)
            ))
            .with("tokens with speculation ÷ without", gain, Unit::Ratio, GAIN)
            .with("tokens a step", length, Unit::Ratio, None)
            .with("time for drafting", drafting, Unit::Seconds, None)
            .with("time for checking drafts", checking, Unit::Seconds, None)
            .remedy(Cause::Speculation.remedy(), &["speculative_config"])
    })
}

pub(super) fn kv_thrash(input: &VerdictInput) -> Option<Found> {
    let (context, _) = input.demand().filter(|(context, _)| *context >= REUSE_MATTERS && input.has_work)?;
    let hits = &input.now.distributions.hit_ratio;
    let mean = hits.mean()?;
    let (without, with) = (hits.share_up_to(0.1), 1.0 - hits.share_up_to(0.5));
    let is_split = without >= WITHOUT_HITS && with >= WITH_HITS;
    let best = input.best_hits.unwrap_or(0.0);
    let fell = best >= HITS_BEFORE && mean <= FEWER_HITS * best && input.kept.counts.restarts <= 0.0;
    // After some minutes, the window no longer contains the time before the fall, so keep a cause once found.
    let goes_on = input.facts.before == Some(Cause::KvThrash) && mean <= 0.5;
    if !(is_split || fell || goes_on) {
        return None;
    }
    let dropped = input.now.counts.blocks_host_dropped;
    let settings = input
        .by_backend::<&[&str]>(&["kv_cache_config"], &["kv_cache_host_memory_bytes", "kv_cache_free_gpu_mem_fraction"]);
    Some(
        input.found(match is_split {
            true => format!(
                "{} of the requests find nothing in the KV cache although others do, and prompts take {} of the time.",
                percent(without),
                percent(context)
            ),
            false => format!(
                "Requests find {} of their prompts in the KV cache, {} in the best half minute, and prompts take {} of the time.",
                percent(mean),
                percent(best),
                percent(context)
            ),
        })
        .with("prompts found in the cache", mean, Unit::Share, None)
        .with("the best half minute", best, Unit::Share, HITS_BEFORE)
        .with("requests without hits", without, Unit::Share, WITHOUT_HITS)
        .with("requests with many hits", with, Unit::Share, WITH_HITS)
        .with("time for prompts", context, Unit::Share, REUSE_MATTERS)
        .with("host copies dropped", dropped, Unit::Count, None)
        .unsure(!fell)
        .remedy(Cause::KvThrash.remedy_for(input.backend()), settings),
    )
}

/// Whether the work that arrives fills the time, so that requests wait.
fn is_overloaded(input: &VerdictInput) -> Option<bool> {
    Some(input.offered()? >= NO_ROOM && input.waits())
}

pub(super) fn context_work(input: &VerdictInput) -> Option<Found> {
    let (context, generation) = input.demand()?;
    let share = input.context_share()?;
    let is_all = context >= CONTEXT || context >= OVERLOADED && is_overloaded(input)?;
    (input.has_work && share >= OF_WORK && is_all).then(|| {
        let counts = &input.now.counts;
        let reuse_off = counts.blocks_looked_up.max(counts.blocks_reused) <= 0.0 && counts.blocks_allocated > 0.0;
        let (of, settings): (_, &[&str]) = match reuse_off {
            true => input.by_backend(
                ("PyTorch without reuse", &["kv_cache_config"]),
                ("TensorRT without reuse", &["enable_kv_cache_reuse"]),
            ),
            false => ("many prompts", &[]),
        };
        input
            .found(format!("Computing prompts needs {} of the time.", percent(context)))
            .with("time for prompts", context, Unit::Share, CONTEXT)
            .with("its share of all work", share, Unit::Share, OF_WORK)
            .with("time for answers", generation, Unit::Share, None)
            .with("context tokens a second", input.now.rate(input.now.sums.work.context_tokens), Unit::Count, None)
            .remedy(Cause::ContextWork.remedy_for(of), settings)
    })
}

pub(super) fn generation_work(input: &VerdictInput) -> Option<Found> {
    let (_, generation) = input.demand()?;
    let share = 1.0 - input.context_share()?;
    // The costs of mixtures of experts are far from linear: a larger batch loads more experts, until all are loaded.
    let at_least = generation * (1.0 - 2.0 * input.costs.map_or(0.0, |costs| costs.error));
    let is_all = at_least >= GENERATION || at_least >= OVERLOADED && is_overloaded(input)?;
    (input.has_work && share >= DECODING_OF_WORK && is_all).then(|| {
        let batch = input.of_iterations(input.now.sums.scheduled);
        input
            .found(format!(
                "Decoding needs {} of the time, with {batch:.0} requests in the batch.",
                percent(generation)
            ))
            .with("time for decoding", generation, Unit::Share, GENERATION)
            .with("its share of all work", share, Unit::Share, DECODING_OF_WORK)
            .with("mean requests in the batch", batch, Unit::Count, None)
            .remedy(Cause::GenerationWork.remedy(), &[])
    })
}

pub(super) fn context_blocking(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let share = share(sums.blocked_seconds, sums.seconds);
    // Answers that stop delay the tokens after the first one. If only first tokens come too late, that is not why.
    let counts = &input.now.counts;
    let only_first_tokens = hurts(&counts.ttft) && !hurts(&counts.tpot) && !hurts(&counts.e2e);
    (input.has_work && share >= BLOCKED && !only_first_tokens).then(|| {
        let setting = input.by_backend("enable_chunked_prefill", "enable_chunked_context");
        let longest = input.now.distributions.iteration.quantile(0.99);
        input.found(format!(
            "Long prompts stop the answers of other requests in {} of the time. One iteration in a hundred takes {} or more.",
            percent(share),
            time(longest.unwrap_or(0.0))
        ))
        .with("time in which answers stop", share, Unit::Share, BLOCKED)
        .with("longest iterations (99th percentile)", longest, Unit::Seconds, None)
        .remedy(Cause::ContextBlocking.remedy_for(input.backend()), &[setting, "max_num_tokens"])
    })
}

/// The rule for users who are hurt although no other rule applies: a request takes too long although nothing delays it.
pub(crate) fn alone(input: &VerdictInput) -> Option<(Cause, Found)> {
    if input.severity() < Severity::Warning || !input.has_work {
        return None;
    }
    decoding_alone(input).or_else(|| prompt_alone(input))
}

fn decoding_alone(input: &VerdictInput) -> Option<(Cause, Found)> {
    let (times, sums) = (&input.now.distributions, &input.now.sums);
    let [iteration, _] = sums.mean_seconds();
    let each = times.tpot.mean().or((iteration > 0.0).then_some(iteration))?;
    let counts = &input.now.counts;
    // If the first token came in time and the request ends late, decoding took too long.
    let ends_late = hurts(&counts.e2e) && !hurts(&counts.ttft);
    let slow = match input.facts.objectives.any() {
        true => ends_late || hurts(&counts.tpot),
        false => times.tpot.quantile(0.95)? >= HURT_PER_TOKEN,
    };
    slow.then(|| {
        let limit = input.facts.objectives.tpot.map(|limit| limit.as_secs_f64());
        let found = input
            .found(format!("Decoding takes {} for each token, and nothing delays it.", time(each)))
            .with("time for each token", each, Unit::Seconds, limit)
            .with("mean time of a request", times.e2e.mean(), Unit::Seconds, None)
            .with("mean requests in the batch", input.of_iterations(input.now.sums.scheduled), Unit::Count, None)
            .with("time of an iteration without work", input.costs.map(|costs| costs.base), Unit::Seconds, None)
            .remedy(Cause::GenerationWork.remedy_for("slow decoding"), &[]);
        (Cause::GenerationWork, found)
    })
}

fn prompt_alone(input: &VerdictInput) -> Option<(Cause, Found)> {
    let times = &input.now.distributions;
    let (prefill, first) = (times.prefill.mean()?, times.ttft.mean()?);
    let share = share(prefill, first);
    let is_missed = hurts(&input.now.counts.ttft);
    let slow = if input.facts.objectives.any() { is_missed } else { times.ttft.quantile(0.95)? >= HURT_FIRST_TOKEN };
    (slow && share >= MOST_OF_FIRST_TOKEN).then(|| {
        let found = input
            .found(format!("Computing a prompt takes {} of the {} to its first token.", time(prefill), time(first)))
            .with("time for the own prompt", prefill, Unit::Seconds, None)
            .with("its share of the time to the first token", share, Unit::Share, MOST_OF_FIRST_TOKEN)
            .remedy(Cause::ContextWork.remedy_for("long prompts"), &[]);
        (Cause::ContextWork, found)
    })
}
