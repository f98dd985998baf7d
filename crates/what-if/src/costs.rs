//! Predicts the seconds of an iteration from known iterations with about the same work. A linear fit corrects for the difference in
//! work, and for nothing else, because costs are not linear: they jump, for example where a CUDA graph ends.

use trtllm_analysis::cost_model::Work;
use trtllm_analysis::numbers::Numbers as _;

use crate::answer::combine_errors;
use crate::measured_engine::{EqualWork, LargestWork, MeasuredEngine, Prices};

/// The predicted seconds of an iteration, and their relative standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PredictedSeconds {
    pub(crate) mean: f64,
    pub(crate) error: f64,
    /// The engine has not run such work, and the costs of smaller and larger work differ, so they may jump in between.
    pub(crate) is_unclear: bool,
}

/// The known iterations of an engine, from which costs of other work are predicted.
#[derive(Debug, Clone)]
pub(crate) struct CostEstimator {
    prices: Prices,
    known: Vec<Known>,
    largest: Work,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    mean: EqualWork,
    at: Position,
    trust: f64,
}

/// The position of work on a logarithmic scale with two units per doubling, and the steps of equal work. A phase without tokens is at 0.
#[derive(Debug, Clone, Copy)]
struct Position {
    context: f64,
    generation: f64,
    steps: [usize; 2],
}

/// More iterations than this do not make a mean more trustworthy.
const ALL_TRUST: f64 = 16.0;
/// If the costs of the next smaller and larger known work differ by more than this share, the costs in between are unclear.
const UNCLEAR: f64 = 0.08;
/// The relative error of a mean of equal work. Costs drift, and the iterations that are averaged into one mean are not
/// identical.
const ERROR_OF_KNOWN: f64 = 0.015;
/// The least relative error of prices beyond the known work.
const LEAST_ERROR_OF_PRICES: f64 = 0.06;
/// The distance in steps between work without context tokens and work with a few. They differ because only batches without
/// context use CUDA graphs.
const CONTEXT_AT_ALL: f64 = 3.0;
/// The squared distance in steps within which work counts as equal.
const NEAR: f64 = 0.1;

impl Position {
    fn of(work: &Work) -> Self {
        let Work { context_tokens, generation_tokens, .. } = *work;
        let steps = |tokens: f64, first: f64| 2.0 * (tokens / first).max(1.0).log2();
        let context = if context_tokens > 0.0 { CONTEXT_AT_ALL + steps(context_tokens, 32.0) } else { 0.0 };
        let generation = if generation_tokens > 0.0 { 1.0 + steps(generation_tokens, 1.0) } else { 0.0 };
        Self { context, generation, steps: work.steps() }
    }

    fn squared_distance(self, other: Self) -> f64 {
        // Costs may change at the end of a step.
        let apart = |at: usize, difference: f64| match self.steps[at] == other.steps[at] {
            true => 0.0,
            false => difference.abs().max(1.0),
        };
        apart(1, self.context - other.context).powi(2) + apart(0, self.generation - other.generation).powi(2)
    }
}

impl CostEstimator {
    pub(crate) fn of(engine: &MeasuredEngine) -> Option<Self> {
        let mut costs = Self::new(&engine.equal_work, engine.prices?)?;
        // Means of equal work are smaller than the largest iteration.
        let LargestWork { context_tokens, generation_tokens } = engine.largest;
        let seen = Work { context_tokens, generation_tokens, kv_tokens: 0.0 };
        costs.largest = costs.largest.combine(&seen, &f64::max);
        Some(costs)
    }

    pub(crate) fn new(equal_work: &[EqualWork], prices: Prices) -> Option<Self> {
        let known: Vec<Known> = equal_work
            .iter()
            .map(|mean| Known { mean: *mean, at: Position::of(&mean.work), trust: mean.iterations.min(ALL_TRUST) })
            .collect();
        let largest = known.iter().fold(Work::default(), |largest, known| largest.combine(&known.mean.work, &f64::max));
        (!known.is_empty()).then_some(Self { prices, known, largest })
    }

    pub(crate) fn seconds(&self, work: &Work) -> PredictedSeconds {
        let at = Position::of(work);
        let (mut sum, mut weights, mut nearest) = (0.0, 0.0, f64::INFINITY);
        for known in &self.known {
            let distance = at.squared_distance(known.at);
            nearest = nearest.min(distance);
            let weight = known.trust / (NEAR + distance).powi(2);
            weights += weight;
            sum += weight * self.carried(known, work, at);
        }
        let mean = sum / weights;
        let difference = if work.context_tokens > 0.0 { 0.0 } else { self.step_around(work, at) / mean };
        // A doubling is two steps.
        let far = (nearest.sqrt() / 2.0 - 0.25).clamp(0.0, 2.0);
        let beyond = self.beyond(work);
        let of_prices = self.prices.error.max(LEAST_ERROR_OF_PRICES);
        let error = ERROR_OF_KNOWN + of_prices * (far + beyond.log2().max(0.0) / 2.0);
        PredictedSeconds { mean, error: combine_errors(error, difference), is_unclear: difference > UNCLEAR }
    }

    /// The standard error in seconds from a possible jump of the costs, where a CUDA graph may end: half of the difference between
    /// the costs of the next smaller and the next larger known batch. 0 within half a step of known work.
    fn step_around(&self, work: &Work, at: Position) -> f64 {
        let side = |is_above: bool| {
            let sided = self.known.iter().filter(|known| {
                known.mean.work.context_tokens <= 0.0 && (known.at.generation > at.generation) == is_above
            });
            sided.min_by(|one, other| at.squared_distance(one.at).total_cmp(&at.squared_distance(other.at)))
        };
        let (Some(below), Some(above)) = (side(false), side(true)) else { return 0.0 };
        let nearest = at.squared_distance(below.at).min(at.squared_distance(above.at)).sqrt();
        let difference = self.carried(above, work, at) - self.carried(below, work, at);
        (nearest - 0.5).clamp(0.0, 1.0) * difference.abs() / 2.0
    }

    /// Predicts the seconds from the nearest known work alone, because the costs may jump before other known work.
    pub(crate) fn by_nearest(&self, work: &Work) -> Option<PredictedSeconds> {
        let at = Position::of(work);
        let distance = |known: &&Known| at.squared_distance(known.at);
        let nearest = self.known.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))?;
        Some(PredictedSeconds { mean: self.carried(nearest, work, at), ..self.seconds(work) })
    }

    /// The seconds of known work, plus the price of the difference to `work`: what it costs among such work or, for other work, everywhere.
    /// Prices lower the seconds by at most half.
    fn carried(&self, Known { mean: known, at: known_at, .. }: &Known, work: &Work, at: Position) -> f64 {
        let [generation_token, kv_token] = match at.steps == known_at.steps {
            true => [known.per_generation_token, known.per_kv_token],
            false => [self.prices.generation_token, self.prices.kv_token],
        };
        let more = work.since(&known.work);
        let difference = self.prices.context_token * more.context_tokens
            + generation_token * more.generation_tokens
            + kv_token * more.kv_tokens;
        (known.seconds + difference).max(0.5 * known.seconds)
    }

    /// The tokens of the largest known generation batch.
    pub(crate) fn largest_tokens(&self) -> f64 {
        self.largest.generation_tokens
    }

    /// `work` ÷ the largest known work, in context tokens or in generation tokens, whichever ratio is larger.
    pub(crate) fn beyond(&self, work: &Work) -> f64 {
        let times = |work: f64, largest: f64| if work > 0.0 { work / largest.max(1.0) } else { 0.0 };
        times(work.context_tokens, self.largest.context_tokens)
            .max(times(work.generation_tokens, self.largest.generation_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `known`: requests and milliseconds of iterations that only decode. Tokens have no price.
    fn costs(known: &[(f64, f64)]) -> CostEstimator {
        let work = |(requests, ms): &(f64, f64)| EqualWork {
            iterations: 100.0,
            seconds: ms / 1e3,
            work: decoding(*requests),
            ..EqualWork::default()
        };
        let prices = Prices { base: 0.01, context_token: 0.0, generation_token: 0.0, kv_token: 0.0, error: 0.05 };
        CostEstimator::new(&known.iter().map(work).collect::<Vec<_>>(), prices).unwrap()
    }

    fn decoding(requests: f64) -> Work {
        Work { generation_tokens: requests, ..Work::default() }
    }

    #[test]
    fn a_batch_at_the_end_of_a_graph_costs_what_the_graph_does() {
        // Means of batches with 12 to 16 requests, and with 17 to 22.
        let costs = costs(&[(14.0, 10.0), (19.5, 17.0)]);
        for (requests, ms) in [(12.0, 10.0), (16.0, 10.0), (17.0, 17.0), (22.0, 17.0)] {
            let seconds = costs.seconds(&decoding(requests));
            assert!((seconds.mean / (ms / 1e3) - 1.0).abs() < 0.02, "{requests}: {seconds:?}");
            assert!(!seconds.is_unclear);
        }
    }

    #[test]
    fn between_known_batches_with_different_costs_the_costs_are_unclear() {
        let with_step = costs(&[(3.0, 10.0), (14.0, 16.0)]);
        let unclear = with_step.seconds(&decoding(7.0));
        assert!(unclear.is_unclear && unclear.error > 0.15, "{unclear:?}");
        for requests in [3.0, 14.0, 20.0] {
            assert!(!with_step.seconds(&decoding(requests)).is_unclear, "{requests}");
        }
        let without = costs(&[(3.0, 10.0), (14.0, 10.4)]);
        assert!(!without.seconds(&decoding(7.0)).is_unclear);
        // Only batches without prompts have graphs.
        assert!(!with_step.seconds(&Work { context_tokens: 100.0, ..decoding(7.0) }).is_unclear);
    }
}
