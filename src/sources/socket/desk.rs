//! The lines of one engine on their way from connections to the engine's next poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{SemaphorePermit, mpsc};

use crate::model::RejectReason;

#[derive(Debug)]
pub(super) enum Queued {
    /// A publisher with this process id has connected.
    Process(u64),
    Line {
        /// Without its line feed; or why it could not be read.
        text: Result<Vec<u8>, RejectReason>,
        /// Released when the line has been parsed.
        _permit: Option<SemaphorePermit<'static>>,
    },
}

/// Where the connections of one engine hand in their lines.
#[derive(Debug)]
pub(super) struct Desk {
    lines: mpsc::UnboundedSender<Queued>,
    connections: AtomicU64,
}

impl Desk {
    pub(super) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Queued>) {
        let (lines, queue) = mpsc::unbounded_channel();
        (Arc::new(Self { lines, connections: AtomicU64::new(0) }), queue)
    }

    /// Open connections that publish for the engine.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    pub(super) fn enter(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Returns whether this was the last connection.
    pub(super) fn leave(&self) -> bool {
        self.connections.fetch_sub(1, Relaxed) == 1
    }

    /// Returns false if the engine is gone.
    pub(super) fn hand_in(&self, queued: Queued) -> bool {
        self.lines.send(queued).is_ok()
    }
}
