//! The queue between the intakes and the thread that writes. Its memory is bounded, and sending never waits.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, Sender};

use trtllm_model::EngineName;
use trtllm_service::budget::{Budget, Held, Peer, Rest};

use crate::Item;

/// Approximate memory of the messages that wait for the disk, over all engines.
const WEIGHT: usize = 4 << 20;
/// It takes nothing of what other kinds of input share: an engine that floods the recorder would always use that up.
static NO_REST: Rest = Rest::new(0);

/// The way to the thread, shared by all engines.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) messages: Sender<Message>,
    /// The messages that wait.
    budget: &'static Budget,
    pub(super) engines: Arc<AtomicU64>,
}

impl Queue {
    pub(super) fn new() -> (Self, Receiver<Message>) {
        let (messages, received) = mpsc::channel();
        // Never freed. A process starts one recorder.
        let budget = Box::leak(Box::new(Budget::new(WEIGHT, &NO_REST)));
        (Self { messages, budget, engines: Arc::default() }, received)
    }

    /// The bytes of a message of this weight, if there is room. A single large one is accepted if nothing else waits. An engine may
    /// hold as much as is left for all others, so an engine that floods the queue loses its own items only.
    pub(super) fn reserve(&self, engine: &Arc<Peer>, weight: usize) -> Option<Held> {
        let left = WEIGHT.saturating_sub(self.budget.held());
        let is_alone = left == WEIGHT;
        (is_alone || engine.held() + weight <= left).then(|| self.budget.try_take(engine, weight)).flatten()
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
