//! The records of several reads of an exporter's last records, each record once. Times are since the first read.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use trtllm_model::IterationStats;

use super::batches::rank_of;

/// An engine: `model` and `version`.
pub type Name = [String; 2];

/// What tells one record from another.
type Key = (Option<u64>, Option<i64>, Option<u64>, u64, Option<i64>);

fn key(record: &IterationStats) -> Key {
    let latency = record.iter_latency_ms.unwrap_or_default().to_bits();
    (record.iter, rank_of(record), record.stats_sequence, latency, record.num_active_requests)
}

/// The records of all engines of an exporter. `R` is a record, or shares one.
#[derive(Debug)]
pub struct Records<R>(BTreeMap<Name, OfEngine<R>>);

#[derive(Debug)]
struct OfEngine<R> {
    /// The records of the last read.
    seen: HashSet<Key>,
    /// With the time of the read that had them first, oldest first.
    kept: VecDeque<(Duration, R)>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Borrow<IterationStats>> Records<R> {
    /// Forgets all other engines.
    pub fn retain(&mut self, engines: &BTreeSet<Name>) {
        self.0.retain(|name, _| engines.contains(name));
    }

    /// Adds one read of an engine's last records. At most the newest `most` are kept.
    pub fn add(&mut self, engine: Name, read: Vec<R>, time: Duration, most: usize) {
        let keys = read.iter().map(|record| key(record.borrow())).collect();
        let known = self.0.entry(engine).or_insert_with(|| OfEngine { seen: HashSet::new(), kept: VecDeque::new() });
        let before = std::mem::replace(&mut known.seen, keys);
        let new = read.into_iter().filter(|record| !before.contains(&key(record.borrow())));
        known.kept.extend(new.map(|record| (time, record)));
        known.kept.drain(..known.kept.len().saturating_sub(most));
    }

    /// Records of one engine that were read first after this time, oldest first.
    #[must_use]
    pub fn after(&self, time: Duration, engine: &Name) -> Vec<&IterationStats> {
        let kept = self.0.get(engine).into_iter().flat_map(|known| &known.kept);
        kept.filter(|(read, _)| *read > time).map(|(_, record)| record.borrow()).collect()
    }

    /// The last records of one engine, oldest first.
    #[must_use]
    pub fn last(&self, engine: &Name, count: usize) -> Vec<&IterationStats> {
        let kept = self.0.get(engine).into_iter().flat_map(|known| {
            let skipped = known.kept.len().saturating_sub(count);
            known.kept.iter().skip(skipped)
        });
        kept.map(|(_, record)| record.borrow()).collect()
    }

    /// Forgets records that were read first before this time.
    pub fn forget_before(&mut self, time: Duration) {
        for known in self.0.values_mut() {
            known.kept.retain(|(read, _)| *read >= time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_kept_once_and_old_ones_are_forgotten() {
        let mut all = Records::default();
        let name = ["m".to_owned(), "1".to_owned()];
        let at = Duration::from_secs;
        let record = |iter| IterationStats { iter: Some(iter), ..IterationStats::default() };
        let numbers = |records: Vec<&IterationStats>| records.iter().filter_map(|one| one.iter).collect::<Vec<_>>();
        for second in 0..3 {
            all.add(name.clone(), (second..second + 4).map(record).collect(), at(second), 5);
        }
        assert_eq!(numbers(all.after(at(0), &name)), [4, 5]);
        assert_eq!(numbers(all.last(&name, 9)), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(all.last(&name, 2)), [4, 5]);
        all.forget_before(at(2));
        assert_eq!(numbers(all.last(&name, 9)), [5]);
        all.retain(&BTreeSet::new());
        assert_eq!(all.0.len(), 0);
    }
}
