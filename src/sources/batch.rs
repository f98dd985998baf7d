//! What one poll of a source returns.

use std::sync::Arc;

use crate::model::iteration::{KvCacheIterationStats, KvCacheLifecycleStats};
use crate::model::kv_event::StoredBlock;
use crate::model::rows::Rows;
use crate::model::{
    BenchReport, EngineAbout, EngineSettings, IterationStats, KvCacheEvent, PerfMetricsEntry, RejectCounts,
    RejectReason, RequestStats, RequestStatsPerIteration, ServerMetrics,
};
use crate::recording::{Moment, Settled};

/// One message of an engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Record(Box<IterationStats>),
    Requests(RequestStatsPerIteration),
    PerfMetrics(Box<PerfMetricsEntry>),
    KvEvent(Box<KvCacheEvent>),
    ServerMetrics(Box<ServerMetrics>),
    BenchReport(Arc<BenchReport>),
    /// The process that sends the following items, as a number that no other process has.
    Process(u64),
    /// What a recording has besides messages of the engine.
    Recorded(Recorded),
}

/// What changed the fold while it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    /// When the following items were received. They are folded at this moment, not at the present.
    Received(Moment),
    /// A poll ended.
    Settled(Settled),
    /// A record that was not counted, because it has absurd values.
    Refused(Box<IterationStats>),
    About(Box<EngineAbout>),
    /// The whole fold, as JSON.
    Checkpoint(Box<str>),
}

impl Item {
    /// Approximate memory. The parts whose number a peer chooses are counted.
    #[must_use]
    pub fn weight(&self) -> usize {
        let rows = |rows: &Option<Vec<RequestStats>>| rows.as_ref().map_or(0, Vec::len) * size_of::<RequestStats>();
        size_of::<Self>()
            + match self {
                Self::Record(record) => {
                    let views = [
                        &record.kv_cache_iteration_stats,
                        &record.kv_cache_iteration_stats_by_pool_group,
                        &record.kv_cache_iteration_stats_by_cold_pool_group,
                    ];
                    let pools: usize = views.into_iter().flatten().map(Rows::len).sum();
                    let lifecycles = record.kv_cache_iteration_stats_by_lifecycle.as_ref().map_or(0, Rows::len);
                    size_of::<IterationStats>()
                        + rows(&record.request_stats)
                        + pools * size_of::<KvCacheIterationStats>()
                        + lifecycles * size_of::<KvCacheLifecycleStats>()
                }
                Self::Requests(requests) => rows(&requests.request_stats),
                Self::PerfMetrics(_) => size_of::<PerfMetricsEntry>(),
                Self::KvEvent(event) => {
                    let blocks = event.data.blocks.len() + event.data.block_hashes.len();
                    size_of::<KvCacheEvent>() + blocks * size_of::<StoredBlock>()
                }
                Self::ServerMetrics(_) | Self::BenchReport(_) | Self::Process(_) | Self::Recorded(_) => 0,
            }
    }
}

/// The items of one poll, in the order in which the engine sent them, and what else the poll found.
#[derive(Debug, Default)]
pub struct Batch {
    pub items: Vec<Item>,
    /// Approximate memory of the items that were pushed.
    weight: usize,
    pub rejected: RejectCounts,
    /// Facts about the engine, if any is new.
    pub about: Option<EngineAbout>,
    /// Connected publishers, for sources that listen.
    pub connections: Option<u64>,
    /// PIDs of the publishers, if all of them are visible here.
    pub processes: Vec<u32>,
    /// The poll has more to read once these items have been folded.
    pub more: bool,
    /// The records are what an engine's ring held, so a full ring can have lost some.
    pub from_ring: bool,
    /// The source has delivered its last item (the end of a replay).
    pub ended: bool,
}

impl Batch {
    /// Memory of the items that wait to be folded: thousands of records with request rows.
    const MAX_WEIGHT: usize = 16 << 20;

    /// Memory of the items after which they should be folded before more are parsed.
    const ENOUGH: usize = 1 << 20;

    /// Whether more items may be parsed before these are folded.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.weight < Self::ENOUGH
    }

    /// Adds an item, or counts it as rejected if the items before it take too much memory.
    pub fn push(&mut self, item: Item) {
        self.weight += item.weight();
        if self.weight <= Self::MAX_WEIGHT {
            self.items.push(item);
        } else {
            self.reject(RejectReason::TooMany);
        }
    }

    /// Empties the batch for the next poll. The memory of an unusually large poll is freed.
    pub fn clear(&mut self) {
        const KEEP: usize = 4096;
        self.items.clear();
        self.items.shrink_to(KEEP);
        *self = Self { items: std::mem::take(&mut self.items), ..Self::default() };
    }

    /// Replaces the settings of the engine. A publisher without settings changes nothing.
    pub(super) fn update_settings(&mut self, settings: EngineSettings) {
        if !settings.is_empty() {
            self.about = Some(EngineAbout { settings, ..EngineAbout::default() });
        }
    }

    /// Takes the items to fold them, maybe before the poll ends.
    pub fn drain(&mut self) -> impl Iterator<Item = Item> {
        (self.weight, self.more) = (0, false);
        self.items.drain(..)
    }

    pub fn reject(&mut self, reason: RejectReason) {
        self.rejected[reason as usize] += 1;
    }
}

/// Whether an engine is behind the source. None of these is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The engine or its publisher answered, with or without items.
    Present,
    /// The source listens, and no publisher is connected.
    Disconnected,
    /// The publisher of this engine left so long ago that the engine ends.
    Forgotten,
    /// The engine is still loading its model; it has no statistics yet.
    Loading,
}
