//! Totals of KV cache events, by the tier of the blocks. Memory is bounded: the tier of at most [`MAX_BLOCKS`] blocks is
//! remembered, and a removed block that was not remembered has no known tier.

use std::collections::HashMap;

use crate::model::kv_event::{BlockHash, KvCacheEvent, KvCacheEventKind};

use super::pools::{TIERS, tier_of_level};

/// Blocks whose tier is remembered, in about 1 MiB.
const MAX_BLOCKS: usize = 1 << 16;
/// Attention-DP ranks with counts of their own.
const MAX_RANKS: usize = 64;
/// The tier of a block that was never seen stored.
const UNKNOWN: u8 = 3;

/// Blocks by [`TIERS`].
pub type ByTier = [u64; TIERS.len()];

/// Plain numbers with one owner, like [`super::Totals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvEventTotals {
    /// created, stored, removed, updated, other.
    pub events: [u64; 5],
    /// Events that are missing in the sequence of numbers.
    pub lost: u64,
    pub stored: ByTier,
    /// By the tier that the block was in.
    pub removed: ByTier,
    /// By the new tier of the block.
    pub updated: ByTier,
    /// Number of blocks by tier, from the last `created` event.
    pub capacity: Option<[i64; TIERS.len()]>,
}

/// The fold of one engine's events.
#[derive(Debug, Default)]
pub struct KvEvents {
    /// `None` until the engine sent any.
    pub totals: Option<KvEventTotals>,
    tiers: HashMap<(u8, BlockHash), u8>,
    last: HashMap<u8, u64>,
}

impl KvEvents {
    /// Folds one event.
    pub fn absorb(&mut self, event: &KvCacheEvent) {
        // Ranks above the limit share an entry: their events are counted, but gaps and tiers may be wrong.
        let rank = event.attention_dp_rank.and_then(|rank| u8::try_from(rank).ok()).unwrap_or(0) % MAX_RANKS as u8;
        let totals = self.totals.get_or_insert_default();
        let data = &event.data;
        totals.events[data.kind as usize] += 1;
        if data.kind == KvCacheEventKind::Created {
            self.tiers.retain(|(of, _), _| *of != rank);
            self.last.remove(&rank);
        }
        if let Some(id) = event.event_id
            && let Some(last) = self.last.insert(rank, id)
        {
            totals.lost = totals.lost.saturating_add(id.saturating_sub(last.saturating_add(1)));
        }
        match data.kind {
            KvCacheEventKind::Created => {
                let mut capacity = [0_i64; TIERS.len()];
                for (level, blocks) in data.num_blocks_per_cache_level.iter().enumerate() {
                    capacity[tier_of_level(level as u64)] += (*blocks).max(0);
                }
                totals.capacity = Some(capacity);
            }
            KvCacheEventKind::Stored => {
                for block in &data.blocks {
                    let tier = tier_of_level(block.cache_level.unwrap_or(0));
                    totals.stored[tier] += 1;
                    if self.tiers.len() < MAX_BLOCKS {
                        self.tiers.insert((rank, block.block_hash), tier as u8);
                    }
                }
            }
            KvCacheEventKind::Removed => {
                for hash in &data.block_hashes {
                    totals.removed[usize::from(self.tiers.remove(&(rank, *hash)).unwrap_or(UNKNOWN))] += 1;
                }
            }
            KvCacheEventKind::Updated => {
                let known = data.block_hash.and_then(|hash| self.tiers.get_mut(&(rank, hash)));
                let moved =
                    data.cache_level.and_then(|change| change.new_value).map(|level| tier_of_level(level) as u8);
                let tier = match (known, moved) {
                    (Some(known), Some(moved)) => {
                        *known = moved;
                        moved
                    }
                    (known, moved) => moved.or(known.copied()).unwrap_or(UNKNOWN),
                };
                totals.updated[usize::from(tier)] += 1;
            }
            KvCacheEventKind::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events in the format of `KVCacheEventSerializer`.
    fn events(json: &str) -> KvEvents {
        let mut fold = KvEvents::default();
        for event in serde_json::from_str::<Vec<KvCacheEvent>>(json).unwrap() {
            fold.absorb(&event);
        }
        fold
    }

    #[test]
    fn blocks_are_counted_by_tier() {
        let fold = events(
            r#"[{"event_id":0,"window_size":256,"data":{"type":"created","num_blocks_per_cache_level":[100,50]}},
                {"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[
                    {"type":"stored_block","block_hash":42,"tokens":[{"type":"unique_token","token_id":1}],"cache_level":0},
                    {"type":"stored_block","block_hash":"ab12","tokens":[],"cache_level":0,"priority":35}]}},
                {"event_id":2,"data":{"type":"updated","block_hash":42,"priority":null,
                    "cache_level":{"type":"event_diff","new_value":1,"old_value":0}}},
                {"event_id":5,"data":{"type":"removed","block_hashes":[42,"ab12",7]}},
                {"event_id":6,"data":{"type":"rewritten"}}]"#,
        );
        let totals = fold.totals.unwrap();
        assert_eq!((totals.events, totals.lost), ([1, 1, 1, 1, 1], 2));
        assert_eq!((totals.stored, totals.updated), ([2, 0, 0, 0], [0, 1, 0, 0]));
        assert_eq!((totals.removed, totals.capacity), ([1, 1, 0, 1], Some([100, 50, 0, 0])));
        assert!(fold.tiers.is_empty());
    }

    #[test]
    fn a_new_cache_restarts_its_event_numbers_and_each_rank_has_its_own() {
        let fold = events(
            r#"[{"event_id":7,"data":{"type":"removed","block_hashes":[]}},
                {"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[9]}},
                {"event_id":0,"attention_dp_rank":1,"data":{"type":"created","num_blocks_per_cache_level":[9]}},
                {"event_id":1,"data":{"type":"removed","block_hashes":[]}},
                {"event_id":1,"attention_dp_rank":1,"data":{"type":"removed","block_hashes":[]}}]"#,
        );
        assert_eq!(fold.totals.unwrap().lost, 0);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_blocks() {
        let mut fold = KvEvents::default();
        let mut event = KvCacheEvent::default();
        event.data.kind = KvCacheEventKind::Stored;
        for hash in 0..2 * MAX_BLOCKS as u64 {
            event.data.blocks =
                vec![crate::model::kv_event::StoredBlock { block_hash: BlockHash(hash), cache_level: None }];
            fold.absorb(&event);
        }
        assert_eq!((fold.tiers.len(), fold.totals.unwrap().stored[0]), (MAX_BLOCKS, 2 * MAX_BLOCKS as u64));
    }
}
