//! Classifies each record in the sequence of its engine: new, repeated, idle flush, row of another rank, or restart.
//! Corrects the quirks of the executor's loop, so that no other file has to know them.

use crate::model::IterationStats;
use crate::model::iteration::{Backend, KvCacheStats, SchedulerMode};

use super::cumulative::Cumulative;
use super::health::Outstanding;

/// A record in relation to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// An iteration not seen before.
    New,
    /// The same iteration again.
    Repeated,
    /// The C++ executor writes it when it becomes idle. It is not an iteration.
    Flush,
    /// The row of another attention-DP rank for the same iteration (upstream PR 13649).
    SiblingRank,
    /// `iter` went backwards: the engine has restarted.
    Restart,
}

/// The part of a record that is added to the totals.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// The record is a new iteration.
    pub iteration: bool,
    pub started: u64,
    pub completed: u64,
    /// Seconds. Absent if the record's latency is not the latency of one iteration.
    pub latency_seconds: Option<f64>,
    pub kv: KvIncrease,
    /// The KV cache of the cross attention, if the record has one.
    pub cross_kv: Option<KvIncrease>,
}

/// Increase of the cumulative KV cache counts, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvIncrease {
    pub allocated: u64,
    pub newly_allocated: u64,
    pub reused: u64,
    pub missed: u64,
}

/// The time between two restarts of an engine. The first epoch begins with the first record that is read.
#[derive(Debug)]
pub struct Epoch {
    /// Iterations lost in earlier epochs.
    pub lost_before: u64,
    /// Every iteration up to this number is counted, or counted as lost.
    through: Option<u64>,
    completed: CompletedRequests,
    last_rank: Option<i64>,
    /// Latencies up to this iteration may contain the wait for work.
    waited_through: Option<u64>,
    sequence: Option<u64>,
    lost_by_gap: u64,
    dropped: Cumulative,
    lost_by_engine: u64,
    kv: KvCounts,
    cross_kv: KvCounts,
    /// Requests still active after the last record. Absent for the C++ executor.
    in_flight: Option<InFlight>,
    /// Requests were queued at the last record.
    queued: bool,
}

/// How many completed requests of the last record's iteration are counted.
#[derive(Debug, Clone, Copy)]
struct CompletedRequests {
    iter: Option<u64>,
    counted: i64,
}

/// Requests of a PyTorch engine that are still active after a record, computed in two ways.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    /// Active minus completed, both from the record.
    by_record: i64,
    /// Started minus completed, summed since the last moment without active requests.
    by_count: i64,
}

impl Epoch {
    /// The epoch of an engine that may have run long before.
    #[must_use]
    pub const fn first() -> Self {
        Self {
            lost_before: 0,
            through: None,
            completed: CompletedRequests { iter: None, counted: 0 },
            last_rank: None,
            waited_through: None,
            sequence: None,
            lost_by_gap: 0,
            dropped: Cumulative::unknown(),
            lost_by_engine: 0,
            kv: KvCounts::all(Cumulative::unknown()),
            cross_kv: KvCounts::all(Cumulative::unknown()),
            in_flight: None,
            queued: false,
        }
    }

    /// The epoch after a restart. The cumulative counts of the new engine began at 0 and were seen from the start.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            lost_before: self.lost_before.saturating_add(self.lost()),
            kv: KvCounts::all(Cumulative::from_zero()),
            cross_kv: KvCounts::all(Cumulative::from_zero()),
            dropped: Cumulative::from_zero(),
            ..Self::first()
        }
    }

    /// Whether a record with a number has been read.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.through.is_some()
    }

    /// Iterations lost in this epoch. A gap in the numbers and the engine's own count of dropped frames describe the same
    /// records, so this is the larger of the two, not their sum.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_by_gap.max(self.lost_by_engine)
    }

    /// The kind of the record. Changes nothing.
    #[must_use]
    pub fn classify(&self, record: &IterationStats) -> RecordKind {
        let Some(iter) = record.iter else { return RecordKind::New };
        let flush = is_flush(record);
        match self.through {
            Some(through) if iter < through => RecordKind::Restart,
            Some(through) if iter == through && !flush => {
                if record.attention_dp_rank.is_some() && record.attention_dp_rank != self.last_rank {
                    RecordKind::SiblingRank
                } else {
                    RecordKind::Repeated
                }
            }
            _ if flush => RecordKind::Flush,
            _ => RecordKind::New,
        }
    }

    /// Adds the record to the epoch. Returns the part that is added to the totals.
    pub fn count(&mut self, record: &IterationStats, kind: RecordKind) -> Counted {
        let iteration = !matches!(kind, RecordKind::Repeated | RecordKind::Flush);
        let lost_before = self.lost();
        self.account(record, kind);
        if iteration {
            self.last_rank = record.attention_dp_rank;
        }
        let was_idle = self.was_idle_before(record);
        let counted = Counted {
            iteration,
            // The flush repeats the value of an earlier iteration.
            started: if iteration { unsigned(record.num_new_active_requests) } else { 0 },
            completed: self.completed(record),
            latency_seconds: self.latency_seconds(record, kind, was_idle),
            kv: record.kv_cache_stats.map(|stats| self.kv.increase(&stats)).unwrap_or_default(),
            cross_kv: record.cross_kv_cache_stats.map(|stats| self.cross_kv.increase(&stats)),
        };
        self.queued = record.num_queued_requests.is_some_and(|queued| queued > 0);
        if iteration {
            self.follow_requests(record, &counted, self.lost() > lost_before);
        }
        counted
    }

    /// Whether the last record left active requests. The record alone does not show it: the PyTorch backend counts active
    /// requests before the iteration and never reports their end. With the overlap scheduler, the last record before idle
    /// may show one active and none completed. `None` for the C++ executor, whose records are exact.
    #[must_use]
    pub fn outstanding(&self) -> Option<Outstanding> {
        let in_flight = self.in_flight?;
        Some(match (in_flight.by_record, in_flight.by_count) {
            (0, _) => Outstanding::No,
            (_, 0) => Outstanding::Doubtful,
            _ => Outstanding::Yes,
        })
    }

    /// Updates `in_flight`. After a loss the count restarts from the record.
    fn follow_requests(&mut self, record: &IterationStats, counted: &Counted, lost: bool) {
        let several_ranks = record.attention_dp_rank.is_some_and(|rank| rank != 0);
        let (Backend::PyTorch, Some(active), false) = (record.backend(), record.num_active_requests, several_ranks)
        else {
            self.in_flight = None;
            return;
        };
        let (started, completed) = (signed(counted.started), signed(counted.completed));
        let by_record = active.saturating_sub(completed).max(0);
        let by_count = match self.in_flight {
            Some(before) if !lost && active > started => {
                before.by_count.saturating_add(started).saturating_sub(completed)
            }
            _ => by_record,
        };
        self.in_flight = Some(InFlight { by_record, by_count: by_count.max(0) });
    }

    /// Updates `through` and the loss counts. The flush has the number of the *next* iteration. So it accounts for all
    /// iterations before that one, and the next record is new although it has the same number.
    fn account(&mut self, record: &IterationStats, kind: RecordKind) {
        let Some(iter) = record.iter else { return };
        let reached = if kind == RecordKind::Flush { iter.saturating_sub(1) } else { iter };
        let frames = match (self.sequence, record.stats_sequence) {
            (Some(last), Some(next)) if next > last => Some(next - last - 1),
            _ => None,
        };
        self.sequence = record.stats_sequence.or(self.sequence);
        if let Some(through) = self.through {
            let iterations = if kind == RecordKind::Flush {
                reached.saturating_sub(through)
            } else {
                iter.saturating_sub(through.saturating_add(1))
            };
            self.lost_by_gap = self.lost_by_gap.saturating_add(frames.unwrap_or(iterations));
        }
        self.through = Some(self.through.map_or(reached, |through| through.max(reached)));
        let dropped = self.dropped.increase(record.stats_dropped_frames.and_then(|n| i64::try_from(n).ok()));
        self.lost_by_engine = self.lost_by_engine.saturating_add(dropped);
    }

    /// The executor repeats the completed requests of the flush in the next record, which has the same number.
    fn completed(&mut self, record: &IterationStats) -> u64 {
        let Some(completed) = record.num_completed_requests else { return 0 };
        let repeated = record.iter.is_some() && self.completed.iter == record.iter;
        let counted = if repeated { self.completed.counted } else { 0 };
        self.completed = CompletedRequests { iter: record.iter, counted: completed.max(counted) };
        u64::try_from(completed.saturating_sub(counted)).unwrap_or(0)
    }

    /// Whether a PyTorch engine was idle before this record. A pass of its loop starts by waiting for work, so its latency
    /// contains the wait. Under the overlap scheduler the previous pass ends after that wait, so its latency contains the
    /// wait, too (upstream: `_executor_loop`, `_executor_loop_overlap`). The first iteration waited for the first request.
    fn was_idle_before(&self, record: &IterationStats) -> bool {
        record.backend() == Backend::PyTorch
            && match self.in_flight {
                Some(InFlight { by_record, by_count }) => !self.queued && (by_record == 0 || by_count == 0),
                None => record.iter.is_some_and(|iter| iter <= 1),
            }
    }

    /// The C++ executor takes its start time before it waits for work. After idle it reports 0.0, then a latency that
    /// contains the wait. Neither is the latency of an iteration. Under the overlap scheduler `iterLatencyMS` spans two
    /// passes and `hostStepTimeMS` one.
    fn latency_seconds(&mut self, record: &IterationStats, kind: RecordKind, was_idle: bool) -> Option<f64> {
        let overlap = record.scheduler_mode == Some(SchedulerMode::Overlap);
        let host_step = record.host_step_time_ms.filter(|_| overlap);
        let reported = host_step.or(record.iter_latency_ms.filter(|_| !was_idle));
        match kind {
            RecordKind::Flush => {
                self.waited_through = record.iter.map(|iter| iter.saturating_add(1));
                return None;
            }
            RecordKind::Repeated => return None,
            _ => {}
        }
        let latency = reported?;
        if latency <= 0.0 {
            self.waited_through = record.iter.map(|iter| iter.saturating_add(1));
            return None;
        }
        let waited = record.iter.zip(self.waited_through).is_some_and(|(iter, through)| iter <= through);
        (!waited).then_some(latency / 1000.0)
    }
}

/// Only the idle flush of the C++ executor has nothing scheduled, nothing active and no latency.
fn is_flush(record: &IterationStats) -> bool {
    let scheduled = record.inflight_batching_stats.and_then(|stats| stats.num_scheduled_requests);
    record.num_active_requests == Some(0) && record.iter_latency_ms == Some(0.0) && scheduled.unwrap_or(0) == 0
}

/// The cumulative counts of one KV cache.
#[derive(Debug, Clone, Copy)]
struct KvCounts {
    allocated: Cumulative,
    newly_allocated: Cumulative,
    reused: Cumulative,
    missed: Cumulative,
}

impl KvCounts {
    const fn all(count: Cumulative) -> Self {
        Self { allocated: count, newly_allocated: count, reused: count, missed: count }
    }

    fn increase(&mut self, stats: &KvCacheStats) -> KvIncrease {
        KvIncrease {
            allocated: self.allocated.increase(stats.alloc_total_blocks),
            newly_allocated: self.newly_allocated.increase(stats.alloc_new_blocks),
            reused: self.reused.increase(stats.reused_blocks),
            missed: self.missed.increase(stats.missed_blocks),
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}
