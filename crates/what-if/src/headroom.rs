//! How much more an engine could serve: what arrives ÷ the most that it could serve of the same requests.

use trtllm_engine::window::Span;

use crate::answer::Range;
use crate::ask::{is_cache_unclear, is_known, rules};
use crate::change::Change;
use crate::costs::Costs;
use crate::load::{Arrivals, Load};
use crate::measured::measured;
use crate::present::Present;
use crate::replay::Question;
use crate::scheduler::Reached;

/// Share of the iterations with waiting requests from which what is served is what can be served.
const ALWAYS_WAITING: f64 = 0.98;
/// Half of the widest interval, as a share.
const WIDE: f64 = 0.25;
/// The time per token, simulated, may differ from what was measured by this share.
const MISS: f64 = 0.3;
/// Iterations of a busy minute, at least.
const ENOUGH_ITERATIONS: f64 = 200.0;

/// The most requests a second that the engine could serve of those that it gets now, by its costs. Absent where they do not tell.
#[must_use]
pub fn capacity(present: &Present) -> Option<Range> {
    is_known(present).ok()?;
    let costs = Costs::of(present)?;
    let load = Load::of(&present.requests);
    if load.arrivals == Arrivals::Once {
        return None;
    }
    let rules = rules(present, &Change::default()).ok()?;
    let question =
        Question { rules, costs: &costs, load: &load, rate: 1.0, replicas: 1, objectives: present.objectives };
    // Times near the capacity say little, but a token must take as long as it does.
    let measured = measured(&present.requests, &present.objectives);
    let (_, _, tpot) = question.again();
    if measured.tpot_seconds.is_some_and(|times| (tpot / times.p50.value.max(1e-9) - 1.0).abs() > MISS) {
        return None;
    }
    let mut reached = Reached::default();
    let capacity = question.capacity_range(&mut reached);
    (!is_cache_unclear(present, &rules, &reached) && capacity.relative() <= WIDE).then_some(capacity)
}

/// Requests a second, and the share of the capacity that is free: 0 at capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    pub capacity: f64,
    pub free: f64,
}

impl Headroom {
    /// `minute`: the last one, with the requests that waited before and after it. `by_costs`: see [`capacity`].
    #[must_use]
    pub fn of(minute: &Span, waiting: [Option<f64>; 2], by_costs: Option<f64>) -> Option<Self> {
        let sums = &minute.sums;
        let is_full = sums.iterations >= ENOUGH_ITERATIONS && sums.waits >= ALWAYS_WAITING * sums.iterations;
        let served = minute.rate(minute.counts.completed);
        let capacity = if is_full { Some(served) } else { by_costs }.filter(|capacity| *capacity > 0.0)?;
        let [before, after] = waiting.map(|waiting| waiting.unwrap_or(0.0));
        let arrived = minute.rate(minute.counts.started + after - before);
        Some(Self { capacity, free: (1.0 - arrived / capacity).clamp(0.0, 1.0) })
    }
}
