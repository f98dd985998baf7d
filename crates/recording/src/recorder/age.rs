//! The ages of segments. A wall clock that is wrong for a moment must not delete a recording.

use std::time::{Duration, Instant, SystemTime};

use crate::directory::Segment;

/// A larger difference between the two clocks means that the wall clock was set.
const CLOCK_JUMP: Duration = Duration::from_secs(60);
/// How long the wall clock must run without being set before segments of earlier processes are deleted by it.
const TRUSTED_AFTER: Duration = Duration::from_secs(3600);

/// A complete segment.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) segment: Segment,
    /// When this process closed it. `None` if an earlier process wrote it, so that only the wall clock tells its age.
    pub(super) closed: Option<Instant>,
}

/// Compares the wall clock with the monotonic clock.
#[derive(Debug)]
pub(super) struct WallClock {
    at: Instant,
    wall: SystemTime,
}

impl WallClock {
    pub(super) fn new(now: Instant, wall: SystemTime) -> Self {
        Self { at: now, wall }
    }

    /// Notes what the wall clock shows.
    pub(super) fn observe(&mut self, now: Instant, wall: SystemTime) {
        let expected = self.wall + now.saturating_duration_since(self.at);
        let difference = wall.duration_since(expected).unwrap_or_else(|error| error.duration());
        if difference > CLOCK_JUMP {
            *self = Self::new(now, wall);
        }
    }

    /// Whether the segment is older than `most`. `now`: the time of the last observation.
    pub(super) fn is_older(&self, segment: &Closed, most: Duration, now: Instant) -> bool {
        if let Some(closed) = segment.closed {
            return now.saturating_duration_since(closed) > most;
        }
        let steady = now.saturating_duration_since(self.at);
        // A segment with a time in the future was written under a wrong clock. Its age counts from the last time the clock was set.
        let before = self.wall.duration_since(segment.segment.written).unwrap_or_default();
        steady >= TRUSTED_AFTER.min(most / 8) && before + steady > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3600);

    /// A segment that was written at this time, by this process or an earlier one.
    fn segment(written: SystemTime, closed: Option<Instant>) -> Closed {
        let segment = Segment { number: 1, path: "s".into(), bytes: 1, written };
        Closed { segment, closed }
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_moment_deletes_nothing_and_old_segments_go_later() {
        let (start, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + 20_000 * DAY);
        let (young, old) = (segment(wall - HOUR, None), segment(wall - 8 * DAY, None));
        let (own, week) = (segment(wall, Some(start)), 7 * DAY);
        for wrong in [wall + 400 * DAY, wall - 400 * DAY, SystemTime::UNIX_EPOCH] {
            // Wrong while the process runs, or at its start.
            for mut clock in [WallClock::new(start, wall), WallClock::new(start, wrong)] {
                for (second, shown) in [(1, wrong), (30, wrong), (60, wall)] {
                    let now = start + Duration::from_secs(second);
                    clock.observe(now, shown);
                    let any = [&young, &old, &own].into_iter().any(|segment| clock.is_older(segment, week, now));
                    assert!(!any, "after {second} s");
                }
                let later = start + 2 * HOUR;
                clock.observe(later, wall + 2 * HOUR);
                let older = [&young, &old, &own].map(|segment| clock.is_older(segment, week, later));
                assert_eq!(older, [false, true, false]);
                let later = start + 7 * DAY + HOUR;
                clock.observe(later, wall + 7 * DAY + HOUR);
                assert!([&young, &old, &own].into_iter().all(|segment| clock.is_older(segment, week, later)));
            }
        }
    }

    #[test]
    fn a_segment_from_the_future_is_deleted_after_the_longest_age() {
        let (start, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + 20_000 * DAY);
        let (clock, future) = (WallClock::new(start, wall), segment(wall + 400 * DAY, None));
        assert!(!clock.is_older(&future, DAY, start + DAY));
        assert!(clock.is_older(&future, DAY, start + DAY + HOUR));
    }
}
