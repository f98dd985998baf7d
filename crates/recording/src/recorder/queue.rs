//! The queue between the intakes and the thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use trtllm_records::EngineName;

use crate::line::Line;

/// Approximate maximum memory of all lines that wait for the disk.
const WEIGHT: usize = 4 << 20;

/// Its memory is bounded, and sending never waits.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    commands: Sender<Command>,
    /// Approximate memory of the lines that wait.
    waiting: Arc<AtomicUsize>,
    pub(super) engines: Arc<AtomicU64>,
}

impl Queue {
    pub(super) fn new() -> (Self, Receiver<Command>) {
        let (commands, received) = mpsc::channel();
        (Self { commands, waiting: Arc::default(), engines: Arc::default() }, received)
    }

    /// Reserves this much memory, if there is room. A single large line is accepted if nothing else waits. An engine may hold as
    /// much as is left for all others, so an engine that floods the queue loses only its own lines.
    pub(super) fn reserve(&self, of_engine: &Arc<AtomicUsize>, weight: usize) -> Option<Held> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let left = WEIGHT.saturating_sub(waiting);
        let fits = waiting == 0 || of_engine.load(Ordering::Relaxed) + weight <= left;
        fits.then(|| Held::new([&self.waiting, of_engine], weight))
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sends a command. An error is ignored: the writer thread survives panics, so it has ended only if the daemon stops.
    pub(super) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// The memory of lines that wait. Two engines at once may exceed the limit by the lines of a poll.
#[derive(Debug)]
pub(super) struct Held {
    counts: [Arc<AtomicUsize>; 2],
    weight: usize,
}

impl Held {
    fn new(counts: [&Arc<AtomicUsize>; 2], weight: usize) -> Self {
        for count in counts {
            count.fetch_add(weight, Ordering::Relaxed);
        }
        Self { counts: counts.map(Arc::clone), weight }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(self.weight, Ordering::Relaxed);
        }
    }
}

pub(super) enum Command {
    Join {
        engine: u64,
        name: Box<EngineName>,
    },
    /// The reserved memory is released when the lines are written.
    Write {
        engine: u64,
        lines: Vec<Line>,
        held: Held,
    },
    Leave {
        engine: u64,
    },
    Stop,
}
