//! Causes that make each iteration slow: clocks, GPUs, the host, spikes, unequal ranks.

use trtllm_analysis::numbers::share;

use crate::cause::Cause;
use crate::gpu_window::GpuSpan;
use crate::input::VerdictInput;
use crate::verdict::{Found, Severity, Unit, percent};

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
    let (by, share, remedy) = if gpu.throttled_by_heat >= THROTTLED {
        ("heat", gpu.throttled_by_heat, "Repair or improve the cooling of the node: fans, air flow, room temperature.")
    } else if gpu.throttled_by_hardware >= THROTTLED {
        (
            "the hardware",
            gpu.throttled_by_hardware,
            "Look at the power supply and the node's hardware log: a power brake or a fault limits the GPU.",
        )
    } else {
        (
            "the power limit",
            gpu.throttled_by_power,
            "Raise the power limit (nvidia-smi -pl) if the node's power and cooling allow it; look for other GPUs that share it.",
        )
    };
    Some(
        Found::new(format!("A GPU runs at {} of its clock, limited by {by}.", percent(clock)))
            .with("share of the full clock", clock, Unit::Share, CLOCK)
            .with("time with limited clocks", share, Unit::Share, THROTTLED)
            // Without the limits, it is unknown whether a higher one is possible.
            .unsure(share == gpu.throttled_by_power && gpu.has_lowered_limit.is_none())
            .severity(Severity::Warning)
            .remedy(remedy, &[]),
    )
}

pub(super) fn gpu(input: &VerdictInput) -> Option<Found> {
    if input.gpus.iter().any(|gpu| !gpu.is_ok) {
        return Some(
            Found::new("A GPU of the engine cannot be read: it hangs or is gone.")
                .severity(Severity::Warning)
                .remedy("Look at the kernel log for Xid errors, drain the node, and reset or replace the GPU.", &[]),
        );
    }
    let slower = input.slowdown.map(|slowdown| slowdown.ratio).filter(|ratio| *ratio >= SLOWER)?;
    let power = input.gpus.iter().zip(&input.gpu_peak_watts).filter_map(|(gpu, peak)| Some(gpu.watts? / peak));
    let power = power.filter(|share| share.is_finite()).reduce(f64::min)?;
    // After some minutes, the window no longer contains the time in which the GPU was fast, so keep a cause once found.
    let is_known = power <= LESS_POWER || power < 1.0 && input.facts.before == Some(Cause::Gpu);
    is_known.then(|| {
        Found::new(format!("Equal work takes {slower:.1} times as long, and the GPU takes less power for it."))
            .with("time for equal work ÷ before", slower, Unit::Ratio, SLOWER)
            .with("power ÷ before", power, Unit::Ratio, LESS_POWER)
            .severity(Severity::Warning)
            .remedy(
                "Look at the node: the PCIe and NVLink generation and width, the memory clock, Xid errors, other processes on the GPU. \
                 Drain it, run a diagnosis (dcgmi diag), and replace the GPU if it stays slow.",
                &[],
            )
    })
}

pub(super) fn slowdown(input: &VerdictInput) -> Option<Found> {
    let slowdown = input.slowdown.filter(|slowdown| slowdown.ratio >= SLOWER)?;
    let slower = slowdown.ratio;
    Some(
        Found::new(format!("Equal work takes {slower:.1} times as long as before."))
            .with("time for equal work ÷ before", slower, Unit::Ratio, SLOWER)
            .severity(Severity::Warning)
            .unsure(slowdown.is_estimate)
            .remedy(
                "Look for what has changed: a deploy of the engine, of its driver or libraries, or another load on the node. Roll it back.",
                &[],
            ),
    )
}

pub(super) fn spikes(input: &VerdictInput) -> Option<Found> {
    let (added, number) = (input.now.sums.spike_seconds, input.now.sums.spikes);
    let added_share = share(added, input.now.sums.seconds);
    (added_share >= SPIKES && number >= ENOUGH_SPIKES && input.has_work).then(|| {
        Found::new(format!(
            "Single iterations take much longer than their work: {number:.0} of the last minute add {} of the time.",
            percent(added_share)
        ))
            .with("time that spikes add", added_share, Unit::Share, SPIKES)
            .with("spikes in a minute", number, Unit::Count, ENOUGH_SPIKES)
            .with("mean length of a spike", share(added, number), Unit::Seconds, None)
            .severity(Severity::Warning)
            .remedy(
                "Find what interrupts the process: CPU limits of its container (throttling), garbage collection in Python, swapping, other \
                 processes on its cores, or a profiler.",
                &[],
            )
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
    let (remedy, settings) = match is_of_requests {
        true => (
            "Turn off what costs the host time for each request, such as logits processors and detailed statistics, and give the process \
             more CPU.",
            &[][..],
        ),
        false => input.by_backend::<(_, &[&str])>(
            (
                "Give the process more CPU; keep the overlap scheduler on (disable_overlap_scheduler: false) and CUDA graphs \
                 (cuda_graph_config).",
                &["disable_overlap_scheduler", "cuda_graph_config"],
            ),
            ("Give the process more CPU.", &[]),
        ),
    };
    Some(
        Found::new(format!("The GPU waits for the host in {} of each iteration.", percent(idle)))
            .with("share of an iteration without a kernel", idle, Unit::Share, IDLE_GPU)
            .with("mean time of an iteration", iteration, Unit::Seconds, None)
            .with("mean forward pass of the GPU", forward, Unit::Seconds, None)
            .with("utilization of the GPUs", input.utilization(), Unit::Share, None)
            .severity(input.severity())
            .unsure(share.is_none_or(|share| 1.0 - share < IDLE_GPU))
            .remedy(remedy, settings),
    )
}

pub(super) fn ranks(input: &VerdictInput) -> Option<Found> {
    let sums = &input.now.sums;
    let waits = share(sums.rank_wait, sums.rank_iterations);
    if waits >= RANK_WAIT {
        return Some(
            Found::new(format!("The ranks wait {} of their time for the fullest one.", percent(waits)))
                .with("time that ranks wait", waits, Unit::Share, RANK_WAIT)
                .severity(input.severity())
                .remedy(
                    "Set attention_dp_config.enable_balance: true, with batching_wait_iters and timeout_iters of the same section, and do \
                     not pin requests to ranks.",
                    &["attention_dp_config"],
                ),
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
        Found::new("The GPUs of the engine have unequal work, and the others wait for the busiest.")
            .with("lowest ÷ highest power", least(&watts), Unit::Ratio, LESS_WORK)
            .with("lowest ÷ highest utilization", (!used.is_empty()).then(|| least(&used)), Unit::Ratio, None)
            .severity(input.severity())
            .unsure(true)
            .remedy(
                "Divide the layers evenly over the pipeline's stages, or use tensor parallelism instead.",
                &["pipeline_parallel_size"],
            )
    })
}
