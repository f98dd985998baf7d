//! Turns what happened into records, in the order and with the quirks of each backend. The C++ Executor writes a record
//! when it starts a batch, so latency and finished requests are those of the batch before. PyTorch writes a record when
//! it handles a batch; README.md says from which pass each member is.

use crate::completion::SAMPLING;
use crate::config::{Era, Release, Role};
use crate::engine::Engine;
use crate::passes::Launched;
use crate::random::Random;
use crate::record::{CacheView, Record, Row, SpeculationCounts, Stage};
use crate::scheduler::Batch;
use crate::step::Step;

impl Engine {
    /// Reports the end of a batch.
    pub(crate) fn report_finished(&mut self, launched: &Launched, now: f64, step: &mut Step) {
        self.writer.now = now;
        if self.config.release.is_cpp() {
            self.writer.pass_seconds = now - self.writer.pass_start;
            self.writer.completed = std::mem::take(&mut self.writer.done).iter().sum();
            if self.ranks.iter().all(|rank| rank.active.is_empty()) {
                // The record of an engine that becomes idle has the next record's iteration, and repeats `new_active`.
                // After a static batch it has the iteration of this batch, and the next record has the batch's time.
                let seconds = std::mem::take(&mut self.writer.pass_seconds);
                let record =
                    Record { new_active: self.writer.new_active, ..self.base_record(now, 0, &Batch::default()) };
                self.truth.flushes += 1;
                self.push_cpp(record, step);
                self.writer.pass_seconds = if self.config.runs_static_batches() { seconds } else { 0.0 };
            }
            self.writer.pass_start = now;
        } else {
            self.report_pytorch(launched, now, step);
        }
        for rank in &mut self.ranks {
            rank.active.iter_mut().for_each(|request| request.was_scheduled = false);
        }
    }

    /// Writes the record of a batch of the C++ Executor: when it is launched, or when its requests have their tokens, if
    /// upstream's `forwardAsync` waits for them. A pass with a static batch takes its number after it.
    pub(crate) fn report_cpp(&mut self, now: f64, launched: &Launched, step: &mut Step) {
        self.writer.now = now;
        let new_active = std::mem::take(&mut self.writer.intake.new).iter().sum();
        self.writer.new_active = new_active;
        let mut record = self.base_record(now, 0, &launched.batches[0]);
        record.new_active = new_active;
        record.queue_latency = launched.intake.queue_seconds;
        record.iter += u64::from(self.config.runs_static_batches());
        self.push_cpp(record, step);
    }

    fn push_cpp(&mut self, record: Record, step: &mut Step) {
        let record = Record { latency: self.writer.pass_seconds, completed: self.writer.completed, ..record };
        let rows = self.config.statistics.rows.then(|| self.rows(0, true));
        if self.is_reported(record.at) {
            if let Some(rows) = rows {
                step.rows.push((record.iter, rows));
            }
            step.records.push(record);
        }
    }

    /// The `iter` of a batch's record. Since 1.3 it is the pass that formed the batch, before that the pass that handles
    /// it, which is the next one with the overlap scheduler.
    pub(crate) fn iter_of(&self, launched: &Launched) -> u64 {
        match self.config.release {
            Release::PyTorch { era: Era::Ranks | Era::Frames, .. } => launched.pass,
            _ => self.iter,
        }
    }

    fn report_pytorch(&mut self, launched: &Launched, now: f64, step: &mut Step) {
        self.writer.intake.add(&launched.intake);
        let iter = self.iter_of(launched);
        let ranks = self.ranks.len();
        let idle = self.ranks.iter().all(|rank| rank.active.is_empty());
        let pending = self.writer.intake.new.iter().chain(&self.writer.done).any(|count| *count > 0);
        let interval = self.config.statistics.interval.max(1);
        let on_beat = iter.is_multiple_of(interval);
        let drains = idle && pending && ranks == 1;
        if !(on_beat || drains) {
            // Rows of requests that end in a skipped iteration are never written.
            self.writer.unreported.clear();
            return;
        }
        let taken = std::mem::take(&mut self.writer.intake.new);
        let done = std::mem::take(&mut self.writer.done);
        let Release::PyTorch { era, .. } = self.config.release else { return };
        let own_rows = self.config.statistics.all_ranks;
        let reported = self.is_reported(now);
        for rank in 0..ranks {
            // Without rows of their own, ranks have only their batch. All else is of rank 0.
            let from = if own_rows { rank } else { 0 };
            let mut record = self.base_record(launched.at, from, &launched.batches[from]);
            record.work = launched.batches[rank].work;
            record.rank = (ranks > 1).then_some(rank as u32);
            record.iter = iter;
            record.micro_batch = launched.micro_batch;
            record.gathered = own_rows && ranks > 1;
            // Active requests are counted when the pass starts. A record between two intervals is
            // written only when the engine becomes idle. It reports ended requests, and no active ones.
            record.active = if on_beat { launched.active[from] } else { 0 };
            // Includes the wait for work. With the overlap scheduler, it covers two passes of the loop.
            record.latency = now - launched.pass_begin;
            if rank == 0 {
                record.queue_latency = self.writer.intake.queue_seconds;
                record.queued = self.queue.len() as u32;
                record.rows = self.config.statistics.rows.then(|| self.rows(0, false));
            } else {
                (record.queued, record.queued_tokens) = (0, 0);
            }
            if rank == 0 || own_rows {
                record.new_active = taken.get(rank).copied().unwrap_or(0);
                record.completed = done.get(rank).copied().unwrap_or(0);
            }
            record.host_seconds = self.passes.last;
            record.gpu_seconds = launched.gpu * (1.0 - SAMPLING);
            record.previous_device_seconds = self.passes.before_last;
            if reported && (era >= Era::Ranks || rank == 0) {
                step.records.push(record);
            }
        }
        self.writer.sequence += 1;
        self.writer.cache_reported = self.ranks.iter().map(|rank| rank.cache.counts).collect();
        self.ranks.iter_mut().for_each(|rank| rank.cache.reset_peak());
    }

    /// The members that all records share.
    fn base_record(&self, at: f64, rank: usize, batch: &Batch) -> Record {
        let limits = &self.config.limits;
        let runtime = self.batch_limit(at);
        let grown = self.faults.memory(at).0;
        // Under overlap, the static loop of a draft model does not measure its time.
        let drafts = if self.overlaps() { 0.0 } else { self.draft_seconds(std::slice::from_ref(batch)) };
        Record {
            at,
            iter: self.iter,
            active: self.ranks[rank].active.len() as u32,
            queued: if rank == 0 { self.queue.len() as u32 } else { 0 },
            max_active: self.max_active(),
            batch_limit: limits.max_batch_size,
            batch_limit_runtime: runtime,
            token_limit: limits.max_num_tokens,
            gpu_memory: self.gpu_memory(),
            cpu_memory: 68_172 + grown,
            cache: self.cache_view(rank),
            work: batch.work,
            micro_batch: (self.iter % self.config.ranks.pipeline as u64) as u32,
            decoded: batch.decoded,
            tokens_per_step: batch.tokens_per_step / f64::from(batch.work.generation_requests.max(1)),
            speculation: self.config.speculation.as_ref().map(|_| SpeculationCounts {
                drafted: batch.drafted,
                accepted: batch.decoded - u64::from(batch.work.generation_requests),
                requests: u64::from(batch.work.generation_requests),
                seconds: drafts,
            }),
            static_batch: self.config.runs_static_batches().then_some(batch.answers.counts),
            queued_tokens: if rank == 0 { self.queued_tokens() } else { 0 },
            queues_generation: self.config.role == Role::GenerationOnly,
            // The loop of a pipeline always overlaps.
            overlap: self.config.costs.overlap || self.config.ranks.pipeline > 1,
            sequence: self.writer.sequence,
            resumed: batch.resumed,
            ..Record::default()
        }
    }

    /// Prompt tokens of the requests that records count as queued. No other release writes them.
    fn queued_tokens(&self) -> u64 {
        let queue = self.queue.iter().filter(|_| self.config.release.has_waiting_queue());
        queue.map(|request| u64::from(request.context)).sum()
    }

    fn cache_view(&self, rank: usize) -> CacheView {
        let (cache, config) = (&self.ranks[rank].cache, &self.config.cache);
        let before = self.writer.cache_reported.get(rank).copied().unwrap_or_default();
        CacheView {
            max: config.blocks,
            free: cache.available() as u32,
            evictable: cache.evictable() as u32,
            peak_used: cache.peak_used() as u32,
            tokens_per_block: config.tokens_per_block,
            host_max: config.host_blocks,
            host_used: cache.host_used() as u32,
            bytes_per_block: config.bytes(config.tokens_per_block),
            total: cache.counts,
            iteration: cache.counts.since(&before),
        }
    }

    /// Rows of a rank's active requests, of the queued requests, and of ended requests that are not reported yet.
    fn rows(&mut self, rank: usize, cpp: bool) -> Vec<Row> {
        let mut rows: Vec<_> = self.ranks[rank]
            .active
            .iter()
            .map(|request| {
                let is_launched = cpp && !self.config.writes_after_tokens();
                let scheduled = if is_launched { request.is_scheduled() } else { request.was_scheduled };
                Row { scheduled, ..self.row(request) }
            })
            .collect();
        rows.extend(self.queue.iter().map(|request| Row { stage: Stage::Queued, ..self.row(request) }));
        rows.append(&mut self.writer.unreported);
        rows
    }

    /// Whether the reader receives the record that is written at this time.
    fn is_reported(&mut self, at: f64) -> bool {
        let (random, polls) = self.faults.losses();
        // The second reader takes all records of a poll, so consecutive records are lost.
        let poll = Random::new((at * 10.0) as u64).unit();
        let lost = !self.config.statistics.enabled || poll < polls || self.writer.random.chance(random);
        self.truth.records += u64::from(!lost);
        self.truth.records_lost += u64::from(lost);
        !lost
    }
}
