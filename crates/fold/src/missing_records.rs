//! Notices requests that end while no records arrive. The cause is that the engine's statistics are off, or that
//! another reader takes them.

use std::time::{Duration, Instant};

/// If a request ends at most this long after the last record, records are not missing. Some ends are seen 5 s late.
const COVERED: Duration = Duration::from_secs(15);
/// The ends of old requests can all be read at once, which proves nothing. So the first and the last end must be seen at least
/// this far apart.
const APART: Duration = Duration::from_secs(10);
/// Records are missing if no record has arrived this long after the first of these ends.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default)]
pub(super) struct MissingRecords {
    last_record: Option<Instant>,
    /// When requests without records were first and last seen to end.
    ended: Option<(Instant, Instant)>,
}

impl MissingRecords {
    pub(super) fn record(&mut self, now: Instant) {
        *self = Self { last_record: Some(now), ended: None };
    }

    pub(super) fn requests_ended(&mut self, now: Instant) {
        if self.last_record.is_none_or(|last| now.saturating_duration_since(last) > COVERED) {
            self.ended = Some((self.ended.map_or(now, |(first, _)| first), now));
        }
    }

    pub(super) fn are_missing(&self, now: Instant) -> bool {
        self.ended.is_some_and(|(first, last)| {
            last.saturating_duration_since(first) >= APART && now.saturating_duration_since(first) >= PATIENCE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_missing_once_requests_end_for_half_a_minute_without_any() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut missing = MissingRecords::default();
        missing.record(at(0));
        // The ends of the last requests are read a little later than their records. Then the engine is idle.
        missing.requests_ended(at(5));
        missing.requests_ended(at(15));
        assert!(!missing.are_missing(at(600)));
        for seconds in [600, 605, 612] {
            missing.requests_ended(at(seconds));
        }
        assert!(!missing.are_missing(at(629)));
        assert!(missing.are_missing(at(630)));
        missing.record(at(631));
        assert!(!missing.are_missing(at(700)));
    }

    #[test]
    fn requests_that_ended_before_the_exporter_started_prove_nothing() {
        let start = Instant::now();
        let mut missing = MissingRecords::default();
        missing.requests_ended(start);
        missing.requests_ended(start + Duration::from_secs(1));
        assert!(!missing.are_missing(start + Duration::from_secs(3600)));
    }
}
