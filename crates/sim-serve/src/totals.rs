//! Counts what the engine has reported, and how much of that readers have received. The counts come from the
//! simulation's truth, not from the text of the records.

use serde_json::{Value, json};
use trtllm_sim::config::Release;
use trtllm_sim::record::{CacheCounts, Entry, Record, StepTimes};
use trtllm_sim::truth::Truth;

/// Sums over iterations.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    iterations: u64,
    started: u64,
    completed: u64,
    context_tokens: u64,
    queue_seconds: f64,
}

impl Counts {
    fn of(truth: &Truth) -> Self {
        let &Truth { iterations, started, completed, context_tokens, queue_seconds, .. } = truth;
        Self { iterations, started, completed, context_tokens, queue_seconds }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            iterations: self.iterations - before.iterations,
            started: self.started - before.started,
            completed: self.completed - before.completed,
            context_tokens: self.context_tokens - before.context_tokens,
            queue_seconds: self.queue_seconds - before.queue_seconds,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    is_cpp: bool,
    /// Sums over the iterations that the records so far report.
    recorded: Counts,
    records: u64,
    flushes: u64,
    /// Records of the C++ Executor whose latency does not include waiting for work.
    latencies: u64,
    latency_seconds: f64,
    /// Started requests whose time in the queue is known from the records. With PyTorch, it is known if the sum in the record grows.
    waits: u64,
    /// How many of the next records have a latency that includes waiting for work.
    after_idle: u32,
    /// Records that were dropped because the ring of waiting records was full, and their iterations.
    pub(crate) lost_records: u64,
    lost_iterations: u64,
    entries: u64,
    steps: StepSums,
    pub(crate) entries_lost: u64,
    pub(crate) entries_served: u64,
    /// Number of answers with records that are being sent.
    pub(crate) open_answers: usize,
    /// Sums over the records that readers received whole.
    received: Counts,
    /// Iterations of the other records in incomplete answers.
    cut_iterations: u64,
    /// Cumulative counts of the cache in the first record that a reader received.
    first_cache: Option<CacheCounts>,
    /// The last record.
    pub(crate) last: Record,
}

/// Sums over the steps of finished requests.
#[derive(Debug, Default)]
struct StepSums {
    /// Seconds from the end of one step to the end of the next.
    gaps: Vec<f64>,
    /// For each phase: the number of requests with steps, and the seconds of their forward passes and of sampling on
    /// the GPU.
    context: (u64, f64, f64),
    generation: (u64, f64, f64),
}

impl StepSums {
    fn add(&mut self, times: &StepTimes) {
        let ended = times.context.last().into_iter().chain(&times.generation).map(|step| step.end);
        self.gaps.extend(ended.clone().skip(1).zip(ended).map(|(after, before)| after - before));
        for (sums, steps) in [(&mut self.context, &times.context), (&mut self.generation, &times.generation)] {
            sums.0 += u64::from(!steps.is_empty());
            sums.1 += steps.iter().map(|step| step.gpu_forward).sum::<f64>();
            sums.2 += steps.iter().map(|step| step.gpu_sample).sum::<f64>();
        }
    }

    fn json(&self) -> Value {
        let within = |bound: f64| self.gaps.iter().filter(|gap| **gap <= bound).count();
        let phase = |(requests, forward, sample): (u64, f64, f64)| json!({"requests": requests, "gpu_forward": forward, "gpu_sample": sample});
        json!({
            "gaps": self.gaps.len(), "gap_seconds": self.gaps.iter().sum::<f64>(),
            "gaps_within": {"0.01": within(0.01), "0.025": within(0.025), "0.05": within(0.05)},
            "context": phase(self.context), "generation": phase(self.generation),
        })
    }
}

/// A record that waits for a reader.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) text: String,
    counts: Counts,
    iter: u64,
    cache: CacheCounts,
}

impl Totals {
    pub(crate) fn new(release: Release) -> Self {
        let is_cpp = release.is_cpp();
        Self { is_cpp, after_idle: 2, ..Self::default() }
    }

    /// Counts a record of the last step. If a step has two, the first is a flush record: the C++ Executor writes it
    /// when it becomes idle, and reports the completed requests in it.
    pub(crate) fn record(&mut self, record: Record, text: String, truth: &Truth, is_last: bool) -> Waiting {
        let before = self.recorded;
        self.recorded = if is_last { Counts::of(truth) } else { Counts { completed: truth.completed, ..before } };
        let counts = self.recorded.since(&before);
        self.records += 1;
        self.waits += if self.is_cpp || counts.queue_seconds > 0.0 { counts.started } else { 0 };
        if record.work.scheduled == 0 && record.active == 0 {
            self.flushes += 1;
            self.after_idle = 2;
        } else if self.after_idle > 0 {
            self.after_idle -= 1;
        } else {
            self.latencies += 1;
            self.latency_seconds += record.latency;
        }
        let waiting = Waiting { text, counts, iter: record.iter, cache: record.cache.total };
        self.last = record;
        waiting
    }

    /// Counts a request that has ended.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.entries += 1;
        if let Some(times) = &entry.steps {
            self.steps.add(times);
        }
    }

    /// Counts a record that a full ring dropped.
    pub(crate) fn lost(&mut self, record: &Waiting) {
        self.lost_records += 1;
        self.lost_iterations += record.counts.iterations;
    }

    /// An answer has been sent. The reader received all records, or the first `whole` ones of an incomplete answer.
    pub(crate) fn answered(&mut self, records: &[Waiting], whole: Option<usize>) {
        self.open_answers -= 1;
        let (received, rest) = records.split_at(whole.unwrap_or(records.len()).min(records.len()));
        for record in received {
            // Readers count increases from their first record on. If that is the engine's first record, they count from 0.
            self.first_cache.get_or_insert(if record.iter <= 1 { CacheCounts::default() } else { record.cache });
            self.received.iterations += record.counts.iterations;
            self.received.completed += record.counts.completed;
            self.received.context_tokens += record.counts.context_tokens;
        }
        self.cut_iterations += rest.iter().map(|record| record.counts.iterations).sum::<u64>();
    }

    pub(crate) fn json(&self, truth: &Truth) -> Value {
        let blocks = |counts: &CacheCounts| {
            json!({
                "allocated": counts.alloc_total, "newly_allocated": counts.alloc_new,
                "reused": counts.reused(), "missed": counts.missed,
            })
        };
        json!({
            "iterations": truth.iterations, "started_requests": truth.started, "completed_requests": truth.completed,
            "context_tokens": truth.context_tokens,
            "generation_tokens": truth.decoded_tokens + truth.discarded_tokens,
            "queue_time_ms": truth.queue_seconds * 1e3,
            "records": self.records, "flush_records": self.flushes,
            "latencies": self.latencies, "waits": self.waits, "latency_ms": self.latency_seconds * 1e3,
            "lost": self.lost_records, "lost_iterations": self.lost_iterations,
            "received": {
                "iterations": self.received.iterations, "completed_requests": self.received.completed,
                "context_tokens": self.received.context_tokens,
            },
            "cut_iterations": self.cut_iterations,
            "perf_metrics": self.entries, "perf_metrics_lost": self.entries_lost,
            "perf_metrics_served": self.entries_served, "steps": self.steps.json(),
            "active_requests": self.last.active - if self.is_cpp { 0 } else { self.last.completed }, "queued_requests": self.last.queued,
            "kv_cache_blocks": blocks(&self.last.cache.total),
            "kv_cache_blocks_first": self.first_cache.as_ref().map(blocks),
        })
    }
}
