//! What finished requests add up to: exact times from RequestPerfMetrics, else times read from their rows; lengths and KV
//! transfers from the one row with which the executor reports a request complete.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::model::perf_metrics::{FinishReason, PerfMetricsEntry, RequestPerfMetrics};
use crate::model::request::{RequestStage, RequestStats};

use super::histogram::{Histogram, TOKEN_LENGTH};
use super::lifecycle::Life;
use super::request_times::{Blocks, RequestTimes, Times};

/// Plain numbers with one owner, as [`super::Totals`].
#[derive(Debug, Clone, PartialEq)]
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
    /// By [`FinishReason::ALL`]; absent where no publisher says why requests end.
    pub finished: Option<[u64; FinishReason::ALL.len()]>,
    /// Draft tokens of finished requests: proposed, accepted. Absent where none used speculation.
    pub draft_tokens: Option<(u64, u64)>,
}

/// The fold of finished requests.
#[derive(Debug, Default)]
pub struct RequestFold {
    pub totals: RequestTotals,
    /// Requests that ended just now, by their rows.
    waiting: VecDeque<(Instant, Ended)>,
    /// Whether rows tell lengths and transfers, or the entries that have them must.
    rows: Rows,
    /// What entries told of those while that is not known.
    untold: VecDeque<(Instant, Told)>,
}

/// Whether the engine's rows say how requests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Rows {
    #[default]
    Unknown,
    Absent,
    Present,
}

/// What both a row and an entry tell of a request that has ended; it is counted once.
#[derive(Debug, Clone, Copy)]
struct Told {
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    /// Outer: the request's KV cache came from another instance. Milliseconds.
    transfer: Option<Option<f64>>,
}

/// What rows told of a request that has ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    /// Absent where its start or some of its rows were missed.
    times: Option<Times>,
    blocks: Blocks,
    transfer_seconds: Option<f64>,
    transfer_bytes: Option<u64>,
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
            finished: None,
            draft_tokens: None,
        }
    }

    /// A prompt of no tokens is one that was cancelled before it was read.
    fn observe_lengths(&mut self, input: Option<i64>, output: Option<i64>) {
        if let Some(tokens @ 1..) = input {
            self.input_token_len.observe(tokens as f64);
        }
        if let Some(tokens @ 0..) = output {
            self.output_token_len.observe(tokens as f64);
        }
    }

    fn tell(&mut self, told: &Told) {
        self.observe_lengths(told.input_tokens, told.output_tokens);
        if let Some(milliseconds) = told.transfer {
            self.disaggregated(milliseconds);
        }
    }

    fn disaggregated(&mut self, transfer_ms: Option<f64>) {
        self.disaggregated_requests += 1;
        self.kv_cache_transfer_ms += transfer_ms.filter(|ms| ms.is_finite() && *ms > 0.0).unwrap_or(0.0);
    }
}

impl RequestFold {
    /// One request's row, with its life where that is known. Only the complete one is final, and the executor sends it
    /// exactly once. Times and blocks wait a little before they are observed, in case the engine also sends exact ones:
    /// no request may be in the histograms twice.
    pub fn absorb_row(&mut self, row: &RequestStats, life: Option<&Life>, now: Instant) {
        if row.stage != Some(RequestStage::Complete) {
            return;
        }
        self.rows = Rows::Present;
        self.untold.clear();
        self.totals.tell(&Told {
            // The prefill position of a complete request is its prompt's length.
            input_tokens: row.context_prefill_position,
            output_tokens: row.num_generated_tokens,
            transfer: row.dis_serving_stats.map(|transfer| transfer.kv_cache_transfer_ms),
        });
        if let Some(tokens) = row.avg_num_decoded_tokens_per_iter.filter(|tokens| *tokens > 0.0) {
            self.totals.times.decoded_tokens_per_iteration.observe(tokens);
        }
        if self.totals.source == LatencySource::PerfMetrics {
            return;
        }
        let transfer = row.dis_serving_stats.unwrap_or_default();
        let ended = Ended {
            times: life.map(Times::of),
            blocks: Blocks {
                total: row.alloc_total_blocks_per_request,
                new: row.alloc_new_blocks_per_request,
                reused: row.reused_blocks_per_request,
                missed: row.missed_blocks_per_request,
                request: row.id,
            },
            transfer_seconds: transfer.kv_cache_transfer_ms.map(|ms| ms / 1000.0),
            transfer_bytes: transfer.kv_cache_size.and_then(|bytes| u64::try_from(bytes).ok()),
        };
        // So many at once come from a file read at full speed; the oldest have waited for longer than their share.
        if self.waiting.len() >= MAX_WAITING
            && let Some((_, oldest)) = self.waiting.pop_front()
        {
            self.observe(&oldest);
        }
        self.waiting.push_back((now, ended));
    }

    /// One finished request's own times.
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry, now: Instant) {
        if let Some(reason) = entry.finish_reason {
            self.totals.finished.get_or_insert_default()[reason as usize] += 1;
        }
        let Some(metrics) = &entry.perf_metrics else { return };
        if self.totals.source != LatencySource::PerfMetrics {
            // From here on exact times feed the histograms. Lives that wait are of requests whose entries are coming.
            self.totals.source = LatencySource::PerfMetrics;
            self.waiting.clear();
        }
        let tokens = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
        let timing = metrics.timing_metrics.unwrap_or_default();
        let transfer = timing.kv_cache_transfer_start.zip(timing.kv_cache_transfer_end).map(|(from, to)| to - from);
        self.tell(
            &Told {
                input_tokens: tokens(entry.prompt_tokens),
                output_tokens: tokens(entry.output_tokens),
                transfer: (entry.ctx_request_id || transfer.is_some())
                    .then(|| transfer.map(|seconds| seconds * 1000.0)),
            },
            now,
        );
        let times = &mut self.totals.times;
        times.observe(&Times {
            request: entry.request_id,
            arrived: timing.arrival_time,
            scheduled: timing.first_scheduled_time,
            first_token: timing.first_token_time,
            ended: timing.last_token_time,
            tokens: tokens(entry.output_tokens),
        });
        times.observe_transfer(transfer, timing.kv_cache_size, entry.request_id);
        let served = timing.server_arrival_time.zip(timing.server_first_token_time).map(|(from, to)| to - from);
        if let Some(seconds) = served.filter(|seconds| *seconds > 0.0) {
            times.server_time_to_first_token.observe_request(seconds, entry.request_id);
        }
        if let (Some(first), Some(last)) = (metrics.first_iter, metrics.last_iter)
            && last >= first
        {
            times.iterations.observe_request((last - first) as f64 + 1.0, entry.request_id);
        }
        self.used(metrics, entry.request_id);
    }

    /// An entry may come before its request's row: the first ones wait for it.
    fn tell(&mut self, told: &Told, now: Instant) {
        match self.rows {
            Rows::Present => {}
            Rows::Unknown if self.untold.len() < MAX_WAITING => self.untold.push_back((now, *told)),
            Rows::Unknown | Rows::Absent => self.totals.tell(told),
        }
    }

    /// Blocks and draft tokens of one finished request.
    fn used(&mut self, metrics: &RequestPerfMetrics, request: Option<u64>) {
        if let Some(kv) = &metrics.kv_cache_metrics {
            self.totals.times.observe_blocks(&Blocks {
                total: kv.num_total_allocated_blocks,
                new: kv.num_new_allocated_blocks,
                reused: kv.num_reused_blocks,
                missed: kv.num_missed_blocks,
                request,
            });
        }
        let Some(spec) = &metrics.speculative_decoding else { return };
        let (drafted, accepted) = (spec.total_draft_tokens, spec.total_accepted_draft_tokens);
        if let (Some(drafted @ 1..), Some(accepted @ 0..)) = (drafted, accepted) {
            let (all_drafted, all_accepted) = self.totals.draft_tokens.unwrap_or_default();
            self.totals.draft_tokens = Some((
                all_drafted.saturating_add(drafted.unsigned_abs()),
                all_accepted.saturating_add(accepted.unsigned_abs()),
            ));
            let ratio = accepted as f64 / drafted as f64;
            self.totals.times.spec_decode_acceptance_ratio.observe_request(ratio, request);
        } else if let Some(ratio) = spec.acceptance_rate {
            self.totals.times.spec_decode_acceptance_ratio.observe_request(ratio, request);
        }
    }

    /// Observes what has waited long enough.
    pub fn settle(&mut self, now: Instant) {
        if self.untold.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= PATIENCE) {
            self.rows = Rows::Absent;
            for (_, told) in self.untold.drain(..) {
                self.totals.tell(&told);
            }
        }
        while let Some((since, ended)) = self.waiting.front().copied() {
            if now.saturating_duration_since(since) < PATIENCE {
                return;
            }
            self.waiting.pop_front();
            self.observe(&ended);
        }
    }

    fn observe(&mut self, ended: &Ended) {
        self.totals.source = LatencySource::RequestStats;
        if let Some(times) = &ended.times {
            self.totals.times.observe(times);
        }
        self.totals.times.observe_blocks(&ended.blocks);
        self.totals.times.observe_transfer(ended.transfer_seconds, ended.transfer_bytes, ended.blocks.request);
    }
}

impl Times {
    fn of(life: &Life) -> Self {
        let seconds = |micros: i64| micros as f64 / 1e6;
        Self {
            request: Some(life.id),
            arrived: Some(seconds(life.arrived_us)),
            scheduled: life.scheduled_us.map(seconds),
            first_token: life.first_token_us.map(seconds),
            ended: Some(seconds(life.ended_us)),
            tokens: Some(life.tokens),
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
/// Requests that may wait: minutes of a busy engine.
const MAX_WAITING: usize = 16_384;

impl Default for RequestTotals {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> PerfMetricsEntry {
        PerfMetricsEntry {
            ctx_request_id: true,
            perf_metrics: Some(RequestPerfMetrics::default()),
            prompt_tokens: Some(100),
            output_tokens: Some(10),
            ..PerfMetricsEntry::default()
        }
    }

    fn row() -> RequestStats {
        RequestStats {
            stage: Some(RequestStage::Complete),
            context_prefill_position: Some(100),
            num_generated_tokens: Some(10),
            dis_serving_stats: Some(Default::default()),
            ..RequestStats::default()
        }
    }

    fn counted(fold: &RequestFold) -> (u64, u64, u64) {
        let totals = &fold.totals;
        (totals.input_token_len.count(), totals.output_token_len.count(), totals.disaggregated_requests)
    }

    #[test]
    fn an_entry_and_the_row_that_comes_after_it_are_one_request() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        for _ in 0..3 {
            fold.absorb_perf_metrics(&entry(), now);
        }
        for _ in 0..3 {
            fold.absorb_row(&row(), None, now);
        }
        fold.absorb_perf_metrics(&entry(), now);
        fold.absorb_row(&row(), None, now);
        fold.settle(now + PATIENCE);
        assert_eq!(counted(&fold), (4, 4, 4));
    }

    #[test]
    fn without_rows_entries_tell_how_requests_ended() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        fold.absorb_perf_metrics(&entry(), now);
        fold.settle(now);
        assert_eq!(counted(&fold), (0, 0, 0));
        fold.settle(now + PATIENCE);
        assert_eq!(counted(&fold), (1, 1, 1));
        fold.absorb_perf_metrics(&entry(), now + PATIENCE);
        assert_eq!(counted(&fold), (2, 2, 2));
    }
}
