//! Counts that the engine accumulates itself, turned into increases that never fall.

/// One cumulative count of the engine (KV blocks allocated, reused, missed).
#[derive(Debug, Clone, Copy)]
pub struct Cumulative {
    last: Option<i64>,
}

impl Cumulative {
    /// A count of an engine met running.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { last: None }
    }

    /// A count whose engine starts while we watch: its first value is an increase from 0.
    #[must_use]
    pub const fn from_zero() -> Self {
        Self { last: Some(0) }
    }

    /// How much `value` adds. The first value of an engine met running is only a baseline: what it counted before, the
    /// PyTorch backend's warm-up included (upstream PR 12132), is not ours to report.
    pub fn increase(&mut self, value: Option<i64>) -> u64 {
        let Some(value) = value else { return 0 };
        match self.last.replace(value) {
            None => 0,
            Some(last) if value >= last => value.abs_diff(last),
            // The executor narrows a size_t to 32 bits: past 2^31 − 1 the count goes on from −2^31.
            Some(last) if last > 1 << 30 && value < -(1 << 30) => (value + (1 << 32)).abs_diff(last),
            // Anything else that falls is a new cache.
            Some(_) => u64::try_from(value).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_met_running_gives_a_baseline_not_an_increase() {
        let mut count = Cumulative::unknown();
        assert_eq!(count.increase(Some(5000)), 0);
        assert_eq!(count.increase(Some(5007)), 7);
        assert_eq!(count.increase(None), 0);
        assert_eq!(count.increase(Some(5008)), 1);
    }

    #[test]
    fn a_count_that_falls_is_a_new_cache() {
        let mut count = Cumulative::from_zero();
        assert_eq!(count.increase(Some(100)), 100);
        assert_eq!(count.increase(Some(3)), 3);
    }

    #[test]
    fn a_count_narrowed_to_32_bits_goes_on_past_its_sign() {
        let mut count = Cumulative::from_zero();
        count.increase(Some(i64::from(i32::MAX) - 1));
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 1)), 3);
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 5)), 4);
    }
}
