//! A request's life from its row at each iteration: queued, context, generation, complete. Gives at iteration resolution
//! what RequestPerfMetrics give exactly. Bounded whatever the engine says: a life whose start or rows were missed yields no
//! latency rather than a wrong one.

use std::collections::HashMap;

use crate::model::request::{RequestStage, RequestStats};

use super::clock::Span;

/// Lives followed at once. Beyond it new requests are counted but not timed.
const MAX_LIVE: usize = 32_768;
/// A request that no row names for this many iterations has gone unseen.
const FORGET_AFTER: u64 = 64;

/// One request's times, microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub id: u64,
    pub arrived_us: i64,
    pub scheduled_us: Option<i64>,
    pub first_token_us: Option<i64>,
    pub ended_us: i64,
    pub tokens: i64,
}

/// Requests by stage in the last iteration that had rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stages {
    pub queued: u64,
    pub encoder: u64,
    pub context: u64,
    pub generation: u64,
}

/// The requests of one engine's epoch.
#[derive(Debug, Default)]
pub struct Lifecycles {
    live: HashMap<u64, Live>,
    /// Iterations with rows so far.
    rounds: u64,
    pub stages: Option<Stages>,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    /// `None`: it was already under way when first seen.
    arrived_us: Option<i64>,
    scheduled_us: Option<i64>,
    first_token_us: Option<i64>,
    paused: bool,
    tokens: i64,
    round: u64,
}

impl Live {
    /// A request's tokens never grow fewer: one that has fewer is another, under the same id, whose forerunner's end was
    /// missed.
    fn is_of(&self, tokens: i64) -> bool {
        tokens >= self.tokens
    }
}

/// What one iteration's rows add.
#[derive(Debug, Default)]
pub struct Round {
    /// In the order of their rows.
    pub completed: Vec<Life>,
    pub pauses: u64,
}

impl Lifecycles {
    /// All rows of one iteration.
    pub fn absorb(&mut self, rows: &[RequestStats], span: Span) -> Round {
        self.rounds += 1;
        // Requests met in the first rows may have begun long before.
        let fresh = span.continuous && self.rounds > 1;
        let mut round = Round::default();
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
                self.row(id, row, span, fresh, &mut round);
            }
        }
        self.stages = Some(stages);
        if self.rounds.is_multiple_of(FORGET_AFTER) {
            let oldest = self.rounds.saturating_sub(FORGET_AFTER);
            self.live.retain(|_, life| life.round >= oldest);
        }
        round
    }

    fn row(&mut self, id: u64, row: &RequestStats, span: Span, fresh: bool, round: &mut Round) {
        let tokens = row.num_generated_tokens.unwrap_or(0);
        if row.stage == Some(RequestStage::Complete) {
            let Some(life) = self.live.remove(&id) else { return };
            let Some(arrived_us) = life.arrived_us.filter(|_| life.is_of(tokens)) else { return };
            // What it went through meanwhile was in the rows that are lost.
            if !fresh && (life.scheduled_us.is_none() || life.first_token_us.is_none()) {
                return;
            }
            // The executor reports completion in the pass after it.
            let ended_us = span.start_us;
            let first_token_us = life.first_token_us.or((tokens > 0).then_some(ended_us));
            round.completed.push(Life {
                id,
                arrived_us,
                scheduled_us: life.scheduled_us,
                first_token_us,
                ended_us,
                tokens,
            });
            return;
        }
        if self.live.len() >= MAX_LIVE && !self.live.contains_key(&id) {
            return;
        }
        let begun = Live {
            arrived_us: fresh.then_some(span.start_us),
            scheduled_us: None,
            first_token_us: None,
            paused: false,
            tokens: 0,
            round: 0,
        };
        let life = self.live.entry(id).or_insert(begun);
        if !life.is_of(tokens) {
            *life = begun;
        }
        life.round = self.rounds;
        life.tokens = tokens;
        let scheduled = row.scheduled == Some(true) && life.scheduled_us.is_none();
        let first_token = tokens > 0 && life.first_token_us.is_none();
        if !fresh && (scheduled || first_token) {
            // When it happened was in the rows that are lost.
            life.arrived_us = None;
        }
        if scheduled {
            life.scheduled_us = Some(span.start_us);
        }
        if first_token {
            life.first_token_us = Some(span.end_us);
        }
        let paused = row.paused == Some(true);
        if paused && !life.paused {
            round.pauses += 1;
        }
        life.paused = paused;
    }

    /// Requests being followed.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
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
    fn a_life_is_timed_from_its_rows() {
        let mut lives = Lifecycles::default();
        lives.absorb(&[], span(0));
        lives.absorb(&[row(7, RequestStage::Queued, 0)], span(1));
        lives.absorb(&[row(7, RequestStage::Context, 0)], span(2));
        lives.absorb(&[row(7, RequestStage::Generation, 1)], span(3));
        lives.absorb(&[row(7, RequestStage::Generation, 2)], span(4));
        let round = lives.absorb(&[row(7, RequestStage::Complete, 3)], span(6));
        assert_eq!(
            round.completed,
            [Life {
                id: 7,
                arrived_us: 10 * MS,
                scheduled_us: Some(20 * MS),
                first_token_us: Some(40 * MS),
                ended_us: 60 * MS,
                tokens: 3,
            }]
        );
        assert_eq!(lives.live(), 0);
    }

    #[test]
    fn a_request_met_under_way_or_after_a_loss_yields_no_latency() {
        let mut lives = Lifecycles::default();
        lives.absorb(&[row(1, RequestStage::Generation, 40)], span(0));
        lives.absorb(&[row(2, RequestStage::Generation, 9)], Span { continuous: false, ..span(5) });
        let round = lives.absorb(&[row(1, RequestStage::Complete, 50), row(2, RequestStage::Complete, 12)], span(6));
        assert!(round.completed.is_empty());
        assert!(lives.absorb(&[row(3, RequestStage::Complete, 1)], span(7)).completed.is_empty(), "never seen alive");
    }

    #[test]
    fn a_pause_counts_once_until_it_ends() {
        let mut lives = Lifecycles::default();
        let paused = |on| [RequestStats { paused: Some(on), ..row(1, RequestStage::Generation, 2) }];
        let pauses: u64 = [true, true, false, true].map(|on| lives.absorb(&paused(on), span(1)).pauses).iter().sum();
        assert_eq!(pauses, 2);
    }

    #[test]
    fn memory_is_bounded_and_what_is_never_named_again_is_forgotten() {
        let mut lives = Lifecycles::default();
        let rows: Vec<RequestStats> = (0..2 * MAX_LIVE as u64).map(|id| row(id, RequestStage::Generation, 1)).collect();
        lives.absorb(&rows, span(0));
        assert_eq!(lives.live(), MAX_LIVE);
        for iteration in 1..=2 * FORGET_AFTER as i64 {
            lives.absorb(&[], span(iteration));
        }
        assert_eq!(lives.live(), 0);
    }

    #[test]
    fn what_a_request_went_through_in_lost_iterations_has_no_time() {
        let mut lives = Lifecycles::default();
        lives.absorb(&[], span(0));
        lives.absorb(&[row(1, RequestStage::Queued, 0), row(2, RequestStage::Generation, 1)], span(1));
        let rows = [row(1, RequestStage::Generation, 30), row(2, RequestStage::Generation, 40)];
        lives.absorb(&rows, Span { continuous: false, ..span(50) });
        let round = lives.absorb(&[row(1, RequestStage::Complete, 31), row(2, RequestStage::Complete, 41)], span(51));
        assert_eq!(round.completed.iter().map(|life| life.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn fewer_tokens_than_before_are_another_request_of_the_same_id() {
        let mut lives = Lifecycles::default();
        lives.absorb(&[], span(0));
        lives.absorb(&[row(7, RequestStage::Generation, 9)], span(1));
        lives.absorb(&[row(7, RequestStage::Context, 0)], span(5));
        let round = lives.absorb(&[row(7, RequestStage::Complete, 2)], span(7));
        assert_eq!(round.completed[0].arrived_us, 50 * MS);
    }

    #[test]
    fn an_id_used_again_is_another_request() {
        let mut lives = Lifecycles::default();
        lives.absorb(&[], span(0));
        for base in [1, 11] {
            lives.absorb(&[row(7, RequestStage::Context, 0)], span(base));
            let round = lives.absorb(&[row(7, RequestStage::Complete, 1)], span(base + 2));
            assert_eq!(round.completed[0].arrived_us, base * 10 * MS);
        }
    }
}
