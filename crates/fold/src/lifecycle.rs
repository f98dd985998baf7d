//! Derives the times of a request from its stages in the rows of each iteration: queued, context, generation, complete.
//! The derived times are too long by up to one iteration. Only RequestPerfMetrics has exact times. A request has no times if its
//! start or some of its rows were missed. Memory is bounded.
//!
//! The PyTorch engine moves requests to a queue that no row shows until they become active. Their arrival is derived from the mean
//! time that the requests of a pass have waited. A request has no arrival if it may have waited there and that time is unknown.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use trtllm_records::{RequestStage, RequestStats};

use super::clock::ClockSpan;
use super::request_times::Times;
use super::saturating::add_known;

/// Number of requests that are followed at the same time, including some that have ended. Further requests are counted, but
/// have no times.
const MAX_FOLLOWED: usize = 32_768;
/// A request gets at most this many tokens in one pass: one, and accepted draft tokens.
const MOST_TOKENS_OF_A_PASS: i64 = 16;
/// Iterations after which a request without rows is forgotten: its end was missed.
const FORGET_AFTER: u64 = 64;
/// The same for a request that was not active yet. The PyTorch engine shows it again when it becomes active, unless it is cancelled.
const FORGET_QUEUED_AFTER: u64 = 1 << 16;

/// What the rows of one complete request have shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lifecycle {
    /// The arrival is absent if the request may have waited and it is unknown how long.
    pub times: Times,
    pub tokens: i64,
    /// Tokens of the prompt of a request that was paused. The prefill position of its last row contains a part of its answer, too.
    pub prompt_tokens: Option<i64>,
}

/// Requests by stage in the last iteration that had rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stages {
    pub queued: u64,
    pub encoder: u64,
    pub context: u64,
    pub generation: u64,
}

/// The unfinished requests of one epoch of an engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifecycles {
    followed: HashMap<u64, Followed>,
    /// Number of iterations with rows.
    iterations: u64,
    /// The latest arrival of a request that has left the queue.
    admitted_us: Option<i64>,
    pub stages: Option<Stages>,
    /// Of the KV cache in the last record.
    pub tokens_per_block: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Followed {
    /// The end of the request was read. More rows with the stage "complete" can follow, while the request still
    /// transfers its KV cache.
    complete: bool,
    /// No row was missed in which a time of the request would show.
    is_known: bool,
    /// The request has had no active row.
    is_queued: bool,
    /// The request has become active in the pass after that of its first row. The next record tells when it arrived.
    arrival_follows: bool,
    arrived_us: Option<i64>,
    scheduled_us: Option<i64>,
    first_token_us: Option<i64>,
    paused: bool,
    /// When the request lost its KV cache. It computes its tokens again before its next token.
    stopped_us: Option<i64>,
    tokens: i64,
    /// Tokens of the prompt when the first token was there. After a pause, the C++ executor adds the answer so far to the prompt.
    prompt_tokens: Option<i64>,
    was_paused: bool,
    /// The last row's prefill position and number of reused blocks, and whether the request was generating.
    position: i64,
    reused_blocks: i64,
    generates: bool,
    /// The highest prefill position so far.
    computed: i64,
    /// Value of `Lifecycles::iterations` at the request's last row.
    last_seen: u64,
}

fn tokens_of(row: &RequestStats) -> i64 {
    row.num_generated_tokens.unwrap_or(0)
}

impl Followed {
    /// A request with its first row. `fresh`: the rows of the iteration before were read.
    fn new(row: &RequestStats, span: ClockSpan, fresh: bool) -> Self {
        let complete = row.stage == Some(RequestStage::Complete);
        let scheduled = row.scheduled == Some(true);
        let is_queued = row.stage == Some(RequestStage::Queued);
        let arrival_follows = span.overlaps && !is_queued && !scheduled && !complete;
        let is_seen = is_queued || arrival_follows;
        Self {
            // Only the PyTorch engine can complete a request in the request's first iteration. Then the row says that
            // the request is scheduled.
            is_known: fresh && (!complete || scheduled && tokens_of(row) <= MOST_TOKENS_OF_A_PASS),
            is_queued,
            arrival_follows,
            arrived_us: if is_seen { Some(span.arrived_waiting_us) } else { span.arrived_us },
            ..Self::default()
        }
    }

    /// Whether a row with this many tokens belongs to this request. A row with fewer tokens belongs to a new request
    /// with the same id: the end of this one was missed. Exception: the C++ executor clears the tokens of a request
    /// that it cancels.
    fn is_of(&self, tokens: i64, complete: bool) -> bool {
        match self.complete {
            true => complete,
            false => tokens >= self.tokens || complete && tokens == 0,
        }
    }

    /// Tokens of its context that were computed since the last row although they were computed before, too. Upstream's
    /// `LlmRequest::pause` sets the prefill position to 0 and makes the answer so far a part of the prompt. A request that resumes
    /// skips the blocks that it finds in the KV cache. Absent if the row does not tell its position or blocks.
    fn recomputed(&mut self, row: &RequestStats, tokens_per_block: Option<i64>) -> Option<u64> {
        let (position, blocks) = (row.context_prefill_position?, row.reused_blocks_per_request?);
        let found = reused_tokens(Some((blocks - self.reused_blocks).max(0)), tokens_per_block)?;
        let generates = matches!(row.stage, Some(RequestStage::Generation | RequestStage::Complete));
        // The position only rises during generation if a pause was in no row.
        let is_paused = position < self.position || self.generates && position > self.position;
        let from = if is_paused { 0 } else { self.position };
        self.computed = self.computed.max(self.position);
        // With an answer, only its last token was not in the KV cache before.
        let before = if self.tokens > 0 { position - i64::from(generates) } else { position.min(self.computed) };
        (self.position, self.reused_blocks, self.generates) = (position, blocks, generates);
        Some(u64::try_from(before.saturating_sub(from.saturating_add_unsigned(found))).unwrap_or(0))
    }

    /// The times of the request, at the first row that reports it complete. Absent if some are unknown.
    fn end(&self, tokens: i64, span: ClockSpan, fresh: bool) -> Option<Lifecycle> {
        if self.complete || !self.is_known {
            return None;
        }
        // The missing times were in rows that were lost.
        if !fresh && (self.scheduled_us.is_none() || self.first_token_us.is_none()) {
            return None;
        }
        let ended_us = span.ended_us;
        // A request whose tokens come from a single pass may have no row before this one. With more tokens, it had rows that the records
        // leave out: with attention data parallelism, they have the active requests of rank 0 only, and the ends of all.
        let unseen = (1..=MOST_TOKENS_OF_A_PASS).contains(&tokens).then_some(ended_us);
        let scheduled_us = self.scheduled_us.or(unseen.map(|_| span.scheduled_us.min(ended_us)));
        let [arrived, scheduled, first_token, ended] =
            [self.arrived_us, scheduled_us, self.first_token_us.or(unseen), Some(ended_us)]
                .map(|us| us.map(|us| us as f64 / 1e6));
        Some(Lifecycle {
            times: Times { arrived, scheduled, first_token, ended },
            tokens: tokens.max(self.tokens),
            prompt_tokens: self.prompt_tokens.filter(|_| self.was_paused),
        })
    }
}

/// The span in which a paused request had no KV cache. It ends with the next token of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The id of the request in its rows.
    pub id: u64,
    pub from_us: i64,
    pub until_us: i64,
}

/// The changes that the rows of one iteration show.
#[derive(Debug, Default)]
pub(crate) struct StageChanges {
    /// Requests that have become complete, by id, as far as their rows are known.
    pub completed: HashMap<u64, Lifecycle>,
    /// Ids of requests that were already reported complete.
    pub repeated: HashSet<u64>,
    pub pauses: u64,
    /// Pauses that have ended, of requests that already had tokens.
    pub over: Vec<Pause>,
    /// Context tokens that were computed before a pause of their request, too. Absent if no row tells.
    pub recomputed_tokens: Option<u64>,
}

impl Lifecycles {
    /// Forgets the times of all unfinished requests, because the clock was set.
    pub(crate) fn forget_times(&mut self) {
        self.admitted_us = None;
        for request in self.followed.values_mut() {
            (request.is_known, request.stopped_us, request.arrived_us) = (false, None, None);
        }
    }

    /// When the oldest of the requests arrived that still wait. `skips_waiting`: the rows leave waiting requests out, as those of the
    /// PyTorch engine do; one that arrived before another was admitted has left the queue unseen, because its client left.
    pub(crate) fn oldest_waiting_us(&self, skips_waiting: bool) -> Option<i64> {
        let waits = |request: &&Followed| {
            let is_seen = request.last_seen == self.iterations;
            request.is_queued
                && !request.complete
                && (is_seen || skips_waiting && request.arrived_us >= self.admitted_us)
        };
        self.followed.values().filter(waits).filter_map(|request| request.arrived_us).min()
    }

    /// Folds all rows of one iteration.
    pub(crate) fn absorb(&mut self, rows: &[RequestStats], span: ClockSpan) -> StageChanges {
        self.iterations += 1;
        // A request in the first rows may have started long before them.
        let fresh = span.continuous && self.iterations > 1;
        let mut changes = StageChanges::default();
        let mut stages = Stages::default();
        for row in rows {
            match row.stage {
                Some(RequestStage::Queued) => stages.queued += 1,
                Some(RequestStage::Encoder) => stages.encoder += 1,
                Some(RequestStage::Context) => stages.context += 1,
                Some(RequestStage::Generation) => stages.generation += 1,
                Some(RequestStage::Complete | RequestStage::Unknown) | None => {}
            }
            if let Some(id) = row.id {
                self.row(id, row, span, fresh, &mut changes);
            }
        }
        self.stages = Some(stages);
        if self.iterations.is_multiple_of(FORGET_AFTER) {
            let oldest =
                |queued| self.iterations.saturating_sub(if queued { FORGET_QUEUED_AFTER } else { FORGET_AFTER });
            self.followed.retain(|_, request| request.last_seen >= oldest(request.is_queued));
        }
        changes
    }

    fn row(&mut self, id: u64, row: &RequestStats, span: ClockSpan, fresh: bool, changes: &mut StageChanges) {
        let tokens = tokens_of(row);
        let complete = row.stage == Some(RequestStage::Complete);
        let scheduled = row.scheduled == Some(true);
        let new = Followed::new(row, span, fresh);
        let full = self.followed.len() >= MAX_FOLLOWED;
        let request = match self.followed.entry(id) {
            Entry::Occupied(request) => {
                let request = request.into_mut();
                if std::mem::take(&mut request.arrival_follows) {
                    request.arrived_us = span.arrived_us;
                }
                request
            }
            Entry::Vacant(_) if full => return,
            Entry::Vacant(place) => place.insert(new),
        };
        if complete && request.complete {
            changes.repeated.insert(id);
        }
        if !request.is_of(tokens, complete) {
            *request = new;
        }
        request.last_seen = self.iterations;
        add_known(&mut changes.recomputed_tokens, request.recomputed(row, self.tokens_per_block));
        if row.stage != Some(RequestStage::Queued) {
            request.is_queued = false;
            self.admitted_us = self.admitted_us.max(request.arrived_us);
        }
        if let Some(from_us) = request.stopped_us.filter(|_| complete || tokens > request.tokens) {
            request.stopped_us = None;
            changes.over.push(Pause { id, from_us, until_us: span.ended_us });
        }
        if complete {
            changes.completed.extend(request.end(tokens, span, fresh).map(|ended| (id, ended)));
            request.complete = true;
        } else {
            let (first_scheduled, first_token) =
                (scheduled && request.scheduled_us.is_none(), tokens > 0 && request.first_token_us.is_none());
            if !fresh && (first_scheduled || first_token) {
                // The request was scheduled, or got its first token, in one of the lost iterations. That time is unknown.
                request.is_known = false;
            }
            if first_scheduled {
                request.scheduled_us = Some(span.scheduled_us);
            }
            if first_token {
                request.prompt_tokens = row.context_prefill_position.filter(|_| fresh);
                request.first_token_us = Some(span.ended_us);
            }
            let paused = row.paused == Some(true);
            if paused && tokens > 0 {
                request.stopped_us.get_or_insert(span.scheduled_us);
                request.was_paused = true;
            }
            changes.pauses += u64::from(paused && !request.paused);
            (request.paused, request.tokens) = (paused, tokens);
        }
    }
}

/// Tokens of the reused blocks of a request.
#[must_use]
pub fn reused_tokens(blocks: Option<i64>, tokens_per_block: Option<i64>) -> Option<u64> {
    u64::try_from(blocks?.checked_mul(tokens_per_block?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1000;

    /// The time that the C++ executor's record of iteration `iteration` covers. At its end, the previous batch has
    /// ended and this one starts.
    fn span(iteration: i64) -> ClockSpan {
        let (start_us, end_us) = (iteration * 10 * MS, (iteration + 1) * 10 * MS);
        ClockSpan {
            iter: None,
            arrived_us: Some(start_us),
            arrived_waiting_us: start_us,
            overlaps: false,
            scheduled_us: end_us,
            begun_us: end_us,
            ended_us: end_us,
            flush: false,
            continuous: true,
        }
    }

    fn row(id: u64, stage: RequestStage, tokens: i64) -> RequestStats {
        RequestStats {
            id: Some(id),
            stage: Some(stage),
            num_generated_tokens: Some(tokens),
            scheduled: Some(!matches!(stage, RequestStage::Queued | RequestStage::Complete)),
            ..RequestStats::default()
        }
    }

    fn unfinished(lifecycles: &Lifecycles) -> usize {
        lifecycles.followed.values().filter(|request| !request.complete).count()
    }

    /// With attention data parallelism, the records have the active requests of rank 0 only, and the ends of all.
    #[test]
    fn a_request_whose_active_rows_are_left_out_has_no_first_token() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        lifecycles.absorb(&[row(7, RequestStage::Queued, 0)], span(1));
        lifecycles.absorb(&[], span(2));
        let scheduled = |row: RequestStats| RequestStats { scheduled: Some(true), ..row };
        let rows = [7, 8].map(|id| scheduled(row(id, RequestStage::Complete, 43)));
        let ended = lifecycles.absorb(&rows, span(45)).completed;
        // Nothing tells when request 8 arrived.
        assert_eq!(ended.len(), 1);
        let times = Times { arrived: Some(0.01), ended: Some(0.46), ..Times::default() };
        assert_eq!(ended[&7].times, times);
    }

    #[test]
    fn a_request_first_seen_after_its_start_or_after_a_loss_has_no_times() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[row(1, RequestStage::Generation, 40)], span(0));
        lifecycles.absorb(&[row(2, RequestStage::Generation, 9)], ClockSpan { continuous: false, ..span(5) });
        let changes =
            lifecycles.absorb(&[row(1, RequestStage::Complete, 50), row(2, RequestStage::Complete, 12)], span(6));
        assert!(changes.completed.is_empty());
        assert!(
            lifecycles.absorb(&[row(3, RequestStage::Complete, 1)], span(7)).completed.is_empty(),
            "never seen alive"
        );
    }

    #[test]
    fn the_oldest_waiting_request_is_the_first_of_those_that_were_neither_admitted_nor_left() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        let queued = |id| row(id, RequestStage::Queued, 0);
        lifecycles.absorb(&[queued(1)], span(1));
        lifecycles.absorb(&[queued(1), queued(2)], span(2));
        assert_eq!(lifecycles.oldest_waiting_us(false), Some(10 * MS));
        lifecycles.absorb(&[row(1, RequestStage::Context, 0), queued(2), queued(3)], span(3));
        assert_eq!(lifecycles.oldest_waiting_us(false), Some(20 * MS));
        // Request 2 has no row any more. Only where rows leave waiting requests out, it may still wait.
        lifecycles.absorb(&[queued(3)], span(4));
        assert_eq!([false, true].map(|skips| lifecycles.oldest_waiting_us(skips)), [Some(30 * MS), Some(20 * MS)]);
        // A later request was admitted before it, so it does not wait.
        lifecycles.absorb(&[row(3, RequestStage::Context, 0), queued(4)], span(5));
        assert_eq!([false, true].map(|skips| lifecycles.oldest_waiting_us(skips)), [Some(50 * MS); 2]);
        lifecycles.absorb(&[row(4, RequestStage::Context, 0)], span(6));
        assert_eq!([false, true].map(|skips| lifecycles.oldest_waiting_us(skips)), [None; 2]);
    }

    #[test]
    fn a_pause_is_counted_once() {
        let mut lifecycles = Lifecycles::default();
        let paused = |on| [RequestStats { paused: Some(on), ..row(1, RequestStage::Generation, 2) }];
        let pauses: u64 =
            [true, true, false, true].map(|on| lifecycles.absorb(&paused(on), span(1)).pauses).iter().sum();
        assert_eq!(pauses, 2);
    }

    #[test]
    fn tokens_are_computed_again_after_a_pause_except_those_in_blocks_that_are_found() {
        use RequestStage::{Context, Generation};
        let mut lifecycles = Lifecycles { tokens_per_block: Some(32), ..Lifecycles::default() };
        let mut at = |iteration, stage, tokens, position, blocks| {
            let row = row(7, stage, tokens);
            let (context_prefill_position, reused_blocks_per_request) = (Some(position), blocks);
            let row = RequestStats { context_prefill_position, reused_blocks_per_request, ..row };
            lifecycles.absorb(&[row], span(iteration)).recomputed_tokens
        };
        assert_eq!(at(1, Context, 0, 64, None), None);
        // Paused with a part of its prompt, and with 5 tokens of its answer.
        assert_eq!([at(2, Context, 0, 64, Some(2)), at(3, Context, 0, 0, Some(2))], [Some(0); 2]);
        assert_eq!([at(4, Context, 0, 96, Some(2)), at(5, Generation, 1, 100, Some(2))], [Some(64), Some(0)]);
        assert_eq!([at(6, Generation, 5, 100, Some(2)), at(7, Context, 5, 0, Some(2))], [Some(0); 2]);
        assert_eq!([at(8, Context, 5, 64, Some(3)), at(9, Generation, 6, 105, Some(3))], [Some(32), Some(40)]);
        // A pause whose rows were lost.
        assert_eq!(at(10, Generation, 11, 110, Some(3)), Some(109));
    }

    #[test]
    fn the_prompt_of_a_request_that_was_paused_does_not_contain_its_answer() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        let at = |position, row| [RequestStats { context_prefill_position: Some(position), ..row }];
        lifecycles.absorb(&at(0, row(7, RequestStage::Context, 0)), span(1));
        lifecycles.absorb(&at(80, row(7, RequestStage::Generation, 1)), span(2));
        // Paused at 100 tokens, and computed again.
        lifecycles.absorb(&at(0, RequestStats { paused: Some(true), ..row(7, RequestStage::Context, 100) }), span(3));
        lifecycles.absorb(&at(180, row(7, RequestStage::Generation, 101)), span(4));
        let ended = lifecycles.absorb(&at(180, row(7, RequestStage::Complete, 200)), span(5)).completed;
        assert_eq!(ended[&7].prompt_tokens, Some(80));
    }

    #[test]
    fn memory_is_bounded_and_a_request_without_rows_is_forgotten() {
        let mut lifecycles = Lifecycles::default();
        let rows: Vec<RequestStats> =
            (0..2 * MAX_FOLLOWED as u64).map(|id| row(id, RequestStage::Generation, 1)).collect();
        lifecycles.absorb(&rows, span(0));
        assert_eq!(unfinished(&lifecycles), MAX_FOLLOWED);
        for iteration in 1..=2 * FORGET_AFTER as i64 {
            lifecycles.absorb(&[], span(iteration));
        }
        assert_eq!(unfinished(&lifecycles), 0);
    }

    #[test]
    fn a_row_with_fewer_tokens_belongs_to_a_new_request_with_the_same_id() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        lifecycles.absorb(&[row(7, RequestStage::Generation, 9)], span(1));
        lifecycles.absorb(&[row(7, RequestStage::Context, 0)], span(5));
        let changes = lifecycles.absorb(&[row(7, RequestStage::Complete, 2)], span(7));
        assert_eq!(changes.completed[&7].times.arrived, Some(0.05));
    }

    #[test]
    fn a_request_of_one_token_can_begin_and_end_in_one_batch_of_the_pytorch_engine() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        let rows = [
            RequestStats { scheduled: Some(true), ..row(7, RequestStage::Complete, 1) },
            // A row of the C++ executor: the earlier rows of the request were missed.
            RequestStats { scheduled: Some(false), ..row(8, RequestStage::Complete, 1) },
        ];
        let pytorch = ClockSpan { arrived_us: Some(5 * MS), scheduled_us: 10 * MS, ..span(1) };
        let times = Times { arrived: Some(0.005), scheduled: Some(0.01), first_token: Some(0.02), ended: Some(0.02) };
        let expected = (7, Lifecycle { times, tokens: 1, prompt_tokens: None });
        assert_eq!(lifecycles.absorb(&rows, pytorch).completed, HashMap::from([expected]));
    }

    #[test]
    fn a_reused_id_belongs_to_a_new_request() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        for base in [1, 11] {
            lifecycles.absorb(&[row(7, RequestStage::Context, 0)], span(base));
            let changes = lifecycles.absorb(&[row(7, RequestStage::Complete, 1)], span(base + 2));
            assert_eq!(changes.completed[&7].times.arrived, Some(base as f64 * 0.01));
        }
    }
}
