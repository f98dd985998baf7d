//! Simulates the capacity of each engine once a minute.

use std::sync::Arc;
use std::time::Duration;

use trtllm_service::shutdown::Shutdown;
use trtllm_what_if::{MeasuredEngine, capacity};

use super::judging::RECENT;
use super::{EngineSlot, State};

/// How often an engine's capacity is simulated. With many engines, simulations are a second apart: each keeps a CPU busy.
const EVERY: Duration = Duration::from_secs(60);
const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// Timeout for a copy of the engine's accumulated statistics (its fold), which it publishes when a poll ends.
const FOLD_WITHIN: Duration = Duration::from_secs(5);

impl State {
    /// Simulates one engine after the other, until the end of the process.
    pub async fn keep_capacities(self: Arc<Self>, mut shutdown: Shutdown) {
        loop {
            let slots = Arc::clone(&self.slots());
            let pause = (EVERY / slots.len().max(1) as u32).max(LEAST_BETWEEN);
            for slot in slots.iter() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shutdown.wait() => return,
                }
                slot.update_capacity().await;
            }
            if slots.is_empty() {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = shutdown.wait() => return,
                }
            }
        }
    }
}

impl EngineSlot {
    async fn update_capacity(&self) {
        // The fold of an engine that has run no iteration in the last minute is not copied.
        let recent = self.with_judged(|judged| judged.window.span(RECENT));
        if recent.is_none_or(|span| span.sums.iterations <= 0.0) {
            return;
        }
        let copied = tokio::time::timeout(FOLD_WITHIN, self.read_fold()).await;
        let Some(fold) = copied.ok().and_then(Result::ok) else { return };
        let measured = self.with_judged(|judged| MeasuredEngine::of(&fold, &judged.window));
        drop(fold);
        let simulated = tokio::task::spawn_blocking(move || capacity(&measured));
        let capacity = simulated.await.ok().flatten().map(|capacity| capacity.value);
        self.judged.lock().capacity = capacity;
    }
}
