//! A finished request as its RequestPerfMetrics or its rows describe it. An entry of a disaggregated server has two parts, one of the
//! context server and one of the generation server. They become one request: each value comes from the part that has it.

use trtllm_records::perf_metrics::{FinishReason, RequestKvCacheMetrics, SpeculativeDecodingMetrics};
use trtllm_records::{PerfMetricsEntry, RequestStats};

use super::lifecycle::{Lifecycle, reused_tokens};
use super::request_times::{Answer, Latencies, Times, between, generation_queue, hands_over, positive};
use super::served::Served;

/// Most seconds from a request's arrival at the orchestrator to that at the context server. If it seems longer, their clocks differ.
const LONGEST_LEAD: f64 = 60.0;

#[derive(Debug, Clone, Copy, Default)]
pub struct FinishedRequest {
    /// The request id in the entry.
    pub request: Option<u64>,
    /// The request id in the rows of the request, if it is certain.
    pub row_id: Option<u64>,
    pub prompt_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    /// Tokens of the prompt that were found in the KV cache.
    pub cached_tokens: Option<u64>,
    pub latencies: Latencies,
    /// Seconds between the arrival at the HTTP server and the first token.
    pub server_time_to_first_token: Option<f64>,
    /// Two engines served the request.
    pub disaggregated: bool,
    /// Seconds in the queue of a generation server.
    pub generation_queue: Option<f64>,
    /// Above 0 in a row. Absent in the row of a request that only had a context phase: its transfer has not ended.
    pub transfer_seconds: Option<f64>,
    /// The same time, as exact as it was sent.
    pub transfer_ms: Option<f64>,
    pub transfer_bytes: Option<u64>,
    /// Number of iterations from the request's first to its last.
    pub iterations: Option<u64>,
    /// Number of the last iteration. Absent for a request that two engines served.
    pub last_iter: Option<u64>,
    /// Start and end of the KV cache transfer, in seconds on the clock of `times`.
    pub transfer: Option<(f64, f64)>,
    /// Blocks over its lifetime.
    pub kv_cache: Option<RequestKvCacheMetrics>,
    pub speculative_decoding: Option<SpeculativeDecodingMetrics>,
    pub reason: Option<FinishReason>,
    /// The values by which objectives judge the request.
    pub served: Served,
    pub times: Times,
}

impl FinishedRequest {
    /// The request of an entry. Without metrics, it has only a reason and a length.
    pub(crate) fn of_entry(entry: &PerfMetricsEntry, first_token_is_early: bool) -> Self {
        let mut request = Self::of_parts(entry).unwrap_or_default();
        if first_token_is_early {
            // The latencies stay those that the engine reports.
            (request.times.first_token, request.served.time_to_first_token, request.served.decode) = (None, None, None);
        }
        request.reason = finish_reason(entry);
        request.transfer_ms = request.transfer_seconds.map(|seconds| seconds * 1000.0);
        request.served.output_tokens = request.served.output_tokens.or(entry.output_tokens);
        match request.reason {
            // The client ended the request, so its times and its length say nothing about the engine. Nor do those of a request that
            // may have failed.
            Some(FinishReason::Cancelled | FinishReason::Other) => request.served = Served::default(),
            Some(FinishReason::Timeout) => request.served.failed = true,
            Some(FinishReason::Stop | FinishReason::Length) | None => {}
        }
        request
    }

    /// The request of the row that reports it complete. `row`: its prefill position is the length of the prompt. Times are absent if the
    /// start or some rows of the request were missed.
    pub(crate) fn of_row(row: &RequestStats, lifecycle: Option<&Lifecycle>) -> Self {
        let times = lifecycle.map(|lifecycle| lifecycle.times).unwrap_or_default();
        let output_tokens = row.num_generated_tokens.and_then(|tokens| u64::try_from(tokens).ok());
        let transfer =
            row.dis_serving_stats.filter(|transfer| transfer.kv_cache_transfer_ms.is_some_and(|ms| ms > 0.0));
        let transfer = transfer.unwrap_or_default();
        Self {
            request: row.id,
            row_id: row.id.filter(|_| lifecycle.is_some()),
            prompt_tokens: row.context_prefill_position,
            output_tokens: row.num_generated_tokens,
            latencies: Latencies::of(&times, lifecycle.map(|lifecycle| lifecycle.tokens)),
            // Triton counts each request of a context or generation server.
            disaggregated: row.dis_serving_stats.is_some(),
            transfer_seconds: transfer.kv_cache_transfer_ms.map(|ms| ms / 1000.0),
            transfer_ms: transfer.kv_cache_transfer_ms,
            transfer_bytes: transfer.kv_cache_size.and_then(|bytes| u64::try_from(bytes).ok()),
            kv_cache: Some(RequestKvCacheMetrics {
                num_total_allocated_blocks: row.alloc_total_blocks_per_request,
                num_new_allocated_blocks: row.alloc_new_blocks_per_request,
                num_reused_blocks: row.reused_blocks_per_request,
                num_missed_blocks: row.missed_blocks_per_request,
                kv_cache_hit_rate: None,
            })
            .filter(|blocks| *blocks != RequestKvCacheMetrics::default()),
            // A request without a token was cancelled, so its times say nothing about the engine.
            served: match output_tokens {
                Some(0) => Served::default(),
                _ => Served::of(&times, output_tokens),
            },
            times,
            ..Self::default()
        }
    }

    /// `None` if the entry has no metrics.
    fn of_parts(entry: &PerfMetricsEntry) -> Option<Self> {
        let part = |part: Option<&PerfMetricsEntry>| part.and_then(Self::of_part);
        let mut request = match (part(entry.ctx_perf_metrics.as_deref()), part(entry.gen_perf_metrics.as_deref())) {
            (None, None) => return Self::of_part(entry),
            (Some(context), Some(generation)) => Self::join(context, generation),
            // The generation server sends the first token, and the request arrives at the context server.
            (Some(part), None) => {
                Self { served: Served { output_tokens: part.served.output_tokens, ..Served::default() }, ..part }
            }
            (None, Some(part)) => {
                Self { served: Served { time_to_first_token: None, e2e: None, ..part.served }, ..part }
            }
        };
        request.disaggregated = true;
        (request.last_iter, request.row_id) = (None, None);
        // 0 means that the time was not measured.
        let arrived = entry.disagg_server_arrival_time.filter(|time| *time > 0.0);
        let first = positive(arrived, entry.disagg_server_first_token_time);
        // Without streaming, the orchestrator stamps the first token when it has the whole answer. After a longer wait than the longest
        // lead, the client's own time counts in any case.
        let lead = between(arrived, request.times.arrived).filter(|lead| *lead <= LONGEST_LEAD).unwrap_or(0.0);
        let is_streamed =
            |first: &f64| request.served.e2e.is_none_or(|whole| *first < lead + whole || *first - whole > LONGEST_LEAD);
        if let Some(first) = first.filter(is_streamed) {
            request.served.time_to_first_token = Some(first);
            request.server_time_to_first_token = Some(first);
        }
        Some(request)
    }

    /// Tokens of the prompt that were found in the KV cache, or else those of its reused blocks.
    #[must_use]
    pub fn cached(&self, tokens_per_block: Option<i64>) -> Option<u64> {
        self.cached_tokens.or_else(|| reused_tokens(self.kv_cache?.num_reused_blocks, tokens_per_block))
    }

    /// Tokens of the prompt that were computed. If its length is unknown, about the tokens in its missed blocks.
    #[must_use]
    pub fn computed_tokens(&self, tokens_per_block: Option<i64>) -> Option<f64> {
        let missed = self.kv_cache.and_then(|kv| kv.num_missed_blocks).filter(|blocks| *blocks > 0);
        // The last block is half full, on average.
        let of_blocks = || missed.zip(tokens_per_block).map(|(blocks, size)| (blocks as f64 - 0.5) * size as f64);
        computed_tokens(self.prompt_tokens, self.cached(tokens_per_block)).or_else(of_blocks)
    }

    /// An entry of one engine.
    fn of_part(entry: &PerfMetricsEntry) -> Option<Self> {
        let metrics = entry.perf_metrics.as_ref()?;
        let timing = metrics.timing_metrics.unwrap_or_default().measured();
        let tokens = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
        let output_tokens = tokens(entry.output_tokens);
        // The clocks of two nodes, or a missing end, can put the end before the start.
        let transfer =
            timing.kv_cache_transfer_start.zip(timing.kv_cache_transfer_end).filter(|(start, end)| start <= end);
        let transfer_seconds = between(timing.kv_cache_transfer_start, timing.kv_cache_transfer_end);
        // Without streaming, the server stamps the first token when the whole answer is ready (upstream: `_extract_metrics`).
        let has_several_tokens = timing.first_token_time < timing.last_token_time;
        let is_streamed = |first: &f64| !has_several_tokens || timing.last_token_time.is_none_or(|last| *first < last);
        let server_first_token = timing.server_first_token_time.filter(is_streamed);
        let times = Times {
            arrived: timing.arrival_time,
            scheduled: timing.first_scheduled_time,
            first_token: timing.first_token_time,
            ended: timing.last_token_time,
        };
        // A transfer before the first token is that of a generation server.
        let receives = transfer.zip(times.first_token).is_some_and(|((_, end), first)| end <= first);
        let served = match receives {
            true => {
                let arrived = times.in_order().and(times.arrived);
                Served::of_answer(arrived, &Answer::of(&times, transfer), entry.output_tokens)
            }
            false => Served::of(&times, entry.output_tokens),
        };
        Some(Self {
            request: entry.request_id,
            row_id: entry.row_id(),
            prompt_tokens: tokens(entry.prompt_tokens),
            output_tokens,
            // If more were found than the prompt has, the two numbers are not of the same prompt.
            cached_tokens: entry
                .cached_tokens
                .filter(|cached| entry.prompt_tokens.is_none_or(|prompt| *cached <= prompt)),
            latencies: Latencies::of(&times, output_tokens),
            server_time_to_first_token: positive(timing.server_arrival_time, server_first_token),
            generation_queue: generation_queue(&times, transfer, None),
            disaggregated: entry.ctx_request_id == Some(true) || transfer_seconds.is_some(),
            transfer_seconds,
            transfer_bytes: timing.kv_cache_size,
            iterations: metrics
                .first_iter
                .zip(metrics.last_iter)
                .and_then(|(first, last)| last.checked_sub(first)?.checked_add(1)),
            last_iter: metrics.last_iter,
            transfer,
            kv_cache: metrics.kv_cache_metrics,
            speculative_decoding: metrics.speculative_decoding,
            served,
            times,
            ..Self::default()
        })
    }

    /// The prompt is processed and looked up in the KV cache by the context server; the generation server does the rest.
    fn join(context: Self, generation: Self) -> Self {
        let output_tokens = generation.output_tokens.or(context.output_tokens);
        let tokens = generation.served.output_tokens.or(context.served.output_tokens);
        let answer = Answer::of(&generation.times, generation.transfer);
        let is_one_clock = hands_over(&context.times, &generation.times);
        let arrived = context.times.in_order().and(generation.times.in_order()).and(context.times.arrived);
        let arrived = arrived.filter(|_| is_one_clock);
        Self {
            request: generation.request.or(context.request),
            prompt_tokens: context.prompt_tokens.or(generation.prompt_tokens),
            output_tokens,
            cached_tokens: context.cached_tokens.or(generation.cached_tokens),
            latencies: Latencies::of_pair(&context.times, &generation.times, &answer, output_tokens),
            generation_queue: generation_queue(&generation.times, generation.transfer, context.times.first_token),
            // Each server stamps only its own part.
            server_time_to_first_token: None,
            transfer_seconds: generation.transfer_seconds.or(context.transfer_seconds),
            transfer_bytes: generation.transfer_bytes.or(context.transfer_bytes),
            iterations: generation.iterations.or(context.iterations),
            kv_cache: context.kv_cache.or(generation.kv_cache),
            speculative_decoding: generation.speculative_decoding.or(context.speculative_decoding),
            served: Served::of_answer(arrived, &answer, tokens),
            times: Times { arrived: context.times.arrived.filter(|_| is_one_clock), ..generation.times },
            ..generation
        }
    }
}

/// Tokens of a prompt that are computed. The engine computes the last token even if all are cached. Absent while the length is
/// unknown.
#[must_use]
pub fn computed_tokens(prompt: Option<i64>, cached: Option<u64>) -> Option<f64> {
    let prompt = prompt.and_then(|tokens| u64::try_from(tokens).ok()).filter(|tokens| *tokens > 0)?;
    Some(prompt.saturating_sub(cached.unwrap_or(0)).max(1) as f64)
}

/// Why the request ended. The context server ends its part of every request, so its reason is used only if there is no other.
fn finish_reason(entry: &PerfMetricsEntry) -> Option<FinishReason> {
    let part = |part: Option<&PerfMetricsEntry>| part.and_then(|part| part.finish_reason);
    match (entry.finish_reason, entry.gen_perf_metrics.as_deref()) {
        (None, None) => part(entry.ctx_perf_metrics.as_deref()),
        (reason, generation) => reason.or(part(generation)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use super::super::histogram::Histogram;
    use super::super::observer::Observer;
    use super::super::request_totals::{RequestSource, RequestTotals};
    use super::super::requests::RequestFold;
    use super::super::served::Served;
    use trtllm_records::{Message, RequestStage, RequestStats};
    use trtllm_sources::trtllm_json::{PublisherLine, parse_line};

    /// The totals one minute after a socket has sent these lines.
    fn totals(lines: &[Value]) -> RequestTotals {
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        for line in lines {
            let Ok(PublisherLine::Message(Message::FinishedRequest(entry))) = parse_line(line.to_string().as_bytes())
            else {
                panic!("{line} is not an entry");
            };
            fold.absorb_perf_metrics(&entry, RequestSource::Entries, now, &mut ());
        }
        fold.settle(0, now + Duration::from_secs(60), &mut ());
        fold.totals
    }

    #[test]
    fn a_transfer_that_ends_before_it_starts_tells_nothing() {
        let generation_queue = |start: f64, end: f64| {
            let mut entry = pair()["gen_perf_metrics"].clone();
            let timing = &mut entry["perf_metrics"]["timing_metrics"];
            (timing["kv_cache_transfer_start"], timing["kv_cache_transfer_end"]) = (json!(start), json!(end));
            let entry = serde_json::from_value(entry).unwrap();
            super::FinishedRequest::of_part(&entry).unwrap().generation_queue
        };
        assert!(generation_queue(1001.0, 1001.25).is_some());
        assert_eq!(generation_queue(1001.25, 1001.0), None);
    }

    fn pair() -> Value {
        let part = |id: u64, timing: Value, blocks: u64| {
            json!({"request_id": id, "ctx_request_id": 9, "perf_metrics": {"first_iter": 3, "last_iter": 2 + id,
                "timing_metrics": timing, "kv_cache_metrics": {"num_total_allocated_blocks": blocks}}})
        };
        let context = json!({"arrival_time": 1000.0, "first_scheduled_time": 1000.25, "first_token_time": 1000.75,
            "last_token_time": 1000.75, "server_arrival_time": 999.0, "server_first_token_time": 1001.0,
            "kv_cache_transfer_start": 0, "kv_cache_transfer_end": 0});
        let generation = json!({"arrival_time": 1001.0, "first_scheduled_time": 1001.5, "first_token_time": 1002.0,
            "last_token_time": 1004.0, "kv_cache_size": 1024, "kv_cache_transfer_start": 1001.0,
            "kv_cache_transfer_end": 1001.5});
        json!({"ctx_server": "a:1", "gen_server": "b:1", "disagg_server_arrival_time": 998.5,
            "disagg_server_first_token_time": 1001.625, "ctx_perf_metrics": part(1, context, 7),
            "gen_perf_metrics": part(5, generation, 2)})
    }

    #[test]
    fn times_of_two_clocks_or_of_a_clock_that_was_set_back_have_no_difference() {
        // Queue, prefill, TTFT, decode, e2e, TTFT at the server, and the outcome of an objective of 500 ms for TTFT.
        let counts = |timing: Value| {
            let entry = json!({"request_id": 1, "perf_metrics": {"timing_metrics": timing}});
            let times = totals(&[entry]).times;
            [
                &times.queue_time,
                &times.prefill_time,
                &times.time_to_first_token,
                &times.decode_time,
                &times.e2e_latency,
                &times.server_time_to_first_token,
            ]
            .map(Histogram::count)
        };
        let timing = |arrived: f64, scheduled: f64, first: f64, last: f64| {
            json!({"arrival_time": arrived, "first_scheduled_time": scheduled, "first_token_time": first,
                "last_token_time": last})
        };
        assert_eq!(counts(timing(1000.0, 1000.25, 1000.5, 1002.0)), [1, 1, 1, 1, 1, 0]);
        // The clock was set back between two of the times.
        assert_eq!(counts(timing(1000.0, 1000.25, 998.5, 1002.0)), [1, 0, 0, 1, 0, 0]);
        assert_eq!(counts(timing(1000.0, 990.25, 1000.5, 1002.0)), [0, 1, 0, 1, 0, 0]);
        // Seconds since 1970 beside seconds since the start of the host.
        assert_eq!(counts(timing(1000.0, 1000.25, 1_795_842_652.0, 1_795_842_653.0)), [1, 0, 0, 1, 0, 0]);
        let of_server = |arrived: f64, first: f64| {
            counts(json!({"server_arrival_time": arrived, "server_first_token_time": first}))[5]
        };
        assert_eq!((of_server(1000.0, 1000.5), of_server(1000.0, 1_795_842_652.0)), (1, 0));
    }

    #[test]
    fn two_servers_whose_clocks_differ_share_no_time() {
        let times = |ahead: f64| {
            let mut entry = pair();
            for time in ["arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"] {
                let part = &mut entry["gen_perf_metrics"]["perf_metrics"]["timing_metrics"][time];
                *part = json!(part.as_f64().unwrap() + ahead);
            }
            let times = totals(&[entry]).times;
            (times.time_to_first_token.count(), times.e2e_latency.sum(), times.decode_time.count())
        };
        assert_eq!(times(0.0), (1, 4.0, 1));
        // Of the generation server alone.
        assert_eq!(times(500_000.0), (0, 3.0, 1));
    }

    fn shown(histogram: &Histogram) -> (u64, f64) {
        (histogram.count(), histogram.sum())
    }

    #[test]
    fn each_latency_of_a_two_part_entry_comes_from_the_part_that_measured_it() {
        let mut entry = pair();
        entry["gen_perf_metrics"]["output_tokens"] = json!(5);
        let totals = totals(&[entry]);
        let times = &totals.times;
        assert_eq!((shown(&times.queue_time), shown(&times.prefill_time)), ((1, 0.25), (1, 0.5)));
        assert_eq!(
            (shown(&times.time_to_first_token), shown(&times.server_time_to_first_token)),
            ((1, 1.5), (1, 3.125))
        );
        assert_eq!((shown(&times.decode_time), shown(&times.time_per_output_token)), ((1, 2.5), (1, 0.625)));
        assert_eq!((shown(&times.e2e_latency), shown(&times.inference_time)), ((1, 4.0), (1, 3.75)));
        assert_eq!((shown(&times.kv_cache_transfer), shown(&times.kv_cache_transfer_bytes)), ((1, 0.5), (1, 1024.0)));
        assert_eq!((shown(&times.kv_cache_blocks), shown(&times.iterations)), ((1, 7.0), (1, 5.0)));
        assert_eq!((totals.disaggregated_requests, totals.kv_cache_transfer_ms), (1, 500.0));
        assert_eq!((totals.output_token_len.count(), totals.source), (1, Some(RequestSource::Entries)));
    }

    #[test]
    fn an_answer_that_is_not_streamed_has_no_first_token_at_the_server() {
        let server_time = |first: f64, last: f64| {
            let timing = json!({
                "server_arrival_time": 9.0, "arrival_time": 9.5, "first_scheduled_time": 9.6, "first_token_time": 10.0,
                "last_token_time": last, "server_first_token_time": first,
            });
            let entry = json!({"request_id": 1, "perf_metrics": {"timing_metrics": timing}});
            let times = totals(&[entry]).times;
            (times.server_time_to_first_token.count(), times.time_to_first_token.count())
        };
        assert_eq!(server_time(17.1, 17.0), (0, 1));
        assert_eq!(server_time(10.1, 17.0), (1, 1), "streamed");
        assert_eq!(server_time(10.1, 10.0), (1, 1), "the whole answer is one token");
    }

    /// The pair with these members of the generation server's times and of the orchestrator.
    fn changed(times: Value, orchestrator: Value) -> Value {
        let mut entry = pair();
        let merge = |into: &mut Value, from: Value| {
            into.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
        };
        merge(&mut entry["gen_perf_metrics"]["perf_metrics"]["timing_metrics"], times);
        merge(&mut entry, orchestrator);
        entry
    }

    #[test]
    fn the_queue_of_the_generation_server_is_a_part_of_its_own() {
        let of = |times: Value| {
            let times = totals(&[changed(times, json!({}))]).times;
            (shown(&times.generation_queue), shown(&times.kv_cache_transfer), shown(&times.time_to_first_token))
        };
        assert_eq!(of(json!({})), ((1, 0.0), (1, 0.5), (1, 1.5)), "all of it is the transfer");
        let full = json!({"first_scheduled_time": 1003.0, "first_token_time": 1003.5});
        assert_eq!(of(full), ((1, 1.5), (1, 0.5), (1, 3.0)), "the server is full");
        let early = json!({"arrival_time": 1000.0, "kv_cache_transfer_start": 1000.75});
        assert_eq!(of(early).0, (1, 0.0), "it has the request before the context server is done");
        let cpp = json!({"first_scheduled_time": 1001.0});
        assert_eq!(of(cpp), ((0, 0.0), (1, 0.5), (1, 2.0)), "the C++ Executor schedules before the transfer");
    }

    /// The times by which objectives judge a request.
    #[derive(Default)]
    struct Judge(Option<Served>);

    impl Observer for Judge {
        fn served(&mut self, served: &Served, _: super::super::observer::Scope) {
            self.0 = Some(*served);
        }
    }

    fn served(entry: &Value, mut fold: RequestFold) -> Served {
        let Ok(PublisherLine::Message(Message::FinishedRequest(entry))) = parse_line(entry.to_string().as_bytes())
        else {
            panic!("no entry");
        };
        let (mut judge, now) = (Judge::default(), Instant::now());
        fold.absorb_perf_metrics(&entry, RequestSource::Entries, now, &mut judge);
        fold.settle(0, now + Duration::from_secs(60), &mut judge);
        judge.0.unwrap()
    }

    #[test]
    fn objectives_of_a_pair_use_what_the_client_saw() {
        let of =
            |entry: Value| served(&entry, RequestFold::default()).time_to_first_token.map(|seconds| seconds <= 2.0);
        assert_eq!(of(pair()), Some(false), "3.1 s at the orchestrator");
        let whole = json!({"disagg_server_first_token_time": 1004.25});
        assert_eq!(of(changed(json!({}), whole)), Some(true), "not streamed: 1.5 s at the engines");
        let short = json!({"disagg_server_arrival_time": 995.0});
        assert_eq!(
            of(changed(json!({}), short)),
            Some(false),
            "streamed: it waited 5 s at the orchestrator, and decoded for 2.5 s"
        );
        let long = json!({"disagg_server_arrival_time": 930.0});
        assert_eq!(of(changed(json!({}), long)), Some(false), "it waited 70 s at the orchestrator");
        let late = json!({"first_scheduled_time": 1003.0, "first_token_time": 1003.5});
        assert_eq!(
            of(changed(late, json!({"disagg_server_first_token_time": null}))),
            Some(false),
            "a full generation server"
        );
        let mut alone = changed(json!({}), json!({"disagg_server_first_token_time": null}));
        alone["gen_perf_metrics"] = Value::Null;
        assert_eq!(of(alone), None, "the context server does not send the first token");
    }

    #[test]
    fn a_first_token_that_was_stamped_too_early_meets_no_objective() {
        let timing = json!({"arrival_time": 10.0, "first_scheduled_time": 10.5, "first_token_time": 10.6, "last_token_time": 11.0});
        let entry = json!({"request_id": 1, "output_tokens": 3, "perf_metrics": {"timing_metrics": timing}});
        for is_early in [false, true] {
            let mut fold = RequestFold::default();
            fold.first_token_is_early = is_early;
            let served = served(&entry, fold);
            let known = [served.time_to_first_token, served.decode, served.e2e].map(|time| time.is_some());
            assert_eq!(known, [!is_early, !is_early, true]);
        }
        assert_eq!(totals(&[entry]).times.time_to_first_token.count(), 1, "as upstream's collector");
    }

    #[test]
    fn the_only_part_of_an_entry_gives_all_latencies() {
        for (missing, queue, e2e) in [("ctx_perf_metrics", 0.5, 3.0), ("gen_perf_metrics", 0.25, 0.75)] {
            let mut entry = pair();
            entry[missing] = Value::Null;
            let totals = totals(&[entry]);
            let times = &totals.times;
            assert_eq!((shown(&times.queue_time), shown(&times.e2e_latency)), ((1, queue), (1, e2e)), "{missing}");
            assert_eq!(totals.disaggregated_requests, 1, "{missing}");
        }
    }

    #[test]
    fn an_entry_without_times_does_not_change_where_latencies_come_from() {
        let mut without_times = pair();
        for part in ["ctx_perf_metrics", "gen_perf_metrics"] {
            without_times[part]["perf_metrics"]["timing_metrics"] = json!({"arrival_time": 0.0, "last_token_time": 0});
        }
        let mut without_parts = pair();
        (without_parts["ctx_perf_metrics"], without_parts["gen_perf_metrics"]) = (Value::Null, Value::Null);
        let (mut fold, now) = (RequestFold::default(), Instant::now());
        let row = RequestStats {
            id: Some(1),
            stage: Some(RequestStage::Complete),
            alloc_total_blocks_per_request: Some(3),
            ..RequestStats::default()
        };
        fold.absorb_complete_row(&row, None, false, now, &mut ());
        for entry in [without_times, without_parts, json!({"perf_metrics": {}})] {
            fold.absorb_perf_metrics(&serde_json::from_value(entry).unwrap(), RequestSource::Entries, now, &mut ());
        }
        assert_eq!(fold.totals.source, None);
        fold.settle(0, now + Duration::from_secs(60), &mut ());
        // The row was not dropped, and the blocks that its entry tells, too, were counted once.
        assert_eq!(fold.totals.source, Some(RequestSource::Rows));
        assert_eq!(shown(&fold.totals.times.kv_cache_blocks), (1, 7.0));
    }

    #[test]
    fn the_finish_reason_of_a_two_part_entry_is_that_of_its_last_part() {
        let mut entry = pair();
        entry["ctx_perf_metrics"]["finish_reason"] = json!("length");
        let only_context = json!({"ctx_perf_metrics": entry["ctx_perf_metrics"], "gen_perf_metrics": null});
        let mut unknown = entry.clone();
        entry["gen_perf_metrics"]["finish_reason"] = json!("stop");
        unknown["gen_perf_metrics"]["finish_reason"] = Value::Null;
        assert_eq!(totals(&[entry, only_context, unknown]).finished, Some([1, 1, 0, 0, 0]));
    }
}
