//! The queue between the intakes and the thread that writes. Its memory is bounded, and sending never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use trtllm_model::EngineName;

use crate::Item;

/// Approximate memory of the messages that wait for the disk, over all engines.
const MAX_WEIGHT: usize = 8 << 20;

/// The way to the thread, shared by all engines.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) messages: Sender<Message>,
    /// Approximate memory of the messages that wait.
    pub(super) weight: Arc<AtomicUsize>,
    pub(super) engines: Arc<AtomicU64>,
}

impl Queue {
    /// Whether there is room for a message of this weight.
    pub(super) fn reserve(&self, weight: usize) -> bool {
        let before = self.weight.fetch_add(weight, Ordering::Relaxed);
        // A single large message is accepted if nothing else waits.
        let accepted = before == 0 || before.saturating_add(weight) <= MAX_WEIGHT;
        if !accepted {
            self.weight.fetch_sub(weight, Ordering::Relaxed);
        }
        accepted
    }

    /// The thread survives panics, so it is gone only when the daemon stops.
    pub(super) fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

pub(super) enum Message {
    Joined { engine: u64, name: Box<EngineName> },
    Items { engine: u64, items: Vec<Item>, weight: usize },
    Left { engine: u64 },
    Stop,
}

impl Message {
    pub(super) const fn engine(&self) -> Option<u64> {
        match self {
            Self::Joined { engine, .. } | Self::Items { engine, .. } | Self::Left { engine } => Some(*engine),
            Self::Stop => None,
        }
    }

    /// As reserved.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Items { weight, .. } => *weight,
            Self::Joined { .. } | Self::Left { .. } | Self::Stop => 0,
        }
    }
}
