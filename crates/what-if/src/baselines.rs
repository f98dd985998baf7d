//! What survives a restart of the exporter: the states of an engine at earlier times, and its best hour. Pure: times are arguments, in
//! seconds since 1970.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::output::Best;
use crate::present::Present;

/// Maximum number of states of an engine, and of `equal_work` in each state. Compressed, all states take about 60 KB.
const MOST: usize = 32;
const MOST_WORKS: usize = 64;
/// Of the states in one hour, the last one is kept.
const HOUR: f64 = 3600.0;

/// The state of an engine at one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub at: f64,
    pub run: Run,
    /// Does not contain the requests, but `workload` has their means.
    pub present: Present,
}

/// The time between two restarts of the engine or the exporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    pub since: f64,
    /// Settings and versions by name.
    pub configuration: BTreeMap<String, String>,
}

impl Snapshot {
    #[must_use]
    pub fn of(mut present: Present, run: Run, at: f64) -> Self {
        present.requests.clear();
        let works = &mut present.equal_work;
        works.sort_by(|one, other| (other.iterations * other.seconds).total_cmp(&(one.iterations * one.seconds)));
        works.truncate(MOST_WORKS);
        for work in works {
            for number in
                [&mut work.seconds, &mut work.context_tokens, &mut work.generation_tokens, &mut work.kv_tokens]
            {
                *number = short(*number);
            }
        }
        Self { at: at.floor(), run, present }
    }
}

/// The number with five digits.
fn short(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

/// The content of one engine's file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baselines {
    pub best: Best,
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
}

impl Baselines {
    /// Adds a state. If there are too many, drops the oldest state that is not the last one of its configuration.
    pub fn push(&mut self, new: Snapshot) {
        let hour = |snapshot: &Snapshot| (snapshot.at / HOUR).floor();
        if self.snapshots.last().is_some_and(|last| last.run == new.run && hour(last) == hour(&new)) {
            self.snapshots.pop();
        }
        self.snapshots.push(new);
        while self.snapshots.len() > MOST {
            let configuration = |index: usize| &self.snapshots[index].run.configuration;
            let is_last =
                |index: &usize| !(index + 1..=MOST).any(|later| configuration(later) == configuration(*index));
            let oldest = (0..MOST).find(|index| !is_last(index)).unwrap_or(0);
            self.snapshots.remove(oldest);
        }
    }

    /// The last state at or before a time.
    #[must_use]
    pub fn at(&self, time: f64) -> Option<&Snapshot> {
        self.snapshots.iter().rev().find(|snapshot| snapshot.at <= time)
    }

    /// The last state of another run.
    #[must_use]
    pub fn before(&self, run: &Run) -> Option<&Snapshot> {
        self.snapshots.iter().rev().find(|snapshot| snapshot.run != *run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at: f64, since: f64, batch: &str) -> Snapshot {
        let configuration = BTreeMap::from([("max_batch_size".to_owned(), batch.to_owned())]);
        Snapshot { at, run: Run { since, configuration }, ..Snapshot::default() }
    }

    #[test]
    fn the_last_state_of_each_hour_and_of_each_configuration_is_kept() {
        let mut kept = Baselines::default();
        kept.push(snapshot(0.0, 0.0, "64"));
        // Two days with a state every ten minutes, and a restart after the first day.
        for minute in (10..2880).step_by(10) {
            kept.push(snapshot(f64::from(minute) * 60.0, if minute < 1440 { 1.0 } else { 86_400.0 }, "32"));
        }
        assert_eq!(kept.snapshots.len(), MOST);
        assert_eq!(kept.snapshots[0].at, 0.0, "it is the only one of its configuration");
        let hours: Vec<f64> = kept.snapshots[1..].iter().map(|snapshot| snapshot.at / HOUR).collect();
        assert!(hours.windows(2).all(|two| (two[1] - two[0] - 1.0).abs() < 1e-9), "{hours:?}");
        assert_eq!(kept.at(40.5 * HOUR).unwrap().at, 39.0 * HOUR + 3000.0);
        assert_eq!(kept.at(-1.0), None);
        let now = &kept.snapshots[MOST - 1].run;
        assert_eq!(kept.before(now).unwrap().at, 86_400.0 - 600.0);
        assert_eq!(kept.before(&snapshot(0.0, 9.0, "64").run).unwrap().at, 47.0 * HOUR + 3000.0);
    }

    #[test]
    fn more_configurations_than_are_kept_drop_the_oldest() {
        let mut kept = Baselines::default();
        (0..100).for_each(|batch| kept.push(snapshot(f64::from(batch) * HOUR, 0.0, &batch.to_string())));
        assert_eq!((kept.snapshots.len(), kept.snapshots[0].at), (MOST, 68.0 * HOUR));
    }
}
