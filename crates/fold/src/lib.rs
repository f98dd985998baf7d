//! Folds the messages of one engine into a state and into totals that never fall. Pure: no I/O, no async, no locks, and
//! time is an argument. It knows neither where messages come from nor how they are shown.
//!
//! Start with [`EngineFold`], which has one method for each kind of message. A record goes through these files: `absorb` leads it,
//! `epoch` says how it relates to the records before it, [`totals`] sums iterations, and [`latest`] keeps its values for gauges.
//! `requests` takes finished requests from rows, entries, spans and the server's own metrics. `health` decides the state, and
//! [`observer`] tells the analysis. Words of this crate, beside those of `trtllm-records`:
//!
//! - An *epoch* is the time between two restarts of an engine.
//! - A *flush* is the record that the C++ Executor writes when it becomes idle. It is not an iteration.
//! - A *seat* is what a request has while it is active. The engine has a limited number of seats.
#![forbid(unsafe_code)]

mod absorb;
mod alternation;
mod baseline;
pub mod batch;
pub mod batch_time;
pub mod cache_tiers;
pub mod clock;
mod counted;
mod cumulative;
mod defaults;
mod epoch;
pub mod finished_request;
mod health;
pub mod histogram;
pub mod host_blocks;
mod in_flight;
pub mod latest;
pub mod lifecycle;
pub mod native;
pub mod numbering;
pub mod observer;
pub mod orchestrator;
pub mod pools;
mod queue_time;
pub mod rank_totals;
pub mod ranks;
pub mod request_times;
pub mod request_totals;
mod requests;
mod seats;
pub mod served;
pub mod server_metrics;
pub mod share;
pub mod totals;

use std::time::{Duration, Instant};

use trtllm_records::iteration::SchedulerMode;
use trtllm_records::schema;
use trtllm_records::{
    OrchestratorReading, PerfMetricsEntry, RequestStage, RequestStats, RequestStatsPerIteration, ServerMetrics,
};

pub use alternation::SEVERAL_ENGINES;
pub use health::{EngineState, Health, Outstanding};
pub use latest::Latest;
pub use totals::EngineTotals;
pub use trtllm_records::saturating;
pub use trtllm_records::schema::{Implausible, Rejected};

use alternation::Alternation;
use baseline::Baseline;
use batch_time::TimedBatch;
use clock::{ClockSpan, IterationClock};
use epoch::Epoch;
use host_blocks::HostBlocks;
use lifecycle::{Lifecycles, Stages};
use observer::{EntryOfRequest, Observer};
use orchestrator::{OrchestratorFold, OrchestratorTotals};
use pools::Pools;
use rank_totals::RankBatch;
use ranks::Iteration;
use request_totals::RequestSource;
use requests::RequestFold;
use saturating::add_known;
use seats::{Elsewhere, SeatQueue};

/// Everything that is known of one engine.
#[derive(Debug, Clone, Default)]
pub struct EngineFold {
    pub totals: EngineTotals,
    pub requests: RequestFold,
    pub health: Health,
    latest: Option<Latest>,
    epoch: Epoch,
    alternation: Alternation,
    /// The last iteration, while records of other attention-DP ranks may follow.
    open: Option<Iteration>,
    /// The last batch of the only rank seen so far.
    only_rank: Option<RankBatch>,
    clock: IterationClock,
    seats: SeatQueue,
    elsewhere: Elsewhere,
    /// The batch whose time the last record told. Absent if it told none.
    pub timed_batch: Option<TimedBatch>,
    lifecycles: Lifecycles,
    process: Option<u64>,
    /// Boxed, because few sources are orchestrators.
    orchestrator: Option<Box<OrchestratorFold>>,
    /// What was left out because it is impossible, since [`EngineFold::take_rejected`].
    rejected: Rejected,
    /// The last record was refused, so nobody knows whether it left work.
    refused: bool,
}

impl EngineFold {
    #[must_use]
    pub fn new(stale_after: Duration) -> Self {
        Self { health: Health::new(stale_after), ..Self::default() }
    }

    #[must_use]
    pub fn latest(&self) -> Option<&Latest> {
        self.latest.as_ref()
    }

    /// Whether the engine's loop forms a batch while the one before runs. Absent while that is unknown. The C++ executor can
    /// overlap, too, but does not by default.
    #[must_use]
    pub fn overlaps(&self) -> Option<bool> {
        let latest = self.latest.as_ref()?;
        if latest.is_pytorch { self.clock.batches.overlaps(latest.scheduler_mode) } else { Some(false) }
    }

    /// Whether the batches of a pipeline take turns.
    #[must_use]
    pub fn is_in_pipeline(&self) -> bool {
        self.clock.is_pipeline
    }

    /// Mean seconds that a loop that overlaps needs to form a batch. Absent until the engine was idle.
    #[must_use]
    pub fn forming_seconds(&self) -> Option<f64> {
        self.clock.batches.forming_seconds().filter(|_| self.overlaps() == Some(true))
    }

    /// Returns what was left out because it is impossible, since the last call.
    pub fn take_rejected(&mut self) -> Rejected {
        std::mem::take(&mut self.rejected)
    }

    fn outstanding(&self) -> Outstanding {
        if self.refused {
            return Outstanding::Doubtful;
        }
        let Some(latest) = &self.latest else { return Outstanding::No };
        if !latest.has_work() {
            return Outstanding::No;
        }
        // An iteration log tells neither which requests wait nor which have ended. All other records of the PyTorch
        // engine do.
        if latest.is_pytorch && latest.queued.is_none() {
            return Outstanding::Doubtful;
        }
        match self.epoch.in_flight.map(|in_flight| in_flight.outstanding()) {
            // The server counts a request as ended when the client has its answer. The engine may still hold it: see `is_blocked`.
            Some(Outstanding::Doubtful) if latest.is_blocked() => Outstanding::Yes,
            Some(_) if latest.queued.unwrap_or(0) > 0 => Outstanding::Yes,
            // Nothing counts the requests that leave a context server, so the last ones may have left.
            Some(Outstanding::Yes) if self.epoch.is_context_server() && latest.has_batch() && !latest.is_blocked() => {
                Outstanding::Doubtful
            }
            Some(outstanding) => outstanding,
            None => Outstanding::Yes,
        }
    }

    /// Folds rows of requests that came without a record. The record of their iteration came before them.
    ///
    /// # Errors
    /// If the number of the iteration is impossible. Then none of the rows is counted. A row with an impossible id is
    /// left out.
    pub fn absorb_requests(
        &mut self,
        rows: &RequestStatsPerIteration,
        now: Instant,
        observer: &mut impl Observer,
    ) -> Result<(), Implausible> {
        let mut repaired = None;
        let rows = schema::check(rows, &mut repaired, &mut self.rejected)?;
        let Some(requests) = &rows.request_stats else { return Ok(()) };
        let all_complete = requests.iter().all(|row| row.stage == Some(RequestStage::Complete));
        let span = self.clock.take(rows.iter, all_complete);
        self.absorb_rows(requests, span, now, observer);
        Ok(())
    }

    /// Folds the times that the engine measured for a finished request. Impossible times are left out. `is_span`: they are from an OTLP
    /// span.
    ///
    /// # Errors
    /// None so far: an entry has no key without which it cannot be counted.
    pub fn absorb_entry(
        &mut self,
        entry: &PerfMetricsEntry,
        is_span: bool,
        now: Instant,
        observer: &mut impl Observer,
    ) -> Result<(), Implausible> {
        let mut repaired = None;
        let entry = schema::check(entry, &mut repaired, &mut self.rejected)?;
        let source = if is_span { RequestSource::Spans } else { RequestSource::Entries };
        if let Some((request, has_times)) = self.requests.absorb_perf_metrics(entry, source, now, observer) {
            let overlaps = self.latest.is_some_and(|latest| latest.scheduler_mode == Some(SchedulerMode::Overlap));
            let (tokens_per_block, handling_lag) = (self.tokens_per_block(), u64::from(overlaps));
            observer.entry(&EntryOfRequest { request: &request, has_times, tokens_per_block, handling_lag, now });
            if let Some(in_flight) = &mut self.epoch.in_flight {
                in_flight.by_entries.end(1);
            }
        }
        self.health.ended_without_record(now);
        self.health.set_outstanding(self.outstanding());
        Ok(())
    }

    /// Folds one reading of trtllm-serve's own metrics.
    pub fn absorb_server_metrics(&mut self, metrics: &ServerMetrics, now: Instant, observer: &mut impl Observer) {
        let before = self.requests.server.finished();
        self.requests.absorb_server_metrics(metrics, now, observer);
        let ended = before.zip(self.requests.server.finished()).map_or(0, |(before, now)| now.saturating_sub(before));
        if ended > 0 {
            self.health.ended_without_record(now);
        }
        // The batch is empty long after the last record, so all requests of that record have ended, counted or not.
        let all_ended = metrics.scheduled_batch_size == Some(0) && self.health.silent(now) >= health::DOUBT;
        if let Some(in_flight) = &mut self.epoch.in_flight {
            in_flight.by_server.end(if all_ended { u64::MAX } else { ended });
        }
        self.health.set_outstanding(self.outstanding());
    }

    /// Folds one reading of an orchestrator. An orchestrator is busy while requests arrive.
    pub fn absorb_orchestrator(&mut self, reading: &OrchestratorReading, now: Instant) {
        let any = self.orchestrator.get_or_insert_default().absorb(reading);
        self.health.record(now, if any { Outstanding::Yes } else { Outstanding::No }, true);
    }

    /// What is known of an orchestrator. `None` for an engine.
    #[must_use]
    pub fn orchestrator(&self) -> Option<&OrchestratorTotals> {
        self.orchestrator.as_ref().map(|fold| &fold.totals)
    }

    /// Requests by stage, if the engine reports its requests.
    #[must_use]
    pub fn stages(&self) -> Option<Stages> {
        self.lifecycles.stages
    }

    /// Seconds that the oldest waiting request has waited at the last record, and 0 if none waits. Absent without rows of requests. The
    /// PyTorch engine shows only some of the waiting requests, so it may be more.
    #[must_use]
    pub fn oldest_waiting_seconds(&self) -> Option<f64> {
        self.lifecycles.stages?;
        let now_us = self.clock.newest()?.ended_us;
        let is_pytorch = self.latest.is_some_and(|latest| latest.is_pytorch);
        let since_us = self.lifecycles.oldest_waiting_us(is_pytorch).unwrap_or(now_us);
        Some(now_us.saturating_sub(since_us).max(0) as f64 / 1e6)
    }

    /// Ends a poll: counts requests that have waited long enough for more exact times, closes an iteration that has
    /// been open since the last poll, and decides whether a gap before the answer is a loss. `from_ring`: the answer
    /// was the engine's ring buffer.
    pub fn settle(&mut self, from_ring: bool, now: Instant, observer: &mut impl Observer) {
        self.requests.settle(self.totals.requests_completed, now, observer);
        self.epoch.numbering.end_answer(from_ring);
        self.alternation.end_answer(from_ring);
        self.publish_losses();
        match &mut self.open {
            // Further rows may come with the next poll.
            Some(open) if !open.settled => open.settled = true,
            Some(_) => {
                self.close_iteration(observer);
                self.health.set_outstanding(self.outstanding());
            }
            None => {}
        }
    }

    /// Notes after the end of a poll that the source has taken records which it could not read. They count as lost,
    /// whatever the next polls return.
    pub fn count_unparsed_as_lost(&mut self) {
        self.epoch.numbering.drained_unparsed = true;
    }

    /// Counts the requests that still wait for more exact times, because the source has ended.
    pub fn settle_all(&mut self, now: Instant, observer: &mut impl Observer) {
        // The first call judges what waits, and the second call counts what nothing has judged.
        for waits in 1..=2 {
            let until = now + waits * requests::DECIDED_WITHIN;
            self.requests.settle(self.totals.requests_completed, until, observer);
        }
    }

    /// Folds rows of requests. Rows of an unknown iteration are counted, but have no times.
    fn absorb_rows(
        &mut self,
        rows: &[RequestStats],
        span: Option<ClockSpan>,
        now: Instant,
        observer: &mut impl Observer,
    ) {
        if !rows.is_empty() {
            self.requests.choices.has_rows = true;
        }
        self.lifecycles.tokens_per_block = self.tokens_per_block();
        let changes = span.map(|span| self.lifecycles.absorb(rows, span)).unwrap_or_default();
        let tells_pauses = rows.iter().any(|row| self.tells_pauses(row));
        if tells_pauses {
            add_known(&mut self.totals.request_pauses, Some(changes.pauses));
        }
        add_known(&mut self.totals.recomputed_tokens, changes.recomputed_tokens);
        if tells_pauses || !changes.over.is_empty() {
            observer.pauses(&changes.over);
        }
        let is_repeated = |row: &RequestStats| row.id.is_some_and(|id| changes.repeated.contains(&id));
        let complete = rows.iter().filter(|row| row.stage == Some(RequestStage::Complete));
        for row in complete.filter(|row| !is_repeated(row)) {
            let lifecycle = row.id.and_then(|id| changes.completed.get(&id));
            self.requests.absorb_complete_row(row, lifecycle, self.totals.is_sampled(), now, observer);
        }
    }

    fn tokens_per_block(&self) -> Option<i64> {
        self.latest.and_then(|latest| latest.kv?.tokens_per_block)
    }

    /// Whether the row tells if its request is paused. The PyTorch engine leaves the default, which is false.
    fn tells_pauses(&self, row: &RequestStats) -> bool {
        let is_pytorch = self.latest.as_ref().is_some_and(|latest| latest.is_pytorch) || self.clock.pytorch_rows;
        row.paused.is_some_and(|paused| paused || !is_pytorch)
    }

    /// Sets the number of the process that sends the records. A new process means that the engine has restarted, even
    /// if `iter` keeps growing.
    pub fn set_process(&mut self, process: u64, observer: &mut impl Observer) {
        if self.process.replace(process).is_some_and(|before| before != process) && self.epoch.has_records() {
            self.restart(observer);
        }
    }

    /// Notes that the source (e.g. a replay) has ended. Active requests in its last record do not mean that the engine
    /// is stalled.
    pub fn finish(&mut self) {
        self.health.set_outstanding(Outstanding::No);
    }

    /// Prepares for records after a time in which nobody read the engine. What was not read counts neither as lost nor
    /// as a restart. The next values of cumulative counts are only baselines, as after the start of the exporter.
    pub fn resume(&mut self, observer: &mut impl Observer) {
        self.alternation = Alternation::default();
        self.begin_epoch(self.epoch.unseen(), observer);
        self.requests.resume(observer);
        observer.restart();
        if let Some(orchestrator) = &mut self.orchestrator {
            // The counts of the next reading are only a baseline.
            orchestrator.counts = Baseline::default();
        }
        self.process = None;
    }

    /// Notes that a record was refused, now or when it was recorded. See [`EngineFold::absorb`]. It still proves that the
    /// engine runs.
    pub fn refuse_record(&mut self, now: Instant) {
        self.epoch.numbering.rejected = true;
        self.refused = true;
        self.health.record(now, Outstanding::Doubtful, true);
    }

    /// Counts nothing of a record, because it may be that of another engine. Without a latest record, no load is shown.
    fn leave_out(&mut self, now: Instant, observer: &mut impl Observer) {
        if self.latest.take().is_some() {
            self.begin_epoch(self.epoch.unseen(), observer);
        }
        self.refuse_record(now);
    }

    /// Whether the records come from several engines. Then nothing of them is counted.
    #[must_use]
    pub fn has_several_engines(&self) -> bool {
        self.alternation.are_several()
    }

    fn restart(&mut self, observer: &mut impl Observer) {
        self.totals.engine_restarts += 1;
        self.begin_epoch(self.epoch.next(), observer);
        self.requests.restart(observer);
        observer.restart();
    }

    fn begin_epoch(&mut self, epoch: Epoch, observer: &mut impl Observer) {
        self.close_iteration(observer);
        self.epoch = epoch;
        self.clock = IterationClock::default();
        (self.seats, self.elsewhere) = (SeatQueue::default(), Elsewhere::default());
        self.lifecycles = Lifecycles::default();
        if let Some(latest) = &mut self.latest {
            latest.pools = Pools::default();
            latest.host_blocks = HostBlocks::default();
            latest.waiting_for_seat = None;
            (latest.ranks_seen, latest.ranks_before) = (None, None);
        }
        self.only_rank = None;
        observer.begin_epoch();
        self.totals.restart();
    }
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
