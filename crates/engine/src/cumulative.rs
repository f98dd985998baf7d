//! Turns counts that the engine accumulates itself into increases, so that totals never fall.

use trtllm_model::iteration::KvCacheStats;

/// One cumulative count of the engine, e.g. of KV cache blocks allocated, reused or missed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cumulative {
    last: Option<i64>,
}

impl Cumulative {
    /// The count of an engine that was running before the exporter started.
    pub(crate) const fn unknown() -> Self {
        Self { last: None }
    }

    /// The count of an engine that starts while the exporter runs. Its first value is an increase from 0.
    pub(crate) const fn from_zero() -> Self {
        Self { last: Some(0) }
    }

    /// The increase that `value` adds. The first value of an engine that was already running is only a baseline, so earlier
    /// counts are left out, e.g. those of the PyTorch backend's warm-up (upstream PR 12132).
    pub(crate) fn increase(&mut self, value: Option<i64>) -> u64 {
        let Some(value) = value else { return 0 };
        match self.last.replace(value) {
            None => 0,
            Some(last) if value >= last => value.abs_diff(last),
            Some(last) if is_overflow(last, value) => (value + (1 << 32)).abs_diff(last),
            // Any other lower value is from a new cache.
            Some(_) => u64::try_from(value).unwrap_or(0),
        }
    }

    /// Whether `value` is from another count: one that began later than this one.
    pub(crate) fn falls(&self, value: Option<i64>) -> bool {
        self.last.zip(value).is_some_and(|(last, value)| value < last && !is_overflow(last, value))
    }
}

/// Increase of the cumulative KV cache counts, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvIncrease {
    pub allocated: u64,
    pub newly_allocated: u64,
    pub reused: u64,
    pub missed: u64,
}

/// The cumulative counts of one KV cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvCounts {
    allocated: Cumulative,
    newly_allocated: Cumulative,
    reused: Cumulative,
    missed: Cumulative,
}

impl KvCounts {
    pub(crate) const fn all(count: Cumulative) -> Self {
        Self { allocated: count, newly_allocated: count, reused: count, missed: count }
    }

    /// Whether any count is below its last value.
    pub(crate) fn fall(&self, stats: &KvCacheStats) -> bool {
        self.allocated.falls(stats.alloc_total_blocks)
            || self.newly_allocated.falls(stats.alloc_new_blocks)
            || self.reused.falls(stats.reused_blocks)
            || self.missed.falls(stats.missed_blocks)
    }

    /// The increases that `stats` adds.
    pub(crate) fn increase(&mut self, stats: &KvCacheStats) -> KvIncrease {
        KvIncrease {
            allocated: self.allocated.increase(stats.alloc_total_blocks),
            newly_allocated: self.newly_allocated.increase(stats.alloc_new_blocks),
            reused: self.reused.increase(stats.reused_blocks),
            missed: self.missed.increase(stats.missed_blocks),
        }
    }
}

/// The executor narrows a size_t to 32 bits: after 2^31 − 1 the count continues at −2^31.
fn is_overflow(last: i64, value: i64) -> bool {
    last > 1 << 30 && value < -(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_running_engine_is_a_baseline_not_an_increase() {
        let mut count = Cumulative::unknown();
        assert_eq!(count.increase(Some(5000)), 0);
        assert_eq!(count.increase(Some(5007)), 7);
        assert_eq!(count.increase(None), 0);
        assert_eq!(count.increase(Some(5008)), 1);
    }

    #[test]
    fn a_lower_count_comes_from_a_new_cache() {
        let mut count = Cumulative::from_zero();
        assert_eq!(count.increase(Some(100)), 100);
        assert_eq!(count.increase(Some(3)), 3);
    }

    #[test]
    fn a_count_narrowed_to_32_bits_continues_after_its_overflow() {
        let mut count = Cumulative::from_zero();
        count.increase(Some(i64::from(i32::MAX) - 1));
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 1)), 3);
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 5)), 4);
    }
}
