//! What `report` keeps between the records of an engine.

use crate::passes::Intake;
use crate::random::Random;
use crate::record::{CacheCounts, Entry, Row};

/// State that is kept between records.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) random: Random,
    pub(crate) now: f64,
    /// Entries of requests that ended in this step.
    pub(crate) entries: Vec<Entry>,
    /// C++: when the running batch started; seconds, completed and new requests of the batch before it.
    pub(crate) pass_start: f64,
    pub(crate) pass_seconds: f64,
    pub(crate) completed: u32,
    pub(crate) new_active: u32,
    /// Rows of ended requests that no record has reported.
    pub(crate) unreported: Vec<Row>,
    /// The requests that became active since the last record. With PyTorch, their seconds are those since the start.
    pub(crate) intake: Intake,
    /// For each rank, how many requests ended since the last record.
    pub(crate) done: Vec<u32>,
    pub(crate) cache_reported: Vec<CacheCounts>,
    pub(crate) sequence: u64,
}

impl Writer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), ..Self::default() }
    }

    /// Resets the state, as if a new process had replaced the engine's process.
    pub(crate) fn restart(&mut self) {
        let random = self.random.next_u64();
        *self = Self { now: self.now, pass_start: self.now, ..Self::new(random) };
    }
}
