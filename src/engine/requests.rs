//! What finished requests add up to: exact times from RequestPerfMetrics, else times read from their rows; lengths and KV
//! transfers from the one row with which the executor reports a request complete.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::model::perf_metrics::PerfMetricsEntry;
use crate::model::request::{RequestStage, RequestStats};

use super::histogram::{Histogram, TOKEN_LENGTH};
use super::lifecycle::Life;
use super::request_times::{RequestTimes, Times};

/// Plain numbers with one owner, as [`super::Totals`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestTotals {
    /// Tokens.
    pub input_token_len: Histogram,
    /// Tokens.
    pub output_token_len: Histogram,
    /// Milliseconds, over all requests whose KV cache came from another instance.
    pub kv_cache_transfer_ms: f64,
    pub disaggregated_requests: u64,
    pub times: RequestTimes,
    pub source: LatencySource,
}

/// The fold of finished requests.
#[derive(Debug, Default)]
pub struct RequestFold {
    pub totals: RequestTotals,
    /// Lives of requests that ended just now.
    waiting: VecDeque<(Instant, Life)>,
}

impl RequestTotals {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            input_token_len: Histogram::new(TOKEN_LENGTH),
            output_token_len: Histogram::new(TOKEN_LENGTH),
            kv_cache_transfer_ms: 0.0,
            disaggregated_requests: 0,
            times: RequestTimes::new(),
            source: LatencySource::None,
        }
    }
}

impl RequestFold {
    /// One request's row. Only the complete one is final, and the executor sends it exactly once.
    pub fn absorb_row(&mut self, row: &RequestStats) {
        if row.stage != Some(RequestStage::Complete) {
            return;
        }
        // The prefill position of a complete request is its prompt's length; a cancelled one may have none.
        if let Some(tokens @ 1..) = row.context_prefill_position {
            self.totals.input_token_len.observe(tokens as f64);
        }
        if let Some(tokens @ 0..) = row.num_generated_tokens {
            self.totals.output_token_len.observe(tokens as f64);
        }
        if let Some(transfer) = &row.dis_serving_stats {
            self.totals.disaggregated_requests += 1;
            self.totals.kv_cache_transfer_ms += transfer.kv_cache_transfer_ms.filter(|ms| *ms > 0.0).unwrap_or(0.0);
        }
    }

    /// One finished request's own times.
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry) {
        let Some(metrics) = &entry.perf_metrics else { return };
        if self.totals.source != LatencySource::PerfMetrics {
            // From here on exact times feed the histograms. Lives that wait are of requests whose entries are coming.
            self.totals.source = LatencySource::PerfMetrics;
            self.waiting.clear();
        }
        if let Some(times) = &metrics.timing_metrics {
            self.totals.times.observe(&Times {
                request: entry.request_id,
                arrived: times.arrival_time,
                scheduled: times.first_scheduled_time,
                first_token: times.first_token_time,
                ended: times.last_token_time,
                tokens: None,
            });
            let transfer = times.kv_cache_transfer_start.zip(times.kv_cache_transfer_end).map(|(from, to)| to - from);
            if let Some(seconds) = transfer.filter(|seconds| *seconds > 0.0) {
                self.totals.times.kv_cache_transfer.observe_request(seconds, entry.request_id);
            }
            if let Some(bytes @ 1..) = times.kv_cache_size {
                self.totals.times.kv_cache_transfer_bytes.observe_request(bytes as f64, entry.request_id);
            }
        }
        if let Some(kv) = &metrics.kv_cache_metrics {
            let (reused, missed) = (kv.num_reused_blocks.unwrap_or(0), kv.num_missed_blocks.unwrap_or(0));
            if reused >= 0 && missed >= 0 && (reused > 0 || missed > 0) {
                let ratio = reused as f64 / (reused as f64 + missed as f64);
                self.totals.times.kv_cache_hit_ratio.observe_request(ratio, entry.request_id);
            }
        }
    }

    /// A life read from rows. It waits a little before it is observed, in case the engine also sends exact times: no
    /// request may be in the histograms twice.
    pub fn absorb_life(&mut self, life: &Life, now: Instant) {
        if self.totals.source == LatencySource::PerfMetrics || self.waiting.len() >= MAX_WAITING {
            return;
        }
        self.waiting.push_back((now, *life));
    }

    /// Observes the lives that have waited long enough.
    pub fn settle(&mut self, now: Instant) {
        while let Some((since, life)) = self.waiting.front().copied() {
            if now.saturating_duration_since(since) < PATIENCE {
                return;
            }
            self.waiting.pop_front();
            self.totals.source = LatencySource::RequestStats;
            let seconds = |micros: i64| micros as f64 / 1e6;
            self.totals.times.observe(&Times {
                request: Some(life.request),
                arrived: Some(seconds(life.arrived_us)),
                scheduled: life.scheduled_us.map(seconds),
                first_token: life.first_token_us.map(seconds),
                ended: Some(seconds(life.ended_us)),
                tokens: Some(life.tokens),
            });
        }
    }
}

/// What feeds the request latency histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LatencySource {
    /// Nothing yet.
    #[default]
    None,
    /// Stage changes between iterations: right to one iteration.
    RequestStats,
    /// The requests' own times: exact.
    PerfMetrics,
}

impl LatencySource {
    pub const ALL: [Self; 3] = [Self::None, Self::RequestStats, Self::PerfMetrics];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RequestStats => "request_stats",
            Self::PerfMetrics => "perf_metrics",
        }
    }
}

/// Exact times come within a poll or two of the request's end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lives that may wait: minutes of a busy engine.
const MAX_WAITING: usize = 16_384;

impl Default for RequestTotals {
    fn default() -> Self {
        Self::new()
    }
}
