//! Whether an engine's numbers speak of the present. Time is an argument; the rules are the contract's section 5.

use std::time::{Duration, Instant};

/// What the engine is doing, as far as its source tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineState {
    /// No record yet.
    Starting,
    /// Work is outstanding and records come.
    Busy,
    /// The last record left nothing outstanding and the source still answers.
    Idle,
    /// Work is outstanding and no record has come for `--stale-after`.
    Stalled,
    /// The source has not answered for `--stale-after`.
    Unreachable,
}

impl EngineState {
    pub const ALL: [Self; 5] = [Self::Starting, Self::Busy, Self::Idle, Self::Stalled, Self::Unreachable];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Busy => "busy",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Unreachable => "unreachable",
        }
    }

    /// Whether load gauges must leave the page.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::Stalled | Self::Unreachable)
    }
}

/// When the engine was last heard of.
#[derive(Debug, Clone, Copy)]
pub struct Health {
    stale_after: Duration,
    last_answer: Instant,
    last_record: Option<Instant>,
    outstanding: bool,
}

impl Health {
    /// A source gets `--stale-after` from its start to answer for the first time.
    #[must_use]
    pub const fn new(now: Instant, stale_after: Duration) -> Self {
        Self { stale_after, last_answer: now, last_record: None, outstanding: false }
    }

    /// The source answered, with or without records.
    pub fn answered(&mut self, now: Instant) {
        self.last_answer = now;
    }

    /// A record came and left work outstanding or not.
    pub fn record(&mut self, now: Instant, outstanding: bool) {
        self.last_record = Some(now);
        self.outstanding = outstanding;
    }

    /// Nothing is outstanding any more, whatever the last record said.
    pub fn finish(&mut self) {
        self.outstanding = false;
    }

    #[must_use]
    pub fn state(&self, now: Instant) -> EngineState {
        if now.saturating_duration_since(self.last_answer) >= self.stale_after {
            return EngineState::Unreachable;
        }
        match self.last_record {
            None => EngineState::Starting,
            Some(_) if !self.outstanding => EngineState::Idle,
            Some(last) if now.saturating_duration_since(last) >= self.stale_after => EngineState::Stalled,
            Some(_) => EngineState::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(15);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn an_idle_engine_that_answers_is_never_stale() {
        let start = Instant::now();
        let mut health = Health::new(start, STALE);
        health.record(start, false);
        health.answered(at(start, 3600));
        assert_eq!(health.state(at(start, 3601)), EngineState::Idle);
    }

    #[test]
    fn outstanding_work_without_records_is_stalled_after_the_window() {
        let start = Instant::now();
        let mut health = Health::new(start, STALE);
        health.record(start, true);
        health.answered(at(start, 14));
        assert_eq!(health.state(at(start, 14)), EngineState::Busy);
        health.answered(at(start, 15));
        assert_eq!(health.state(at(start, 15)), EngineState::Stalled);
        health.record(at(start, 16), true);
        assert_eq!(health.state(at(start, 16)), EngineState::Busy);
    }

    #[test]
    fn a_source_that_stops_answering_is_unreachable_even_if_it_was_idle() {
        let start = Instant::now();
        let mut health = Health::new(start, STALE);
        health.record(start, false);
        health.answered(start);
        assert_eq!(health.state(at(start, 14)), EngineState::Idle);
        assert_eq!(health.state(at(start, 15)), EngineState::Unreachable);
        health.answered(at(start, 20));
        assert_eq!(health.state(at(start, 20)), EngineState::Idle);
    }

    #[test]
    fn a_source_that_never_answered_is_starting_then_unreachable() {
        let start = Instant::now();
        let health = Health::new(start, STALE);
        assert_eq!(health.state(at(start, 14)), EngineState::Starting);
        assert_eq!(health.state(at(start, 15)), EngineState::Unreachable);
    }
}
