//! Absent members of the shared structs.

/// An absent whole number. An absent `f64` is NaN.
pub const ABSENT: i64 = i64::MIN;

/// The value of a member. None if it is absent.
pub trait Present<T> {
    fn present(self) -> Option<T>;
}

impl Present<f64> for f64 {
    #[inline]
    fn present(self) -> Option<f64> {
        (!self.is_nan()).then_some(self)
    }
}

impl Present<i64> for i64 {
    #[inline]
    fn present(self) -> Option<i64> {
        (self != ABSENT).then_some(self)
    }
}

impl Present<u64> for i64 {
    #[inline]
    fn present(self) -> Option<u64> {
        (self != ABSENT).then_some(self.cast_unsigned())
    }
}

impl Present<bool> for i64 {
    #[inline]
    fn present(self) -> Option<bool> {
        (self != ABSENT).then_some(self != 0)
    }
}
