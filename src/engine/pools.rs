//! What one iteration did to the KV cache's pools (`kvCacheIterationStats` and its neighbours): summed over attention
//! windows, as trtllm-serve's own collector does, so that no window size becomes a label.

use crate::model::IterationStats;
use crate::model::iteration::KvCacheIterationStats;

/// Blocks of one pool by state, in the order of the catalog: max, free, used, evictable and the peaks of the last three.
pub type PoolBlocks = [Option<i64>; 7];

/// The pools after one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pools {
    /// On the GPU.
    pub primary: PoolBlocks,
    /// On the host.
    pub secondary: PoolBlocks,
    /// Blocks found, and looked up and not found, in this iteration.
    pub looked_up: Option<(i64, i64)>,
}

/// Totals over iterations; absent where the engine never said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTotals {
    /// Blocks by event, in the order of the catalog.
    pub blocks: [Option<u64>; 11],
    /// Bytes by event, in the order of the catalog.
    pub bytes: [Option<u64>; 4],
    pub suspended_requests: Option<u64>,
    pub resumed_requests: Option<u64>,
    pub disk_prefetched_blocks: Option<u64>,
    /// Prompt tokens found in the cache, by [`TIERS`].
    pub cached_tokens: [Option<u64>; TIERS.len()],
}

/// Where blocks are: the engine's cache levels, as it names them.
pub const TIERS: [&str; 4] = ["gpu", "host", "disk", "other"];

/// The tier of a level that has no name of its own.
#[must_use]
pub fn tier_of_level(level: u64) -> usize {
    usize::try_from(level).map_or(TIERS.len() - 1, |level| level.min(TIERS.len() - 1))
}

impl Pools {
    /// `None` where the record says nothing of its pools.
    #[must_use]
    pub fn of(record: &IterationStats) -> Option<Self> {
        let windows = record.kv_cache_iteration_stats.as_ref()?;
        let mut pools = Self::default();
        for window in windows.values() {
            for (total, blocks) in pools.primary.iter_mut().zip(primary(window)) {
                add_signed(total, blocks);
            }
            for (total, blocks) in pools.secondary.iter_mut().zip(secondary(window)) {
                add_signed(total, blocks);
            }
            if let (Some(reused), Some(missed)) = (window.iter_reused_blocks, window.iter_missed_blocks) {
                let (all_reused, all_missed) = pools.looked_up.unwrap_or_default();
                pools.looked_up = Some((all_reused.saturating_add(reused), all_missed.saturating_add(missed)));
            }
        }
        Some(pools)
    }
}

impl PoolTotals {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            blocks: [None; 11],
            bytes: [None; 4],
            suspended_requests: None,
            resumed_requests: None,
            disk_prefetched_blocks: None,
            cached_tokens: [None; TIERS.len()],
        }
    }

    /// Adds what the record says of its own iteration.
    pub fn absorb(&mut self, record: &IterationStats) {
        if let Some(windows) = &record.kv_cache_iteration_stats {
            for window in windows.values() {
                for (total, blocks) in self.blocks.iter_mut().zip(blocks(window)) {
                    add(total, blocks);
                }
                for (total, bytes) in self.bytes.iter_mut().zip(bytes(window)) {
                    add(total, bytes);
                }
            }
        }
        add(&mut self.suspended_requests, record.iter_suspended_requests);
        add(&mut self.resumed_requests, record.iter_resumed_requests);
        add(&mut self.disk_prefetched_blocks, record.iter_disk_prefetch_blocks);
        let Some(levels) = &record.iter_cached_tokens_by_level else { return };
        for (level, tokens) in levels.iter().enumerate() {
            let name = record.kv_cache_level_tiers.as_ref().and_then(|tiers| tiers.get(level));
            let named = name.and_then(|name| TIERS.iter().position(|tier| tier.eq_ignore_ascii_case(name)));
            let tier = named.unwrap_or(if name.is_some() { TIERS.len() - 1 } else { tier_of_level(level as u64) });
            add(&mut self.cached_tokens[tier], Some(*tokens));
        }
    }
}

fn primary(window: &KvCacheIterationStats) -> PoolBlocks {
    [
        window.primary_max_num_blocks,
        window.primary_free_num_blocks,
        window.primary_used_num_blocks,
        window.primary_evictable_num_blocks,
        window.primary_peak_free_num_blocks,
        window.primary_peak_used_num_blocks,
        window.primary_peak_evictable_num_blocks,
    ]
}

fn secondary(window: &KvCacheIterationStats) -> PoolBlocks {
    [
        window.secondary_max_num_blocks,
        window.secondary_free_num_blocks,
        window.secondary_used_num_blocks,
        window.secondary_evictable_num_blocks,
        window.secondary_peak_free_num_blocks,
        window.secondary_peak_used_num_blocks,
        window.secondary_peak_evictable_num_blocks,
    ]
}

fn blocks(window: &KvCacheIterationStats) -> [Option<i64>; 11] {
    [
        window.iter_alloc_total_blocks,
        window.iter_alloc_new_blocks,
        window.iter_reused_blocks,
        window.iter_full_reused_blocks,
        window.iter_partial_reused_blocks,
        window.iter_missed_blocks,
        window.iter_gen_alloc_blocks,
        window.iter_onboard_blocks,
        window.iter_offload_blocks,
        window.iter_intra_device_copy_blocks,
        window.iter_host_dropped_blocks,
    ]
}

fn bytes(window: &KvCacheIterationStats) -> [Option<i64>; 4] {
    [
        window.iter_onboard_bytes,
        window.iter_offload_bytes,
        window.iter_intra_device_copy_bytes,
        window.iter_host_dropped_bytes,
    ]
}

fn add_signed(total: &mut Option<i64>, more: Option<i64>) {
    if let Some(more) = more {
        *total = Some(total.unwrap_or(0).saturating_add(more));
    }
}

/// A total is there from the first time the engine says anything of it, be it 0.
fn add(total: &mut Option<u64>, more: Option<i64>) {
    if let Some(more) = more {
        *total = Some(total.unwrap_or(0).saturating_add(u64::try_from(more).unwrap_or(0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_add_up_and_what_none_of_them_says_is_absent() {
        let window = |used, reused| KvCacheIterationStats {
            primary_used_num_blocks: Some(used),
            iter_reused_blocks: Some(reused),
            iter_missed_blocks: Some(1),
            ..KvCacheIterationStats::default()
        };
        let windows = [("4096".to_owned(), window(3, 2)), ("32768".to_owned(), window(4, 5))];
        let record =
            IterationStats { kv_cache_iteration_stats: Some(windows.into_iter().collect()), ..Default::default() };
        let pools = Pools::of(&record).unwrap();
        assert_eq!((pools.primary[2], pools.secondary[2], pools.looked_up), (Some(7), None, Some((7, 2))));
        let mut totals = PoolTotals::new();
        totals.absorb(&record);
        totals.absorb(&record);
        assert_eq!((totals.blocks[2], totals.blocks[5], totals.blocks[0]), (Some(14), Some(4), None));
        assert_eq!(totals.bytes, [None; 4]);
    }

    #[test]
    fn cached_tokens_go_to_the_tier_their_level_is_called() {
        let mut totals = PoolTotals::new();
        let record = |tiers: Option<&[&str]>| IterationStats {
            iter_cached_tokens_by_level: Some(vec![12, 8, 1, 1]),
            kv_cache_level_tiers: tiers.map(|tiers| tiers.iter().map(|&tier| tier.to_owned()).collect()),
            ..IterationStats::default()
        };
        totals.absorb(&record(None));
        assert_eq!(totals.cached_tokens, [Some(12), Some(8), Some(1), Some(1)]);
        totals.absorb(&record(Some(&["GPU", "disk", "tape", "host"])));
        assert_eq!(totals.cached_tokens, [Some(24), Some(9), Some(9), Some(2)]);
    }
}
