//! Sums that stop at the largest number: an absurd number from a publisher must not wrap a total to 0.

pub trait SaturatingAdd: Copy {
    fn plus(self, more: Self) -> Self;
}

impl SaturatingAdd for i64 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

impl SaturatingAdd for u64 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

impl SaturatingAdd for f64 {
    fn plus(self, more: Self) -> Self {
        self + more
    }
}

pub fn add<N: SaturatingAdd>(total: &mut N, more: N) {
    *total = total.plus(more);
}

/// The total becomes present with the first number, even if that is 0.
pub fn add_known<N: SaturatingAdd>(total: &mut Option<N>, more: Option<N>) {
    if let Some(more) = more {
        *total = Some(total.map_or(more, |total| total.plus(more)));
    }
}

/// A total never falls, so a negative number counts as 0.
#[must_use]
pub fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
