//! Totals of KV cache events, by the tier of the blocks. Memory is bounded: the tiers of at most `MAX_BLOCKS` blocks are
//! remembered. A removed block that was not remembered has no known tier.

use std::collections::HashMap;

use trtllm_model::kv_event::{BlockHash, KvCacheEvent, KvCacheEventKind};
use trtllm_model::named_numbers::{NamedNumbers, named_numbers};

use super::cache_tiers::{Tier, TierNumbers};
use super::saturating::{add, add_known, unsigned};

/// Number of blocks whose tier is remembered, which takes about 1 MiB.
const MAX_BLOCKS: usize = 1 << 16;
/// Number of attention-DP ranks that are followed separately.
const MAX_RANKS: usize = 64;

named_numbers! {
    /// Events by kind.
    #[derive(Copy, Eq)]
    pub struct KvEventCounts: u64 {
        created = "created",
        stored = "stored",
        removed = "removed",
        updated = "updated",
        other = "other",
    }
}

/// Plain numbers with one owner, like [`super::EngineTotals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvEventTotals {
    pub events: KvEventCounts,
    /// Events that were lost: their numbers are missing.
    pub lost: u64,
    /// Blocks by their tier.
    pub stored: TierNumbers,
    /// Blocks by their last tier. `other` if it is unknown.
    pub removed: TierNumbers,
    /// Blocks by their current tier. `other` if it is unknown.
    pub updated: TierNumbers,
    /// Number of blocks by tier, from the last `created` event. Absent before the first such event.
    pub capacity: TierNumbers,
}

impl Default for KvEventTotals {
    fn default() -> Self {
        let zeros = TierNumbers::zeros();
        Self {
            events: KvEventCounts::zeros(),
            lost: 0,
            stored: zeros,
            removed: zeros,
            updated: zeros,
            capacity: TierNumbers::default(),
        }
    }
}

impl KvEventCounts {
    fn add(&mut self, kind: KvCacheEventKind) {
        let count = match kind {
            KvCacheEventKind::Created => &mut self.created,
            KvCacheEventKind::Stored => &mut self.stored,
            KvCacheEventKind::Removed => &mut self.removed,
            KvCacheEventKind::Updated => &mut self.updated,
            KvCacheEventKind::Unknown => &mut self.other,
        };
        add_known(count, Some(1));
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct KvEvents {
    /// The tier of each block, by rank and block.
    tiers: HashMap<(u8, BlockHash), Tier>,
    /// The number of the last event, by rank.
    last: HashMap<u8, u64>,
}

impl KvEvents {
    /// Nobody read the events for a time. So the gap in their numbers is no loss, and blocks may have moved.
    pub(crate) fn resume(&mut self) {
        self.tiers.clear();
        self.last.clear();
    }

    pub(crate) fn absorb(&mut self, event: &KvCacheEvent, totals: &mut KvEventTotals) {
        // Ranks above the limit share the state of lower ranks: events are counted, but gaps and tiers may be wrong.
        let rank = event.attention_dp_rank.and_then(|rank| u8::try_from(rank).ok()).unwrap_or(0) % MAX_RANKS as u8;
        let data = &event.data;
        totals.events.add(data.kind);
        if data.kind == KvCacheEventKind::Created {
            self.tiers.retain(|(of, _), _| *of != rank);
            self.last.remove(&rank);
        }
        if let Some(id) = event.event_id
            && let Some(last) = self.last.insert(rank, id)
        {
            add(&mut totals.lost, id.saturating_sub(last.saturating_add(1)));
        }
        match data.kind {
            KvCacheEventKind::Created => {
                totals.capacity = TierNumbers::zeros();
                for (level, blocks) in data.num_blocks_per_cache_level.iter().enumerate() {
                    totals.capacity.add(Tier::of_level(level as u64), unsigned(*blocks));
                }
            }
            KvCacheEventKind::Stored => {
                for block in &data.blocks {
                    let tier = Tier::of_level(block.cache_level.unwrap_or(0));
                    totals.stored.add(tier, 1);
                    if self.tiers.len() < MAX_BLOCKS {
                        self.tiers.insert((rank, block.block_hash), tier);
                    }
                }
            }
            KvCacheEventKind::Removed => {
                for hash in &data.block_hashes {
                    let tier = self.tiers.remove(&(rank, *hash));
                    totals.removed.add(tier.unwrap_or(Tier::Other), 1);
                }
            }
            KvCacheEventKind::Updated => {
                let known = data.block_hash.and_then(|hash| self.tiers.get_mut(&(rank, hash)));
                let moved = data.cache_level.and_then(|change| change.new_value).map(Tier::of_level);
                let tier = match (known, moved) {
                    (Some(known), Some(moved)) => {
                        *known = moved;
                        moved
                    }
                    (known, moved) => moved.or(known.copied()).unwrap_or(Tier::Other),
                };
                totals.updated.add(tier, 1);
            }
            KvCacheEventKind::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events in the format of `KVCacheEventSerializer`.
    fn events(json: &str) -> (KvEvents, KvEventTotals) {
        let (mut fold, mut totals) = (KvEvents::default(), KvEventTotals::default());
        for event in serde_json::from_str::<Vec<KvCacheEvent>>(json).unwrap() {
            fold.absorb(&event, &mut totals);
        }
        (fold, totals)
    }

    #[test]
    fn blocks_are_counted_by_tier() {
        let (fold, totals) = events(
            r#"[{"event_id":0,"window_size":256,"data":{"type":"created","num_blocks_per_cache_level":[100,50]}},
                {"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[
                    {"type":"stored_block","block_hash":42,"tokens":[{"type":"unique_token","token_id":1}],"cache_level":0},
                    {"type":"stored_block","block_hash":"ab12","tokens":[],"cache_level":0,"priority":35}]}},
                {"event_id":2,"data":{"type":"updated","block_hash":42,"priority":null,
                    "cache_level":{"type":"event_diff","new_value":1,"old_value":0}}},
                {"event_id":5,"data":{"type":"removed","block_hashes":[42,"ab12",7]}},
                {"event_id":6,"data":{"type":"rewritten"}}]"#,
        );
        let tiers = |gpu, host, disk, other| TierNumbers {
            gpu: Some(gpu),
            host: Some(host),
            disk: Some(disk),
            other: Some(other),
        };
        let once = Some(1);
        let events = KvEventCounts { created: once, stored: once, removed: once, updated: once, other: once };
        assert_eq!((totals.events, totals.lost), (events, 2));
        assert_eq!((totals.stored, totals.updated), (tiers(2, 0, 0, 0), tiers(0, 1, 0, 0)));
        assert_eq!((totals.removed, totals.capacity), (tiers(1, 1, 0, 1), tiers(100, 50, 0, 0)));
        assert!(fold.tiers.is_empty());
    }

    #[test]
    fn a_new_cache_restarts_its_event_numbers_and_each_rank_has_its_own() {
        let (_, totals) = events(
            r#"[{"event_id":7,"data":{"type":"removed","block_hashes":[]}},
                {"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[9]}},
                {"event_id":0,"attention_dp_rank":1,"data":{"type":"created","num_blocks_per_cache_level":[9]}},
                {"event_id":1,"data":{"type":"removed","block_hashes":[]}},
                {"event_id":1,"attention_dp_rank":1,"data":{"type":"removed","block_hashes":[]}}]"#,
        );
        assert_eq!(totals.lost, 0);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_blocks() {
        let (mut fold, mut totals) = (KvEvents::default(), KvEventTotals::default());
        let mut event = KvCacheEvent::default();
        event.data.kind = KvCacheEventKind::Stored;
        for hash in 0..2 * MAX_BLOCKS as u64 {
            event.data.blocks =
                vec![trtllm_model::kv_event::StoredBlock { block_hash: BlockHash(hash), cache_level: None }];
            fold.absorb(&event, &mut totals);
        }
        assert_eq!((fold.tiers.len(), totals.stored.gpu), (MAX_BLOCKS, Some(2 * MAX_BLOCKS as u64)));
    }
}
