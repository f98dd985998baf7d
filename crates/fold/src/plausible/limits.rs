//! The kinds of limits. A check has few branches, because almost all numbers are valid.

use std::ops::RangeInclusive;

pub(super) trait Limit<N> {
    /// Whether all numbers are possible. An absent number is.
    fn all<const COUNT: usize>(&self, numbers: [Option<N>; COUNT]) -> bool;
}

/// From 0 to 2^n - 1.
pub(super) struct Bits(pub u32);

impl Limit<i64> for Bits {
    fn all<const COUNT: usize>(&self, numbers: [Option<i64>; COUNT]) -> bool {
        // A negative number has the highest bit set, so it is out of range.
        numbers.iter().fold(0, |bits, number| bits | number.unwrap_or(0)).cast_unsigned() >> self.0 == 0
    }
}

/// From 0 to 2^n - 1, for fields that the model has as `u64`.
pub(super) struct Numbers(pub u32);

impl Limit<u64> for Numbers {
    fn all<const COUNT: usize>(&self, numbers: [Option<u64>; COUNT]) -> bool {
        numbers.iter().fold(0, |bits, number| bits | number.unwrap_or(0)) >> self.0 == 0
    }
}

/// Any id but the highest number, which stands for an id of a wrong type.
pub(super) struct Ids;

impl Limit<u64> for Ids {
    fn all<const COUNT: usize>(&self, ids: [Option<u64>; COUNT]) -> bool {
        ids.iter().fold(true, |all, id| all & (id.unwrap_or(0) != u64::MAX))
    }
}

pub(super) struct Cumulative(pub RangeInclusive<i64>);

impl Limit<i64> for Cumulative {
    fn all<const COUNT: usize>(&self, counts: [Option<i64>; COUNT]) -> bool {
        counts.into_iter().flatten().all(|count| self.0.contains(&count))
    }
}

/// Numbers whose absolute value is at most this.
pub(super) struct Magnitude(pub f64);

impl Limit<f64> for Magnitude {
    fn all<const COUNT: usize>(&self, numbers: [Option<f64>; COUNT]) -> bool {
        // NaN is not in the range, and absent numbers count as 0.
        numbers.iter().fold(true, |all, number| all & (number.unwrap_or(0.0).abs() <= self.0))
    }
}

/// A range of numbers.
pub(super) struct Shares(pub RangeInclusive<f64>);

impl Limit<f64> for Shares {
    fn all<const COUNT: usize>(&self, numbers: [Option<f64>; COUNT]) -> bool {
        numbers.iter().fold(true, |all, number| all & self.0.contains(&number.unwrap_or(0.0)))
    }
}
