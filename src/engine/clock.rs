//! Start and end of each iteration on the engine's own clock. Request times are derived from them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::IterationStats;

/// Number of iterations kept for request rows that arrive later. The engine's ring of request statistics holds fewer by
/// default.
const KEPT: usize = 4096;

/// The time of one iteration, in microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub iter: Option<u64>,
    pub start_us: i64,
    pub end_us: i64,
    /// Whether this is the idle flush, which has the number of the iteration after it.
    pub flush: bool,
    /// Whether the record of the previous iteration was read. Only then is a request that is first seen in this iteration
    /// new.
    pub continuous: bool,
}

/// The end of the last record's iteration.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct End {
    end_us: i64,
    flush: bool,
}

/// The recent iterations, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IterationClock {
    spans: VecDeque<Span>,
    last: Option<End>,
    /// Microseconds: the latency of the last iteration whose latency is known.
    typical_us: i64,
}

impl IterationClock {
    /// Adds a record. `time_us` is its time, or the time of its receipt. `latency_seconds` is absent if it is not the latency
    /// of one iteration. `after_gap`: records before this one were lost.
    pub fn record(
        &mut self,
        record: &IterationStats,
        time_us: i64,
        latency_seconds: Option<f64>,
        flush: bool,
        after_gap: bool,
    ) {
        if let Some(seconds) = latency_seconds {
            self.typical_us = (seconds * 1e6) as i64;
        }
        let end_us = match (record.timestamp, self.last) {
            // Records are received in batches. Within a batch, the engine's own latencies are the better clock.
            (None, Some(last)) => {
                let stepped = last.end_us.saturating_add(self.typical_us);
                if (time_us - 1_000_000..=time_us).contains(&stepped) { stepped } else { time_us.max(last.end_us) }
            }
            (_, last) => time_us.max(last.map_or(i64::MIN, |last| last.end_us)),
        };
        let continuous = self.last.is_some() && !after_gap;
        let start_us = match self.last {
            // After an idle period, the time since the last record includes the wait for work.
            Some(last) if continuous && !last.flush => last.end_us,
            Some(last) => end_us.saturating_sub(self.typical_us).max(last.end_us),
            None => end_us.saturating_sub(self.typical_us),
        };
        self.last = Some(End { end_us, flush });
        if self.spans.len() == KEPT {
            self.spans.pop_front();
        }
        self.spans.push_back(Span { iter: record.iter, start_us, end_us, flush, continuous });
    }

    /// The span of the last record.
    #[must_use]
    pub fn newest(&self) -> Option<Span> {
        self.spans.back().copied()
    }

    /// The span for request rows that came without a record: the first unused one with that number. Only rows of requests
    /// that are all complete can belong to a flush.
    pub fn take(&mut self, iter: Option<u64>, all_complete: bool) -> Option<Span> {
        let at = self.spans.iter().position(|span| span.iter == iter && (all_complete || !span.flush))?;
        self.spans.drain(..at);
        self.spans.pop_front()
    }
}
