//! What iterations and events tell of the KV cache beyond its one pool: pools, tiers, cross attention. All of it is absent
//! where the engine does not tell.

use crate::engine::{Latest, Totals};

use super::catalog::Id;
use super::engine::{Writer, ratio};

impl Writer<'_> {
    /// The pools after the last iteration.
    pub(super) fn pools(&mut self, latest: &Latest) {
        let Some(pools) = &latest.pools else { return };
        for (metric, blocks) in [(Id::PrimaryPoolBlocks, pools.primary), (Id::SecondaryPoolBlocks, pools.secondary)] {
            for (at, blocks) in blocks.into_iter().enumerate() {
                self.put(metric, at, blocks);
            }
        }
        if let Some((reused, missed)) = pools.looked_up {
            self.put(Id::KvIterationHitRatio, 0, ratio(Some(reused), Some(reused.saturating_add(missed))));
        }
    }

    /// What all iterations and events add up to.
    pub(super) fn kv_cache_totals(&mut self, totals: &Totals) {
        if totals.kv_cache_blocks_allocated > 0 {
            let reused = totals.kv_cache_blocks_reused as f64;
            self.one(Id::KvReuseEfficiency, reused / totals.kv_cache_blocks_allocated as f64);
        }
        if let Some(cross) = &totals.cross_kv_cache_blocks {
            let counts = [cross.allocated, cross.newly_allocated, cross.reused, cross.missed];
            for (at, count) in counts.into_iter().enumerate() {
                self.put(Id::CrossKvBlocks, at, Some(count));
            }
        }
        let pools = &totals.pools;
        for (at, blocks) in pools.blocks.into_iter().enumerate() {
            self.put(Id::WindowBlocks, at, blocks);
        }
        for (at, bytes) in pools.bytes.into_iter().enumerate() {
            self.put(Id::WindowBytes, at, bytes);
        }
        for (at, tokens) in pools.cached_tokens.into_iter().enumerate() {
            self.put(Id::CachedTokens, at, tokens);
        }
        self.put(Id::DiskPrefetchedBlocks, 0, pools.disk_prefetched_blocks);
        self.put(Id::RequestSuspensions, 0, pools.suspended_requests);
        self.put(Id::RequestResumptions, 0, pools.resumed_requests);
        let Some(events) = &totals.kv_events else { return };
        for (at, count) in events.events.into_iter().enumerate() {
            self.put(Id::KvEvents, at, Some(count));
        }
        self.one(Id::KvEventsLost, events.lost);
        for (metric, by_tier) in [
            (Id::KvBlocksStored, events.stored),
            (Id::KvBlocksRemoved, events.removed),
            (Id::KvBlocksUpdated, events.updated),
        ] {
            for (at, blocks) in by_tier.into_iter().enumerate() {
                self.put(metric, at, Some(blocks));
            }
        }
        for (at, blocks) in events.capacity.into_iter().flatten().enumerate() {
            self.put(Id::KvTierBlocks, at, Some(blocks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pools::TIERS;

    #[test]
    fn events_pools_and_tiers_stand_in_the_catalogs_order() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        for id in [Id::CachedTokens, Id::KvBlocksStored, Id::KvBlocksRemoved, Id::KvBlocksUpdated, Id::KvTierBlocks] {
            assert_eq!(values(id), TIERS);
        }
        assert_eq!(values(Id::PrimaryPoolBlocks), values(Id::SecondaryPoolBlocks));
        let totals = Totals::new();
        assert_eq!(values(Id::WindowBlocks).len(), totals.pools.blocks.len());
        assert_eq!(values(Id::WindowBytes).len(), totals.pools.bytes.len());
        assert_eq!(values(Id::WindowBlocks)[7..], ["onboarded", "offloaded", "copied", "host_dropped"]);
        assert_eq!(values(Id::WindowBlocks)[7..], *values(Id::WindowBytes));
    }
}
