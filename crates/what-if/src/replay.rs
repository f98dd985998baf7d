//! Runs the same question many times, each time with other requests from the load and other errors of the costs. The spread of the
//! results gives the interval of the answer.

use crate::answer::{Forecast, LatencyRanges, Met, Range, combine_errors};
use crate::costs::CostEstimator;
use crate::latencies::{Summary, percentiles};
use crate::load::{Arrivals, Load, mean_and_variance};
use crate::measured_engine::{MeasuredEngine, Objectives, Request};
use crate::random::Random;
use crate::scheduler::{Extrapolation, Rules, Scheduler};

/// Number of runs for a question. The capacity needs fewer runs.
const RUNS: usize = 32;
const CAPACITY_RUNS: usize = 8;
/// Standard errors on each side of an interval of 90 %. A little more than the usual 1.645, because there are few runs.
const SIDE: f64 = 1.75;
/// The least relative standard error of a rate and of a time, because the model of the scheduler has errors of its own.
const LEAST_OF_RATES: f64 = 0.012;
const LEAST_OF_TIMES: f64 = 0.03;
/// Shares of the requests that do not count: at the beginning, when the engine is still empty, and at the end, when it becomes empty.
const WARM_UP: f64 = 0.2;
const TAIL: f64 = 0.05;
/// Each engine has a whole number of clients, which changes their total by at most this share.
const ROUNDED: f64 = 0.05;
/// A burst has at most this many times as many requests as the largest known batch.
const BURST: f64 = 4.0;
/// The warm-up takes at least this many times as long as the longest answers.
const FILLED: f64 = 1.0;

/// A question about rules and a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) rules: Rules,
    pub(crate) costs: &'a CostEstimator,
    pub(crate) load: &'a Load<'a>,
    pub(crate) rate: f64,
    pub(crate) replicas: u32,
    pub(crate) objectives: Objectives,
}

/// The forecast, and how far it is from what is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) forecast: Forecast,
    pub(crate) reached: Extrapolation,
    /// The same as `reached`, for the engine at its capacity.
    pub(crate) reached_at_capacity: Extrapolation,
    /// Arrivals ÷ capacity, and how uncertain it is, as a share. Absent for a closed loop.
    pub(crate) utilization: Option<(f64, f64)>,
}

/// Results of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunResult {
    arrivals: f64,
    pub(crate) requests: f64,
    tokens: f64,
    pub(crate) latencies: Summary,
}

impl<'a> Question<'a> {
    /// What the engine does with its present load.
    pub(crate) fn of_present(
        engine: &MeasuredEngine,
        rules: Rules,
        costs: &'a CostEstimator,
        load: &'a Load<'a>,
    ) -> Self {
        Self { rules, costs, load, rate: 1.0, replicas: 1, objectives: engine.objectives }
    }

    pub(crate) fn answer(&self) -> Outcome {
        let mut reached_at_capacity = Extrapolation::default();
        let capacity = self.capacity_range(&mut reached_at_capacity);
        let mut reached = Extrapolation::default();
        let mut runs: Vec<RunResult> = (0..RUNS).map(|run| self.run_after((0, 0.0), run, &mut reached)).collect();
        let replicas = f64::from(self.replicas);
        for run in &mut runs {
            for number in [&mut run.arrivals, &mut run.requests, &mut run.tokens] {
                *number *= replicas;
            }
        }
        let of = |number: &dyn Fn(&RunResult) -> f64, least: f64| {
            range(&runs.iter().map(number).collect::<Vec<_>>(), 1.0, least)
        };
        let arrivals = of(&|run| run.arrivals, 0.0);
        let utilization =
            matches!(self.load.arrivals, Arrivals::Open { .. }).then(|| arrivals.value / capacity.value.max(1e-9));
        let stable = utilization.is_none_or(|utilization| utilization < 1.0);
        let utilization = utilization.map(|value| (value, combine_errors(arrivals.relative(), capacity.relative())));
        let tokens_each = of(&|run| run.tokens / run.requests.max(1e-9), 0.0);
        // Above capacity, the capacity is more certain than the rate of a run, which begins with an empty queue.
        let requests = if stable { of(&|run| run.requests, LEAST_OF_RATES) } else { capacity };
        let tokens = if stable { of(&|run| run.tokens, LEAST_OF_RATES) } else { times(&capacity, tokens_each.value) };
        let percentiles = |number: fn(&RunResult) -> [f64; 2]| {
            let of = |index: usize| of(&|run| number(run)[index], LEAST_OF_TIMES);
            stable.then(|| LatencyRanges { p50: of(0), p95: of(1) })
        };
        let met = |index: usize| share(&runs.iter().map(|run| run.latencies.met[index]).collect::<Vec<_>>());
        let growth = difference(&arrivals, &capacity);
        let forecast = Forecast {
            stable,
            requests_per_second: requests,
            tokens_per_second: tokens,
            ttft_seconds: percentiles(|run| run.latencies.ttft),
            tpot_seconds: percentiles(|run| run.latencies.tpot),
            queue_growth_per_second: (!stable).then_some(growth),
            objectives_met: Met::of(&self.objectives, met).filter(|_| stable),
            capacity_requests_per_second: Some(capacity),
        };
        Outcome { forecast, reached, reached_at_capacity, utilization }
    }

    /// Simulates the known requests once, as they arrived. If the simulation is right, the result equals the measurement.
    pub(crate) fn again(&self) -> RunResult {
        let coming = self.load.known();
        let mut scheduler = Scheduler::new(self.rules, self.costs, 0.0, Random::new(1));
        self.judge(&scheduler.serve(&coming, self.clients()), WARM_UP)
    }

    /// The results of the known requests as they were, counted like those of [`Self::again`].
    pub(crate) fn as_measured(&self) -> RunResult {
        self.judge(&self.load.known(), WARM_UP)
    }

    /// Refuses a number of clients that cannot be divided evenly.
    pub(crate) fn has_whole_clients(&self) -> Result<(), String> {
        let Arrivals::Closed { clients } = self.load.arrivals else { return Ok(()) };
        let (all, replicas) = (clients * self.rate, f64::from(self.replicas));
        let simulated = self.clients().unwrap_or(1) as f64 * replicas;
        let is_changed = self.rate != 1.0 || self.replicas > 1;
        if is_changed && (simulated - all).abs() > ROUNDED * all {
            return Err(format!(
                "{all:.1} clients that wait for their answers cannot be divided evenly among {replicas} engines; ask with another rate \
                 or fewer replicas"
            ));
        }
        Ok(())
    }

    fn clients(&self) -> Option<usize> {
        match self.load.arrivals {
            Arrivals::Closed { clients } => {
                Some(((clients * self.rate / f64::from(self.replicas)).round() as usize).max(1))
            }
            Arrivals::Open { .. } => None,
            Arrivals::Once => Some(usize::MAX),
        }
    }

    /// The median time per output token long after a burst that fills the batch. Another time than without the burst means that two sizes
    /// of the batch are stable: each brings so many requests into the engine as it needs to stay.
    /// `utilization`: arrivals ÷ capacity, below 1.
    pub(crate) fn seconds_per_token_after_a_burst(&self, utilization: f64) -> f64 {
        let mut reached = Extrapolation::default();
        let largest = self.costs.largest_tokens() / f64::from(1 + self.rules.draft_len);
        let burst = f64::from(self.rules.max_batch_size).min(BURST * largest.max(1.0));
        // So many requests arrive until the burst is served.
        let meanwhile = (burst * utilization / (1.0 - utilization)).min(8.0 * self.load.size() as f64);
        let burst = (burst as usize, meanwhile);
        let runs = (0..CAPACITY_RUNS).map(|run| self.run_after(burst, run, &mut reached).latencies.tpot[0]);
        runs.sum::<f64>() / CAPACITY_RUNS as f64
    }

    /// `burst`: number of requests that wait at the beginning. `meanwhile`: how many arrive until these are served.
    fn run_after(&self, (burst, meanwhile): (usize, f64), run: usize, reached: &mut Extrapolation) -> RunResult {
        let mut random = Random::new(1 + run as u64);
        // Each run counts as many requests as are known, so that the spread of the runs shows how little is known.
        let counted = self.load.size() as f64 * (1.0 + TAIL / (1.0 - WARM_UP - TAIL));
        let filling = (counted * WARM_UP / (1.0 - WARM_UP)).max(self.while_filling()) + meanwhile;
        let mut coming = self.load.draw(burst, self.rate, self.replicas, &mut random);
        coming.iter_mut().for_each(|request| request.arrived = 0.0);
        coming.extend(self.load.draw((counted + filling) as usize, self.rate, self.replicas, &mut random));
        let warm_up = (burst as f64 + filling) / coming.len().max(1) as f64;
        let off = spread(run, RUNS);
        let mut scheduler = Scheduler::new(self.rules, self.costs, off, random);
        let served = scheduler.serve(&coming, self.clients());
        reached.merge(&scheduler.reached);
        self.judge(&served, warm_up)
    }

    /// The number of requests that arrive at one engine until it has as many as it will have: while the longest answers take.
    fn while_filling(&self) -> f64 {
        match self.load.arrivals {
            Arrivals::Open { rate } => {
                FILLED * self.load.longest_answer() * rate * self.rate / f64::from(self.replicas)
            }
            Arrivals::Closed { .. } | Arrivals::Once => 0.0,
        }
    }

    /// `warm_up`: share of the requests that do not count, because the engine is not yet full.
    fn judge(&self, served: &[Request], warm_up: f64) -> RunResult {
        let index = |share: f64| ((served.len() as f64 * share) as usize).min(served.len());
        let judged = &served[index(warm_up)..index(1.0 - TAIL)];
        let (Some(first), Some(last)) = (judged.first(), judged.last()) else { return RunResult::default() };
        let (from, until) = (first.arrived, last.arrived);
        let seconds = (until - from).max(1e-9);
        // Requests that the scheduler never finishes do not count.
        let ended = served.iter().filter(|request| request.ended > 0.0);
        let ended = ended.filter(|request| request.end() > from && request.end() <= until);
        let (requests, tokens) =
            ended.fold((0.0, 0.0), |(count, tokens), request| (count + 1.0, tokens + f64::from(request.output)));
        RunResult {
            arrivals: (judged.len() - 1) as f64 / seconds,
            requests: requests / seconds,
            tokens: tokens / seconds,
            latencies: Summary::of(judged, &self.objectives),
        }
    }

    /// The capacity of all replicas.
    pub(crate) fn capacity_range(&self, reached: &mut Extrapolation) -> Range {
        let capacities: Vec<f64> = (0..CAPACITY_RUNS).map(|run| self.capacity(run, reached)).collect();
        range(&capacities, self.replicas.into(), LEAST_OF_RATES)
    }

    /// Requests per second while requests are always waiting.
    fn capacity(&self, run: usize, reached: &mut Extrapolation) -> f64 {
        let mut random = Random::new(1000 + run as u64);
        let count = (10 * self.rules.max_batch_size as usize).clamp(600, 4000);
        let coming: Vec<Request> = self.load.draw(count, 1.0, 1, &mut random);
        let mut scheduler = Scheduler::new(self.rules, self.costs, spread(run, CAPACITY_RUNS), random);
        let served = scheduler.serve(&coming, Some(usize::MAX));
        reached.merge(&scheduler.reached);
        let mut ends: Vec<f64> = served.iter().map(Request::end).collect();
        ends.sort_by(f64::total_cmp);
        let index = |share: f64| (ends.len() as f64 * share) as usize;
        let (from, until) = (index(WARM_UP), index(0.8));
        match (ends.get(from), ends.get(until)) {
            (Some(first), Some(last)) if last > first => (until - from) as f64 / (last - first),
            _ => 0.0,
        }
    }
}

/// By how many standard errors the costs of a run are wrong. The runs are evenly spread over the normal distribution,
/// whose quantiles Tukey's lambda distribution approximates.
fn spread(run: usize, runs: usize) -> f64 {
    // Shuffled, so that the first runs do not all have low costs.
    let index = (run * 7 + 3) % runs;
    let share = (index as f64 + 0.5) / runs as f64;
    (share.powf(0.135) - (1.0 - share).powf(0.135)) / 0.1975
}

/// The median of numbers above 0, times a factor. Its interval reaches from the median ÷ `side` to the median × `side`.
fn range(values: &[f64], factor: f64, least: f64) -> Range {
    let [value, _] = percentiles(values.to_vec());
    let logs: Vec<f64> = values.iter().map(|value| value.max(1e-9).ln()).collect();
    let (_, variance) = mean_and_variance(&logs);
    let side = (SIDE * (variance + least * least).sqrt()).exp();
    let value = value * factor;
    Range { value, low: value / side, high: value * side }
}

/// The mean of shares, with its interval.
fn share(values: &[f64]) -> Range {
    let (mean, variance) = mean_and_variance(values);
    let side = SIDE * (variance + 0.01 * 0.01).sqrt();
    Range { value: mean, low: (mean - side).max(0.0), high: (mean + side).min(1.0) }
}

fn times(range: &Range, factor: f64) -> Range {
    Range { value: range.value * factor, low: range.low * factor, high: range.high * factor }
}

fn difference(one: &Range, other: &Range) -> Range {
    let value = one.value - other.value;
    let side = combine_errors(one.high - one.value, other.high - other.value);
    Range { value, low: (value - side).max(0.0), high: value + side }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured_engine::{EqualWork, Prices};
    use crate::scheduler::bench_reports::RULES;

    #[test]
    fn requests_that_never_end_do_not_count() {
        // One request a second; one in ten never ends.
        let ended = |at| if at % 10 == 0 { 0.0 } else { 0.5 };
        let request = |at: u32| Request { arrived: at.into(), output: 1, ended: ended(at), ..Request::default() };
        let requests: Vec<_> = (0..200).map(request).collect();
        let prices = Prices { base: 1.0, context_token: 0.0, generation_token: 0.0, kv_token: 0.0, error: 0.0 };
        let known = EqualWork { iterations: 1.0, seconds: 1.0, ..EqualWork::default() };
        let (costs, load) = (CostEstimator::new(&[known], prices).unwrap(), Load::of(&requests));
        let objectives = Objectives::default();
        let question = Question { rules: RULES, costs: &costs, load: &load, rate: 1.0, replicas: 1, objectives };
        let rate = question.judge(&requests, 0.0).requests;
        assert!((rate - 0.9).abs() < 0.01, "{rate}");
    }
}
