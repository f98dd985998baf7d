//! The slot of one engine in the list: its lock and its last records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::engine::{Engine, KeptRecord};
use super::judgement::EngineJudgement;
use trtllm_records::gpu::PodName;
use trtllm_records::{EngineName, IterationStats, RECENT_RECORDS};

/// Maximum number of KV cache windows and levels of a kept record. Engines have one to four; more would take too much memory.
const KEPT_WINDOWS: usize = 4;
/// Maximum number of records that are kept of all engines together. With more than 16 engines, each keeps fewer than
/// [`RECENT_RECORDS`].
const RECORDS_OF_ALL: usize = 16 * RECENT_RECORDS;

/// Numbers of engines.
#[derive(Debug, Default)]
pub(super) struct EngineCounts {
    /// Number of engines that were ever added.
    joined: AtomicU64,
    /// Number of engines now.
    pub(super) current: AtomicUsize,
}

/// The position of a source in the configuration. A reload may change it.
#[derive(Debug, Clone)]
pub struct SourceIndex(Arc<AtomicUsize>);

impl SourceIndex {
    pub fn new(index: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(index)))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// [`super::State::sort`] must be called once all positions are set.
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
    /// The pod of the engine's server, if Kubernetes told of it.
    pub pod: Option<PodName>,
    /// A search found the engine, so it may appear and disappear while the exporter runs.
    pub is_found: bool,
}

/// An engine while its slot is locked.
pub type LockedEngine<'a> = MutexGuard<'a, Box<Engine>>;

/// One engine of the list. Its intake folds at most 256 KiB of messages under the lock, and a page copies its samples.
#[derive(Debug)]
pub struct EngineSlot {
    pub name: EngineName,
    /// Unique, even if an engine with the same name is added later.
    pub id: u64,
    pub(super) index: SourceIndex,
    pub origin: EngineOrigin,
    /// The price of a GPU for an hour, in any currency.
    pub gpu_hour_cost: Option<f64>,
    /// Boxed because it takes tens of kilobytes.
    engine: Mutex<Box<Engine>>,
    /// What is concluded from the engine. It may be locked while the engine is, never the other way round.
    pub(super) judged: Mutex<EngineJudgement>,
    counts: Arc<EngineCounts>,
}

impl EngineSlot {
    pub(super) fn new(
        index: SourceIndex,
        name: EngineName,
        origin: EngineOrigin,
        gpu_hour_cost: Option<f64>,
        counts: Arc<EngineCounts>,
    ) -> Self {
        Self {
            name,
            id: counts.joined.fetch_add(1, Ordering::Relaxed),
            index,
            origin,
            gpu_hour_cost,
            engine: Mutex::new(Box::new(Engine::starting())),
            judged: Mutex::default(),
            counts,
        }
    }

    /// The engine, locked. A thread that holds the lock must not ask for it again.
    pub fn lock(&self) -> LockedEngine<'_> {
        self.engine.lock()
    }

    /// The order of the page: by the position of the source, then by model, version and labels, with version 10 after 9.
    pub(super) fn order(&self) -> impl Ord {
        let EngineName { model, version, labels, .. } = &self.name;
        (self.index.0.load(Ordering::Relaxed), model, version.len(), version, labels)
    }

    /// Updates the state of the engine to `now`.
    pub(super) fn refresh_state(&self, now: Instant) {
        let engine = &mut **self.lock();
        let health = &engine.observed.fold.health;
        // If a poll has ended since `now`, it has already set the state.
        if health.last_answer.is_some_and(|last| last < now) {
            engine.state = health.state(now);
        }
    }

    /// The highest number of records that are kept of each engine.
    pub fn most_records(&self) -> usize {
        RECENT_RECORDS.min(RECORDS_OF_ALL / self.counts.current.load(Ordering::Relaxed).max(1)).max(1)
    }
}

impl Engine {
    /// Keeps a copy of the record that was folded last for the API. `most`: see [`EngineSlot::most_records`].
    pub fn keep_record(&mut self, record: &mut IterationStats, most: usize) {
        let first = (self.recent.len() + 1).saturating_sub(most);
        self.recent.drain(..first);
        let (record, timed) = (Arc::new(copy_without_large_parts(record)), self.observed.fold.timed_batch);
        self.recent.push_back(KeptRecord { record, timed });
    }

    /// The last `count` records, oldest first.
    pub fn recent_records(&self, count: usize) -> Vec<KeptRecord> {
        self.recent.iter().skip(self.recent.len().saturating_sub(count)).cloned().collect()
    }
}

/// The fields of KV cache manager V2 take more memory than the rest of a record. The numbers of request rows, windows
/// and cache levels have no bound.
fn copy_without_large_parts(record: &mut IterationStats) -> IterationStats {
    let large = (
        record.request_stats.take(),
        record.kv_cache_iteration_stats_by_pool_group.take(),
        record.kv_cache_iteration_stats_by_cold_pool_group.take(),
        record.kv_cache_iteration_stats_by_lifecycle.take(),
    );
    let mut copy = record.clone();
    (
        record.request_stats,
        record.kv_cache_iteration_stats_by_pool_group,
        record.kv_cache_iteration_stats_by_cold_pool_group,
        record.kv_cache_iteration_stats_by_lifecycle,
    ) = large;
    copy.kv_cache_iteration_stats.take_if(|windows| windows.0.len() > KEPT_WINDOWS);
    copy.iter_cached_tokens_by_level.take_if(|levels| levels.len() > KEPT_WINDOWS);
    copy.kv_cache_level_tiers.take_if(|tiers| tiers.len() > KEPT_WINDOWS || tiers.iter().any(|tier| tier.len() > 64));
    copy
}

#[cfg(test)]
mod tests {
    use super::super::state::State;
    use super::*;

    #[test]
    fn all_engines_together_keep_a_bounded_number_of_records() {
        for (engines, each) in [(1, RECENT_RECORDS), (16, RECENT_RECORDS), (64, 32), (5000, 1)] {
            let state = State::new(vec![EngineName::new("m", "1", "test"); engines]);
            let slot = &state.slots()[0];
            for _ in 0..2 {
                for iter in 0..100 {
                    let mut record = IterationStats { iter: Some(iter), ..Default::default() };
                    slot.lock().keep_record(&mut record, slot.most_records());
                }
            }
            let kept = slot.lock().recent_records(usize::MAX);
            assert_eq!((kept.len(), kept[kept.len() - 1].record.iter), (each, Some(99)), "{engines} engines");
        }
    }
}
