//! An engine's fold with the analysis that listens to it.

use std::time::{Duration, Instant};

use trtllm_fold::{EngineFold, Implausible};
use trtllm_records::{
    IterationStats, Objectives, OrchestratorReading, PerfMetricsEntry, RequestStatsPerIteration, ServerMetrics,
};

use super::Analysis;

/// An engine: its totals and what is learned from it. Its methods are those of [`EngineFold`], with the analysis as the observer.
#[derive(Debug, Clone)]
pub struct ObservedEngine {
    pub fold: EngineFold,
    pub analysis: Analysis,
}

impl ObservedEngine {
    /// `stale_after`: time without news after which the engine is unreachable.
    #[must_use]
    pub fn new(stale_after: Duration) -> Self {
        Self { fold: EngineFold::new(stale_after), analysis: Analysis::default() }
    }

    /// Judges requests by these objectives.
    #[must_use]
    pub fn with_objectives(self, objectives: Objectives) -> Self {
        Self { analysis: Analysis::new(objectives), ..self }
    }

    /// # Errors
    /// See [`EngineFold::absorb`].
    pub fn absorb(&mut self, record: &IterationStats, now: Instant, wall_us: i64) -> Result<(), Implausible> {
        self.fold.absorb(record, now, wall_us, &mut self.analysis)
    }

    /// # Errors
    /// See [`EngineFold::absorb_requests`].
    pub fn absorb_requests(&mut self, rows: &RequestStatsPerIteration, now: Instant) -> Result<(), Implausible> {
        self.fold.absorb_requests(rows, now, &mut self.analysis)
    }

    /// # Errors
    /// See [`EngineFold::absorb_entry`].
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry, now: Instant) -> Result<(), Implausible> {
        self.fold.absorb_entry(entry, false, now, &mut self.analysis)
    }

    /// # Errors
    /// See [`EngineFold::absorb_entry`].
    pub fn absorb_span(&mut self, entry: &PerfMetricsEntry, now: Instant) -> Result<(), Implausible> {
        self.fold.absorb_entry(entry, true, now, &mut self.analysis)
    }

    pub fn absorb_server_metrics(&mut self, metrics: &ServerMetrics, now: Instant) {
        self.fold.absorb_server_metrics(metrics, now, &mut self.analysis);
    }

    pub fn absorb_orchestrator(&mut self, reading: &OrchestratorReading, now: Instant) {
        self.fold.absorb_orchestrator(reading, now);
    }

    /// See [`EngineFold::set_process`].
    pub fn set_process(&mut self, process: u64) {
        self.fold.set_process(process, &mut self.analysis);
    }

    /// See [`EngineFold::settle`].
    pub fn settle(&mut self, from_ring: bool, now: Instant) {
        self.fold.settle(from_ring, now, &mut self.analysis);
    }

    /// See [`EngineFold::settle_all`].
    pub fn settle_all(&mut self, now: Instant) {
        self.fold.settle_all(now, &mut self.analysis);
    }

    /// See [`EngineFold::resume`].
    pub fn resume(&mut self) {
        self.fold.resume(&mut self.analysis);
    }
}
