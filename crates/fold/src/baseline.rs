//! Turns the counts of a server into increases. The counts began before the exporter, so the first reading is a
//! baseline.
//!
//! A count falls for three reasons: the server has restarted, another of several processes has answered, or the counts
//! of an ended process were removed. One reading does not tell which, so after a fall nothing is counted until it is known.

use std::collections::HashMap;
use std::hash::Hash;

/// Number of counts that are remembered. Processes that ended leave old ones.
const MAX_SERIES: usize = 16_384;
/// Number of further readings after which a fall is explained without a restart in the records. A fall and a restart in
/// the records belong together if not more readings are between them.
const PATIENCE: u32 = 3;

/// The name of a count.
pub(crate) trait CountName: Clone + Eq + Hash {
    /// A sum of observed values. It falls with a negative value, so a fall of it alone says nothing.
    fn is_sum(&self) -> bool;
}

/// The counts of one server from which its increases are counted. Memory is bounded.
#[derive(Debug, Clone)]
pub(crate) struct Baseline<K> {
    /// The counts of the last reading whose increases were counted, and earlier counts that it lacks. `None` until the
    /// first reading.
    counted: Option<HashMap<K, u64>>,
    /// Counts are lower than `counted`, and it is unknown why.
    fall: Option<Fall<K>>,
    /// Number of further readings in which the last restart of the engine explains a fall.
    restarted: u32,
    /// The engine has sent records since its last restart.
    has_records: bool,
}

#[derive(Debug, Clone)]
struct Fall<K> {
    /// The reading in which counts fell.
    counts: HashMap<K, u64>,
    /// Number of readings since then.
    since: u32,
    /// The sum of the counts of the last reading.
    sum: u64,
    /// A record has come since then, and the engine has not restarted.
    engine_continues: bool,
}

impl<K> Default for Baseline<K> {
    fn default() -> Self {
        Self { counted: None, fall: None, restarted: 0, has_records: false }
    }
}

impl<K: CountName> Baseline<K> {
    /// Notes that the engine has restarted, as its records or its process show.
    pub(crate) fn note_restart(&mut self) {
        self.restarted = PATIENCE;
    }

    /// Notes that a record of the engine has come.
    pub(crate) fn note_record(&mut self) {
        self.has_records = true;
        if let Some(fall) = &mut self.fall {
            fall.engine_continues = true;
        }
    }

    /// The increase of each count of a reading. A count that appears later than the first reading began at 0. `None` for a sum
    /// that has fallen.
    pub(crate) fn increases(&mut self, reading: &[(K, u64)]) -> Vec<Option<u64>> {
        let counts: HashMap<K, u64> = reading.iter().cloned().collect();
        let Some(mut counted) = self.base(&counts) else { return vec![Some(0); reading.len()] };
        if counted.len() > MAX_SERIES {
            counted.retain(|name, _| counts.contains_key(name));
        }
        // A reading may have a series twice.
        let mut last = |name: &K, count| counted.insert(name.clone(), count).unwrap_or(0);
        let increases = reading.iter().map(|(name, count)| count.checked_sub(last(name, *count))).collect();
        (self.counted, self.fall) = (Some(counted), None);
        increases
    }

    /// The counts from which `counts` are counted. `None` if nothing can be counted yet.
    fn base(&mut self, counts: &HashMap<K, u64>) -> Option<HashMap<K, u64>> {
        let Some(counted) = &self.counted else { return Some(counts.clone()) };
        let falls = falls(counted, counts);
        if self.restarted > 0 && (falls || self.fall.is_some()) {
            self.restarted = 0;
            return Some(HashMap::new());
        }
        self.restarted = self.restarted.saturating_sub(1);
        if !falls {
            // If counts had fallen before, another process has answered.
            return self.counted.take();
        }
        let sum = counts.values().copied().fold(0, u64::wrapping_add);
        let fall = match self.fall.take() {
            Some(fall) if !self::falls(&fall.counts, counts) => self.fall.insert(fall),
            _ => {
                self.fall = Some(Fall { counts: counts.clone(), since: 0, sum, engine_continues: false });
                return None;
            }
        };
        if self.has_records && !fall.engine_continues && fall.sum == sum {
            // The engine is idle. Its next record tells whether it has restarted.
            return None;
        }
        (fall.since, fall.sum) = (fall.since + 1, sum);
        if fall.since < PATIENCE {
            return None;
        }
        if fall.engine_continues {
            // The counts of an ended process were removed.
            return Some(std::mem::take(&mut fall.counts));
        }
        self.has_records = false;
        Some(HashMap::new())
    }
}

/// Whether one of `counts` is lower than before, or all are gone.
fn falls<K: CountName>(before: &HashMap<K, u64>, counts: &HashMap<K, u64>) -> bool {
    let lower = |(name, count): (&K, &u64)| !name.is_sum() && before.get(name).is_some_and(|before| count < before);
    counts.iter().any(lower) || (counts.is_empty() && !before.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CountName for &'static str {
        fn is_sum(&self) -> bool {
            *self == "sum"
        }
    }

    /// What happens to a server: its page is read, a record of its engine comes, or its engine has restarted.
    enum Event {
        Page(&'static [(&'static str, u64)]),
        Record,
        Restart,
    }
    use Event::{Page, Record, Restart};

    fn stop(count: u64) -> Event {
        Page(Vec::leak(vec![("stop", count)]))
    }

    /// The total of the increases of each count.
    fn totals(events: impl IntoIterator<Item = Event>) -> [u64; 3] {
        let (mut counts, mut totals) = (Baseline::default(), HashMap::<_, u64>::new());
        for event in events {
            match event {
                Page(page) => {
                    for ((name, _), increase) in page.iter().zip(counts.increases(page)) {
                        *totals.entry(*name).or_default() += increase.unwrap_or(0);
                    }
                }
                Record => counts.note_record(),
                Restart => counts.note_restart(),
            }
        }
        ["stop", "length", "sum"].map(|name| totals.get(name).copied().unwrap_or(0))
    }

    #[test]
    fn a_restart_that_the_records_show_begins_all_counts_of_the_page_again() {
        const OLD: &[(&str, u64)] = &[("stop", 20), ("length", 1), ("sum", 7)];
        // Only one count is lower than before.
        const NEW: &[(&str, u64)] = &[("stop", 5), ("length", 1), ("sum", 9)];
        let restart_before = [Page(OLD), Record, Restart, Record, Page(NEW)];
        assert_eq!(totals(restart_before), [5, 1, 9]);
        // The page was read before the record that shows the restart.
        let restart_after = [Page(OLD), Record, Page(NEW), Restart, Record, Page(NEW)];
        assert_eq!(totals(restart_after), [5, 1, 9]);
        // A page that the old server wrote is folded after the record of the new engine.
        let old_page_late = [Page(OLD), Restart, Record, Page(OLD), Page(NEW)];
        assert_eq!(totals(old_page_late), [5, 1, 9]);
        // Control: without a fall, the page goes on, whatever the records show.
        let no_fall = [Page(NEW), Restart, Record, Page(OLD)];
        assert_eq!(totals(no_fall), [15, 0, 0]);
    }

    #[test]
    fn a_new_server_without_any_count_yet_has_restarted() {
        let empty = || Page(&[]);
        assert_eq!(totals([stop(20), Record, Restart, Record, empty(), stop(30)])[0], 30);
        assert_eq!(totals([stop(20), empty(), empty(), empty(), empty(), stop(30)])[0], 30);
        // No request has come to the new server, so no record shows the restart yet.
        let idle = std::iter::repeat_with(empty).take(9);
        let idle = [stop(20), Record].into_iter().chain(idle).chain([Restart, Record, stop(30)]);
        assert_eq!(totals(idle)[0], 30);
        // Control: the page is empty for one reading.
        assert_eq!(totals([stop(20), empty(), stop(30)])[0], 10);
    }

    #[test]
    fn without_records_a_restart_counts_after_three_more_pages() {
        let pages = [30, 34, 5, 5, 6, 8, 9];
        let after = |number: usize| totals(pages.into_iter().take(number).map(stop))[0];
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(after), [0, 4, 4, 4, 4, 4 + 8, 4 + 9]);
    }

    #[test]
    fn counts_that_fall_while_the_engine_continues_are_not_counted() {
        let pages = [500, 512, 112, 117, 122, 127, 140].map(stop);
        let with_records = pages.into_iter().flat_map(|page| [page, Record]);
        // The 15 requests after the fall count once it is certain that the engine continues.
        assert_eq!(totals(with_records)[0], 12 + 15 + 13);
        // Control: the same pages after a restart.
        let restarted = [stop(500), Record, stop(512), Record, Restart, Record, stop(112), Record, stop(127)];
        assert_eq!(totals(restarted)[0], 12 + 127);
    }

    #[test]
    fn an_idle_engine_whose_counts_fall_has_not_restarted_for_lack_of_records() {
        let idle = || std::iter::repeat_with(|| stop(112)).take(9);
        let begin = || [stop(500), Record, stop(512)].into_iter().chain(idle());
        assert_eq!(totals(begin())[0], 12);
        assert_eq!(totals(begin().chain([Record, stop(113), stop(113), stop(113)]))[0], 12 + 1);
        assert_eq!(totals(begin().chain([Restart, Record, stop(113)]))[0], 12 + 113);
        // The new server sends no records.
        assert_eq!(totals(begin().chain([stop(113), stop(114), stop(115)]))[0], 12 + 115);
        // Control: the engine has never sent records.
        assert_eq!(totals([stop(500), stop(512)].into_iter().chain(idle()))[0], 12 + 112);
    }

    #[test]
    fn pages_of_processes_that_alternate_count_neither_falls_nor_rises() {
        for events in [vec![], vec![Record]] {
            let pages = [500, 80, 503, 84, 85, 509, 90, 512].map(stop);
            let mut records = events.iter().cycle();
            let with_records = pages.into_iter().flat_map(|page| [Some(page), records.next().map(|_| Record)]);
            // Only the requests of the first process count.
            assert_eq!(totals(with_records.flatten())[0], 12);
        }
        // Control: a single process.
        assert_eq!(totals([500, 503, 509, 512].map(stop))[0], 12);
    }

    #[test]
    fn after_a_second_fall_the_waiting_begins_again() {
        let pages = [500, 112, 117, 12, 15, 18, 21].map(stop);
        assert_eq!(totals(pages.into_iter().flat_map(|page| [page, Record]))[0], 9);
    }

    #[test]
    fn a_falling_or_missing_sum_alone_is_no_restart() {
        const PAGES: [&[(&str, u64)]; 4] = [
            &[("stop", 10), ("sum", 100)],
            &[("stop", 12), ("sum", 90)],
            &[("stop", 13)],
            &[("stop", 15), ("sum", 95)],
        ];
        assert_eq!(totals(PAGES.map(Page))[0], 5);
        assert_eq!(totals(PAGES.into_iter().take(2).map(Page)), [2, 0, 0]);
        // Control: a count falls, too.
        const LOWER: &[(&str, u64)] = &[("stop", 2), ("sum", 90)];
        assert_eq!(totals([Page(PAGES[0]), Restart, Page(LOWER)]), [2, 0, 90]);
    }

    #[test]
    fn a_series_that_is_on_the_page_twice_counts_once() {
        assert_eq!(totals([stop(3), Page(&[("stop", 5), ("stop", 5)]), stop(6)])[0], 3);
    }

    #[test]
    fn a_count_that_is_missing_for_one_page_continues() {
        const BOTH: &[(&str, u64)] = &[("stop", 10), ("length", 100)];
        const LATER: &[(&str, u64)] = &[("stop", 14), ("length", 101)];
        assert_eq!(totals([Page(BOTH), stop(12), Page(LATER)]), [4, 1, 0]);
    }

    #[test]
    fn the_number_of_remembered_counts_is_bounded() {
        let mut counts = Baseline::default();
        for number in 0..40_u64 {
            let names: Vec<&'static str> = (0..1000).map(|n| &*format!("{number} {n}").leak()).collect();
            let page: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
            counts.increases(&page);
            assert!(counts.counted.as_ref().is_some_and(|counted| counted.len() <= MAX_SERIES + 1000));
            assert_eq!(counts.increases(&page), [Some(0); 1000], "the counts of the last page are remembered");
        }
    }
}
