//! Simulates the capacity of each engine once a minute.

use std::sync::Arc;
use std::time::Duration;

use trtllm_service::shutdown::Shutdown;
use trtllm_what_if::{MeasuredEngine, capacity};

use super::judgement::RECENT;
use super::slot::EngineSlot;
use super::state::State;

/// How often an engine's capacity is simulated. With many engines, simulations are a second apart: each keeps a CPU busy.
const EVERY: Duration = Duration::from_secs(60);
const LEAST_BETWEEN: Duration = Duration::from_secs(1);

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
    /// What was measured of the engine, for what-if. The engine is copied under its lock, and its costs are computed outside.
    pub fn measured(&self) -> MeasuredEngine {
        let observed = Box::new(self.lock().observed.clone());
        self.with_judged(|judged| MeasuredEngine::of(&observed, &judged.window))
    }

    async fn update_capacity(&self) {
        // An engine that has run no iteration in the last minute is not copied.
        let recent = self.with_judged(|judged| judged.window.span(RECENT));
        if recent.is_none_or(|span| span.sums.iterations <= 0.0) {
            return;
        }
        let measured = self.measured();
        let simulated = tokio::task::spawn_blocking(move || capacity(&measured));
        let capacity = simulated.await.ok().flatten().map(|capacity| capacity.value);
        self.judged.lock().capacity = capacity;
    }
}
