//! The published data: an immutable snapshot per engine and one of all GPUs. Writers replace snapshots; readers never wait.

mod source;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::engine::lifecycle::Stages;
use crate::engine::requests::RequestTotals;
use crate::engine::{Engine, EngineState, Health, Latest, Totals};
use crate::model::gpu::GpuInventory;
use crate::model::{EngineAbout, IterationStats};
use crate::shutdown::Shutdown;

pub use source::{SourceMetrics, SourceStatus};

/// The identity of an engine: the labels of its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineName {
    pub model: String,
    pub version: String,
    /// Static labels from the configuration. Their names are valid and differ from the exporter's own.
    pub labels: Vec<(String, String)>,
    /// The kind of source, e.g. `trtllm-serve`; never a URL.
    pub source: &'static str,
    /// The engine was not configured (the default ingest socket). It is hidden until a publisher has connected.
    pub implicit: bool,
}

#[cfg(test)]
impl EngineName {
    /// Model `m`, version `1`.
    pub(crate) fn of_a_test() -> Self {
        Self { model: "m".to_owned(), version: "1".to_owned(), labels: Vec::new(), source: "test", implicit: false }
    }
}

/// One engine at one moment.
#[derive(Debug, Clone)]
pub struct EngineSnapshot {
    pub state: EngineState,
    /// Gives the state at a later time. Absent before the first poll.
    pub health: Option<Health>,
    pub latest: Option<Latest>,
    pub totals: Totals,
    pub requests: RequestTotals,
    /// Requests by stage, if the engine reports its requests.
    pub stages: Option<Stages>,
    pub source: SourceStatus,
    pub about: EngineAbout,
}

impl EngineSnapshot {
    /// The snapshot before the first poll.
    #[must_use]
    pub fn starting() -> Self {
        Self {
            state: EngineState::Starting,
            health: None,
            latest: None,
            totals: Totals::new(),
            requests: RequestTotals::new(),
            stages: None,
            source: SourceStatus::default(),
            about: EngineAbout::default(),
        }
    }

    /// Replaces all values in place.
    pub fn write(&mut self, state: EngineState, engine: &Engine, source: &SourceStatus, about: &EngineAbout) {
        self.state = state;
        self.health = Some(engine.health);
        self.latest = engine.latest().copied();
        self.totals.clone_from(&engine.totals);
        self.requests.clone_from(&engine.requests.totals);
        self.stages = engine.stages();
        self.source.clone_from(source);
        self.about.clone_from(about);
    }
}

/// Records kept per engine for the API, about 150 KB.
pub const RECENT_RECORDS: usize = 128;
/// KV cache windows and levels of a kept record. Engines have one to four; more would take too much memory.
const KEPT_WINDOWS: usize = 4;

/// All engines, in configured order, and all GPUs.
#[derive(Debug)]
pub struct State {
    engines: Vec<Slot>,
    gpus: ArcSwap<GpuInventory>,
    generation: AtomicU64,
    engine_changes: AtomicU64,
    gpu_changes: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    name: EngineName,
    snapshot: ArcSwap<EngineSnapshot>,
    /// The previous snapshot. Its memory is reused for the next one. Only writers lock it.
    previous: Mutex<Option<Arc<EngineSnapshot>>>,
    /// The last records as received, oldest first. Scrapes do not read them.
    recent: Mutex<VecDeque<Arc<IterationStats>>>,
}

impl State {
    #[must_use]
    pub fn new(engines: Vec<EngineName>) -> Self {
        let slot = |name| Slot {
            name,
            snapshot: ArcSwap::from_pointee(EngineSnapshot::starting()),
            previous: Mutex::default(),
            recent: Mutex::default(),
        };
        Self {
            engines: engines.into_iter().map(slot).collect(),
            gpus: ArcSwap::from_pointee(GpuInventory::default()),
            generation: AtomicU64::new(1),
            engine_changes: AtomicU64::new(0),
            gpu_changes: AtomicU64::new(0),
        }
    }

    /// Grows with every change. Two equal generations have equal data.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.judge_ages(tokio::time::Instant::now().into_std());
        self.generation.load(Ordering::Acquire)
    }

    /// Grows with every change of an engine. Engines that are read after this number are at least as new.
    #[must_use]
    pub fn engine_changes(&self) -> u64 {
        self.engine_changes.load(Ordering::Acquire)
    }

    /// Like [`State::engine_changes`], for the GPUs.
    #[must_use]
    pub fn gpu_changes(&self) -> u64 {
        self.gpu_changes.load(Ordering::Acquire)
    }

    pub fn publish_engine(&self, index: usize, snapshot: EngineSnapshot) {
        self.update_engine(index, |engine| *engine = snapshot);
    }

    /// Lets `write` set all values of an engine's next snapshot in place. A snapshot is about 60 KB, and passing it by value
    /// would use that much of the stack of each thread.
    pub fn update_engine(&self, index: usize, write: impl FnOnce(&mut EngineSnapshot)) {
        let Some(slot) = self.engines.get(index) else { return };
        let mut previous = slot.previous.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow reader may still hold it. Then it cannot be reused.
        let spare = previous.take().filter(|spare| Arc::strong_count(spare) == 1);
        let mut next = spare.unwrap_or_else(|| Arc::new(EngineSnapshot::starting()));
        if let Some(snapshot) = Arc::get_mut(&mut next) {
            write(snapshot);
        }
        *previous = Some(slot.snapshot.swap(next));
        self.engine_changes.fetch_add(1, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Updates the state of each engine to `now`. Readers call this, so that a driver that has died or hangs cannot keep old
    /// numbers on a page.
    fn judge_ages(&self, now: Instant) {
        for (index, slot) in self.engines.iter().enumerate() {
            let published = slot.snapshot.load();
            // A poll may end while this runs.
            let older = published.health.filter(|health| health.last_answer().is_some_and(|last| last < now));
            let state = older.map_or(published.state, |health| health.state(now));
            if state != published.state {
                let current = EngineSnapshot { state, ..EngineSnapshot::clone(&published) };
                self.publish_engine(index, current);
            }
        }
    }

    /// Keeps the last of these records for the API, without the parts that are large or unbounded.
    pub fn keep_records(&self, index: usize, records: Vec<Box<IterationStats>>) {
        let Some(slot) = self.engines.get(index) else { return };
        let old = records.len().saturating_sub(RECENT_RECORDS);
        let kept: Vec<Arc<IterationStats>> = records
            .into_iter()
            .skip(old)
            .map(|mut record| {
                drop_large_parts(&mut record);
                Arc::new(*record)
            })
            .collect();
        let mut recent = slot.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let room = RECENT_RECORDS.saturating_sub(kept.len());
        let old = recent.len().saturating_sub(room);
        recent.drain(..old);
        recent.extend(kept);
    }

    /// The last `count` records of the engine at `index` in [`State::all_engines`], oldest first.
    #[must_use]
    pub fn recent_records(&self, index: usize, count: usize) -> Vec<Arc<IterationStats>> {
        let Some(slot) = self.engines.get(index) else { return Vec::new() };
        let recent = slot.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().skip(recent.len().saturating_sub(count)).cloned().collect()
    }

    pub fn publish_gpus(&self, inventory: GpuInventory) {
        self.gpus.store(Arc::new(inventory));
        self.gpu_changes.fetch_add(1, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Invalidates cached pages once a second, even if nothing is polled: the metrics of the process change too.
    pub async fn keep_fresh(self: Arc<Self>, mut shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = ticks.tick() => self.generation.fetch_add(1, Ordering::Release),
                () = shutdown.wait() => return,
            };
        }
    }

    /// All engines, including those that are not on the page.
    pub fn all_engines(&self) -> impl Iterator<Item = (&EngineName, Arc<EngineSnapshot>)> {
        self.judge_ages(tokio::time::Instant::now().into_std());
        self.engines.iter().map(|slot| (&slot.name, slot.snapshot.load_full()))
    }

    /// The engines on the page.
    pub fn engines(&self) -> impl Iterator<Item = (&EngineName, Arc<EngineSnapshot>)> {
        self.all_engines().filter(|(name, snapshot)| Self::on_page(name, snapshot))
    }

    /// An engine that was not configured is on the page once its source has succeeded.
    #[must_use]
    pub fn on_page(name: &EngineName, snapshot: &EngineSnapshot) -> bool {
        !name.implicit || snapshot.source.last_success_us.is_some()
    }

    #[must_use]
    pub fn gpus(&self) -> Arc<GpuInventory> {
        self.gpus.load_full()
    }
}

/// The views of KV cache manager V2 take more memory than the rest of a record. The numbers of request rows, windows and cache
/// levels have no bound.
fn drop_large_parts(record: &mut IterationStats) {
    record.request_stats = None;
    record.kv_cache_iteration_stats_by_pool_group = None;
    record.kv_cache_iteration_stats_by_cold_pool_group = None;
    record.kv_cache_iteration_stats_by_lifecycle = None;
    record.kv_cache_iteration_stats.take_if(|windows| windows.len() > KEPT_WINDOWS);
    record.iter_cached_tokens_by_level.take_if(|levels| levels.len() > KEPT_WINDOWS);
    record.kv_cache_level_tiers.take_if(|tiers| tiers.len() > KEPT_WINDOWS || tiers.iter().any(|tier| tier.len() > 64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_withdraws_the_numbers_of_a_driver_that_has_died() {
        let name = EngineName::of_a_test();
        let state = State::new(vec![name]);
        let long_ago = Instant::now() - Duration::from_secs(20);
        let mut health = Health::new(Duration::from_secs(15));
        health.answered(long_ago);
        health.record(long_ago, crate::engine::Outstanding::Yes);
        let busy = EngineSnapshot { state: EngineState::Busy, health: Some(health), ..EngineSnapshot::starting() };
        state.publish_engine(0, busy);
        let before = state.engine_changes();
        let _ = state.generation();
        assert!(state.engine_changes() > before, "pages are rendered again");
        assert_eq!(state.engines().next().unwrap().1.state, EngineState::Unreachable);
    }
}
