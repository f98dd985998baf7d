//! KV cache events: changes of single blocks. Tokens and priorities are not read, because no metric uses them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bounded;

/// One event. Source: trtllm-serve `POST /kv_cache_events` (upstream: `KVCacheEventSerializer`).
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct KvCacheEvent {
    /// Number of the event. The engine counts from 0. A gap means that events were lost.
    pub event_id: Option<u64>,
    /// Each rank of attention data parallelism counts its own events.
    pub attention_dp_rank: Option<i64>,
    pub data: KvCacheEventData,
}

/// One struct has the members of all kinds of events. A tagged union would copy the tokens of each block before
/// parsing.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct KvCacheEventData {
    #[serde(rename = "type")]
    pub kind: KvCacheEventKind,
    /// Number of blocks by cache level, in a `created` event.
    #[serde(deserialize_with = "bounded::blocks_by_level")]
    pub num_blocks_per_cache_level: Vec<i64>,
    /// The blocks of a `stored` event.
    #[serde(deserialize_with = "bounded::blocks")]
    pub blocks: Vec<StoredBlock>,
    /// The blocks of a `removed` event.
    #[serde(deserialize_with = "bounded::blocks")]
    pub block_hashes: Vec<BlockHash>,
    /// The block of an `updated` event.
    pub block_hash: Option<BlockHash>,
    /// The new level in an `updated` event. Absent if the block stays in its level.
    pub cache_level: Option<LevelChange>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvCacheEventKind {
    /// A new, empty cache: the engine has started.
    Created,
    /// Blocks that can be reused from now on.
    Stored,
    /// Blocks that can no longer be reused.
    Removed,
    /// The level or the priority of a block changed.
    Updated,
    #[default]
    #[serde(other)]
    Unknown,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct StoredBlock {
    pub block_hash: BlockHash,
    /// Level 0 is the GPU.
    pub cache_level: Option<u64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct LevelChange {
    pub new_value: Option<u64>,
}

/// The engine's name of a block: a number, or the hash of a text, because KV cache manager V2 may send texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BlockHash(pub u64);

impl Serialize for BlockHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for BlockHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = BlockHash;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a block's hash")
            }
            fn visit_u64<E>(self, value: u64) -> Result<BlockHash, E> {
                Ok(BlockHash(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<BlockHash, E> {
                Ok(BlockHash(value.cast_unsigned()))
            }
            fn visit_str<E>(self, text: &str) -> Result<BlockHash, E> {
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                Ok(BlockHash(hasher.finish()))
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}
