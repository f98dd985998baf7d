//! What one iteration did to the KV cache's pools (`kvCacheIterationStats` and related fields), summed over attention windows
//! as trtllm-serve's collector does, so that no window size becomes a label.

use crate::model::IterationStats;
use crate::model::iteration::KvCacheIterationStats;
use crate::model::named_numbers::{NamedNumbers, named_numbers};

named_numbers! {
    /// Blocks of one pool, by state. A peak is the highest value since the previous record.
    #[derive(Copy, Eq)]
    pub struct PoolBlocks: i64 {
        max = "max",
        free = "free",
        used = "used",
        evictable = "evictable",
        peak_free = "peak_free",
        peak_used = "peak_used",
        peak_evictable = "peak_evictable",
    }
}

named_numbers! {
    /// Blocks, by what iterations did with them.
    #[derive(Copy, Eq)]
    pub struct BlockEvents: u64 {
        allocated = "allocated",
        newly_allocated = "newly_allocated",
        reused = "reused",
        full_reused = "full_reused",
        partial_reused = "partial_reused",
        missed = "missed",
        generation_allocated = "generation_allocated",
        onboarded = "onboarded",
        offloaded = "offloaded",
        copied = "copied",
        host_dropped = "host_dropped",
    }
}

named_numbers! {
    /// Bytes that iterations moved or dropped.
    #[derive(Copy, Eq)]
    pub struct ByteEvents: u64 {
        onboarded = "onboarded",
        offloaded = "offloaded",
        copied = "copied",
        host_dropped = "host_dropped",
    }
}

/// The pools after one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pools {
    /// On the GPU.
    pub primary: PoolBlocks,
    /// On the host.
    pub secondary: PoolBlocks,
    /// Absent where the record has no lookups.
    pub lookups: Option<Lookups>,
}

/// Blocks that one iteration looked up in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lookups {
    pub reused: i64,
    pub missed: i64,
}

/// Totals over iterations. A total is absent until the engine sends its first value; 0 is a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTotals {
    pub blocks: BlockEvents,
    pub bytes: ByteEvents,
    pub suspended_requests: Option<u64>,
    pub resumed_requests: Option<u64>,
    pub disk_prefetched_blocks: Option<u64>,
    /// Prompt tokens found in the cache.
    pub cached_tokens: TierNumbers,
}

named_numbers! {
    /// Blocks or tokens by [`Tier`].
    #[derive(Copy, Eq)]
    pub struct TierNumbers: u64 { gpu = "gpu", host = "host", disk = "disk", other = "other" }
}

/// Where blocks are. The engine numbers its cache levels from 0; newer releases also name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Gpu,
    Host,
    Disk,
    /// A tier that is unknown, or that this exporter does not know.
    Other,
}

impl Tier {
    /// The tier of a level that has no name.
    #[must_use]
    pub fn of_level(level: u64) -> Self {
        match level {
            0 => Self::Gpu,
            1 => Self::Host,
            2 => Self::Disk,
            _ => Self::Other,
        }
    }

    fn from_name(name: &str) -> Self {
        let tiers = [("gpu", Self::Gpu), ("host", Self::Host), ("disk", Self::Disk)];
        let found = tiers.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or(Self::Other, |(_, tier)| tier)
    }
}

impl TierNumbers {
    pub fn add(&mut self, tier: Tier, number: u64) {
        let total = match tier {
            Tier::Gpu => &mut self.gpu,
            Tier::Host => &mut self.host,
            Tier::Disk => &mut self.disk,
            Tier::Other => &mut self.other,
        };
        add(total, Some(number));
    }
}

impl Pools {
    /// `None` where the record has no pool statistics.
    #[must_use]
    pub fn of(record: &IterationStats) -> Option<Self> {
        let windows = record.kv_cache_iteration_stats.as_ref()?;
        let mut pools = Self::default();
        for window in windows.values() {
            add_all(&mut pools.primary, primary(window));
            add_all(&mut pools.secondary, secondary(window));
            if let (Some(reused), Some(missed)) = (window.iter_reused_blocks, window.iter_missed_blocks) {
                let lookups = pools.lookups.get_or_insert_default();
                lookups.reused = lookups.reused.saturating_add(reused);
                lookups.missed = lookups.missed.saturating_add(missed);
            }
        }
        Some(pools)
    }
}

impl Pools {
    /// Adds the pools of another rank.
    pub fn add(&mut self, more: Self) {
        add_all(&mut self.primary, more.primary);
        add_all(&mut self.secondary, more.secondary);
        if let Some(more) = more.lookups {
            let lookups = self.lookups.get_or_insert_default();
            lookups.reused = lookups.reused.saturating_add(more.reused);
            lookups.missed = lookups.missed.saturating_add(more.missed);
        }
    }
}

impl Lookups {
    #[must_use]
    pub fn total(self) -> i64 {
        self.reused.saturating_add(self.missed)
    }
}

impl PoolTotals {
    /// Adds one iteration's own counts.
    pub fn absorb(&mut self, record: &IterationStats) {
        if let Some(windows) = &record.kv_cache_iteration_stats {
            for window in windows.values() {
                add_all(&mut self.blocks, blocks(window));
                add_all(&mut self.bytes, bytes(window));
            }
        }
        add(&mut self.suspended_requests, count(record.iter_suspended_requests));
        add(&mut self.resumed_requests, count(record.iter_resumed_requests));
        add(&mut self.disk_prefetched_blocks, count(record.iter_disk_prefetch_blocks));
        let Some(levels) = &record.iter_cached_tokens_by_level else { return };
        for (level, tokens) in levels.iter().enumerate() {
            let name = record.kv_cache_level_tiers.as_ref().and_then(|tiers| tiers.get(level));
            let tier = name.map_or_else(|| Tier::of_level(level as u64), |name| Tier::from_name(name));
            self.cached_tokens.add(tier, u64::try_from(*tokens).unwrap_or(0));
        }
    }
}

fn primary(window: &KvCacheIterationStats) -> PoolBlocks {
    PoolBlocks {
        max: window.primary_max_num_blocks,
        free: window.primary_free_num_blocks,
        used: window.primary_used_num_blocks,
        evictable: window.primary_evictable_num_blocks,
        peak_free: window.primary_peak_free_num_blocks,
        peak_used: window.primary_peak_used_num_blocks,
        peak_evictable: window.primary_peak_evictable_num_blocks,
    }
}

fn secondary(window: &KvCacheIterationStats) -> PoolBlocks {
    PoolBlocks {
        max: window.secondary_max_num_blocks,
        free: window.secondary_free_num_blocks,
        used: window.secondary_used_num_blocks,
        evictable: window.secondary_evictable_num_blocks,
        peak_free: window.secondary_peak_free_num_blocks,
        peak_used: window.secondary_peak_used_num_blocks,
        peak_evictable: window.secondary_peak_evictable_num_blocks,
    }
}

fn blocks(window: &KvCacheIterationStats) -> BlockEvents {
    BlockEvents {
        allocated: count(window.iter_alloc_total_blocks),
        newly_allocated: count(window.iter_alloc_new_blocks),
        reused: count(window.iter_reused_blocks),
        full_reused: count(window.iter_full_reused_blocks),
        partial_reused: count(window.iter_partial_reused_blocks),
        missed: count(window.iter_missed_blocks),
        generation_allocated: count(window.iter_gen_alloc_blocks),
        onboarded: count(window.iter_onboard_blocks),
        offloaded: count(window.iter_offload_blocks),
        copied: count(window.iter_intra_device_copy_blocks),
        host_dropped: count(window.iter_host_dropped_blocks),
    }
}

fn bytes(window: &KvCacheIterationStats) -> ByteEvents {
    ByteEvents {
        onboarded: count(window.iter_onboard_bytes),
        offloaded: count(window.iter_offload_bytes),
        copied: count(window.iter_intra_device_copy_bytes),
        host_dropped: count(window.iter_host_dropped_bytes),
    }
}

/// A total never falls, so a negative number counts as 0.
fn count(number: Option<i64>) -> Option<u64> {
    number.map(|number| u64::try_from(number).unwrap_or(0))
}

fn add_all<N: NamedNumbers<Number: SaturatingAdd>>(total: &mut N, more: N) {
    total.add_each(more, add);
}

/// The total becomes present with the first number, even if that is 0.
fn add<N: SaturatingAdd>(total: &mut Option<N>, more: Option<N>) {
    if let Some(more) = more {
        *total = Some(total.map_or(more, |total| total.plus(more)));
    }
}

trait SaturatingAdd: Copy {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_summed_and_a_number_that_no_window_sends_is_absent() {
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
        assert_eq!((pools.primary.used, pools.secondary.used), (Some(7), None));
        assert_eq!(pools.lookups, Some(Lookups { reused: 7, missed: 2 }));
        let mut totals = PoolTotals::default();
        totals.absorb(&record);
        totals.absorb(&record);
        assert_eq!((totals.blocks.reused, totals.blocks.missed, totals.blocks.allocated), (Some(14), Some(4), None));
        assert_eq!(totals.bytes, ByteEvents::default());
    }

    #[test]
    fn cached_tokens_are_counted_in_the_tier_that_names_their_level() {
        let mut totals = PoolTotals::default();
        let record = |tiers: Option<&[&str]>| IterationStats {
            iter_cached_tokens_by_level: Some(vec![12, 8, 1, 1]),
            kv_cache_level_tiers: tiers.map(|tiers| tiers.iter().map(|&tier| tier.to_owned()).collect()),
            ..IterationStats::default()
        };
        totals.absorb(&record(None));
        let tokens = |gpu, host, disk, other| TierNumbers { gpu, host, disk, other };
        assert_eq!(totals.cached_tokens, tokens(Some(12), Some(8), Some(1), Some(1)));
        totals.absorb(&record(Some(&["GPU", "disk", "tape", "host"])));
        assert_eq!(totals.cached_tokens, tokens(Some(24), Some(9), Some(9), Some(2)));
    }
}
