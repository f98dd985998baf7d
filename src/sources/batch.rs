//! What one poll of a source returns.

use std::sync::Arc;

use crate::model::{
    BenchReport, EngineAbout, IterationStats, KvCacheEvent, PerfMetricsEntry, RejectCounts, RejectReason,
    RequestStatsPerIteration, ServerMetrics,
};

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
}

/// The items of one poll, in the order in which the engine sent them, and what else the poll found.
#[derive(Debug, Default)]
pub struct Batch {
    pub items: Vec<Item>,
    pub rejected: RejectCounts,
    /// Facts about the engine, if any is new.
    pub about: Option<EngineAbout>,
    /// Connected publishers, for sources that listen.
    pub connections: Option<u64>,
    /// The source has delivered its last item (the end of a replay).
    pub ended: bool,
}

impl Batch {
    /// Empties the batch for the next poll. The memory of an unusually large poll is freed.
    pub fn clear(&mut self) {
        const KEEP: usize = 4096;
        self.items.clear();
        self.items.shrink_to(KEEP);
        *self = Self { items: std::mem::take(&mut self.items), ..Self::default() };
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
    /// The engine is still loading its model; it has no statistics yet.
    Loading,
}
