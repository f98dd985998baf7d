//! Turns counts that the engine accumulates itself into increases, so that totals never fall.

use trtllm_records::iteration::KvCacheStats;

use super::saturating::{add, unsigned};

/// One cumulative count of the engine, e.g. of KV cache blocks allocated, reused or missed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cumulative {
    last: Option<i64>,
}

impl Cumulative {
    /// `from_start`: the engine starts while the exporter runs, so the first value is an increase from 0.
    pub(crate) fn new(from_start: bool) -> Self {
        Self { last: from_start.then_some(0) }
    }

    /// The increase to `value`. The first value of an engine that was already running is only a baseline, so earlier counts are
    /// left out, e.g. those of the PyTorch backend's warm-up (upstream PR 12132).
    pub(crate) fn increase(&mut self, value: Option<i64>) -> u64 {
        let Some(value) = value else { return 0 };
        match self.last.replace(value) {
            None => 0,
            Some(last) if value >= last => value.abs_diff(last),
            Some(last) if is_overflow(last, value) => (value + (1 << 32)).abs_diff(last),
            // The count of a new cache began at 0.
            Some(_) => unsigned(value),
        }
    }

    /// The engine's own count. Absent before the first value.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last.map(unsigned)
    }

    /// Whether `value` is smaller than the last one, so the engine's count was reset.
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

impl KvIncrease {
    pub(crate) fn add(&mut self, more: &Self) {
        add(&mut self.allocated, more.allocated);
        add(&mut self.newly_allocated, more.newly_allocated);
        add(&mut self.reused, more.reused);
        add(&mut self.missed, more.missed);
    }
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
    pub(crate) fn new(from_start: bool) -> Self {
        let count = Cumulative::new(from_start);
        Self { allocated: count, newly_allocated: count, reused: count, missed: count }
    }

    /// Whether any count is below its last value.
    pub(crate) fn fall(&self, stats: &KvCacheStats) -> bool {
        self.allocated.falls(stats.alloc_total_blocks)
            || self.newly_allocated.falls(stats.alloc_new_blocks)
            || self.reused.falls(stats.reused_blocks)
            || self.missed.falls(stats.missed_blocks)
    }

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
        let mut count = Cumulative::default();
        assert_eq!(count.increase(Some(5000)), 0);
        assert_eq!(count.increase(Some(5007)), 7);
        assert_eq!(count.increase(None), 0);
        assert_eq!(count.increase(Some(5008)), 1);
    }

    #[test]
    fn a_lower_count_comes_from_a_new_cache() {
        let mut count = Cumulative::new(true);
        assert_eq!(count.increase(Some(100)), 100);
        assert_eq!(count.increase(Some(3)), 3);
    }

    #[test]
    fn a_count_narrowed_to_32_bits_continues_after_its_overflow() {
        let mut count = Cumulative::new(true);
        count.increase(Some(i64::from(i32::MAX) - 1));
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 1)), 3);
        assert_eq!(count.increase(Some(i64::from(i32::MIN) + 5)), 4);
    }
}
