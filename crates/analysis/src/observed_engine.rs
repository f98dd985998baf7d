//! An engine's fold with the analysis that listens to it.

use std::time::{Duration, Instant};

use trtllm_fold::clock::ClockSpan;
use trtllm_fold::finished_request::FinishedRequest;
use trtllm_fold::lifecycle::Pause;
use trtllm_fold::observer::{EntryOfRequest, Observer, Scope};
use trtllm_fold::ranks::Iteration;
use trtllm_fold::request_times::Times;
use trtllm_fold::served::Served;
use trtllm_fold::server_metrics::Increase;
use trtllm_fold::{EngineFold, Implausible, Latest};
use trtllm_records::{
    IterationStats, Objectives, OrchestratorReading, PerfMetricsEntry, RequestStats, RequestStatsPerIteration,
    ServerMetrics,
};

use super::attribution::Attribution;
use super::iteration_sums::Iterations;
use super::objectives::{ObjectiveTotals, UnjudgedRequests};
use super::recent_requests::{RecentRequest, RecentRequests};
use super::timeline::Started;

/// What is learned from one engine.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Why requests waited, and how long iterations took.
    pub iterations: Iterations,
    pub attribution: Attribution,
    pub recent: RecentRequests,
    /// Absent without configured objectives.
    pub objectives: Option<ObjectiveTotals>,
    unjudged: UnjudgedRequests,
}

impl Analysis {
    /// `objectives`: those of each request. All counts begin at 0.
    pub fn new(objectives: Objectives) -> Self {
        let objectives = objectives.any().then(|| ObjectiveTotals::new(objectives));
        Self { objectives, ..Self::default() }
    }

    /// Adds an iteration with this work to the timeline.
    fn note_start(&mut self, span: Option<ClockSpan>, work: Started) {
        let Some((timeline, span)) = self.attribution.timeline.as_mut().zip(span) else { return };
        let Some(iter) = span.iter else { return };
        timeline.start(Started {
            iter,
            start_us: span.begun_us,
            // A record of the C++ executor does not say when its iteration ends.
            end_us: Some(span.ended_us).filter(|ended_us| *ended_us > span.begun_us),
            known: span.continuous,
            ..work
        });
    }
}

impl Observer for Analysis {
    fn iteration(&mut self, iteration: &Iteration, latest: &Latest, span: Option<ClockSpan>) {
        self.iterations.observe(latest, iteration);
        if self.attribution.timeline.is_some() {
            self.note_start(span, self.iterations.started(latest));
        }
    }

    fn idle(&mut self, span: Option<ClockSpan>) {
        self.note_start(span, Started::default());
    }

    fn clock_set(&mut self) {
        self.attribution.restart();
    }

    fn begin_epoch(&mut self) {
        self.iterations.restart();
    }

    fn restart(&mut self) {
        self.recent.clear();
        self.attribution.restart();
    }

    fn pauses(&mut self, over: &[Pause]) {
        self.attribution.note_pauses(over);
    }

    fn complete_row(&mut self, row: &RequestStats, times: &Times) {
        self.recent.note_row(row, times);
        if times.ended.is_some() {
            self.attribution.begin();
        }
    }

    fn row_counted(&mut self, request: &FinishedRequest, is_judged: bool) {
        let mut missed = [false; 3];
        if let Some(objectives) = self.objectives.as_mut().filter(|_| is_judged) {
            objectives.count(&request.served, Scope::All);
            missed = objectives.missed(&request.served);
        }
        let tokens = request.computed_tokens(self.recent.tokens_per_block);
        self.attribution.count_row(request, tokens, missed);
    }

    fn entry(&mut self, entry: &EntryOfRequest<'_>) {
        self.recent.tokens_per_block = entry.tokens_per_block;
        if entry.has_times {
            self.attribution.note_entry(entry);
        }
        self.recent.note_entry(entry.request);
    }

    fn served(&mut self, served: &Served, scope: Scope) {
        if let Some(objectives) = &mut self.objectives {
            objectives.count(served, scope);
        }
    }

    fn server_requests(&mut self, more: &Increase, scope: Scope) {
        if let Some(objectives) = &mut self.objectives {
            objectives.count_histograms(more, scope);
        }
    }

    fn settled(&mut self, completed: u64, patience: Duration, now: Instant) {
        let Self { attribution, recent, objectives, unjudged, .. } = self;
        recent.poll_ended(now);
        let computed_tokens = |id| recent.find(id).and_then(RecentRequest::computed_tokens);
        attribution.settle(computed_tokens, objectives.as_ref(), now);
        unjudged.settle(completed, patience, now, objectives.as_mut());
    }
}

/// An engine: its totals and what is learned from it. Its methods are those of [`EngineFold`], with the analysis as the observer.
#[derive(Debug, Clone)]
pub struct ObservedEngine {
    pub fold: EngineFold,
    pub analysis: Analysis,
}

impl ObservedEngine {
    /// `stale_after`: time without news after which the engine is unreachable.
    pub fn new(stale_after: Duration) -> Self {
        Self { fold: EngineFold::new(stale_after), analysis: Analysis::default() }
    }

    /// Judges requests by these objectives.
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
