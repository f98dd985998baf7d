//! Counters of the flight recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of the recorder. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecorderCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

impl RecorderCounts {
    /// Counts items that were written to disk.
    pub fn wrote(&self, items: u64) {
        self.0.written.fetch_add(items, Relaxed);
    }

    /// Counts items that could not be recorded.
    pub fn dropped(&self, items: u64) {
        self.0.dropped.fetch_add(items, Relaxed);
    }

    pub fn failed(&self) {
        self.0.errors.fetch_add(1, Relaxed);
    }

    /// Sets the total size of the recorder's files (segments) in bytes.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Relaxed);
    }

    #[must_use]
    pub fn items_written(&self) -> u64 {
        self.0.written.load(Relaxed)
    }

    #[must_use]
    pub fn items_dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    #[must_use]
    pub fn errors(&self) -> u64 {
        self.0.errors.load(Relaxed)
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }
}
