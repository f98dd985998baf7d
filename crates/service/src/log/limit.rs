//! Limits how often one cause is logged. Time is an argument.

use std::time::{Duration, Instant};

/// Number of lines that may be written at once.
const BURST: u32 = 5;
/// One more line is allowed after this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// The limit for the lines of one cause: a source that fails and recovers ten times a second must not fill the log.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// Lines of the burst that are used.
    used: u32,
    /// When the next used line becomes free again.
    next_free: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line may be written now.
    pub fn has_room(&mut self, now: Instant) -> bool {
        while self.used > 0
            && let Some(free) = self.next_free.filter(|free| *free <= now)
        {
            self.used -= 1;
            self.next_free = Some(free + INTERVAL);
        }
        self.used < BURST
    }

    /// If a line may be written now, returns how many lines were left out since the last one.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        if !self.has_room(now) {
            self.left_out += 1;
            return None;
        }
        if self.used == 0 {
            self.next_free = Some(now + INTERVAL);
        }
        self.used += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_at_once_and_a_flood_once_per_interval() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(limit.allow(start), Some(0));
        }
        let (mut written, mut left_out) = (0, 0);
        for tenth in 1..=1000 {
            if let Some(others) = limit.allow(start + tenth * Duration::from_millis(100)) {
                written += 1;
                left_out += others;
            }
        }
        assert_eq!((written, left_out), (10, 990), "ten more lines in a hundred seconds");
        for _ in 0..BURST {
            assert_eq!(limit.allow(start + 100 * INTERVAL), Some(0), "after a pause a whole burst is free again");
        }
        assert_eq!(limit.allow(start + 100 * INTERVAL), None);
    }
}
