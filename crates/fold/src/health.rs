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
        // A record is an answer, so it has ended the absence already.
        self.is_back |= self.last_answer.is_some_and(|last| now.saturating_duration_since(last) >= self.stale_after);
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

    /// What happened after a number of seconds. `Ran`, `Stuck`, `Done`: a record of a batch, of work without a batch, and of no work.
    #[derive(Clone, Copy)]
    enum Event {
        Ran(u64),
        Stuck(u64),
        Done(u64),
        Changed(u64, Outstanding),
        Answered(u64),
    }

    #[test]
    fn the_state_follows_from_the_answers_and_the_last_records() {
        use EngineState::{Busy, Idle, Stalled, Starting, Unreachable};
        use Event::{Answered, Changed, Done, Ran, Stuck};
        let polls = || (0..=60).map(|poll| Answered(10 * poll));
        let changes = || [Changed(0, Outstanding::Yes)].into_iter().chain(polls()).collect::<Vec<_>>();
        let stuck = |end| [Ran(0)].into_iter().chain((1..end).flat_map(|at| [Answered(at), Stuck(at)]));
        let long_stuck = || stuck(15).chain([Answered(16), Stuck(15)]).collect::<Vec<_>>();
        let cases = [
            ("a server is starting until its first answer", vec![], 3600, Starting),
            ("and until its first record", vec![Answered(3600)], 3600, Starting),
            ("it stops answering without a record", vec![Answered(3600)], 3615, Unreachable),
            ("an idle engine answers", vec![Done(0), Answered(3600)], 3601, Idle),
            ("an idle engine has answered", vec![Done(0), Answered(0)], 14, Idle),
            ("an idle engine stops answering", vec![Done(0), Answered(0)], 15, Unreachable),
            ("an idle engine is back", vec![Done(0), Answered(0), Answered(20)], 20, Idle),
            ("polls fail after some records", (0..60).map(Ran).collect(), 59, Busy),
            ("no record for 14 s", vec![Ran(0), Answered(14)], 14, Busy),
            ("no record for 15 s", vec![Ran(0), Answered(14), Answered(15)], 15, Stalled),
            ("the next record", vec![Ran(0), Answered(14), Answered(15), Ran(16)], 16, Busy),
            ("a server loads its model again", vec![Ran(0), Answered(0)], 600, Unreachable),
            ("it has lost its work", vec![Ran(0), Answered(0), Answered(600), Answered(610)], 620, Idle),
            ("its new work hangs", vec![Ran(0), Answered(0), Answered(600), Ran(620), Answered(630)], 640, Stalled),
            ("it is back with a record", vec![Ran(0), Answered(0), Ran(60), Answered(60)], 61, Busy),
            ("its work hangs", vec![Ran(0), Answered(0), Ran(60), Answered(60), Answered(70)], 75, Stalled),
            ("only changes are sent", changes(), 600, Busy),
            ("its server does not answer", changes(), 620, Unreachable),
            ("the next change", [changes(), vec![Answered(621), Changed(621, Outstanding::No)]].concat(), 622, Idle),
            (
                "a record of each batch",
                [changes(), vec![Ran(630), Answered(640), Answered(650)]].concat(),
                650,
                Stalled,
            ),
            ("nothing runs for 1 s", stuck(2).collect(), 1, Busy),
            ("nothing runs for 14 s", stuck(15).collect(), 14, Busy),
            ("nothing runs for 15 s", long_stuck(), 15, Stalled),
            ("its requests continue", [long_stuck(), vec![Ran(16)]].concat(), 16, Busy),
            (
                "new work after idle",
                [long_stuck(), vec![Done(17), Answered(30), Answered(44), Stuck(45)]].concat(),
                45,
                Busy,
            ),
        ];
        let start = Instant::now();
        for (name, events, seconds, expected) in cases {
            let mut health = Health::new(STALE);
            for event in events {
                match event {
                    Ran(seconds) => health.record(at(start, seconds), Outstanding::Yes, true),
                    Stuck(seconds) => health.record(at(start, seconds), Outstanding::Yes, false),
                    Done(seconds) => health.record(at(start, seconds), Outstanding::No, true),
                    Changed(seconds, outstanding) => health.changed(at(start, seconds), outstanding),
                    Answered(seconds) => health.answered(at(start, seconds)),
                }
            }
            assert_eq!(health.state(at(start, seconds)), expected, "{name}");
        }
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
