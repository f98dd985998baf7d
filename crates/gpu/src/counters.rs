//! The cumulative counters of one GPU. A wrong reading would stay in a total for good, so only what the GPU can have counted
//! since the last reading is added. Pure: the time is an argument.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::fields::{NvmlField, field};
use super::limits::{CounterKind, ENERGY_MILLIJOULES};

/// If wrong readings last longer than this, the counter has restarted.
const LONGEST_ERROR: Duration = Duration::from_secs(60);
pub(super) const ENERGY: NvmlField = field("total_energy_consumption", 0).counter(ENERGY_MILLIJOULES);

/// The counters of each GPU, by UUID, while no worker reads it: they outlast the session of NVML.
pub(super) type CountersOfGpus = Arc<Mutex<HashMap<String, Counters>>>;

#[derive(Debug, Default)]
pub(super) struct Counters(HashMap<NvmlField, Counter>);

impl Counters {
    /// The GPU was identified again. If its driver was reloaded, its counters start at 0.
    pub(super) fn expect_restart(&mut self) {
        self.0.values_mut().for_each(|counter| counter.may_restart = true);
    }

    /// Energy used in joules since this exporter first read the counter. `None` before that. Exact to a millijoule up to 2^53 mJ:
    /// 280 years at 1 kW.
    pub(super) fn energy_joules(&self) -> Option<f64> {
        Some(self.0.get(&ENERGY)?.last?.total as f64 / 1000.0)
    }

    /// The total of a counter after this reading. `None` if the reading is impossible. Then the total stays as it is.
    pub(super) fn total(&mut self, counter: NvmlField, reading: u64, at: Duration, kind: CounterKind) -> Option<u64> {
        self.0.entry(counter).or_default().total(reading, at, kind)
    }
}

#[derive(Debug, Default)]
struct Counter {
    last: Option<Point>,
    /// The last reading before the counter jumped. If it returns there, the readings in between were wrong.
    before_jump: Option<Point>,
    may_restart: bool,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    reading: u64,
    at: Duration,
    total: u64,
}

impl Counter {
    /// The total after this reading. `None` if the reading is impossible. Then the total stays as it is.
    fn total(&mut self, reading: u64, at: Duration, kind: CounterKind) -> Option<u64> {
        if reading > kind.highest() {
            return None;
        }
        let may_restart = mem::take(&mut self.may_restart);
        self.before_jump.take_if(|before| at.saturating_sub(before.at) > LONGEST_ERROR);
        let Some(last) = self.last else {
            let total = if kind.since_exporter { 0 } else { reading };
            self.last = Some(Point { reading, at, total });
            return Some(total);
        };
        let from = |point: Point| {
            let rise = kind.rise(point.reading, reading, at.saturating_sub(point.at))?;
            Some(point.total.saturating_add(rise))
        };
        // A counter of 32 bits that has restarted has not wrapped.
        let has_restarted = may_restart && reading < last.reading;
        let restarted = || has_restarted.then_some(if kind.since_exporter { last.total } else { reading });
        let continued = from(last).filter(|_| !has_restarted);
        // If the reading continues both, it counts from where less was added.
        let returned = self.before_jump.and_then(from);
        let total = continued.into_iter().chain(returned).min().map(|total| total.max(last.total)).or_else(restarted);
        if returned.is_some() {
            self.before_jump = None;
        }
        if total.is_none() {
            self.before_jump.get_or_insert(last);
        }
        self.last = Some(Point { reading, at, total: total.unwrap_or(last.total) });
        total
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{ERRORS, NVLINK_KIB, PCIE_REPLAYS, THROTTLE_NANOSECONDS};
    use super::*;

    /// The totals after these readings, one per second.
    fn totals(kind: CounterKind, readings: &[u64]) -> Vec<Option<u64>> {
        let mut counter = Counter::default();
        (0..).zip(readings).map(|(second, read)| counter.total(*read, Duration::from_secs(second), kind)).collect()
    }

    #[test]
    fn a_counter_rises_by_what_was_read() {
        assert_eq!(totals(ERRORS, &[7, 7, 9]), [Some(7), Some(7), Some(9)]);
        assert_eq!(totals(ENERGY_MILLIJOULES, &[7_000, 7_000, 9_500]), [Some(0), Some(0), Some(2_500)]);
    }

    #[test]
    fn a_wrong_reading_is_absent_and_changes_no_total_even_if_it_lasts_for_some_polls() {
        const TRUE: u64 = 22_543_283_000_000;
        for wrong in [200_000, 0, TRUE - 1, TRUE * 2, u64::MAX - 1, u64::MAX] {
            for polls in 1..=4 {
                let mut readings = vec![TRUE, TRUE + 700_000];
                readings.extend(vec![wrong; polls]);
                readings.push(TRUE + 1_400_000);
                let totals = totals(ENERGY_MILLIJOULES, &readings);
                assert_eq!(totals[2], None, "{wrong}");
                assert!(totals[3..].iter().flatten().all(|total| *total <= 1_400_000), "{wrong}: {totals:?}");
                assert_eq!(totals.last(), Some(&Some(1_400_000)), "{wrong} for {polls} polls");
            }
        }
    }

    #[test]
    fn no_counter_rises_by_more_than_the_device_can() {
        for kind in [ENERGY_MILLIJOULES, THROTTLE_NANOSECONDS, NVLINK_KIB, ERRORS, PCIE_REPLAYS] {
            // 1 is an impossible fall, and its neighbours are impossible rises.
            let high = kind.highest();
            let readings = [5, high, high, 6, high / 2, 1, high, 1, 1, 7, high, high, high, 8];
            let totals: Vec<u64> = totals(kind, &readings).into_iter().flatten().collect();
            assert!(totals.is_sorted(), "{totals:?}");
            assert!(totals.last() < Some(&100), "{totals:?}");
        }
    }

    #[test]
    fn a_first_reading_with_all_bits_set_is_absent() {
        for kind in [ENERGY_MILLIJOULES, THROTTLE_NANOSECONDS, NVLINK_KIB, ERRORS] {
            assert_eq!(totals(kind, &[u64::MAX, 5])[0], None, "{kind:?}");
        }
        assert_eq!(totals(PCIE_REPLAYS, &[u64::from(u32::MAX), 5]), [None, Some(5)]);
    }

    #[test]
    fn a_counter_of_32_bits_is_extended() {
        let high = u64::from(u32::MAX);
        assert_eq!(totals(PCIE_REPLAYS, &[high - 9, 10, 30]), [Some(high - 9), Some(high + 11), Some(high + 31)]);
    }

    #[test]
    fn after_a_driver_reload_the_energy_continues_and_the_drivers_own_counters_start_again() {
        for (kind, expected) in [(ENERGY_MILLIJOULES, [3_000, 3_000, 3_500]), (ERRORS, [8_000, 500, 1_000])] {
            let mut counter = Counter::default();
            let mut total = |reading, second| counter.total(reading, Duration::from_secs(second), kind);
            total(5_000, 0);
            assert_eq!(total(8_000, 1), Some(expected[0]));
            counter.may_restart = true;
            let mut total = |reading, second| counter.total(reading, Duration::from_secs(second), kind);
            assert_eq!([total(500, 9), total(1_000, 10)], [Some(expected[1]), Some(expected[2])]);
        }
    }

    #[test]
    fn a_counter_of_32_bits_that_restarts_after_a_long_time_has_not_wrapped() {
        let mut counter = Counter::default();
        counter.total(12, Duration::ZERO, PCIE_REPLAYS);
        counter.may_restart = true;
        assert_eq!(counter.total(0, Duration::from_secs(2 * 3600), PCIE_REPLAYS), Some(0));
        assert_eq!(counter.total(3, Duration::from_secs(2 * 3600 + 1), PCIE_REPLAYS), Some(3));
    }

    #[test]
    fn a_gpu_that_comes_back_with_its_counters_loses_nothing() {
        let mut counter = Counter::default();
        counter.total(5_000, Duration::ZERO, ENERGY_MILLIJOULES);
        counter.may_restart = true;
        let after = counter.total(5_000 + 3_600_000_000, Duration::from_secs(3600), ENERGY_MILLIJOULES);
        assert_eq!(after, Some(3_600_000_000));
    }

    #[test]
    fn a_counter_that_stays_lower_has_restarted() {
        let mut readings = vec![9_000_000, 9_001_000];
        readings.extend((0..120).map(|second| 100 * second));
        let totals = totals(ERRORS, &readings);
        assert_eq!((totals[2], totals[3], totals[121]), (None, Some(9_001_100), Some(9_001_000 + 100 * 119)));
    }
}
