//! Hands copies of an engine's fold to readers that need more than the snapshot. The fold has one owner, which makes a copy when
//! it publishes the next time, so nothing is copied while nobody asks.

use parking_lot::Mutex;
use tokio::sync::oneshot::{Receiver, Sender, channel};

use trtllm_engine::EngineFold;

/// A copy has the timeline and the costs of the engine, so few readers wait at once. The receiver of any other fails at once.
const MOST: usize = 4;

#[derive(Debug, Default)]
pub(super) struct FoldReaders(Mutex<Vec<Sender<Box<EngineFold>>>>);

impl FoldReaders {
    pub(super) fn wait(&self) -> Receiver<Box<EngineFold>> {
        let (sender, receiver) = channel();
        let mut waiting = self.0.lock();
        waiting.retain(|reader| !reader.is_closed());
        if waiting.len() < MOST {
            waiting.push(sender);
        }
        receiver
    }

    pub(super) fn serve(&self, fold: &EngineFold) {
        for reader in self.0.lock().drain(..) {
            let _ = reader.send(Box::new(fold.clone()));
        }
    }
}
