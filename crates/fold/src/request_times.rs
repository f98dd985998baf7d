//! Histograms of the times and the resources of requests.

use trtllm_records::StepTimes;
use trtllm_records::perf_metrics::RequestKvCacheMetrics;
use trtllm_records::server_metrics::RequestHistogram;

use super::defaults::with_defaults;
use super::histogram::{
    BATCH_REQUESTS, CACHED_TOKENS, DECODED_TOKENS, DYNAMO_TRANSFER_BYTES, DYNAMO_TRANSFER_SECONDS,
    DYNAMO_TRANSFER_SPEED, FIRST_TOKEN_SECONDS, Histogram, LONG_SECONDS, PER_TOKEN_SECONDS, PERPLEXITY, RATIO,
    REQUEST_ITERATIONS, SHORT_SECONDS, TRANSFER_BYTES,
};
use super::share::share;

with_defaults! {
    pub struct RequestTimes {
        /// Seconds.
        pub time_to_first_token: Histogram = Histogram::new(FIRST_TOKEN_SECONDS),
        /// Seconds from the request's arrival at the HTTP server to the first token.
        pub server_time_to_first_token: Histogram = Histogram::new(FIRST_TOKEN_SECONDS),
        pub time_per_output_token: Histogram = Histogram::new(PER_TOKEN_SECONDS),
        pub e2e_latency: Histogram = Histogram::new(LONG_SECONDS),
        pub queue_time: Histogram = Histogram::new(LONG_SECONDS),
        /// Seconds in the queue of a generation server, without the transfer of the KV cache.
        pub generation_queue: Histogram = Histogram::new(LONG_SECONDS),
        pub prefill_time: Histogram = Histogram::new(SHORT_SECONDS),
        pub decode_time: Histogram = Histogram::new(LONG_SECONDS),
        pub inference_time: Histogram = Histogram::new(LONG_SECONDS),
        pub kv_cache_transfer: Histogram = Histogram::new(SHORT_SECONDS),
        /// Bytes.
        pub kv_cache_transfer_bytes: Histogram = Histogram::new(TRANSFER_BYTES),
        /// Seconds of KV cache transfers in the buckets of Dynamo's TensorRT-LLM worker. So are the next two.
        pub dynamo_transfer: Histogram = Histogram::new(DYNAMO_TRANSFER_SECONDS),
        /// Bytes of transfers whose time is known.
        pub dynamo_transfer_bytes: Histogram = Histogram::new(DYNAMO_TRANSFER_BYTES),
        /// Units of 10^9 bytes per second.
        pub dynamo_transfer_speed: Histogram = Histogram::new(DYNAMO_TRANSFER_SPEED),
        /// 0..1.
        pub kv_cache_hit_ratio: Histogram = Histogram::new(RATIO),
        /// Tokens of a request's prompt that were found in the KV cache.
        pub cached_tokens: Histogram = Histogram::new(CACHED_TOKENS),
        /// Of prompts and of answers.
        pub perplexity: [Histogram; 2] = [const { Histogram::new(PERPLEXITY) }; 2],
        /// Blocks allocated to a request over its lifetime.
        pub kv_cache_blocks: Histogram = Histogram::new(BATCH_REQUESTS),
        /// Newly allocated blocks among them.
        pub kv_cache_new_blocks: Histogram = Histogram::new(BATCH_REQUESTS),
        /// Iterations from a request's first to its last.
        pub iterations: Histogram = Histogram::new(REQUEST_ITERATIONS),
        /// Tokens a request decoded in one of its iterations, on average.
        pub decoded_tokens_per_iteration: Histogram = Histogram::new(DECODED_TOKENS),
        /// 0..1.
        pub spec_decode_acceptance_ratio: Histogram = Histogram::new(RATIO),
        /// Seconds from one token to the next.
        pub inter_token: Histogram = Histogram::new(PER_TOKEN_SECONDS),
        /// Seconds from one step to the next, for requests with speculation.
        pub inter_step: Histogram = Histogram::new(PER_TOKEN_SECONDS),
        /// GPU times of the batches of one request: first the batches of its prompt, then those of its decoding steps.
        pub gpu_forward: [Histogram; 2] = [const { Histogram::new(SHORT_SECONDS) }; 2],
        pub gpu_sample: [Histogram; 2] = [const { Histogram::new(SHORT_SECONDS) }; 2],
    }
}

/// The times of one request, in seconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    pub arrived: Option<f64>,
    pub scheduled: Option<f64>,
    pub first_token: Option<f64>,
    pub ended: Option<f64>,
}

/// The part of an answer that a generation server of disaggregated serving sends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Answer {
    /// When the client got the first token, or the second if it is not known when the first was sent.
    pub first: Option<f64>,
    pub ended: Option<f64>,
    /// Tokens before the one at `first`.
    pub skipped: u64,
}

impl Answer {
    /// The PyTorch loop sends the token of the context server when it first schedules the request, which is after the transfer of
    /// the KV cache (`_handle_first_token_response`). `first_token_time` is then that of its own first token, the second of the
    /// answer. The C++ Executor sends both together, and schedules before the transfer.
    #[must_use]
    pub fn of(times: &Times, transfer: Option<(f64, f64)>) -> Self {
        let sent = times.scheduled.filter(|scheduled| transfer.is_some_and(|(_, end)| end <= *scheduled));
        Self { first: sent.or(times.first_token), ended: times.ended, skipped: u64::from(sent.is_none()) }
    }
}

/// Seconds that a generation server held a request back, without the transfer of its KV cache and the time before the context server
/// had its token. Absent if it does not schedule after the transfer.
pub(crate) fn generation_queue(times: &Times, transfer: Option<(f64, f64)>, ready: Option<f64>) -> Option<f64> {
    let (from, until) = transfer?;
    let scheduled = times.scheduled.filter(|scheduled| until <= *scheduled)?;
    let begin = ready.filter(|ready| *ready <= scheduled).into_iter().fold(times.arrived?, f64::max);
    between(Some(begin + (until - from.max(begin)).max(0.0)), Some(scheduled))
}

/// The latencies of one request, in seconds. As in upstream, all are above 0, except that a queue time can be 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latencies {
    pub queue: Option<f64>,
    pub prefill: Option<f64>,
    pub time_to_first_token: Option<f64>,
    pub decode: Option<f64>,
    pub inference: Option<f64>,
    pub e2e: Option<f64>,
    pub time_per_output_token: Option<f64>,
}

/// Times above this are seconds since 1970. Those below are seconds since a host has started.
const SINCE_1970: f64 = 1e9;
/// Most seconds from the token of a context server to the arrival at the generation server. The two may also overlap.
const LONGEST_HANDOVER: f64 = 60.0;

/// Seconds between two times. A negative result counts as unknown, and so does the difference of two clocks.
pub(super) fn between(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    let (from, to) = from.zip(to)?;
    let is_one_clock = (from > SINCE_1970) == (to > SINCE_1970);
    (is_one_clock && to >= from).then_some(to - from)
}

pub(super) fn positive(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    between(from, to).filter(|seconds| *seconds > 0.0)
}

impl Times {
    /// The same times if they are in order. Otherwise the clock was set back between two of them, and every difference that contains
    /// that moment is too short. Then each time is only of use beside the next one, as in a queue, prefill or decode time.
    pub(crate) fn in_order(self) -> Option<Self> {
        let times = [self.arrived, self.scheduled, self.first_token, self.ended];
        let is_in_order = times.into_iter().flatten().is_sorted();
        is_in_order.then_some(self)
    }
}

/// Whether the generation server got the request when the context server had its token. If not, their clocks differ.
pub(crate) fn hands_over(context: &Times, generation: &Times) -> bool {
    let gap = context.first_token.zip(generation.arrived).map(|(token, arrived)| (arrived - token).abs());
    gap.is_none_or(|seconds| seconds <= LONGEST_HANDOVER)
}

/// Seconds for each token of a decode time, which begins after the first token and `skipped` more.
fn per_token(decode: Option<f64>, tokens: Option<i64>, skipped: u64) -> Option<f64> {
    let later = u64::try_from(tokens?).ok()?.checked_sub(1 + skipped).filter(|tokens| *tokens > 0)?;
    Some(decode? / later as f64)
}

impl Latencies {
    pub(crate) fn of(times: &Times, tokens: Option<i64>) -> Self {
        let decode = positive(times.first_token, times.ended);
        let whole = times.in_order().unwrap_or_default();
        Self {
            queue: between(times.arrived, times.scheduled),
            prefill: positive(times.scheduled, times.first_token),
            time_to_first_token: positive(whole.arrived, whole.first_token),
            decode,
            inference: positive(whole.scheduled, whole.ended),
            e2e: positive(whole.arrived, whole.ended),
            time_per_output_token: per_token(decode, tokens, 0),
        }
    }

    /// The latencies of a request whose prompt one engine processed (`context`) and whose tokens another engine generated
    /// (`generation`, `answer`). Latencies from the first engine to the second need a common clock. They are absent if they are
    /// negative.
    pub(crate) fn of_pair(context: &Times, generation: &Times, answer: &Answer, tokens: Option<i64>) -> Self {
        let is_one_clock =
            context.in_order().is_some() && generation.in_order().is_some() && hands_over(context, generation);
        let answered = Times { first_token: answer.first, ended: answer.ended, ..*context };
        let across = if is_one_clock { Self::of(&answered, None) } else { Self::default() };
        let (context, generation) = (Self::of(context, None), Self::of(generation, None));
        let decode = positive(answer.first, answer.ended);
        Self {
            queue: context.queue.or(generation.queue),
            prefill: context.prefill.or(generation.prefill),
            time_to_first_token: across.time_to_first_token,
            decode,
            inference: across.inference.or(generation.inference).or(context.inference),
            e2e: across.e2e.or(generation.e2e).or(context.e2e),
            time_per_output_token: per_token(decode, tokens, answer.skipped),
        }
    }

    /// Whether any latency is known.
    pub(crate) fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl RequestTimes {
    /// Observes the known latencies of one request, but not its time per output token. `request` is the id that the engine gave to it.
    pub(crate) fn observe(&mut self, latencies: &Latencies, request: Option<u64>) {
        self.time_to_first_token.observe_request(latencies.time_to_first_token, request);
        self.e2e_latency.observe_request(latencies.e2e, request);
        self.queue_time.observe_request(latencies.queue, request);
        self.prefill_time.observe_request(latencies.prefill, request);
        self.decode_time.observe_request(latencies.decode, request);
        self.inference_time.observe_request(latencies.inference, request);
    }

    /// The counterpart of one of trtllm-serve's own histograms.
    pub(crate) fn of_server(&mut self, histogram: RequestHistogram) -> &mut Histogram {
        match histogram {
            RequestHistogram::FirstToken => &mut self.time_to_first_token,
            RequestHistogram::PerOutputToken => &mut self.time_per_output_token,
            RequestHistogram::EndToEnd => &mut self.e2e_latency,
            RequestHistogram::Queue => &mut self.queue_time,
            RequestHistogram::Prefill => &mut self.prefill_time,
            RequestHistogram::Decode => &mut self.decode_time,
            RequestHistogram::Inference => &mut self.inference_time,
            RequestHistogram::CachedTokens => &mut self.cached_tokens,
            RequestHistogram::PrefillPerplexity => &mut self.perplexity[0],
            RequestHistogram::GenerationPerplexity => &mut self.perplexity[1],
        }
    }

    /// Observes the KV cache transfer of one request, in seconds and bytes.
    pub(crate) fn observe_transfer(&mut self, seconds: Option<f64>, bytes: Option<u64>, request: Option<u64>) {
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        let bytes = bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64);
        self.kv_cache_transfer.observe_request(seconds, request);
        self.kv_cache_transfer_bytes.observe_request(bytes, request);
        let known = seconds.zip(bytes);
        self.dynamo_transfer.observe_request(seconds, request);
        self.dynamo_transfer_bytes.observe_request(known.map(|(_, bytes)| bytes), request);
        self.dynamo_transfer_speed.observe_request(known.map(|(seconds, bytes)| bytes / seconds / 1e9), request);
    }

    /// Observes the steps of one request. `speculative`: a step may give several tokens.
    pub(crate) fn observe_steps(&mut self, steps: &StepTimes, speculative: bool, request: Option<u64>) {
        let between = if speculative { &mut self.inter_step } else { &mut self.inter_token };
        for seconds in steps.between_tokens().filter(|seconds| *seconds > 0.0) {
            between.observe_request(seconds, request);
        }
        for (phase, steps) in [&steps.ctx_chunk_metrics, &steps.step_metrics].into_iter().enumerate() {
            let Some(steps) = steps else { continue };
            let seconds = |milliseconds: Option<f64>| milliseconds.map(|milliseconds| milliseconds / 1000.0);
            self.gpu_forward[phase].observe_request(seconds(steps.gpu_forward_ms), request);
            self.gpu_sample[phase].observe_request(seconds(steps.gpu_sample_ms), request);
        }
    }

    /// Observes the KV cache blocks of one request. A request without look-ups has no hit ratio.
    pub(crate) fn observe_blocks(&mut self, blocks: &RequestKvCacheMetrics, request: Option<u64>) {
        let (reused, missed) = (blocks.num_reused_blocks.unwrap_or(0), blocks.num_missed_blocks.unwrap_or(0));
        self.kv_cache_hit_ratio.observe_request(share(Some(reused), Some(reused.saturating_add(missed))), request);
        // The new blocks are among all of them.
        let total = blocks.num_total_allocated_blocks;
        let new = blocks.num_new_allocated_blocks.filter(|new| total.is_none_or(|total| *new <= total));
        self.kv_cache_blocks.observe_request(total.map(|blocks| blocks as f64), request);
        self.kv_cache_new_blocks.observe_request(new.map(|blocks| blocks as f64), request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_of_a_transfer_is_in_decimal_gigabytes_per_second() {
        let mut times = RequestTimes::default();
        times.observe_transfer(Some(0.5), Some(3_000_000_000), None);
        times.observe_transfer(Some(0.25), None, None);
        let shown = |histogram: &Histogram| (histogram.count(), histogram.sum());
        assert_eq!(shown(&times.dynamo_transfer), (2, 0.75));
        assert_eq!((shown(&times.dynamo_transfer_bytes), shown(&times.dynamo_transfer_speed)), ((1, 3e9), (1, 6.0)));
    }
}
