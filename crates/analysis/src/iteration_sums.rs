//! Sums over iterations that the page does not show but verdicts need: why requests waited, and what took the time.

use std::ops::Add as _;

use trtllm_fold::Latest;
use trtllm_fold::batch_time::BatchTime;
use trtllm_fold::ranks::Iteration;
use trtllm_records::iteration::Backend;

use super::cost_model::{Batch, CostModel, Work};
use super::numbers::{Numbers as _, number, numbers, share};
use super::timeline::Started;

numbers! {
    /// Sums over the iterations that have a batch and a record.
    pub struct IterationSums {
        iterations,
        scheduled,
        /// Requests that wait: for a seat, or with a seat for their batch. The second sum is only those with a seat.
        backlog,
        held,
        /// Iterations with a backlog, and how many of these were at the limit of the batch, of the tokens and of the KV
        /// cache. An iteration can be at several limits.
        waits,
        waits_at_batch_limit,
        waits_at_token_limit,
        waits_at_full_cache,
        /// Iterations for which the limit of the batch is known, and that of the tokens.
        batch_limit_known,
        token_limit_known,
        /// Iterations for which it is known whether all seats are taken, and those in which they are.
        seats_known,
        seats_taken,
        /// Iterations that could begin a prompt: after an iteration without prompts that held requests back.
        chances,
        /// Those of `chances` that began a prompt.
        admissions,
        /// Those of `admissions` that decoded nothing.
        admissions_alone,
        /// Those of `chances` before which no request had ended, so no block of the KV cache came free.
        chances_without_end,
        /// Those of `chances_without_end` that began a prompt.
        admissions_without_end,
        /// Sum of the used share of the KV cache, and number of iterations that report it.
        cache_used,
        cache_known,
        /// Sum of the highest used share of the KV cache during each of these iterations.
        cache_peak,
        /// Requests that were paused, whichever member of the records says so.
        paused,
        generation_requests,
        /// Tokens decoded in generation phases, with accepted drafts.
        decoded_tokens,
        work: Work,
        /// How many times the tuner raised the batch limit, and lowered it.
        limit_rises,
        limit_falls,
        /// Generation slots of static batches.
        static_slots,
        static_slots_used,
        /// Sum of the share of an iteration in which ranks wait for the fullest rank, and number of iterations for which it is
        /// known.
        rank_wait,
        rank_iterations,
        drafted_requests,
        draft_tokens,
        accepted_tokens,
        /// Sum of the share of a batch's time that drafting took, and number of iterations for which it is known. The engine's own
        /// share is of two batches under the overlap scheduler.
        draft_overhead,
        draft_iterations,
        /// Seconds of iterations whose duration and work are known: of all, of iterations that only decode, and of
        /// iterations that decode and compute prompts, the last two with their number. Then the expected and the actual
        /// seconds of the iterations that the model could compare with equal work.
        seconds,
        /// Seconds in which the GPU ran the forward passes, and seconds of the iterations that report them.
        device_seconds,
        device_known_seconds,
        generation_seconds,
        generation_iterations,
        mixed_seconds,
        mixed_timed,
        expected_seconds,
        compared_seconds,
        /// The same two sums for iterations whose work is new, so that only the linear fit could be used.
        estimated_seconds,
        estimate_compared_seconds,
        /// Seconds of iterations in which decoding requests waited for long prompts.
        blocked_seconds,
        /// Number of iterations that took far longer than the model expected, and their seconds above what it expected.
        spikes,
        spike_seconds,
    }
}

/// A policy of static batches shows if at least this share of the prompts begin while no request decodes, of at least ENOUGH_BATCHES.
pub const ALONE: f64 = 0.95;
const ENOUGH_BATCHES: f64 = 5.0;

impl IterationSums {
    /// Share of the prompts that begin while no request decodes, although requests with a seat waited. Absent if there are few.
    pub fn alone_share(&self) -> Option<f64> {
        (self.admissions >= ENOUGH_BATCHES).then(|| self.admissions_alone / self.admissions)
    }

    /// Iterations with a backlog that were at the limit that was reached most often.
    pub fn waits_at_a_limit(&self) -> f64 {
        self.waits_at_batch_limit.max(self.waits_at_token_limit).max(self.waits_at_full_cache)
    }

    /// Mean seconds of an iteration that only decodes, and of one that also computes prompts. 0 if there is none.
    pub fn mean_seconds(&self) -> [f64; 2] {
        [share(self.generation_seconds, self.generation_iterations), share(self.mixed_seconds, self.mixed_timed)]
    }

    /// Whether the scheduler admits requests only when all others have ended (upstream: `CapacitySchedulerPolicy::kSTATIC_BATCH`). Such
    /// an engine reports in-flight batches.
    pub fn admits_into_empty_batches(&self) -> bool {
        self.generation_requests > 0.0 && self.alone_share().is_some_and(|alone| alone >= ALONE)
    }
}

/// Limits from the engine's settings, each for one rank. The records of the PyTorch engine contain no limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ConfiguredLimits {
    pub batch: Option<i64>,
    pub tokens: Option<i64>,
}

/// What the iterations before tell of the admission of prompts.
#[derive(Debug, Clone, Copy, Default)]
struct Admission {
    /// The last iteration held requests back, and computed no prompt.
    may_follow: bool,
    /// How many requests each of the last two iterations completed. A PyTorch loop that overlaps handles a batch one pass later.
    completed: [u64; 2],
}

/// Adds up iterations, and learns what they cost.
#[derive(Debug, Clone, Default)]
pub struct Iterations {
    pub sums: IterationSums,
    pub model: CostModel,
    pub configured: ConfiguredLimits,
    /// The batch of the previous iteration. The C++ executor reports the time of a batch in the next record.
    before: Option<Batch>,
    admission: Admission,
    batch_limit: Option<i64>,
    /// The engine has drafted tokens since its start.
    pub has_drafted: bool,
}

/// Users notice an iteration that takes this many seconds if it contains decoding requests.
const NOTICED: f64 = 0.12;
/// The batch counts as full if it has at least this share of its limit.
const AT_LIMIT: f64 = 0.95;
/// Share of an iteration's time that counts as nearly all of it.
const MOSTLY: f64 = 0.7;
/// The KV cache counts as full if at least this share is used.
const FULL: f64 = 0.9;

impl Iterations {
    /// Adds the last iteration, with the records of all ranks. `latest` has its values.
    pub(crate) fn observe(&mut self, latest: &Latest, iteration: &Iteration) {
        let batch = Batch::of(latest);
        let before = self.before.replace(batch);
        match (iteration.backend, iteration.time, before) {
            (_, None, _) | (Backend::TensorRt, _, None) | (Backend::VisualGen, ..) => {}
            (Backend::TensorRt, Some(time), Some(before)) if iteration.known => self.observe_time(&before, time),
            (Backend::TensorRt, ..) => {}
            (_, Some(time), _) => self.observe_time(&batch, time),
        }
        self.observe_batch(latest, iteration, &batch);
        self.observe_admission(latest, iteration, &batch, before);
    }

    /// Counts whether prompts begin only when requests have ended, as they do if they wait for the blocks of others.
    fn observe_admission(&mut self, latest: &Latest, iteration: &Iteration, batch: &Batch, before: Option<Batch>) {
        let Admission { may_follow, completed: [last, before_last] } = self.admission;
        let begins = batch.context_requests > 0.0;
        let has_end = match iteration.backend {
            // Its record counts what ended before the batch was formed. Before 0.13, it does not: then fewer requests decode than before.
            Backend::TensorRt if iteration.tells_completed => iteration.completed > 0,
            Backend::TensorRt => before.is_some_and(|before| before.generation_requests > batch.generation_requests),
            Backend::PyTorch | Backend::VisualGen => last + before_last > 0,
        };
        if may_follow && iteration.known {
            let sums = &mut self.sums;
            sums.chances += 1.0;
            sums.admissions += f64::from(begins);
            sums.admissions_alone += f64::from(begins && batch.generation_requests <= 0.0);
            sums.chances_without_end += f64::from(!has_end);
            sums.admissions_without_end += f64::from(!has_end && begins);
        }
        let may_follow = !begins && batch.scheduled() > 0.0 && latest.held().is_some_and(|held| held > 0);
        self.admission = Admission { may_follow, completed: [iteration.completed, last] };
    }

    /// Notes a restart of the engine. The cost model is kept, so that a slower engine is noticed.
    pub(crate) fn restart(&mut self) {
        self.before = None;
        self.admission = Admission::default();
        self.has_drafted = false;
        self.batch_limit = None;
    }

    /// The work of the last iteration, and how long it takes by the cost model.
    pub(crate) fn started(&self, latest: &Latest) -> Started {
        let batch = Batch::of(latest);
        let (expected_seconds, context_share) = self.model.predict(&batch);
        let paused = number(latest.pauses);
        Started {
            context_tokens: batch.work.context_tokens,
            context_share,
            expected_seconds,
            paused,
            ..Started::default()
        }
    }

    fn observe_time(&mut self, batch: &Batch, time: BatchTime) {
        let seconds = time.seconds;
        let sums = &mut self.sums;
        if batch.scheduled() <= 0.0 {
            return;
        }
        sums.seconds += seconds;
        if let Some(device) = time.device_seconds {
            sums.device_seconds += device;
            sums.device_known_seconds += seconds;
        }
        match (batch.context_requests > 0.0, batch.generation_requests > 0.0) {
            (false, _) => {
                sums.generation_seconds += seconds;
                sums.generation_iterations += 1.0;
            }
            (true, true) => {
                sums.mixed_seconds += seconds;
                sums.mixed_timed += 1.0;
            }
            (true, false) => {}
        }
        let judged = self.model.observe(batch, seconds);
        if batch.generation_requests > 0.0 && judged.context_share >= MOSTLY && seconds >= NOTICED {
            sums.blocked_seconds += seconds;
        }
        match judged.expected {
            Some(expected) if judged.is_spike => {
                sums.spikes += 1.0;
                sums.spike_seconds += seconds - expected;
            }
            Some(expected) if judged.is_estimate => {
                sums.estimated_seconds += expected;
                sums.estimate_compared_seconds += seconds;
            }
            Some(expected) => {
                sums.expected_seconds += expected;
                sums.compared_seconds += seconds;
            }
            None => {}
        }
    }

    fn observe_batch(&mut self, latest: &Latest, iteration: &Iteration, batch: &Batch) {
        let scheduled = number(latest.scheduled());
        let limit = latest.batch_size_limits.runtime;
        if let (Some(before), Some(now)) = (self.batch_limit, limit) {
            self.sums.limit_rises += f64::from(now > before);
            self.sums.limit_falls += f64::from(now < before);
        }
        self.batch_limit = limit.or(self.batch_limit);
        if scheduled <= 0.0 {
            return;
        }
        let batch_limit = latest.batch_limit(self.configured.batch).map(|limit| limit as f64);
        let tokens = latest.token_limit(self.configured.tokens).map(|limit| limit as f64);
        let sums = &mut self.sums;
        sums.iterations += 1.0;
        sums.scheduled += scheduled;
        let (backlog, held) = (latest.all_waiting().unwrap_or(0.0), number(latest.held()));
        sums.backlog += backlog;
        sums.held += held;
        let at_batch_limit =
            batch_limit.is_some_and(|limit| scheduled >= AT_LIMIT * limit) || latest.is_full_of_running();
        let at_token_limit = tokens.is_some_and(|limit| batch.is_full_of_tokens(limit, batch_limit));
        let used = latest.cache_used();
        let peak = latest.cache_peak.into_iter().chain(used).reduce(f64::max);
        let at_full_cache = peak.is_some_and(|used| used >= FULL);
        if let Some((used, peak)) = used.zip(peak) {
            sums.cache_used += used;
            sums.cache_peak += peak;
            sums.cache_known += 1.0;
        }
        sums.batch_limit_known += f64::from(batch_limit.is_some() || latest.is_full().is_some());
        sums.token_limit_known += f64::from(tokens.is_some());
        sums.seats_known += f64::from(latest.is_full().is_some());
        sums.seats_taken += f64::from(latest.is_full() == Some(true));
        if backlog >= 0.5 {
            sums.waits += 1.0;
            sums.waits_at_batch_limit += f64::from(at_batch_limit);
            sums.waits_at_token_limit += f64::from(at_token_limit);
            sums.waits_at_full_cache += f64::from(at_full_cache);
        }
        sums.paused += number(latest.pauses);
        sums.generation_requests += batch.generation_requests;
        sums.decoded_tokens += iteration.tokens.generation as f64;
        sums.work = sums.work.combine(&batch.work, &f64::add);
        if let Some(fixed) = &latest.static_batching {
            sums.static_slots_used += number(fixed.num_gen_tokens);
            sums.static_slots += number(fixed.num_gen_tokens) + number(fixed.empty_gen_slots);
        }
        if let Some(imbalance) = iteration.imbalance(latest.attention_dp_ranks()) {
            sums.rank_wait += 1.0 - 1.0 / imbalance;
            sums.rank_iterations += 1.0;
        }
        if let Some(drafts) = latest.spec_decoding {
            sums.drafted_requests += number(drafts.num_requests_with_draft_tokens);
            sums.draft_tokens += number(drafts.num_draft_tokens);
            self.has_drafted |= drafts.num_draft_tokens.is_some_and(|tokens| tokens > 0);
            sums.accepted_tokens += number(drafts.num_accepted_tokens);
            // 0 means that drafting was not measured, as where the model drafts itself.
            let drafting = drafts.iter_latency_ms.filter(|ms| *ms > 0.0);
            if let (Some(ms), Some(time)) = (drafting, iteration.time) {
                sums.draft_overhead += (ms / 1000.0 / time.seconds).min(1.0);
                sums.draft_iterations += 1.0;
            }
        }
    }
}
