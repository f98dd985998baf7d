//! Counters of the flight recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of the recorder. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecorderCounts {
    /// Items that were written to disk.
    pub written: SharedCount,
    /// Items that could not be recorded.
    pub dropped: SharedCount,
    pub errors: SharedCount,
    /// The total size of the recorder's files (segments) in bytes.
    pub bytes: SharedCount,
}

/// A count that clones share.
#[derive(Debug, Clone, Default)]
pub struct SharedCount(Arc<AtomicU64>);

impl SharedCount {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn set(&self, count: u64) {
        self.0.store(count, Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
