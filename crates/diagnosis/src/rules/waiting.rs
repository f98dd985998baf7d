//! What keeps requests waiting. One engine has one cause, so no two findings change a limit in opposite directions.

use super::super::batches::GENERATION_ITERATION;
use super::super::finding::{Check, Fact, Facts, Rule, Severity, count, seconds, share, text};
use super::super::observation::Engine;
use super::super::thresholds::{FULL_BATCH, FULL_KV_CACHE, LONG_QUEUE_TIME, QUEUED_SHARE};

/// Tuning guideline: a first token within 200 ms.
pub(super) const FIRST_TOKEN: f64 = 0.2;
/// The scheduler reserves blocks for the rest of each request, so not all need be used.
const RESERVED_KV_CACHE: f64 = 0.5;
/// With a larger share of the time in context phases, compute is the limit, and a larger batch helps nobody.
const COMPUTE: f64 = 0.75;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "queue-bound",
        severity: Severity::Warning,
        check: Check::Engine(queue_bound),
        says: "The batch is full, so requests wait in the queue.",
        when: "Requests wait as for requests-wait, and on average at least 90 % of the batch size limit is scheduled. The limit is that \
               of the records, else max_batch_size of the configuration, else maxNumActiveRequests. Not if at least 90 % of the KV cache \
               is used, iterations with generation only take 50 ms or more, the context phase takes at least 75 % of the window, or \
               token-limit-reached, kv-cache-starved or tuner-limits-batch applies.",
        guideline: "Queue-bound (scheduler): high numQueuedRequests, high newActiveRequestsQueueLatencyMS. Target: \
                    numQueuedRequests below 10 % of the maximum.",
        change: "Raise max_batch_size (TensorRT backend: of the engine's build, too) while the time per output token allows it, or \
                 add replicas.",
        alerts: &["TrtllmQueueGrowing", "TrtllmQueueLong"],
    },
    Rule {
        name: "token-limit-reached",
        severity: Severity::Warning,
        check: Check::Engine(token_limit_reached),
        says: "Iterations compute as many tokens as max_num_tokens allows, so requests wait for their context phase.",
        when: "Requests wait as for requests-wait, and at least 50 % of the iterations compute 90 % of the token limit or have no room \
               for another prompt. The limit is that of the records, else max_num_tokens of the configuration; without both, the rule \
               says nothing. The mean iteration with context takes less than twice as long as one with generation only, or less \
               than 50 ms where there is none: otherwise compute is the limit. Not if at least 90 % of the KV cache is used, or \
               kv-cache-starved or tuner-limits-batch applies.",
        guideline: "The tokens of an iteration are prompts, one token of each generation request, and draft tokens.",
        change: "Raise max_num_tokens (TensorRT backend: of the engine's build, too), and set enable_chunked_prefill (TensorRT \
                 backend: enable_chunked_context), so that prompts fill each iteration. If iterations become too long for the time per output token, add replicas.",
        alerts: &["TrtllmQueueGrowing", "TrtllmQueueLong", "TrtllmBatchNotFilled"],
    },
    Rule {
        name: "tuner-limits-batch",
        severity: Severity::Warning,
        check: Check::Engine(tuner_limits_batch),
        says: "The tuner of the TensorRT backend keeps the batch below what the engine was built for, and requests wait.",
        when: "Requests wait in at least 80 % of the iterations; and the batch has reached maxBatchSizeRuntime, which is below \
               maxBatchSizeStatic, or the tokens have reached maxNumTokensRuntime, which is below maxNumTokensStatic. Not if \
               kv-cache-starved applies.",
        guideline: "Batch size tuning: compare maxBatchSizeTunerRecommended with maxBatchSizeStatic.",
        change: "scheduler_config.dynamic_batch_config: enable_batch_size_tuning: false (for the tokens: \
                 enable_max_num_tokens_tuning: false), or a longer dynamic_batch_moving_average_window.",
        alerts: &[],
    },
    Rule {
        name: "requests-wait",
        severity: Severity::Warning,
        check: Check::Engine(requests_wait_for_more),
        says: "Requests arrive faster than they are scheduled, and no limit is known whose change helps.",
        when: "Requests wait in at least 80 % of the iterations; and on average at least 10 % of the batch size limit of all ranks \
               wait, or the mean queue time is above 200 ms. Not if queue-bound, token-limit-reached, tuner-limits-batch or \
               kv-cache-starved applies.",
        guideline: "Queue-bound (scheduler): high numQueuedRequests, high newActiveRequestsQueueLatencyMS. Target: \
                    numQueuedRequests below 10 % of the maximum.",
        change: "Add replicas, or limit concurrency at the gateway. If much fewer requests are scheduled than max_batch_size allows, \
                 compare max_num_tokens with the prompts, and the max_tokens of requests with their outputs: the scheduler can \
                 reserve KV cache for the longest output that a request allows, unless scheduler_config.capacity_scheduler_policy is \
                 MAX_UTILIZATION.",
        alerts: &["TrtllmQueueGrowing", "TrtllmQueueLong", "TrtllmBatchNotFilled"],
    },
    Rule {
        name: "queue-time-high",
        severity: Severity::Warning,
        check: Check::Engine(queue_time_high),
        says: "New requests have waited very long before they became active.",
        when: "The mean queue time of requests that became active in the window is above 5 s.",
        guideline: "High newActiveRequestsQueueLatencyMS. The queue time is part of the time to the first token.",
        change: "If another finding says what requests wait for, see there. If none does, requests come in bursts: add replicas, or \
                 limit concurrency at the gateway.",
        alerts: &["TrtllmQueueTimeHigh"],
    },
    Rule {
        name: "saturated",
        severity: Severity::Info,
        check: Check::Engine(saturated),
        says: "A resource of the engine is nearly full: with more load, requests have to wait.",
        when: "The batch is on average more than 70 % full, or the KV cache more than 90 %. Not if a rule says what requests wait for, or \
               requests are paused.",
        guideline: "numScheduledRequests reaches the batch size limit, or usedNumBlocks reaches maxNumBlocks.",
        change: "Add a replica before users notice.",
        alerts: &["TrtllmEngineSaturated"],
    },
];

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    KvCache,
    Tuner,
    Tokens,
    Batch,
    /// No limit is known whose change helps.
    Unknown,
}

/// The first cause that applies. A limit is a cause only if it is known and reached, and if raising it does not move the wait to
/// another one.
pub(super) fn cause(engine: &Engine) -> Option<Cause> {
    let batches = &engine.batches;
    if !engine.was_busy() {
        return None;
    }
    // The engine pauses requests only for lack of blocks.
    let many = batches.backlog >= QUEUED_SHARE * batches.batch_limit.unwrap_or(f64::INFINITY)
        || queue_time(engine).is_some_and(|time| time > FIRST_TOKEN);
    let is_full = many && batches.backlogged >= 0.5 && batches.cache_is_used(FULL_KV_CACHE);
    if is_full || requests_wait(engine) && requests_pause(engine) {
        return Some(Cause::KvCache);
    }
    if !requests_wait(engine) {
        return None;
    }
    if is_tuned_down(engine) {
        return Some(Cause::Tuner);
    }
    if !many {
        return None;
    }
    let has_room = batches.kv_used.is_none_or(|used| used < FULL_KV_CACHE);
    if has_room && batches.is_full_of_tokens() {
        return Some(if iterations_can_grow(engine) { Cause::Tokens } else { Cause::Unknown });
    }
    let tokens_have_room = batches.token_full.is_some_and(|full| full < 0.5);
    if tokens_have_room && batches.cache_is_used(RESERVED_KV_CACHE) && !has_transfers(engine) {
        return Some(Cause::KvCache);
    }
    let is_fast = batches.generation.mean_seconds < GENERATION_ITERATION && engine.context_time() < COMPUTE;
    if has_room && batches.is_full() && is_fast {
        return Some(Cause::Batch);
    }
    Some(Cause::Unknown)
}

/// A request that waits for its KV cache from the context server is active and not scheduled.
fn has_transfers(engine: &Engine) -> bool {
    engine.page.grew("nv_trt_llm_kv_cache_transfer_seconds_count", &[]) > 0.0
}

/// Prompts are the smaller part of a full iteration, so more of them make it little longer.
fn iterations_can_grow(engine: &Engine) -> bool {
    let (context, generation) = (engine.batches.context, engine.batches.generation);
    if generation.iterations >= 10 {
        context.mean_seconds < 2.0 * generation.mean_seconds
    } else {
        context.mean_seconds < GENERATION_ITERATION
    }
}

/// Requests wait, in most iterations.
pub(super) fn requests_wait(engine: &Engine) -> bool {
    engine.batches.backlogged >= 0.8
}

pub(super) fn queue_time(engine: &Engine) -> Option<f64> {
    engine.page.mean("nv_trt_llm_new_request_queue_time_seconds", 1.0)
}

/// The counter of pauses needs the rows of requests. Without them, the records of the window tell the mean of an iteration.
pub(super) fn pauses(engine: &Engine) -> f64 {
    let counted = engine.page.grew("nv_trt_llm_request_pauses_total", &[])
        + engine.page.grew("nv_trt_llm_request_suspensions_total", &[]);
    counted.max((engine.batches.paused * engine.page.grew("nv_trt_llm_iterations_total", &[])).round())
}

/// Requests are paused often enough to matter.
pub(super) fn requests_pause(engine: &Engine) -> bool {
    let started = engine.page.grew("nv_trt_llm_requests_started_total", &[]);
    let pauses = pauses(engine);
    pauses >= 1.0 && pauses >= 0.01 * started
}

/// The PyTorch engine has no tuner: its records have no limits.
fn is_tuned_down(engine: &Engine) -> bool {
    let batches = &engine.batches;
    let is_lower =
        |limit: Option<f64>, built: Option<f64>| limit.zip(built).is_some_and(|(limit, built)| limit < built);
    batches.is_full() && is_lower(batches.batch_limit, batches.batch_limit_built)
        || batches.is_full_of_tokens() && is_lower(batches.token_limit, batches.token_limit_built)
}

fn waiting(engine: &Engine) -> Vec<Fact> {
    let batches = &engine.batches;
    let mut facts = vec![
        count("mean requests that wait", batches.backlog),
        share("iterations in which requests wait", batches.backlogged),
        count("mean scheduled requests", batches.scheduled),
    ];
    facts.extend(batches.batch_limit.map(|limit| count("batch size limit", limit)));
    if let Some((limit, full)) = batches.token_limit.zip(batches.token_full) {
        facts.push(count("mean tokens of an iteration", batches.tokens));
        facts.push(count("token limit", limit));
        facts.push(share("iterations without room for a prompt", full));
    }
    facts.extend(queue_time(engine).map(|time| seconds("mean queue time", time)));
    facts.extend(batches.kv_used.map(|used| share("freeNumBlocks / maxNumBlocks", 1.0 - used)));
    facts
}

fn queue_bound(engine: &Engine) -> Facts {
    (cause(engine) == Some(Cause::Batch)).then(|| waiting(engine))
}

fn token_limit_reached(engine: &Engine) -> Facts {
    (cause(engine) == Some(Cause::Tokens)).then(|| waiting(engine))
}

fn requests_wait_for_more(engine: &Engine) -> Facts {
    (cause(engine) == Some(Cause::Unknown)).then(|| waiting(engine))
}

fn tuner_limits_batch(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    (cause(engine) == Some(Cause::Tuner)).then(|| {
        let limits = [
            ("maxBatchSizeRuntime", batches.batch_limit),
            ("maxBatchSizeStatic", batches.batch_limit_built),
            ("maxNumTokensRuntime", batches.token_limit),
            ("maxNumTokensStatic", batches.token_limit_built),
        ];
        let limits = limits.into_iter().filter_map(|(name, limit)| Some(count(name, limit?)));
        limits.chain([count("mean requests that wait", batches.backlog)]).collect()
    })
}

fn queue_time_high(engine: &Engine) -> Facts {
    let time = queue_time(engine).filter(|time| *time > LONG_QUEUE_TIME)?;
    Some(vec![seconds("mean queue time", time), count("mean requests that wait", engine.batches.backlog)])
}

fn saturated(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let batch = batches.batch_limit.filter(|limit| *limit > 0.0).map(|limit| batches.scheduled / limit);
    let full = [("batch", batch, FULL_BATCH), ("kv_cache", batches.kv_used, FULL_KV_CACHE)]
        .into_iter()
        .filter(|(_, used, limit)| used.is_some_and(|used| used > *limit))
        .collect::<Vec<_>>();
    if !engine.was_busy() || full.is_empty() || cause(engine).is_some() || requests_pause(engine) {
        return None;
    }
    let names = full.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let mut facts = vec![text("full", names)];
    facts.extend(batch.map(|used| share("numScheduledRequests / batch size limit", used)));
    facts.extend(batches.kv_used.map(|used| share("usedNumBlocks / maxNumBlocks", used)));
    Some(facts)
}
