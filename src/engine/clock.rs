//! When iterations began and ended, on the engine's own clock: what request times are measured by.

use std::collections::VecDeque;

use crate::model::IterationStats;

/// Iterations whose request rows may still come: more than any ring of request statistics holds by default.
const KEPT: usize = 4096;

/// One iteration's time, microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub iter: Option<u64>,
    pub start_us: i64,
    pub end_us: i64,
    /// The idle flush: it has the number of the iteration after it.
    pub flush: bool,
    /// The iteration before it was seen too: what is new in this one began in it.
    pub continuous: bool,
}

/// The recent iterations in order.
#[derive(Debug, Default)]
pub struct IterationClock {
    spans: VecDeque<Span>,
    last: Option<Span>,
    /// Microseconds, of the last iteration with a latency of its own.
    typical_us: i64,
}

impl IterationClock {
    /// Adds a record. `time_us` is its time (or of receipt), `latency_seconds` its latency where that is one iteration's,
    /// `after_gap` whether records before it were lost.
    pub fn record(
        &mut self,
        record: &IterationStats,
        time_us: i64,
        latency_seconds: Option<f64>,
        flush: bool,
        after_gap: bool,
    ) -> Span {
        if let Some(seconds) = latency_seconds {
            self.typical_us = (seconds * 1e6) as i64;
        }
        let end_us = match (record.timestamp, self.last) {
            // Receipts come in batches: between them the engine's own latencies are the better clock.
            (None, Some(last)) => {
                let stepped = last.end_us.saturating_add(self.typical_us);
                if (time_us - 1_000_000..=time_us).contains(&stepped) { stepped } else { time_us.max(last.end_us) }
            }
            (_, last) => time_us.max(last.map_or(i64::MIN, |last| last.end_us)),
        };
        let continuous = self.last.is_some() && !after_gap;
        let start_us = match self.last {
            // After idle the time since the last record is the wait for work, not the iteration.
            Some(last) if continuous && !last.flush => last.end_us,
            Some(last) => end_us.saturating_sub(self.typical_us).max(last.end_us),
            None => end_us.saturating_sub(self.typical_us),
        };
        let span = Span { iter: record.iter, start_us, end_us, flush, continuous };
        self.last = Some(span);
        if self.spans.len() == KEPT {
            self.spans.pop_front();
        }
        self.spans.push_back(span);
        span
    }

    /// The span of request rows that came by themselves: the first of that number not used yet. Rows of requests that are
    /// all complete may be the flush's; others cannot.
    pub fn take(&mut self, iter: Option<u64>, all_complete: bool) -> Option<Span> {
        let at = self.spans.iter().position(|span| span.iter == iter && (all_complete || !span.flush))?;
        self.spans.drain(..at);
        self.spans.pop_front()
    }
}
