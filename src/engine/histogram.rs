//! A histogram with fixed bounds, folded in place: no allocation, no atomics.

/// Most bounds of any histogram on the page; one more bucket holds what is above them.
const MAX_BOUNDS: usize = 23;

/// Seconds, as trtllm-serve's request histograms.
pub const LONG_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
/// Seconds, as `trtllm_time_to_first_token_seconds`.
pub const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
/// Seconds, as `trtllm_time_per_output_token_seconds`.
pub const PER_TOKEN_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
/// Seconds, as `trtllm_request_prefill_time_seconds`.
pub const SHORT_SECONDS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0];
/// Seconds of one iteration: dense where engines run (2–50 ms), wide enough for a long context.
pub const ITERATION_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0,
    10.0,
];
/// Requests in a batch.
pub const BATCH_REQUESTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];
/// Tokens in a batch, as `trtllm_prefill_batch_tokens`.
pub const BATCH_TOKENS: &[f64] = &[64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16_384.0, 32_768.0];
/// Tokens of a request, as Triton's `nv_llm_*_token_len`.
pub const TOKEN_LENGTH: &[f64] = &[10.0, 50.0, 100.0, 500.0, 1000.0];
/// 0..1.
pub const RATIO: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Bytes of a KV cache transfer: 64 KiB to 16 GiB.
pub const TRANSFER_BYTES: &[f64] = &[
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
];
/// Seconds of one poll.
pub const POLL_SECONDS: &[f64] = &[0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

/// Counts per bucket (not cumulative), their sum and number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: [u64; MAX_BOUNDS + 1],
    sum: f64,
    count: u64,
}

impl Histogram {
    /// `bounds` ascend and number at most 23.
    #[must_use]
    pub const fn new(bounds: &'static [f64]) -> Self {
        assert!(bounds.len() <= MAX_BOUNDS, "a histogram has at most MAX_BOUNDS bounds");
        Self { bounds, counts: [0; MAX_BOUNDS + 1], sum: 0.0, count: 0 }
    }

    pub fn observe(&mut self, value: f64) {
        self.observe_times(value, 1);
    }

    /// The same value `times` times. What is negative or would make the sum infinite or NaN is not observed: a sum must
    /// neither fall nor be lost for ever.
    pub fn observe_times(&mut self, value: f64, times: u64) {
        let sum = self.sum + value * times as f64;
        if times == 0 || value < 0.0 || !sum.is_finite() {
            return;
        }
        // Below ~24 bounds a straight walk beats a binary search: the branches of one engine repeat.
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] = self.counts[bucket].saturating_add(times);
        self.sum = sum;
        self.count = self.count.saturating_add(times);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper bound and cumulative count of each bucket but the infinite one, which is [`Histogram::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0_u64, |total, (bound, count)| {
            *total = total.saturating_add(*count);
            Some((*bound, *total))
        })
    }

    /// Upper bound and own count of each bucket, the infinite one last.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().copied().chain([f64::INFINITY]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_in_that_bucket() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe(10.0);
        histogram.observe(10.1);
        histogram.observe_times(2000.0, 3);
        assert_eq!(
            histogram.cumulative().collect::<Vec<_>>(),
            [(10.0, 1), (50.0, 2), (100.0, 2), (500.0, 2), (1000.0, 2)]
        );
        assert_eq!(histogram.buckets().last(), Some((f64::INFINITY, 3)));
        assert_eq!((histogram.count(), histogram.sum()), (5, 6020.1));
    }

    #[test]
    fn what_is_no_number_is_not_observed() {
        let mut histogram = Histogram::new(RATIO);
        histogram.observe(f64::NAN);
        histogram.observe(f64::INFINITY);
        histogram.observe(-1.0);
        assert_eq!((histogram.count(), histogram.sum()), (0, 0.0));
    }
}
