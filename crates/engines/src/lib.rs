//! The published data: an immutable snapshot per engine and one of all GPUs. Writers replace snapshots.

mod capacity;
mod engine;
mod judging;
mod slot;
mod source;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use trtllm_records::gpu::GpuInventory;
use trtllm_records::{EngineName, RecorderCounts, RefusedPublishers};

pub use engine::EngineSnapshot;
pub use judging::EngineJudgement;
pub use slot::{EngineOrigin, EngineSlot, KeptRecord, SourceIndex, copy_to_keep};

pub use source::{SourceMetrics, SourceStatus, StartPhase};
pub use trtllm_records::RECENT_RECORDS;

use judging::HostJudgement;
use slot::EngineCounts;

/// All engines, in the order of the page, and all GPUs.
#[derive(Debug)]
pub struct State {
    /// Replaced as a whole when an engine joins or leaves.
    engines: ArcSwap<Vec<Arc<EngineSlot>>>,
    gpus: ArcSwap<GpuInventory>,
    host: HostJudgement,
    counts: Arc<EngineCounts>,
    pub refused_publishers: RefusedPublishers,
    /// Unset without a recorder.
    pub recorder: OnceLock<RecorderCounts>,
    /// Whether the file of --config.file was last read and applied without an error. `None` without a file.
    pub config_reload: Mutex<Option<bool>>,
    /// What discovery found at each address, as text for people.
    pub discovery: ArcSwap<Vec<(String, String)>>,
}

impl State {
    #[must_use]
    pub fn new(engines: Vec<EngineName>) -> Self {
        let state = Self {
            engines: ArcSwap::default(),
            gpus: ArcSwap::from_pointee(GpuInventory::default()),
            host: HostJudgement::default(),
            counts: Arc::default(),
            refused_publishers: RefusedPublishers::default(),
            recorder: OnceLock::new(),
            config_reload: Mutex::default(),
            discovery: ArcSwap::default(),
        };
        for (index, name) in engines.into_iter().enumerate() {
            state.add(&SourceIndex::new(index), name);
        }
        state
    }

    /// Adds an engine of the source at `index`.
    pub fn add(&self, index: &SourceIndex, name: EngineName) -> Arc<EngineSlot> {
        let slot = Arc::new(EngineSlot::new(index.clone(), name, Arc::clone(&self.counts)));
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

    /// Sorts the engines again after their places have changed.
    pub fn sort(&self) {
        self.change_engines(|engines| engines.sort_by(|one, other| one.order().cmp(&other.order())));
    }

    /// Replaces the list of engines by a changed copy. `change` may run several times.
    fn change_engines(&self, change: impl Fn(&mut Vec<Arc<EngineSlot>>)) {
        self.engines.rcu(|engines| {
            let mut engines = Vec::clone(engines);
            change(&mut engines);
            engines
        });
        self.counts.present.store(self.engines.load().len(), Ordering::Relaxed);
    }

    /// The engines in page order, with their current states. The list stays the same until an engine joins or leaves.
    #[must_use]
    pub fn slots(&self) -> Arc<Vec<Arc<EngineSlot>>> {
        self.judge_ages(tokio::time::Instant::now().into_std());
        self.engines.load_full()
    }

    /// Updates the state of each engine to `now`. Readers call this, so that a driver that has died or hangs cannot keep old
    /// numbers on a page.
    fn judge_ages(&self, now: Instant) {
        for slot in self.engines.load().iter() {
            slot.judge_age(now);
        }
    }

    pub fn publish_gpus(&self, inventory: GpuInventory) {
        self.gpus.store(Arc::new(inventory));
    }

    /// All engines as they are now.
    pub fn engines(&self) -> impl Iterator<Item = (Arc<EngineSlot>, Arc<EngineSnapshot>)> + use<> {
        let engines = self.slots();
        (0..engines.len()).map(move |index| (Arc::clone(&engines[index]), engines[index].snapshot()))
    }

    #[must_use]
    pub fn gpus(&self) -> Arc<GpuInventory> {
        self.gpus.load_full()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let busy = EngineSnapshot { state: EngineState::Busy, health: Some(health), ..EngineSnapshot::starting() };
        state.slots()[0].publish(busy);
        assert_eq!(state.engines().next().unwrap().1.state, EngineState::Unreachable);
    }
}
