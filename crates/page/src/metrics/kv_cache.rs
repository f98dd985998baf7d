//! Writes the statistics of the KV cache that have several series: pools, tiers, cross attention. They are
//! absent if the engine does not send them.

use trtllm_fold::pools::PoolBytes;
use trtllm_fold::{EngineTotals, Latest};
use trtllm_records::named_numbers::NamedNumbers as _;

use super::catalog::Id;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    /// Writes the sizes of the pools, from the last record that contained them.
    pub(super) fn pools(&mut self, latest: &Latest) {
        self.each(Id::PrimaryPoolBlocks, latest.pools.primary);
        self.each(Id::SecondaryPoolBlocks, latest.pools.secondary);
        for (tier, bytes) in [("gpu", latest.pools.primary_bytes), ("cold", latest.pools.secondary_bytes)] {
            for (state, bytes) in PoolBytes::NAMES.iter().zip(bytes.numbers()) {
                if let Some(bytes) = bytes {
                    self.with(Id::PoolByteSizes, [("state", *state), ("tier", tier)], bytes);
                }
            }
        }
    }

    /// Totals over all iterations.
    pub(super) fn kv_cache_totals(&mut self, totals: &EngineTotals) {
        if let Some(cross) = &totals.cross_kv_cache_blocks {
            let events = [
                ("allocated", cross.allocated),
                ("newly_allocated", cross.newly_allocated),
                ("reused", cross.reused),
                ("missed", cross.missed),
            ];
            self.named(Id::CrossKvBlocks, events.map(|(event, blocks)| (event, Some(blocks))));
        }
        let pools = &totals.pools;
        self.each(Id::WindowBlocks, pools.blocks);
        self.each(Id::WindowBytes, pools.bytes);
        self.each(Id::CachedTokens, pools.cached_tokens.by_tier);
        self.each(Id::KvFullReusedBlocks, pools.full_reused);
        self.each(Id::KvPartialReusedBlocks, pools.partial_reused);
        self.each(Id::SsmSnapshotHits, pools.snapshots.hits);
        self.each(Id::SsmSnapshotTokens, pools.snapshots.tokens);
    }
}
