//! A histogram with fixed bounds, and native buckets beside them. It is updated in place, without atomics, and allocates
//! only at its first value.

use super::native::NativeBuckets;
use super::saturating::add;
use super::server_metrics::HistogramIncrease;

/// The largest number of bounds of any histogram. One more bucket holds the values above them.
const MAX_BOUNDS: usize = 23;
pub const BUCKETS: usize = MAX_BOUNDS + 1;

/// Upper bound of a bucket, and its text on the page: integers without a point, never an exponent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub text: &'static str,
}

/// Bounds from literals, in the spelling of the page.
macro_rules! bounds {
    // For bounds above 2^31, which do not fit into the default integer type.
    (whole: $($bound:literal),* $(,)?) => {
        &[$(Bound { value: $bound as i64 as f64, text: stringify!($bound) }),*]
    };
    ($($bound:literal),* $(,)?) => {
        &[$(Bound { value: $bound as f64, text: stringify!($bound) }),*]
    };
}

/// Seconds, with the bounds of trtllm-serve's request histograms.
pub static LONG_SECONDS: &[Bound] =
    bounds![0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];
/// Seconds, with the bounds of `trtllm_time_to_first_token_seconds`.
pub static FIRST_TOKEN_SECONDS: &[Bound] = bounds![
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560
];
/// The bounds of [`FIRST_TOKEN_SECONDS`] in milliseconds.
pub static FIRST_TOKEN_MILLISECONDS: &[Bound] = bounds![
    1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000, 20000, 40000, 80000, 160000, 640000,
    2560000
];
/// Seconds, with the bounds of `trtllm_time_per_output_token_seconds`.
pub static PER_TOKEN_SECONDS: &[Bound] =
    bounds![0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
/// Seconds, with the bounds of `trtllm_request_prefill_time_seconds`.
pub static SHORT_SECONDS: &[Bound] =
    bounds![0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640, 2560];
/// Seconds, with the bounds of an orchestrator's histograms of complete requests.
pub static COMPLETE_SECONDS: &[Bound] =
    bounds![0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920];
/// Seconds of one iteration: dense where engines run (2–50 ms), wide enough for a long context.
pub static ITERATION_SECONDS: &[Bound] = bounds![
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10
];
/// Requests in a batch.
pub static BATCH_REQUESTS: &[Bound] = bounds![1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Tokens in a batch, with the bounds of `trtllm_prefill_batch_tokens`.
pub static BATCH_TOKENS: &[Bound] = bounds![64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];
/// Cached tokens of a request, with the bounds of `trtllm_prompt_cached_tokens_per_request`.
pub static CACHED_TOKENS: &[Bound] = bounds![0, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Perplexities, with the bounds of `trtllm_generation_perplexity`.
pub static PERPLEXITY: &[Bound] = bounds![1, 2, 5, 10, 25, 50, 100, 500, 1000];
/// Tokens of a request, with the bounds of Triton's `nv_llm_*_token_len`.
pub static TOKEN_LENGTH: &[Bound] = bounds![10, 50, 100, 500, 1000];
/// Tokens of a request, with vLLM's bounds for a model of a million tokens.
pub static LONG_TOKEN_LENGTH: &[Bound] =
    bounds![1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000];
/// No bounds: number and sum only.
pub static NO_BOUNDS: &[Bound] = &[];
/// Iterations of a request.
pub static REQUEST_ITERATIONS: &[Bound] =
    bounds![1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
/// Tokens decoded in one iteration: 1 without speculation.
pub static DECODED_TOKENS: &[Bound] = bounds![1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8];
/// The largest of several numbers ÷ their mean: 1 if all are equal.
pub static IMBALANCE: &[Bound] = bounds![1, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 6, 8];
/// Ratios from 0 to 1.
pub static RATIO: &[Bound] = bounds![0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
/// Bytes of a KV cache transfer: 64 KiB to 16 GiB.
pub static TRANSFER_BYTES: &[Bound] = bounds![whole:
    65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456, 1073741824, 4294967296, 17179869184
];
/// Seconds of a KV cache transfer, with the bounds of Dynamo's TensorRT-LLM worker. So are the next two lists.
pub static DYNAMO_TRANSFER_SECONDS: &[Bound] = bounds![0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/// Bytes of a KV cache transfer.
pub static DYNAMO_TRANSFER_BYTES: &[Bound] = bounds![whole:
    100000, 500000, 1000000, 5000000, 10000000, 50000000, 100000000, 500000000, 1000000000, 5000000000
];
/// Speed of a KV cache transfer in units of 10^9 bytes per second.
pub static DYNAMO_TRANSFER_SPEED: &[Bound] = bounds![0.1, 0.5, 1, 5, 10, 25, 50, 100, 250, 500];

/// One observation of a bucket, for OpenMetrics. It has no timestamp, so that a page does not depend on when it is rendered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// The id that the engine gave to the request.
    pub request: u64,
    pub value: f64,
}

/// Counts per bucket (not cumulative), and the sum and number of all observations.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: &'static [Bound],
    counts: [u64; BUCKETS],
    sum: f64,
    count: u64,
    native: NativeBuckets,
    /// The last request of each bucket, if requests have ids.
    exemplars: Option<Box<[Option<Exemplar>; BUCKETS]>>,
}

impl Histogram {
    /// `bounds` ascend. There are at most 23.
    #[must_use]
    pub const fn new(bounds: &'static [Bound]) -> Self {
        assert!(bounds.len() <= MAX_BOUNDS, "a histogram has at most MAX_BOUNDS bounds");
        Self { bounds, counts: [0; BUCKETS], sum: 0.0, count: 0, native: NativeBuckets::new(), exemplars: None }
    }

    /// Observes a value. An absent one is not observed.
    pub fn observe(&mut self, value: impl Into<Option<f64>>) {
        self.observe_request(value, None);
    }

    /// Adds observations whose values are unknown: the upper bound and the number of each bucket, and the sum of all values.
    pub fn add_buckets(&mut self, buckets: impl IntoIterator<Item = (f64, u64)>, sum: f64) {
        let above_all = self.bounds.last().map_or(0.0, |bound| 2.0 * bound.value);
        let sum = self.sum + sum;
        for (bound, times) in buckets {
            self.observe_times(if bound.is_finite() { bound } else { above_all }, times);
        }
        self.sum = sum;
    }

    /// Adds the increase of a server's histogram. Without the sum, nothing is added: a mean needs both.
    pub(crate) fn add_increase(&mut self, increase: &HistogramIncrease) {
        if let Some(sum) = increase.sum {
            self.add_buckets(increase.buckets.iter().copied(), sum);
        }
    }

    /// Observes the value of one request. It becomes the exemplar of its bucket if the request has an id.
    pub fn observe_request(&mut self, value: impl Into<Option<f64>>, request: Option<u64>) {
        let Some(value) = value.into() else { return };
        if let (Some(bucket), Some(request)) = (self.observe_times(value, 1), request) {
            let exemplars = self.exemplars.get_or_insert_with(|| Box::new([None; BUCKETS]));
            // Negative zero becomes zero, which is the same in every format.
            exemplars[bucket] = Some(Exemplar { request, value: value + 0.0 });
        }
    }

    /// Observes the same value `times` times. Returns the index of its bucket. Ignores a negative value and a value
    /// that would make the sum infinite or NaN, because the sum must never fall or become useless.
    pub(crate) fn observe_times(&mut self, value: f64, times: u64) -> Option<usize> {
        let sum = self.sum + value * times as f64;
        if times == 0 || value < 0.0 || !sum.is_finite() {
            return None;
        }
        // With fewer than about 24 bounds a linear search is faster than a binary one: its branches are predicted well.
        let bucket = self.bounds.iter().position(|bound| value <= bound.value).unwrap_or(self.bounds.len());
        add(&mut self.counts[bucket], times);
        self.sum = sum;
        add(&mut self.count, times);
        self.native.observe(value, times);
        Some(bucket)
    }

    /// The same observations in another unit. Values and bounds are `factor` times as large. The result has no native buckets.
    #[must_use]
    pub fn in_unit(&self, bounds: &'static [Bound], factor: f64) -> Self {
        debug_assert_eq!(bounds.len(), self.bounds.len());
        let exemplars = self.exemplars.as_ref().map(|exemplars| {
            let scaled = |exemplar: Exemplar| Exemplar { value: exemplar.value * factor, ..exemplar };
            Box::new(exemplars.map(|exemplar| exemplar.map(scaled)))
        });
        let Self { counts, count, .. } = *self;
        Self { bounds, counts, sum: self.sum * factor, count, native: NativeBuckets::new(), exemplars }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    #[must_use]
    pub const fn bounds(&self) -> &'static [Bound] {
        self.bounds
    }

    /// The count of each bucket, not cumulative. The bucket above all bounds follows the bucket of the last bound.
    #[must_use]
    pub const fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// Upper bound and cumulative count of each bucket. The infinite bucket is left out; its count is [`Histogram::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (Bound, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0_u64, |total, (bound, count)| {
            add(total, *count);
            Some((*bound, *total))
        })
    }

    /// The exemplar of each bucket, the infinite bucket last.
    pub fn exemplars(&self) -> impl Iterator<Item = Option<Exemplar>> + '_ {
        (0..=self.bounds.len()).map(|bucket| self.exemplars.as_ref().and_then(|exemplars| exemplars[bucket]))
    }

    /// The same observations in the buckets of a native histogram.
    #[must_use]
    pub const fn native(&self) -> &NativeBuckets {
        &self.native
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_in_that_bucket_and_an_absurd_one_in_none() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        [f64::NAN, f64::INFINITY, -1.0].into_iter().for_each(|value| histogram.observe(value));
        histogram.observe(10.0);
        histogram.observe(10.1);
        histogram.observe_times(2000.0, 3);
        assert_eq!(
            histogram.cumulative().map(|(bound, count)| (bound.value, count)).collect::<Vec<_>>(),
            [(10.0, 1), (50.0, 2), (100.0, 2), (500.0, 2), (1000.0, 2)]
        );
        assert_eq!((histogram.count(), histogram.sum()), (5, 6020.1));
    }

    #[test]
    fn observations_of_which_only_the_bucket_is_known_keep_their_sum() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe(7.0);
        histogram.add_buckets([(10.0, 2), (100.0, 0), (700.0, 1), (f64::INFINITY, 1)], 5000.5);
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        // This histogram has no bound at 700, so the observation of at most 700 is counted in the next higher bucket.
        assert_eq!((counts, histogram.count(), histogram.sum()), (vec![3, 3, 3, 3, 4], 5, 5007.5));
    }

    #[test]
    fn the_exemplar_of_a_bucket_is_its_last_request_with_a_number() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        for (value, request) in [(7.0, Some(1)), (8.0, Some(2)), (9.0, None), (5000.0, Some(3)), (-1.0, Some(4))] {
            histogram.observe_request(value, request);
        }
        let mut wanted = [None; 6];
        wanted[0] = Some(Exemplar { request: 2, value: 8.0 });
        wanted[5] = Some(Exemplar { request: 3, value: 5000.0 });
        assert_eq!(histogram.exemplars().collect::<Vec<_>>(), wanted);
        assert_eq!(histogram.count(), 4);
    }

    #[test]
    fn the_text_of_a_bound_is_its_value_in_the_spelling_of_the_page() {
        for bounds in [
            LONG_SECONDS,
            FIRST_TOKEN_SECONDS,
            PER_TOKEN_SECONDS,
            SHORT_SECONDS,
            COMPLETE_SECONDS,
            ITERATION_SECONDS,
            IMBALANCE,
            TRANSFER_BYTES,
            DYNAMO_TRANSFER_SECONDS,
            DYNAMO_TRANSFER_BYTES,
            DYNAMO_TRANSFER_SPEED,
        ] {
            for bound in bounds {
                assert_eq!(bound.value.to_string(), bound.text);
            }
            assert!(bounds.is_sorted_by(|a, b| a.value < b.value));
        }
    }

    #[test]
    fn another_unit_changes_values_and_no_count() {
        for (seconds, milliseconds) in FIRST_TOKEN_SECONDS.iter().zip(FIRST_TOKEN_MILLISECONDS) {
            assert_eq!((seconds.value * 1000.0).to_string(), milliseconds.text);
            assert_eq!(milliseconds.value.to_string(), milliseconds.text);
        }
        let mut histogram = Histogram::new(FIRST_TOKEN_SECONDS);
        histogram.observe_request(0.25, Some(7));
        histogram.observe(3000.0);
        let scaled = histogram.in_unit(FIRST_TOKEN_MILLISECONDS, 1000.0);
        assert_eq!((scaled.count(), scaled.sum()), (2, 3_000_250.0));
        let counts = |of: &Histogram| of.cumulative().map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(counts(&scaled), counts(&histogram));
        assert_eq!(scaled.exemplars().flatten().collect::<Vec<_>>(), [Exemplar { request: 7, value: 250.0 }]);
    }
}
