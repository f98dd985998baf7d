//! What the records of the window tell about batches: the time of both phases, the backlog, the KV cache, the ranks. Pure.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use trtllm_model::IterationStats;
use trtllm_model::iteration::{Backend, SchedulerMode, StaticBatchingStats};

/// Tuning guideline: an iteration with generation only below 50 ms.
pub const GENERATION_ITERATION: f64 = 0.05;

/// Iterations with a phase, and their mean duration in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Phase {
    pub iterations: usize,
    pub mean_seconds: f64,
}

/// Limits that the configuration of an engine tells, each of one rank. The records of the PyTorch engine have none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Configured {
    pub batch: Option<f64>,
    pub tokens: Option<f64>,
}

/// The records of one engine, summed up. Means are over iterations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batches {
    pub iterations: usize,
    /// Iterations with requests in context phase, and those with generation only.
    pub context: Phase,
    pub generation: Phase,
    /// Those with both.
    pub mixed: Phase,
    /// Share of the time that the context phase adds: an iteration with both phases counts as generation up to the mean of
    /// those with generation only, or without any, up to the shortest and to the target.
    pub context_share: f64,
    /// Requests that have arrived and are not in the batch.
    pub backlog: f64,
    /// Share of the iterations with such requests.
    pub backlogged: f64,
    pub scheduled: f64,
    /// Limits in force, of all ranks together. Absent where neither the records nor the configuration tells them.
    pub batch_limit: Option<f64>,
    pub token_limit: Option<f64>,
    /// Limits that the engine was built for, of all ranks together. The C++ executor tells them.
    pub batch_limit_built: Option<f64>,
    pub token_limit_built: Option<f64>,
    /// Tokens of an iteration, and the share of the iterations that have no room for another prompt, if the limit is known.
    pub tokens: f64,
    pub token_full: Option<f64>,
    /// Used share of the KV cache.
    pub kv_used: Option<f64>,
    /// Requests that an iteration pauses.
    pub paused: f64,
    /// The KV cache counts blocks that are looked up and not found.
    pub counts_missed: bool,
    /// Share of the time spent drafting, in the iterations that tell it.
    pub draft_share: Option<f64>,
    /// Used share of the generation slots of static batches.
    pub slots_used: Option<f64>,
    /// Attention data parallel ranks, and the share of their time in which they wait for the fullest.
    pub ranks: usize,
    pub rank_wait: f64,
    /// The rank that computed the most tokens.
    pub fullest_rank: Option<i64>,
    /// Frames that the engine dropped.
    pub dropped: u64,
}

/// All rows of one iteration.
#[derive(Default)]
struct Iteration<'a> {
    rows: Vec<&'a IterationStats>,
}

impl Iteration<'_> {
    /// Rows without `rank` have each rank's own batch, and copy the rest from rank 0.
    fn copies_rank_0(&self) -> bool {
        let is_copy = |row: &&IterationStats| row.rank.is_none() && row.attention_dp_rank.is_some();
        self.rows.iter().all(is_copy)
            && self.rows.iter().any(|row| self.rows.len() > 1 || row.attention_dp_rank > Some(0))
    }

    /// A number of the batch, of all ranks.
    fn of_batch(&self, of: impl Fn(&IterationStats) -> Option<i64>) -> f64 {
        sum(self.rows.iter().filter_map(|row| of(row)))
    }

    /// A number that is not one of the batch: of all ranks, or of rank 0 if the rows copy it.
    fn of_engine(&self, of: impl Fn(&IterationStats) -> Option<i64>) -> f64 {
        let rows = self.rows.iter().copied();
        match self.copies_rank_0() {
            true => rows.min_by_key(|row| row.attention_dp_rank).and_then(of).unwrap_or(0) as f64,
            false => sum(rows.filter_map(of)),
        }
    }

    fn generation_requests(&self) -> f64 {
        self.of_batch(|row| row.inflight_batching_stats?.num_gen_requests)
    }

    fn context_requests(&self) -> f64 {
        self.of_batch(|row| row.inflight_batching_stats?.num_context_requests)
            .max(self.of_batch(|row| static_of(row)?.num_context_requests))
    }

    fn scheduled(&self) -> f64 {
        self.of_batch(|row| row.inflight_batching_stats?.num_scheduled_requests)
            .max(self.of_batch(|row| static_of(row)?.num_scheduled_requests))
    }

    fn number(&self) -> Option<u64> {
        self.rows.first()?.iter
    }

    /// Active requests after the iteration. The C++ executor counts those that completed in the one before. Of ranks whose
    /// active requests are not known, the scheduled ones count.
    fn left_work(&self) -> f64 {
        let completed =
            |row: &IterationStats| (row.backend() == Backend::PyTorch).then_some(row.num_completed_requests?);
        let others = |row: &IterationStats| {
            row.inflight_batching_stats?.num_scheduled_requests.filter(|_| row.attention_dp_rank > Some(0))
        };
        let others = if self.copies_rank_0() { self.of_batch(others) } else { 0.0 };
        self.of_engine(|row| row.num_active_requests) - self.of_engine(completed) + others
    }

    /// As the exporter's histogram of the latency. Milliseconds.
    fn latency(&self) -> Option<f64> {
        let of = |row: &&IterationStats| match row.scheduler_mode {
            Some(SchedulerMode::Overlap) => row.host_step_time_ms.or(row.iter_latency_ms),
            _ => row.iter_latency_ms,
        };
        self.rows.iter().filter_map(of).reduce(f64::max).filter(|latency| *latency > 0.0)
    }

    /// If `active` is that of rank 0, only the executor's queue is known.
    fn backlog(&self) -> f64 {
        let queued = self.of_engine(|row| row.num_queued_requests);
        let waiting = self.of_engine(|row| row.num_active_requests) - self.scheduled();
        if self.copies_rank_0() { queued } else { queued + waiting.max(0.0) }
    }

    /// Used share of the KV cache: of all ranks, or of rank 0 if the rows copy it.
    fn kv_used(&self) -> Option<f64> {
        let used = self.of_engine(|row| row.kv_cache_stats?.used_num_blocks);
        let max = self.of_engine(|row| row.kv_cache_stats?.max_num_blocks);
        let known = self.rows.iter().any(|row| row.kv_cache_stats.is_some_and(|kv| kv.used_fraction().is_some()));
        known.then(|| if max > 0.0 { (used / max).clamp(0.0, 1.0) } else { 0.0 })
    }

    fn context_tokens(&self) -> f64 {
        self.of_batch(|row| row.inflight_batching_stats?.num_ctx_tokens)
    }

    /// Tokens that count for the limit: draft tokens do.
    fn tokens(&self) -> f64 {
        let drafts = self.of_engine(|row| row.spec_decoding_stats?.num_draft_tokens);
        self.tokens_by_rank().map(|(_, tokens)| tokens).sum::<f64>() + drafts
    }

    /// The token limit is nearly reached, or another prompt as long as those of the iteration would not fit although the batch
    /// has a place for it. Without chunks, a prompt is computed in one iteration.
    fn is_full_of_tokens(&self, limit: f64, batch: Option<f64>) -> bool {
        let prompt = self.context_tokens() / self.context_requests().max(1.0);
        let has_place = batch.is_none_or(|batch| self.scheduled() < batch);
        self.tokens() >= 0.9 * limit || has_place && prompt > 0.0 && self.tokens() + prompt > limit
    }

    /// Tokens computed by each rank.
    fn tokens_by_rank(&self) -> impl Iterator<Item = (Option<i64>, f64)> {
        self.rows.iter().filter_map(|row| {
            let batch = row.inflight_batching_stats?;
            Some((rank_of(row), sum([batch.num_ctx_tokens, batch.num_gen_requests].into_iter().flatten())))
        })
    }
}

/// A peer chooses the numbers, so they may be too large for a sum.
fn sum(numbers: impl Iterator<Item = i64>) -> f64 {
    numbers.fold(0, i64::saturating_add) as f64
}

/// With `rank`, `attentionDpRank` can be that of the rank which sends the rows.
pub(super) fn rank_of(row: &IterationStats) -> Option<i64> {
    row.rank.or(row.attention_dp_rank)
}

fn static_of(row: &IterationStats) -> Option<&StaticBatchingStats> {
    row.static_batching_stats.as_ref().filter(|batch| !batch.is_all_zero())
}

impl Batches {
    /// `records`: in the order of the engine.
    #[must_use]
    pub fn of(records: &[impl Borrow<IterationStats>], configured: Configured) -> Self {
        let records: Vec<&IterationStats> = records.iter().map(Borrow::borrow).collect();
        let iterations: Vec<Iteration<'_>> = iterations(&records);
        // The idle flush of the C++ executor has no batch.
        let busy: Vec<&Iteration<'_>> = iterations.iter().filter(|iteration| iteration.scheduled() > 0.0).collect();
        let mut found = Self { iterations: busy.len(), ..Self::default() };
        found.add_times(&iterations);
        let mean = |of: &dyn Fn(&Iteration<'_>) -> f64| {
            busy.iter().map(|iteration| of(iteration)).sum::<f64>() / busy.len().max(1) as f64
        };
        found.backlog = mean(&|iteration| iteration.backlog());
        found.backlogged = mean(&|iteration| f64::from(u8::from(iteration.backlog() > 0.0)));
        found.scheduled = mean(&|iteration| iteration.scheduled());
        found.paused = mean(&|iteration| iteration.of_batch(|row| row.inflight_batching_stats?.num_paused_requests));
        found.ranks = busy.iter().map(|iteration| iteration.rows.len()).max().unwrap_or(0);
        let rows = || busy.iter().filter_map(|iteration| iteration.rows.first());
        // Each row has the limit of one rank.
        let of_ranks = |limit: f64| limit * found.ranks as f64;
        let limit = |of: fn(&IterationStats) -> Option<i64>| {
            let last = rows().filter_map(|row| of(row)).rfind(|limit| *limit > 0);
            last.map(|limit| of_ranks(limit as f64))
        };
        let (batch_built, tokens_built) =
            (limit(|row| row.max_batch_size_static), limit(|row| row.max_num_tokens_static));
        // The limit of active requests is that of the batch, times the stages of a pipeline.
        let batch = limit(|row| row.max_batch_size_runtime)
            .or(batch_built)
            .or(configured.batch.map(of_ranks))
            .or(limit(|row| row.max_num_active_requests));
        let tokens = limit(|row| row.max_num_tokens_runtime).or(tokens_built).or(configured.tokens.map(of_ranks));
        (found.batch_limit, found.batch_limit_built) = (batch, batch_built);
        (found.token_limit, found.token_limit_built) = (tokens, tokens_built);
        found.tokens = mean(&|iteration| iteration.tokens());
        // Some releases of the PyTorch engine leave the tokens of prompts at 0.
        let has_prompts = busy.iter().any(|iteration| iteration.context_requests() > 0.0);
        let tells_tokens = !has_prompts || busy.iter().any(|iteration| iteration.context_tokens() > 0.0);
        let fills = |tokens: f64| mean(&|iteration| f64::from(u8::from(iteration.is_full_of_tokens(tokens, batch))));
        found.token_full = tokens.filter(|_| tells_tokens).map(fills);
        let used: Vec<f64> = busy.iter().filter_map(|iteration| iteration.kv_used()).collect();
        found.kv_used = (!used.is_empty()).then(|| used.iter().sum::<f64>() / used.len() as f64);
        found.counts_missed = rows().any(|row| row.kv_cache_stats.is_some_and(|kv| kv.missed_blocks.is_some()));
        // 0 means that the time is not measured.
        let drafting = rows().filter_map(|row| row.spec_decoding_stats?.draft_overhead).filter(|share| *share > 0.0);
        let drafting: Vec<f64> = drafting.collect();
        found.draft_share = (!drafting.is_empty()).then(|| drafting.iter().sum::<f64>() / drafting.len() as f64);
        let slots =
            |of: fn(&StaticBatchingStats) -> Option<i64>| -> f64 { sum(rows().filter_map(|row| of(static_of(row)?))) };
        let (generated, empty) = (slots(|batch| batch.num_gen_tokens), slots(|batch| batch.empty_gen_slots));
        found.slots_used = (generated + empty > 0.0).then(|| generated / (generated + empty));
        found.add_ranks(&busy);
        let dropped = |record: Option<&&IterationStats>| record.and_then(|record| record.stats_dropped_frames);
        found.dropped = dropped(records.last()).unwrap_or(0).saturating_sub(dropped(records.first()).unwrap_or(0));
        found
    }

    fn add_times(&mut self, iterations: &[Iteration<'_>]) {
        let (mut context, mut generation, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
        let gaps = iterations.windows(2).filter_map(|two| two[1].number()?.checked_sub(two[0].number()?));
        let usual_gap = gaps.filter(|gap| *gap > 0).min();
        for (at, iteration) in iterations.iter().enumerate().skip(1) {
            // The C++ executor reports the latency of an iteration in the record of the next one.
            let is_cpp = iteration.rows.first().is_some_and(|row| row.backend() == Backend::TensorRt);
            let from = if is_cpp { iterations.get(at + 1) } else { Some(iteration) };
            // The first latency after idle includes the wait for work.
            let before = &iterations[at - 1];
            let gap = iteration.number().and_then(|number| number.checked_sub(before.number()?));
            let was_idle = before.left_work() <= 0.0 || gap > usual_gap;
            let Some(latency) = from.and_then(Iteration::latency).filter(|_| !was_idle) else { continue };
            let times = if iteration.context_requests() > 0.0 { &mut context } else { &mut generation };
            if iteration.scheduled() > 0.0 {
                times.push(latency / 1e3);
            }
            if iteration.context_requests() > 0.0 && iteration.generation_requests() > 0.0 {
                mixed.push(latency / 1e3);
            }
        }
        let phase = |times: &[f64]| Phase {
            iterations: times.len(),
            mean_seconds: times.iter().sum::<f64>() / times.len().max(1) as f64,
        };
        (self.context, self.generation, self.mixed) = (phase(&context), phase(&generation), phase(&mixed));
        // Without iterations of generation only, the shortest with both bounds what generation takes, and so does its target.
        let shortest = || mixed.iter().copied().reduce(f64::min).unwrap_or(0.0).min(GENERATION_ITERATION);
        let base = if generation.is_empty() { shortest() } else { self.generation.mean_seconds };
        let added: f64 = context.iter().map(|latency| (latency - base).max(0.0)).sum();
        let all: f64 = context.iter().chain(&generation).sum();
        self.context_share = if all > 0.0 { added / all } else { 0.0 };
    }

    fn add_ranks(&mut self, busy: &[&Iteration<'_>]) {
        let (mut done, mut possible, mut by_rank) = (0.0, 0.0, BTreeMap::new());
        for iteration in busy {
            let (mut all, mut most, mut ranks) = (0.0, 0.0_f64, 0_u32);
            for (rank, tokens) in iteration.tokens_by_rank() {
                (all, most, ranks) = (all + tokens, most.max(tokens), ranks + 1);
                *by_rank.entry(rank).or_insert(0.0) += tokens;
            }
            if ranks > 1 {
                done += all;
                possible += most * f64::from(ranks);
            }
        }
        self.rank_wait = if possible > 0.0 { 1.0 - done / possible } else { 0.0 };
        self.fullest_rank = by_rank.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).and_then(|(rank, _)| rank);
    }

    /// The batch has reached its limit. Not if the limit is not known.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.batch_limit.is_some_and(|limit| self.scheduled >= 0.9 * limit)
    }

    /// Most iterations have no room for another prompt. Not if the limit is not known.
    #[must_use]
    pub fn is_full_of_tokens(&self) -> bool {
        self.token_full.is_some_and(|full| full >= 0.5)
    }

    /// The KV cache is as full as this, and the batch is not, nor is it static.
    #[must_use]
    pub fn cache_is_used(&self, least: f64) -> bool {
        self.kv_used.is_some_and(|used| used >= least) && !self.is_full() && self.slots_used.is_none()
    }
}

/// Rows with the same number, each rank once, are one iteration. An answer may have all rows of one rank before those of the next.
fn iterations<'a>(records: &[&'a IterationStats]) -> Vec<Iteration<'a>> {
    let mut rows = records.to_vec();
    if rows.iter().any(|row| rank_of(row).is_some_and(|rank| rank > 0)) {
        rows.sort_by_key(|row| row.iter);
    }
    let mut found: Vec<Iteration<'a>> = Vec::new();
    let mut ranks = BTreeSet::new();
    for row in rows {
        match found.last_mut() {
            Some(last) if last.number() == row.iter && rank_of(row).is_some() && ranks.insert(rank_of(row)) => {
                last.rows.push(row)
            }
            _ => {
                ranks = BTreeSet::from([rank_of(row)]);
                found.push(Iteration { rows: vec![row] });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records(rows: impl Iterator<Item = serde_json::Value>) -> Vec<IterationStats> {
        rows.map(|row| serde_json::from_value(row).unwrap()).collect()
    }

    #[test]
    fn a_latency_of_the_cpp_executor_belongs_to_the_record_before() {
        // Every fourth iteration computes context and takes 100 ms. The record after it says so.
        let row = |iter: u64| {
            let (context, latency) = (u8::from(iter.is_multiple_of(4)), if iter % 4 == 1 { 100.0 } else { 10.0 });
            json!({"iter": iter, "timestamp": "07-25-2025 16:54:34.140189", "iterLatencyMS": latency, "numActiveRequests": 4,
                   "inflightBatchingStats": {"numScheduledRequests": 4, "numContextRequests": context, "numGenRequests": 3}})
        };
        let found = Batches::of(&records((0..40).map(row)), Configured::default());
        assert!((found.context.mean_seconds - 0.1).abs() < 1e-9 && (found.generation.mean_seconds - 0.01).abs() < 1e-9);
        assert!((found.context_share - 0.9 / 1.29).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn the_time_of_ranks_with_fewer_tokens_is_wait() {
        let row = |at: u64| {
            let (iter, rank) = (at / 2, at % 2);
            json!({"iter": iter, "attentionDpRank": rank, "iterLatencyMS": 10.0, "numActiveRequests": 8,
                   "inflightBatchingStats": {"numScheduledRequests": 8, "numGenRequests": if rank == 0 { 8 } else { 2 }, "numCtxTokens": 0}})
        };
        let found = Batches::of(&records((0..40).map(row)), Configured::default());
        assert_eq!((found.iterations, found.ranks), (20, 2));
        assert!((found.rank_wait - (1.0 - 10.0 / 16.0)).abs() < 1e-9);
        assert_eq!(found.fullest_rank, Some(0));
    }

    /// Rows of 8 ranks that schedule 20 requests each.
    fn ranks(change: impl Fn(u64, &mut serde_json::Value)) -> Batches {
        let row = |at: u64| {
            let (iter, rank) = (at / 8, at % 8);
            let mut row = json!({"iter": iter, "attentionDpRank": rank, "iterLatencyMS": 10.0, "numActiveRequests": 20,
                "numQueuedRequests": 2, "maxNumActiveRequests": 64, "maxNumTokensRuntime": 100,
                "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": if rank == 0 { 10 } else { 90 }},
                "inflightBatchingStats": {"numScheduledRequests": 20, "numGenRequests": 20, "numCtxTokens": 0, "numPausedRequests": 1}});
            change(rank, &mut row);
            row
        };
        Batches::of(&records((0..160).map(row)), Configured::default())
    }

    #[test]
    fn rows_of_ranks_copy_all_but_the_batch_from_rank_0() {
        let found = ranks(|_, _| {});
        assert_eq!((found.iterations, found.ranks, found.scheduled, found.paused), (20, 8, 160.0, 8.0));
        assert_eq!((found.backlog, found.batch_limit), (2.0, Some(512.0)));
        assert_eq!((found.kv_used.map(|used| used < 0.11), found.token_full), (Some(true), Some(0.0)));
        assert_eq!((found.context.iterations + found.generation.iterations, found.is_full()), (19, false));
        // Other ranks still have work.
        let found = ranks(|rank, row| {
            row["numActiveRequests"] = json!(0);
            row["inflightBatchingStats"]["numScheduledRequests"] = json!(if rank == 0 { 0 } else { 20 });
        });
        assert_eq!((found.generation.iterations, found.scheduled), (19, 140.0));
    }

    #[test]
    fn rows_with_a_rank_are_summed() {
        let found = ranks(|rank, row| {
            row["rank"] = json!(rank);
            row["numActiveRequests"] = json!(23);
        });
        assert_eq!((found.backlog, found.batch_limit), (8.0 * (2.0 + 3.0), Some(512.0)));
        assert!(found.kv_used.is_some_and(|used| (used - 0.8).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn rows_with_a_rank_are_told_apart_by_it_although_one_rank_sends_all() {
        let found = ranks(|rank, row| {
            row["rank"] = json!(rank);
            row["attentionDpRank"] = json!(0);
            row["inflightBatchingStats"]["numCtxTokens"] = json!(if rank == 5 { 100 } else { 0 });
        });
        assert_eq!((found.iterations, found.ranks, found.scheduled, found.fullest_rank), (20, 8, 160.0, Some(5)));
        assert!((found.rank_wait - (1.0 - 260.0 / 960.0)).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn numbers_that_are_too_large_are_summed_without_overflow() {
        let found = ranks(|_, row| {
            row["rank"] = json!(1);
            for key in ["numActiveRequests", "numQueuedRequests"] {
                row[key] = json!(i64::MAX);
            }
            for key in ["numScheduledRequests", "numGenRequests", "numCtxTokens", "numPausedRequests"] {
                row["inflightBatchingStats"][key] = json!(i64::MAX);
            }
            row["staticBatchingStats"] = json!({"numGenTokens": i64::MAX, "emptyGenSlots": i64::MAX});
        });
        assert!(found.backlog > 1e18 && found.scheduled > 1e18, "{found:?}");
    }

    #[test]
    fn no_record_is_no_batch() {
        assert_eq!(Batches::of(&records(std::iter::empty()), Configured::default()), Batches::default());
    }
}
