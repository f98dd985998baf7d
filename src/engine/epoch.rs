//! Where a record stands in its engine's sequence: new, repeated, a flush, another rank's row, or another engine's life.
//! The quirks of the executor's loop are corrected here, once; nothing after it sees them.

use crate::model::IterationStats;
use crate::model::iteration::{Backend, KvCacheStats, SchedulerMode};

use super::cumulative::Cumulative;
use super::health::Outstanding;

/// What a record is to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// An iteration not seen before.
    New,
    /// The same iteration again.
    Repeated,
    /// The C++ executor's record of having become idle: it stands for no iteration.
    Flush,
    /// A further attention-DP rank's row of the iteration before (upstream PR 13649).
    SiblingRank,
    /// `iter` went backwards: the engine has started anew.
    Restart,
}

/// What of a record is to be added to the totals.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Whether the record is an iteration of its own.
    pub iteration: bool,
    pub started: u64,
    pub completed: u64,
    /// Seconds, where the record's latency is one iteration's.
    pub latency_seconds: Option<f64>,
    pub kv: KvIncrease,
    /// Of the cross attention's cache, where the record has one.
    pub cross_kv: Option<KvIncrease>,
}

/// Blocks by which the cumulative KV counts grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvIncrease {
    pub allocated: u64,
    pub newly_allocated: u64,
    pub reused: u64,
    pub missed: u64,
}

/// One life of an engine, from its start (or from when we met it) to its end.
#[derive(Debug)]
pub struct Epoch {
    /// Iterations lost in earlier epochs.
    pub lost_before: u64,
    /// Every iteration up to this number is accounted for, as counted or as lost.
    through: Option<u64>,
    /// The last record's iteration and how many of its completed requests are counted.
    completed: (Option<u64>, i64),
    last_rank: Option<i64>,
    /// Latencies up to this iteration's may contain the wait for work.
    waited_through: Option<u64>,
    sequence: Option<u64>,
    lost_by_gap: u64,
    dropped: Cumulative,
    lost_by_engine: u64,
    kv: [Cumulative; 4],
    cross_kv: [Cumulative; 4],
    /// Requests still active after the last record: by that record, by the count.
    in_flight: Option<(i64, i64)>,
    /// Requests waited after the last record.
    queued: bool,
}

impl Epoch {
    /// An engine that may have run long before.
    #[must_use]
    pub const fn first() -> Self {
        Self {
            lost_before: 0,
            through: None,
            completed: (None, 0),
            last_rank: None,
            waited_through: None,
            sequence: None,
            lost_by_gap: 0,
            dropped: Cumulative::unknown(),
            lost_by_engine: 0,
            kv: [Cumulative::unknown(); 4],
            cross_kv: [Cumulative::unknown(); 4],
            in_flight: None,
            queued: false,
        }
    }

    /// The epoch after a restart: the new engine's cumulative counts began at 0 while we watched.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            lost_before: self.lost_before.saturating_add(self.lost()),
            kv: [Cumulative::from_zero(); 4],
            cross_kv: [Cumulative::from_zero(); 4],
            dropped: Cumulative::from_zero(),
            ..Self::first()
        }
    }

    /// Whether any numbered record has come.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.through.is_some()
    }

    /// Iterations lost in this epoch. A gap in the numbers and the engine's own count of dropped frames speak of the same
    /// records, so the larger one holds, not their sum.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_by_gap.max(self.lost_by_engine)
    }

    /// What the record is, changing nothing.
    #[must_use]
    pub fn place(&self, record: &IterationStats) -> Standing {
        let Some(iter) = record.iter else { return Standing::New };
        let flush = is_flush(record);
        match self.through {
            Some(through) if iter < through => Standing::Restart,
            Some(through) if iter == through && !flush => {
                if record.attention_dp_rank.is_some() && record.attention_dp_rank != self.last_rank {
                    Standing::SiblingRank
                } else {
                    Standing::Repeated
                }
            }
            _ if flush => Standing::Flush,
            _ => Standing::New,
        }
    }

    /// Takes the record into the epoch and says what of it counts.
    pub fn count(&mut self, record: &IterationStats, standing: Standing) -> Counted {
        let iteration = !matches!(standing, Standing::Repeated | Standing::Flush);
        let lost_before = self.lost();
        self.account(record, standing);
        if iteration {
            self.last_rank = record.attention_dp_rank;
        }
        let slept = self.slept_before(record);
        let counted = Counted {
            iteration,
            // The flush repeats the number of some earlier iteration.
            started: if iteration { unsigned(record.num_new_active_requests) } else { 0 },
            completed: self.completed(record),
            latency_seconds: self.latency_seconds(record, standing, slept),
            kv: kv_increase(&mut self.kv, record.kv_cache_stats.as_ref()).unwrap_or_default(),
            cross_kv: kv_increase(&mut self.cross_kv, record.cross_kv_cache_stats.as_ref()),
        };
        self.queued = record.num_queued_requests.is_some_and(|queued| queued > 0);
        if iteration {
            self.follow_requests(record, &counted, self.lost() > lost_before);
        }
        counted
    }

    /// What the last record left active, where that is not what it says: the PyTorch backend counts its active requests
    /// before the iteration and never says that they have ended; with the overlap scheduler its last record before it
    /// goes idle may show one active and none completed. `None` for the C++ executor, whose records mean what they say.
    #[must_use]
    pub fn after_last(&self) -> Option<Outstanding> {
        let (by_record, by_count) = self.in_flight?;
        Some(match (by_record, by_count) {
            (0, _) => Outstanding::No,
            (_, 0) => Outstanding::Doubtful,
            _ => Outstanding::Yes,
        })
    }

    /// By record: active less completed. By count: started less completed, from an iteration before which nothing was
    /// active; after a loss, by the record until there is such an iteration again.
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
            Some((_, before)) if !lost && active > started => before.saturating_add(started).saturating_sub(completed),
            _ => by_record,
        };
        self.in_flight = Some((by_record, by_count.max(0)));
    }

    /// Moves `through` and the loss counts. The flush carries the number of the *next* iteration: it accounts for all
    /// before that one, and the next record, with the same number, is still new.
    fn account(&mut self, record: &IterationStats, standing: Standing) {
        let Some(iter) = record.iter else { return };
        let reached = if standing == Standing::Flush { iter.saturating_sub(1) } else { iter };
        let frames = match (self.sequence, record.stats_sequence) {
            (Some(last), Some(next)) if next > last => Some(next - last - 1),
            _ => None,
        };
        self.sequence = record.stats_sequence.or(self.sequence);
        if let Some(through) = self.through {
            let iterations = if standing == Standing::Flush {
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

    /// After the flush the executor repeats its completed count in the next record, which has the same number.
    fn completed(&mut self, record: &IterationStats) -> u64 {
        let Some(completed) = record.num_completed_requests else { return 0 };
        let counted = if record.iter.is_some() && self.completed.0 == record.iter { self.completed.1 } else { 0 };
        self.completed = (record.iter, completed.max(counted));
        u64::try_from(completed.saturating_sub(counted)).unwrap_or(0)
    }

    /// Whether the PyTorch engine had nothing to do before this record. Its pass, too, begins with the wait for work, and
    /// the overlap scheduler's last one before it ends only after the wait: the records of both contain it (upstream:
    /// `_executor_loop`, `_executor_loop_overlap`). Its first iteration waited for the first request.
    fn slept_before(&self, record: &IterationStats) -> bool {
        record.backend() == Backend::PyTorch
            && match self.in_flight {
                Some((by_record, by_count)) => !self.queued && (by_record == 0 || by_count == 0),
                None => record.iter.is_some_and(|iter| iter <= 1),
            }
    }

    /// The C++ executor takes its start time before it waits for work: after idle it reports 0.0, then an iteration that
    /// contains the wait. Neither is an iteration's latency. The overlap scheduler's `iterLatencyMS` spans two passes,
    /// its `hostStepTimeMS` one.
    fn latency_seconds(&mut self, record: &IterationStats, standing: Standing, slept: bool) -> Option<f64> {
        let overlap = record.scheduler_mode == Some(SchedulerMode::Overlap);
        let host_step = record.host_step_time_ms.filter(|_| overlap);
        let reported = host_step.or(record.iter_latency_ms.filter(|_| !slept));
        match standing {
            Standing::Flush => {
                self.waited_through = record.iter.map(|iter| iter.saturating_add(1));
                return None;
            }
            Standing::Repeated => return None,
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

/// Nothing scheduled, nothing active and no latency: only the C++ executor's idle flush looks so.
fn is_flush(record: &IterationStats) -> bool {
    let scheduled = record.inflight_batching_stats.and_then(|stats| stats.num_scheduled_requests);
    record.num_active_requests == Some(0) && record.iter_latency_ms == Some(0.0) && scheduled.unwrap_or(0) == 0
}

fn kv_increase(counts: &mut [Cumulative; 4], stats: Option<&KvCacheStats>) -> Option<KvIncrease> {
    let stats = stats?;
    let [allocated, newly_allocated, reused, missed] = counts;
    Some(KvIncrease {
        allocated: allocated.increase(stats.alloc_total_blocks),
        newly_allocated: newly_allocated.increase(stats.alloc_new_blocks),
        reused: reused.increase(stats.reused_blocks),
        missed: missed.increase(stats.missed_blocks),
    })
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}
