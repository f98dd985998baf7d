//! What the engine achieved, measured from its last requests.

use crate::answer::{Forecast, LatencyRanges, Met, Range};
use crate::measured_engine::{Objectives, Request};
use crate::replay::percentiles;

/// `requests`: in the order of arrival, not empty.
pub(crate) fn measured(requests: &[Request], objectives: &Objectives) -> Forecast {
    let span = |of: fn(&Request) -> f64| {
        let (low, high) =
            requests.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(low, high), at| (low.min(at), high.max(at)));
        (high - low).max(1e-9)
    };
    let (arrivals, ends) = (span(|request| request.arrived), span(|request| request.arrived + request.ended));
    let count = (requests.len() - 1) as f64;
    // The queue grows while requests end more slowly than they arrive.
    let stable = ends < 1.1 * arrivals;
    let tokens: f64 = requests.iter().map(|request| f64::from(request.output)).sum();
    let ttft: Vec<f64> = requests.iter().map(|request| request.first_token).collect();
    let tpot = |request: &Request| {
        (request.output > 1).then(|| (request.ended - request.first_token) / f64::from(request.output - 1))
    };
    let share = |is_met: &dyn Fn(&Request) -> bool| {
        exact(requests.iter().filter(|request| is_met(request)).count() as f64 / requests.len() as f64)
    };
    let in_time = |request: &Request| objectives.ttft.is_none_or(|limit| request.first_token <= limit);
    let fluent = |request: &Request| objectives.tpot.is_none_or(|limit| tpot(request).is_none_or(|time| time <= limit));
    let soon = |request: &Request| objectives.e2e.is_none_or(|limit| request.ended <= limit);
    let any = objectives.ttft.or(objectives.tpot).or(objectives.e2e);
    Forecast {
        stable,
        requests_per_second: exact(count / ends),
        tokens_per_second: exact(tokens / ends),
        ttft_seconds: stable.then(|| times(ttft)),
        tpot_seconds: stable.then(|| times(requests.iter().filter_map(tpot).collect())),
        queue_growth_per_second: (!stable).then(|| exact(count / arrivals - count / ends)),
        waiting: None,
        objectives_met: any.map(|_| Met {
            ttft: objectives.ttft.map(|_| share(&in_time)),
            tpot: objectives.tpot.map(|_| share(&fluent)),
            e2e: objectives.e2e.map(|_| share(&soon)),
            all: Some(share(&|request| in_time(request) && fluent(request) && soon(request))),
        }),
        capacity_requests_per_second: None,
    }
}

fn exact(value: f64) -> Range {
    Range { value, low: value, high: value }
}

fn times(values: Vec<f64>) -> LatencyRanges {
    let [p50, p95] = percentiles(values).map(exact);
    LatencyRanges { p50, p95 }
}
