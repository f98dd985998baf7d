//! What is learned from an engine while its messages are folded: what its iterations cost, why requests waited, where their time went,
//! whether objectives were met, and what happened in the last minutes. Pure: no I/O, no async, no locks, and time is an argument.
//!
//! [`Analysis`] listens to a fold, which does not know it. [`ObservedEngine`] is the two together.
#![forbid(unsafe_code)]

pub mod attribution;
pub mod cost_model;
pub mod iteration_sums;
mod numbers;
pub mod objectives;
mod observed_engine;
pub mod recent_requests;
pub mod saturation;
mod timeline;
pub mod window;

use std::time::{Duration, Instant};

use trtllm_fold::Latest;
use trtllm_fold::clock::ClockSpan;
use trtllm_fold::finished_request::FinishedRequest;
use trtllm_fold::lifecycle::Pause;
use trtllm_fold::observer::{EntryOfRequest, Observer, Scope};
use trtllm_fold::ranks::Iteration;
use trtllm_fold::request_times::Times;
use trtllm_fold::served::Served;
use trtllm_fold::server_metrics::Increase;
use trtllm_records::{Objectives, RequestStats};

pub use observed_engine::ObservedEngine;

use attribution::Attribution;
use iteration_sums::Iterations;
use objectives::{ObjectiveTotals, UnjudgedRequests};
use recent_requests::{RecentRequest, RecentRequests};
use timeline::Started;

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
    #[must_use]
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
        let computed_tokens = |id| recent.find(id).and_then(RecentRequest::computed_tokens);
        attribution.settle(computed_tokens, objectives.as_ref(), now);
        unjudged.settle(completed, patience, now, objectives.as_mut());
    }
}

#[cfg(test)]
mod tests;
