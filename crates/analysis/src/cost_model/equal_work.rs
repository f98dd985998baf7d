//! Iterations with about the same work: their mean, and what tokens cost among them.

use serde::{Deserialize, Serialize};

use super::work::{FEATURES, Work};

/// Number of iterations with about the same work, and the relative standard error of their mean, that are needed before an iteration is
/// compared with it. Where the host is the limit, the batch after a prompt is short and the others are long, so many are needed.
pub(super) const KNOWN: f32 = 16.0;
const ERROR_OF_KNOWN: f32 = 0.03;
/// The price that a regression begins with counts as much as one iteration whose work differs from the mean by this share.
const VARIED: f32 = 0.3;

/// JSON of `/api/v1/model`: number and means of iterations with about the same work.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EqualWork {
    /// At most 500: older iterations are forgotten.
    pub iterations: f64,
    pub seconds: f64,
    #[serde(flatten)]
    pub work: Work,
    /// Seconds that a generation token and a KV token more add among these iterations.
    #[serde(default)]
    pub per_generation_token: f64,
    #[serde(default)]
    pub per_kv_token: f64,
}

/// The mean of iterations with about the same work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cell {
    pub(super) weight: f32,
    pub(super) seconds: f32,
    pub(super) work: [f32; FEATURES - 1],
    /// Covariances of the generation tokens, the KV tokens and the seconds.
    covariances: [[f32; 3]; 3],
    /// Some of the iterations are of a slow engine. Their seconds are those that it would have needed before.
    pub(super) is_converted: bool,
}

impl Cell {
    /// Whether the mean is known well enough to compare iterations with it.
    pub(super) fn is_known(&self) -> bool {
        let variance = self.covariances[2][2];
        self.weight >= KNOWN && variance <= self.weight * (ERROR_OF_KNOWN * self.seconds).powi(2)
    }

    /// Seconds that a unit of generation tokens and one of KV tokens add among these iterations: a regression that begins with what they
    /// cost elsewhere, or with nothing for batches that only decode. These are padded, and the fit cannot tell the price of their KV tokens
    /// from that of larger graphs.
    pub(super) fn prices(&self, fit: &[f64; FEATURES]) -> [f64; 2] {
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
    pub(super) fn carried(&self, features: &[f64; FEATURES], prices: [f64; FEATURES - 1]) -> f64 {
        let more = features[1..].iter().zip(self.work).map(|(feature, mean)| feature - f64::from(mean));
        let difference: f64 = more.zip(prices).map(|(more, price)| more * price).sum();
        let mean = f64::from(self.seconds);
        (mean + difference).clamp(0.5 * mean, 2.0 * mean)
    }

    /// Adds an iteration to the mean. A value much lower than the mean shows that the mean came from spikes, so the
    /// mean starts again. A much higher value is limited.
    pub(super) fn learn(&mut self, features: &[f64; FEATURES], seconds: f32, is_converted: bool) {
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

    /// What is published of it. `fit`: the prices of all iterations.
    pub(super) fn published(&self, fit: &[f64; FEATURES]) -> EqualWork {
        let [per_generation_token, per_kv_token] = self.prices(fit);
        EqualWork {
            iterations: self.weight.into(),
            seconds: self.seconds.into(),
            work: Work {
                context_tokens: f64::from(self.work[0]) * 1e3,
                generation_tokens: f64::from(self.work[1]) * 1e2,
                kv_tokens: f64::from(self.work[2]) * 1e5,
            },
            per_generation_token: per_generation_token / 1e2,
            per_kv_token: per_kv_token / 1e5,
        }
    }
}
