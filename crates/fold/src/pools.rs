//! What iterations did to the KV cache's pools (`kvCacheIterationStats` and related fields), summed over windows, pool
//! groups and life cycles, so that none of them becomes a label. KV cache manager V2 sends several views of one cache;
//! which number is read from which view follows upstream's collector (tensorrt_llm/metrics/collector.py).

use trtllm_records::IterationStats;
use trtllm_records::by_id::ById;
use trtllm_records::iteration::{KvCacheIterationStats, KvCacheLifecycleStats, LifecycleKind, SsmSnapshotStats};
use trtllm_records::named_numbers::{NamedNumbers, named_numbers};
use trtllm_records::schema::Schema as _;

use super::cache_tiers::{CachedTokens, TierNumbers, add_levels};
use super::saturating::{add_known, unsigned};
use super::share::{ratio, share};

named_numbers! {
    /// Bytes of the pools, by state.
    #[derive(Copy, Eq)]
    pub struct PoolBytes: i64 { max = "max", free = "free", used = "used" }
}

/// The pools in the last record that has them. An engine may send pools with every n-th record only.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pools {
    /// Sums over the pools on the GPU: `primary_*`.
    pub gpu: KvCacheIterationStats,
    /// Sums over the pools on host and disk: `secondary_*`.
    pub cold: KvCacheIterationStats,
    /// Absent unless the engine reports the size of the blocks of each pool.
    pub gpu_bytes: PoolBytes,
    pub cold_bytes: PoolBytes,
    /// Number of pool groups on the GPU. KV cache manager V2 only.
    pub groups: Option<usize>,
    /// Used share of the fullest pool on the GPU, 0..1. A request needs blocks of each pool, so this pool decides whether it fits.
    /// Absent if there is one pool.
    pub fullest: Option<f64>,
    /// The highest used share of a pool on the GPU since the record before, 0..1.
    pub peak: Option<f64>,
    /// Blocks that the last iteration looked up and found in the cache, and those that it did not find.
    reused: Option<i64>,
    missed: Option<i64>,
    pub hit_ratio: Option<f64>,
    /// The last hit ratio of a record with lookups, as in trtllm-serve.
    pub last_hit_ratio: Option<f64>,
    /// Used share of the secondary pools, 0..1, from the last record in which these have blocks, as in trtllm-serve.
    pub last_host_utilization: Option<f64>,
}

/// Totals over iterations. A total is absent until the engine sends its first value; 0 is a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolTotals {
    /// What happened to the blocks: `iter_*`.
    pub events: KvCacheIterationStats,
    pub suspended_requests: Option<u64>,
    pub resumed_requests: Option<u64>,
    pub disk_prefetched_blocks: Option<u64>,
    /// Prompt tokens found in the cache.
    pub cached_tokens: CachedTokens,
    /// Reused blocks by the tier from which they were read.
    pub full_reused: TierNumbers,
    pub partial_reused: TierNumbers,
    pub snapshots: SsmSnapshotStats,
}

/// The view, if it shows a pool. An empty view counts as absent.
fn filled(view: Option<&ById<KvCacheIterationStats>>) -> Option<&ById<KvCacheIterationStats>> {
    view.filter(|pools| !pools.0.is_empty())
}

/// The view that shows the pools on the GPU, and the blocks that were allocated and moved. Pool groups are preferred,
/// because the windows of KV cache manager V2 are incomplete: they show a pool that several windows share as 0 blocks,
/// and lack the pools of state space models.
fn pool_groups(record: &IterationStats) -> Option<&ById<KvCacheIterationStats>> {
    filled(record.kv_cache_iteration_stats_by_pool_group.as_ref())
        .or_else(|| filled(record.kv_cache_iteration_stats.as_ref()))
}

/// The view with the pools on host and disk.
fn cold_pool_groups(record: &IterationStats) -> Option<&ById<KvCacheIterationStats>> {
    filled(record.kv_cache_iteration_stats_by_cold_pool_group.as_ref()).or_else(|| pool_groups(record))
}

fn lifecycles(record: &IterationStats) -> impl Iterator<Item = &KvCacheLifecycleStats> {
    record.kv_cache_iteration_stats_by_lifecycle.iter().flat_map(ById::values)
}

/// The life cycles of attention layers. The life cycles of a state space model have no blocks to reuse.
fn attention(record: &IterationStats) -> impl Iterator<Item = &KvCacheLifecycleStats> {
    lifecycles(record).filter(|cycle| cycle.kind.is_none_or(|kind| kind == LifecycleKind::Attention))
}

/// Whether any view shows a pool. Many engines send none, or only with every n-th record.
fn has_pools(record: &IterationStats) -> bool {
    cold_pool_groups(record).is_some() || lifecycles(record).next().is_some()
}

fn sum<'r>(pools: impl Iterator<Item = &'r KvCacheIterationStats>) -> KvCacheIterationStats {
    let mut sum = KvCacheIterationStats::default();
    pools.for_each(|pool| sum.add(pool));
    sum
}

/// Blocks looked up in the cache, from the life cycles of attention, else from the windows.
fn lookups(record: &IterationStats) -> KvCacheIterationStats {
    let mut attention = attention(record).peekable();
    if attention.peek().is_none() {
        return sum(record.kv_cache_iteration_stats.iter().flat_map(ById::values));
    }
    let mut total = KvCacheLifecycleStats::default();
    attention.for_each(|cycle| total.add(cycle));
    KvCacheIterationStats {
        iter_reused_blocks: total.iter_reused_blocks,
        iter_full_reused_blocks: total.iter_full_reused_blocks,
        iter_partial_reused_blocks: total.iter_partial_reused_blocks,
        iter_missed_blocks: total.iter_missed_blocks,
        ..KvCacheIterationStats::default()
    }
}

impl Pools {
    /// Replaces the values by those of the views that `record` has.
    pub(crate) fn update(&mut self, record: &IterationStats) {
        if !has_pools(record) {
            return;
        }
        if pool_groups(record).is_some() {
            self.groups = filled(record.kv_cache_iteration_stats_by_pool_group.as_ref()).map(|groups| groups.0.len());
            (self.gpu, self.gpu_bytes) = Default::default();
            (self.fullest, self.peak) = (None, None);
        }
        if cold_pool_groups(record).is_some() {
            (self.cold, self.cold_bytes) = Default::default();
        }
        (self.reused, self.missed) = (None, None);
        self.add(record);
    }

    /// Adds the pools of `record`, e.g. those of another rank.
    pub(crate) fn add(&mut self, record: &IterationStats) {
        let is_one_of_several = pool_groups(record).is_some_and(|pools| pools.0.len() > 1);
        for pool in pool_groups(record).into_iter().flat_map(ById::values) {
            self.gpu.add(pool);
            let max = pool.primary_max_num_blocks;
            let highest = |of_others: Option<f64>, blocks| {
                ratio(blocks, max).map(|used| used.min(1.0)).into_iter().chain(of_others).reduce(f64::max)
            };
            self.fullest = highest(self.fullest, pool.primary_used_num_blocks.filter(|_| is_one_of_several));
            self.peak = highest(self.peak, pool.primary_peak_used_num_blocks);
            self.gpu_bytes.add([max, pool.primary_free_num_blocks, pool.primary_used_num_blocks], pool.slot_size);
        }
        for pool in cold_pool_groups(record).into_iter().flat_map(ById::values) {
            self.cold.add(pool);
            let blocks =
                [pool.secondary_max_num_blocks, pool.secondary_free_num_blocks, pool.secondary_used_num_blocks];
            self.cold_bytes.add(blocks, pool.slot_size);
        }
        if self.cold.secondary_max_num_blocks.is_some_and(|max| max > 0) {
            self.last_host_utilization = share(self.cold.secondary_used_num_blocks, self.cold.secondary_max_num_blocks);
        }
        let lookups = lookups(record);
        add_known(&mut self.reused, lookups.iter_reused_blocks);
        add_known(&mut self.missed, lookups.iter_missed_blocks);
        self.hit_ratio =
            ratio(self.reused, self.reused.zip(self.missed).map(|(reused, missed)| reused.saturating_add(missed)));
        self.last_hit_ratio = self.hit_ratio.or(self.last_hit_ratio);
    }
}

impl PoolBytes {
    fn add(&mut self, blocks: [Option<i64>; 3], bytes_of_block: Option<i64>) {
        let [max, free, used] = blocks.map(|blocks| Some(blocks?.saturating_mul(bytes_of_block?)));
        self.add_each(Self { max, free, used }, add_known);
    }
}

impl PoolTotals {
    /// Adds what happened since the previous record.
    pub(crate) fn absorb(&mut self, record: &IterationStats) {
        if has_pools(record) {
            self.absorb_pools(record);
        }
        add_known(&mut self.suspended_requests, record.iter_suspended_requests.map(unsigned));
        add_known(&mut self.resumed_requests, record.iter_resumed_requests.map(unsigned));
        add_known(&mut self.disk_prefetched_blocks, record.iter_disk_prefetch_blocks.map(unsigned));
        self.cached_tokens.absorb(record);
    }

    fn absorb_pools(&mut self, record: &IterationStats) {
        // Pool groups have lookups, too, but not those of all windows.
        let found = lookups(record);
        let events = KvCacheIterationStats {
            iter_reused_blocks: found.iter_reused_blocks,
            iter_full_reused_blocks: found.iter_full_reused_blocks,
            iter_partial_reused_blocks: found.iter_partial_reused_blocks,
            iter_missed_blocks: found.iter_missed_blocks,
            ..sum(pool_groups(record).into_iter().flat_map(ById::values))
        };
        self.events.add_events(&events);
        for cycle in attention(record) {
            add_levels(&mut self.full_reused, record, cycle.iter_full_reused_blocks_by_level.as_ref());
            add_levels(&mut self.partial_reused, record, cycle.iter_partial_reused_blocks_by_level.as_ref());
        }
        let snapshots = lifecycles(record).filter_map(|cycle| cycle.snapshot_stats);
        snapshots.for_each(|snapshots| self.snapshots.add_events(&snapshots));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(json: Value) -> IterationStats {
        serde_json::from_value(json).unwrap()
    }

    fn fold(records: &[Value]) -> (Pools, PoolTotals) {
        let (mut pools, mut totals) = (Pools::default(), PoolTotals::default());
        for json in records {
            let record = record(json.clone());
            pools.update(&record);
            totals.absorb(&record);
        }
        (pools, totals)
    }

    #[test]
    fn lookups_come_from_life_cycles_of_attention_and_a_missing_kind_counts_as_attention() {
        let (pools, totals) = fold(&[json!({
            "kvCacheIterationStats": {"4096": {"iterReusedBlocks": 90, "iterMissedBlocks": 90}},
            "kvCacheIterationStatsByLifecycle": {
                "0": {"kind": "attention", "iterReusedBlocks": 3, "iterMissedBlocks": 1, "windowSize": 4096},
                "1": {"iterReusedBlocks": 4, "iterMissedBlocks": 2, "windowSize": null},
                "2": {"kind": "convolution", "iterReusedBlocks": 50, "iterMissedBlocks": 50}},
        })]);
        assert_eq!((totals.events.iter_reused_blocks, totals.events.iter_missed_blocks), (Some(7), Some(3)));
        assert_eq!(pools.hit_ratio, Some(0.7));
    }

    #[test]
    fn life_cycles_of_state_space_models_alone_leave_the_lookups_of_the_windows() {
        let (_, totals) = fold(&[json!({
            "kvCacheIterationStats": {"4096": {"iterReusedBlocks": 2, "iterMissedBlocks": 1}},
            "kvCacheIterationStatsByLifecycle": {"1": {"kind": "ssm", "snapshotStats": {
                "iterSnapshotLookups": 6, "iterSnapshotHits": 4, "iterSnapshotMisses": 2, "iterReusedTokens": 70,
                "iterUnreusedTokens": 30, "iterAlignedSnapshotHits": 3, "iterUnalignedSnapshotHits": 1}}},
        })]);
        assert_eq!((totals.events.iter_reused_blocks, totals.events.iter_missed_blocks), (Some(2), Some(1)));
        let snapshots = SsmSnapshotStats {
            iter_snapshot_lookups: Some(6),
            iter_snapshot_misses: Some(2),
            iter_reused_tokens: Some(70),
            iter_unreused_tokens: Some(30),
            iter_aligned_snapshot_hits: Some(3),
            iter_unaligned_snapshot_hits: Some(1),
        };
        assert_eq!(totals.snapshots, snapshots);
    }

    #[test]
    fn an_empty_view_counts_as_absent() {
        let (pools, totals) = fold(&[json!({
            "kvCacheIterationStats": {"4096": {"primaryMaxNumBlocks": 8, "secondaryMaxNumBlocks": 4, "secondaryUsedNumBlocks": 1,
                "iterReusedBlocks": 1, "iterGenAllocBlocks": 2}},
            "kvCacheIterationStatsByPoolGroup": {}, "kvCacheIterationStatsByColdPoolGroup": {},
            "kvCacheIterationStatsByLifecycle": {},
        })]);
        assert_eq!((pools.gpu.primary_max_num_blocks, pools.cold.secondary_max_num_blocks), (Some(8), Some(4)));
        assert_eq!(pools.last_host_utilization, Some(0.25));
        assert_eq!((totals.events.iter_reused_blocks, totals.events.iter_gen_alloc_blocks), (Some(1), Some(2)));
    }

    #[test]
    fn trtllms_ratios_keep_their_last_value_and_ours_is_absent_without_lookups() {
        let view = |reused: i64, missed: i64, max: i64| {
            json!({"kvCacheIterationStats": {"4096": {"iterReusedBlocks": reused, "iterMissedBlocks": missed,
                "secondaryMaxNumBlocks": max, "secondaryUsedNumBlocks": max / 2}}})
        };
        let (pools, _) = fold(&[view(3, 1, 10), view(0, 0, 0)]);
        assert_eq!((pools.hit_ratio, pools.last_hit_ratio), (None, Some(0.75)));
        assert_eq!((pools.cold.secondary_max_num_blocks, pools.last_host_utilization), (Some(0), Some(0.5)));
        // More blocks in use than there are. The value before is not that of this record.
        let impossible =
            json!({"kvCacheIterationStats": {"4096": {"secondaryMaxNumBlocks": 4, "secondaryUsedNumBlocks": 5}}});
        assert_eq!(fold(&[view(3, 1, 10), impossible]).0.last_host_utilization, None);
    }

    #[test]
    fn a_record_without_views_keeps_the_pools_of_the_last_one() {
        let sampled = json!({"kvCacheIterationStatsByPoolGroup": {"0": {"primaryMaxNumBlocks": 10}, "1": {}},
            "kvCacheIterationStatsByLifecycle": {"0": {"iterReusedBlocks": 1, "iterMissedBlocks": 1}}});
        let (before, _) = fold(std::slice::from_ref(&sampled));
        let (after, totals) = fold(&[sampled, json!({"iter": 7})]);
        assert_eq!((after, after.groups), (before, Some(2)));
        assert_eq!(totals.events.iter_reused_blocks, Some(1));
    }

    #[test]
    fn reused_blocks_are_counted_in_the_tier_from_which_they_were_read() {
        let (_, totals) = fold(&[json!({
            "kvCacheLevelTiers": ["gpu", "gpu", "host", "disk"],
            "kvCacheIterationStatsByLifecycle": {
                "0": {"iterFullReusedBlocksByLevel": [4, 1, 0, 2], "iterPartialReusedBlocksByLevel": [0, 0, 3, 0]},
                "1": {"iterFullReusedBlocksByLevel": [1, 0, 0, 0]},
                "2": {"kind": "ssm", "iterFullReusedBlocksByLevel": [9, 9, 9, 9]}},
        })]);
        let tiers = |gpu, host, disk| [Some(gpu), Some(host), Some(disk), None];
        assert_eq!((totals.full_reused, totals.partial_reused), (tiers(6, 0, 2), tiers(0, 3, 0)));
    }
}
