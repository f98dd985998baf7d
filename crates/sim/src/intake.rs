//! How requests enter the engine and leave it.

use std::collections::VecDeque;

use crate::config::Role;
use crate::engine::Engine;
use crate::load::Arrival;
use crate::passes::Intake;
use crate::record::{End, Entry, Row, Stage};
use crate::request::Request;
use crate::scheduler::{Rank, blocks_at_end};
use crate::step::Unanswered;
use crate::truth::{RequestParts, RequestTruth};

impl Engine {
    /// Passes all arrivals until `now` to the frontend.
    pub(crate) fn take_arrivals(&mut self, now: f64) {
        let waited = std::mem::take(&mut self.load_waits);
        loop {
            let coming = self.coming.first_key_value().map(|((bits, _), _)| f64::from_bits(*bits));
            let generated = self.generator.next_at();
            let is_follower = coming.is_some_and(|at| generated.is_none_or(|next| at <= next));
            let at = if is_follower { coming } else { generated };
            if at.is_none_or(|at| at > now) {
                return;
            }
            if self.config.load.in_flight.is_some_and(|most| self.in_flight() >= most) {
                self.load_waits = true;
                return;
            }
            let arrival =
                if is_follower { self.coming.pop_first().map(|(_, arrival)| arrival) } else { self.generator.take() };
            if let Some(arrival) = arrival {
                let at = if waited { arrival.at.max(now) } else { arrival.at };
                self.submit(Arrival { at, ..arrival });
            }
        }
    }

    /// Requests that clients have sent and that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        // In a deployment, requests whose KV cache is being sent are in the other engine.
        let sending = |rank: &Rank| if self.peer.is_some() { 0 } else { rank.sending.len() };
        let inside: usize = self.ranks.iter().map(|rank| rank.active.len() + sending(rank)).sum();
        self.entering.len() + self.waiting_for_seat() + inside + self.peer_in_flight()
    }

    /// Sends a request to the frontend. Returns its id.
    pub fn submit(&mut self, mut arrival: Arrival) -> u64 {
        self.has_deadlines |= arrival.cancelled_after.is_some() || arrival.timeout.is_some();
        let id = arrival.id.unwrap_or(self.next_id);
        self.next_id += u64::from(arrival.id.is_none());
        arrival.prompt = arrival.prompt.max(1);
        let asked = (arrival.output.max(1), arrival.max_new_tokens.max(1));
        if self.config.role == Role::ContextOnly {
            (arrival.output, arrival.max_new_tokens) = (1, 1);
        }
        if self.config.role == Role::GenerationOnly {
            // The context server answers a request of one token alone.
            arrival.output = arrival.output.max(2);
            arrival.max_new_tokens = arrival.max_new_tokens.max(2);
        }
        let at = arrival.at;
        self.truth.arrived += 1;
        self.truth.arrived_nonstream += u64::from(arrival.nonstream);
        let mut request = Request::new(id, arrival, at, self.config.cache.tokens_per_block);
        if self.config.role == Role::ContextOnly {
            request.asked = asked;
        }
        let refused = self.is_refused(&request);
        match self.frontend.accept(at, request.arrival.prompt).filter(|_| !refused) {
            Some(entered) => {
                self.entering.insert((entered.to_bits(), id), Request { queued_at: entered, ..request });
            }
            None => self.leave(&Request { is_refused: true, ..request }, End::Error, at + 0.001),
        }
        id
    }

    /// Whether a request fails at once.
    fn is_refused(&mut self, request: &Request) -> bool {
        let arrival = &request.arrival;
        let limits = &self.config.limits;
        let too_long = blocks_at_end(&self.config, arrival.prompt, arrival.max_new_tokens)
            > self.config.cache.blocks as usize
            || !self.config.chunks_context() && arrival.prompt > limits.max_num_tokens;
        let full = self.waiting_for_seat() >= limits.max_queue;
        let fails = self.random.chance(self.faults.error_share());
        too_long || full || fails || arrival.at < self.up_at || self.faults.memory(arrival.at).1
    }

    /// Moves requests that the frontend has prepared into the engine's queue.
    pub(crate) fn enter_queue(&mut self, now: f64) {
        while let Some(entry) = self.entering.first_entry() {
            if f64::from_bits(entry.key().0) > now {
                break;
            }
            let request = entry.remove();
            self.truth.waiting_seconds += now - request.queued_at;
            self.queue.push_back(request);
        }
    }

    /// Adds the time since the last step to the truth about waiting requests.
    pub(crate) fn count_waiting(&mut self, now: f64) {
        self.truth.waiting_seconds += self.waiting_for_seat() as f64 * (now - self.waiting_counted_at).max(0.0);
        self.waiting_counted_at = now;
    }

    /// Moves requests into the loop's waiting queue: all that are in the queue, but only one if the loop was blocked until
    /// it came.
    fn drain_queue(&mut self, now: f64) {
        let is_idle = self.waiting.is_empty() && self.ranks.iter().all(|rank| rank.active.is_empty());
        let taken = if is_idle && self.passes.begin < now { 1 } else { self.queue.len() };
        self.waiting.extend(self.queue.drain(..taken.min(self.queue.len())));
    }

    /// Takes new requests and gives them seats on the ranks, up to the limit of each rank.
    pub(crate) fn fetch(&mut self, now: f64) -> Intake {
        if !self.config.release.has_waiting_queue() {
            return self.give_seats(now, |engine| &mut engine.queue);
        }
        self.drain_queue(now);
        self.give_seats(now, |engine| &mut engine.waiting)
    }

    fn give_seats(&mut self, now: f64, queue: fn(&mut Self) -> &mut VecDeque<Request>) -> Intake {
        let limit = self.max_active() as usize;
        let ranks = self.ranks.len();
        let mut intake = Intake { new: vec![0; ranks], queue_seconds: 0.0 };
        while !queue(self).is_empty() {
            let least = (0..ranks).min_by_key(|rank| self.ranks[*rank].active.len()).unwrap_or(0);
            let skewed = ranks > 1 && self.random.chance(self.config.ranks.imbalance);
            let rank = if skewed { 0 } else { least };
            if self.ranks[rank].active.len() >= limit {
                break;
            }
            let Some(mut request) = queue(self).pop_front() else { break };
            request.micro_batch = (request.id % self.config.ranks.pipeline as u64) as usize;
            intake.new[rank] += 1;
            intake.queue_seconds += now - request.queued_at;
            self.ranks[rank].active.push(request);
        }
        intake
    }

    /// The highest number of active requests on one rank.
    pub(crate) fn max_active(&self) -> u32 {
        self.config.limits.max_batch_size * self.config.ranks.pipeline as u32
    }

    /// When the next waiting or active request is cancelled or times out.
    pub(crate) fn next_deadline(&self) -> Option<f64> {
        if !self.has_deadlines {
            return None;
        }
        let active = self.ranks.iter().flat_map(|rank| &rank.active);
        let waiting = self.queue.iter().chain(&self.waiting);
        active.chain(waiting).filter_map(|request| deadline(request).map(|(at, _)| at)).min_by(f64::total_cmp)
    }

    /// Ends waiting and active requests whose deadline has passed.
    pub(crate) fn end_late(&mut self, now: f64) {
        for index in 0..self.ranks.len() {
            while let Some((position, end)) = first_late(&self.ranks[index].active, now) {
                let request = self.ranks[index].remove(position);
                self.report_end(&request, end, index);
                self.end(&request, end, now);
            }
        }
        let queues = [&mut self.queue, &mut self.waiting];
        let late: Vec<_> = queues.into_iter().flat_map(|queue| remove_late(queue, now)).collect();
        for (request, end) in late {
            self.leave(&request, end, now);
        }
    }

    /// Records what happened to a request that leaves the engine, and lets its client send the next request.
    pub(crate) fn leave(&mut self, request: &Request, end: End, seen: f64) {
        self.record_truth(request, end, seen);
        let is_answered = matches!(end, End::Stop | End::Length);
        if !is_answered {
            self.unanswered.push(Unanswered {
                id: request.id,
                end,
                nonstream: request.arrival.nonstream,
                is_refused: request.is_refused,
            });
        }
        if !(is_answered && self.peer.is_some() && request.is_handed_over(self.config.role)) {
            self.follow(&request.arrival, request.id, seen);
        }
    }

    /// Lets the client of a request that has ended send the next one.
    pub(crate) fn follow(&mut self, ended: &Arrival, id: u64, at: f64) {
        if let Some(next) = self.generator.follow(ended, at) {
            self.coming.insert((next.at.to_bits(), id), next);
        }
    }

    /// Ends a request that has left the active ones. The step reports its perf-metrics entry.
    pub(crate) fn end(&mut self, request: &Request, end: End, seen: f64) {
        self.leave(request, end, seen);
        self.truth.completed += 1;
        if !self.config.statistics.entries {
            return;
        }
        let Some(entry) = self.entry(request, end) else { return };
        if entry.continued {
            self.hand_over(&request.arrival, request.asked, &entry, seen);
        }
        self.writer.entries.push(entry);
    }

    /// The next record counts the request as completed, and has its last row.
    pub(crate) fn report_end(&mut self, request: &Request, end: End, rank: usize) {
        // The C++ Executor clears the tokens of a request that timed out or was cancelled.
        let is_cleared = self.config.release.is_cpp() && matches!(end, End::TimedOut | End::Cancelled);
        let scheduled = request.was_scheduled && !self.config.release.is_cpp();
        let generated = if is_cleared { 0 } else { request.generated };
        let row = Row { generated, scheduled, stage: Stage::Complete, ..self.row(request) };
        self.writer.unreported.push(row);
        self.writer.done.resize(self.ranks.len(), 0);
        self.writer.done[rank] += 1;
    }

    fn record_truth(&mut self, request: &Request, end: End, seen: f64) {
        if !self.config.keeps_requests {
            return;
        }
        self.truth.requests.push(RequestTruth {
            id: request.id,
            end,
            arrival: request.arrival.at,
            queued: request.queued_at,
            scheduled: request.scheduled_at,
            first_token: request.first_token_at,
            first_seen: request.first_seen_at,
            last_token: request.last_token_at,
            last_seen: seen,
            longest_gap: request.longest_gap,
            prompt: request.arrival.prompt,
            generated: request.generated,
            parts: RequestParts { transfer: transfer_seconds(request), ..request.parts },
        });
    }

    /// The perf-metrics entry of an ended request. Upstream writes entries only for requests with an answer. A host
    /// program of the C++ Executor gets one for every request, with 0 as the time of an event that did not happen.
    fn entry(&self, request: &Request, end: End) -> Option<Entry> {
        let answered = matches!(end, End::Stop | End::Length);
        if !answered && !self.config.statistics.unanswered {
            return None;
        }
        let bytes = self.config.cache.bytes(request.arrival.prompt);
        let release = self.config.release;
        let (is_cpp, is_streamed) = (release.is_cpp(), request.is_streamed(self.config.role));
        Some(Entry {
            id: request.id,
            // The process that answers the request numbers its requests from 2.
            api_id: request.id.wrapping_sub(self.config.first_id()).wrapping_add(2),
            has_orchestrator_id: self.config.uses_orchestrator_ids(),
            end,
            continued: end == End::Length && request.is_handed_over(self.config.role),
            server_arrival: request.arrival.at,
            nonstream: request.arrival.nonstream,
            // Since 1.3, trtllm-serve stamps the first token of a whole answer when the answer is ready.
            server_first_token: request.first_seen_at.filter(|_| is_streamed || release.is_since_1_3()),
            // Before 1.3, `generate_async` stamps the arrival before it tokenises. The C++ Executor stamps its own.
            arrival: if is_cpp || release.is_since_1_3() { request.queued_at } else { request.arrival.at },
            first_scheduled: request.scheduled_at.unwrap_or_default(),
            first_token: request.stamped_at.or(request.first_token_at).unwrap_or_default(),
            last_token: request.last_token_at,
            first_iter: request.first_iter.unwrap_or_default(),
            last_iter: request.last_iter,
            // A context engine in a deployment does not know the time when it answers.
            transfer: request.transfer.filter(|(_, end)| end.is_finite()).map(|(start, over)| (start, over, bytes)),
            counts: request.counts,
            drafted: request.drafted,
            accepted: request.accepted,
            prompt_tokens: request.arrival.prompt,
            output_tokens: request.generated,
            steps: request.step_times.clone(),
        })
    }

    /// The row of an active or queued request.
    pub(crate) fn row(&self, request: &Request) -> Row {
        // Under the overlap scheduler, the next batch has moved these numbers already.
        let filled = if self.config.release.is_cpp() { request.filled } else { request.launched_filled() };
        let transfer = (self.config.role != Role::Aggregated && request.is_admitted()).then(|| {
            let over = request.transfer.filter(|(_, end)| *end <= self.writer.now);
            (over.map_or(0.0, |(start, end)| (end - start) * 1e3), self.config.cache.bytes(request.arrival.prompt))
        });
        Row {
            id: request.id,
            stage: request.stage(filled),
            // After a pause, the prompt contains the tokens of the answer so far.
            prefill_position: filled.min(request.context),
            generated: request.generated,
            steps: request.steps,
            scheduled: request.is_scheduled(),
            paused: request.paused,
            counts: request.counts,
            transfer,
        }
    }
}

/// Seconds of a request's time in the engine during which its KV cache was being transferred.
fn transfer_seconds(request: &Request) -> f64 {
    let within = |(start, end): (f64, f64)| (end.min(request.last_token_at) - start).max(0.0);
    request.transfer.map_or(0.0, within)
}

/// Removes the requests of a queue whose deadline has passed.
fn remove_late(queue: &mut VecDeque<Request>, now: f64) -> Vec<(Request, End)> {
    let next = || first_late(&*queue, now).and_then(|(position, end)| Some((queue.remove(position)?, end)));
    std::iter::from_fn(next).collect()
}

/// The first queued or active request whose deadline has passed: its position, and how it ends.
fn first_late<'a>(requests: impl IntoIterator<Item = &'a Request>, now: f64) -> Option<(usize, End)> {
    let late = |request| deadline(request).filter(|(at, _)| *at <= now).map(|(_, end)| end);
    requests.into_iter().enumerate().find_map(|(position, request)| Some((position, late(request)?)))
}

/// When the client cancels a request or the server times it out.
fn deadline(request: &Request) -> Option<(f64, End)> {
    let arrival = &request.arrival;
    let cancelled = arrival.cancelled_after.map(|seconds| (arrival.at + seconds, End::Cancelled));
    let timed_out = arrival.timeout.map(|seconds| (arrival.at + seconds, End::TimedOut));
    cancelled.into_iter().chain(timed_out).min_by(|a, b| a.0.total_cmp(&b.0))
}
