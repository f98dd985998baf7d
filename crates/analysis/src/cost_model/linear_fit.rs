//! The linear fit: least squares over all iterations.

use serde::{Deserialize, Serialize};

use super::work::FEATURES;

/// Number of iterations that the fit remembers.
const MEMORY: f64 = 20_000.0;
/// Number of iterations that are needed before the fit is used.
pub(super) const ENOUGH: f64 = 60.0;

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

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct LinearFit {
    /// Sums of products of features, weighted by 1 ÷ seconds², so that errors count relative to the iteration.
    products: [[f64; FEATURES]; FEATURES],
    with_seconds: [f64; FEATURES],
    /// Number of iterations.
    pub(super) weight: f64,
    since_fit: u32,
    /// Seconds of a unit of each feature.
    pub(super) costs: Option<[f64; FEATURES]>,
    /// Typical relative error.
    pub(super) error: f64,
}

impl LinearFit {
    /// Absent before enough iterations, or if the costs are too far from linear.
    pub(super) fn prices(&self) -> Option<Prices> {
        let [base, context, generation, kv] = self.costs.filter(|_| self.error <= 0.25)?;
        Some(Prices {
            base,
            context_token: context / 1e3,
            generation_token: generation / 1e2,
            kv_token: kv / 1e5,
            error: self.error,
        })
    }

    /// Seconds of work with these features.
    pub(super) fn seconds(&self, features: &[f64; FEATURES]) -> Option<f64> {
        self.costs.map(|costs| costs.iter().zip(features).map(|(cost, feature)| cost * feature).sum())
    }

    pub(super) fn learn(&mut self, features: &[f64; FEATURES], seconds: f64) {
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
            self.costs = Some(costs);
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
