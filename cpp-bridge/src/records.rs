//! Absent members of the shared structs.

/// An absent whole number. An absent `f64` is NaN.
pub const ABSENT: i64 = i64::MIN;

/// The value of a member. None if it is absent.
pub trait Known<T> {
    fn known(self) -> Option<T>;
}

impl Known<f64> for f64 {
    #[inline]
    fn known(self) -> Option<f64> {
        (!self.is_nan()).then_some(self)
    }
}

impl Known<i64> for i64 {
    #[inline]
    fn known(self) -> Option<i64> {
        (self != ABSENT).then_some(self)
    }
}

impl Known<u64> for i64 {
    #[inline]
    fn known(self) -> Option<u64> {
        (self != ABSENT).then_some(self.cast_unsigned())
    }
}

impl Known<bool> for i64 {
    #[inline]
    fn known(self) -> Option<bool> {
        (self != ABSENT).then_some(self != 0)
    }
}
