//! What finished requests add up to: exact times from RequestPerfMetrics, lengths and KV transfers from the one row with
//! which the executor reports a request complete.

use crate::model::perf_metrics::{PerfMetricsEntry, TimingMetrics};
use crate::model::request::{RequestStage, RequestStats};

use super::histogram::{
    FIRST_TOKEN_SECONDS, Histogram, LONG_SECONDS, RATIO, SHORT_SECONDS, TOKEN_LENGTH, TRANSFER_BYTES,
};

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
    /// Seconds.
    pub time_to_first_token: Histogram,
    pub e2e_latency: Histogram,
    pub queue_time: Histogram,
    pub prefill_time: Histogram,
    pub decode_time: Histogram,
    pub inference_time: Histogram,
    pub kv_cache_transfer: Histogram,
    /// Bytes.
    pub kv_cache_transfer_bytes: Histogram,
    /// 0..1.
    pub kv_cache_hit_ratio: Histogram,
}

impl RequestTotals {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            input_token_len: Histogram::new(TOKEN_LENGTH),
            output_token_len: Histogram::new(TOKEN_LENGTH),
            kv_cache_transfer_ms: 0.0,
            disaggregated_requests: 0,
            time_to_first_token: Histogram::new(FIRST_TOKEN_SECONDS),
            e2e_latency: Histogram::new(LONG_SECONDS),
            queue_time: Histogram::new(LONG_SECONDS),
            prefill_time: Histogram::new(SHORT_SECONDS),
            decode_time: Histogram::new(LONG_SECONDS),
            inference_time: Histogram::new(LONG_SECONDS),
            kv_cache_transfer: Histogram::new(SHORT_SECONDS),
            kv_cache_transfer_bytes: Histogram::new(TRANSFER_BYTES),
            kv_cache_hit_ratio: Histogram::new(RATIO),
        }
    }

    /// One request's row. Only the complete one is final, and the executor sends it exactly once.
    pub fn absorb_row(&mut self, row: &RequestStats) {
        if row.stage != Some(RequestStage::Complete) {
            return;
        }
        // The prefill position of a complete request is its prompt's length; a cancelled one may have none.
        if let Some(tokens @ 1..) = row.context_prefill_position {
            self.input_token_len.observe(tokens as f64);
        }
        if let Some(tokens @ 0..) = row.num_generated_tokens {
            self.output_token_len.observe(tokens as f64);
        }
        if let Some(transfer) = &row.dis_serving_stats {
            self.disaggregated_requests += 1;
            self.kv_cache_transfer_ms += transfer.kv_cache_transfer_ms.filter(|ms| *ms > 0.0).unwrap_or(0.0);
        }
    }

    /// One finished request's own times. As upstream: a time counts where both its ends are known and it is longer than
    /// 0, the queue time also where it is 0.
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry) {
        let Some(metrics) = &entry.perf_metrics else { return };
        if let Some(times) = &metrics.timing_metrics {
            self.absorb_times(times);
        }
        if let Some(kv) = &metrics.kv_cache_metrics {
            let (reused, missed) = (kv.num_reused_blocks.unwrap_or(0), kv.num_missed_blocks.unwrap_or(0));
            if reused >= 0 && missed >= 0 && (reused > 0 || missed > 0) {
                self.kv_cache_hit_ratio.observe(reused as f64 / (reused as f64 + missed as f64));
            }
        }
    }

    fn absorb_times(&mut self, times: &TimingMetrics) {
        let between = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
        let positive = |histogram: &mut Histogram, seconds: Option<f64>| {
            if let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) {
                histogram.observe(seconds);
            }
        };
        positive(&mut self.time_to_first_token, between(times.arrival_time, times.first_token_time));
        positive(&mut self.e2e_latency, between(times.arrival_time, times.last_token_time));
        positive(&mut self.prefill_time, between(times.first_scheduled_time, times.first_token_time));
        positive(&mut self.decode_time, between(times.first_token_time, times.last_token_time));
        positive(&mut self.inference_time, between(times.first_scheduled_time, times.last_token_time));
        positive(&mut self.kv_cache_transfer, between(times.kv_cache_transfer_start, times.kv_cache_transfer_end));
        if let Some(seconds) = between(times.arrival_time, times.first_scheduled_time).filter(|s| *s >= 0.0) {
            self.queue_time.observe(seconds);
        }
        if let Some(bytes @ 1..) = times.kv_cache_size {
            self.kv_cache_transfer_bytes.observe(bytes as f64);
        }
    }
}

impl Default for RequestTotals {
    fn default() -> Self {
        Self::new()
    }
}
