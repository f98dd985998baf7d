//! Turns counts that the engine accumulates itself into increases, so that totals never fall.

use trtllm_records::iteration::KvCacheStats;
use trtllm_records::schema::Schema as _;

/// The increase of a cumulative count from `last`, which becomes `value`. The first value is only a baseline without `last`.
pub(crate) fn increase(last: &mut Option<i64>, value: i64) -> i64 {
    match last.replace(value) {
        None => 0,
        Some(last) if value >= last => value.saturating_sub(last),
        Some(last) if is_overflow(last, value) => value.saturating_add(1 << 32).saturating_sub(last),
        // The count of a new cache began at 0.
        Some(_) => value.max(0),
    }
}

/// The cumulative counts of a KV cache before `first`, its counts in the first record that is read. `from_start`: the engine starts while
/// the exporter runs, so the counts began at 0. A count above `most`, the blocks that its requests can have taken until then, includes
/// the warm-up of the PyTorch backend, and is only a baseline (upstream PR 12132).
pub(crate) fn before_first(from_start: bool, mut first: KvCacheStats, most: i64) -> KvCacheStats {
    let mut counts = KvCacheStats::default();
    counts.each_cumulative(&mut first, |count, first| {
        *count = (from_start && first.is_none_or(|first| first <= most)).then_some(0);
    });
    counts
}

/// Replaces the cumulative counts in `last` by those in `stats`. Returns `stats` with increases in their place.
pub(crate) fn increases(last: &mut KvCacheStats, mut stats: KvCacheStats) -> KvCacheStats {
    last.each_cumulative(&mut stats, |last, count| *count = count.map(|count| increase(last, count)));
    stats
}

/// Whether a cumulative count of `stats` is smaller than in `last`, so the engine's counts were reset.
pub(crate) fn any_falls(mut last: KvCacheStats, mut stats: KvCacheStats) -> bool {
    let mut falls = false;
    last.each_cumulative(&mut stats, |last, count| {
        falls |= last.zip(*count).is_some_and(|(last, count)| count < last && !is_overflow(last, count));
    });
    falls
}

/// The executor narrows a size_t to 32 bits: after 2^31 − 1 the count continues at −2^31.
fn is_overflow(last: i64, value: i64) -> bool {
    last > 1 << 30 && value < -(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn increases_of<const N: usize>(mut last: Option<i64>, values: [i64; N]) -> [i64; N] {
        values.map(|value| increase(&mut last, value))
    }

    #[test]
    fn the_first_value_of_a_running_engine_is_a_baseline_and_a_lower_one_a_new_cache_or_an_overflow() {
        assert_eq!(increases_of(Some(0), [100, 3]), [100, 3], "a new cache");
        let narrowed = [i64::from(i32::MAX) - 1, i64::from(i32::MIN) + 1, i64::from(i32::MIN) + 5];
        assert_eq!(increases_of(Some(0), narrowed)[1..], [3, 4], "a count narrowed to 32 bits");
        assert_eq!(increases_of(None, [5000, 5007, 5008]), [0, 7, 1]);
        let of = |reused_blocks| KvCacheStats { reused_blocks, ..KvCacheStats::default() };
        let mut last = before_first(false, KvCacheStats::default(), 0);
        let increases = [Some(5000), Some(5007), None, Some(5008)].map(|value| increases(&mut last, of(value)));
        assert_eq!(increases, [Some(0), Some(7), None, Some(1)].map(of));
    }
}
