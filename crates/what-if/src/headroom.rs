//! How much more an engine could serve: compares the rate of arriving requests with the highest rate of such requests
//! that it could serve.

use trtllm_analysis::window::Span;

use crate::answer::Range;
use crate::ask::{farthest, is_cache_unclear, simulated};
use crate::change::Change;
use crate::measured::measured;
use crate::measured_engine::MeasuredEngine;
use crate::replay::Question;
use crate::scheduler::Extrapolation;

/// If requests wait during at least this share of the iterations, the engine serves as much as it can.
const ALWAYS_WAITING: f64 = 0.98;
/// The widest allowed interval: half of the interval ÷ the value.
const WIDE: f64 = 0.25;
/// The largest allowed relative difference between the simulated and the measured time per token.
const MISS: f64 = 0.3;
/// With fewer iterations, a minute of a busy engine does not show how much it can serve.
const ENOUGH_ITERATIONS: f64 = 200.0;

/// How many requests like the current ones the engine could serve per second, calculated from its costs. Absent if the costs
/// do not determine it.
pub fn capacity(engine: &MeasuredEngine) -> Option<Range> {
    let (costs, load, rules) = simulated(engine, &Change::default()).ok()?;
    let question = Question::of_present(engine, rules, &costs, &load);
    // Near the capacity, the time to the first token varies too much for a comparison. The time per token must be right.
    let [simulated, known] = [question.again(), question.as_measured()].map(|result| result.latencies.tpot[0]);
    let is_stable = measured(&engine.requests, &engine.objectives).stable;
    if is_stable && (simulated / known.max(1e-9) - 1.0).abs() > MISS {
        return None;
    }
    let mut reached = Extrapolation::default();
    let capacity = question.capacity_range(&mut reached);
    let is_far = engine.cache.is_none() && reached.beyond() > farthest(engine);
    (!is_far && !is_cache_unclear(engine, &rules, &reached) && capacity.relative() <= WIDE).then_some(capacity)
}

/// The capacity in requests per second, and its free share, which is 0 for an engine at its capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    pub capacity: f64,
    pub free: f64,
}

impl Headroom {
    /// `minute`: the last minute. `waiting`: how many requests waited at its start and at its end. `by_costs`: see [`capacity`].
    pub fn of(minute: &Span, waiting: [Option<f64>; 2], by_costs: Option<f64>) -> Option<Self> {
        let sums = &minute.sums;
        let is_full = sums.iterations >= ENOUGH_ITERATIONS && sums.waits >= ALWAYS_WAITING * sums.iterations;
        let served = minute.rate(minute.served());
        let capacity = if is_full { Some(served) } else { by_costs }.filter(|capacity| *capacity > 0.0)?;
        let [before, after] = waiting.map(|waiting| waiting.unwrap_or(0.0));
        let arrived = minute.rate(minute.counts.started + after - before);
        Some(Self { capacity, free: (1.0 - arrived / capacity).clamp(0.0, 1.0) })
    }
}
