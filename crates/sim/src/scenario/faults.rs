//! Situations caused by faults.

use super::{ALL, CPP, PY, Situation, rate, situation};
use crate::config::{Config, Fault, Slow};
use crate::load::Length;

fn memory_grows(config: &mut Config) {
    config.faults = vec![Fault::MemoryGrowth { bytes_per_second: 5e7, limit: 3e9 }];
}

pub(super) const TABLE: &[Situation] = &[
    situation("spikes", ALL, "One iteration in three seconds takes 0.8 s longer.", |c| {
        c.faults = vec![Fault::Spike { every: 3.0, seconds: 0.8 }]
    })
    .trouble("spikes", "stop what interrupts the process"),
    situation("spikes-rare", PY, "One iteration in ten seconds takes 2.5 s longer.", |c| {
        c.faults = vec![Fault::Spike { every: 10.0, seconds: 2.5 }]
    })
    .trouble("spikes", "stop what interrupts the process"),
    situation("tuner", &[CPP], "The batch limit goes between 4 and 64.", |c| {
        c.faults = vec![Fault::Tuner { low: 4, period: 20.0 }];
        rate(c, 12.0);
    })
    .trouble("tuner", "turn the batch size tuner off"),
    situation("clocks-power", ALL, "The power limit lowers the clock to 40 %.", |c| {
        c.faults = vec![Fault::Slow { at: 0.0, factor: 2.5, why: Slow::PowerCap }]
    })
    .trouble("clocks", "raise the power limit"),
    situation("clocks-thermal", ALL, "The GPU is too hot: the clock falls to a third.", |c| {
        c.faults = vec![Fault::Slow { at: 0.0, factor: 3.0, why: Slow::Thermal }]
    })
    .trouble("clocks", "repair the cooling"),
    situation("gpu-slow", ALL, "The GPU does the same work in 2.5 times the time, and names no reason.", |c| {
        c.faults = vec![Fault::Slow { at: 20.0, factor: 2.5, why: Slow::Silent }]
    })
    .trouble("gpu", "replace the GPU"),
    situation("slowdown", ALL, "After a deploy, equal work takes 1.8 times the time.", |c| {
        c.faults = vec![Fault::Slow { at: 20.0, factor: 1.8, why: Slow::Regression }]
    })
    .trouble("slowdown", "roll the deploy back"),
    situation("memory", &[CPP], "Host memory grows until allocations fail.", memory_grows)
        .trouble("memory", "fix the leak"),
    situation("errors", ALL, "One request in five fails.", |c| c.faults = vec![Fault::Errors { share: 0.2 }])
        .trouble("errors", "fix what the log says"),
    situation("errors-timeouts", ALL, "A server time-out of 1 s ends most answers.", |c| c.load.timeout = Some(1.0))
        .trouble("errors", "raise the time-out"),
    situation("errors-too-long", PY, "One prompt in ten is longer than the limit.", |c| {
        c.limits.chunked_context = false;
        c.limits.max_num_tokens = 2048;
        c.load.prompt = Length::Mixed { short: 300, long: 3000, share: 0.1 };
    })
    .trouble("errors", "turn chunked context on"),
    // Records of PyTorch do not tell host memory, only that requests fail.
    situation("memory", PY, "Host memory grows until allocations fail.", memory_grows)
        .trouble("errors", "fix the leak"),
    situation("statistics-lost", ALL, "Two records in five are lost.", |c| {
        c.faults = vec![Fault::LoseRecords { share: 0.4 }]
    })
    .trouble("statistics", "read the records in time"),
    situation("statistics-second-reader", ALL, "Somebody else drains half of the polls.", |c| {
        c.faults = vec![Fault::SecondReader { share: 0.5 }]
    })
    .trouble("statistics", "stop the second reader"),
    situation("statistics-off", PY, "The engine writes no records.", |c| c.statistics.enabled = false)
        .trouble("statistics", "set enable_iter_perf_stats"),
    situation("wedge", ALL, "Requests are active, and none is scheduled.", |c| {
        c.faults = vec![Fault::Wedge { at: 60.0 }]
    })
    .trouble("unavailable", "restart the engine"),
    situation("hang", ALL, "The engine hangs in an iteration.", |c| {
        c.faults = vec![Fault::Hang { at: 60.0, seconds: 3600.0 }]
    })
    .trouble("unavailable", "restart the engine"),
    situation("restarts", ALL, "The engine ends and loads for 80 s.", |c| {
        c.faults = vec![Fault::Restart { at: 60.0, seconds: 80.0 }]
    })
    .trouble("unavailable", "fix what ends the engine"),
    situation("loading", PY, "The model loads for ten minutes.", |c| {
        c.startup = vec![
            ("model_loader", "total_model_loading_seconds", 500.0),
            ("final_model_engine", "total_warmup_seconds", 100.0),
        ];
    })
    .trouble("unavailable", "load from a local disk"),
];
