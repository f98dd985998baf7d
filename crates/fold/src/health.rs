//! Decides whether the numbers of an engine are current. Time is an argument.

use std::time::{Duration, Instant};

use trtllm_records::named_variants::named_variants;

named_variants! {
    /// The state of an engine, from what its source reports.
    #[derive(Hash, Default)]
    pub enum EngineState {
        /// The source has not answered yet, or has sent no record yet.
        #[default]
        Starting = "starting",
        /// Work is outstanding and records arrive.
        Busy = "busy",
        /// The last record left no work, and the source still answers.
        Idle = "idle",
        /// Work is outstanding, and for `--stale-after` no record has arrived in which a request was scheduled.
        Stalled = "stalled",
        /// The source has not answered for `--stale-after`, or for most of that time since the last batch.
        Unreachable = "unreachable",
    }
}

impl EngineState {
    /// Whether the load gauges must be left out.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::Stalled | Self::Unreachable)
    }
}

/// Whether the last record left work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outstanding {
    #[default]
    No,
    /// The record shows work, but the count of started and completed requests shows none. While records arrive, the record is
    /// right. After two seconds without a record, the count is right.
    Doubtful,
    Yes,
}

/// The two seconds above: longer than any healthy iteration, shorter than a usual scrape interval.
pub(crate) const DOUBT: Duration = Duration::from_secs(2);

/// Requests that end without records show that the engine's statistics are off, or that another reader takes them. If a request ends at
/// most this long after the last record, records are not missing. Some ends are seen 5 s late.
const COVERED: Duration = Duration::from_secs(15);
/// The ends of old requests can all be read at once, which proves nothing. So the first and the last end must be seen at least
/// this far apart.
const APART: Duration = Duration::from_secs(10);
/// Records are missing if no record has arrived this long after the first of these ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// When the source last answered, and when the last record arrived.
#[derive(Debug, Clone, Copy, Default)]
pub struct Health {
    stale_after: Duration,
    pub last_answer: Option<Instant>,
    last_record: Option<Instant>,
    /// The last record in which the engine ran a batch or had no work.
    last_progress: Option<Instant>,
    outstanding: Outstanding,
    /// The source was unreachable and answers again, but without a record yet.
    is_back: bool,
    /// Records come only when requests change, so a time without records says nothing.
    only_changes: bool,
    /// When requests without records were first and last seen to end.
    ended: Option<(Instant, Instant)>,
}

impl Health {
    /// An engine is starting until its source answers for the first time: a model may load for half an hour.
    #[must_use]
    pub fn new(stale_after: Duration) -> Self {
        Self { stale_after, ..Self::default() }
    }

    /// The last record came from a recording: it arrived now, but has the time of the recording.
    pub fn replayed(&mut self, now: Instant) {
        self.last_answer = self.last_answer.map(|_| now);
        if self.last_progress == self.last_record {
            self.last_progress = self.last_record.map(|_| now);
        }
        self.last_record = self.last_record.map(|_| now);
    }

    /// The source answered, with or without records. Report the records of this answer before this call.
    pub fn answered(&mut self, now: Instant) {
        let was_away = self.last_answer.is_some_and(|last| now.saturating_duration_since(last) >= self.stale_after);
        self.is_back |= was_away && self.last_record <= self.last_answer;
        self.last_answer = Some(now);
    }

    /// A record arrived. `progress`: the engine ran a batch, or has no work. Some engines report iterations without a batch
    /// while their requests cannot continue.
    pub fn record(&mut self, now: Instant, outstanding: Outstanding, progress: bool) {
        // A poll that fails later has had an answer, too.
        self.last_answer = self.last_answer.max(Some(now));
        self.last_record = Some(now);
        if progress || self.outstanding != Outstanding::Yes || self.is_back {
            self.last_progress = Some(now);
        }
        self.outstanding = outstanding;
        (self.is_back, self.only_changes, self.ended) = (false, false, None);
    }

    /// A record arrived from an engine that sends one only when a request comes, starts or ends. A video takes minutes.
    pub fn changed(&mut self, now: Instant, outstanding: Outstanding) {
        self.record(now, outstanding, true);
        self.only_changes = true;
    }

    /// For a source that sends finished requests but no records. The engine is busy for a moment after a request has ended.
    pub fn requests_ended(&mut self, now: Instant, any: bool) {
        if any || self.last_record.is_none() {
            self.record(now, if any { Outstanding::Doubtful } else { Outstanding::No }, true);
        }
    }

    /// Requests have ended, as something else than records tells.
    pub(crate) fn ended_without_record(&mut self, now: Instant) {
        if self.last_record.is_none() || self.silent(now) > COVERED {
            self.ended = Some((self.ended.map_or(now, |(first, _)| first), now));
        }
    }

    /// Whether requests end while no records arrive.
    #[must_use]
    pub fn records_are_missing(&self, now: Instant) -> bool {
        self.ended.is_some_and(|(first, last)| {
            last.saturating_duration_since(first) >= APART && now.saturating_duration_since(first) >= PATIENCE
        })
    }

    /// Time since the last record.
    #[must_use]
    pub fn silent(&self, now: Instant) -> Duration {
        self.last_record.map_or(Duration::ZERO, |last| now.saturating_duration_since(last))
    }

    /// Corrects whether the last record left work, by what was read after it.
    pub fn set_outstanding(&mut self, outstanding: Outstanding) {
        self.outstanding = outstanding;
    }

    #[must_use]
    pub fn state(&self, now: Instant) -> EngineState {
        let Some(last_answer) = self.last_answer else { return EngineState::Starting };
        if now.saturating_duration_since(last_answer) >= self.stale_after {
            return EngineState::Unreachable;
        }
        if self.last_record.is_none() {
            return EngineState::Starting;
        }
        let silent = self.silent(now);
        let last_progress = self.last_progress.or(self.last_record).unwrap_or(last_answer);
        let without_progress = now.saturating_duration_since(last_progress);
        let answered_without_progress = last_answer.saturating_duration_since(last_progress);
        match self.outstanding {
            Outstanding::No => EngineState::Idle,
            // The server has probably restarted, so the work of the last record is lost, and nothing is stalled.
            _ if self.is_back => EngineState::Idle,
            Outstanding::Doubtful if silent >= DOUBT => EngineState::Idle,
            Outstanding::Yes if without_progress >= self.stale_after && !self.only_changes => {
                // An engine that ends is not stalled for the moment between its last batch and its last answer.
                match 2 * answered_without_progress >= self.stale_after {
                    true => EngineState::Stalled,
                    false => EngineState::Unreachable,
                }
            }
            Outstanding::Doubtful | Outstanding::Yes => EngineState::Busy,
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
    fn a_server_that_restarts_with_requests_outstanding_is_idle_until_its_next_record() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::Yes, true);
        health.answered(start);
        assert_eq!(health.state(at(start, 600)), EngineState::Unreachable, "it loads its model");
        health.answered(at(start, 600));
        health.answered(at(start, 610));
        assert_eq!(health.state(at(start, 620)), EngineState::Idle);
        health.record(at(start, 620), Outstanding::Yes, true);
        health.answered(at(start, 630));
        assert_eq!(health.state(at(start, 640)), EngineState::Stalled, "new work hangs");
    }

    #[test]
    fn a_server_that_comes_back_with_a_record_has_the_work_of_that_record() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::Yes, true);
        health.answered(start);
        health.record(at(start, 60), Outstanding::Yes, true);
        health.answered(at(start, 60));
        assert_eq!(health.state(at(start, 61)), EngineState::Busy);
        health.answered(at(start, 70));
        assert_eq!(health.state(at(start, 75)), EngineState::Stalled);
    }

    #[test]
    fn an_engine_that_sends_only_changes_is_busy_until_the_next_change() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.changed(start, Outstanding::Yes);
        (0..=60).for_each(|poll| health.answered(at(start, 10 * poll)));
        assert_eq!(health.state(at(start, 600)), EngineState::Busy);
        assert_eq!(health.state(at(start, 620)), EngineState::Unreachable, "its server does not answer");
        health.answered(at(start, 621));
        health.changed(at(start, 621), Outstanding::No);
        assert_eq!(health.state(at(start, 622)), EngineState::Idle);
        // Control: an engine that sends a record for each batch.
        health.record(at(start, 630), Outstanding::Yes, true);
        health.answered(at(start, 640));
        health.answered(at(start, 650));
        assert_eq!(health.state(at(start, 650)), EngineState::Stalled);
    }

    #[test]
    fn an_idle_engine_that_answers_is_never_stale() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::No, true);
        health.answered(at(start, 3600));
        assert_eq!(health.state(at(start, 3601)), EngineState::Idle);
    }

    #[test]
    fn records_in_which_nothing_runs_are_stalled_after_the_window() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::Yes, true);
        for second in 1..15 {
            health.answered(at(start, second));
            health.record(at(start, second), Outstanding::Yes, false);
            assert_eq!(health.state(at(start, second)), EngineState::Busy, "after {second} s");
        }
        health.answered(at(start, 16));
        health.record(at(start, 15), Outstanding::Yes, false);
        assert_eq!(health.state(at(start, 15)), EngineState::Stalled);
        health.record(at(start, 16), Outstanding::Yes, true);
        assert_eq!(health.state(at(start, 16)), EngineState::Busy, "its requests continue");
        health.record(at(start, 17), Outstanding::No, true);
        health.answered(at(start, 100));
        health.record(at(start, 100), Outstanding::Yes, false);
        assert_eq!(health.state(at(start, 100)), EngineState::Busy, "new work after a time without any");
    }

    #[test]
    fn outstanding_work_without_records_is_stalled_after_the_window() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::Yes, true);
        health.answered(at(start, 14));
        assert_eq!(health.state(at(start, 14)), EngineState::Busy);
        health.answered(at(start, 15));
        assert_eq!(health.state(at(start, 15)), EngineState::Stalled);
        health.record(at(start, 16), Outstanding::Yes, true);
        assert_eq!(health.state(at(start, 16)), EngineState::Busy);
    }

    #[test]
    fn an_engine_that_ends_while_it_works_is_unreachable_and_never_stalled() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::Yes, true);
        health.answered(start + Duration::from_millis(3));
        assert_eq!(health.state(at(start, 14)), EngineState::Busy);
        for millis in [15_000, 15_001, 15_003] {
            assert_eq!(health.state(start + Duration::from_millis(millis)), EngineState::Unreachable);
        }
    }

    #[test]
    fn a_source_whose_polls_fail_after_some_records_answers() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        for second in 0..60 {
            health.record(at(start, second), Outstanding::Yes, true);
            assert_eq!(health.state(at(start, second)), EngineState::Busy, "after {second} s");
        }
    }

    #[test]
    fn a_source_that_stops_answering_is_unreachable_even_if_it_was_idle() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        health.record(start, Outstanding::No, true);
        health.answered(start);
        assert_eq!(health.state(at(start, 14)), EngineState::Idle);
        assert_eq!(health.state(at(start, 15)), EngineState::Unreachable);
        health.answered(at(start, 20));
        assert_eq!(health.state(at(start, 20)), EngineState::Idle);
    }

    #[test]
    fn a_source_that_never_answered_is_starting_however_long_that_takes() {
        let start = Instant::now();
        let mut health = Health::new(STALE);
        assert_eq!(health.state(at(start, 3600)), EngineState::Starting);
        health.answered(at(start, 3600));
        assert_eq!(health.state(at(start, 3600)), EngineState::Starting, "no record yet");
        assert_eq!(health.state(at(start, 3615)), EngineState::Unreachable);
    }

    #[test]
    fn records_are_missing_once_requests_end_for_half_a_minute_without_any() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut missing = Health::new(STALE);
        missing.record(at(0), Outstanding::No, true);
        // The ends of the last requests are read a little later than their records. Then the engine is idle.
        missing.ended_without_record(at(5));
        missing.ended_without_record(at(15));
        assert!(!missing.records_are_missing(at(600)));
        for seconds in [600, 605, 612] {
            missing.ended_without_record(at(seconds));
        }
        assert!(!missing.records_are_missing(at(629)));
        assert!(missing.records_are_missing(at(630)));
        missing.record(at(631), Outstanding::No, true);
        assert!(!missing.records_are_missing(at(700)));
    }

    #[test]
    fn requests_that_ended_before_the_exporter_started_prove_nothing() {
        let start = Instant::now();
        let mut missing = Health::new(STALE);
        missing.ended_without_record(start);
        missing.ended_without_record(start + Duration::from_secs(1));
        assert!(!missing.records_are_missing(start + Duration::from_secs(3600)));
    }
}
