//! Derives the times of a request from its rows at each iteration: queued, context, generation, complete. Their resolution
//! is one iteration; only RequestPerfMetrics has exact times. A request has no times if its start or some of its rows were
//! missed. Memory is bounded.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::model::request::{RequestStage, RequestStats};

use super::clock::Span;

/// Requests followed at once. More requests are counted, but have no times.
const MAX_FOLLOWED: usize = 32_768;
/// Iterations after which a request without rows is forgotten: its end was missed.
const FORGET_AFTER: u64 = 64;

/// The times of one complete request, in microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifecycle {
    pub id: u64,
    pub arrived_us: i64,
    pub scheduled_us: Option<i64>,
    pub first_token_us: Option<i64>,
    pub ended_us: i64,
    pub tokens: i64,
}

/// Requests by stage in the last iteration that had rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stages {
    pub queued: u64,
    pub encoder: u64,
    pub context: u64,
    pub generation: u64,
}

/// The unfinished requests of one epoch of an engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Lifecycles {
    followed: HashMap<u64, Followed>,
    /// Number of iterations with rows.
    iterations: u64,
    pub stages: Option<Stages>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Followed {
    /// `None` if the request had started before its first row was read.
    arrived_us: Option<i64>,
    scheduled_us: Option<i64>,
    first_token_us: Option<i64>,
    paused: bool,
    tokens: i64,
    /// Value of `Lifecycles::iterations` at its last row.
    last_seen: u64,
}

impl Followed {
    /// Whether a row with this many tokens can belong to the request. With fewer tokens it belongs to a new request with the
    /// same id, and the end of this one was missed.
    fn matches(&self, tokens: i64) -> bool {
        tokens >= self.tokens
    }
}

/// The changes that the rows of one iteration show.
#[derive(Debug, Default)]
pub struct Changes {
    /// In the order of the rows.
    pub completed: Vec<Lifecycle>,
    pub pauses: u64,
}

impl Lifecycles {
    /// Folds all rows of one iteration.
    pub fn absorb(&mut self, rows: &[RequestStats], span: Span) -> Changes {
        self.iterations += 1;
        // A request in the first rows may have started long before them.
        let fresh = span.continuous && self.iterations > 1;
        let mut changes = Changes::default();
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
            let oldest = self.iterations.saturating_sub(FORGET_AFTER);
            self.followed.retain(|_, request| request.last_seen >= oldest);
        }
        changes
    }

    fn row(&mut self, id: u64, row: &RequestStats, span: Span, fresh: bool, changes: &mut Changes) {
        let tokens = row.num_generated_tokens.unwrap_or(0);
        if row.stage == Some(RequestStage::Complete) {
            let Some(request) = self.followed.remove(&id) else { return };
            let Some(arrived_us) = request.arrived_us.filter(|_| request.matches(tokens)) else { return };
            // The missing times were in rows that were lost.
            if !fresh && (request.scheduled_us.is_none() || request.first_token_us.is_none()) {
                return;
            }
            // The executor reports a completion one pass late.
            let ended_us = span.start_us;
            let first_token_us = request.first_token_us.or((tokens > 0).then_some(ended_us));
            changes.completed.push(Lifecycle {
                id,
                arrived_us,
                scheduled_us: request.scheduled_us,
                first_token_us,
                ended_us,
                tokens,
            });
            return;
        }
        if self.followed.len() >= MAX_FOLLOWED && !self.followed.contains_key(&id) {
            return;
        }
        let new = Followed {
            arrived_us: fresh.then_some(span.start_us),
            scheduled_us: None,
            first_token_us: None,
            paused: false,
            tokens: 0,
            last_seen: 0,
        };
        let request = self.followed.entry(id).or_insert(new);
        if !request.matches(tokens) {
            *request = new;
        }
        request.last_seen = self.iterations;
        request.tokens = tokens;
        let scheduled = row.scheduled == Some(true) && request.scheduled_us.is_none();
        let first_token = tokens > 0 && request.first_token_us.is_none();
        if !fresh && (scheduled || first_token) {
            // It happened in one of the lost iterations; its time is unknown.
            request.arrived_us = None;
        }
        if scheduled {
            request.scheduled_us = Some(span.start_us);
        }
        if first_token {
            request.first_token_us = Some(span.end_us);
        }
        let paused = row.paused == Some(true);
        if paused && !request.paused {
            changes.pauses += 1;
        }
        request.paused = paused;
    }

    /// Number of requests that are followed.
    #[must_use]
    pub fn followed(&self) -> usize {
        self.followed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1000;

    fn span(iteration: i64) -> Span {
        Span {
            iter: None,
            start_us: iteration * 10 * MS,
            end_us: (iteration + 1) * 10 * MS,
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

    #[test]
    fn the_times_of_a_request_are_derived_from_its_rows() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        lifecycles.absorb(&[row(7, RequestStage::Queued, 0)], span(1));
        lifecycles.absorb(&[row(7, RequestStage::Context, 0)], span(2));
        lifecycles.absorb(&[row(7, RequestStage::Generation, 1)], span(3));
        lifecycles.absorb(&[row(7, RequestStage::Generation, 2)], span(4));
        let changes = lifecycles.absorb(&[row(7, RequestStage::Complete, 3)], span(6));
        assert_eq!(
            changes.completed,
            [Lifecycle {
                id: 7,
                arrived_us: 10 * MS,
                scheduled_us: Some(20 * MS),
                first_token_us: Some(40 * MS),
                ended_us: 60 * MS,
                tokens: 3,
            }]
        );
        assert_eq!(lifecycles.followed(), 0);
    }

    #[test]
    fn a_request_first_seen_after_its_start_or_after_a_loss_has_no_times() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[row(1, RequestStage::Generation, 40)], span(0));
        lifecycles.absorb(&[row(2, RequestStage::Generation, 9)], Span { continuous: false, ..span(5) });
        let changes =
            lifecycles.absorb(&[row(1, RequestStage::Complete, 50), row(2, RequestStage::Complete, 12)], span(6));
        assert!(changes.completed.is_empty());
        assert!(
            lifecycles.absorb(&[row(3, RequestStage::Complete, 1)], span(7)).completed.is_empty(),
            "never seen alive"
        );
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
    fn memory_is_bounded_and_a_request_without_rows_is_forgotten() {
        let mut lifecycles = Lifecycles::default();
        let rows: Vec<RequestStats> =
            (0..2 * MAX_FOLLOWED as u64).map(|id| row(id, RequestStage::Generation, 1)).collect();
        lifecycles.absorb(&rows, span(0));
        assert_eq!(lifecycles.followed(), MAX_FOLLOWED);
        for iteration in 1..=2 * FORGET_AFTER as i64 {
            lifecycles.absorb(&[], span(iteration));
        }
        assert_eq!(lifecycles.followed(), 0);
    }

    #[test]
    fn a_request_that_changed_in_lost_iterations_has_no_times() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        lifecycles.absorb(&[row(1, RequestStage::Queued, 0), row(2, RequestStage::Generation, 1)], span(1));
        let rows = [row(1, RequestStage::Generation, 30), row(2, RequestStage::Generation, 40)];
        lifecycles.absorb(&rows, Span { continuous: false, ..span(50) });
        let changes =
            lifecycles.absorb(&[row(1, RequestStage::Complete, 31), row(2, RequestStage::Complete, 41)], span(51));
        assert_eq!(changes.completed.iter().map(|lifecycle| lifecycle.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_row_with_fewer_tokens_belongs_to_a_new_request_with_the_same_id() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        lifecycles.absorb(&[row(7, RequestStage::Generation, 9)], span(1));
        lifecycles.absorb(&[row(7, RequestStage::Context, 0)], span(5));
        let changes = lifecycles.absorb(&[row(7, RequestStage::Complete, 2)], span(7));
        assert_eq!(changes.completed[0].arrived_us, 50 * MS);
    }

    #[test]
    fn a_reused_id_belongs_to_a_new_request() {
        let mut lifecycles = Lifecycles::default();
        lifecycles.absorb(&[], span(0));
        for base in [1, 11] {
            lifecycles.absorb(&[row(7, RequestStage::Context, 0)], span(base));
            let changes = lifecycles.absorb(&[row(7, RequestStage::Complete, 1)], span(base + 2));
            assert_eq!(changes.completed[0].arrived_us, base * 10 * MS);
        }
    }
}
