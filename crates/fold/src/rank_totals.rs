//! The load and the tokens of each rank of an engine with attention data parallelism. Ranks beyond the first 64 are summed.
//! An engine with one rank has no such totals. The caller knows which record of a rank is the newest.

use trtllm_records::IterationStats;
use trtllm_records::iteration::InflightBatchingStats;
use trtllm_records::schema::Schema as _;

use super::batch::BatchTokens;
use super::defaults::with_defaults;
use super::histogram::{Histogram, IMBALANCE};
use super::saturating::add_known;

/// Number of ranks that are counted separately: 0 to 63.
const NUMBERED: u8 = 64;

/// The batch of a rank, from one record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RankBatch {
    pub iter: Option<u64>,
    pub rank: i64,
    tokens: BatchTokens,
    load: RankLoad,
}

impl RankBatch {
    /// `None` for a record without a rank.
    pub(crate) fn of(record: &IterationStats) -> Option<Self> {
        // If a record has `rank`, its `attentionDpRank` can be that of the rank which sends the records of all ranks.
        let rank = record.rank.or(record.attention_dp_rank)?;
        let is_known = record.rank.is_some() || rank == 0;
        // Without `rank`, all but the batch is copied from rank 0, so it is known of rank 0 only.
        let load = RankLoad {
            is_copy: record.rank.is_none(),
            batch: record.inflight_batching_stats.unwrap_or_default(),
            active: record.num_active_requests.filter(|_| is_known),
            kv_cache_used: record.kv_cache_stats.filter(|_| is_known).and_then(|kv| kv.used_fraction()),
            newest: true,
        };
        Some(Self { iter: record.iter, rank, tokens: BatchTokens::of(record), load })
    }
}

/// The load of a rank, from its last record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankLoad {
    /// The record copies all but the batch from rank 0. Only the load of rank 0 contains these numbers.
    pub is_copy: bool,
    pub batch: InflightBatchingStats,
    pub active: Option<i64>,
    /// Used share of the blocks. Absent for several ranks together.
    pub kv_cache_used: Option<f64>,
    /// The record belongs to the newest iteration; otherwise to the previous iteration.
    newest: bool,
}

impl RankLoad {
    /// The load of this rank and another one together.
    fn and(mut self, other: Self) -> Self {
        self.batch.add(&other.batch);
        add_known(&mut self.active, other.active);
        Self { kv_cache_used: None, ..self }
    }

    /// The load of an idle engine: no requests.
    #[must_use]
    pub fn idle(mut self) -> Self {
        self.batch.make_idle();
        Self { active: self.active.and(Some(0)), ..self }
    }
}

/// One rank, or all ranks beyond the first 64.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// The number of the rank, or [`NUMBERED`] for all ranks beyond the first 64.
    slot: u8,
    pub tokens: BatchTokens,
    /// Its tokens before the statistics were sampled.
    before_sampling: BatchTokens,
    /// Absent if neither the newest nor the previous iteration has a record of this rank.
    pub load: Option<RankLoad>,
}

impl Rank {
    /// `None` for the ranks beyond the first 64.
    #[must_use]
    pub fn number(&self) -> Option<u8> {
        (self.slot < NUMBERED).then_some(self.slot)
    }
}

with_defaults! {
    /// All ranks since a second rank was first seen, over restarts.
    pub struct RankTotals {
        /// Ordered by number. All ranks beyond the first 64 are one entry, which is last.
        pub ranks: Vec<Rank>,
        /// Tokens of the fullest rank ÷ the mean of all ranks. One observation per complete iteration.
        pub imbalance: Histogram = Histogram::new(IMBALANCE),
    }
}

impl RankTotals {
    /// Begins a new iteration. Until a rank's record comes, the load of the rank is that of the previous iteration.
    pub(crate) fn begin_iteration(&mut self) {
        for rank in &mut self.ranks {
            rank.load = rank.load.filter(|load| load.newest).map(|load| RankLoad { newest: false, ..load });
        }
    }

    /// Adds a batch. `newest`: it belongs to the newest iteration, so it sets the rank's load.
    pub(crate) fn add(&mut self, batch: &RankBatch, newest: bool) {
        let slot = u8::try_from(batch.rank).map_or(NUMBERED, |rank| rank.min(NUMBERED));
        let at = self.ranks.binary_search_by_key(&slot, |rank| rank.slot).unwrap_or_else(|at| {
            let (tokens, before_sampling) = Default::default();
            self.ranks.insert(at, Rank { slot, tokens, before_sampling, load: None });
            at
        });
        let rank = &mut self.ranks[at];
        rank.tokens.add(batch.tokens);
        if newest {
            let others = rank.load.filter(|load| load.newest && slot == NUMBERED);
            rank.load = Some(others.map_or(batch.load, |others| others.and(batch.load)));
        }
    }

    pub(crate) fn begin_sampling(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.before_sampling = rank.tokens);
    }

    /// Forgets the loads of the ranks, because the engine has restarted, and the tokens that were summed while it was sampled.
    pub(crate) fn restart(&mut self, sampled: bool) {
        for rank in &mut self.ranks {
            rank.load = None;
            if sampled {
                rank.tokens = rank.before_sampling;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::super::EngineFold;
    use super::*;

    /// A record without `rank`, as most engines send it.
    fn record(iter: u64, rank: i64, context: i64, generation: i64) -> IterationStats {
        serde_json::from_value(json!({
            "iter": iter, "attentionDpRank": rank, "iterLatencyMS": 10.0, "numActiveRequests": 9,
            "inflightBatchingStats": {"numScheduledRequests": generation, "numGenRequests": generation, "numCtxTokens": context},
            "kvCacheStats": {"maxNumBlocks": 8, "usedNumBlocks": 2},
        }))
        .unwrap()
    }

    fn own(record: IterationStats) -> IterationStats {
        IterationStats { rank: record.attention_dp_rank, attention_dp_rank: Some(0), ..record }
    }

    fn fold(records: &[IterationStats]) -> EngineFold {
        let mut engine = EngineFold::new(Duration::from_secs(15));
        absorb(&mut engine, records);
        engine
    }

    fn absorb(engine: &mut EngineFold, records: &[IterationStats]) {
        let now = Instant::now();
        records.iter().for_each(|record| engine.absorb(record, now, 0, &mut ()).unwrap());
    }

    /// Number, context tokens, generation tokens of each rank.
    fn tokens(engine: &EngineFold) -> Vec<(Option<u8>, u64, u64)> {
        let ranks = engine.totals.ranks.iter().flat_map(|totals| &totals.ranks);
        ranks.map(|rank| (rank.number(), rank.tokens.context, rank.tokens.generation)).collect()
    }

    /// Scheduled and active requests of each rank.
    fn loads(engine: &EngineFold) -> Vec<Option<(Option<i64>, Option<i64>)>> {
        let ranks = engine.totals.ranks.iter().flat_map(|totals| &totals.ranks);
        ranks.map(|rank| rank.load.map(|load| (load.batch.num_scheduled_requests, load.active))).collect()
    }

    /// Context tokens, generation requests and the used share of the KV cache of a rank.
    type Batch = (Option<i64>, Option<i64>, Option<f64>);

    fn batches(engine: &EngineFold) -> Vec<Option<Batch>> {
        let ranks = engine.totals.ranks.iter().flat_map(|totals| &totals.ranks);
        let batch = |load: RankLoad| (load.batch.num_ctx_tokens, load.batch.num_gen_requests, load.kv_cache_used);
        ranks.map(|rank| rank.load.map(batch)).collect()
    }

    #[test]
    fn an_engine_with_one_rank_has_no_counts_by_rank() {
        let engine = fold(&[record(1, 0, 100, 2), record(2, 0, 100, 2), record(3, 0, 100, 2)]);
        assert_eq!(engine.totals.ranks, None);
        let rank = own(record(4, 3, 100, 2));
        let engine = fold(&[rank.clone(), IterationStats { iter: Some(5), ..rank }]);
        assert_eq!(engine.totals.ranks, None);
    }

    #[test]
    fn counts_begin_with_all_rows_of_the_iteration_in_which_a_second_rank_is_seen() {
        let engine = fold(&[record(1, 0, 7, 1), record(2, 0, 10, 2), record(2, 1, 30, 4), record(2, 2, 0, 0)]);
        assert_eq!(tokens(&engine), [(Some(0), 10, 2), (Some(1), 30, 4), (Some(2), 0, 0)]);
        // The record of the first rank is lost in iteration 2, so only the second rank has numbers of that iteration.
        let engine = fold(&[record(1, 0, 7, 1), record(2, 1, 30, 4), record(3, 0, 1, 1)]);
        assert_eq!(tokens(&engine), [(Some(0), 1, 1), (Some(1), 30, 4)]);
    }

    #[test]
    fn rows_that_copy_rank_0_say_nothing_of_the_requests_and_the_cache_of_other_ranks() {
        let records = [record(1, 0, 10, 2), record(1, 1, 30, 4)];
        let engine = fold(&records);
        assert_eq!(loads(&engine), [Some((Some(2), Some(9))), Some((Some(4), None))]);
        assert_eq!(batches(&engine), [Some((Some(10), Some(2), Some(0.25))), Some((Some(30), Some(4), None))]);
        let ranks = &engine.totals.ranks.as_deref().unwrap().ranks;
        assert!(ranks.iter().all(|rank| rank.load.unwrap().is_copy));
        let engine = fold(&records.map(own));
        assert_eq!(loads(&engine), [Some((Some(2), Some(9))), Some((Some(4), Some(9)))]);
        assert_eq!(batches(&engine), [Some((Some(10), Some(2), Some(0.25))), Some((Some(30), Some(4), Some(0.25)))]);
    }

    #[test]
    fn a_load_lasts_until_the_next_row_and_at_most_one_iteration_longer() {
        let mut engine = fold(&[record(1, 0, 0, 1), record(1, 1, 0, 2), record(2, 0, 0, 3)]);
        assert_eq!(loads(&engine), [Some((Some(3), Some(9))), Some((Some(2), None))]);
        absorb(&mut engine, &[record(3, 0, 0, 4)]);
        assert_eq!(loads(&engine), [Some((Some(4), Some(9))), None]);
        // The tokens of a late record are counted, but its load is not shown.
        absorb(&mut engine, &[record(5, 0, 0, 5), record(5, 1, 0, 6), record(4, 0, 0, 70), record(4, 1, 0, 80)]);
        assert_eq!(loads(&engine), [Some((Some(5), Some(9))), Some((Some(6), None))]);
        assert_eq!(tokens(&engine), [(Some(0), 0, 83), (Some(1), 0, 88)]);
    }
}
