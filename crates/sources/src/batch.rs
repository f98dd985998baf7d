//! What one poll of a source returns.

use std::sync::Arc;

use trtllm_model::kv_event::{BlockHash, KvCacheEventData, StoredBlock};
use trtllm_model::rows::Rows;
use trtllm_model::server_metrics::ServerCount;
use trtllm_model::{
    BenchReport, EngineAbout, EngineSettings, IterationStats, KvCacheEvent, PerfMetricsEntry, RejectCounts,
    RejectReason, RequestStatsPerIteration, ServerMetrics,
};
use trtllm_recording::{Moment, Settled};

/// Bytes of the text of a counter, such as an HTTP status.
const MAX_TEXT: usize = 64;

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
    /// Messages of the engine are missing here: they were not recorded, or another exporter continued the recording.
    Gap,
}

impl Item {
    /// Approximate memory. The parts whose number or length a peer chooses are counted.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Record(record) => weight_of_record(record),
                Self::Requests(requests) => weight_of(requests.request_stats.as_ref()),
                Self::PerfMetrics(entry) => {
                    let parts = [&entry.ctx_perf_metrics, &entry.gen_perf_metrics].into_iter().flatten().count();
                    (1 + parts) * size_of::<PerfMetricsEntry>()
                }
                Self::KvEvent(event) => {
                    let KvCacheEventData { blocks, block_hashes, .. } = &event.data;
                    size_of::<KvCacheEvent>()
                        + blocks.capacity() * size_of::<StoredBlock>()
                        + block_hashes.capacity() * size_of::<BlockHash>()
                }
                Self::ServerMetrics(page) => page.counts.capacity() * (size_of::<ServerCount>() + MAX_TEXT),
                Self::BenchReport(_) | Self::Process(_) | Self::Recorded(_) => 0,
            }
    }
}

fn weight_of<T>(array: Option<&Vec<T>>) -> usize {
    array.map_or(0, Vec::capacity) * size_of::<T>()
}

fn weight_of_record(record: &IterationStats) -> usize {
    let pools = [
        &record.kv_cache_iteration_stats,
        &record.kv_cache_iteration_stats_by_pool_group,
        &record.kv_cache_iteration_stats_by_cold_pool_group,
    ];
    let lifecycles = record.kv_cache_iteration_stats_by_lifecycle.as_ref();
    let levels = lifecycles.into_iter().flat_map(Rows::values).map(|row| {
        weight_of(row.iter_full_reused_blocks_by_level.as_ref())
            + weight_of(row.iter_partial_reused_blocks_by_level.as_ref())
    });
    let tiers = record.kv_cache_level_tiers.as_ref();
    size_of::<IterationStats>()
        + weight_of(record.request_stats.as_ref())
        + pools.into_iter().flatten().map(Rows::weight).sum::<usize>()
        + lifecycles.map_or(0, Rows::weight)
        + levels.sum::<usize>()
        + weight_of(record.iter_cached_tokens_by_level.as_ref())
        + weight_of(tiers)
        + tiers.into_iter().flatten().map(String::capacity).sum::<usize>()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part that a peer chooses the size of weighs at least what it takes in memory.
    #[test]
    fn what_a_peer_makes_an_item_keep_is_weighed() {
        let weight = |text: &str| Item::Record(serde_json::from_str(text).unwrap()).weight();
        let (plain, many) = (weight("{\"iter\":1}"), |element: &str| vec![element; 64].join(","));
        for (part, bytes) in [
            (format!("\"requestStats\":[{}]", many("{}")), 64 * 100),
            (format!("\"kvCacheLevelTiers\":[{}]", many("\"sixteen-letters!\"")), 64 * 40),
            (format!("\"iterCachedTokensByLevel\":[{}]", many("1")), 64 * 8),
            (format!("\"kvCacheIterationStats\":{{{}}}", many("\"a\":{}")), 64 * 200),
            (
                format!(
                    "\"kvCacheIterationStatsByLifecycle\":{{\"\":{{\"iterFullReusedBlocksByLevel\":[{}]}}}}",
                    many("1")
                ),
                64 * 8,
            ),
        ] {
            let more = weight(&format!("{{\"iter\":1,{part}}}")) - plain;
            assert!(more >= bytes, "{part} weighs {more}");
        }
        let entry = |text: &str| Item::PerfMetrics(serde_json::from_str(text).unwrap()).weight();
        let parts = entry("{\"ctx_perf_metrics\":{},\"gen_perf_metrics\":{}}") - entry("{}");
        assert_eq!(parts, 2 * size_of::<PerfMetricsEntry>());
    }
}
