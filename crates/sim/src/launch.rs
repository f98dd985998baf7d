//! Launches a batch: what it contains, when the GPU runs it, and when its tokens are handled. Ends the pass of the loop, and counts
//! the passes that launch nothing.

use crate::cost::Work;
use crate::engine::Engine;
use crate::pass::Pass;
use crate::passes::{Intake, Launched, Phase};
use crate::scheduler::Batch;
use crate::step::Step;

/// Share of the host's work that is done before the launch of a batch. The rest follows when the tokens of the batch
/// before are handled.
const BUILD: f64 = 0.75;

/// Least seconds of a pass without work. Such a pass is repeated until something can be scheduled.
const SPIN: f64 = 0.001;

impl Engine {
    /// Launches the next batch, if there is work, and sets what the loop does next.
    pub(crate) fn launch(&mut self, now: f64, mut intake: Intake, step: &mut Step) {
        self.passes.wait(Phase::Fetch, None);
        let is_cpp = self.config.release.is_cpp();
        let is_pipelined = self.config.has_cpp_pipeline();
        if !is_cpp || is_pipelined {
            self.passes.intake.add(&intake);
        }
        let active: Vec<_> = self.ranks.iter().map(|rank| rank.active.len() as u32).collect();
        if active.iter().all(|active| *active == 0) {
            return;
        }
        let overlaps = self.overlaps();
        // When the overlap scheduler is turned off, the launched batch is handled first.
        let may_schedule = !self.faults.is_wedged(now) && (overlaps || self.launched.is_empty());
        let batches = if may_schedule { self.schedule(now) } else { Vec::new() };
        if is_cpp && may_schedule {
            self.writer.intake.add(&intake);
        }
        if batches.iter().all(|batch| batch.work.scheduled == 0) {
            self.pass_without_batch(now, batches.iter().any(|batch| batch.work.paused > 0));
            if !self.config.release.carries_new_requests() {
                self.truth.started += self.passes.intake.forget_new();
            }
            return;
        }
        if !is_cpp || is_pipelined {
            intake = std::mem::take(&mut self.passes.intake);
        }
        let costs = &self.config.costs;
        let host = batches.iter().map(|batch| batch.sum(|work| costs.host_seconds(work))).fold(0.0, f64::max);
        let loading: f64 = batches.iter().map(|batch| batch.loading).sum();
        let gpu = self.gpu_seconds(now, &batches);
        let before = self.launched.back().map_or(now, |before| before.end);
        let built = now + BUILD * host;
        let (start, seconds) = if overlaps {
            (built.max(before), gpu + loading)
        } else {
            (now, self.config.costs.iteration_seconds(host, gpu) + loading)
        };
        let delay = self.faults.delay(start, seconds);
        self.truth.busy_seconds += gpu;
        let end = start + seconds + delay;
        match self.launched.front().map(|before| before.end) {
            Some(handled) => self.passes.wait(Phase::Handle, Some(built.max(handled))),
            None if overlaps => self.passes.wait(Phase::Finish, Some(now + host)),
            None => self.passes.wait(Phase::Handle, Some(end)),
        }
        self.passes.tail_seconds = if overlaps { (1.0 - BUILD) * host } else { 0.0 };
        let (pass, pass_begin, slot) = (self.iter, self.passes.begin, self.passes.slot);
        let since = now.max(before);
        let launched = Launched {
            pass,
            pass_begin,
            at: now,
            since,
            start,
            end,
            gpu,
            delay,
            batches,
            active,
            intake,
            micro_batch: self.micro_batch as u32,
            slot,
        };
        self.passes.slot = 1 - slot;
        self.micro_batch = (self.micro_batch + 1) % self.config.ranks.pipeline;
        if is_cpp {
            self.count(&launched, launched.batches.iter().map(|batch| batch.decoded).sum());
        }
        if is_cpp && !self.config.writes_after_tokens() {
            self.report_cpp(now, &launched, step);
        }
        self.launched.push_back(launched);
    }

    /// A pass without a batch handles the batch before. Without one, the loop repeats the pass.
    fn pass_without_batch(&mut self, now: f64, has_paused: bool) {
        if let Some(before) = self.launched.front() {
            let host = self.config.costs.host_seconds(&Work::default());
            self.passes.wait(Phase::Handle, Some(before.end.max(now + BUILD * host)));
            self.passes.tail_seconds = (1.0 - BUILD) * host;
        } else if !self.config.release.is_cpp() {
            // `spin` counts the passes from now on. The wait for work is not one of them.
            if now > self.passes.begin {
                self.end_pass(now);
            }
            // The next pass takes the requests that arrived together with one that ended a wait, and a paused request may fit.
            let takes_more = self.config.release.has_waiting_queue() && !self.queue.is_empty();
            self.passes.due = (has_paused || takes_more).then(|| now + self.spin_seconds());
        }
    }

    /// The batch of each rank.
    fn schedule(&mut self, now: f64) -> Vec<Batch> {
        let stages = self.config.ranks.pipeline;
        // A pass of the C++ Executor is for one micro batch, even if it is empty.
        let turns = if self.config.has_cpp_pipeline() { 1 } else { stages };
        let batch_limit = self.batch_limit(now);
        let mut batches = Vec::new();
        for turn in 1..=turns {
            batches.clear();
            for rank in &mut self.ranks {
                let mut pass = Pass {
                    config: &self.config,
                    now,
                    batch_limit,
                    micro_batch: self.micro_batch,
                    slot: self.passes.slot,
                    random: &mut self.random,
                    adapters: &mut self.adapters,
                    link_free_at: &mut self.link_free_at,
                };
                batches.push(rank.schedule(&mut pass));
            }
            if turn == turns || batches.iter().any(|batch| batch.work.scheduled > 0) {
                break;
            }
            self.micro_batch = (self.micro_batch + 1) % stages;
        }
        batches
    }

    /// Seconds of the GPU for the batches of all ranks. The slowest rank decides.
    fn gpu_seconds(&mut self, now: f64, batches: &[Batch]) -> f64 {
        let costs = &self.config.costs;
        let stages = self.config.ranks.pipeline;
        let slow = self.faults.slow(now).map_or(1.0, |(factor, _)| factor);
        let drafts = self.draft_seconds(batches);
        let longest = batches.iter().map(|batch| batch.sum(|work| costs.gpu_seconds(work))).fold(0.0, f64::max);
        let skew = if stages > 1 { (1.0 + self.config.ranks.imbalance) / stages as f64 } else { 1.0 };
        let spread = match costs.jitter {
            0.0 => 1.0,
            jitter => (1.0 + jitter * self.random.normal()).clamp(0.3, 3.0),
        };
        (longest * skew * spread + drafts) * slow
    }

    /// Seconds that the draft tokens of a batch take.
    pub(crate) fn draft_seconds(&self, batches: &[Batch]) -> f64 {
        let Some(speculation) = &self.config.speculation else { return 0.0 };
        let drafts = batches.iter().any(|batch| batch.work.generation_requests > 0);
        if drafts { speculation.seconds_per_position * f64::from(speculation.draft_len) } else { 0.0 }
    }

    /// Counts a batch whose decoding requests received `decoded` tokens: with C++ when it is launched, with PyTorch when
    /// it is handled. In both cases the truth then counts the batches whose records are written.
    pub(crate) fn count(&mut self, launched: &Launched, decoded: u64) {
        let Launched { batches, intake, .. } = launched;
        self.truth.iterations += 1;
        self.truth.started += intake.new.iter().map(|new| u64::from(*new)).sum::<u64>();
        self.truth.queue_seconds += intake.queue_seconds;
        self.truth.decoded_tokens += decoded;
        self.truth.discarded_tokens += batches.iter().map(|batch| batch.decoded).sum::<u64>() - decoded;
        for batch in batches {
            self.truth.decoded_tokens += batch.answers.tokens;
            self.truth.context_tokens += batch.work.context_tokens;
            self.truth.drafted += batch.drafted;
            self.truth.accepted += batch.decoded - u64::from(batch.work.generation_requests);
            self.truth.pauses += u64::from(batch.work.paused);
            self.truth.recomputed_tokens += batch.recomputed;
        }
    }

    /// Whether the loop launches a batch before it handles the batch before.
    pub(crate) fn overlaps(&self) -> bool {
        self.config.costs.overlap && !self.config.release.is_cpp()
    }

    /// Seconds of a pass that can schedule nothing.
    pub(crate) fn spin_seconds(&self) -> f64 {
        self.config.costs.host_seconds(&Work::default()).max(SPIN)
    }

    /// Numbers the passes that found nothing to schedule since the last step. If no request is active, the running pass
    /// waits for one and has its number already.
    pub(crate) fn spin(&mut self, now: f64) {
        let seconds = now - self.passes.begin;
        if self.config.release.is_cpp() || seconds <= 0.0 || self.ranks.iter().all(|rank| rank.active.is_empty()) {
            return;
        }
        let passes = (seconds / self.spin_seconds()).round().max(1.0);
        if passes > 1.0 {
            self.iter += passes as u64 - 1;
            self.passes.last = seconds / passes;
            self.passes.begin = now - self.passes.last;
        }
        self.end_pass(now);
    }

    /// Ends the running pass.
    pub(crate) fn end_pass(&mut self, now: f64) {
        let passes = &mut self.passes;
        (passes.before_last, passes.last, passes.begin) = (passes.last, now - passes.begin, now);
        self.iter += 1;
    }

    /// After the tokens of a batch are handled: begins the work that the pass still has. If it has none, ends the pass and returns false.
    pub(crate) fn begin_tail(&mut self, now: f64) -> bool {
        let seconds = std::mem::take(&mut self.passes.tail_seconds);
        if self.passes.phase == Phase::Handle && seconds > 0.0 {
            self.passes.wait(Phase::Finish, Some(now + seconds));
            return true;
        }
        if self.passes.phase != Phase::Fetch && !self.config.release.is_cpp() {
            self.end_pass(now);
        }
        false
    }
}
