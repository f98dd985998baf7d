//! Totals of finished requests.

use std::sync::Arc;

use trtllm_records::named_numbers::{NamedNumbers, named_numbers};
use trtllm_records::named_variants::named_variants;

use super::defaults::with_defaults;
use super::finished_request::FinishedRequest;
use super::histogram::{Histogram, LONG_TOKEN_LENGTH, TOKEN_LENGTH};
use super::request_times::RequestTimes;
use super::saturating::add_known;
use super::server_metrics::{ReasonCounts, ServerTotals};

with_defaults! {
    /// Plain numbers with one owner, like [`super::EngineTotals`].
    pub struct RequestTotals {
        /// Tokens.
        pub input_token_len: Histogram = Histogram::new(TOKEN_LENGTH),
        /// Tokens.
        pub output_token_len: Histogram = Histogram::new(TOKEN_LENGTH),
        /// The same lengths with vLLM's bounds.
        pub prompt_length: Histogram = Histogram::new(LONG_TOKEN_LENGTH),
        pub generation_length: Histogram = Histogram::new(LONG_TOKEN_LENGTH),
        pub tokens: TokenTotals,
        /// Milliseconds, summed over all requests whose KV cache came from another instance.
        pub kv_cache_transfer_ms: f64,
        pub disaggregated_requests: u64,
        pub times: RequestTimes,
        /// The source of the request latency histograms. Absent until a request has been observed.
        pub source: Option<RequestSource>,
        /// Absent if no publisher reports why requests end.
        pub finished: Option<ReasonCounts>,
        /// Requests that ended well, or all completed requests if finish reasons are unknown.
        pub succeeded: u64,
        /// From trtllm-serve's own metrics.
        pub server: Arc<ServerTotals>,
        /// Absent without speculative decoding.
        pub draft_tokens: DraftTokens,
    }
}

/// Tokens of finished requests. Absent until the engine or a publisher reports how many tokens a request had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenTotals {
    pub prompt: Option<u64>,
    pub generation: Option<u64>,
}

named_numbers! {
    /// Draft tokens of finished requests. The proposed tokens include the accepted tokens.
    #[derive(Copy, Eq)]
    pub struct DraftTokens: u64 { proposed = "proposed", accepted = "accepted" }
}

impl RequestTotals {
    /// The time per output token. Absent while no number of tokens is known, because it cannot be observed then.
    #[must_use]
    pub fn time_per_output_token(&self) -> Option<&Histogram> {
        let histogram = &self.times.time_per_output_token;
        (histogram.count() > 0 || self.generation_tokens().is_some()).then_some(histogram)
    }

    /// Prompt tokens of finished requests, as the engine or publishers report them or as the server counts them. No source has
    /// all requests for certain, so the larger number is the better one.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.tokens.prompt.max(self.server.prompt_tokens)
    }

    /// Like [`RequestTotals::prompt_tokens`].
    #[must_use]
    pub fn generation_tokens(&self) -> Option<u64> {
        self.tokens.generation.max(self.server.generation_tokens)
    }

    /// Tokens of prompts that were found in the KV cache, from the server or else from publishers.
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u64> {
        let of_requests = &self.times.cached_tokens;
        self.server.cached_tokens.or_else(|| (of_requests.count() > 0).then(|| of_requests.sum() as u64))
    }

    /// Observes the lengths of one request.
    pub(super) fn observe_lengths(&mut self, request: &FinishedRequest) {
        let (input, output) = (request.prompt_tokens, request.output_tokens);
        for (total, tokens) in [(&mut self.tokens.prompt, input), (&mut self.tokens.generation, output)] {
            add_known(total, tokens.and_then(|tokens| u64::try_from(tokens).ok()));
        }
        // A prompt without tokens belongs to a request that was cancelled before its prompt was read.
        let [input, output] = [input.filter(|tokens| *tokens > 0), output].map(|tokens| tokens.map(|n| n as f64));
        self.input_token_len.observe(input);
        self.prompt_length.observe(input);
        self.output_token_len.observe(output);
        self.generation_length.observe(output);
    }

    /// Counts the transfer of one request as Triton does.
    pub(super) fn count_transfer(&mut self, request: &FinishedRequest) {
        if request.disaggregated {
            self.disaggregated_requests += 1;
            self.kv_cache_transfer_ms += request.transfer_ms.unwrap_or(0.0);
        }
    }
}

named_variants! {
    /// What tells of a finished request.
    pub enum RequestSource {
        /// The rows of a request in the records: exact to an iteration.
        Rows = "request_stats",
        /// RequestPerfMetrics, one entry a request: exact.
        Entries = "perf_metrics",
        /// The histograms and counters of trtllm-serve itself: exact to a bucket.
        Server = "server_metrics",
        /// OTLP spans, one a request: exact.
        Spans = "otlp",
    }
}
