//! Answers a question, or says why it has no answer and what to record first.

use crate::answer::Answer;
use crate::change::Change;
use crate::costs::CostEstimator;
use crate::load::{Arrivals, Load};
use crate::measured::measured;
use crate::measured_engine::{Cache, ENOUGH, MeasuredEngine, Policy, Request};
use crate::replay::{Outcome, Question, RunResult};
use crate::scheduler::{Extrapolation, HostTime, Rules};

/// Iterations up to this many times as large as the largest known iteration can be simulated.
const FAR: f64 = 4.0;
/// The same if the KV cache is unknown: it may be too small for larger iterations than those that are known.
const FAR_WITHOUT_CACHE: f64 = 1.0;
/// The largest allowed relative difference between the simulated present and the measurement.
const MISS: f64 = 0.15;
/// Two sizes of the batch are stable if tokens take this many times as long after a burst.
const TWO_STATES: f64 = 1.25;
/// The widest allowed intervals: half of the interval ÷ the value.
const WIDE_RATE: f64 = 0.3;
const WIDE_MEDIAN: f64 = 0.5;
/// If iterations with unclear costs take more than this share of the time, the answer is unclear too.
const UNCLEAR: f64 = 0.25;
/// If recent iterations take this many times as long as equal work in the past, the known costs are outdated.
const SLOWED: f64 = 1.12;
/// If more than this share of the prompt tokens comes from the cache, it matters how requests share blocks.
const SHARED: f64 = 0.1;

/// What the engine would do after `change`.
pub fn ask(engine: &MeasuredEngine, change: &Change) -> Answer {
    let mut answer = Answer { supported: false, reason: None, measured: None, now: None, then: None };
    match try_to_ask(engine, change, &mut answer) {
        Ok(()) => answer.supported = true,
        Err(reason) => {
            answer.reason = Some(reason);
            answer.then = None;
        }
    }
    answer
}

fn try_to_ask(engine: &MeasuredEngine, change: &Change, answer: &mut Answer) -> Result<(), String> {
    let (costs, load, rules) = simulated(engine, change)?;
    is_reported(engine, change)?;
    refuse_if(
        change.max_draft_len.is_some(),
        "the iterations do not tell the time that drafts take, so another max_draft_len cannot be simulated; \
         measure a few minutes with it",
    )?;
    refuse_if(
        engine.limits.policy == Some(Policy::MaxUtilization) && change.policy == Some(Policy::GuaranteedNoEvict),
        "the engine uses MAX_UTILIZATION, as KV cache manager V2 always does; ask without capacity_scheduler_policy",
    )?;
    refuse_if(
        engine.cache.is_none() && change.max_tokens.is_some(),
        "it is not known how many tokens the KV cache has, or it has several pools, so another size cannot be simulated; \
         measure a few minutes with it",
    )?;
    let changed = Rules { host: host_time(engine, rules.overlap, change.overlap)?, ..changed(&rules, change) };
    [rules, changed].iter().try_for_each(|rules| fit(engine, rules, change))?;
    let measured = measured(&engine.requests, &engine.objectives);
    answer.measured = Some(measured);
    let present = Question::of_present(engine, rules, &costs, &load);
    let question = Question { rules: changed, rate: change.rate, replicas: change.replicas, ..present };
    question.has_whole_clients()?;
    let shown = |outcome: &Outcome, rules| {
        let mut forecast = outcome.forecast;
        if !tells_capacity(engine, rules, &outcome.reached_at_capacity) {
            forecast.capacity_requests_per_second = None;
        }
        forecast
    };
    let now = present.answer();
    answer.now = Some(shown(&now, &rules));
    agrees(&present.again(), now.forecast.stable, &present.as_measured(), measured.stable)?;
    let then = question.answer();
    answer.then = Some(shown(&then, &changed));
    is_near(engine, change, &rules, &changed, &now, &then)?;
    is_one_state(&question, &then)
}

fn refuse_if(is_refused: bool, why: impl Into<String>) -> Result<(), String> {
    if is_refused { Err(why.into()) } else { Ok(()) }
}

/// What an engine is simulated with, or why it cannot be.
pub(crate) fn simulated<'a>(
    engine: &'a MeasuredEngine,
    change: &Change,
) -> Result<(CostEstimator, Load<'a>, Rules), String> {
    is_known(engine)?;
    let costs = CostEstimator::of(engine).ok_or(
        "the costs of this engine's iterations are not known well enough; wait until it has run a few hundred \
         iterations with batches of several sizes",
    )?;
    let load = Load::of(&engine.requests);
    refuse_if(
        load.arrivals == Arrivals::Once,
        "all requests came at once, so there is no rate; ask while requests arrive",
    )?;
    Ok((costs, load, rules(engine, change)?))
}

/// Refuses a load with which the batch stays small or large, depending on the last burst.
fn is_one_state(question: &Question<'_>, then: &Outcome) -> Result<(), String> {
    let (Some(tpot), Some((utilization, _))) = (then.forecast.tpot_seconds, then.utilization) else { return Ok(()) };
    let tpot = tpot.p50.value;
    let after_burst = question.seconds_per_token_after_a_burst(utilization);
    refuse_if(
        after_burst > TWO_STATES * tpot,
        format!(
            "two sizes of the batch are stable with this load, because the costs have a step: tokens take {:.1} ms, or {:.1} ms after \
             a burst; ask for a little more or less",
            1e3 * tpot,
            1e3 * after_burst
        ),
    )
}

/// A capacity is only reported if the iterations at capacity are similar to known iterations.
fn tells_capacity(engine: &MeasuredEngine, rules: &Rules, reached: &Extrapolation) -> bool {
    reached.beyond() <= farthest(engine) && !is_cache_unclear(engine, rules, reached)
}

/// The largest iterations that can be simulated ÷ the largest known iteration.
pub(crate) fn farthest(engine: &MeasuredEngine) -> f64 {
    if engine.cache.is_some() { FAR } else { FAR_WITHOUT_CACHE }
}

/// Whether the KV cache was full while it is unknown how much of it requests share or reserve.
pub(crate) fn is_cache_unclear(engine: &MeasuredEngine, rules: &Rules, reached: &Extrapolation) -> bool {
    reached.cache_was_full() && (rules.policy == Policy::GuaranteedNoEvict || shares_much(engine))
}

/// Whether so many prompt tokens come from the cache that it matters how requests share its blocks.
fn shares_much(engine: &MeasuredEngine) -> bool {
    let sum = |of: fn(&Request) -> u32| engine.requests.iter().map(|request| f64::from(of(request))).sum::<f64>();
    sum(|request| request.cached) > SHARED * sum(|request| request.prompt)
}

fn is_known(engine: &MeasuredEngine) -> Result<(), String> {
    refuse_if(engine.sampling > 1.0, "statistics are sampled; set stats_interval to 1 and wait five minutes")?;
    refuse_if(
        engine.attention_dp_ranks > 1,
        "engines with attention data parallelism are not simulated; ask for one without",
    )?;
    refuse_if(engine.disaggregated, "disaggregated engines are not simulated; ask for one that serves both phases")?;
    refuse_if(engine.static_batching, "static batches are not simulated; use in-flight batching")?;
    refuse_if(
        engine.slowdown.is_some_and(|slowdown| slowdown > SLOWED),
        "the engine is slower than its own past at equal work; find the cause first (trtllm-doctor diagnose)",
    )?;
    let known = engine.requests.len();
    refuse_if(
        known < ENOUGH,
        format!(
            "lengths and times of only {known} finished requests are known, and {ENOUGH} are needed; set return_perf_metrics \
             and enable_iter_req_stats, and wait until enough requests have ended"
        ),
    )
}

/// Refuses a question about nothing but settings that the engine does not report. Both sides would have the asked value.
fn is_reported(engine: &MeasuredEngine, change: &Change) -> Result<(), String> {
    let limits = &engine.limits;
    let unreported = [
        ("max_num_tokens", change.max_num_tokens.is_some() && limits.max_num_tokens.is_none()),
        ("capacity_scheduler_policy", change.policy.is_some() && limits.policy.is_none()),
        ("enable_chunked_prefill", change.chunked_context.is_some()),
    ];
    let reported = Change {
        max_num_tokens: limits.max_num_tokens.and(change.max_num_tokens),
        policy: limits.policy.and(change.policy),
        chunked_context: None,
        ..*change
    };
    match unreported.into_iter().find(|(_, is_unreported)| *is_unreported) {
        Some((name, _)) if reported == Change::default() => Err(format!(
            "the engine does not report {name}, so a change of it cannot be told; beside another change it is taken as the present \
             value"
        )),
        _ => Ok(()),
    }
}

/// Refuses a prompt that never fits into an iteration.
fn fit(engine: &MeasuredEngine, rules: &Rules, change: &Change) -> Result<(), String> {
    let longest =
        engine.requests.iter().map(|request| request.prompt.saturating_sub(request.cached)).max().unwrap_or(0);
    if rules.chunked_context || longest <= rules.max_num_tokens {
        return Ok(());
    }
    Err(match change.chunked_context {
        None => UNKNOWN_CHUNKS.to_owned(),
        Some(_) => format!(
            "a prompt with {longest} tokens never fits into an iteration of max_num_tokens={} without chunks; ask with a larger \
             max_num_tokens, or with enable_chunked_prefill=true",
            rules.max_num_tokens
        ),
    })
}

const UNKNOWN_CHUNKS: &str = "prompts would reach max_num_tokens, and the engine does not tell whether it computes them in chunks; add \
    --set enable_chunked_prefill=true or false, as it is set now";

fn rules(engine: &MeasuredEngine, change: &Change) -> Result<Rules, String> {
    let limits = &engine.limits;
    // A setting that the engine does not report comes from the question, or else from a default.
    let max_num_tokens = limits.max_num_tokens.or(change.max_num_tokens).ok_or(
        "nothing tells the max_num_tokens of this engine: only the records of the C++ engine and the settings of a publisher do; add \
         --set max_num_tokens=VALUE, as it is set now",
    )?;
    let longest = engine.requests.iter().map(|request| request.prompt).max().unwrap_or(0);
    let chunked = change.chunked_context.unwrap_or(longest > max_num_tokens);
    let drafts = engine.drafts.map_or((0, 0.0), |drafts| {
        let length = drafts.length.round().max(1.0) as u32;
        (length, acceptance(length, drafts.accepted))
    });
    Ok(Rules {
        max_batch_size: limits
            .max_batch_size
            .ok_or("nothing tells the max_batch_size of this engine; publish its settings (docs/sources.md)")?,
        max_num_tokens,
        chunked_context: chunked,
        policy: limits.policy.or(change.policy).unwrap_or(Policy::GuaranteedNoEvict),
        cache: engine.cache,
        draft_len: drafts.0,
        acceptance: drafts.1,
        overlap: limits.overlap.unwrap_or(false),
        host: HostTime::AsKnown,
    })
}

fn changed(rules: &Rules, change: &Change) -> Rules {
    let blocks = |tokens: u64, cache: Cache| {
        u32::try_from(tokens / u64::from(cache.tokens_per_block.max(1))).unwrap_or(u32::MAX).max(1)
    };
    Rules {
        max_batch_size: change.max_batch_size.unwrap_or(rules.max_batch_size),
        max_num_tokens: change.max_num_tokens.unwrap_or(rules.max_num_tokens),
        chunked_context: change.chunked_context.unwrap_or(rules.chunked_context),
        policy: change.policy.unwrap_or(rules.policy),
        overlap: change.overlap.unwrap_or(rules.overlap),
        cache: rules.cache.map(|cache| match change.max_tokens {
            Some(tokens) => Cache { blocks: blocks(tokens, cache), ..cache },
            None => cache,
        }),
        ..*rules
    }
}

/// What another loop changes in the time of an iteration: a loop that overlaps hides the host's work behind the GPU's.
fn host_time(engine: &MeasuredEngine, now: bool, then: Option<bool>) -> Result<HostTime, String> {
    refuse_if(
        engine.limits.overlap.is_none() && then.is_some(),
        "it is not known which loop the engine has; ask again after it has served requests for a minute",
    )?;
    let host = &engine.host_seconds;
    match (now, then) {
        (true, Some(false)) => host.forming.map(HostTime::Added).ok_or_else(|| {
            "it is not known how long the host needs to form a batch, because the engine was never idle; ask after a moment \
             without requests"
                .to_owned()
        }),
        (false, Some(true)) => host.beside_device.map(HostTime::Hidden).ok_or_else(|| {
            "the engine does not tell the time of its forward passes (gpuForwardTimeMS), so it is not known what the host adds; \
             measure a few minutes with it"
                .to_owned()
        }),
        _ => Ok(HostTime::AsKnown),
    }
}

/// The probability that a draft token is accepted if all earlier ones were, from the mean number of accepted tokens.
fn acceptance(length: u32, accepted: f64) -> f64 {
    let mean = |chance: f64| (1..=length).map(|position| chance.powi(position as i32)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if mean(middle) < accepted { low = middle } else { high = middle }
    }
    low
}

/// Checks that `again`, the simulation of the known requests, agrees with the measurement of the same requests.
fn agrees(again: &RunResult, now_is_stable: bool, measured: &RunResult, is_stable: bool) -> Result<(), String> {
    let (simulated, known) = (&again.latencies, &measured.latencies);
    let pairs = [
        ("requests/s", again.requests, measured.requests, true),
        ("median TTFT in s", simulated.ttft[0], known.ttft[0], is_stable && now_is_stable),
        ("median TPOT in s", simulated.tpot[0], known.tpot[0], is_stable),
    ];
    for (name, simulated, measured, is_compared) in pairs {
        if is_compared && (simulated / measured.max(1e-9) - 1.0).abs() > MISS {
            return Err(format!(
                "the present, simulated, differs from what was measured ({name}: {simulated:.3}, not {measured:.3}), so \
                 something that is not simulated decides; ask trtllm-doctor what limits the engine"
            ));
        }
    }
    Ok(())
}

/// Checks that the changed engine is similar enough to what is known.
fn is_near(
    engine: &MeasuredEngine,
    change: &Change,
    rules: &Rules,
    changed: &Rules,
    now: &Outcome,
    then: &Outcome,
) -> Result<(), String> {
    let forecast = &then.forecast;
    let reached = if forecast.stable { &then.reached } else { &then.reached_at_capacity };
    let far = farthest(engine);
    let why = if engine.cache.is_none() { ", because the size of the KV cache is not known" } else { "" };
    refuse_if(
        reached.beyond() > far,
        format!(
            "the changed engine would run iterations {:.1} times as large as any so far, and {far} times is the most{why}; raise \
             the load or the limit in steps, and record a few minutes at each",
            reached.beyond()
        ),
    )?;
    refuse_if(
        reached.unclear() > UNCLEAR,
        format!(
            "{:.0} % of the time, the changed engine would run batches that this engine has hardly run, and the sizes around \
             them differ in their costs (a CUDA graph may end there); record a few minutes at a load with such batches first",
            100.0 * reached.unclear()
        ),
    )?;
    if let Some((utilization, uncertain)) = then.utilization {
        refuse_if(
            utilization.ln().abs() < uncertain,
            format!(
                "the engine would be at its capacity ({:.0} % ± {:.0} % of it), where it is uncertain whether the queue grows; ask \
                 for a little more or less",
                100.0 * utilization,
                100.0 * uncertain
            ),
        )?;
        // Whether the engine would keep up depends on the largest batches, which may be unknown.
        refuse_if(
            utilization > 0.75 && then.reached_at_capacity.beyond() > far,
            format!(
                "whether the engine would keep up depends on batches more than {far} times as large as any so far; record a few \
                 minutes at a higher load first"
            ),
        )?;
    }
    let binds = |outcome: &Outcome| {
        outcome.reached.cache_was_full() || !outcome.forecast.stable && outcome.reached_at_capacity.cache_was_full()
    };
    refuse_if(
        binds(then) && shares_much(engine),
        "the KV cache would be full, and how its blocks are shared and evicted then is not known; record a few minutes with \
         this limit or load",
    )?;
    refuse_if(
        binds(then) && !binds(now) && changed.policy == Policy::GuaranteedNoEvict,
        "the KV cache would be full, and the engine does not tell how many tokens each request reserves (its max_tokens); \
         record a few minutes with a full cache first",
    )?;
    refuse_if(
        changed.cache != rules.cache && engine.requests.iter().any(|request| request.cached > 0),
        "another size of the KV cache changes how much of it is reused, which is not simulated; measure a few minutes with it",
    )?;
    let waits_for_tokens = |outcome: &Outcome| outcome.reached.prompt_waited_for_tokens;
    refuse_if(change.chunked_context.is_none() && waits_for_tokens(then) && !waits_for_tokens(now), UNKNOWN_CHUNKS)?;
    refuse_if(
        forecast.requests_per_second.relative() > WIDE_RATE,
        "the throughput would be uncertain by more than 30 %; record more of the load first",
    )?;
    let medians = [forecast.ttft_seconds, forecast.tpot_seconds];
    refuse_if(
        medians.iter().flatten().any(|times| times.p50.relative() > WIDE_MEDIAN),
        "the median latencies would be uncertain by more than 50 %, as the load or the costs near its capacity are; record \
         more of the load, or ask for less",
    )
}
