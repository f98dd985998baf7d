//! The list of all engines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use trtllm_records::gpu::GpuInventory;
use trtllm_records::{EngineName, RecorderCounts, RefusedPublishers};

use super::judgement::HostJudgement;
use super::slot::{EngineCounts, EngineOrigin, EngineSlot, SourceIndex};

/// All engines, in the order of the page, and all GPUs.
#[derive(Debug)]
pub struct State {
    /// Replaced as a whole when an engine joins or leaves.
    engines: Mutex<Arc<Vec<Arc<EngineSlot>>>>,
    gpus: Mutex<Arc<GpuInventory>>,
    pub(super) host: Mutex<HostJudgement>,
    counts: Arc<EngineCounts>,
    pub refused_publishers: RefusedPublishers,
    /// Unset without a recorder.
    pub recorder: OnceLock<RecorderCounts>,
    /// Whether the file of --config.file was last read and applied without an error. `None` without a file.
    pub config_reload: Mutex<Option<bool>>,
    /// Every source has been polled successfully once. That stays so when sources or publishers join.
    pub was_ready: AtomicBool,
    /// What discovery found at each address, as text for people.
    pub discovery: Mutex<Vec<(String, String)>>,
}

impl State {
    pub fn new(engines: Vec<EngineName>) -> Self {
        let state = Self {
            engines: Mutex::default(),
            gpus: Mutex::default(),
            host: Mutex::default(),
            counts: Arc::default(),
            refused_publishers: RefusedPublishers::default(),
            recorder: OnceLock::new(),
            config_reload: Mutex::default(),
            was_ready: AtomicBool::default(),
            discovery: Mutex::default(),
        };
        for (index, name) in engines.into_iter().enumerate() {
            state.add(&SourceIndex::new(index), name, EngineOrigin::default(), None);
        }
        state
    }

    /// Adds an engine of the source at `index`. `gpu_hour_cost`: the price of a GPU for an hour, in any currency.
    pub fn add(
        &self,
        index: &SourceIndex,
        name: EngineName,
        origin: EngineOrigin,
        gpu_hour_cost: Option<f64>,
    ) -> Arc<EngineSlot> {
        let counts = Arc::clone(&self.counts);
        let slot = Arc::new(EngineSlot::new(index.clone(), name, origin, gpu_hour_cost, counts));
        self.change_engines(|engines| {
            let behind = engines.partition_point(|other| other.order() <= slot.order());
            engines.insert(behind, Arc::clone(&slot));
        });
        slot
    }

    /// Removes an engine, and with it its series.
    pub fn remove(&self, slot: &Arc<EngineSlot>) {
        self.change_engines(|engines| engines.retain(|other| !Arc::ptr_eq(other, slot)));
    }

    /// Removes all engines of one source.
    pub fn remove_all(&self, index: &SourceIndex) {
        self.change_engines(|engines| engines.retain(|engine| !engine.index.is(index)));
    }

    /// Sorts the engines again after their positions have changed.
    pub fn sort(&self) {
        self.change_engines(|engines| engines.sort_by(|one, other| one.order().cmp(&other.order())));
    }

    /// Replaces the list of engines by a changed copy.
    fn change_engines(&self, change: impl FnOnce(&mut Vec<Arc<EngineSlot>>)) {
        let mut engines = self.engines.lock();
        change(Arc::make_mut(&mut engines));
        self.counts.current.store(engines.len(), Ordering::Relaxed);
    }

    /// The engines in page order, with their current states. The list stays the same until an engine joins or leaves.
    pub fn slots(&self) -> Arc<Vec<Arc<EngineSlot>>> {
        let engines = Arc::clone(&self.engines.lock());
        let now = tokio::time::Instant::now().into_std();
        // Readers do this, so that a driver that has died or hangs cannot keep old numbers on a page.
        engines.iter().for_each(|engine| engine.refresh_state(now));
        engines
    }

    pub fn publish_gpus(&self, inventory: GpuInventory) {
        *self.gpus.lock() = Arc::new(inventory);
    }

    pub fn gpus(&self) -> Arc<GpuInventory> {
        Arc::clone(&self.gpus.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use trtllm_fold::{EngineState, Health};

    #[test]
    fn a_reader_withdraws_the_numbers_of_a_driver_that_has_died() {
        let name = EngineName::new("m", "1", "test");
        let state = State::new(vec![name]);
        let long_ago = Instant::now() - Duration::from_secs(20);
        let mut health = Health::new(Duration::from_secs(15));
        health.answered(long_ago);
        health.record(long_ago, trtllm_fold::Outstanding::Yes, true);
        let slot = Arc::clone(&state.slots()[0]);
        let mut engine = slot.lock();
        (engine.state, engine.observed.fold.health) = (EngineState::Busy, health);
        drop(engine);
        assert_eq!(state.slots()[0].lock().state, EngineState::Unreachable);
    }
}
