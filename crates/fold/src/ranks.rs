//! The ranks of an engine with attention data parallelism. Each rank sends a record in each iteration.
//!
//! Records with `rank` (`TLLM_METRICS_ALL_RANKS=1`) have their rank's own numbers. Other records (`attentionDpRank`) have their rank's
//! own batch and copy the rest from rank 0.

use trtllm_records::IterationStats;
use trtllm_records::iteration::{Backend, KvCacheStats};

use super::batch::{BatchTokens, context_tokens, scheduled};
use super::batch_time::BatchTime;
use super::counted::Counted;
use super::cumulative::{any_falls, before_first};
use super::queue_time::QueueTime;
use super::saturating::{add, add_known, unsigned};

/// Number of ranks that are counted separately. The records of further ranks add only their batch.
const MAX_RANKS: usize = 64;

/// What accumulates in one rank between two restarts of the engine.
#[derive(Debug, Clone)]
pub(crate) struct RankCounts {
    /// `None` for records without `rank`.
    rank: Option<i64>,
    /// The last iteration of the rank.
    pub last_iter: Option<u64>,
    /// The last cumulative counts.
    pub kv: KvCacheStats,
    pub cross_kv: KvCacheStats,
    pub queue_time: QueueTime,
}

impl RankCounts {
    /// The counts before `record`, the first one of its rank that is read.
    fn new(record: &IterationStats, from_start: bool) -> Self {
        let before = |stats: Option<KvCacheStats>| {
            let stats = stats.unwrap_or_default();
            before_first(from_start, stats, most_blocks(record, &stats).unwrap_or(i64::MAX))
        };
        Self {
            rank: record.rank,
            last_iter: None,
            kv: before(record.kv_cache_stats),
            cross_kv: before(record.cross_kv_cache_stats),
            queue_time: QueueTime::new(from_start),
        }
    }

    /// Whether a cumulative count of the record is smaller than before, so the record is from a new engine.
    pub(crate) fn is_from_a_new_engine(&self, record: &IterationStats) -> bool {
        record.kv_cache_stats.is_some_and(|stats| any_falls(self.kv, stats))
    }
}

/// The most blocks that the requests of an engine can have taken until its first record: those in use, and those of each batch.
/// Batches before the record are taken to be like its own.
fn most_blocks(record: &IterationStats, stats: &KvCacheStats) -> Option<i64> {
    let size = stats.tokens_per_block.filter(|size| *size > 0).map(unsigned)?;
    let of_batch = context_tokens(record).div_ceil(size).saturating_add(record.num_active_requests.map(unsigned)?);
    let batches = record.stats_sequence.or(record.iter).unwrap_or(1).max(1);
    let used = stats.used_num_blocks.map_or(0, unsigned);
    i64::try_from(of_batch.saturating_mul(batches).saturating_add(used)).ok()
}

/// The ranks whose records were read in one epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks {
    counts: Vec<RankCounts>,
    from_start: bool,
}

impl Ranks {
    /// `from_start`: the engine's first record is read, so its counts begin at 0.
    pub(crate) fn new(from_start: bool) -> Self {
        Self { from_start, ..Self::default() }
    }

    /// The engine has just started, so its counts begin at 0.
    pub(crate) fn met_at_its_start(&mut self) {
        self.from_start |= self.counts.is_empty();
    }

    /// The counts of the rank that wrote the record, if it is known.
    pub(crate) fn find(&self, record: &IterationStats) -> Option<&RankCounts> {
        self.counts.iter().find(|counts| counts.rank == record.rank)
    }

    /// The counts of the rank that wrote the record. Adds the rank if it is new. `None` beyond the limit of ranks.
    pub(crate) fn of(&mut self, record: &IterationStats) -> Option<&mut RankCounts> {
        if self.find(record).is_none() && self.counts.len() < MAX_RANKS {
            self.counts.push(RankCounts::new(record, self.from_start));
        }
        self.counts.iter_mut().find(|counts| counts.rank == record.rank)
    }
}

/// The last iteration: sums over the records of its ranks.
#[derive(Debug, Clone, Copy)]
pub struct Iteration {
    pub iter: Option<u64>,
    pub backend: Backend,
    /// Records of other ranks may follow.
    has_ranks: bool,
    /// Number of ranks whose records are read.
    pub ranks_read: u64,
    pub scheduled: Option<u64>,
    pub tokens: BatchTokens,
    /// Tokens of the rank with the most tokens.
    most_tokens: u64,
    /// Active requests of all ranks, or of rank 0 if the records copy them.
    pub active: Option<i64>,
    /// The records copy everything except the batch from rank 0.
    pub copied: bool,
    /// The record of the iteration came after that of a later iteration.
    pub late: bool,
    /// Seconds that the started requests have waited in total.
    pub waited: Option<f64>,
    pub started: u64,
    pub completed: u64,
    /// The record tells how many requests completed.
    pub tells_completed: bool,
    /// No record before it is missing.
    pub known: bool,
    /// The time of its batch. A record of the C++ executor has the time of the batch before.
    pub time: Option<BatchTime>,
    /// A poll has ended since its first record.
    pub settled: bool,
}

impl Iteration {
    pub(crate) fn new(record: &IterationStats, counted: &Counted, time: Option<BatchTime>, late: bool) -> Self {
        let has_ranks = record.rank.is_some() || record.attention_dp_rank.is_some();
        let tokens = BatchTokens::of(record).without(counted.discarded, record);
        Self {
            iter: record.iter,
            backend: record.backend(),
            has_ranks,
            ranks_read: 1,
            scheduled: scheduled(record),
            tokens,
            most_tokens: tokens.sum(),
            active: record.num_active_requests,
            started: counted.started,
            completed: counted.completed,
            tells_completed: record.num_completed_requests.is_some(),
            copied: false,
            late,
            waited: counted.waited,
            known: !counted.gap.unexplained,
            time,
            settled: false,
        }
    }

    /// Whether all records are read. `ranks`: the number of ranks of earlier iterations, if it is known.
    pub(crate) fn is_complete(&self, ranks: Option<u64>) -> bool {
        !self.has_ranks || ranks.is_some_and(|ranks| self.ranks_read >= ranks)
    }

    /// Tokens of the rank with the most tokens ÷ mean of all ranks. `None` if there is one rank, no token, or a record is
    /// missing. `ranks`: the highest number of ranks in any iteration of this engine.
    #[must_use]
    pub fn imbalance(&self, ranks: Option<u64>) -> Option<f64> {
        let complete = self.ranks_read > 1 && ranks.is_some_and(|ranks| self.ranks_read >= ranks);
        let tokens = self.tokens.sum();
        (complete && tokens > 0).then(|| self.most_tokens as f64 * self.ranks_read as f64 / tokens as f64)
    }

    pub(crate) fn add(&mut self, record: &IterationStats, counted: &Counted) {
        self.ranks_read += 1;
        add_known(&mut self.scheduled, scheduled(record));
        let tokens = BatchTokens::of(record);
        self.tokens.add(tokens);
        self.most_tokens = self.most_tokens.max(tokens.sum());
        add_known(&mut self.waited, counted.waited);
        if record.rank.is_some() {
            let active = record.num_active_requests;
            self.active = self.active.zip(active).map(|(sum, active)| sum.saturating_add(active));
        } else {
            self.copied = true;
        }
        add(&mut self.started, counted.started);
        add(&mut self.completed, counted.completed);
    }
}
