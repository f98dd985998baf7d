//! Which phase limits an engine, and how well its batches and ranks are used.

use super::super::batches::GENERATION_ITERATION;
use super::super::finding::{Check, Facts, Rule, Severity, count, seconds, share, text};
use super::super::observation::Engine;
use super::waiting::{Cause, FIRST_TOKEN, cause, queue_time, requests_wait};

/// Tuning guideline: an iteration with context below 500 ms.
const CONTEXT_ITERATION: f64 = 0.5;
/// A phase that takes this share of the time limits the engine.
const MOST: f64 = 0.5;
/// The host's step is so much longer than the device's that the GPU waits.
const HOST_OVER_DEVICE: f64 = 1.25;
/// Context that takes this share of the time delays generation, if it is in the same iterations.
const DELAYS: f64 = 0.25;
/// An iteration with context is so many times as long as one without.
const MUCH_LONGER: f64 = 4.0;
/// With requests that wait in more iterations, shorter chunks would make them wait longer.
const FEW: f64 = 0.2;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "context-bound",
        severity: Severity::Warning,
        check: Check::Engine(context_bound),
        says: "The engine spends most of its time in context phases: it is bound by compute.",
        when: "The context phase takes at least 50 % of the window; and requests wait in at least 80 % of the iterations, or the \
               mean iteration with context takes at least 500 ms, or the mean time to the first token is above 200 ms. Not if \
               host-bound or token-limit-reached applies.",
        guideline: "Compute-bound (prefill) phase: high numCtxTokens, high iterLatencyMS with context requests. Targets: below \
                    500 ms for such an iteration, below 200 ms for the first token.",
        change: "Add compute: replicas, a higher tensor_parallel_size or a separate context server. \
                 kv_cache_config.enable_block_reuse saves prompts that share their beginning.",
        alerts: &[],
    },
    Rule {
        name: "context-delays-generation",
        severity: Severity::Warning,
        check: Check::Engine(context_delays_generation),
        says: "Long prompts delay the generation requests in the same iterations.",
        when: "The mean iteration with context and generation takes at least 500 ms and at least 4 times as long as one with \
               generation only, and the context phase takes at least 25 % of the window. Not if requests wait in more than 20 % of the \
               iterations, or their mean queue time is above 200 ms: a lower max_num_tokens would make them wait longer.",
        guideline: "An iteration gives each generation request one token, so it sets the time per output token. Target: below 500 ms \
                    with context.",
        change: "enable_chunked_prefill (TensorRT backend: enable_chunked_context) and a lower max_num_tokens, which is then the length \
                 of a chunk. The time to the first token of long prompts grows a little. Or a separate context server.",
        alerts: &[],
    },
    Rule {
        name: "generation-bound",
        severity: Severity::Warning,
        check: Check::Engine(generation_bound),
        says: "Iterations with generation only are slow: the engine is bound by memory bandwidth.",
        when: "Iterations with generation only take at least 50 % of the time and 50 ms each on average, and the host's step is \
               not the reason.",
        guideline: "Memory-bound (decode) phase: high iterLatencyMS with generation requests, low freeNumBlocks. Target: below \
                    50 ms.",
        change: "Quantize the weights, set kv_cache_config.dtype: fp8 (TensorRT backend: an engine built with an FP8 KV cache), or \
                 raise tensor_parallel_size. With replicas, each engine has a smaller batch.",
        alerts: &[],
    },
    Rule {
        name: "host-bound",
        severity: Severity::Warning,
        check: Check::Engine(host_bound),
        says: "The GPU waits for the host: the loop in Python takes longer than the device.",
        when: "The mean host step is at least 1.25 times the mean device step.",
        guideline: "hostStepTimeMS above prevDeviceStepTimeMS means that the GPU waits.",
        change: "disable_overlap_scheduler: false, cuda_graph_config with batch sizes up to max_batch_size, stream_interval \
                 above 1, num_postprocess_workers; give the process its own CPU cores.",
        alerts: &[],
    },
    Rule {
        name: "static-batch-waste",
        severity: Severity::Warning,
        check: Check::Engine(static_batch_waste),
        says: "A static batch waits for its longest request, and the slots of the others are empty.",
        when: "Less than 80 % of the generation slots of static batches are in use.",
        guideline: "Batch efficiency: 1 - emptyGenSlots / (numGenTokens + emptyGenSlots). Target: above 80 %.",
        change: "batching_type: INFLIGHT (Triton: gpt_model_type inflight_fused_batching).",
        alerts: &[],
    },
    Rule {
        name: "unbalanced-ranks",
        severity: Severity::Warning,
        check: Check::Engine(unbalanced_ranks),
        says: "The ranks of attention data parallelism have unequal work, and all wait for the fullest.",
        when: "The ranks wait at least 25 % of their time, by the tokens that each computes in an iteration. The fullest rank is the one \
               that computed the most tokens in the window.",
        guideline: "Utilization unbalanced between GPUs: an iteration ends when its slowest rank ends.",
        change: "attention_dp_config.enable_balance: true, with batching_wait_iters and timeout_iters of the same section.",
        alerts: &[],
    },
];

fn context_bound(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let first_token = engine.page.mean("nv_trt_llm_time_to_first_token_seconds", 1.0);
    let slow = requests_wait(engine)
        || batches.context.mean_seconds >= CONTEXT_ITERATION
        || first_token.is_some_and(|time| time > FIRST_TOKEN);
    if !engine.was_busy() || engine.context_time() < MOST || !slow || is_host_bound(engine) {
        return None;
    }
    // A batch that is cut short does not prove that the GPU is.
    if cause(engine) == Some(Cause::Tokens) {
        return None;
    }
    let mut facts = vec![
        share("time in context phases", engine.context_time()),
        seconds("mean iteration with context", batches.context.mean_seconds),
    ];
    if batches.generation.iterations > 0 {
        facts.push(seconds("mean iteration with generation only", batches.generation.mean_seconds));
    }
    facts.extend(
        engine
            .page
            .mean("nv_trt_llm_iteration_context_tokens", 1.0)
            .map(|mean| count("mean numCtxTokens of such an iteration", mean)),
    );
    facts.extend(first_token.map(|time| seconds("mean time to the first token", time)));
    Some(facts)
}

fn context_delays_generation(engine: &Engine) -> Facts {
    let (mixed, generation) = (engine.batches.mixed, engine.batches.generation);
    let is_long = mixed.iterations >= 3
        && mixed.mean_seconds >= CONTEXT_ITERATION
        && generation.iterations >= 10
        && mixed.mean_seconds >= MUCH_LONGER * generation.mean_seconds;
    let few_wait = engine.batches.backlogged <= FEW && queue_time(engine).is_none_or(|time| time <= FIRST_TOKEN);
    (engine.was_busy() && is_long && few_wait && engine.context_time() >= DELAYS).then(|| {
        vec![
            seconds("mean iteration with context and generation", mixed.mean_seconds),
            seconds("mean iteration with generation only", generation.mean_seconds),
            share("time in context phases", engine.context_time()),
            share("iterations in which requests wait", engine.batches.backlogged),
        ]
    })
}

fn generation_bound(engine: &Engine) -> Facts {
    let (batches, busy) = (&engine.batches, engine.busy_share());
    let generation = busy * (1.0 - batches.context_share);
    let is_slow = batches.generation.iterations >= 10 && batches.generation.mean_seconds >= GENERATION_ITERATION;
    if !engine.was_busy() || !is_slow || generation < MOST || is_host_bound(engine) {
        return None;
    }
    let mut facts = vec![
        share("time in generation", generation),
        seconds("mean iteration with generation only", batches.generation.mean_seconds),
        count("mean scheduled requests", batches.scheduled),
    ];
    facts.extend(batches.kv_used.map(|used| share("freeNumBlocks / maxNumBlocks", 1.0 - used)));
    Some(facts)
}

fn is_host_bound(engine: &Engine) -> bool {
    engine.steps().is_some_and(|(host, device)| host >= HOST_OVER_DEVICE * device)
}

fn host_bound(engine: &Engine) -> Facts {
    let (host, device) = engine.steps().filter(|_| is_host_bound(engine))?;
    let mut facts = vec![seconds("mean hostStepTimeMS", host), seconds("mean prevDeviceStepTimeMS", device)];
    if let Some(mode) = engine.page.after.current("nv_trt_llm_scheduler_info", "mode") {
        facts.push(text("schedulerMode", mode));
    }
    Some(facts)
}

fn static_batch_waste(engine: &Engine) -> Facts {
    let used = engine.batches.slots_used.filter(|used| *used < 0.8 && engine.was_busy())?;
    Some(vec![share("generation slots in use", used), count("mean scheduled requests", engine.batches.scheduled)])
}

fn unbalanced_ranks(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let applies = batches.ranks > 1 && batches.rank_wait >= 0.25 && engine.was_busy();
    applies.then(|| {
        let mut facts = vec![
            count("ranks", batches.ranks as f64),
            share("time that ranks wait for the fullest", batches.rank_wait),
        ];
        facts.extend(fullest_rank(engine).map(|rank| text("fullest rank", rank)));
        facts
    })
}

/// The rank that computed the most tokens in the window: by the page's counters, which count every iteration, else by the records.
/// `other` stands for several ranks.
fn fullest_rank(engine: &Engine) -> Option<String> {
    let [context, generation] = ["nv_trt_llm_rank_context_tokens_total", "nv_trt_llm_rank_generation_tokens_total"];
    let ranks = engine.page.after.0.iter().filter(|series| series.name == generation);
    let ranks = ranks.filter_map(|series| series.label("rank")).filter(|rank| *rank != "other");
    let grew = |rank| {
        let of_rank = [("rank", rank)];
        (rank, engine.page.grew(context, &of_rank) + engine.page.grew(generation, &of_rank))
    };
    let fullest = ranks.map(grew).filter(|(_, tokens)| *tokens > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b));
    fullest.map(|(rank, _)| rank.to_owned()).or_else(|| engine.batches.fullest_rank.map(|rank| rank.to_string()))
}
