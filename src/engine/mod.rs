//! One engine: records in, monotonic totals and a state out. Pure: no I/O, no async, no locks, time is an argument.
//! The one owner of an engine's numbers; it knows neither where records come from nor how they are shown.

pub mod cumulative;
pub mod epoch;
pub mod health;
pub mod histogram;
pub mod latest;
pub mod requests;
pub mod totals;

use std::time::{Duration, Instant};

use crate::model::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};

pub use health::{EngineState, Health, Outstanding};
pub use latest::Latest;
pub use totals::Totals;

use epoch::{Epoch, Standing};
use requests::RequestTotals;

/// The fold of one engine.
#[derive(Debug)]
pub struct Engine {
    pub totals: Totals,
    pub requests: RequestTotals,
    pub health: Health,
    latest: Option<Latest>,
    epoch: Epoch,
    process: Option<u64>,
}

impl Engine {
    #[must_use]
    pub fn new(now: Instant, stale_after: Duration) -> Self {
        Self {
            totals: Totals::new(),
            requests: RequestTotals::new(),
            health: Health::new(now, stale_after),
            latest: None,
            epoch: Epoch::first(),
            process: None,
        }
    }

    /// The last record, as far as it speaks of the present.
    #[must_use]
    pub fn latest(&self) -> Option<&Latest> {
        self.latest.as_ref()
    }

    /// One record. `wall_us` is the time it was received, microseconds since 1970 UTC: it stands in for a timestamp that
    /// the engine did not send and tells the time zone of one that is local.
    pub fn absorb(&mut self, record: &IterationStats, now: Instant, wall_us: i64) {
        let mut standing = self.epoch.place(record);
        if standing == Standing::Restart {
            self.restart();
            standing = self.epoch.place(record);
        }
        if standing == Standing::SiblingRank {
            self.totals.absorb_sibling(record);
            if let Some(latest) = &mut self.latest {
                latest.add_sibling(record);
            }
        } else {
            let counted = self.epoch.count(record, standing);
            self.totals.absorb(record, &counted);
            self.latest = Some(Latest::from_record(record, wall_us));
        }
        for request in record.request_stats.iter().flatten() {
            self.requests.absorb_row(request);
        }
        self.totals.iterations_lost = self.epoch.lost_before.saturating_add(self.epoch.lost());
        self.health.record(now, self.outstanding());
    }

    fn outstanding(&self) -> Outstanding {
        let Some(latest) = &self.latest else { return Outstanding::No };
        if !latest.outstanding() {
            return Outstanding::No;
        }
        match self.epoch.after_last() {
            Some(after) if latest.queued.unwrap_or(0) == 0 => after,
            _ => Outstanding::Yes,
        }
    }

    /// Request rows that came without a record.
    pub fn absorb_requests(&mut self, rows: &RequestStatsPerIteration) {
        for request in rows.request_stats.iter().flatten() {
            self.requests.absorb_row(request);
        }
    }

    /// A finished request's own times.
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry) {
        self.requests.absorb_perf_metrics(entry);
    }

    /// The process behind the source, by any number that changes when it is another one. A change is a restart, even if
    /// `iter` happens to go on upwards.
    pub fn process(&mut self, process: u64) {
        if self.process.replace(process).is_some_and(|before| before != process) && self.epoch.begun() {
            self.restart();
        }
    }

    /// Nothing will come any more (a replay's end): what the last record left outstanding is over, not stalled.
    pub fn finish(&mut self) {
        self.health.finish();
    }

    fn restart(&mut self) {
        self.totals.engine_restarts += 1;
        self.epoch = self.epoch.next();
    }
}

#[cfg(test)]
mod tests;
