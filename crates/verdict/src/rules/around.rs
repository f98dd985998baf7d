//! Causes outside the engine's iterations: the HTTP server, the transfer of KV caches, adapters.

use crate::reading::Reading;
use crate::verdict::{Found, Unit, percent, time};

/// The HTTP server is the cause if it takes at least NOTICED seconds, and the share MOST of the time to the first token.
const MOST: f64 = 0.5;
const NOTICED: f64 = 0.2;
/// The same limits for the transfer of KV caches.
const TRANSFER: f64 = 0.3;
const TRANSFER_SECONDS: f64 = 0.1;
/// Adapters are the cause if, in at least the share NO_LIMIT of the iterations with waiting requests, no limit is reached, and
/// the GPU is idle for at least the share LOADING of the time.
const NO_LIMIT: f64 = 0.5;
const LOADING: f64 = 0.15;

pub(super) fn frontend(reading: &Reading) -> Option<Found> {
    let times = &reading.now.distributions;
    let (server, engine) = (times.server_ttft.mean()?, times.ttft.mean()?);
    let added = server - engine;
    (added >= NOTICED && added >= MOST * server).then(|| {
        Found::new(format!("The HTTP server adds {} to the {} that the engine takes to the first token.", time(added), time(engine)))
            .with("time in the HTTP server", added, Unit::Seconds, NOTICED)
            .with("its share of the time to the first token", added / server, Unit::Share, MOST)
            .severity(reading.severity())
            .remedy(
                "Run more HTTP processes (trtllm-serve --num_serve_frontends, or more servers before the engine), give them CPU, and have \
                 clients send tokens instead of long texts.",
                &["num_serve_frontends"],
            )
    })
}

pub(super) fn transfer(reading: &Reading) -> Option<Found> {
    let times = &reading.now.distributions;
    let each = times.transfer.mean()?;
    let first = times.ttft.mean()?;
    // A generation server computes no prompts, so all of the time before the first token is for the transfer.
    let is_generation_server = reading.now.sums.context_tokens <= 0.0;
    let waited = if is_generation_server { times.prefill.mean().unwrap_or(each).max(each) } else { each };
    let share = Reading::share(waited, first);
    (waited >= TRANSFER_SECONDS && share >= TRANSFER).then(|| {
        Found::new(format!("Requests wait {} for their KV cache, of {} to the first token.", time(waited), time(first)))
            .with("time for the KV cache", waited, Unit::Seconds, TRANSFER_SECONDS)
            .with("its share of the time to the first token", share, Unit::Share, TRANSFER)
            .with("mean transfer", each, Unit::Seconds, None)
            .severity(reading.severity())
            .remedy(
                "Use a fast path: cache_transceiver_config.backend UCX or NIXL over NVLink or InfiniBand instead of TCP; keep connections \
                 open; raise cache_transceiver_config.max_tokens_in_buffer.",
                &["cache_transceiver_config"],
            )
    })
}

pub(super) fn adapters(reading: &Reading) -> Option<Found> {
    let sums = &reading.now.sums;
    if !reading.has_work || !reading.waits() || sums.waits <= 0.0 {
        return None;
    }
    let at_limit =
        reading.of_waits(sums.waits_at_batch_limit.max(sums.waits_at_token_limit).max(sums.waits_at_full_cache));
    let idle = reading.gpu_idle().filter(|idle| *idle >= LOADING)?;
    // Loading an adapter makes only those iterations long in which requests begin.
    let mixed = Reading::share(sums.mixed_seconds, sums.mixed_timed);
    let generation = Reading::share(sums.generation_seconds, sums.generation_iterations);
    let is_at_begin = generation > 0.0 && mixed >= 4.0 * generation;
    (1.0 - at_limit >= NO_LIMIT && is_at_begin).then(|| {
        Found::new(format!("Requests wait at no limit of the engine, and the GPU is idle in {} of the time when requests begin.", percent(idle)))
            .with("waits at no limit", 1.0 - at_limit, Unit::Share, NO_LIMIT)
            .with("time without a kernel", idle, Unit::Share, LOADING)
            .with("iteration that begins a request", mixed, Unit::Seconds, None)
            .with("iteration of decoding only", generation, Unit::Seconds, None)
            .severity(reading.severity())
            .unsure(true)
            .remedy(
                "Give adapters more memory (lora_config.max_loras, or lora_cache_gpu_memory_fraction and lora_cache_host_memory_bytes with \
                 Triton), or send requests of one adapter to the same engine.",
                &["lora_config"],
            )
    })
}
