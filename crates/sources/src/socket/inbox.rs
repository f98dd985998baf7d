//! The queue of one engine: connections push lines, and the next poll of the engine takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use trtllm_model::{EngineSettings, RejectReason};
use trtllm_service::budget::Held;

/// A line of a connection. Its bytes go back to the budget when the poll drops it.
#[derive(Debug)]
pub(super) enum Queued {
    /// A publisher has connected.
    Hello { process: Option<u64>, settings: EngineSettings, _held: Held },
    Line {
        /// The text without its line feed, or why it could not be read.
        text: Result<Vec<u8>, RejectReason>,
        _held: Option<Held>,
    },
}

/// The end of the queue for the connections of one engine.
#[derive(Debug)]
pub(super) struct Inbox {
    lines: mpsc::UnboundedSender<Queued>,
    connections: AtomicU64,
    /// The processes that have connected since the engine last had no connection. `None` for a process that is not visible here.
    processes: Mutex<Vec<Option<u32>>>,
}

/// Processes that are kept of one engine. No engine has so many.
const MAX_PROCESSES: usize = 64;

impl Inbox {
    pub(super) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Queued>) {
        let (lines, queue) = mpsc::unbounded_channel();
        (Arc::new(Self { lines, connections: AtomicU64::new(0), processes: Mutex::default() }), queue)
    }

    /// Open connections that publish for the engine.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    pub(super) fn connection_opened(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Returns true if this was the last connection.
    pub(super) fn connection_closed(&self) -> bool {
        let is_last = self.connections.fetch_sub(1, Relaxed) == 1;
        if is_last {
            self.processes.lock().clear();
        }
        is_last
    }

    /// A connection of this process publishes for the engine.
    pub(super) fn add_process(&self, process: Option<u32>) {
        let mut processes = self.processes.lock();
        if !processes.contains(&process) && processes.len() < MAX_PROCESSES {
            processes.push(process);
        }
    }

    /// The processes that publish for the engine; empty if one of them is not visible here.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.processes.lock().iter().copied().collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns false if the engine is gone.
    pub(super) fn push(&self, queued: Queued) -> bool {
        self.lines.send(queued).is_ok()
    }
}
