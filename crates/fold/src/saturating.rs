//! Sums that stop at the largest number.

pub use trtllm_records::saturating::{SaturatingAdd, add, add_known};

/// A total never falls, so a negative number counts as 0.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
