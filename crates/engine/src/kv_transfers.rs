//! KV cache transfers with the buckets of Dynamo's TensorRT-LLM worker.

use super::histogram::{Bound, Histogram};

macro_rules! dynamo_bounds {
    ($($value:literal => $text:literal),* $(,)?) => {
        &[$(Bound { value: $value, text: $text }),*]
    };
}

static LATENCY_SECONDS: &[Bound] = dynamo_bounds![
    0.001 => "0.001", 0.005 => "0.005", 0.01 => "0.01", 0.025 => "0.025", 0.05 => "0.05", 0.1 => "0.1", 0.25 => "0.25",
    0.5 => "0.5", 1.0 => "1", 2.5 => "2.5", 5.0 => "5", 10.0 => "10",
];
static SIZE_BYTES: &[Bound] = dynamo_bounds![
    1e5 => "100000", 5e5 => "500000", 1e6 => "1000000", 5e6 => "5000000", 1e7 => "10000000", 5e7 => "50000000",
    1e8 => "100000000", 5e8 => "500000000", 1e9 => "1000000000", 5e9 => "5000000000",
];
static SPEED_GIGABYTES: &[Bound] = dynamo_bounds![
    0.1 => "0.1", 0.5 => "0.5", 1.0 => "1", 5.0 => "5", 10.0 => "10", 25.0 => "25", 50.0 => "50", 100.0 => "100",
    250.0 => "250", 500.0 => "500",
];

/// One observation for each finished request whose transfer took a known time.
#[derive(Debug, Clone, PartialEq)]
pub struct KvTransfers {
    /// Seconds.
    pub latency: Histogram,
    /// Bytes, where the size is known.
    pub size: Histogram,
    /// Units of 10^9 bytes per second, where the size is known.
    pub speed: Histogram,
}

impl KvTransfers {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            latency: Histogram::new(LATENCY_SECONDS),
            size: Histogram::new(SIZE_BYTES),
            speed: Histogram::new(SPEED_GIGABYTES),
        }
    }

    /// `seconds` is above 0.
    pub fn observe(&mut self, seconds: f64, bytes: Option<u64>, request: Option<u64>) {
        self.latency.observe_request(seconds, request);
        if let Some(bytes @ 1..) = bytes {
            let bytes = bytes as f64;
            self.size.observe_request(bytes, request);
            self.speed.observe_request(bytes / seconds / 1e9, request);
        }
    }
}

impl Default for KvTransfers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_of_a_transfer_is_in_decimal_gigabytes_per_second() {
        let mut transfers = KvTransfers::new();
        transfers.observe(0.5, Some(3_000_000_000), None);
        transfers.observe(0.25, None, None);
        let shown = |histogram: &Histogram| (histogram.count(), histogram.sum());
        assert_eq!(shown(&transfers.latency), (2, 0.75));
        assert_eq!((shown(&transfers.size), shown(&transfers.speed)), ((1, 3e9), (1, 6.0)));
    }

    #[test]
    fn the_text_of_a_bound_is_its_value() {
        for bound in [LATENCY_SECONDS, SIZE_BYTES, SPEED_GIGABYTES].concat() {
            assert_eq!(bound.value.to_string(), bound.text);
        }
    }
}
