//! The KV cache: too small, or reused too little.

use super::super::finding::{Check, Facts, Rule, Severity, count, seconds, share};
use super::super::observation::Engine;

/// Tuning guideline: more than 70 % hits where prompts are long.
const HITS: f64 = 0.7;
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
        says: "The KV cache is full: requests wait for blocks, or are paused.",
        when: "Requests wait in at least 50 % of the iterations although less than 90 % of the batch size limit is scheduled on \
               average, and on average at most 10 % of the blocks are free (at most 50 % if the token limit is known and reached in \
               less than 50 % of the iterations: the scheduler reserves blocks for the rest of each request). Not with static \
               batches. Or: requests are paused or suspended in the window, and on average less than 10 % are free. Or: at most 5 % \
               are free in every iteration.",
        guideline: "KV cache: freeNumBlocks / maxNumBlocks above 10 %. Few free blocks mean memory pressure.",
        change: "Raise kv_cache_config.free_gpu_memory_fraction (TensorRT backend: kv_cache_free_gpu_mem_fraction) or \
                 kv_cache_config.max_tokens, set kv_cache_config.dtype: fp8, reduce max_seq_len or max_batch_size, add \
                 kv_cache_config.host_cache_size, or add replicas.",
        alerts: &["TrtllmKvCacheNearlyFull"],
    },
    Rule {
        name: "requests-paused",
        severity: Severity::Warning,
        check: Check::Engine(requests_paused),
        says: "Running requests lose their KV cache to others and are computed again later.",
        when: "Requests were paused or suspended in the window, at least 1 for 100 that became active.",
        guideline: "numPausedRequests counts requests that were stopped for lack of resources; their work is lost.",
        change: "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT, a smaller max_batch_size, or a larger KV cache \
                 (see kv-cache-starved).",
        alerts: &[],
    },
    Rule {
        name: "poor-reuse",
        severity: Severity::Info,
        check: Check::Engine(poor_reuse),
        says: "Few blocks of the prompts are found in the KV cache, and computing them takes much of the time.",
        when: "Less than 70 % of the blocks looked up are found, the context phase takes at least 25 % of the time, and it \
               computes more tokens than generation does.",
        guideline: "cacheHitRate above 70 % where prompts are long.",
        change: "Route requests with the same prefix to the same engine; put what prompts share at their beginning; \
                 kv_cache_config.enable_partial_reuse, a smaller kv_cache_config.tokens_per_block, \
                 kv_cache_config.host_cache_size to keep evicted blocks.",
        alerts: &["TrtllmKvCacheReuseLow"],
    },
    Rule {
        name: "reuse-off",
        severity: Severity::Info,
        check: Check::Engine(reuse_off),
        says: "The engine never looks prompts up in the KV cache, and computing them takes much of the time.",
        when: "Blocks are allocated, none is looked up, and the context phase takes at least 25 % of the time.",
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

fn pauses(engine: &Engine) -> f64 {
    engine.page.grew("nv_trt_llm_request_pauses_total", &[])
        + engine.page.grew("nv_trt_llm_request_suspensions_total", &[])
}

fn kv_cache_starved(engine: &Engine) -> Facts {
    let batches = &engine.batches;
    let free = free(engine).filter(|_| engine.was_busy())?;
    let waits = batches.cache_is_the_limit();
    let pauses = pauses(engine);
    let starved = waits || free < 0.1 && (pauses > 0.0 || batches.paused > 0.0);
    if !starved && batches.kv_used_least.is_none_or(|least| least < 0.95) {
        return None;
    }
    Some(vec![
        share("freeNumBlocks / maxNumBlocks", free),
        count("mean requests that wait", batches.backlog),
        count("mean scheduled requests", batches.scheduled),
        count("requests paused or suspended", pauses),
    ])
}

fn requests_paused(engine: &Engine) -> Facts {
    let (pauses, started) = (pauses(engine), engine.page.grew("nv_trt_llm_requests_started_total", &[]));
    let applies = pauses >= 1.0 && pauses >= 0.01 * started;
    applies.then(|| vec![count("requests paused or suspended", pauses), count("requests that became active", started)])
}

/// The context phase takes much of the time, and the cache is warm.
fn context_matters(engine: &Engine) -> bool {
    let completed = engine.page.before.get("nv_trt_llm_requests_completed_total", &[]).unwrap_or(0.0);
    engine.was_busy() && completed >= WARM && engine.context_time() >= CONTEXT_MATTERS
}

fn poor_reuse(engine: &Engine) -> Facts {
    let page = &engine.page;
    let reused = page.grew("nv_trt_llm_kv_cache_blocks_reused_total", &[]);
    let looked_up = reused + page.grew("nv_trt_llm_kv_cache_blocks_missed_total", &[]);
    let context = page.grew("nv_trt_llm_context_tokens_total", &[]);
    let generation = page.grew("nv_trt_llm_generation_tokens_total", &[]);
    let poor = looked_up >= ENOUGH_BLOCKS && reused / looked_up < HITS;
    let applies = poor && context > generation && context_matters(engine);
    applies.then(|| {
        vec![
            share("blocks found in the KV cache", reused / looked_up),
            count("blocks looked up", looked_up),
            share("time in context phases", engine.context_time()),
        ]
    })
}

fn reuse_off(engine: &Engine) -> Facts {
    let grew = |name| engine.page.grew(name, &[]);
    let looked_up = grew("nv_trt_llm_kv_cache_blocks_reused_total") + grew("nv_trt_llm_kv_cache_blocks_missed_total");
    let allocated = grew("nv_trt_llm_kv_cache_blocks_allocated_total");
    let applies = looked_up == 0.0 && allocated >= ENOUGH_BLOCKS && context_matters(engine);
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
    let applies = latency > 0.0 && transfer > 0.1 * latency;
    applies.then(|| vec![seconds("mean transfer", transfer), seconds("mean latency of a request", latency)])
}
