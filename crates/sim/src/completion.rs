//! The end of a batch: its requests receive their tokens, and finished ones end.

use crate::config::Role;
use crate::engine::{Engine, Progress, Running};
use crate::record::StepTime;
use crate::scheduler::transfer_seconds;

/// Share of the GPU's time that sampling takes.
const SAMPLING: f64 = 0.05;

impl Engine {
    /// Gives the requests of a batch their tokens, and ends the requests that have all their tokens.
    pub(crate) fn finish(&mut self, running: &Running, now: f64) {
        if self.config.keeps_requests {
            self.record_parts(running);
        }
        let iter = self.iter;
        let tokens: u64 = running.batches.iter().map(|b| b.decoded + u64::from(b.work.context_requests)).sum();
        let seen = self.frontend.send(now, tokens);
        let mut first_tokens = 0;
        let gpu_sample = running.gpu * SAMPLING;
        let step = StepTime { start: running.start, end: now, gpu_forward: running.gpu - gpu_sample, gpu_sample };
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            for request in rank.active.iter_mut().filter(|request| request.is_scheduled()) {
                if self.config.statistics.steps {
                    let times = request.step_times.get_or_insert_default();
                    if request.step > 0 { &mut times.generation } else { &mut times.context }.push(step);
                }
                let made = if request.step > 0 {
                    request.filled += request.step;
                    request.steps += 1;
                    request.step
                } else {
                    request.filled += request.chunk;
                    let done = request.filled >= request.context;
                    first_tokens += u64::from(done);
                    if done {
                        rank.cache.store(&request.keys, &request.blocks, request.context);
                    }
                    u32::from(done)
                };
                if made > 0 {
                    // Upstream's `first_iter` is the iteration of the first token, too.
                    request.first_iter.get_or_insert(iter);
                    if request.arrival.is_watched {
                        self.progress.push(Progress { id: request.id, tokens: made, end: None });
                    }
                    request.generated += made;
                    request.last_iter = iter;
                    if request.first_token_at.is_some() {
                        request.longest_gap = request.longest_gap.max(now - request.last_token_at);
                    } else {
                        (request.first_token_at, request.first_seen_at) = (Some(now), Some(seen));
                        if self.config.role == Role::ContextOnly {
                            let start = self.link_free_at.max(now);
                            self.link_free_at = start + transfer_seconds(&self.config, request.arrival.prompt);
                            request.transfer = Some((start, self.link_free_at));
                        }
                    }
                    request.last_token_at = now;
                }
                (request.was_scheduled, request.chunk, request.step) = (true, 0, 0);
            }
            self.end_finished(index, now, seen);
        }
        self.iter += 1;
        self.truth.first_tokens += first_tokens;
    }

    /// Ends the requests of a rank that have all their tokens and whose transfer is over.
    fn end_finished(&mut self, index: usize, now: f64, seen: f64) {
        let mut position = 0;
        while position < self.ranks[index].active.len() {
            let request = &self.ranks[index].active[position];
            match request.end().filter(|_| !request.is_receiving(now)) {
                Some(end) => {
                    let request = self.ranks[index].remove(position);
                    self.end(request, end, index, seen);
                }
                None => position += 1,
            }
        }
    }

    /// Ends requests whose end does not depend on an iteration: after a transfer, a cancellation or a time-out.
    pub(crate) fn end_others(&mut self, now: f64) {
        if self.config.role == Role::ContextOnly {
            for index in 0..self.ranks.len() {
                self.end_finished(index, now, now);
            }
        }
        if self.has_deadlines {
            self.end_late(now);
        }
    }
}
