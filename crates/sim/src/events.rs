//! KV cache events, before they are written as JSON.

/// A change of blocks. Levels: 0 is the GPU, 1 the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent {
    Created { levels: Vec<u32> },
    Stored { parent: Option<u64>, hashes: Vec<u64> },
    Removed { hashes: Vec<u64> },
    Moved { hash: u64, from: u32, to: u32 },
}

/// An event with its number.
#[derive(Debug, Clone)]
pub struct NumberedEvent {
    pub id: u64,
    /// Absent without attention data parallelism.
    pub rank: Option<u32>,
    pub event: CacheEvent,
}
