//! Causes outside the engine's iterations: the HTTP server, the transfer of KV caches, adapters.

use trtllm_analysis::numbers::share;

use crate::cause::Cause;
use crate::input::VerdictInput;
use crate::verdict::{Found, Severity, Unit, percent, time};

/// The HTTP server is the cause if it takes at least NOTICED seconds, and the share MOST of the time to the first token.
const MOST: f64 = 0.5;
const NOTICED: f64 = 0.2;
/// All seats are taken in at most this share of the iterations if seats are usually free.
const FEW: f64 = 0.05;
/// The same limits for the transfer of KV caches.
const TRANSFER: f64 = 0.3;
const TRANSFER_SECONDS: f64 = 0.1;
/// Requests wait for the link if transfers run for at least this share of the time.
const BUSY_LINK: f64 = 0.5;
/// The limits of a transfer, for the queue of a generation server.
const QUEUE: f64 = TRANSFER;
const QUEUE_SECONDS: f64 = TRANSFER_SECONDS;
/// Adapters are the cause if, in at least the share NO_LIMIT of the iterations with waiting requests, no limit is reached, and
/// the GPU is idle for at least the share LOADING of the time.
const NO_LIMIT: f64 = 0.5;
const LOADING: f64 = 0.15;

pub(super) fn frontend(input: &VerdictInput) -> Option<Found> {
    if input.facts.notices.first_token_is_early {
        return None;
    }
    let times = &input.now.distributions;
    let ttft = times.ttft.mean()?;
    // Without the times of transfers, the time before the queue may be a transfer.
    let before = before_queue(input).filter(|_| !lacks_transfers(input)).unwrap_or(0.0);
    let server = times.server_ttft.mean().unwrap_or(ttft).max(ttft);
    let engine = (ttft - before).max(0.0);
    let added = server - engine;
    (added >= NOTICED && added >= MOST * server).then(|| {
        input
            .found(format!(
                "The HTTP server adds {} to the {} that the engine takes to the first token.",
                time(added),
                time(engine)
            ))
            .with("time in the HTTP server", added, Unit::Seconds, NOTICED)
            .with("its share of the time to the first token", added / server, Unit::Share, MOST)
            .remedy(Cause::Frontend.remedy(), &["num_postprocess_workers"])
    })
}

/// Mean seconds for which a request has a seat but is in no batch.
fn held_time(input: &VerdictInput) -> Option<f64> {
    let counts = &input.now.counts;
    let rate = input.now.rate(counts.started.max(counts.completed));
    (rate > 0.0).then(|| input.of_iterations(input.now.sums.held) / rate)
}

/// Seconds from the arrival of a request until the engine has it. Releases up to 1.2 stamp the arrival before they tokenise the prompt, so the
/// queue time contains that. While seats are free, a request waits in the engine itself for two passes at most, and then for its batch.
fn before_queue(input: &VerdictInput) -> Option<f64> {
    let (now, sums) = (&input.now, &input.now.sums);
    if sums.seats_known <= 0.0 || sums.seats_taken > FEW * sums.seats_known {
        return None;
    }
    let held = held_time(input)?;
    let passes = 2.0 * input.of_iterations(sums.seconds);
    Some((now.distributions.queue.mean()? - held - passes).max(0.0))
}

pub(super) fn transfer(input: &VerdictInput) -> Option<Found> {
    let times = &input.now.distributions;
    let each = times.transfer.mean()?;
    let first = times.ttft.mean()?;
    let waited = each + link_wait(input, each).unwrap_or(0.0);
    let share = share(waited, first);
    (waited >= TRANSFER_SECONDS && share >= TRANSFER).then(|| {
        input
            .found(format!("Requests wait {} for their KV cache, of {} to the first token.", time(waited), time(first)))
            .with("time for the KV cache", waited, Unit::Seconds, TRANSFER_SECONDS)
            .with("its share of the time to the first token", share, Unit::Share, TRANSFER)
            .with("mean transfer", each, Unit::Seconds, None)
            .remedy(Cause::Transfer.remedy(), &["cache_transceiver_config"])
    })
}

/// Seconds for which a request of a generation server waits until its transfer begins. Upstream stamps the begin when a worker of the
/// transceiver takes the request. Until its transfer is over, the request has a seat but is in no batch.
fn link_wait(input: &VerdictInput, each: f64) -> Option<f64> {
    let (now, sums) = (&input.now, &input.now.sums);
    let busy = now.rate(now.distributions.transfer.sum);
    if !now.is_of_a_generation_server() || busy < BUSY_LINK || input.of_waits(sums.waits_at_a_limit()) >= MOST {
        return None;
    }
    let held = held_time(input)?;
    // The loop looks at transfers once in an iteration, and a request is in the batch after that.
    let [iteration, _] = sums.mean_seconds();
    Some((held - each - 2.0 * iteration).max(0.0))
}

/// A generation server whose requests wait before their first batch, while no valid times of transfers are known.
pub(crate) fn before_batch(input: &VerdictInput) -> Option<Found> {
    let times = &input.now.distributions;
    let (queue, first) = (times.queue.mean()?, times.ttft.mean()?);
    let share = share(queue, first);
    (lacks_transfers(input) && queue >= QUEUE_SECONDS && share >= QUEUE).then(|| {
        Found::new(
            Severity::Info,
            format!(
                "Requests wait {} of {} to the first token before their first batch, for their KV cache or in the queue: the times of \
                 transfers are missing or invalid.",
                time(queue),
                time(first)
            ),
        )
        .with("time before the first batch", queue, Unit::Seconds, QUEUE_SECONDS)
        .with("its share of the time to the first token", share, Unit::Share, QUEUE)
        .unsure(true)
        .remedy(Cause::None.remedy_for("unknown transfers"), &[])
    })
}

fn lacks_transfers(input: &VerdictInput) -> bool {
    input.now.is_of_a_generation_server() && input.now.distributions.transfer.count <= 0.0
}

/// The queue of generation servers of which only requests are known. If their records are known, these show the cause.
pub(super) fn generation_queue(input: &VerdictInput) -> Option<Found> {
    let times = &input.now.distributions;
    let queue = times.generation_queue.mean().filter(|_| input.kept.sums.iterations <= 0.0)?;
    let first = times.ttft.mean()?;
    let share = share(queue, first);
    (queue >= QUEUE_SECONDS && share >= QUEUE).then(|| {
        input
            .found(format!(
                "Requests wait {} in the queue of a generation server, of {} to the first token.",
                time(queue),
                time(first)
            ))
            .with("time in the queue of the generation server", queue, Unit::Seconds, QUEUE_SECONDS)
            .with("its share of the time to the first token", share, Unit::Share, QUEUE)
            .with("mean transfer", times.transfer.mean(), Unit::Seconds, None)
            .remedy(Cause::GenerationQueue.remedy(), &[])
    })
}

pub(super) fn adapters(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    if !input.has_work || !input.waits() || sums.waits <= 0.0 {
        return None;
    }
    let at_limit = input.of_waits(sums.waits_at_a_limit());
    let idle = input.gpu_idle().filter(|idle| *idle >= LOADING)?;
    // Loading an adapter makes only those iterations long in which requests begin.
    let [generation, mixed] = sums.mean_seconds();
    let is_at_begin = generation > 0.0 && mixed >= 4.0 * generation;
    (1.0 - at_limit >= NO_LIMIT && is_at_begin).then(|| {
        input
            .found(format!(
                "Requests wait at no limit of the engine, and the GPU is idle in {} of the time when requests begin.",
                percent(idle)
            ))
            .with("waits at no limit", 1.0 - at_limit, Unit::Share, NO_LIMIT)
            .with("time without a kernel", idle, Unit::Share, LOADING)
            .with("iteration that begins a request", mixed, Unit::Seconds, None)
            .with("iteration of decoding only", generation, Unit::Seconds, None)
            .unsure(true)
            .remedy(Cause::Adapters.remedy(), &["lora_config"])
    })
}
