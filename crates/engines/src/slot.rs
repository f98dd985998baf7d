//! The slot of one engine in the state: its last snapshot and its last records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::engine::EngineSnapshot;
use super::judging::EngineJudgement;
use trtllm_analysis::ObservedEngine;
use trtllm_fold::batch_time::TimedBatch;
use trtllm_records::gpu::{EngineGpus, GpuInventory};
use trtllm_records::rows::PoolRows;
use trtllm_records::{EngineName, IterationStats, RECENT_RECORDS};

/// Maximum number of KV cache windows and levels of a kept record. Engines have one to four; more would take too much memory.
const KEPT_WINDOWS: usize = 4;
/// Maximum number of records that are kept of all engines together. With more than 16 engines, each keeps fewer than
/// [`RECENT_RECORDS`].
const RECORDS_OF_ALL: usize = 16 * RECENT_RECORDS;

/// Maximum number of readers that wait for a copy of a fold at the same time. A copy is large: it has the timeline and the
/// costs of the engine.
const MOST_FOLD_READERS: usize = 4;

/// Numbers of engines.
#[derive(Debug, Default)]
pub(super) struct EngineCounts {
    /// Number of engines that were ever added.
    joined: AtomicU64,
    /// Number of engines now.
    pub(super) present: AtomicUsize,
}

/// The position of a source in the configuration. A reload may change it.
#[derive(Debug, Clone)]
pub struct SourceIndex(Arc<AtomicUsize>);

impl SourceIndex {
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(index)))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// [`super::State::sort`] must be called once all places are set.
    pub fn set(&self, index: usize) {
        self.0.store(index, Ordering::Relaxed);
    }
}

/// Where an engine runs, as far as its source knows.
#[derive(Debug, Clone, Default)]
pub struct EngineOrigin {
    /// UUIDs of its GPUs, if they are configured.
    pub gpus: Vec<String>,
    /// The engine runs in this process.
    pub is_own_process: bool,
    /// The engine's server listens on this port of this host.
    pub port: Option<u16>,
}

/// One engine, written by its intake and read by all pages. Readers never wait.
#[derive(Debug)]
pub struct EngineSlot {
    pub name: EngineName,
    /// Unique, even if an engine with the same name is added later.
    pub id: u64,
    pub(super) index: SourceIndex,
    origin: OnceLock<EngineOrigin>,
    gpu_hour_cost: OnceLock<f64>,
    gpus: ArcSwapOption<EngineGpus>,
    /// The GPUs with which the engine was last judged, until the recorder takes them.
    inventory: ArcSwapOption<GpuInventory>,
    snapshot: ArcSwap<EngineSnapshot>,
    /// The previous snapshot. Its memory is reused for the next one. Only writers lock it.
    previous: Mutex<Option<Arc<EngineSnapshot>>>,
    /// The last records as received, oldest first. Scrapes do not read them.
    recent: Mutex<VecDeque<KeptRecord>>,
    pub(super) judged: Mutex<EngineJudgement>,
    counts: Arc<EngineCounts>,
    /// Readers that need more than the snapshot. The owner of the fold makes one copy for each reader when it publishes
    /// the next time, so nothing is copied while nobody asks.
    fold_readers: Mutex<Vec<Sender<Box<ObservedEngine>>>>,
}

impl EngineSlot {
    pub(super) fn new(index: SourceIndex, name: EngineName, counts: Arc<EngineCounts>) -> Self {
        Self {
            name,
            id: counts.joined.fetch_add(1, Ordering::Relaxed),
            index,
            origin: OnceLock::new(),
            gpu_hour_cost: OnceLock::new(),
            gpus: ArcSwapOption::empty(),
            inventory: ArcSwapOption::empty(),
            snapshot: ArcSwap::from_pointee(EngineSnapshot::starting()),
            previous: Mutex::default(),
            recent: Mutex::default(),
            judged: Mutex::default(),
            counts,
            fold_readers: Mutex::default(),
        }
    }

    /// The order of the page: by the position of the source, then by model and version, with version 10 after 9.
    pub(super) fn order(&self) -> impl Ord {
        let EngineName { model, version, .. } = &self.name;
        (self.index.0.load(Ordering::Relaxed), model, version.len(), version)
    }

    #[must_use]
    pub fn snapshot(&self) -> Arc<EngineSnapshot> {
        self.snapshot.load_full()
    }

    pub fn publish(&self, snapshot: EngineSnapshot) {
        self.update(|engine| *engine = snapshot);
    }

    /// Lets `write` set all values of the next snapshot in place. A snapshot is about 60 KB, and passing it by value would
    /// use that much of the stack of each thread.
    pub fn update(&self, write: impl FnOnce(&mut EngineSnapshot)) {
        let mut previous = self.previous.lock();
        // The previous snapshot cannot be reused while a slow reader holds it.
        let spare = previous.take().filter(|spare| Arc::strong_count(spare) == 1);
        let mut next = spare.unwrap_or_else(|| Arc::new(EngineSnapshot::starting()));
        if let Some(snapshot) = Arc::get_mut(&mut next) {
            write(snapshot);
        }
        *previous = Some(self.snapshot.swap(next));
    }

    /// Asks for a copy of the fold. It arrives when the engine is published next. Fails at once if too many readers wait.
    pub fn read_fold(&self) -> Receiver<Box<ObservedEngine>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.fold_readers.lock();
        waiting.retain(|reader| !reader.is_closed());
        if waiting.len() < MOST_FOLD_READERS {
            waiting.push(sender);
        }
        receiver
    }

    /// Sends a copy of the fold to each waiting reader.
    pub fn publish_fold(&self, fold: &ObservedEngine) {
        for reader in self.fold_readers.lock().drain(..) {
            let _ = reader.send(Box::new(fold.clone()));
        }
    }

    /// Updates the state of the engine to `now`.
    pub(super) fn judge_age(&self, now: Instant) {
        let published = self.snapshot.load();
        // If a poll has ended since `now`, it has already set the state.
        let older = published.health.filter(|health| health.last_answer().is_some_and(|last| last < now));
        let state = older.map_or(published.state, |health| health.state(now));
        if state != published.state {
            self.publish(EngineSnapshot { state, ..EngineSnapshot::clone(&published) });
        }
    }

    /// Sets where the engine runs. Only the first call has an effect.
    pub fn set_origin(&self, origin: EngineOrigin) {
        let _ = self.origin.set(origin);
    }

    /// Sets the price of a GPU for an hour, in any currency. Only the first call has an effect.
    pub fn set_gpu_hour_cost(&self, cost: Option<f64>) {
        if let Some(cost) = cost {
            let _ = self.gpu_hour_cost.set(cost);
        }
    }

    #[must_use]
    pub fn gpu_hour_cost(&self) -> Option<f64> {
        self.gpu_hour_cost.get().copied()
    }

    #[must_use]
    pub fn origin(&self) -> Option<&EngineOrigin> {
        self.origin.get()
    }

    /// The GPUs that serve this engine, if they are known.
    #[must_use]
    pub fn gpus(&self) -> Option<Arc<EngineGpus>> {
        self.gpus.load_full()
    }

    pub fn publish_gpus(&self, gpus: Option<EngineGpus>) {
        self.gpus.store(gpus.map(Arc::new));
    }

    /// Takes the GPUs with which the engine was last judged. `None` until the engine is judged again.
    #[must_use]
    pub fn take_inventory(&self) -> Option<Arc<GpuInventory>> {
        self.inventory.swap(None)
    }

    pub(super) fn offer_inventory(&self, inventory: &Arc<GpuInventory>) {
        self.inventory.store(Some(Arc::clone(inventory)));
    }

    /// Keeps the last of these records for the API, without the parts that are large or unbounded.
    pub fn keep_records(&self, records: Vec<(Box<IterationStats>, Option<TimedBatch>)>) {
        let most = RECENT_RECORDS.min(RECORDS_OF_ALL / self.counts.present.load(Ordering::Relaxed).max(1)).max(1);
        let old = records.len().saturating_sub(most);
        let kept: Vec<KeptRecord> = records
            .into_iter()
            .skip(old)
            .map(|(mut record, timed)| {
                drop_large_parts(&mut record);
                KeptRecord { record: Arc::new(*record), timed }
            })
            .collect();
        let mut recent = self.recent.lock();
        let room = most.saturating_sub(kept.len());
        let old = recent.len().saturating_sub(room);
        recent.drain(..old);
        recent.extend(kept);
    }

    /// The last `count` records, oldest first.
    #[must_use]
    pub fn recent_records(&self, count: usize) -> Vec<KeptRecord> {
        let recent = self.recent.lock();
        recent.iter().skip(recent.len().saturating_sub(count)).cloned().collect()
    }
}

/// A record, and the batch whose time it told: its own, or the one before.
#[derive(Debug, Clone)]
pub struct KeptRecord {
    pub record: Arc<IterationStats>,
    pub timed: Option<TimedBatch>,
}

/// A copy for [`EngineSlot::keep_records`], without the parts that this function drops.
#[must_use]
pub fn copy_to_keep(record: &mut IterationStats) -> Box<IterationStats> {
    let large = (
        record.request_stats.take(),
        record.kv_cache_iteration_stats_by_pool_group.take(),
        record.kv_cache_iteration_stats_by_cold_pool_group.take(),
        record.kv_cache_iteration_stats_by_lifecycle.take(),
    );
    let copy = Box::new(record.clone());
    (
        record.request_stats,
        record.kv_cache_iteration_stats_by_pool_group,
        record.kv_cache_iteration_stats_by_cold_pool_group,
        record.kv_cache_iteration_stats_by_lifecycle,
    ) = large;
    copy
}

/// The fields of KV cache manager V2 take more memory than the rest of a record. The numbers of request rows, windows
/// and cache levels have no bound.
fn drop_large_parts(record: &mut IterationStats) {
    record.request_stats = None;
    record.kv_cache_iteration_stats_by_pool_group = None;
    record.kv_cache_iteration_stats_by_cold_pool_group = None;
    record.kv_cache_iteration_stats_by_lifecycle = None;
    record.kv_cache_iteration_stats.take_if(|windows| windows.len() > KEPT_WINDOWS);
    // Most records have one window, in a vector with capacity for four.
    record.kv_cache_iteration_stats.iter_mut().for_each(PoolRows::shrink_to_fit);
    record.iter_cached_tokens_by_level.take_if(|levels| levels.len() > KEPT_WINDOWS);
    record.kv_cache_level_tiers.take_if(|tiers| tiers.len() > KEPT_WINDOWS || tiers.iter().any(|tier| tier.len() > 64));
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn all_engines_together_keep_a_bounded_number_of_records() {
        for (engines, each) in [(1, RECENT_RECORDS), (16, RECENT_RECORDS), (64, 32), (5000, 1)] {
            let state = State::new(vec![EngineName::new("m", "1", "test"); engines]);
            let slot = &state.slots()[0];
            for _ in 0..2 {
                let record = |iter| Box::new(IterationStats { iter: Some(iter), ..Default::default() });
                slot.keep_records((0..100).map(|iter| (record(iter), None)).collect());
            }
            let kept = slot.recent_records(usize::MAX);
            assert_eq!((kept.len(), kept[kept.len() - 1].record.iter), (each, Some(99)), "{engines} engines");
        }
    }
}
