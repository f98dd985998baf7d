//! What a classic histogram observed between two reads, and its quantiles as PromQL computes them. Pure.

/// Cumulative counts by upper bound, in ascending order. The last bound is +Inf.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    buckets: Vec<(f64, f64)>,
    sum: f64,
}

impl Histogram {
    /// `buckets`: upper bound and cumulative count, in any order.
    #[must_use]
    pub fn new(mut buckets: Vec<(f64, f64)>, sum: f64) -> Self {
        buckets.retain(|(bound, _)| !bound.is_nan());
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Self { buckets, sum }
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// What was observed after `before`. A bucket that appears began at 0. `None` if a bucket fell: the exporter has
    /// restarted in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let old =
            |bound: f64| before.buckets.iter().find(|(other, _)| *other == bound).map_or(0.0, |(_, count)| *count);
        let buckets: Vec<(f64, f64)> =
            self.buckets.iter().map(|(bound, count)| (*bound, count - old(*bound))).collect();
        let fell = buckets.iter().any(|(_, count)| *count < 0.0) || self.sum < before.sum;
        (!fell).then_some(Self { buckets, sum: self.sum - before.sum })
    }

    /// `None` without an observation.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0.0).then(|| self.sum / self.count())
    }

    /// PromQL's `histogram_quantile`, for `0 < quantile <= 1`: linear inside the bucket, which begins at 0 if it is the
    /// first one. `None` where PromQL says NaN.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let (top, total) = *self.buckets.last()?;
        if top != f64::INFINITY || self.buckets.len() < 2 || total.is_nan() || total <= 0.0 {
            return None;
        }
        let rank = quantile * total;
        let mut highest = 0.0_f64;
        // A count below that of a smaller bound can only be an error of rounding.
        let counts: Vec<f64> =
            self.buckets.iter().map(|(_, count)| (highest = highest.max(*count), highest).1).collect();
        let index = counts.iter().position(|count| *count >= rank)?;
        let end = self.buckets[index].0;
        if end == f64::INFINITY {
            return Some(self.buckets[index - 1].0);
        }
        let (start, below) = match index {
            0 if end <= 0.0 => return Some(end),
            0 => (0.0, 0.0),
            _ => (self.buckets[index - 1].0, counts[index - 1]),
        };
        Some(start + (end - start) * (rank - below) / (counts[index] - below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn histogram(buckets: &[(f64, f64)]) -> Histogram {
        Histogram::new(buckets.to_vec(), 0.0)
    }

    #[test]
    fn a_quantile_is_linear_inside_its_bucket() {
        let of = histogram(&[(INF, 10.0), (0.1, 2.0), (0.2, 6.0), (0.4, 9.0)]);
        // 5 of 10: 3 of the 4 observations between 0.1 and 0.2.
        for (quantile, value) in [(0.5, 0.175), (0.2, 0.1), (0.1, 0.05), (0.9, 0.4), (0.95, 0.4), (1.0, 0.4)] {
            let found = of.quantile(quantile).unwrap();
            assert!((found - value).abs() < 1e-12, "{quantile}: {found}");
        }
    }

    #[test]
    fn what_cannot_be_known_is_not_a_number() {
        for buckets in [&[][..], &[(INF, 3.0)], &[(0.1, 0.0), (INF, 0.0)], &[(0.1, 1.0), (0.2, 2.0)]] {
            assert_eq!(histogram(buckets).quantile(0.5), None, "{buckets:?}");
        }
        assert_eq!(histogram(&[]).mean(), None);
        assert_eq!(histogram(&[(f64::NAN, 9.0), (1.0, 2.0), (INF, 2.0)]).quantile(0.5), Some(0.5));
    }

    #[test]
    fn only_what_was_observed_between_two_reads_counts() {
        let before = Histogram::new(vec![(0.1, 100.0), (1.0, 100.0), (INF, 100.0)], 5.0);
        let after = Histogram::new(vec![(0.1, 100.0), (1.0, 104.0), (INF, 104.0)], 7.0);
        let between = after.since(&before).unwrap();
        assert_eq!((between.count(), between.mean(), between.quantile(0.5)), (4.0, Some(0.5), Some(0.55)));
        assert_eq!(before.since(&after), None, "the exporter has restarted");
        assert_eq!(after.since(&Histogram::default()), Some(after.clone()));
    }
}
