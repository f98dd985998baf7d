//! Which phase or queue limits an engine.

use super::super::finding::{Check, Facts, Rule, Severity, count, seconds, share, text};
use super::super::observation::Engine;

/// Tuning guideline: a first token within 200 ms.
const FIRST_TOKEN: f64 = 0.2;
/// Tuning guideline: an iteration with context below 500 ms, one with generation only below 50 ms.
const CONTEXT_ITERATION: f64 = 0.5;
const GENERATION_ITERATION: f64 = 0.05;
/// Tuning guideline: queued requests below a tenth of the limit.
const QUEUED_SHARE: f64 = 0.1;
/// A phase that takes this share of the time limits the engine.
const MOST: f64 = 0.5;
/// The host's step is so much longer than the device's that the GPU waits.
const HOST_OVER_DEVICE: f64 = 1.25;
/// As the alert TrtllmQueueTimeHigh, which is about the 95th percentile: a window may have too few requests for one.
const LONG_QUEUE_TIME: f64 = 5.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "context-bound",
        severity: Severity::Warning,
        check: Check::Engine(context_bound),
        says: "The engine spends most of its time in context phases: it is bound by compute.",
        when: "The context phase takes at least 50 % of the window; and requests wait in at least 80 % of the iterations, or the \
               mean iteration with context takes at least 500 ms, or the mean time to the first token is above 200 ms. Not if \
               host-bound applies.",
        guideline: "Compute-bound (prefill) phase: high numCtxTokens, high iterLatencyMS with context requests. Targets: below \
                    500 ms for such an iteration, below 200 ms for the first token.",
        change: "enable_chunked_prefill (TensorRT backend: enable_chunked_context) with a smaller max_num_tokens keeps \
                 generation going; tensor_parallel_size or a separate context server adds compute; \
                 kv_cache_config.enable_block_reuse saves shared prompts.",
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
        change: "Reduce max_batch_size, set kv_cache_config.dtype: fp8, quantize the weights, raise tensor_parallel_size, or \
                 use speculative_config.",
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
        name: "queue-bound",
        severity: Severity::Warning,
        check: Check::Engine(queue_bound),
        says: "Requests arrive faster than they are scheduled, so they wait in the queue.",
        when: "Requests wait in at least 80 % of the iterations; and on average at least 10 % of the batch size limit of all ranks \
               wait, or the mean queue time is above 200 ms. Not if requests wait for the KV cache (see kv-cache-starved).",
        guideline: "Queue-bound (scheduler): high numQueuedRequests, high newActiveRequestsQueueLatencyMS. Target: \
                    numQueuedRequests below 10 % of the maximum.",
        change: "Raise max_batch_size (it limits max_num_active_requests) and max_num_tokens, choose another \
                 scheduler_config.capacity_scheduler_policy, or add replicas.",
        alerts: &["TrtllmQueueGrowing", "TrtllmQueueLong"],
    },
    Rule {
        name: "queue-time-high",
        severity: Severity::Warning,
        check: Check::Engine(queue_time_high),
        says: "New requests have waited very long before they became active.",
        when: "The mean queue time of requests that became active in the window is above 5 s.",
        guideline: "High newActiveRequestsQueueLatencyMS. The queue time is part of the time to the first token.",
        change: "If queue-bound applies too, see there. If not, requests come in bursts: raise max_num_tokens or set \
                 enable_chunked_prefill (TensorRT backend: enable_chunked_context), so that context phases start sooner.",
        alerts: &["TrtllmQueueTimeHigh"],
    },
    Rule {
        name: "saturated",
        severity: Severity::Info,
        check: Check::Engine(saturated),
        says: "A resource of the engine is nearly full: with more load, requests have to wait.",
        when: "The batch is on average more than 70 % full, or the KV cache more than 90 %. Not if queue-bound or kv-cache-starved applies.",
        guideline: "numScheduledRequests reaches the batch size limit, or usedNumBlocks reaches maxNumBlocks.",
        change: "Add a replica before users notice. If only the batch is full, raise max_batch_size; if only the KV cache is, see \
                 kv-cache-starved.",
        alerts: &["TrtllmEngineSaturated"],
    },
    Rule {
        name: "tuner-limits-batch",
        severity: Severity::Warning,
        check: Check::Engine(tuner_limits_batch),
        says: "The batch size tuner keeps the batch below what the engine was built for, and requests wait.",
        when: "Requests wait, the batch has reached maxBatchSizeRuntime, and that is below maxBatchSizeStatic.",
        guideline: "Batch size tuning: compare maxBatchSizeTunerRecommended with maxBatchSizeStatic.",
        change: "scheduler_config.dynamic_batch_config: enable_batch_size_tuning: false, or a longer \
                 dynamic_batch_moving_average_window.",
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

/// Requests wait, in most iterations.
fn requests_wait(engine: &Engine) -> bool {
    engine.batches.backlogged >= 0.8
}

fn queue_time(engine: &Engine) -> Option<f64> {
    engine.page.mean("nv_trt_llm_new_request_queue_time_seconds", 1.0)
}

fn context_bound(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let first_token = engine.page.mean("nv_trt_llm_time_to_first_token_seconds", 1.0);
    let slow = requests_wait(engine)
        || batches.context.mean_seconds >= CONTEXT_ITERATION
        || first_token.is_some_and(|time| time > FIRST_TOKEN);
    if !engine.was_busy() || engine.context_time() < MOST || !slow || is_host_bound(engine) {
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

fn queue_bound(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let limit = batches.batch_limit.unwrap_or(f64::INFINITY);
    let many = batches.backlog >= QUEUED_SHARE * limit;
    let time = queue_time(engine);
    let long = time.is_some_and(|time| time > FIRST_TOKEN);
    if !engine.was_busy() || !requests_wait(engine) || !(many || long) || engine.batches.cache_is_the_limit() {
        return None;
    }
    let mut facts = vec![
        count("mean requests that wait", batches.backlog),
        share("iterations in which requests wait", batches.backlogged),
        count("mean scheduled requests", batches.scheduled),
    ];
    facts.extend(batches.batch_limit.map(|limit| count("batch size limit", limit)));
    facts.extend(time.map(|time| seconds("mean queue time", time)));
    facts.extend(batches.kv_used.map(|used| share("freeNumBlocks / maxNumBlocks", 1.0 - used)));
    Some(facts)
}

fn queue_time_high(engine: &Engine) -> Facts {
    let time = queue_time(engine).filter(|time| *time > LONG_QUEUE_TIME)?;
    Some(vec![seconds("mean queue time", time), count("mean requests that wait", engine.batches.backlog)])
}

/// The alert TrtllmEngineSaturated is about minutes. A few seconds with a KV cache that is 80 % full are nothing.
const FULL_BATCH: f64 = 0.7;
const FULL_KV_CACHE: f64 = 0.9;

fn saturated(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let batch = batches.batch_limit.filter(|limit| *limit > 0.0).map(|limit| batches.scheduled / limit);
    let full = [("batch", batch, FULL_BATCH), ("kv_cache", batches.kv_used, FULL_KV_CACHE)]
        .into_iter()
        .filter(|(_, used, limit)| used.is_some_and(|used| used > *limit))
        .collect::<Vec<_>>();
    if !engine.was_busy() || full.is_empty() || batches.cache_is_the_limit() || queue_bound(engine).is_some() {
        return None;
    }
    let names = full.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let mut facts = vec![text("full", names)];
    facts.extend(batch.map(|used| share("numScheduledRequests / batch size limit", used)));
    facts.extend(batches.kv_used.map(|used| share("usedNumBlocks / maxNumBlocks", used)));
    Some(facts)
}

fn tuner_limits_batch(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let (limit, built) = batches.batch_limit.zip(batches.static_limit)?;
    let applies = engine.was_busy() && requests_wait(engine) && batches.is_full() && limit < built;
    applies.then(|| {
        vec![
            count("maxBatchSizeRuntime", limit),
            count("maxBatchSizeStatic", built),
            count("mean requests that wait", batches.backlog),
        ]
    })
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
