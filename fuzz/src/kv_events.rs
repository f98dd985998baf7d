//! Parses and folds answers of `POST /kv_cache_events`. Input that begins with `[` is used as the answer. Other input
//! describes events, eight bytes each. There are few blocks, levels and ranks, so that the events affect each other.

use serde_json::{Value, json};
use trtllm_sources::trtllm_json::parse_kv_cache_events;

use super::fold::{Fold, engine};
use super::parsed_page;

/// Number of events in one answer.
const PER_POLL: usize = 8;
const MAX_EVENTS: usize = 256;

pub fn run(data: &[u8]) {
    let mut fold = Fold::new(engine());
    if data.first() == Some(&b'[') {
        for _ in 0..2 {
            fold.poll_with(|batch| parse_kv_cache_events(data, batch).is_ok());
        }
    } else {
        let events: Vec<Value> =
            data.chunks_exact(8).take(MAX_EVENTS).scan(0, |id, bytes| Some(event(bytes, id))).collect();
        for answer in events.chunks(PER_POLL) {
            let answer = Value::Array(answer.to_vec()).to_string();
            fold.poll_with(|batch| parse_kv_cache_events(answer.as_bytes(), batch).is_ok());
        }
    }
    parsed_page::parses(&fold.page());
}

fn event(bytes: &[u8], id: &mut u64) -> Value {
    let [kind, step, rank, level, hashes @ ..] = bytes else { return Value::Null };
    *id = match step % 8 {
        0..=4 => id.wrapping_add(1),
        5 => id.wrapping_add(3),
        6 => 0,
        _ => id.wrapping_mul(1 << 20),
    };
    let hashes: Vec<u64> = hashes.iter().map(|hash| u64::from(hash % 16)).collect();
    let level: Value = match level % 8 {
        7 => Value::Null,
        6 => u64::MAX.into(),
        level => level.into(),
    };
    let blocks: Vec<Value> = hashes.iter().map(|hash| json!({"block_hash": hash, "cache_level": level})).collect();
    let data = match kind % 8 {
        0 => json!({"type": "created", "num_blocks_per_cache_level": hashes}),
        1..=3 => json!({"type": "stored", "blocks": blocks}),
        4 | 5 => json!({"type": "removed", "block_hashes": hashes}),
        6 => json!({"type": "updated", "block_hash": hashes[0], "cache_level": {"new_value": level}}),
        _ => json!({"type": "moved", "block_hash": hashes[0].to_string()}),
    };
    json!({"event_id": *id, "attention_dp_rank": (rank % 4 > 0).then_some(rank % 4), "data": data})
}
