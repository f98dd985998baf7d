//! The time that new requests have waited in the engine's queue: `newActiveRequestsQueueLatencyMS`, which has two meanings.
//!
//! The C++ executor sends the milliseconds of the requests that became active in the iteration. The PyTorch engine
//! sends the *seconds* of all requests since its start (upstream: `_update_new_active_requests_queue_latency`). If the
//! values show the other meaning, they are read that way: a sum never falls, and the milliseconds of an iteration
//! without new requests are 0.

use trtllm_records::IterationStats;
use trtllm_records::iteration::Backend;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Milliseconds that this iteration's new requests waited.
    Iteration,
    /// Seconds that all requests have waited since the start of the engine.
    Sum,
}

/// The waiting time of one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueTime {
    last: Option<f64>,
    /// The meaning that the values so far have shown.
    shown: Option<Meaning>,
    /// Seconds by which the sum has grown in iterations without a new request.
    carried: f64,
}

impl QueueTime {
    /// `from_start`: the engine's first record is read, so a sum begins at 0.
    pub(crate) fn new(from_start: bool) -> Self {
        Self { last: from_start.then_some(0.0), ..Self::default() }
    }

    /// Like [`QueueTime::waited`], for a record that came after that of a later iteration. If the value is a sum, the
    /// time was already counted with the later record.
    pub(crate) fn waited_late(&self, record: &IterationStats, started: u64) -> Option<f64> {
        let value = record.new_active_requests_queue_latency_ms.filter(|value| *value >= 0.0 && started > 0)?;
        (self.meaning(record) == Meaning::Iteration).then_some(value / 1000.0)
    }

    fn meaning(&self, record: &IterationStats) -> Meaning {
        let pytorch = record.backend() == Backend::PyTorch;
        self.shown.unwrap_or(if pytorch { Meaning::Sum } else { Meaning::Iteration })
    }

    /// Seconds that the `started` new requests of a record have waited in total. Absent if that is unknown.
    pub(crate) fn waited(&mut self, record: &IterationStats, started: u64) -> Option<f64> {
        let value = record.new_active_requests_queue_latency_ms.filter(|value| value.is_finite() && *value >= 0.0)?;
        let last = self.last.replace(value);
        if let Some(last) = last {
            if value < last {
                self.shown = Some(Meaning::Iteration);
            } else if started == 0 && value > 0.0 && value == last {
                self.shown = Some(Meaning::Sum);
            }
        }
        match self.meaning(record) {
            Meaning::Iteration => (started > 0).then_some(value / 1000.0),
            Meaning::Sum => {
                self.carried += value - last?;
                (started > 0 && self.carried > 0.0).then(|| std::mem::take(&mut self.carried))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_records::RecordTime;

    fn record(value: f64, pytorch: bool) -> IterationStats {
        IterationStats {
            timestamp: (!pytorch).then_some(RecordTime { micros: 0, zoned: true }),
            new_active_requests_queue_latency_ms: Some(value),
            ..IterationStats::default()
        }
    }

    fn waited(mut time: QueueTime, pytorch: bool, values: &[(f64, u64)]) -> Vec<Option<f64>> {
        values.iter().map(|(value, started)| time.waited(&record(*value, pytorch), *started)).collect()
    }

    #[test]
    fn a_growing_value_is_a_sum_of_seconds_and_a_falling_one_the_milliseconds_of_one_iteration() {
        // An increase without a new request belongs to the next one.
        let sum: &[_] = &[(0.5, 1), (0.5, 0), (0.75, 2), (1.0, 0), (1.25, 1)];
        let falls: &[_] = &[(300.0, 1), (0.0, 0), (200.0, 1), (400.0, 2)];
        // A value that stays without a new request is a sum, whatever the engine seems to be.
        let stays: &[_] = &[(3.0, 1), (3.0, 0), (3.5, 1)];
        for (from_start, pytorch, values, expected) in [
            (true, true, sum, &[Some(0.5), None, Some(0.25), None, Some(0.5)][..]),
            (false, true, sum, &[None, None, Some(0.25), None, Some(0.5)]),
            (false, true, falls, &[None, None, Some(0.2), Some(0.4)]),
            (true, false, falls, &[Some(0.3), None, Some(0.2), Some(0.4)]),
            (false, false, stays, &[Some(0.003), None, Some(0.5)]),
        ] {
            assert_eq!(waited(QueueTime::new(from_start), pytorch, values), expected, "{values:?}");
        }
    }
}
