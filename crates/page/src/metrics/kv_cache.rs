//! Statistics of the KV cache beyond its single pool: pools, tiers, cross attention, events. All of it is absent if the
//! engine does not send it.

use std::sync::Arc;

use trtllm_engine::pools::PoolBytes;
use trtllm_engine::{EngineTotals, Latest};
use trtllm_model::named_numbers::NamedNumbers as _;

use super::catalog::Id;
use super::catalog::table::engine_counters::CrossBlockEvents;
use super::page::Labels;
use super::writer::SampleWriter;

impl SampleWriter<'_> {
    /// The pools after the last record that has them.
    pub(super) fn pools(&mut self, latest: &Latest) {
        self.each(Id::PrimaryPoolBlocks, latest.pools.primary);
        self.each(Id::SecondaryPoolBlocks, latest.pools.secondary);
        for (tier, bytes) in [("gpu", latest.pools.primary_bytes), ("cold", latest.pools.secondary_bytes)] {
            for (state, bytes) in PoolBytes::NAMES.iter().zip(bytes.numbers()) {
                if let Some(bytes) = bytes {
                    let labels = Labels::extend(self.labels.base(), [("state", *state), ("tier", tier)]);
                    self.page.push(Id::PoolByteSizes, &Arc::new(labels), bytes);
                }
            }
        }
        self.put(Id::KvIterationHitRatio, latest.pools.hit_ratio);
    }

    /// Totals over all iterations and events.
    pub(super) fn kv_cache_totals(&mut self, totals: &EngineTotals) {
        if let Some(cross) = &totals.cross_kv_cache_blocks {
            let events = CrossBlockEvents {
                allocated: Some(cross.allocated),
                newly_allocated: Some(cross.newly_allocated),
                reused: Some(cross.reused),
                missed: Some(cross.missed),
            };
            self.each(Id::CrossKvBlocks, events);
        }
        let pools = &totals.pools;
        self.each(Id::WindowBlocks, pools.blocks);
        self.each(Id::WindowBytes, pools.bytes);
        self.each(Id::CachedTokens, pools.cached_tokens.by_tier);
        self.each(Id::KvFullReusedBlocks, pools.full_reused);
        self.each(Id::KvPartialReusedBlocks, pools.partial_reused);
        self.put(Id::SsmSnapshotLookups, pools.snapshots.lookups);
        self.each(Id::SsmSnapshotHits, pools.snapshots.hits);
        self.put(Id::SsmSnapshotMisses, pools.snapshots.misses);
        self.each(Id::SsmSnapshotTokens, pools.snapshots.tokens);
        self.put(Id::DiskPrefetchedBlocks, pools.disk_prefetched_blocks);
        self.put(Id::RequestSuspensions, pools.suspended_requests);
        self.put(Id::RequestResumptions, pools.resumed_requests);
        let Some(events) = &totals.kv_events else { return };
        self.each(Id::KvEvents, events.events);
        self.one(Id::KvEventsLost, events.lost);
        self.each(Id::KvBlocksStored, events.stored);
        self.each(Id::KvBlocksRemoved, events.removed);
        self.each(Id::KvBlocksUpdated, events.updated);
        self.each(Id::KvTierBlocks, events.capacity);
    }
}
