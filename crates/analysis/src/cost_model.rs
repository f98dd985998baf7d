//! Learns from an engine's own iterations how long an iteration takes. The model has two parts: a linear fit, which gives the
//! seconds that each token adds, and the mean times of iterations with about the same work.
//!
//! The costs of engines are not linear: batches are padded to the size of a CUDA graph, attention grows with the square of the
//! prompt, experts are loaded once. So the fit is only used for small differences of work, and its error is measured.

mod equal_work;
mod linear_fit;
mod work;

pub use equal_work::EqualWork;
pub use linear_fit::Prices;
pub use work::{Batch, Work};

use std::collections::VecDeque;

use equal_work::{Cell, KNOWN};
use linear_fit::{ENOUGH, LinearFit};
use work::{FEATURES, STEPS_OF_REQUESTS, STEPS_OF_TOKENS, decoding_step, end_of_step};

/// Number of iterations with about the same work that are needed before their mean is published. Where the costs have a step,
/// even a few are better than the fit.
const SEEN: f32 = 8.0;
/// While the engine is slow, a mean of new work is learned until it has this many iterations.
const CONVERTED: f32 = 100.0;
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

/// An iteration that has just run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Recent {
    work: Work,
    seconds: f64,
    /// It was learned at once.
    is_learned: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    fit: LinearFit,
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
            fit: LinearFit::default(),
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

impl CostModel {
    /// The costs by the fit. Absent before enough iterations, or if the costs are too far from linear.
    pub fn costs(&self) -> Option<Prices> {
        self.fit.prices()
    }

    /// The most context tokens and the most decoded tokens in one iteration.
    pub fn largest_tokens(&self) -> (f64, f64) {
        ((self.largest[1] * 1e3).round(), (self.largest[2] * 1e2).round())
    }

    /// The means of past iterations, by work.
    pub fn equal_work(&self) -> impl Iterator<Item = EqualWork> {
        let fit = self.fit.costs.unwrap_or_default();
        let known = self.cells.iter().filter(|cell| cell.weight >= SEEN);
        known.map(move |cell| cell.published(&fit))
    }

    /// Two kinds of iterations that only decode, between which the costs have a step: the larger one takes so much longer that its tokens do
    /// not explain it. For example, it has no CUDA graph.
    pub fn decoding_step(&self) -> Option<[EqualWork; 2]> {
        let enough = |known: &EqualWork| known.work.context_tokens <= 0.0 && known.iterations >= KNOWN.into();
        let sizes: Vec<_> = self.equal_work().filter(enough).collect();
        let pairs = (1..sizes.len()).flat_map(|large| (0..large).rev().map(move |small| [small, large]));
        pairs.map(|pair| pair.map(|at| sizes[at])).find(|[small, large]| {
            let times = |of: fn(&EqualWork) -> f64| of(large) / of(small);
            let padded = |known: &EqualWork| end_of_step(decoding_step(known.work.generation_tokens));
            let tokens = times(padded).max(times(|known| known.work.kv_tokens + 1.0));
            times(|known| known.seconds) > STEP * tokens
        })
    }

    /// Seconds that this batch would take, if known, and the share of that time that prompts take.
    pub(crate) fn predict(&self, batch: &Batch) -> (Option<f64>, f64) {
        let (work, features) = (&batch.work, batch.work.features());
        let expected = self.expected(self.known(work), &features).or_else(|| self.estimate(work, &features));
        (expected, self.context_share(batch, &features))
    }

    /// Compares an iteration with the past, and learns from it.
    pub fn observe(&mut self, batch: &Batch, seconds: f64) -> Judged {
        if !(seconds > 0.0 && seconds.is_finite()) {
            return Judged::default();
        }
        let (work, features) = (&batch.work, batch.work.features());
        let known = self.known(work).copied();
        let expected = self.expected(known.as_ref(), &features).or_else(|| self.estimate(work, &features));
        let mut judged = Judged { expected, is_estimate: known.is_none(), ..Judged::default() };
        if let Some(expected) = judged.expected {
            let is_far = is_spike(seconds, expected);
            self.spike_share += (f64::from(is_far) - self.spike_share) / 100.0;
            // If there are many spikes, the engine has become slow.
            judged.is_spike = is_far && self.spike_share < 0.2;
        }
        judged.context_share = self.context_share(batch, &features);
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
        let by_prices = self.fit.weight >= SETTLED && self.compared < 0.1 && self.estimate_drift > SLOWED_ESTIMATE;
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
        if self.fit.weight < 2.0 * ENOUGH {
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
        let fit = self.fit.costs?;
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
        self.fit.seconds(features).filter(|_| self.fit.error <= 0.15 && is_near)
    }

    fn context_share(&self, batch: &Batch, features: &[f64; FEATURES]) -> f64 {
        if batch.generation_requests <= 0.0 {
            return f64::from(batch.context_requests > 0.0);
        }
        let Some((costs, all)) = self.fit.costs.zip(self.fit.seconds(features)) else { return 0.0 };
        if all > 0.0 { costs[1] * features[1] / all } else { 0.0 }
    }

    fn cell(work: &Work) -> usize {
        let [requests, tokens] = work.steps();
        requests * STEPS_OF_TOKENS + tokens
    }

    fn known(&self, work: &Work) -> Option<&Cell> {
        self.cells.get(Self::cell(work)).filter(|cell| cell.is_known())
    }

    /// The mean of iterations with about the same work, corrected for the difference.
    fn expected(&self, known: Option<&Cell>, features: &[f64; FEATURES]) -> Option<f64> {
        let (cell, fit) = known.zip(self.fit.costs)?;
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
        self.fit.learn(features, seconds);
        if let Some(cell) = self.cells.get_mut(Self::cell(work)) {
            cell.learn(features, seconds as f32, is_converted);
        }
    }
}
