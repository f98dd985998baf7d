//! Learns from an engine's own iterations how long an iteration takes. The model has two parts: a linear fit, which gives the
//! seconds that each token adds, and the mean times of iterations with about the same work.
//!
//! The costs of engines are not linear: batches are padded to the size of a CUDA graph, attention grows with the square of the
//! prompt, experts are loaded once. So the fit is only used for small differences of work, and its error is measured.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use trtllm_fold::Latest;

use super::numbers::{number, numbers};

numbers! {
    /// The work of an iteration.
    pub struct Work {
        context_requests,
        generation_requests,
        context_tokens,
        /// Tokens computed for decoding requests, drafts included.
        generation_tokens,
        /// Tokens in the KV cache that decoding reads: as reported, or by the used blocks.
        kv_tokens,
    }
}

impl Work {
    #[must_use]
    pub fn of(latest: &Latest) -> Self {
        let batch = latest.inflight.unwrap_or_default();
        let fixed = latest.static_batching.unwrap_or_default();
        let drafts = number(latest.spec_decoding.and_then(|drafts| drafts.num_draft_tokens));
        let generation_requests = match latest.static_batching {
            Some(_) => number(fixed.num_gen_tokens),
            None => number(batch.num_gen_requests),
        };
        let kv_used = latest.kv.and_then(|kv| kv.used_num_blocks?.checked_mul(kv.tokens_per_block?));
        Self {
            context_requests: number(batch.num_context_requests.or(fixed.num_context_requests)),
            generation_requests,
            context_tokens: number(batch.num_ctx_tokens.or(fixed.num_ctx_tokens)),
            generation_tokens: generation_requests + drafts,
            kv_tokens: number(batch.num_gen_kv_tokens.filter(|tokens| *tokens > 0).or(kv_used)),
        }
    }

    pub(crate) fn scheduled(&self) -> f64 {
        self.context_requests + self.generation_requests
    }

    /// Whether the iteration is at the token limit: its tokens nearly reach the limit, or the batch has room for one more
    /// request but a prompt as long as the present ones would exceed the limit. Without chunked context, a prompt is computed
    /// in one iteration.
    pub(crate) fn is_full_of_tokens(&self, limit: f64, batch: Option<f64>) -> bool {
        let tokens = self.context_tokens + self.generation_tokens;
        let prompt = self.context_tokens / self.context_requests.max(1.0);
        let has_place = batch.is_none_or(|batch| self.scheduled() < batch);
        tokens >= 0.9 * limit || has_place && prompt > 0.0 && tokens + prompt > limit
    }

    /// The work, in units in which all values are about 1, so that the fit is well conditioned.
    fn features(&self) -> [f64; FEATURES] {
        [1.0, self.context_tokens / 1e3, self.generation_tokens / 1e2, self.kv_tokens / 1e5]
    }
}

const FEATURES: usize = 4;
/// Number of iterations that the fit remembers.
const MEMORY: f64 = 20_000.0;
/// Number of iterations that are needed before the fit is used.
const ENOUGH: f64 = 60.0;
/// Number of iterations with about the same work, and the relative standard error of their mean, that are needed before an iteration is
/// compared with it. Where the host is the limit, the batch after a prompt is short and the others are long, so many are needed.
const KNOWN: f32 = 16.0;
const ERROR_OF_KNOWN: f32 = 0.03;
/// While the engine is slow, a mean of new work is learned until it has this many iterations.
const CONVERTED: f32 = 100.0;
/// The price that a regression begins with counts as much as one iteration whose work differs from the mean by this share.
const VARIED: f32 = 0.3;
/// Number of iterations with about the same work that are needed before their mean is published. Where the costs have a step,
/// even a few are better than the fit.
const SEEN: f32 = 8.0;
/// An iteration is a spike if it takes this many times what is expected, and this many seconds more.
const SPIKE: f64 = 3.0;
const SPIKE_SECONDS: f64 = 0.05;
/// The engine counts as slowed if recent iterations take this many times the expected time. The first limit is for times that
/// are expected from equal work, the second for times from the fit.
const SLOWED: f64 = 1.12;
const SLOWED_ESTIMATE: f64 = 1.4;
/// Number of iterations that are needed before an estimate by the fit may show a slowdown. The first batches of an engine are
/// small, and a larger one may lie beyond a step of the costs.
const SETTLED: f64 = 1000.0;
/// Number of last iterations that are not learned yet, because a slowdown is noticed only after some iterations. The
/// first iterations of an engine are learned at once: there is nothing learned before that they could spoil.
const RECENT: usize = 256;
/// A slowdown is noticed after at most about this many iterations.
const UNNOTICED: usize = 64;
/// After this many slow iterations (about an hour), the slow speed counts as normal and the model starts again.
const NEW_NORMAL: u32 = 200_000;
/// Decoding has a step in its costs if an iteration takes this many times as long as one with fewer tokens, for each time that it has as many
/// tokens. Costs that are a sum of a fixed part and parts for each token never exceed 1.
const STEP: f64 = 1.15;
/// The fit is used for work up to this many times the largest work that was learned.
const FAR: f64 = 4.0;

/// Whether an iteration is far above what was expected.
pub(super) fn is_spike(seconds: f64, expected: f64) -> bool {
    seconds > SPIKE * expected && seconds - expected > SPIKE_SECONDS
}

/// How one iteration compares with the past.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Judged {
    /// Expected seconds. Absent if there are too few iterations with about the same work and the fit cannot be used.
    pub expected: Option<f64>,
    pub is_spike: bool,
    /// The past has no iterations with about the same work, so `expected` is by the fit.
    pub is_estimate: bool,
    /// Share of the iteration's time that the context phase takes, by the fit.
    pub context_share: f64,
}

/// JSON of `/api/v1/model`: seconds that each unit of work adds to an iteration, by the linear fit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    pub base: f64,
    pub context_token: f64,
    pub generation_token: f64,
    pub kv_token: f64,
    /// Typical relative error of the fit.
    pub error: f64,
}

impl Prices {
    /// Seconds of an iteration with this work.
    #[must_use]
    pub fn of(&self, work: &Work) -> f64 {
        self.base
            + self.context_token * work.context_tokens
            + self.generation_token * work.generation_tokens
            + self.kv_token * work.kv_tokens
    }
}

/// The mean of iterations with about the same work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Cell {
    weight: f32,
    seconds: f32,
    work: [f32; FEATURES - 1],
    /// Covariances of the generation tokens, the KV tokens and the seconds.
    covariances: [[f32; 3]; 3],
    /// Some of the iterations are of a slow engine. Their seconds are those that it would have needed before.
    is_converted: bool,
}

/// An iteration that has just run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Recent {
    work: Work,
    seconds: f64,
    /// It was learned at once.
    is_learned: bool,
}

/// JSON of `/api/v1/model`: number and means of iterations with about the same work.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EqualWork {
    /// At most 500: older iterations are forgotten.
    pub iterations: f64,
    pub seconds: f64,
    pub context_tokens: f64,
    pub generation_tokens: f64,
    pub kv_tokens: f64,
    /// Seconds that a generation token and a KV token more add among these iterations.
    #[serde(default)]
    pub per_generation_token: f64,
    #[serde(default)]
    pub per_kv_token: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    /// Sums of products of features, weighted by 1 ÷ seconds², so that errors count relative to the iteration.
    products: [[f64; FEATURES]; FEATURES],
    with_seconds: [f64; FEATURES],
    weight: f64,
    since_fit: u32,
    fit: Option<[f64; FEATURES]>,
    error: f64,
    cells: Box<[Cell]>,
    /// Mean of recent times ÷ expected times, where iterations with about the same work are known.
    drift: f64,
    /// The same mean over fewer iterations: over the last five or, while the engine is slow, over all slow ones, at most 50. `paced` is
    /// that number. Iterations that are compared with converted means do not count.
    pace: f64,
    paced: f64,
    /// The same as `drift` where the expected times are from the fit, because no such iterations are known. They may have a larger
    /// error.
    estimate_drift: f64,
    /// Share of spikes among recent iterations.
    spike_share: f64,
    /// Recent share of iterations that were compared with iterations of about the same work.
    compared: f64,
    /// Iterations since the engine became slow.
    slow_for: u32,
    recent: VecDeque<Recent>,
    /// The largest features so far.
    largest: [f64; FEATURES],
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            products: [[0.0; FEATURES]; FEATURES],
            with_seconds: [0.0; FEATURES],
            weight: 0.0,
            since_fit: 0,
            fit: None,
            error: f64::INFINITY,
            cells: Box::default(),
            drift: 1.0,
            pace: 1.0,
            paced: 0.0,
            estimate_drift: 1.0,
            spike_share: 0.0,
            compared: 0.0,
            slow_for: 0,
            recent: VecDeque::new(),
            largest: [0.0; FEATURES],
        }
    }
}

/// Number of steps in which work is counted: one for no work, then two for each doubling.
const STEPS_OF_REQUESTS: usize = 32;
const STEPS_OF_TOKENS: usize = 24;

fn step(value: f64, first: f64, steps: usize) -> usize {
    if value <= 0.0 {
        return 0;
    }
    let doublings = (value / first).max(1.0).log2();
    (1 + (2.0 * doublings).ceil() as usize).min(steps - 1)
}

/// The steps of generation tokens and of context tokens. Work at the same steps is about the same.
#[must_use]
pub fn steps(context_tokens: f64, generation_tokens: f64) -> [usize; 2] {
    let requests = match context_tokens > 0.0 {
        true => step(generation_tokens, 1.0, STEPS_OF_REQUESTS),
        false => decoding_step(generation_tokens),
    };
    [requests, step(context_tokens, 32.0, STEPS_OF_TOKENS)]
}

/// Up to this size, batches that only decode have a step for each CUDA graph.
const GRAPHS: f64 = 128.0;

/// The step of a batch that only decodes. A PyTorch engine that pads such batches to the next CUDA graph has graphs for 1, 2, 4 and the
/// multiples of 8 up to 128 requests, then for powers of two or multiples of 64 (upstream: `_generate_cuda_graph_batch_sizes`).
fn decoding_step(tokens: f64) -> usize {
    match tokens {
        ..=0.0 => 0,
        ..=8.0 => 1 + tokens.log2().ceil().max(0.0) as usize,
        ..=GRAPHS => 3 + (tokens / 8.0).ceil() as usize,
        _ => (19 + (2.0 * (tokens / GRAPHS).log2()).ceil() as usize).min(STEPS_OF_REQUESTS - 1),
    }
}

/// The most tokens of such a step.
fn end_of_step(step: usize) -> f64 {
    match step {
        0..=4 => f64::exp2(step as f64 - 1.0),
        5..=19 => 8.0 * (step - 3) as f64,
        _ => GRAPHS * f64::exp2((step - 19) as f64 / 2.0),
    }
}

impl CostModel {
    /// The costs by the fit. Absent before enough iterations, or if the costs are too far from linear.
    #[must_use]
    pub fn costs(&self) -> Option<Prices> {
        let [base, context, generation, kv] = self.fit.filter(|_| self.error <= 0.25)?;
        Some(Prices {
            base,
            context_token: context / 1e3,
            generation_token: generation / 1e2,
            kv_token: kv / 1e5,
            error: self.error,
        })
    }

    /// The most context tokens and the most decoded tokens in one iteration.
    #[must_use]
    pub fn largest_tokens(&self) -> (f64, f64) {
        ((self.largest[1] * 1e3).round(), (self.largest[2] * 1e2).round())
    }

    /// The means of past iterations, by work.
    pub fn equal_work(&self) -> impl Iterator<Item = EqualWork> {
        let fit = self.fit.unwrap_or_default();
        let known = self.cells.iter().filter(|cell| cell.weight >= SEEN);
        known.map(move |cell| {
            let [per_generation_token, per_kv_token] = cell.prices(&fit);
            EqualWork {
                iterations: cell.weight.into(),
                seconds: cell.seconds.into(),
                context_tokens: f64::from(cell.work[0]) * 1e3,
                generation_tokens: f64::from(cell.work[1]) * 1e2,
                kv_tokens: f64::from(cell.work[2]) * 1e5,
                per_generation_token: per_generation_token / 1e2,
                per_kv_token: per_kv_token / 1e5,
            }
        })
    }

    /// Two kinds of iterations that only decode, between which the costs have a step: the larger one takes so much longer that its tokens do
    /// not explain it. For example, it has no CUDA graph.
    #[must_use]
    pub fn decoding_step(&self) -> Option<[EqualWork; 2]> {
        let enough = |work: &EqualWork| work.context_tokens <= 0.0 && work.iterations >= KNOWN.into();
        let sizes: Vec<_> = self.equal_work().filter(enough).collect();
        let pairs = (1..sizes.len()).flat_map(|large| (0..large).rev().map(move |small| [small, large]));
        pairs.map(|pair| pair.map(|at| sizes[at])).find(|[small, large]| {
            let times = |of: fn(&EqualWork) -> f64| of(large) / of(small);
            let padded = |work: &EqualWork| end_of_step(decoding_step(work.generation_tokens));
            let tokens = times(padded).max(times(|work| work.kv_tokens + 1.0));
            times(|work| work.seconds) > STEP * tokens
        })
    }

    /// Seconds that an iteration with this work would take, if known, and the share of that time that prompts take.
    pub(crate) fn predict(&self, work: &Work) -> (Option<f64>, f64) {
        let features = work.features();
        let expected = self.expected(self.known(work), &features).or_else(|| self.estimate(work, &features));
        (expected, self.context_share(work, &features))
    }

    /// Compares an iteration with the past, and learns from it.
    pub fn observe(&mut self, work: &Work, seconds: f64) -> Judged {
        if !(seconds > 0.0 && seconds.is_finite()) {
            return Judged::default();
        }
        let features = work.features();
        let known = self.known(work).copied();
        let expected = self.expected(known.as_ref(), &features).or_else(|| self.estimate(work, &features));
        let mut judged = Judged { expected, is_estimate: known.is_none(), ..Judged::default() };
        if let Some(expected) = judged.expected {
            let is_far = is_spike(seconds, expected);
            self.spike_share += (f64::from(is_far) - self.spike_share) / 100.0;
            // If there are many spikes, the engine has become slow.
            judged.is_spike = is_far && self.spike_share < 0.2;
        }
        judged.context_share = self.context_share(work, &features);
        if !judged.is_spike {
            self.note_drift(&judged, seconds, known.is_some_and(|cell| cell.is_converted));
            self.learn_later(work, seconds, known);
        }
        judged
    }

    fn note_drift(&mut self, judged: &Judged, seconds: f64, is_converted: bool) {
        let Some(expected) = judged.expected else { return };
        let drift = if judged.is_estimate { &mut self.estimate_drift } else { &mut self.drift };
        *drift += (seconds / expected - *drift) / 100.0;
        if !judged.is_estimate && !is_converted {
            self.paced = match self.slow_for {
                0 => 5.0,
                1 => 1.0,
                _ => (self.paced + 1.0).min(50.0),
            };
            self.pace += (seconds / expected - self.pace) / self.paced;
        }
        self.compared += (f64::from(!judged.is_estimate) - self.compared) / 100.0;
        // A comparison with equal work proves more than the fit. The fit decides only while such comparisons are rare.
        let by_prices = self.weight >= SETTLED && self.compared < 0.1 && self.estimate_drift > SLOWED_ESTIMATE;
        let is_slow = self.drift > SLOWED || by_prices;
        self.slow_for = if is_slow { self.slow_for + 1 } else { 0 };
        if self.slow_for > NEW_NORMAL {
            *self = Self::default();
        }
    }

    /// Learns only iterations that no slowdown followed, so that the model describes the engine before a slowdown. Work that is not
    /// known yet is learned at once, so that it can be compared soon: a batch that grows has new work all the time.
    fn learn_later(&mut self, work: &Work, seconds: f64, known: Option<Cell>) {
        if self.slow_for > 0 {
            for recent in std::mem::take(&mut self.recent).iter().rev().take(UNNOTICED) {
                if recent.is_learned
                    && let Some(cell) = self.cells.get_mut(Self::cell(&recent.work))
                {
                    *cell = Cell::default();
                }
            }
            // While the engine is slow, new work is learned as if the engine were as fast as before.
            let is_new = known.is_none_or(|cell| cell.is_converted && cell.weight < CONVERTED);
            if is_new && self.drift > SLOWED {
                self.learn(work, seconds / self.pace, true);
            }
            return;
        }
        if self.weight < 2.0 * ENOUGH {
            self.learn(work, seconds, false);
            return;
        }
        if self.recent.len() >= RECENT
            && let Some(recent) = self.recent.pop_front()
            && !recent.is_learned
        {
            self.learn(&recent.work, recent.seconds, false);
        }
        let is_learned = known.is_none() && self.pace < SLOWED;
        if is_learned {
            self.learn(work, seconds, false);
        }
        self.recent.push_back(Recent { work: *work, seconds, is_learned });
    }

    /// Seconds of work that is not known: from the nearest smaller batches or, if there are none, by the linear fit. Absent if the work is
    /// much larger than any before.
    fn estimate(&self, work: &Work, features: &[f64; FEATURES]) -> Option<f64> {
        let fit = self.fit?;
        let at = Self::cell(work);
        let smaller = (1..=at / STEPS_OF_TOKENS).filter_map(|steps| self.cells.get(at - steps * STEPS_OF_TOKENS));
        let mut smaller = smaller.filter(|cell| cell.weight >= SEEN && cell.work[1] > 0.0);
        if let Some(cell) = smaller.next().filter(|cell| features[2] <= FAR * f64::from(cell.work[1])) {
            let [_, of_kv] = cell.prices(&fit);
            let kv_of_token = f64::from(cell.work[2] / cell.work[1]);
            // A larger batch costs more by as much as this one costs more than the next smaller one.
            let of_request = smaller.next().map_or(fit[2] + kv_of_token * fit[3], |next| {
                f64::from((cell.seconds - next.seconds) / (cell.work[1] - next.work[1])).max(0.0)
            });
            return Some(cell.carried(features, [fit[1], of_request - kv_of_token * of_kv, of_kv]));
        }
        let is_near = features.iter().zip(&self.largest).all(|(feature, largest)| *feature <= FAR * largest);
        (self.error <= 0.15 && is_near).then(|| fit.iter().zip(features).map(|(cost, feature)| cost * feature).sum())
    }

    fn context_share(&self, work: &Work, features: &[f64; FEATURES]) -> f64 {
        if work.generation_requests <= 0.0 {
            return f64::from(work.context_requests > 0.0);
        }
        let Some(fit) = &self.fit else { return 0.0 };
        let all: f64 = fit.iter().zip(features).map(|(cost, feature)| cost * feature).sum();
        if all > 0.0 { fit[1] * features[1] / all } else { 0.0 }
    }

    fn cell(work: &Work) -> usize {
        let [requests, tokens] = steps(work.context_tokens, work.generation_tokens);
        requests * STEPS_OF_TOKENS + tokens
    }

    fn known(&self, work: &Work) -> Option<&Cell> {
        self.cells.get(Self::cell(work)).filter(|cell| cell.is_known())
    }

    /// The mean of iterations with about the same work, corrected for the difference.
    fn expected(&self, known: Option<&Cell>, features: &[f64; FEATURES]) -> Option<f64> {
        let (cell, fit) = known.zip(self.fit)?;
        let [of_tokens, of_kv] = cell.prices(&fit);
        Some(cell.carried(features, [fit[1], of_tokens, of_kv]))
    }

    fn learn(&mut self, work: &Work, seconds: f64, is_converted: bool) {
        let features = &work.features();
        if self.cells.is_empty() {
            self.cells = vec![Cell::default(); STEPS_OF_REQUESTS * STEPS_OF_TOKENS].into();
        }
        for (largest, feature) in self.largest.iter_mut().zip(features) {
            *largest = largest.max(*feature);
        }
        let forget = 1.0 - 1.0 / MEMORY;
        let relative = 1.0 / (seconds * seconds);
        for (row, one) in features.iter().enumerate() {
            for (column, other) in features.iter().enumerate().skip(row) {
                let sum = &mut self.products[row][column];
                *sum = *sum * forget + relative * one * other;
            }
            self.with_seconds[row] = self.with_seconds[row] * forget + relative * one * seconds;
        }
        self.weight = self.weight * forget + 1.0;
        self.since_fit += 1;
        // Refits often at first, then rarely: a fit takes a microsecond.
        if self.weight >= ENOUGH && f64::from(self.since_fit) >= (self.weight / 10.0).min(500.0) {
            self.refit();
        }
        if let Some(cell) = self.cells.get_mut(Self::cell(work)) {
            cell.learn(features, seconds as f32, is_converted);
        }
    }

    /// Costs cannot be negative. So this tries all subsets of features, and keeps the best fit without a negative cost.
    fn refit(&mut self) {
        self.since_fit = 0;
        let mut best: Option<(f64, [f64; FEATURES])> = None;
        for subset in 1_u32..1 << FEATURES {
            let Some(costs) = self.solve(subset).filter(|costs| costs.iter().all(|cost| *cost >= 0.0)) else {
                continue;
            };
            let error = self.squared_error(&costs);
            if best.is_none_or(|(least, _)| error < least) {
                best = Some((error, costs));
            }
        }
        if let Some((error, costs)) = best {
            self.fit = Some(costs);
            self.error = (error.max(0.0) / self.weight).sqrt();
        }
    }

    fn squared_error(&self, costs: &[f64; FEATURES]) -> f64 {
        let mut error = self.weight;
        for row in 0..FEATURES {
            error -= 2.0 * costs[row] * self.with_seconds[row];
            for column in 0..FEATURES {
                error += costs[row] * costs[column] * self.products[row.min(column)][row.max(column)];
            }
        }
        error
    }

    /// Least squares with the features of `subset`, by elimination. The matrix row of another feature makes its cost 0.
    fn solve(&self, subset: u32) -> Option<[f64; FEATURES]> {
        let is_used = |at: usize| subset >> at & 1 == 1;
        let mut rows = [[0.0; FEATURES + 1]; FEATURES];
        for (at, row) in rows.iter_mut().enumerate() {
            if !is_used(at) {
                row[at] = 1.0;
                continue;
            }
            for other in (0..FEATURES).filter(|other| is_used(*other)) {
                row[other] = self.products[at.min(other)][at.max(other)];
            }
            // A little damping, for features that never vary.
            row[at] *= 1.0 + 1e-9;
            row[FEATURES] = self.with_seconds[at];
        }
        for pivot in 0..FEATURES {
            if rows[pivot][pivot] <= f64::MIN_POSITIVE {
                return None;
            }
            for row in pivot + 1..FEATURES {
                let above = rows[pivot];
                let factor = rows[row][pivot] / above[pivot];
                for (cell, above) in rows[row].iter_mut().zip(above).skip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
        let mut costs = [0.0; FEATURES];
        for row in (0..FEATURES).rev() {
            let known: f64 = (row + 1..FEATURES).map(|column| rows[row][column] * costs[column]).sum();
            costs[row] = (rows[row][FEATURES] - known) / rows[row][row];
        }
        costs.iter().all(|cost| cost.is_finite()).then_some(costs)
    }
}

impl Cell {
    /// Whether the mean is known well enough to compare iterations with it.
    fn is_known(&self) -> bool {
        let variance = self.covariances[2][2];
        self.weight >= KNOWN && variance <= self.weight * (ERROR_OF_KNOWN * self.seconds).powi(2)
    }

    /// Seconds that a unit of generation tokens and one of KV tokens add among these iterations: a regression that begins with what they
    /// cost elsewhere, or with nothing for batches that only decode. These are padded, and the fit cannot tell the price of their KV tokens
    /// from that of larger graphs.
    fn prices(&self, fit: &[f64; FEATURES]) -> [f64; 2] {
        let elsewhere = if self.work[0] > 0.0 { [fit[2], fit[3]] } else { [0.0, 0.0] };
        let varied = |mean: f32| f64::from((VARIED * mean).max(1e-6).powi(2) / self.weight);
        let first = [varied(self.work[1]), varied(self.work[2])];
        let [[tokens, both, of_tokens], [_, kv, of_kv], _] = self.covariances.map(|row| row.map(f64::from));
        let [tokens, kv] = [tokens + first[0], kv + first[1]];
        let [of_tokens, of_kv] = [of_tokens + first[0] * elsewhere[0], of_kv + first[1] * elsewhere[1]];
        let divisor = tokens * kv - both * both;
        if divisor <= f64::MIN_POSITIVE {
            return elsewhere;
        }
        [(of_tokens * kv - of_kv * both) / divisor, (of_kv * tokens - of_tokens * both) / divisor]
    }

    /// The mean, corrected for the difference to work with these features. The prices may be wrong, so they may at most halve or double it.
    fn carried(&self, features: &[f64; FEATURES], prices: [f64; FEATURES - 1]) -> f64 {
        let more = features[1..].iter().zip(self.work).map(|(feature, mean)| feature - f64::from(mean));
        let difference: f64 = more.zip(prices).map(|(more, price)| more * price).sum();
        let mean = f64::from(self.seconds);
        (mean + difference).clamp(0.5 * mean, 2.0 * mean)
    }

    /// Adds an iteration to the mean. A value much lower than the mean shows that the mean came from spikes, so the
    /// mean starts again. A much higher value is limited.
    fn learn(&mut self, features: &[f64; FEATURES], seconds: f32, is_converted: bool) {
        let seconds = if self.weight >= 3.0 { seconds.min(2.0 * self.seconds) } else { seconds };
        if seconds < 0.5 * self.seconds || self.is_converted && !is_converted {
            self.weight = 0.0;
        }
        self.is_converted = is_converted;
        // The mean covers at most this many of the last iterations.
        self.weight = (self.weight + 1.0).min(500.0);
        let share = 1.0 / self.weight;
        let more = [features[2] as f32 - self.work[1], features[3] as f32 - self.work[2], seconds - self.seconds];
        for (row, one) in self.covariances.iter_mut().zip(more) {
            for (covariance, other) in row.iter_mut().zip(more) {
                *covariance = (1.0 - share) * (*covariance + share * one * other);
            }
        }
        self.seconds += share * (seconds - self.seconds);
        for (mean, feature) in self.work.iter_mut().zip(&features[1..]) {
            *mean += share * (*feature as f32 - *mean);
        }
    }
}
