//! Absent members of the shared structs.

use crate::ffi::{KvEventKind, KvEventRow};

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

/// An empty row for [`drain_kv_events`](crate::Executor::drain_kv_events) to fill.
impl Default for KvEventRow {
    fn default() -> Self {
        KvEventRow {
            event_id: 0,
            kind: KvEventKind::Unknown,
            empty: false,
            has_rank: false,
            rank: 0,
            has_level: false,
            level: 0,
            value: 0,
        }
    }
}
