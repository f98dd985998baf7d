//! What the engine achieved, measured from its last requests.

use crate::answer::{Forecast, LatencyRanges, Met, Range};
use crate::latencies::Summary;
use crate::measured_engine::{Objectives, Request};

/// `requests`: in the order of arrival, not empty.
pub(crate) fn measured(requests: &[Request], objectives: &Objectives) -> Forecast {
    let span = |of: fn(&Request) -> f64| {
        let (low, high) =
            requests.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(low, high), at| (low.min(at), high.max(at)));
        (high - low).max(1e-9)
    };
    let (arrivals, ends) = (span(|request| request.arrived), span(Request::end));
    let count = (requests.len() - 1) as f64;
    // The queue grows while requests end more slowly than they arrive.
    let stable = ends < 1.1 * arrivals;
    let tokens: f64 = requests.iter().map(|request| f64::from(request.output)).sum();
    let summary = Summary::of(requests, objectives);
    let times = |percentiles: [f64; 2]| {
        let [p50, p95] = percentiles.map(exact);
        stable.then_some(LatencyRanges { p50, p95 })
    };
    Forecast {
        stable,
        requests_per_second: exact(count / ends),
        tokens_per_second: exact(tokens / ends),
        ttft_seconds: times(summary.ttft),
        tpot_seconds: times(summary.tpot),
        queue_growth_per_second: (!stable).then(|| exact(count / arrivals - count / ends)),
        objectives_met: Met::of(objectives, |index| exact(summary.met[index])),
        capacity_requests_per_second: None,
    }
}

fn exact(value: f64) -> Range {
    Range { value, low: value, high: value }
}
