//! Situations caused by faults.

use super::{ALL, CPP, PY, Situation, rate};
use crate::config::{Config, Fault, Slow};
use crate::load::Length;

fn memory_grows(config: &mut Config) {
    config.faults = vec![Fault::MemoryGrowth { bytes_per_second: 5e7, limit: 3e9 }];
}

pub(super) const TABLE: &[Situation] = &[
    Situation {
        name: "spikes",
        cause: "spikes",
        says: "One iteration in three seconds takes 0.8 s longer.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Spike { every: 3.0, seconds: 0.8 }],
        cure: "stop what interrupts the process",
    },
    Situation {
        name: "spikes-rare",
        cause: "spikes",
        says: "One iteration in ten seconds takes 2.5 s longer.",
        on: PY,
        change: |c| c.faults = vec![Fault::Spike { every: 10.0, seconds: 2.5 }],
        cure: "stop what interrupts the process",
    },
    Situation {
        name: "tuner",
        cause: "tuner",
        says: "The batch limit goes between 4 and 64.",
        on: &[CPP],
        change: |c| {
            c.faults = vec![Fault::Tuner { low: 4, period: 20.0 }];
            rate(c, 12.0);
        },
        cure: "turn the batch size tuner off",
    },
    Situation {
        name: "clocks-power",
        cause: "clocks",
        says: "The power limit lowers the clock to 40 %.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Slow { at: 0.0, factor: 2.5, why: Slow::PowerCap }],
        cure: "raise the power limit",
    },
    Situation {
        name: "clocks-thermal",
        cause: "clocks",
        says: "The GPU is too hot: the clock falls to a third.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Slow { at: 0.0, factor: 3.0, why: Slow::Thermal }],
        cure: "repair the cooling",
    },
    Situation {
        name: "gpu-slow",
        cause: "gpu",
        says: "The GPU does the same work in 2.5 times the time, and names no reason.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Slow { at: 20.0, factor: 2.5, why: Slow::Silent }],
        cure: "replace the GPU",
    },
    Situation {
        name: "slowdown",
        cause: "slowdown",
        says: "After a deploy, equal work takes 1.8 times the time.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Slow { at: 20.0, factor: 1.8, why: Slow::Regression }],
        cure: "roll the deploy back",
    },
    Situation {
        name: "memory",
        cause: "memory",
        says: "Host memory grows until allocations fail.",
        on: &[CPP],
        change: memory_grows,
        cure: "fix the leak",
    },
    Situation {
        name: "errors",
        cause: "errors",
        says: "One request in five fails.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Errors { share: 0.2 }],
        cure: "fix what the log says",
    },
    Situation {
        name: "errors-timeouts",
        cause: "errors",
        says: "A server time-out of 1 s ends most answers.",
        on: ALL,
        change: |c| c.load.timeout = Some(1.0),
        cure: "raise the time-out",
    },
    Situation {
        name: "errors-too-long",
        cause: "errors",
        says: "One prompt in ten is longer than the limit.",
        on: PY,
        change: |c| {
            c.limits.chunked_context = false;
            c.limits.max_num_tokens = 2048;
            c.load.prompt = Length::Mixed { short: 300, long: 3000, share: 0.1 };
        },
        cure: "turn chunked context on",
    },
    Situation {
        name: "memory",
        // Records of PyTorch do not tell host memory, only that requests fail.
        cause: "errors",
        says: "Host memory grows until allocations fail.",
        on: PY,
        change: memory_grows,
        cure: "fix the leak",
    },
    Situation {
        name: "statistics-lost",
        cause: "statistics",
        says: "Two records in five are lost.",
        on: ALL,
        change: |c| c.faults = vec![Fault::LoseRecords { share: 0.4 }],
        cure: "read the records in time",
    },
    Situation {
        name: "statistics-second-reader",
        cause: "statistics",
        says: "Somebody else drains half of the polls.",
        on: ALL,
        change: |c| c.faults = vec![Fault::SecondReader { share: 0.5 }],
        cure: "stop the second reader",
    },
    Situation {
        name: "statistics-off",
        cause: "statistics",
        says: "The engine writes no records.",
        on: PY,
        change: |c| c.statistics.enabled = false,
        cure: "set enable_iter_perf_stats",
    },
    Situation {
        name: "wedge",
        cause: "unavailable",
        says: "Requests are active, and none is scheduled.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Wedge { at: 60.0 }],
        cure: "restart the engine",
    },
    Situation {
        name: "hang",
        cause: "unavailable",
        says: "The engine hangs in an iteration.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Hang { at: 60.0, seconds: 3600.0 }],
        cure: "restart the engine",
    },
    Situation {
        name: "restarts",
        cause: "unavailable",
        says: "The engine ends and loads for 80 s.",
        on: ALL,
        change: |c| c.faults = vec![Fault::Restart { at: 60.0, seconds: 80.0 }],
        cure: "fix what ends the engine",
    },
    Situation {
        name: "loading",
        cause: "unavailable",
        says: "The model loads for ten minutes.",
        on: PY,
        change: |c| {
            c.startup = vec![
                ("model_loader", "total_model_loading_seconds", 500.0),
                ("final_model_engine", "total_warmup_seconds", 100.0),
            ];
        },
        cure: "load from a local disk",
    },
];
