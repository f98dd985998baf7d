//! The end of a batch: its requests receive their tokens, and finished ones end.

use crate::config::Role;
use crate::engine::Engine;
use crate::passes::Launched;
use crate::record::StepTime;
use crate::request::Request;
use crate::scheduler::transfer_seconds;
use crate::truth::BatchTruth;

/// Share of the GPU's time that sampling takes.
pub(crate) const SAMPLING: f64 = 0.05;

/// What the requests of a batch received.
pub(crate) struct Received {
    /// Tokens of decoding requests, without those that are thrown away because their request has left.
    pub(crate) decoded: u64,
    /// When clients see the tokens.
    pub(crate) seen_at: f64,
}

impl Engine {
    /// Gives the requests of a batch their tokens.
    pub(crate) fn finish(&mut self, launched: &Launched, now: f64) -> Received {
        if self.config.keeps_requests {
            self.record_parts(launched, now);
            self.record_batch(launched, now);
        }
        self.passes.handled_at = now;
        let iter = self.iter;
        let stamps_early = self.config.stamps_early();
        let active = self.ranks.iter().flat_map(|rank| &rank.active).map(|request| request.shares[launched.slot]);
        let answers: u64 = launched.batches.iter().map(|batch| batch.answers.tokens).sum();
        let decoded = active.filter(|share| share.decodes).map(|share| u64::from(share.made)).sum();
        let contexts: u64 = launched.batches.iter().map(|batch| u64::from(batch.work.context_requests)).sum();
        let seen_at = self.frontend.send(now, decoded + answers + contexts);
        let mut first_tokens = 0;
        let gpu_sample = launched.gpu * SAMPLING;
        let step = StepTime { start: launched.start, end: now, gpu_forward: launched.gpu - gpu_sample, gpu_sample };
        for rank in &mut self.ranks {
            for request in &mut rank.active {
                let share = std::mem::take(&mut request.shares[launched.slot]);
                if stamps_early && !request.is_receiving(now) {
                    request.stamped_at.get_or_insert(now);
                    request.first_iter.get_or_insert(iter);
                }
                if !share.is_scheduled {
                    continue;
                }
                if self.config.statistics.steps {
                    let times = request.step_times.get_or_insert_default();
                    if share.decodes { &mut times.generation } else { &mut times.context }.push(step);
                }
                let made = share.made;
                request.filled += share.filled;
                if share.decodes {
                    request.steps += 1;
                    request.drafted += share.drafted;
                    request.accepted += made.saturating_sub(1);
                } else if made > 0 {
                    first_tokens += 1;
                    request.context_steps += 1;
                    rank.cache.store(&request.keys, &request.blocks, request.context);
                }
                request.was_scheduled = true;
                if made == 0 {
                    continue;
                }
                let is_first = request.receive(made, iter, now);
                if is_first && request.is_streamed(self.config.role) {
                    request.first_seen_at.get_or_insert(seen_at);
                }
                if is_first && self.config.role == Role::ContextOnly {
                    request.transfer = if self.peer.is_some() {
                        // The generation engine tells later when it receives the KV cache.
                        request.is_handed_over(self.config.role).then_some((now, f64::INFINITY))
                    } else {
                        let start = self.link_free_at.max(now);
                        self.link_free_at = start + transfer_seconds(&self.config, request.arrival.prompt);
                        Some((start, self.link_free_at))
                    };
                }
            }
        }
        self.truth.first_tokens += first_tokens;
        Received { decoded, seen_at }
    }

    /// Ends the requests that have all their tokens.
    pub(crate) fn end_all_finished(&mut self, now: f64, seen: f64) {
        for index in 0..self.ranks.len() {
            self.end_finished(index, now, seen);
        }
        // PyTorch numbers passes, see `passes`.
        self.iter += u64::from(self.config.release.is_cpp());
    }

    /// What the batch truly took.
    fn record_batch(&mut self, launched: &Launched, now: f64) {
        let ended = if self.overlaps() { launched.end } else { now };
        let seconds = ended - launched.since;
        self.truth.batches.push(BatchTruth {
            iter: self.iter_of(launched),
            seconds,
            gpu_seconds: launched.gpu,
            handled_at: now,
        });
    }

    /// Whether a request that has all its tokens stays active, because the C++ Executor has not come back to its micro batch.
    fn is_in_pipeline(&self, request: &Request) -> bool {
        self.config.has_cpp_pipeline() && request.last_iter + self.config.ranks.pipeline as u64 > self.iter + 1
    }

    /// Ends the requests of a rank that have all their tokens. A request whose KV cache is still being sent leaves the
    /// active requests of the PyTorch loop, and stays active in the C++ Executor.
    fn end_finished(&mut self, index: usize, now: f64, seen: f64) {
        let mut position = 0;
        while position < self.ranks[index].active.len() {
            let request = &mut self.ranks[index].active[position];
            if request.end().is_some() {
                request.first_seen_at.get_or_insert(seen);
            }
            let request = &self.ranks[index].active[position];
            match request.end().filter(|_| !self.is_in_pipeline(request)) {
                Some(end) if !request.is_receiving(now) => {
                    let request = self.ranks[index].remove(position);
                    self.report_end(&request, end, index);
                    self.end(&request, end, seen);
                }
                Some(end) if !self.config.release.is_cpp() => {
                    let request = self.ranks[index].active.remove(position);
                    if self.config.counts_sending() {
                        self.report_end(&request, end, index);
                    }
                    if self.peer.is_some() {
                        // The orchestrator gets the answer before the generation engine asks for the KV cache.
                        self.end(&request, end, seen);
                    }
                    self.ranks[index].sending.push(request);
                }
                _ => position += 1,
            }
        }
    }

    /// Ends the requests of a context server whose KV cache was sent.
    fn end_sent(&mut self, index: usize, now: f64) {
        for request in self.ranks[index].remove_sent(now) {
            if let Some(end) = request.end().filter(|_| self.peer.is_none()) {
                self.end(&request, end, now);
            }
        }
    }

    /// Ends requests whose end does not depend on an iteration: after a transfer, a cancellation or a time-out.
    pub(crate) fn end_others(&mut self, now: f64) {
        if self.config.role == Role::ContextOnly {
            for index in 0..self.ranks.len() {
                self.end_finished(index, now, now);
                self.end_sent(index, now);
            }
        }
        if self.has_deadlines {
            self.end_late(now);
        }
    }
}
