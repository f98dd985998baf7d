//! The queue between the intakes and the thread that writes. Its memory is bounded, and sending never waits.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, Sender};

use trtllm_model::EngineName;
use trtllm_service::budget::{Budget, Held, Peer, REST};

use crate::Item;

/// Approximate memory of the messages that wait for the disk, over all engines, and more if there is room.
const WEIGHT: usize = 4 << 20;

/// The way to the thread, shared by all engines.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) messages: Sender<Message>,
    /// The messages that wait.
    budget: &'static Budget,
    peer: Arc<Peer>,
    pub(super) engines: Arc<AtomicU64>,
}

impl Queue {
    pub(super) fn new() -> (Self, Receiver<Message>) {
        let (messages, received) = mpsc::channel();
        // Never freed. A process starts one recorder.
        let budget = Box::leak(Box::new(Budget::new(WEIGHT, &REST)));
        (Self { messages, budget, peer: Arc::default(), engines: Arc::default() }, received)
    }

    /// The bytes of a message of this weight, if there is room. A single large one is accepted if nothing else waits.
    pub(super) fn reserve(&self, weight: usize) -> Option<Held> {
        self.budget.try_take(&self.peer, weight)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.budget.held()
    }

    /// The thread survives panics, so it is gone only when the daemon stops.
    pub(super) fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

pub(super) enum Message {
    Joined {
        engine: u64,
        name: Box<EngineName>,
    },
    /// The bytes are given back when the items are written.
    Items {
        engine: u64,
        items: Vec<Item>,
        held: Held,
    },
    Left {
        engine: u64,
    },
    Stop,
}

impl Message {
    pub(super) const fn engine(&self) -> Option<u64> {
        match self {
            Self::Joined { engine, .. } | Self::Items { engine, .. } | Self::Left { engine } => Some(*engine),
            Self::Stop => None,
        }
    }
}
