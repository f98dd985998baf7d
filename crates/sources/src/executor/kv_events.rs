//! Decodes KV cache events: the bridge passes one row for each block.

use trtllm_bridge::{KvEventKind, KvEventRow};

use trtllm_model::KvCacheEvent;
use trtllm_model::kv_event::{BlockHash, KvCacheEventData, KvCacheEventKind, LevelChange, StoredBlock};

/// One event from all of its rows.
pub(super) fn event(rows: &[KvEventRow]) -> KvCacheEvent {
    let first = rows[0];
    let of_blocks = || rows.iter().filter(|row| !row.empty);
    let level = |row: &KvEventRow| row.has_level.then(|| u64::try_from(row.level).ok()).flatten();
    let mut data = KvCacheEventData::default();
    match first.kind {
        KvEventKind::Created => {
            data.kind = KvCacheEventKind::Created;
            data.num_blocks_per_cache_level = of_blocks().map(|row| row.value.cast_signed()).collect();
        }
        KvEventKind::Stored => {
            data.kind = KvCacheEventKind::Stored;
            let stored = |row: &KvEventRow| StoredBlock { block_hash: BlockHash(row.value), cache_level: level(row) };
            data.blocks = of_blocks().map(stored).collect();
        }
        KvEventKind::Removed => {
            data.kind = KvCacheEventKind::Removed;
            data.block_hashes = of_blocks().map(|row| BlockHash(row.value)).collect();
        }
        KvEventKind::Updated => {
            data.kind = KvCacheEventKind::Updated;
            data.block_hash = Some(BlockHash(first.value));
            data.cache_level = first.has_level.then(|| LevelChange { new_value: level(&first) });
        }
        _ => {}
    }
    KvCacheEvent {
        event_id: Some(first.event_id),
        attention_dp_rank: first.has_rank.then_some(first.rank.into()),
        data,
    }
}
