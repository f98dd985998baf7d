//! What the last iterations were busy with, as sums that only grow: what happened in a span of time is the difference of two
//! sums. Fewer sums are kept of older iterations, so that minutes fit in little memory.

use std::collections::VecDeque;
use std::ops::Add as _;

use super::cost_model::is_spike;
use super::numbers::{Numbers as _, numbers};

/// Number of nodes in a level. A node (56 bytes) has the sums at the start of an iteration. A level gets every second
/// node that leaves the previous level.
const NODES: usize = 256;
/// The levels cover 65,000 iterations, which are ten minutes at 100 a second, in 115 KB.
const LEVELS: usize = 8;
/// A longer pause between two iterations (in seconds) counts as unexplained.
const PAUSE: f64 = 0.05;

numbers! {
    /// Sums over everything up to one point in time.
    pub(crate) struct Busy {
        /// Seconds that iterations took for prompts, by the cost model.
        context,
        /// A request's share of these tokens is its share of that time. Other work tells nothing of a single request.
        context_tokens,
        /// Seconds above what the cost model expects, of iterations that took far longer, and seconds of long pauses
        /// between iterations.
        unexplained,
        /// Number of gaps in the records.
        gaps,
        /// Number of requests that were paused.
        paused,
    }
}

/// An iteration that has started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Started {
    pub iter: u64,
    pub start_us: i64,
    /// Absent if only the next record shows when the iteration ended.
    pub end_us: Option<i64>,
    /// Share of the iteration's time that prompts take.
    pub context_share: f64,
    pub context_tokens: f64,
    pub expected_seconds: Option<f64>,
    pub paused: f64,
    /// No record before it is missing.
    pub known: bool,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    iter: u64,
    start_us: i64,
    busy: Busy,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    /// The first level has the newest nodes. In each level, the newest node is last.
    levels: [VecDeque<Node>; LEVELS],
    /// Whether the next node that leaves a level goes to the next level.
    goes_on: [bool; LEVELS],
    running: Option<Started>,
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

impl Started {
    /// What the iteration was busy with until `at_us`.
    fn until(&self, at_us: i64) -> Busy {
        let passed = seconds(at_us - self.start_us).max(0.0);
        let expected = self.expected_seconds.unwrap_or(passed);
        let unexplained = if is_spike(passed, expected) { passed - expected } else { 0.0 };
        let whole = self.end_us.map_or(expected, |end_us| seconds(end_us - self.start_us));
        let done = if passed < whole { passed / whole } else { 1.0 };
        Busy {
            context: self.context_share * (passed - unexplained),
            context_tokens: self.context_tokens * done,
            unexplained,
            ..Busy::default()
        }
    }
}

impl Timeline {
    /// Adds an iteration. Its start ends the previous iteration.
    pub(crate) fn start(&mut self, next: Started) {
        let mut busy = Busy::default();
        if let (Some(running), Some(newest)) = (self.running, self.newest()) {
            let start_us = next.start_us.max(newest.start_us);
            let end_us = running.end_us.map_or(start_us, |end_us| end_us.clamp(newest.start_us, start_us));
            // All work of the iteration is done, whatever the clock of the next record says.
            let whole = Started { end_us: Some(end_us), ..running };
            busy = newest.busy.combine(&whole.until(end_us), &f64::add);
            if end_us < start_us {
                self.push(Node { iter: running.iter.saturating_add(1), start_us: end_us, busy });
                busy.unexplained += Some(seconds(start_us - end_us)).filter(|pause| *pause > PAUSE).unwrap_or(0.0);
            }
        }
        busy.gaps += f64::from(!next.known);
        busy.paused += next.paused;
        let start_us = next.start_us.max(self.newest().map_or(i64::MIN, |newest| newest.start_us));
        self.push(Node { iter: next.iter, start_us, busy });
        self.running = Some(Started { start_us, ..next });
    }

    fn push(&mut self, node: Node) {
        let mut node = node;
        for (level, goes_on) in self.levels.iter_mut().zip(&mut self.goes_on) {
            if level.capacity() == 0 {
                level.reserve_exact(NODES);
            }
            let oldest = if level.len() < NODES { None } else { level.pop_front() };
            level.push_back(node);
            *goes_on ^= oldest.is_some();
            let Some(oldest) = oldest.filter(|_| *goes_on) else { return };
            node = oldest;
        }
    }

    fn newest(&self) -> Option<Node> {
        self.levels[0].back().copied()
    }

    /// The last node for which `is_before` holds, and the node after it, if there is one.
    fn around(&self, is_before: impl Fn(&Node) -> bool) -> Option<(Node, Option<Node>)> {
        let at = self.levels.iter().position(|level| level.front().is_some_and(&is_before))?;
        let level = &self.levels[at];
        let index = level.partition_point(&is_before);
        let newer = || self.levels.get(at.wrapping_sub(1)).and_then(VecDeque::front);
        Some((*level.get(index.checked_sub(1)?)?, level.get(index).or_else(newer).copied()))
    }

    /// The sums up to this time. Absent for a time before the first iteration that is kept.
    pub(crate) fn at(&self, at_us: i64) -> Option<Busy> {
        let (before, after) = self.around(|node| node.start_us <= at_us)?;
        Some(match after {
            Some(after) => {
                let share = (at_us - before.start_us) as f64 / (after.start_us - before.start_us) as f64;
                before.busy.combine(&after.busy, &|before, after| before + (after - before) * share)
            }
            None => before.busy.combine(&self.running?.until(at_us), &f64::add),
        })
    }

    /// When an iteration ended. Absent until the next one starts.
    pub(crate) fn ended_us(&self, iter: u64) -> Option<i64> {
        let (before, after) = self.around(|node| node.iter <= iter)?;
        let after = after?;
        let share = (iter + 1 - before.iter) as f64 / (after.iter - before.iter) as f64;
        Some(before.start_us + ((after.start_us - before.start_us) as f64 * share) as i64)
    }

    /// When the last iteration ends, as reported or as expected. `None` if `iter` is not the last iteration.
    pub(crate) fn last_end_us(&self, iter: u64) -> Option<i64> {
        let running = self.running.filter(|running| running.iter == iter)?;
        let expected_us = running.expected_seconds.map(|seconds| running.start_us + (seconds * 1e6) as i64);
        running.end_us.or(expected_us)
    }

    /// Forgets all iterations: a new process counts them from the start again.
    pub(crate) fn clear(&mut self) {
        self.levels.iter_mut().for_each(VecDeque::clear);
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1000;

    /// An iteration of 10 ms, of which prompts take 40 %.
    fn started(iter: u64) -> Started {
        Started {
            iter,
            start_us: iter as i64 * 10 * MS,
            context_share: 0.4,
            context_tokens: 100.0,
            expected_seconds: Some(0.01),
            known: true,
            ..Started::default()
        }
    }

    fn between(timeline: &Timeline, from_us: i64, until_us: i64) -> Option<Busy> {
        Some(timeline.at(until_us)?.since(&timeline.at(from_us)?))
    }

    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6
    }

    #[test]
    fn a_span_of_time_has_the_shares_of_its_iterations() {
        let mut timeline = Timeline::default();
        (0..20).for_each(|iter| timeline.start(started(iter)));
        let busy = between(&timeline, 25 * MS, 105 * MS).unwrap();
        assert!(is_near(busy.context, 0.032) && is_near(busy.context_tokens, 800.0), "{busy:?}");
        // The last iteration has not ended: half of it has passed.
        let busy = between(&timeline, 180 * MS, 195 * MS).unwrap();
        assert!(is_near(busy.context, 0.006) && is_near(busy.context_tokens, 150.0), "{busy:?}");
        assert_eq!(timeline.at(-1), None);
        assert_eq!((timeline.ended_us(18), timeline.ended_us(19)), (Some(190 * MS), None));
        assert_eq!(timeline.last_end_us(19), Some(200 * MS));
    }

    #[test]
    fn a_spike_and_a_pause_between_iterations_are_unexplained() {
        let mut timeline = Timeline::default();
        timeline.start(started(0));
        timeline.start(Started { start_us: 200 * MS, end_us: Some(210 * MS), ..started(1) });
        timeline.start(Started { start_us: 300 * MS, ..started(2) });
        let busy = timeline.at(300 * MS).unwrap();
        assert!(is_near(busy.unexplained, 0.19 + 0.09) && is_near(busy.context, 0.008), "{busy:?}");
        assert_eq!(timeline.ended_us(1), Some(210 * MS));
    }

    #[test]
    fn a_missing_record_shows_in_every_span_around_it() {
        let mut timeline = Timeline::default();
        timeline.start(started(0));
        timeline.start(Started { known: false, ..started(4) });
        timeline.start(started(5));
        let gaps = |from_ms, until_ms| between(&timeline, from_ms * MS, until_ms * MS).unwrap().gaps;
        assert!(gaps(0, 45) > 0.0 && gaps(20, 25) > 0.0 && gaps(41, 55) == 0.0);
    }

    #[test]
    fn old_iterations_are_kept_coarser_in_bounded_memory() {
        let mut timeline = Timeline::default();
        (0..60_000).for_each(|iter| timeline.start(started(iter)));
        for (from, until) in [(59_990, 59_999), (59_000, 59_999), (30_000, 31_000), (1000, 59_000)] {
            let busy = between(&timeline, from * 10 * MS, until * 10 * MS).unwrap();
            assert!(is_near(busy.context, 0.004 * (until - from) as f64), "{from} {until} {busy:?}");
            assert_eq!(timeline.ended_us(until as u64 - 1), Some(until * 10 * MS));
        }
        let nodes: usize = timeline.levels.iter().map(VecDeque::capacity).sum();
        assert!(nodes * size_of::<Node>() <= 115_000, "{nodes} of {}", size_of::<Node>());
    }
}
