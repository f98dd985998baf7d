//! Folds the records of one engine into totals that never fall and a state. Pure: no I/O, no async, no locks, and time is
//! an argument. It knows neither where records come from nor how they are shown.

pub mod clock;
pub mod cumulative;
pub mod epoch;
pub mod finished_request;
pub mod health;
pub mod histogram;
pub mod kv_events;
pub mod latest;
pub mod lifecycle;
pub mod native;
pub mod pools;
pub mod request_times;
pub mod requests;
pub mod server_metrics;
pub mod successes;
pub mod totals;

use std::time::{Duration, Instant};

use crate::model::request::RequestStage;
use crate::model::{
    IterationStats, KvCacheEvent, PerfMetricsEntry, RequestStats, RequestStatsPerIteration, ServerMetrics,
};

pub use health::{EngineState, Health, Outstanding};
pub use latest::Latest;
pub use totals::Totals;

use clock::{IterationClock, Span};
use epoch::{Epoch, RecordKind};
use kv_events::KvEvents;
use lifecycle::{Lifecycles, Stages};
use requests::RequestFold;

/// The fold of one engine.
#[derive(Debug)]
pub struct Engine {
    pub totals: Totals,
    pub requests: RequestFold,
    pub health: Health,
    latest: Option<Latest>,
    epoch: Epoch,
    clock: IterationClock,
    lifecycles: Lifecycles,
    kv_events: KvEvents,
    process: Option<u64>,
}

impl Engine {
    #[must_use]
    pub fn new(now: Instant, stale_after: Duration) -> Self {
        Self {
            totals: Totals::new(),
            requests: RequestFold::default(),
            health: Health::new(now, stale_after),
            latest: None,
            epoch: Epoch::first(),
            clock: IterationClock::default(),
            lifecycles: Lifecycles::default(),
            kv_events: KvEvents::default(),
            process: None,
        }
    }

    /// The values of the last record.
    #[must_use]
    pub fn latest(&self) -> Option<&Latest> {
        self.latest.as_ref()
    }

    /// Folds one record. `wall_us` is the time of receipt in microseconds since 1970 UTC. It replaces a missing timestamp,
    /// and gives the time zone of a local one.
    pub fn absorb(&mut self, record: &IterationStats, now: Instant, wall_us: i64) {
        let mut kind = self.epoch.classify(record);
        if kind == RecordKind::Restart {
            self.restart();
            kind = self.epoch.classify(record);
        }
        if kind == RecordKind::SiblingRank {
            self.totals.absorb_sibling(record);
            if let Some(latest) = &mut self.latest {
                latest.add_sibling(record);
            }
        } else {
            let lost_before = self.epoch.lost();
            let counted = self.epoch.count(record, kind);
            self.totals.absorb(record, &counted);
            let latest = self.latest.get_or_insert_default();
            latest.update(record, wall_us);
            let (flush, gap) = (kind == RecordKind::Flush, self.epoch.lost() > lost_before);
            let span = self.clock.record(record, latest.time_us, counted.latency_seconds, flush, gap);
            if let Some(rows) = &record.request_stats {
                self.absorb_rows(rows, Some(span), now);
            }
        }
        self.totals.iterations_lost = self.epoch.lost_before.saturating_add(self.epoch.lost());
        self.health.record(now, self.outstanding());
    }

    fn outstanding(&self) -> Outstanding {
        let Some(latest) = &self.latest else { return Outstanding::No };
        if !latest.has_work() {
            return Outstanding::No;
        }
        match self.epoch.outstanding() {
            Some(outstanding) if latest.queued.unwrap_or(0) == 0 => outstanding,
            _ => Outstanding::Yes,
        }
    }

    /// Folds request rows that came without a record. The record of their iteration came before.
    pub fn absorb_requests(&mut self, rows: &RequestStatsPerIteration, now: Instant) {
        let Some(requests) = &rows.request_stats else { return };
        let all_complete = requests.iter().all(|row| row.stage == Some(RequestStage::Complete));
        let span = self.clock.take(rows.iter, all_complete);
        self.absorb_rows(requests, span, now);
    }

    /// Folds the times that the engine measured for a finished request.
    pub fn absorb_perf_metrics(&mut self, entry: &PerfMetricsEntry, now: Instant) {
        self.requests.absorb_perf_metrics(entry, now);
    }

    /// Folds one reading of trtllm-serve's own metrics.
    pub fn absorb_server_metrics(&mut self, page: &ServerMetrics, now: Instant) {
        self.requests.absorb_server_metrics(page, now);
    }

    /// Requests that trtllm-serve has finished or refused since its metrics were first read. Absent for other sources.
    #[must_use]
    pub fn server_finished(&self) -> Option<u64> {
        self.requests.server.finished()
    }

    /// Requests in trtllm-serve's last batch, and when they were read. Absent for other sources.
    #[must_use]
    pub fn server_batch(&self) -> Option<(u64, Instant)> {
        self.requests.server.batch()
    }

    /// Folds one event of the KV cache.
    pub fn absorb_kv_event(&mut self, event: &KvCacheEvent) {
        self.kv_events.absorb(event);
        self.totals.kv_events = self.kv_events.totals;
    }

    /// Requests by stage, if the engine reports its requests.
    #[must_use]
    pub fn stages(&self) -> Option<Stages> {
        self.lifecycles.stages
    }

    /// Counts requests that have waited long enough for more exact times. Call it after each poll.
    pub fn settle(&mut self, now: Instant) {
        self.requests.settle(self.totals.requests_completed, now);
    }

    /// Rows of an unknown iteration are counted, but have no times.
    fn absorb_rows(&mut self, rows: &[RequestStats], span: Option<Span>, now: Instant) {
        let changes = span.map(|span| self.lifecycles.absorb(rows, span)).unwrap_or_default();
        if !rows.is_empty() {
            let pauses = self.totals.request_pauses.get_or_insert(0);
            *pauses = pauses.saturating_add(changes.pauses);
        }
        let mut lifecycles = changes.completed.iter().peekable();
        for row in rows {
            let complete = row.stage == Some(RequestStage::Complete);
            let lifecycle = if complete { lifecycles.next_if(|lifecycle| Some(lifecycle.id) == row.id) } else { None };
            self.requests.absorb_row(row, lifecycle, now);
        }
    }

    /// The process that sends the records, as a number that differs between processes. A new process is a restart of the
    /// engine, even if `iter` keeps growing.
    pub fn set_process(&mut self, process: u64) {
        if self.process.replace(process).is_some_and(|before| before != process) && self.epoch.has_records() {
            self.restart();
        }
    }

    /// The source has ended (a replay). Work that the last record left does not make the engine stalled.
    pub fn finish(&mut self) {
        self.health.finish();
    }

    fn restart(&mut self) {
        self.totals.engine_restarts += 1;
        self.epoch = self.epoch.next();
        self.clock = IterationClock::default();
        self.lifecycles = Lifecycles::default();
    }
}

#[cfg(test)]
mod tests;
