//! The KV cache: too small, or reused too little.

use super::super::finding::{Check, Facts, Rule, Severity, count, seconds, share};
use super::super::observation::Engine;
use super::super::thresholds::{FULL_KV_CACHE, REUSED_BLOCKS, TRANSFER_SHARE};
use super::waiting::{Cause, cause, pauses, requests_pause};

/// Blocks looked up before the window, which make its share of hits one to rely on.
const KNOWN_BLOCKS: f64 = 1000.0;
/// Below this share of the time, computing prompts again costs little.
const CONTEXT_MATTERS: f64 = 0.25;
/// Blocks looked up in the window, and requests before it: a new cache is empty.
const ENOUGH_BLOCKS: f64 = 100.0;
const WARM: f64 = 20.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "kv-cache-starved",
        severity: Severity::Warning,
        check: Check::Engine(kv_cache_starved),
        says: "The KV cache has too few blocks: requests wait for them, or are paused.",
        when: "Less than 90 % of the batch size limit is scheduled on average, and as many requests wait as for requests-wait: in at \
               least 50 % of the iterations with at most 10 % of the blocks free, or in at least 80 % with at most 50 % free, because the \
               scheduler reserves blocks for the rest of each request. With more than 10 % free, the token limit must be known and \
               reached in less than 50 % of the iterations, and no KV cache be transferred. Not with static batches. Or: \
               requests-paused applies, and less than 10 % are free or requests wait in at least 80 % of the iterations.",
        guideline: "KV cache: freeNumBlocks / maxNumBlocks above 10 %. Few free blocks mean memory pressure.",
        change: "Raise kv_cache_config.free_gpu_memory_fraction (TensorRT backend: kv_cache_free_gpu_mem_fraction) or, where it is \
                 set, kv_cache_config.max_tokens; set kv_cache_config.dtype: fp8 (TensorRT backend: an engine built with an FP8 KV \
                 cache); lower max_seq_len or the max_tokens of requests, for which the scheduler can reserve blocks; or add replicas.",
        alerts: &["TrtllmKvCacheNearlyFull"],
    },
    Rule {
        name: "requests-paused",
        severity: Severity::Warning,
        check: Check::Engine(requests_paused),
        says: "Running requests lose their KV cache to others and are computed again later.",
        when: "Requests were paused or suspended in the window, at least 1 for 100 that became active: by the counters, or, where \
               requests have no rows, by numPausedRequests of the records.",
        guideline: "numPausedRequests counts requests that were stopped for lack of resources; their work is lost.",
        change: "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT, a lower max_batch_size, or a larger KV cache \
                 (see kv-cache-starved).",
        alerts: &[],
    },
    Rule {
        name: "poor-reuse",
        severity: Severity::Info,
        check: Check::Engine(poor_reuse),
        says: "Much fewer blocks of the prompts are found in the KV cache than before, and computing them takes much of the time.",
        when: "Before the window, at least 70 % of the blocks looked up were found, and in it less than half of that share; the \
               context phase takes at least 25 % of the time, and it computes more tokens than generation does. Not after a restart \
               in the window. Prompts that have never shared anything are no problem.",
        guideline: "cacheHitRate above 70 % where prompts are long and share their beginning.",
        change: "Look for what has changed: the routing, the prompts or the load. Route requests with the same beginning to the same \
                 engine; put what prompts share at their beginning; kv_cache_config.host_cache_size keeps evicted blocks.",
        alerts: &["TrtllmKvCacheReuseLow"],
    },
    Rule {
        name: "reuse-off",
        severity: Severity::Info,
        check: Check::Engine(reuse_off),
        says: "The engine never looks prompts up in the KV cache, and computing them takes much of the time.",
        when: "Blocks are allocated, none is looked up, and the context phase takes at least 25 % of the time. Not in releases that \
               do not count missedBlocks.",
        guideline: "Enable automatic prefix caching.",
        change: "kv_cache_config.enable_block_reuse: true (TensorRT backend: built with use_paged_context_fmha).",
        alerts: &[],
    },
    Rule {
        name: "kv-transfer-slow",
        severity: Severity::Warning,
        check: Check::Engine(kv_transfer_slow),
        says: "Moving the KV cache from the context server takes much of a request's time.",
        when: "The mean transfer takes more than 10 % of the mean latency of a request.",
        guideline: "Disaggregated serving: kvCacheTransferMS below 10 % of the total latency.",
        change: "cache_transceiver_config.backend (UCX or NIXL over NVLink or InfiniBand instead of TCP) and \
                 cache_transceiver_config.max_tokens_in_buffer.",
        alerts: &["TrtllmKvTransferSlow"],
    },
];

fn free(engine: &Engine) -> Option<f64> {
    engine.batches.kv_used.map(|used| 1.0 - used)
}

fn kv_cache_starved(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let free = free(engine).filter(|_| engine.was_busy())?;
    let is_full = free < 1.0 - FULL_KV_CACHE;
    if cause(engine) != Some(Cause::KvCache) && !(is_full && requests_pause(engine)) {
        return None;
    }
    Some(vec![
        share("freeNumBlocks / maxNumBlocks", free),
        count("mean requests that wait", batches.backlog),
        count("mean scheduled requests", batches.scheduled),
        count("requests paused or suspended", pauses(engine)),
    ])
}

fn requests_paused(engine: &Engine) -> Facts {
    let started = engine.page.grew("nv_trt_llm_requests_started_total", &[]);
    requests_pause(engine).then(|| {
        vec![count("requests paused or suspended", pauses(engine)), count("requests that became active", started)]
    })
}

/// The context phase takes much of the time, and the cache is warm.
fn context_matters(engine: &Engine) -> bool {
    let completed = engine.page.before.get("nv_trt_llm_requests_completed_total", &[]).unwrap_or(0.0);
    engine.was_busy() && completed >= WARM && engine.context_time() >= CONTEXT_MATTERS
}

fn poor_reuse(engine: &Engine) -> Facts {
    let page = &engine.page;
    let [reused_name, missed_name] =
        ["nv_trt_llm_kv_cache_blocks_reused_total", "nv_trt_llm_kv_cache_blocks_missed_total"];
    let before = |name| page.before.sum(name, &[]).unwrap_or(0.0);
    let (reused_before, known) = (before(reused_name), before(reused_name) + before(missed_name));
    let usual = if known >= KNOWN_BLOCKS { reused_before / known } else { 0.0 };
    let reused = page.grew(reused_name, &[]);
    let looked_up = reused + page.grew(missed_name, &[]);
    let context = page.grew("nv_trt_llm_context_tokens_total", &[]);
    let generation = page.grew("nv_trt_llm_generation_tokens_total", &[]);
    // An engine that has never found so many may have prompts that share nothing.
    let poor = usual >= REUSED_BLOCKS && looked_up >= ENOUGH_BLOCKS && reused / looked_up < 0.5 * usual;
    // After a restart, the cache is empty.
    let restarted = page.grew("nv_trt_llm_engine_restarts_total", &[]) > 0.0;
    let applies = poor && !restarted && context > generation && context_matters(engine);
    applies.then(|| {
        vec![
            share("blocks found in the KV cache", reused / looked_up),
            share("blocks found before the window", usual),
            count("blocks looked up", looked_up),
            share("time in context phases", engine.context_time()),
        ]
    })
}

fn reuse_off(engine: &Engine) -> Facts {
    let grew = |name| engine.page.grew(name, &[]);
    let looked_up = grew("nv_trt_llm_kv_cache_blocks_reused_total") + grew("nv_trt_llm_kv_cache_blocks_missed_total");
    let allocated = grew("nv_trt_llm_kv_cache_blocks_allocated_total");
    // Without the count of misses, a cache in which nothing was found looks like one that is off.
    let off = looked_up == 0.0 && engine.batches.counts_missed;
    let applies = off && allocated >= ENOUGH_BLOCKS && context_matters(engine);
    applies.then(|| {
        vec![
            count("blocks looked up", looked_up),
            count("blocks allocated", allocated),
            share("time in context phases", engine.context_time()),
        ]
    })
}

fn kv_transfer_slow(engine: &Engine) -> Facts {
    let transfer = engine.page.mean("nv_trt_llm_kv_cache_transfer_seconds", 10.0)?;
    let latency = engine.page.mean("nv_trt_llm_e2e_request_latency_seconds", 10.0)?;
    let applies = latency > 0.0 && transfer > TRANSFER_SHARE * latency;
    applies.then(|| vec![seconds("mean transfer", transfer), seconds("mean latency of a request", latency)])
}
