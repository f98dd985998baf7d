//! The time that new requests have waited in the engine's queue: `newActiveRequestsQueueLatencyMS`, which has two meanings.
//!
//! The C++ executor sends the milliseconds of the requests that became active in the iteration. The PyTorch engine
//! sends the *seconds* of all requests since its start (upstream: `_update_new_active_requests_queue_latency`).

use trtllm_records::IterationStats;
use trtllm_records::iteration::Backend;

/// The waiting time of one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueTime {
    /// The last sum of a PyTorch engine.
    last: Option<f64>,
    /// Seconds by which the sum has grown in iterations without a new request.
    carried: f64,
}

impl QueueTime {
    /// `from_start`: the engine's first record is read, so the sum begins at 0.
    pub(crate) fn new(from_start: bool) -> Self {
        Self { last: from_start.then_some(0.0), carried: 0.0 }
    }

    /// Seconds that the `started` new requests of a record have waited in total. Absent if that is unknown.
    pub(crate) fn waited(&mut self, record: &IterationStats, started: u64) -> Option<f64> {
        let value = record.new_active_requests_queue_latency_ms.filter(|value| value.is_finite() && *value >= 0.0)?;
        if record.backend() != Backend::PyTorch {
            return (started > 0).then_some(value / 1000.0);
        }
        let last = self.last.replace(value)?;
        self.carried += (value - last).max(0.0);
        (started > 0 && self.carried > 0.0).then(|| std::mem::take(&mut self.carried))
    }
}
