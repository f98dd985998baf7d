//! Decides when an inventory is published: soon after a change, but at most twice per interval.

use std::time::{Duration, Instant};

use trtllm_records::gpu::GpuInventory;

/// Workers poll at the same time, so the first change waits this long for the others to report too.
const SETTLE: Duration = Duration::from_millis(20);
/// A change is never held back for longer than this, even with a long interval.
const MAX_DELAY: Duration = Duration::from_millis(500);

pub(super) struct InventoryPublisher {
    publish: Box<dyn Fn(GpuInventory) + Send>,
    interval: Duration,
    last: GpuInventory,
    last_at: Instant,
    due: Option<Instant>,
}

impl InventoryPublisher {
    /// `last`: the inventory that the reader has already.
    pub(super) fn new(publish: Box<dyn Fn(GpuInventory) + Send>, interval: Duration, last: GpuInventory) -> Self {
        Self { publish, interval, last, last_at: Instant::now(), due: None }
    }

    /// Plans a publication, because something may have changed.
    pub(super) fn schedule(&mut self) {
        let settle = SETTLE.min(self.interval / 4);
        let earliest = self.last_at + (self.interval / 2).min(MAX_DELAY);
        self.due.get_or_insert(earliest.max(Instant::now() + settle));
    }

    /// Publishes the inventory if a publication is due and the inventory differs from the last one. Returns when the next
    /// publication is due.
    pub(super) fn run(&mut self, inventory: impl FnOnce() -> GpuInventory) -> Option<Instant> {
        if self.due.take_if(|due| *due <= Instant::now()).is_some() {
            let inventory = inventory();
            if inventory != self.last {
                self.last_at = Instant::now();
                self.last.clone_from(&inventory);
                (self.publish)(inventory);
            }
        }
        self.due
    }
}
