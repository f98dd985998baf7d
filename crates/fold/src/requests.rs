//! Folds finished requests into totals. [`choices`] says which source gives which numbers.

mod choices;
mod completed;
mod finished;

use std::sync::Arc;
use std::time::Instant;

use trtllm_records::perf_metrics::{PerfMetricsEntry, SpeculativeDecodingMetrics};
use trtllm_records::server_metrics::RequestHistogram;
use trtllm_records::{RequestStats, ServerMetrics};

use self::choices::{Choices, Quantity, Source};
use self::completed::CompletedRequests;
use self::finished::Finished;
use super::baseline::Baseline;
use super::finished_request::FinishedRequest;
use super::histogram::Histogram;
use super::lifecycle::Lifecycle;
use super::observer::{Observer, Scope};
use super::request_totals::RequestTotals;
use super::saturating::{add_known, unsigned};
use super::server_metrics::{ServerFold, ServerTotals};
use super::share::share;

pub(crate) use self::choices::DECIDED_WITHIN;

#[derive(Debug, Clone, Default)]
pub struct RequestFold {
    /// See `EngineAbout::stamps_first_token_early`.
    pub first_token_is_early: bool,
    pub totals: RequestTotals,
    pub(super) choices: Choices,
    /// What has finished before the sources were chosen, oldest first.
    waiting: Vec<Finished>,
    completed: CompletedRequests,
    pub(super) server: ServerFold,
}

impl RequestFold {
    /// Folds the row that reports a request complete, with the request's lifecycle if it is known. `is_sampled`: not all requests
    /// have rows, so this one is not judged by objectives.
    pub(crate) fn absorb_complete_row(
        &mut self,
        row: &RequestStats,
        lifecycle: Option<&Lifecycle>,
        is_sampled: bool,
        now: Instant,
        observer: &mut impl Observer,
    ) {
        // The prefill position of a complete request is the length of its prompt, unless the request was paused.
        let prompt = lifecycle.and_then(|lifecycle| lifecycle.prompt_tokens).or(row.context_prefill_position);
        let row = &RequestStats { context_prefill_position: prompt, ..row.clone() };
        let decoded = row.avg_num_decoded_tokens_per_iter.filter(|_| row.num_generated_tokens != Some(0));
        self.totals.times.decoded_tokens_per_iteration.observe(decoded.filter(|tokens| *tokens > 0.0));
        let request = FinishedRequest::of_row(row, lifecycle);
        self.choices.note_row(request.latencies.any(), is_sampled);
        observer.complete_row(row, &request.times);
        self.absorb(Finished::Request { source: Source::Rows, request, is_sampled }, now, observer);
    }

    /// Folds the RequestPerfMetrics or the span of one finished request. Returns the request, and whether its times are used. `None` if
    /// entries and spans both arrive, and `source` came second.
    pub(crate) fn absorb_perf_metrics(
        &mut self,
        entry: &PerfMetricsEntry,
        source: Source,
        now: Instant,
        observer: &mut impl Observer,
    ) -> Option<(FinishedRequest, bool)> {
        let request = FinishedRequest::of_entry(entry, self.first_token_is_early);
        let has_times = request.latencies.any();
        let is_primary_source = self.choices.note_request(source, has_times);
        if is_primary_source {
            self.completed.note(entry.request_id.filter(|_| source == Source::Entries), has_times);
        }
        self.absorb_steps(entry);
        self.observe_per_request_numbers(&request, is_primary_source);
        self.absorb(Finished::Request { source, request, is_sampled: false }, now, observer);
        is_primary_source.then(|| (request, has_times && self.choices.taken(Quantity::Outcomes) != Some(Source::Rows)))
    }

    /// Observes the numbers that rows and the server's metrics do not have.
    fn observe_per_request_numbers(&mut self, finished: &FinishedRequest, is_primary_source: bool) {
        let (times, request) = (&mut self.totals.times, finished.request);
        times.generation_queue.observe_request(finished.generation_queue.filter(|_| is_primary_source), request);
        times.server_time_to_first_token.observe_request(finished.server_time_to_first_token, request);
        // If the server has metrics of its own, the cached tokens are taken from those.
        let cached = finished.cached_tokens.filter(|_| !self.server.known);
        times.cached_tokens.observe_request(cached.map(|tokens| tokens as f64), request);
        times.iterations.observe_request(finished.iterations.map(|iterations| iterations as f64), request);
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

    pub(crate) fn absorb_server_metrics(
        &mut self,
        metrics: &ServerMetrics,
        now: Instant,
        observer: &mut impl Observer,
    ) {
        if metrics.several_frontends {
            self.forget_server_metrics(metrics);
            return;
        }
        let more = self.server.absorb(metrics, Arc::make_mut(&mut self.totals.server));
        if !self.server.known {
            return;
        }
        if self.choices.taken(Quantity::Reasons) != Some(Source::Entries) {
            self.totals.finished.get_or_insert_default();
        }
        self.choices.note_server_metrics(metrics, more.of(RequestHistogram::EndToEnd).count(), now);
        more.add_to(&mut self.totals, None);
        self.absorb(Finished::Increase(more), now, observer);
    }

    /// Counts what has finished, or keeps it until the sources are chosen.
    fn absorb(&mut self, finished: Finished, now: Instant, observer: &mut impl Observer) {
        let source = finished.source();
        // An entry that tells nothing is a request whose outcome is unknown.
        if source != Source::Entries && !Quantity::ALL.into_iter().any(|quantity| finished.has(quantity)) {
            return;
        }
        self.choices.begin(now);
        self.choices.note_told(source, |quantity| finished.has(quantity));
        if self.choices.is_decided {
            self.count(&finished, observer);
            return;
        }
        self.waiting.push(finished);
        if self.choices.is_alone(source) || self.waiting.len() > MOST_WAITING {
            self.decide(observer);
        }
    }

    /// Chooses the sources, and counts what has waited for that.
    fn decide(&mut self, observer: &mut impl Observer) {
        self.choices.decide();
        for finished in std::mem::take(&mut self.waiting) {
            self.count(&finished, observer);
        }
    }

    /// Counts each quantity that is taken from the source of what has finished.
    fn count(&mut self, finished: &Finished, observer: &mut impl Observer) {
        for quantity in Quantity::ALL {
            if self.choices.taken(quantity) == Some(finished.source()) {
                finished.add_to(&mut self.totals, quantity);
            }
        }
        self.judge(finished, observer);
        self.totals.source = self.choices.taken(Quantity::Times).or(self.totals.source);
    }

    /// Judges what has finished if outcomes are taken from its source. If another source gives the time per output token, the first one
    /// judges all other objectives, and the other one judges this objective.
    fn judge(&self, finished: &Finished, observer: &mut impl Observer) {
        let source = finished.source();
        let taken = |quantity| self.choices.taken(quantity);
        let outcomes = taken(Quantity::Outcomes);
        let counts = outcomes == Some(source);
        let is_split = outcomes.is_some_and(Source::is_per_request)
            && taken(Quantity::TimePerToken).is_some_and(|per_token| Some(per_token) != outcomes);
        let scope = match counts {
            true if is_split => Scope::WithoutPerToken,
            true => Scope::All,
            false if is_split && taken(Quantity::TimePerToken) == Some(source) => Scope::PerToken,
            // Nothing tells the times of requests, so the outcome of each entry is unknown. Its row would have come before it.
            false if source == Source::Entries && outcomes.is_none() => Scope::All,
            false => return,
        };
        match finished {
            Finished::Increase(more) => observer.server_requests(more, scope),
            Finished::Request { source: Source::Rows, request, is_sampled } if counts => {
                observer.row_counted(request, !is_sampled);
            }
            Finished::Request { is_sampled: true, .. } => {}
            Finished::Request { request, .. } => observer.served(&request.served, scope),
        }
    }

    /// Each reading comes from one of several frontends, so none has all requests. What was counted from readings is absent from now
    /// on, because it may contain differences between two frontends.
    fn forget_server_metrics(&mut self, metrics: &ServerMetrics) {
        self.completed.several_series = true;
        self.server = ServerFold::default();
        // A total that stays must not fall.
        let (tokens, server) = (&mut self.totals.tokens, &self.totals.server);
        tokens.prompt = tokens.prompt.map(|total| total.max(server.prompt_tokens.unwrap_or(0)));
        tokens.generation = tokens.generation.map(|total| total.max(server.generation_tokens.unwrap_or(0)));
        self.totals.server = Arc::new(ServerTotals { config: metrics.config.clone(), ..ServerTotals::default() });
        let is_from_server = |quantity: Quantity| self.choices.taken(quantity) == Some(Source::Server);
        if self.choices.taken(Quantity::Reasons).is_none() || is_from_server(Quantity::Reasons) {
            self.totals.finished = None;
        }
        if is_from_server(Quantity::Times) {
            self.totals.source = None;
        }
        for histogram in RequestHistogram::ALL {
            if Quantity::of(histogram).is_none_or(is_from_server) {
                let counted = self.totals.times.of_server(histogram);
                *counted = Histogram::new(counted.bounds());
            }
        }
        self.choices.leave_server_metrics();
        self.waiting.retain(|finished| finished.source() != Source::Server);
    }

    /// Notes that trtllm-serve was replaced. The new process may have other options, so its first requests show which source tells what.
    pub(crate) fn restart(&mut self, observer: &mut impl Observer) {
        self.decide(observer);
        self.completed.restart(self.choices.have_entries());
        self.choices = self.choices.next();
        self.server.counts.note_restart();
    }

    /// See [`super::EngineFold::resume`]. The next reading of trtllm-serve's metrics is a new baseline.
    pub(crate) fn resume(&mut self, observer: &mut impl Observer) {
        self.restart(observer);
        self.server.counts = Baseline::default();
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

    /// Ends a poll. `completed` is the total of completed requests.
    pub(crate) fn settle(&mut self, completed: u64, now: Instant, observer: &mut impl Observer) {
        if completed > self.completed.in_records {
            self.choices.begin(now);
        }
        self.completed.in_records = completed;
        self.choices.compare(now);
        if self.choices.is_due(now) {
            self.decide(observer);
        }
        let (is_decided, have_entries) = (self.choices.is_decided, self.choices.have_entries());
        let ended_well = self.completed.ended_well(self.totals.finished.as_ref(), is_decided, have_entries);
        self.totals.succeeded = self.totals.succeeded.max(ended_well);
        observer.settled(self.completed.requests(), self.choices.judged_within(), now);
    }
}

/// Length of the queue: 15 s of an engine that ends 270 requests a second if one source tells of them, and 90 if three do. A busier
/// engine, and a replay at full speed, decide with what has been told by then.
const MOST_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::histogram::Histogram;
    use super::super::request_times::Times;
    use super::super::request_totals::TokenTotals;
    use super::super::served::Served;
    use super::*;
    use trtllm_records::RequestStage;
    use trtllm_records::perf_metrics::RequestPerfMetrics;
    use trtllm_records::statistics::DisServingRequestStats;

    fn entry() -> PerfMetricsEntry {
        PerfMetricsEntry {
            ctx_request_id: Some(true),
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
            dis_serving_stats: Some(DisServingRequestStats {
                kv_cache_transfer_ms: Some(2.5),
                kv_cache_size: Some(1024),
            }),
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
            fold.absorb_perf_metrics(&entry, Source::Entries, now, &mut ());
        }
        // A request that was cancelled before it was scheduled.
        let cancelled = r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 100000.0, "first_scheduled_time": 0.0,
            "first_token_time": 0.0, "last_token_time": 0.0}}}"#;
        fold.absorb_perf_metrics(&from_json(cancelled), Source::Entries, now, &mut ());
        let unscheduled = r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 0.0, "first_scheduled_time": 0,
            "first_token_time": 100000.5, "last_token_time": 100001.5}}}"#;
        fold.absorb_perf_metrics(&from_json(unscheduled), Source::Entries, now, &mut ());
        fold.settle(0, now + DECIDED_WITHIN, &mut ());
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
        let settled = now + DECIDED_WITHIN;
        // trtllm-serve's own entries have no token counts.
        let bare = PerfMetricsEntry { ctx_request_id: None, prompt_tokens: None, output_tokens: None, ..entry() };
        fold.absorb_perf_metrics(&bare, Source::Entries, now, &mut ());
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
            fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut ());
        }
        for _ in 0..3 {
            fold.absorb_complete_row(&row(), None, false, now, &mut ());
        }
        fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut ());
        fold.absorb_complete_row(&row(), None, false, now, &mut ());
        fold.settle(0, now + DECIDED_WITHIN, &mut ());
        assert_eq!(counted(&fold), (4, 4, 4));
    }

    #[test]
    fn spans_tell_the_lengths_of_requests_whose_entries_only_tell_of_a_transfer() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let bare = PerfMetricsEntry { prompt_tokens: None, output_tokens: None, ..entry() };
        for _ in 0..3 {
            fold.absorb_perf_metrics(&bare, Source::Entries, now, &mut ());
            fold.absorb_perf_metrics(&entry(), Source::Spans, now, &mut ());
        }
        fold.settle(0, now + DECIDED_WITHIN, &mut ());
        assert_eq!(counted(&fold), (3, 3, 3));
    }

    #[test]
    fn rows_of_a_sample_give_no_lengths_where_each_request_has_an_entry() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        for request in 0..10 {
            if request % 5 == 0 {
                fold.absorb_complete_row(&row(), None, true, now, &mut ());
            }
            fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut ());
        }
        fold.settle(0, now + DECIDED_WITHIN, &mut ());
        assert_eq!(counted(&fold), (10, 10, 10));
    }

    #[test]
    fn drafts_of_nothing_or_with_more_accepted_than_drafted_have_no_ratio() {
        let observed = |drafts: serde_json::Value| {
            let mut fold = RequestFold::default();
            let entry = json!({"perf_metrics": {"speculative_decoding": drafts}}).to_string();
            fold.absorb_perf_metrics(&from_json(&entry), Source::Entries, Instant::now(), &mut ());
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
            let mut fold = RequestFold::default();
            let blocks = json!({"num_total_allocated_blocks": 4, "num_new_allocated_blocks": new,
                "num_reused_blocks": 0, "num_missed_blocks": 0});
            let entry =
                json!({"prompt_tokens": prompt, "cached_tokens": cached, "perf_metrics": {"kv_cache_metrics": blocks}});
            fold.absorb_perf_metrics(&from_json(&entry.to_string()), Source::Entries, Instant::now(), &mut ());
            fold.restart(&mut ());
            let times = &fold.totals.times;
            [&times.cached_tokens, &times.kv_cache_blocks, &times.kv_cache_new_blocks, &times.kv_cache_hit_ratio]
                .map(Histogram::count)
        };
        assert_eq!(observed(100, 100, 4), [1, 1, 1, 0]);
        assert_eq!(observed(100, 101, 4), [0, 1, 1, 0]);
        assert_eq!(observed(100, 100, 5), [1, 1, 0, 0]);
    }

    /// Judges requests by a TTFT of 400 ms, and counts those that met and missed it, and those whose outcome is unknown.
    #[derive(Default)]
    struct Judge {
        met: u64,
        missed: u64,
        unknown: u64,
        scopes: Vec<Scope>,
    }

    impl Observer for Judge {
        fn served(&mut self, served: &Served, scope: Scope) {
            self.scopes.push(scope);
            match served.time_to_first_token {
                Some(seconds) if seconds <= 0.4 => self.met += 1,
                Some(_) => self.missed += 1,
                None => self.unknown += 1,
            }
        }

        fn row_counted(&mut self, request: &FinishedRequest, _: bool) {
            self.served(&request.served, Scope::All);
        }
    }

    fn judged(judge: &Judge) -> (u64, u64, u64) {
        (judge.met, judge.missed, judge.unknown)
    }

    fn timed(first_token: f64) -> PerfMetricsEntry {
        let timing = json!({"arrival_time": 10.0, "first_token_time": first_token, "last_token_time": 12.0});
        from_json(&json!({"perf_metrics": {"timing_metrics": timing}}).to_string())
    }

    #[test]
    fn a_request_is_judged_once_by_its_entry_if_entries_have_times() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        // First the entry of a request that was cancelled before its first token, then rows and entries of two others.
        let cancelled = from_json(r#"{"perf_metrics": {}, "finish_reason": "cancelled"}"#);
        fold.absorb_perf_metrics(&cancelled, Source::Entries, now, &mut judge);
        assert_eq!(judged(&judge), (0, 0, 0));
        fold.absorb_perf_metrics(&timed(10.25), Source::Entries, now, &mut judge);
        fold.absorb_complete_row(&row(), None, false, now, &mut judge);
        fold.absorb_complete_row(&row(), None, false, now, &mut judge);
        fold.absorb_perf_metrics(&timed(10.5), Source::Entries, now, &mut judge);
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        assert_eq!(judged(&judge), (1, 1, 1));
    }

    #[test]
    fn a_request_is_judged_once_by_its_row_if_entries_have_no_times() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        for _ in 0..3 {
            fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut judge);
            fold.absorb_complete_row(&row(), None, false, now, &mut judge);
            fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut judge);
        }
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        // It is unknown when the requests of the rows arrived.
        assert_eq!(judged(&judge), (0, 0, 3));
    }

    #[test]
    fn without_rows_and_times_each_entry_is_unknown() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        fold.absorb_perf_metrics(&entry(), Source::Entries, now, &mut judge);
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        fold.absorb_perf_metrics(&entry(), Source::Entries, now + DECIDED_WITHIN, &mut judge);
        assert_eq!(judged(&judge), (0, 0, 2));
    }

    /// A request of 2 s that got 9 tokens.
    fn lifecycle() -> Lifecycle {
        let times = Times { arrived: Some(0.0), scheduled: Some(0.25), first_token: Some(0.5), ended: Some(2.0) };
        Lifecycle { times, tokens: 9, prompt_tokens: None }
    }

    fn followed(fold: &mut RequestFold, now: Instant, judge: &mut Judge) {
        fold.absorb_complete_row(&row(), Some(&lifecycle()), false, now, judge);
    }

    #[test]
    fn rows_tell_the_time_per_output_token_where_entries_have_no_tokens() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        for second in [0, 20] {
            let now = now + Duration::from_secs(second);
            followed(&mut fold, now, &mut judge);
            fold.absorb_perf_metrics(&timed(10.25), Source::Entries, now, &mut judge);
            fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        }
        let times = &fold.totals.times;
        let shown = |histogram: &Histogram| (histogram.count(), histogram.sum());
        assert_eq!(shown(&times.time_per_output_token), (2, 2.0 * 1.5 / 8.0));
        assert_eq!((shown(&times.time_to_first_token), fold.totals.source), ((2, 0.5), Some(Source::Entries)));
        assert_eq!(judge.scopes, [Scope::PerToken, Scope::WithoutPerToken, Scope::PerToken, Scope::WithoutPerToken]);
    }

    #[test]
    fn a_better_source_that_comes_late_changes_nothing_until_a_restart() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        let shown = |fold: &RequestFold| (fold.totals.times.e2e_latency.count(), fold.totals.source);
        followed(&mut fold, now, &mut judge);
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        fold.absorb_perf_metrics(&timed(10.25), Source::Entries, now + DECIDED_WITHIN, &mut judge);
        assert_eq!(shown(&fold), (1, Some(Source::Rows)));
        // What still waits at a restart is not lost.
        fold.restart(&mut judge);
        followed(&mut fold, now, &mut judge);
        fold.restart(&mut judge);
        assert_eq!(shown(&fold), (2, Some(Source::Rows)));
        // Rows came before the restart, so they may come again.
        fold.absorb_perf_metrics(&timed(10.25), Source::Entries, now, &mut judge);
        assert_eq!(shown(&fold), (2, Some(Source::Rows)));
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        assert_eq!(shown(&fold), (3, Some(Source::Entries)));
    }

    #[test]
    fn an_entry_waits_for_the_page_of_its_server_after_a_restart_and_never_for_long() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let metrics = ServerMetrics { scheduled_batch_size: Some(0), ..ServerMetrics::default() };
        fold.absorb_server_metrics(&metrics, now, &mut ());
        fold.restart(&mut ());
        fold.absorb_perf_metrics(&timed(10.25), Source::Entries, now, &mut ());
        let several = ServerMetrics { several_frontends: true, ..ServerMetrics::default() };
        fold.absorb_server_metrics(&several, now, &mut ());
        assert_eq!(fold.totals.times.e2e_latency.count(), 0);
        fold.settle(0, now + DECIDED_WITHIN, &mut ());
        assert_eq!(fold.totals.times.e2e_latency.count(), 1);
    }

    #[test]
    fn a_full_queue_is_decided_and_nothing_in_it_is_lost() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        for _ in 0..2 * MOST_WAITING {
            followed(&mut fold, now, &mut judge);
        }
        assert_eq!((fold.totals.times.e2e_latency.count(), fold.waiting.len()), (2 * MOST_WAITING as u64, 0));
    }

    #[test]
    fn server_metrics_without_a_request_wait_for_nothing() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let metrics = ServerMetrics { scheduled_batch_size: Some(0), ..ServerMetrics::default() };
        for _ in 0..2 * MOST_WAITING {
            fold.absorb_server_metrics(&metrics, now, &mut ());
        }
        assert_eq!((fold.waiting.len(), fold.choices.is_decided), (0, false));
    }

    #[test]
    fn times_of_rows_stay_where_the_metrics_of_several_frontends_are_left() {
        let (mut fold, mut judge, now) = (RequestFold::default(), Judge::default(), Instant::now());
        followed(&mut fold, now, &mut judge);
        fold.settle(0, now + DECIDED_WITHIN, &mut judge);
        let per_token = |fold: &RequestFold| fold.totals.times.time_per_output_token.count();
        assert_eq!(per_token(&fold), 1);
        let metrics = ServerMetrics { several_frontends: true, ..ServerMetrics::default() };
        fold.absorb_server_metrics(&metrics, now, &mut judge);
        assert_eq!((per_token(&fold), fold.totals.source), (1, Some(Source::Rows)));
    }

    #[test]
    fn the_tokens_of_requests_do_not_fall_where_the_metrics_of_several_frontends_are_left() {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let read = |metrics: &ServerMetrics, fold: &mut RequestFold| {
            fold.absorb_server_metrics(metrics, now, &mut ());
            fold.totals.prompt_tokens()
        };
        let page = |tokens: u64| {
            let text = format!("trtllm_prompt_tokens_total {tokens}");
            trtllm_sources::prometheus_text::parse_server_metrics(text.as_bytes()).unwrap()
        };
        read(&page(0), &mut fold);
        assert_eq!(read(&page(500), &mut fold), Some(500));
        fold.totals.tokens.prompt = Some(300);
        let several = ServerMetrics { several_frontends: true, ..ServerMetrics::default() };
        assert_eq!((read(&several, &mut fold), fold.totals.generation_tokens()), (Some(500), None));
    }
}
