//! What the engine has reported, counted from the simulation's truth and not from the records' text, and what became of it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use trtllm_sim::Engine;
use trtllm_sim::cache::CacheCounts;
use trtllm_sim::config::Release;
use trtllm_sim::record::{CacheEvent, Entry, Record, StepTimes};

use crate::counts::Counts;
use crate::options::is_since_1_3;

#[derive(Debug, Default)]
pub(crate) struct Told {
    is_cpp: bool,
    has_host_step: bool,
    /// Of all records.
    counts: Counts,
    /// Of all iterations that have begun.
    pub(crate) begun: Counts,
    /// Of iterations whose record has not come yet.
    pending: Counts,
    records: u64,
    flushes: u64,
    /// Records whose latency does not contain the wait for work.
    latencies: u64,
    latency_seconds: f64,
    /// Started requests whose wait the records tell. PyTorch's sum must grow for it.
    waits: u64,
    /// So many of the next records have no such latency.
    after_idle: u32,
    /// Dropped from the full ring.
    lost: u64,
    lost_counts: Counts,
    entries: u64,
    steps: StepSums,
    pub(crate) entries_lost: u64,
    pub(crate) entries_served: u64,
    /// Answers that are being sent.
    pub(crate) open_answers: usize,
    /// Records of complete answers, complete records of incomplete answers, and their other records.
    handed_out: (u64, Counts),
    salvageable: (u64, Counts),
    cut: (u64, Counts),
    /// Cumulative counts of the cache in the first record that a reader got, and in the last one.
    first_cache: Option<CacheCounts>,
    last: Record,
    events: u64,
    stored: u64,
    removed: [u64; 2],
    moved_to: [u64; 2],
    levels: HashMap<u64, usize>,
}

/// Of the steps of finished requests.
#[derive(Debug, Default)]
struct StepSums {
    /// Seconds between two tokens, or two steps.
    gaps: Vec<f64>,
    /// Requests with steps of the phase, and seconds of their batches on the GPU: forward and sampling.
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

impl Told {
    pub(crate) fn new(release: Release) -> Self {
        let is_cpp = release.is_cpp();
        Self { is_cpp, has_host_step: is_since_1_3(release), after_idle: if is_cpp { 2 } else { 1 }, ..Self::default() }
    }

    /// The engine has made a step.
    pub(crate) fn step(&mut self, engine: &Engine) {
        let (now, before) = (Counts::of(engine.truth()), self.begun);
        self.begun = now;
        let reported = if self.is_cpp || !engine.is_iterating() {
            now
        } else if now.iterations > before.iterations {
            // PyTorch writes a record when its iteration has ended.
            Counts { completed: now.completed, ..before }
        } else {
            return;
        };
        self.pending += reported - self.counts;
        self.counts = reported;
    }

    /// A record of the last step. A step has two if the C++ Executor writes its flush record, which has all that completed.
    pub(crate) fn record(&mut self, record: Record, text: String, is_last: bool) -> Waiting {
        let counts = if is_last {
            std::mem::take(&mut self.pending)
        } else {
            Counts { completed: std::mem::take(&mut self.pending.completed), ..Counts::default() }
        };
        self.records += 1;
        self.waits += if self.is_cpp || counts.queue_seconds > 0.0 { counts.started } else { 0 };
        if record.work.scheduled == 0 && record.active == 0 {
            self.flushes += 1;
            self.after_idle = 2;
        } else if self.after_idle > 0 {
            self.after_idle -= 1;
        } else {
            self.latencies += 1;
            // Under the overlap scheduler a latency is that of two passes, and since 1.3 records also have that of one.
            let has_both = record.overlap && self.has_host_step;
            self.latency_seconds += if has_both { record.host_seconds } else { record.latency };
        }
        if !self.is_cpp && record.active == record.completed && record.queued == 0 {
            self.after_idle = 1;
        }
        let waiting = Waiting { text, counts, iter: record.iter, cache: record.cache.total };
        self.last = record;
        waiting
    }

    /// A request has ended.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.entries += 1;
        if let Some(times) = &entry.steps {
            self.steps.add(times);
        }
    }

    pub(crate) fn lost_records(&self) -> u64 {
        self.lost
    }

    pub(crate) fn lost(&mut self, record: &Waiting) {
        self.lost += 1;
        self.lost_counts += record.counts;
    }

    /// A reader got these records, or the first `whole` of them.
    pub(crate) fn answered(&mut self, records: &[Waiting], whole: Option<usize>) {
        let (got, rest) = records.split_at(whole.unwrap_or(records.len()).min(records.len()));
        let sums = if whole.is_none() { &mut self.handed_out } else { &mut self.salvageable };
        for record in got {
            // Readers see only increases, but the counts of an engine that they meet at its start begin at 0.
            self.first_cache.get_or_insert(if record.iter <= 1 { CacheCounts::default() } else { record.cache });
            sums.0 += 1;
            sums.1 += record.counts;
        }
        for record in rest {
            self.cut.0 += 1;
            self.cut.1 += record.counts;
        }
    }

    pub(crate) fn event(&mut self, event: &CacheEvent) {
        self.events += 1;
        match event {
            CacheEvent::Created { .. } => {}
            CacheEvent::Stored { hashes, .. } => {
                self.stored += hashes.len() as u64;
                self.levels.extend(hashes.iter().map(|hash| (*hash, 0)));
            }
            CacheEvent::Removed { hashes } => {
                for hash in hashes {
                    self.removed[self.levels.remove(hash).unwrap_or(0)] += 1;
                }
            }
            CacheEvent::Moved { hash, to, .. } => {
                let level = usize::from(*to > 0);
                self.moved_to[level] += 1;
                self.levels.insert(*hash, level);
            }
        }
    }

    /// Requests in the engine and before it, by the last record.
    pub(crate) fn last(&self) -> &Record {
        &self.last
    }

    pub(crate) fn json(&self) -> Map<String, Value> {
        let blocks = |counts: &CacheCounts| {
            json!({
                "allocated": counts.alloc_total, "newly_allocated": counts.alloc_new,
                "reused": counts.reused(), "missed": counts.missed,
            })
        };
        let sums = |(records, counts): &(u64, Counts)| {
            let mut value = counts.json();
            value["records"] = json!(records);
            value
        };
        let mut value = json!({
            "records": self.records, "flush_records": self.flushes,
            "latencies": self.latencies, "waits": self.waits, "latency_ms": self.latency_seconds * 1e3,
            "lost": self.lost, "lost_iterations": self.lost_counts.iterations,
            "served": self.handed_out.1.iterations, "cut": self.cut.0, "cut_iterations": self.cut.1.iterations,
            "handed_out": sums(&self.handed_out), "salvageable": sums(&self.salvageable),
            "perf_metrics": self.entries, "perf_metrics_lost": self.entries_lost,
            "perf_metrics_served": self.entries_served, "steps": self.steps.json(),
            "active_requests": self.last.active - if self.is_cpp { 0 } else { self.last.completed }, "queued_requests": self.last.queued,
            "kv_cache_blocks": blocks(&self.last.cache.total),
            "kv_cache_blocks_first": self.first_cache.as_ref().map(blocks),
            "kv_events": {
                "events": self.events, "stored": self.stored,
                "removed_gpu": self.removed[0], "removed_host": self.removed[1],
                "updated_gpu": self.moved_to[0], "updated_host": self.moved_to[1],
            },
        });
        if let (Value::Object(value), Value::Object(counts)) = (&mut value, self.counts.json()) {
            value.extend(counts);
        }
        if let Value::Object(map) = value { map } else { Map::new() }
    }
}
