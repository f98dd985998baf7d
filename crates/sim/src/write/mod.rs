//! Writes what the engine reports as TensorRT-LLM's JSON, for the backend and the release. Upstream's key names are only here.

mod entry;
mod iteration;

use serde_json::{Value, json};

use crate::record::{CacheEvent, NumberedEvent};

pub use entry::{Version, entry, steady};
pub use iteration::{record, rows};

/// A KV cache event, as in the answer to `POST /kv_cache_events`. Blocks have no tokens, because the simulation has none.
#[must_use]
pub fn event(event: &NumberedEvent) -> Value {
    let data = match &event.event {
        CacheEvent::Created { levels } => json!({"type": "created", "num_blocks_per_cache_level": levels}),
        CacheEvent::Stored { parent, hashes } => {
            let block = |hash: &u64| json!({"type": "stored_block", "block_hash": hash, "cache_level": 0, "priority": 35, "tokens": []});
            json!({"type": "stored", "parent_hash": parent, "blocks": hashes.iter().map(block).collect::<Vec<_>>()})
        }
        CacheEvent::Removed { hashes } => json!({"type": "removed", "block_hashes": hashes}),
        CacheEvent::Moved { hash, from, to } => json!({
            "type": "updated", "block_hash": hash, "priority": null,
            "cache_level": {"type": "event_diff", "old_value": from, "new_value": to},
        }),
    };
    let mut value = json!({"event_id": event.id, "data": data});
    if let Some(rank) = event.rank {
        value["attention_dp_rank"] = json!(rank);
    }
    value
}
