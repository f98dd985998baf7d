//! The answer to a question about an engine, and the numbers in it.

use serde::{Deserialize, Serialize};

/// JSON of `what-if --format json`: a number, and the interval that contains its true value with a probability of 90 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Range {
    /// Half of the interval ÷ the value.
    pub fn relative(&self) -> f64 {
        if self.value > 0.0 { (self.high - self.low) / 2.0 / self.value } else { 0.0 }
    }

    pub fn holds(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }
}

/// The total of two independent errors.
pub(crate) fn combine_errors(one: f64, other: f64) -> f64 {
    (one * one + other * other).sqrt()
}

/// JSON of `what-if --format json`: the median and the 95th percentile of a latency in seconds, each with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyRanges {
    pub p50: Range,
    pub p95: Range,
}

/// JSON of `what-if --format json`: the share of requests that met each objective, from 0 to 1. Absent for an objective
/// that is not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Met {
    pub ttft: Option<Range>,
    pub tpot: Option<Range>,
    pub e2e: Option<Range>,
    pub all: Option<Range>,
}

/// JSON of `what-if --format json`: what an engine does, or what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Whether the engine keeps up: the queue does not grow without end.
    pub stable: bool,
    pub requests_per_second: Range,
    /// Generated tokens.
    pub tokens_per_second: Range,
    /// Absent if the engine is not stable.
    pub ttft_seconds: Option<LatencyRanges>,
    pub tpot_seconds: Option<LatencyRanges>,
    /// Absent if the engine is stable.
    pub queue_growth_per_second: Option<Range>,
    pub objectives_met: Option<Met>,
    /// The highest rate that could be served. Absent if the engine's own iterations do not determine it.
    pub capacity_requests_per_second: Option<Range>,
}

/// JSON of `what-if --format json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub supported: bool,
    /// Why the question has no answer, and what to do about it.
    pub reason: Option<String>,
    pub measured: Option<Forecast>,
    /// The simulated engine without the change, for comparison with `measured`.
    pub now: Option<Forecast>,
    pub then: Option<Forecast>,
}
