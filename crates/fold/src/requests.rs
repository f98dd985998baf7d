//! Folds finished requests into totals. Times come from RequestPerfMetrics (one "entry" for each request), or else from the
//! rows of each request in the records. Lengths and KV cache transfers come from the row that reports a request complete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_records::ServerMetrics;
use trtllm_records::perf_metrics::{PerfMetricsEntry, SpeculativeDecodingMetrics};
use trtllm_records::request::RequestStats;
use trtllm_records::server_metrics::RequestHistogram;

use super::finished_request::{FinishedRequest, finish_reason, served};
use super::lifecycle::Lifecycle;
use super::observer::{EntryOfRequest, Observer, RowOfRequest, Scope};
use super::page_times::PageTimes;
use super::request_times::{Blocks, EXACT_TIMES_WITHIN, Latencies, RequestTimes, Times};
use super::request_totals::{LatencySource, RequestTotals, Usage};
use super::saturating::{add, add_known, unsigned};
use super::served::Served;
use super::server_metrics::{Increase, ServerFold, ServerTotals};
use super::share::share;
use super::successes::{Ends, Successes};

#[derive(Debug, Clone, Default)]
pub struct RequestFold {
    /// See `EngineAbout::stamps_first_token_early`.
    pub first_token_is_early: bool,
    pub totals: RequestTotals,
    /// Requests that rows reported complete, kept while exact times may still arrive.
    complete: VecDeque<(Instant, CompleteRow)>,
    /// Whether rows report lengths and transfers. If not, they are taken from RequestPerfMetrics.
    rows: RequestRows,
    /// Lengths and transfers from RequestPerfMetrics while `rows` is unknown.
    pending_usage: VecDeque<(Instant, Usage)>,
    /// Requests without times that objectives have not judged yet, because it is unknown whether their rows come.
    unjudged: VecDeque<(Instant, Served)>,
    successes: Successes,
    /// Entries with times.
    entries: u64,
    pub(super) server: ServerFold,
    /// Entries have exact times, so those of rows are not observed.
    entries_have_times: bool,
    /// The times of requests come from trtllm-serve's metrics, so neither those of rows nor those of entries are observed.
    times_from_server: bool,
    page_times: PageTimes,
}

/// What an entry does not tell of its engine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EntryContext {
    pub tokens_per_block: Option<i64>,
    /// See [`EntryOfRequest::handling_lag`].
    pub handling_lag: u64,
}

/// Whether the engine sends rows of complete requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RequestRows {
    #[default]
    Unknown,
    Absent,
    Present,
}

/// Times and blocks of one complete request, from its rows.
#[derive(Debug, Clone, Copy)]
struct CompleteRow {
    /// Unknown if the start or some rows of the request were missed.
    latencies: Latencies,
    /// The values by which objectives judge the request. Absent if it must not be judged.
    served: Option<Served>,
    blocks: Blocks,
    transfer_seconds: Option<f64>,
    transfer_bytes: Option<u64>,
}

impl RequestFold {
    /// Folds the row that reports a request complete, with the request's lifecycle if it is known. Times and blocks are observed
    /// with a delay, because the engine may also send exact ones, and no request may be in the histograms twice. `sampled`: not
    /// all requests have rows, so this one is not judged by objectives.
    pub(crate) fn absorb_complete_row(
        &mut self,
        row: &RequestStats,
        lifecycle: Option<&Lifecycle>,
        sampled: bool,
        now: Instant,
        observer: &mut impl Observer,
    ) {
        // The prefill position of a complete request is the length of its prompt, unless the request was paused.
        let prompt = lifecycle.and_then(|lifecycle| lifecycle.prompt_tokens).or(row.context_prefill_position);
        let row = &RequestStats { context_prefill_position: prompt, ..row.clone() };
        // The row of a request that only had a context phase shows a transfer that has not ended, with a time of 0.
        let transfer =
            row.dis_serving_stats.filter(|transfer| transfer.kv_cache_transfer_ms.is_some_and(|ms| ms > 0.0));
        self.rows = RequestRows::Present;
        self.pending_usage.clear();
        self.unjudged.clear();
        let times = lifecycle.map(Lifecycle::times).unwrap_or_default();
        self.totals.observe_usage(&Usage {
            input_tokens: prompt,
            output_tokens: row.num_generated_tokens,
            // Triton counts each request of a context or generation server.
            transfer: row.dis_serving_stats.map(|transfer| transfer.kv_cache_transfer_ms),
        });
        let decoded = row.avg_num_decoded_tokens_per_iter.filter(|_| row.num_generated_tokens != Some(0));
        if let Some(tokens) = decoded.filter(|tokens| *tokens > 0.0) {
            self.totals.times.decoded_tokens_per_iteration.observe(tokens);
        }
        let transfer = transfer.unwrap_or_default();
        let transfer_seconds = transfer.kv_cache_transfer_ms.map(|ms| ms / 1000.0);
        let (is_followed, is_kept) = (lifecycle.is_some(), !self.entries_have_times);
        observer.complete_row(&RowOfRequest { row, times: &times, transfer_seconds, is_followed, is_kept });
        if !is_kept {
            return;
        }
        let output_tokens = row.num_generated_tokens.and_then(|tokens| u64::try_from(tokens).ok());
        let complete = CompleteRow {
            latencies: Latencies::of(&times, lifecycle.map(|lifecycle| lifecycle.tokens)),
            // A request without a token was cancelled, so its times say nothing about the engine.
            served: (!sampled).then(|| match output_tokens {
                Some(0) => Served::default(),
                _ => Served::of(&times, output_tokens),
            }),
            blocks: Blocks {
                total: row.alloc_total_blocks_per_request,
                new: row.alloc_new_blocks_per_request,
                reused: row.reused_blocks_per_request,
                missed: row.missed_blocks_per_request,
                request: row.id,
            },
            transfer_seconds,
            transfer_bytes: transfer.kv_cache_size.and_then(|bytes| u64::try_from(bytes).ok()),
        };
        // Only the replay of a file at full speed fills the queue.
        if self.complete.len() >= MAX_PENDING
            && let Some((_, oldest)) = self.complete.pop_front()
        {
            self.observe(&oldest, observer);
        }
        self.complete.push_back((now, complete));
    }

    /// Folds the RequestPerfMetrics of one finished request.
    pub(crate) fn absorb_perf_metrics(
        &mut self,
        entry: &PerfMetricsEntry,
        engine: &EntryContext,
        now: Instant,
        observer: &mut impl Observer,
    ) {
        if let Some(reason) = finish_reason(entry) {
            self.totals.entries_have_reasons = true;
            self.totals.finished.get_or_insert_default()[reason as usize] += 1;
        }
        let finished = FinishedRequest::of(entry).map(|request| match self.first_token_is_early {
            true => request.without_first_token(),
            false => request,
        });
        let has_times = finished.is_some_and(|finished| finished.latencies.any());
        if has_times && !self.times_from_server && !self.entries_have_times {
            // From now on only exact times are observed. The entries of the queued requests are still to come.
            self.entries_have_times = true;
            self.totals.source = LatencySource::PerfMetrics;
            self.complete.clear();
            observer.rows_dropped();
            self.judge_all(observer);
        }
        self.page_times.entries += u64::from(has_times);
        self.entries += u64::from(has_times);
        let served = served(entry, finished.as_ref());
        self.judge_entry(&served, now, observer);
        self.absorb_steps(entry);
        let Some(finished) = finished else { return };
        let EntryContext { tokens_per_block, handling_lag } = *engine;
        observer.entry(&EntryOfRequest { request: &finished, served, has_times, tokens_per_block, handling_lag, now });
        self.absorb_usage(
            &Usage {
                input_tokens: finished.prompt_tokens,
                output_tokens: finished.output_tokens,
                transfer: finished.disaggregated.then(|| finished.transfer_seconds.map(|seconds| seconds * 1000.0)),
            },
            now,
        );
        let request = finished.request;
        self.observe_latencies(finished.latencies, request);
        let times = &mut self.totals.times;
        if let Some(seconds) = finished.generation_queue {
            times.generation_queue.observe_request(seconds, request);
        }
        if let Some(seconds) = finished.server_time_to_first_token {
            times.server_time_to_first_token.observe_request(seconds, request);
        }
        // If the server has a metrics page, the cached tokens are taken from that.
        if let Some(tokens) = finished.cached_tokens.filter(|_| !self.server.known) {
            times.cached_tokens.observe_request(tokens as f64, request);
        }
        if let Some(iterations) = finished.iterations {
            times.iterations.observe_request(iterations as f64, request);
        }
        // Until entries have times, transfers and blocks come from the rows of requests.
        if self.entries_have_times || self.rows == RequestRows::Absent {
            times.observe_transfer(finished.transfer_seconds, finished.transfer_bytes, request);
            if let Some(kv) = &finished.kv_cache {
                times.observe_blocks(&Blocks {
                    total: kv.num_total_allocated_blocks,
                    new: kv.num_new_allocated_blocks,
                    reused: kv.num_reused_blocks,
                    missed: kv.num_missed_blocks,
                    request,
                });
            }
        }
        if let Some(spec) = &finished.speculative_decoding {
            self.observe_draft_tokens(spec, request);
        }
    }

    fn absorb_steps(&mut self, entry: &PerfMetricsEntry) {
        let parts = [entry.ctx_perf_metrics.as_deref(), entry.gen_perf_metrics.as_deref()];
        for part in parts.into_iter().flatten().chain([entry]) {
            if let Some(steps) = &part.time_breakdown_metrics {
                let metrics = part.perf_metrics.as_ref();
                let speculative = metrics.is_some_and(|metrics| metrics.speculative_decoding.is_some());
                self.totals.times.observe_steps(steps, speculative, part.request_id);
            }
        }
    }

    pub(crate) fn absorb_server_metrics(&mut self, page: &ServerMetrics, observer: &mut impl Observer) {
        if page.several_frontends {
            self.forget_server_metrics(page);
            return;
        }
        let more = self.server.absorb(page, Arc::make_mut(&mut self.totals.server));
        if !self.server.known {
            return;
        }
        if !self.totals.entries_have_reasons {
            let finished = self.totals.finished.get_or_insert_default();
            finished.iter_mut().zip(more.finished).for_each(|(total, more)| add(total, more));
        }
        self.page_times.add(&more, &self.totals.times);
        self.times_from_server = page.without_entries || self.page_times.has_more;
        let whole = more.of(RequestHistogram::EndToEnd);
        if self.times_from_server && whole.sum.is_some() && whole.count() > 0 {
            self.totals.source = LatencySource::ServerMetrics;
        }
        self.judge_page(&more, observer);
        for (histogram, increase) in RequestHistogram::ALL.into_iter().zip(more.histograms) {
            if self.times_from_server || histogram.is_only_on_page() {
                self.totals.times.of_server(histogram).add_increase(&increase);
            }
        }
    }

    /// Judges the requests that were added to the histograms of the server's page. All objectives are judged if there are
    /// neither rows nor entries. Entries have no number of tokens, so with entries only the time per output token is judged by
    /// the page.
    fn judge_page(&self, more: &Increase, observer: &mut impl Observer) {
        if self.rows == RequestRows::Present || !self.unjudged.is_empty() {
            return;
        }
        let scope = if self.times_from_server { Scope::All } else { Scope::PerToken };
        observer.page(more, scope);
    }

    /// Each page comes from one of several frontends, so no page has all requests. What was counted from pages is absent from now
    /// on, because it may contain differences between two frontends.
    fn forget_server_metrics(&mut self, page: &ServerMetrics) {
        self.server = ServerFold::default();
        self.page_times = PageTimes::default();
        self.totals.server = Arc::new(ServerTotals { config: page.config.clone(), ..ServerTotals::default() });
        if !self.totals.entries_have_reasons {
            self.totals.finished = None;
        }
        self.times_from_server = false;
        let from_pages = self.totals.source == LatencySource::ServerMetrics;
        if from_pages {
            self.totals.source = LatencySource::None;
        }
        let mut without = RequestTimes::default();
        for histogram in RequestHistogram::ALL {
            if from_pages || histogram.is_only_on_page() {
                std::mem::swap(self.totals.times.of_server(histogram), without.of_server(histogram));
            }
        }
    }

    /// Notes that trtllm-serve was replaced. The new server's first page shows where the times of requests come from.
    pub(crate) fn restart(&mut self) {
        self.server.note_restart();
        self.page_times = PageTimes::default();
        self.times_from_server = false;
        // The new process may have other options.
        self.rows = RequestRows::Unknown;
        self.entries_have_times = false;
    }

    /// See [`super::EngineFold::resume`]. The next page of trtllm-serve is a new baseline.
    pub(crate) fn resume(&mut self) {
        self.restart();
        self.server.resume();
    }

    /// Observes the latencies that trtllm-serve's own metrics do not have, so that no request is observed twice.
    fn observe_latencies(&mut self, mut latencies: Latencies, request: Option<u64>) {
        if self.times_from_server {
            return;
        }
        if self.server.known {
            latencies.time_per_output_token = None;
        }
        self.totals.times.observe(&latencies, request);
    }

    /// An entry may arrive before the row of its request. Until it is known whether rows come, entries are queued.
    fn absorb_usage(&mut self, usage: &Usage, now: Instant) {
        match self.rows {
            RequestRows::Present => {}
            RequestRows::Unknown if self.pending_usage.len() < MAX_PENDING => {
                self.pending_usage.push_back((now, *usage))
            }
            RequestRows::Unknown | RequestRows::Absent => self.totals.observe_usage(usage),
        }
    }

    /// Each request is judged once: by its entry if entries have times, else by its row. While it is unknown whether rows come, an
    /// entry without times waits.
    fn judge_entry(&mut self, served: &Served, now: Instant, observer: &mut impl Observer) {
        if self.times_from_server {
            return;
        }
        // The page judges requests without a known number of tokens by their time per output token.
        let page_judges = self.server.known && self.rows != RequestRows::Present;
        let scope = if page_judges && served.output_tokens.is_none() { Scope::WithoutPerToken } else { Scope::All };
        let counts = self.entries_have_times || self.rows == RequestRows::Absent;
        match self.rows {
            RequestRows::Unknown if !counts && self.unjudged.len() < MAX_PENDING => {
                self.unjudged.push_back((now, *served))
            }
            RequestRows::Present if !counts => {}
            _ => observer.served(served, scope),
        }
    }

    fn judge_all(&mut self, observer: &mut impl Observer) {
        for (_, served) in std::mem::take(&mut self.unjudged) {
            observer.served(&served, Scope::All);
        }
    }

    fn observe_draft_tokens(&mut self, spec: &SpeculativeDecodingMetrics, request: Option<u64>) {
        let (drafted, accepted) = (spec.total_draft_tokens, spec.total_accepted_draft_tokens);
        let ratio = match (drafted, accepted) {
            // PyTorch sends zeros for a request whose drafts it did not count (upstream PR 17082).
            (Some(_), Some(_)) => share(accepted, drafted),
            _ => spec.acceptance_rate.filter(|_| drafted != Some(0)),
        };
        let Some(ratio) = ratio else { return };
        self.totals.times.spec_decode_acceptance_ratio.observe_request(ratio, request);
        if let Some((drafted, accepted)) = drafted.zip(accepted) {
            let total = &mut self.totals.draft_tokens;
            add_known(&mut total.proposed, Some(unsigned(drafted)));
            add_known(&mut total.accepted, Some(unsigned(accepted)));
        }
    }

    /// Observes the requests that have been queued long enough. `completed` is the total of completed requests.
    pub(crate) fn settle(&mut self, completed: u64, now: Instant, observer: &mut impl Observer) {
        let ends = Ends { completed, entries: self.entries };
        let have_entries = self.entries_have_times && !self.times_from_server;
        let finished = self.totals.finished.as_ref();
        self.successes.settle(ends, have_entries, finished, EXACT_TIMES_WITHIN, now);
        self.totals.succeeded = self.successes.total;
        if self.page_times.has_more_than_entries(now) {
            self.take_times_of_page();
        }
        let patience = if self.server.known { SERVER_TIMES_WITHIN } else { EXACT_TIMES_WITHIN };
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= EXACT_TIMES_WITHIN;
        if self.pending_usage.front().is_some_and(|(since, _)| is_over(since)) {
            self.rows = RequestRows::Absent;
            for (_, usage) in self.pending_usage.drain(..) {
                self.totals.observe_usage(&usage);
            }
        }
        if self.unjudged.front().is_some_and(|(since, _)| is_over(since)) {
            self.judge_all(observer);
        }
        let is_due = |(since, _): &(Instant, CompleteRow)| now.saturating_duration_since(*since) >= patience;
        while let Some((_, complete)) = self.complete.front().copied().filter(is_due) {
            self.complete.pop_front();
            self.observe(&complete, observer);
        }
        // The rows above are judged first.
        observer.settled(completed, patience, now);
    }

    /// The page counts requests that have no entry, or each answer of a request that asks for several (`n` above 1). From now on the
    /// times of requests come from the page, so that all of them count the same.
    fn take_times_of_page(&mut self) {
        self.times_from_server = true;
        self.totals.source = LatencySource::ServerMetrics;
        for (histogram, of_page) in RequestHistogram::ALL.into_iter().zip(&self.page_times.histograms) {
            let times = self.totals.times.of_server(histogram);
            if !histogram.is_only_on_page() && of_page.has_all_of(times) {
                times.clone_from(of_page);
            }
        }
    }

    fn observe(&mut self, complete: &CompleteRow, observer: &mut impl Observer) {
        if !self.times_from_server {
            self.totals.source = LatencySource::RequestStats;
        }
        self.observe_latencies(complete.latencies, complete.blocks.request);
        observer.row_counted(complete.served.as_ref());
        self.totals.times.observe_blocks(&complete.blocks);
        self.totals.times.observe_transfer(complete.transfer_seconds, complete.transfer_bytes, complete.blocks.request);
    }
}

impl Lifecycle {
    fn times(&self) -> Times {
        let seconds = |micros: i64| micros as f64 / 1e6;
        Times {
            arrived: self.arrived_us.map(seconds),
            scheduled: self.scheduled_us.map(seconds),
            first_token: self.first_token_us.map(seconds),
            ended: Some(seconds(self.ended_us)),
        }
    }
}

/// trtllm-serve's page shows a request after at most this time: it is read every 5 s, in at most 4 s.
pub(super) const SERVER_TIMES_WITHIN: Duration = Duration::from_secs(15);
/// Length of the queues: minutes of a busy engine.
const MAX_PENDING: usize = 16_384;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::histogram::Histogram;
    use super::super::request_totals::TokenTotals;
    use super::*;
    use trtllm_records::perf_metrics::RequestPerfMetrics;
    use trtllm_records::request::{DisServingRequestStats, RequestStage};

    fn entry() -> PerfMetricsEntry {
        PerfMetricsEntry {
            ctx_request_id: Some(true),
            perf_metrics: Some(RequestPerfMetrics::default()),
            prompt_tokens: Some(100),
            output_tokens: Some(10),
            ..PerfMetricsEntry::default()
        }
    }

    fn transferred(ms: f64) -> DisServingRequestStats {
        DisServingRequestStats { kv_cache_transfer_ms: Some(ms), kv_cache_size: Some(1024) }
    }

    fn row() -> RequestStats {
        RequestStats {
            stage: Some(RequestStage::Complete),
            context_prefill_position: Some(100),
            num_generated_tokens: Some(10),
            dis_serving_stats: Some(transferred(2.5)),
            ..RequestStats::default()
        }
    }

    fn from_json(json: &str) -> PerfMetricsEntry {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_time_of_0_is_a_time_that_was_not_measured() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        // An ordinary request, as trtllm-serve writes it: the times of a transfer that never happened are 0.
        for _ in 0..10 {
            let entry = from_json(
                r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 100000.0, "first_scheduled_time": 100000.0,
                    "first_token_time": 100000.5, "last_token_time": 100001.5, "server_arrival_time": 0,
                    "server_first_token_time": 100000.5, "kv_cache_transfer_start": 0.0, "kv_cache_transfer_end": 0.0}}}"#,
            );
            fold.absorb_perf_metrics(&entry, &EntryContext::default(), now, &mut ());
        }
        // A request that was cancelled before it was scheduled.
        let cancelled = r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 100000.0, "first_scheduled_time": 0.0,
            "first_token_time": 0.0, "last_token_time": 0.0}}}"#;
        fold.absorb_perf_metrics(&from_json(cancelled), &EntryContext::default(), now, &mut ());
        let unscheduled = r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 0.0, "first_scheduled_time": 0,
            "first_token_time": 100000.5, "last_token_time": 100001.5}}}"#;
        fold.absorb_perf_metrics(&from_json(unscheduled), &EntryContext::default(), now, &mut ());
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        let times = &fold.totals.times;
        let shown = |histogram: &Histogram| (histogram.count(), histogram.sum());
        assert_eq!((shown(&times.prefill_time), shown(&times.queue_time)), ((10, 5.0), (10, 0.0)));
        assert_eq!((shown(&times.e2e_latency), shown(&times.decode_time)), ((10, 15.0), (11, 11.0)));
        assert_eq!((shown(&times.inference_time), shown(&times.server_time_to_first_token)), ((10, 15.0), (0, 0.0)));
        assert_eq!((fold.totals.disaggregated_requests, times.kv_cache_transfer.count()), (0, 0));
    }

    fn counted(fold: &RequestFold) -> (u64, u64, u64) {
        let totals = &fold.totals;
        (totals.input_token_len.count(), totals.output_token_len.count(), totals.disaggregated_requests)
    }

    #[test]
    fn token_counts_are_absent_until_an_entry_or_a_row_has_some() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let settled = now + EXACT_TIMES_WITHIN;
        // trtllm-serve's own entries have no token counts.
        fold.absorb_perf_metrics(
            &PerfMetricsEntry { prompt_tokens: None, output_tokens: None, ..entry() },
            &EntryContext::default(),
            now,
            &mut (),
        );
        fold.settle(0, settled, &mut ());
        assert_eq!(fold.totals.tokens, TokenTotals::default());
        // A request that was cancelled before its prompt was read has no length, but its count of 0 is known.
        let cancelled = RequestStats { context_prefill_position: Some(0), num_generated_tokens: None, ..row() };
        fold.absorb_complete_row(&cancelled, None, false, settled, &mut ());
        assert_eq!(fold.totals.tokens, TokenTotals { prompt: Some(0), generation: None });
        assert_eq!(fold.totals.input_token_len.count(), 0);
        fold.absorb_complete_row(&row(), None, false, settled, &mut ());
        assert_eq!(fold.totals.tokens, TokenTotals { prompt: Some(100), generation: Some(10) });
    }

    #[test]
    fn an_entry_and_a_later_row_of_the_same_request_count_once() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        for _ in 0..3 {
            fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut ());
        }
        for _ in 0..3 {
            fold.absorb_complete_row(&row(), None, false, now, &mut ());
        }
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut ());
        fold.absorb_complete_row(&row(), None, false, now, &mut ());
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(counted(&fold), (4, 4, 4));
    }

    #[test]
    fn drafts_of_nothing_or_with_more_accepted_than_drafted_have_no_ratio() {
        let observed = |drafts: serde_json::Value| {
            let mut fold = RequestFold::default();
            let entry = json!({"perf_metrics": {"speculative_decoding": drafts}}).to_string();
            fold.absorb_perf_metrics(&from_json(&entry), &EntryContext::default(), Instant::now(), &mut ());
            let ratio = &fold.totals.times.spec_decode_acceptance_ratio;
            (ratio.count(), ratio.sum(), fold.totals.draft_tokens.proposed, fold.totals.draft_tokens.accepted)
        };
        let counts = |accepted: i64, drafted: i64| json!({"total_accepted_draft_tokens": accepted, "total_draft_tokens": drafted, "acceptance_rate": 0.5});
        assert_eq!(observed(counts(3, 4)), (1, 0.75, Some(4), Some(3)));
        assert_eq!(observed(counts(0, 4)), (1, 0.0, Some(4), Some(0)), "a ratio of 0 is a ratio");
        assert_eq!(observed(json!({"acceptance_rate": 0.5})), (1, 0.5, None, None));
        for drafts in
            [counts(0, 0), counts(5, 4), counts(5, 0), json!({"acceptance_rate": 0.0, "total_draft_tokens": 0})]
        {
            assert_eq!(observed(drafts.clone()), (0, 0.0, None, None), "{drafts}");
        }
    }

    #[test]
    fn numbers_of_a_request_that_contradict_each_other_are_not_observed() {
        let observed = |prompt: u64, cached: u64, new: u64| {
            let mut fold = RequestFold { rows: RequestRows::Absent, ..RequestFold::default() };
            let blocks = json!({"num_total_allocated_blocks": 4, "num_new_allocated_blocks": new,
                "num_reused_blocks": 0, "num_missed_blocks": 0});
            let entry =
                json!({"prompt_tokens": prompt, "cached_tokens": cached, "perf_metrics": {"kv_cache_metrics": blocks}});
            fold.absorb_perf_metrics(&from_json(&entry.to_string()), &EntryContext::default(), Instant::now(), &mut ());
            let times = &fold.totals.times;
            [&times.cached_tokens, &times.kv_cache_blocks, &times.kv_cache_new_blocks, &times.kv_cache_hit_ratio]
                .map(Histogram::count)
        };
        assert_eq!(observed(100, 100, 4), [1, 1, 1, 0]);
        assert_eq!(observed(100, 101, 4), [0, 1, 1, 0]);
        assert_eq!(observed(100, 100, 5), [1, 1, 0, 0]);
    }

    #[test]
    fn a_row_without_a_time_of_its_transfer_counts_the_request_but_no_transfer() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        for ms in [0.0, 2.5] {
            fold.absorb_complete_row(
                &RequestStats { dis_serving_stats: Some(transferred(ms)), ..row() },
                None,
                false,
                now,
                &mut (),
            );
        }
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        let times = &fold.totals.times;
        assert_eq!((fold.totals.disaggregated_requests, fold.totals.kv_cache_transfer_ms), (2, 2.5));
        assert_eq!((times.kv_cache_transfer.count(), times.kv_cache_transfer_bytes.count()), (1, 1));
    }

    /// Judges requests by a TTFT of 400 ms, and counts those that met and missed it, and those whose outcome is unknown.
    #[derive(Default)]
    struct Judge(u64, u64, u64);

    impl Observer for Judge {
        fn served(&mut self, served: &Served, _: Scope) {
            match served.time_to_first_token {
                Some(seconds) if seconds <= 0.4 => self.0 += 1,
                Some(_) => self.1 += 1,
                None => self.2 += 1,
            }
        }

        fn row_counted(&mut self, served: Option<&Served>) {
            self.served(served.unwrap(), Scope::All);
        }
    }

    fn judged(judge: &Judge) -> (u64, u64, u64) {
        (judge.0, judge.1, judge.2)
    }

    fn timed(first_token: f64) -> PerfMetricsEntry {
        let timing = json!({"arrival_time": 10.0, "first_token_time": first_token, "last_token_time": 12.0});
        from_json(&json!({"perf_metrics": {"timing_metrics": timing}}).to_string())
    }

    #[test]
    fn a_request_is_judged_once_by_its_entry_if_entries_have_times() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        // First the entry of a request that was cancelled before its first token, then rows and entries of two others.
        fold.absorb_perf_metrics(
            &from_json(r#"{"perf_metrics": {}, "finish_reason": "cancelled"}"#),
            &EntryContext::default(),
            now,
            &mut judge,
        );
        assert_eq!(judged(&judge), (0, 0, 0));
        fold.absorb_perf_metrics(&timed(10.25), &EntryContext::default(), now, &mut judge);
        fold.absorb_complete_row(&row(), None, false, now, &mut judge);
        fold.absorb_complete_row(&row(), None, false, now, &mut judge);
        fold.absorb_perf_metrics(&timed(10.5), &EntryContext::default(), now, &mut judge);
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut judge);
        assert_eq!(judged(&judge), (1, 1, 1));
    }

    #[test]
    fn a_request_is_judged_once_by_its_row_if_entries_have_no_times() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        for _ in 0..3 {
            fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut judge);
            fold.absorb_complete_row(&row(), None, false, now, &mut judge);
            fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut judge);
        }
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut judge);
        // It is unknown when the requests of the rows arrived.
        assert_eq!(judged(&judge), (0, 0, 3));
    }

    #[test]
    fn without_rows_and_times_each_entry_is_unknown() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut judge);
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut judge);
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now + EXACT_TIMES_WITHIN, &mut judge);
        assert_eq!(judged(&judge), (0, 0, 2));
    }

    #[test]
    fn without_rows_lengths_and_transfers_come_from_entries() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut ());
        fold.settle(0, now, &mut ());
        assert_eq!(counted(&fold), (0, 0, 0));
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(counted(&fold), (1, 1, 1));
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(counted(&fold), (2, 2, 2));
    }

    #[test]
    fn a_restarted_engine_without_rows_has_its_lengths_from_entries() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let row = RequestStats { stage: Some(RequestStage::Complete), ..RequestStats::default() };
        fold.absorb_complete_row(&row, None, false, now, &mut ());
        fold.restart();
        fold.absorb_perf_metrics(&entry(), &EntryContext::default(), now, &mut ());
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(counted(&fold), (1, 1, 1));
    }

    #[test]
    fn a_restarted_engine_without_entries_has_its_latencies_from_rows() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let observed = |fold: &RequestFold| (fold.totals.times.e2e_latency.count(), fold.totals.source);
        let (scheduled_us, first_token_us) = (Some(250_000), Some(500_000));
        let served = Lifecycle {
            id: 1,
            arrived_us: Some(0),
            scheduled_us,
            first_token_us,
            ended_us: 2_000_000,
            tokens: 9,
            prompt_tokens: None,
        };
        fold.absorb_perf_metrics(&timed(10.25), &EntryContext::default(), now, &mut ());
        fold.absorb_complete_row(&row(), Some(&served), false, now, &mut ());
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(observed(&fold), (1, LatencySource::PerfMetrics));
        fold.restart();
        fold.absorb_complete_row(&row(), Some(&served), false, now, &mut ());
        fold.settle(0, now + EXACT_TIMES_WITHIN, &mut ());
        assert_eq!(observed(&fold), (2, LatencySource::RequestStats));
    }
}
