//! Causes that make each iteration slow: clocks, GPUs, the host, spikes, unequal ranks.

use trtllm_analysis::numbers::share;

use crate::cause::Cause;
use crate::gpu_window::GpuSpan;
use crate::input::VerdictInput;
use crate::verdict::{Found, Unit, percent};

/// Clocks are the cause if they are limited for at least the share THROTTLED of the time, to at most the share CLOCK.
const THROTTLED: f64 = 0.5;
const CLOCK: f64 = 0.85;
/// An engine is slower if equal work takes this many times as long as before.
const SLOWER: f64 = 1.2;
/// A GPU is slow if it takes at most this share of the power that it took before at the same utilization.
const LESS_POWER: f64 = 0.75;
/// Spikes are the cause if they add at least the share SPIKES of the time, and a minute has at least ENOUGH_SPIKES.
const SPIKES: f64 = 0.08;
const ENOUGH_SPIKES: f64 = 3.0;
/// The host is the cause if no kernel runs for at least this share of the iterations' time.
const IDLE_GPU: f64 = 0.25;
/// An engine is busy if iterations run for at least this share of the time.
const BUSY: f64 = 0.7;
/// Ranks are unequal if they wait for the rank with the most work for at least this share of their time.
const RANK_WAIT: f64 = 0.35;
/// Stages of a pipeline are unequal if one GPU takes at most this share of the power of the busiest GPU.
const LESS_WORK: f64 = 0.6;

pub(super) fn clocks(input: &VerdictInput) -> Option<Found> {
    let limited = |gpu: &&GpuSpan| {
        // With the default limit, large batches of prompts take all of the power. That is usual.
        let by_power = if gpu.has_lowered_limit == Some(false) { 0.0 } else { gpu.throttled_by_power };
        let share = by_power.max(gpu.throttled_by_heat).max(gpu.throttled_by_hardware);
        share >= THROTTLED && gpu.clock_share.is_some_and(|clock| clock <= CLOCK)
    };
    let gpu = input.gpus.iter().find(limited).filter(|_| input.has_work)?;
    let clock = gpu.clock_share?;
    let (by, share, case) = if gpu.throttled_by_heat >= THROTTLED {
        ("heat", gpu.throttled_by_heat, "hot GPUs")
    } else if gpu.throttled_by_hardware >= THROTTLED {
        ("the hardware", gpu.throttled_by_hardware, "failing hardware")
    } else {
        ("the power limit", gpu.throttled_by_power, "limited power")
    };
    Some(
        Found::warning(format!("A GPU runs at {} of its clock, limited by {by}.", percent(clock)))
            .with("share of the full clock", clock, Unit::Share, CLOCK)
            .with("time with limited clocks", share, Unit::Share, THROTTLED)
            // Without the limits, it is unknown whether a higher one is possible.
            .unsure(share == gpu.throttled_by_power && gpu.has_lowered_limit.is_none())
            .remedy(Cause::Clocks.remedy_for(case), &[]),
    )
}

pub(super) fn gpu(input: &VerdictInput) -> Option<Found> {
    if input.gpus.iter().any(|gpu| !gpu.is_ok) {
        return Some(
            Found::warning("A GPU of the engine cannot be read: it hangs or is gone.")
                .remedy(Cause::Gpu.remedy_for("an unreadable GPU"), &[]),
        );
    }
    let slower = input.slowdown.map(|slowdown| slowdown.ratio).filter(|ratio| *ratio >= SLOWER)?;
    let power = input.gpus.iter().zip(&input.gpu_peak_watts).filter_map(|(gpu, peak)| Some(gpu.watts? / peak));
    let power = power.filter(|share| share.is_finite()).reduce(f64::min)?;
    // After some minutes, the window no longer contains the time in which the GPU was fast, so keep a cause once found.
    let is_known = power <= LESS_POWER || power < 1.0 && input.facts.before == Some(Cause::Gpu);
    is_known.then(|| {
        Found::warning(format!("Equal work takes {slower:.1} times as long, and the GPU takes less power for it."))
            .with("time for equal work ÷ before", slower, Unit::Ratio, SLOWER)
            .with("power ÷ before", power, Unit::Ratio, LESS_POWER)
            .remedy(Cause::Gpu.remedy_for("a slow GPU"), &[])
    })
}

pub(super) fn slowdown(input: &VerdictInput) -> Option<Found> {
    let slowdown = input.slowdown.filter(|slowdown| slowdown.ratio >= SLOWER)?;
    let slower = slowdown.ratio;
    Some(
        Found::warning(format!("Equal work takes {slower:.1} times as long as before."))
            .with("time for equal work ÷ before", slower, Unit::Ratio, SLOWER)
            .unsure(slowdown.is_estimate)
            .remedy(Cause::Slowdown.remedy(), &[]),
    )
}

pub(super) fn spikes(input: &VerdictInput) -> Option<Found> {
    let (added, number) = (input.now.sums.spike_seconds, input.now.sums.spikes);
    let added_share = share(added, input.now.sums.seconds);
    (added_share >= SPIKES && number >= ENOUGH_SPIKES && input.has_work).then(|| {
        Found::warning(format!(
            "Single iterations take much longer than their work: {number:.0} of the last minute add {} of the time.",
            percent(added_share)
        ))
        .with("time that spikes add", added_share, Unit::Share, SPIKES)
        .with("spikes in a minute", number, Unit::Count, ENOUGH_SPIKES)
        .with("mean length of a spike", share(added, number), Unit::Seconds, None)
        .remedy(Cause::Spikes.remedy(), &[])
    })
}

pub(super) fn host(input: &VerdictInput) -> Option<Found> {
    let idle = input.gpu_idle().filter(|idle| *idle >= IDLE_GPU)?;
    if !input.has_work || input.busy() < BUSY {
        return None;
    }
    let iteration = input.now.distributions.iteration.mean();
    let share = input.forward_share();
    let forward = share.zip(iteration).map(|(share, seconds)| share * seconds);
    // The part of an iteration that grows with its requests, beyond the GPU's.
    let is_of_requests = input.demand().is_some_and(|(_, generation)| generation - (1.0 - idle) > idle / 2.0);
    let (of, settings): (_, &[&str]) = match is_of_requests {
        true => ("costly requests", &[]),
        false => (input.backend(), input.by_backend(&["disable_overlap_scheduler", "cuda_graph_config"], &[])),
    };
    Some(
        input
            .found(format!("The GPU waits for the host in {} of each iteration.", percent(idle)))
            .with("share of an iteration without a kernel", idle, Unit::Share, IDLE_GPU)
            .with("mean time of an iteration", iteration, Unit::Seconds, None)
            .with("mean forward pass of the GPU", forward, Unit::Seconds, None)
            .with("utilization of the GPUs", input.utilization(), Unit::Share, None)
            .unsure(share.is_none_or(|share| 1.0 - share < IDLE_GPU))
            .remedy(Cause::Host.remedy_for(of), settings),
    )
}

pub(super) fn ranks(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let waits = share(sums.rank_wait, sums.rank_iterations);
    if waits >= RANK_WAIT {
        return Some(
            input
                .found(format!("The ranks wait {} of their time for the fullest one.", percent(waits)))
                .with("time that ranks wait", waits, Unit::Share, RANK_WAIT)
                .remedy(Cause::Ranks.remedy_for("waiting ranks"), &["attention_dp_config"]),
        );
    }
    let watts: Vec<f64> = input.gpus.iter().filter_map(|gpu| gpu.watts).collect();
    let used: Vec<f64> = input.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
    let least = |values: &[f64]| {
        let most = values.iter().copied().fold(0.0, f64::max);
        share(values.iter().copied().fold(f64::INFINITY, f64::min), most)
    };
    let is_unequal = watts.len() > 1 && least(&watts) <= LESS_WORK && input.busy() >= BUSY;
    is_unequal.then(|| {
        input
            .found("The GPUs of the engine have unequal work, and the others wait for the busiest.")
            .with("lowest ÷ highest power", least(&watts), Unit::Ratio, LESS_WORK)
            .with("lowest ÷ highest utilization", (!used.is_empty()).then(|| least(&used)), Unit::Ratio, None)
            .unsure(true)
            .remedy(Cause::Ranks.remedy_for("unequal stages"), &["pipeline_parallel_size"])
    })
}
