//! KV cache events added up: blocks that can be found, by the tier they are in. Bounded: beyond [`MAX_BLOCKS`] blocks
//! followed, where a removed one was is not known.

use std::collections::HashMap;

use crate::model::kv_event::{BlockHash, KvCacheEvent, KvCacheEventKind};

use super::pools::{TIERS, tier_of_level};

/// Blocks whose tier is remembered: 1 MiB of them.
const MAX_BLOCKS: usize = 1 << 16;
/// Attention-DP ranks that are told apart.
const MAX_RANKS: usize = 64;
/// The tier of a block that was never seen stored.
const UNKNOWN: u8 = 3;

/// Blocks by [`TIERS`].
pub type ByTier = [u64; TIERS.len()];

/// Plain numbers with one owner, as [`super::Totals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvEventTotals {
    /// created, stored, removed, updated, other.
    pub events: [u64; 5],
    /// Events whose number was skipped.
    pub lost: u64,
    pub stored: ByTier,
    /// By the tier the block was in.
    pub removed: ByTier,
    /// By the tier the block is in now.
    pub updated: ByTier,
    /// Blocks there are, by tier, as the last `created` said.
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
    /// One event.
    pub fn absorb(&mut self, event: &KvCacheEvent) {
        // Ranks beyond the bound share a place: their events are counted, their gaps and blocks may not be told apart.
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

    /// As `KVCacheEventSerializer` writes them.
    fn events(json: &str) -> KvEvents {
        let mut fold = KvEvents::default();
        for event in serde_json::from_str::<Vec<KvCacheEvent>>(json).unwrap() {
            fold.absorb(&event);
        }
        fold
    }

    #[test]
    fn blocks_are_counted_by_the_tier_they_are_in() {
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
    fn a_new_cache_begins_its_numbers_anew_and_ranks_count_apart() {
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
    fn memory_is_bounded_whatever_is_stored() {
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
