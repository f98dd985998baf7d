//! Seconds of an iteration: what iterations with about the same work took, corrected by the fit for the difference. Costs have
//! steps and bend, so the nearest known work counts, and the fit only carries over the distance to it.

use crate::present::{EqualWork, Present, Prices};

/// The work of an iteration.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) context_tokens: f64,
    /// With drafts.
    pub(crate) generation_tokens: f64,
    pub(crate) kv_tokens: f64,
}

/// Seconds, and their relative standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds {
    pub(crate) mean: f64,
    pub(crate) error: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Costs {
    prices: Prices,
    known: Vec<Known>,
    pub(crate) largest: Work,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    work: EqualWork,
    at: Place,
    trust: f64,
}

/// Where work lies: two steps for each doubling, and whether it has a part at all.
#[derive(Debug, Clone, Copy)]
struct Place {
    context: f64,
    generation: f64,
}

/// The relative error of a mean of equal work: it drifts, and iterations within it differ.
const ERROR_OF_KNOWN: f64 = 0.015;
/// The least relative error of prices beyond the known work.
const LEAST_ERROR_OF_PRICES: f64 = 0.06;
/// Work without context tokens and work with a few differ by this many steps: graphs are for batches without context.
const CONTEXT_AT_ALL: f64 = 3.0;
/// Squared steps within which work counts as equal.
const NEAR: f64 = 0.1;

impl Place {
    fn of(context_tokens: f64, generation_tokens: f64) -> Self {
        let steps = |tokens: f64, first: f64| 2.0 * (tokens / first).max(1.0).log2();
        let context = if context_tokens > 0.0 { CONTEXT_AT_ALL + steps(context_tokens, 32.0) } else { 0.0 };
        let generation = if generation_tokens > 0.0 { 1.0 + steps(generation_tokens, 1.0) } else { 0.0 };
        Self { context, generation }
    }

    fn squared_distance(self, other: Self) -> f64 {
        (self.context - other.context).powi(2) + (self.generation - other.generation).powi(2)
    }
}

impl Costs {
    pub(crate) fn of(present: &Present) -> Option<Self> {
        Self::new(&present.equal_work, present.prices?)
    }

    pub(crate) fn new(equal_work: &[EqualWork], prices: Prices) -> Option<Self> {
        let known: Vec<Known> = equal_work
            .iter()
            .map(|work| Known {
                work: *work,
                at: Place::of(work.context_tokens, work.generation_tokens),
                trust: work.iterations.min(50.0),
            })
            .collect();
        let largest = |of: fn(&EqualWork) -> f64| equal_work.iter().map(of).fold(0.0, f64::max);
        let largest = Work {
            context_tokens: largest(|work| work.context_tokens),
            generation_tokens: largest(|work| work.generation_tokens),
            kv_tokens: largest(|work| work.kv_tokens),
        };
        (!known.is_empty()).then_some(Self { prices, known, largest })
    }

    pub(crate) fn seconds(&self, work: &Work) -> Seconds {
        let at = Place::of(work.context_tokens, work.generation_tokens);
        let (mut sum, mut weights, mut nearest) = (0.0, 0.0, f64::INFINITY);
        for known in &self.known {
            let distance = at.squared_distance(known.at);
            nearest = nearest.min(distance);
            let weight = known.trust / (NEAR + distance).powi(2);
            weights += weight;
            sum += weight * self.carried(&known.work, work);
        }
        // A doubling is two steps.
        let far = (nearest.sqrt() / 2.0 - 0.25).clamp(0.0, 2.0);
        let beyond = self.beyond(work);
        let of_prices = self.prices.error.max(LEAST_ERROR_OF_PRICES);
        Seconds { mean: sum / weights, error: ERROR_OF_KNOWN + of_prices * (far + beyond.log2().max(0.0) / 2.0) }
    }

    /// By the nearest known work alone, whose neighbours may lie beyond a step of the costs.
    pub(crate) fn by_nearest(&self, work: &EqualWork) -> Option<Seconds> {
        let at = Place::of(work.context_tokens, work.generation_tokens);
        let distance = |known: &&Known| at.squared_distance(known.at);
        let nearest = self.known.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))?;
        let work = Work {
            context_tokens: work.context_tokens,
            generation_tokens: work.generation_tokens,
            kv_tokens: work.kv_tokens,
        };
        Some(Seconds { mean: self.carried(&nearest.work, &work), error: self.seconds(&work).error })
    }

    /// What known work took, and the price of the difference. Prices correct by at most the half downwards.
    fn carried(&self, known: &EqualWork, work: &Work) -> f64 {
        let prices = &self.prices;
        let difference = prices.context_token * (work.context_tokens - known.context_tokens)
            + prices.generation_token * (work.generation_tokens - known.generation_tokens)
            + prices.kv_token * (work.kv_tokens - known.kv_tokens);
        (known.seconds + difference).max(0.5 * known.seconds)
    }

    /// How many times the largest known work this is.
    pub(crate) fn beyond(&self, work: &Work) -> f64 {
        let times = |work: f64, largest: f64| if work > 0.0 { work / largest.max(1.0) } else { 0.0 };
        times(work.context_tokens, self.largest.context_tokens)
            .max(times(work.generation_tokens, self.largest.generation_tokens))
    }
}
