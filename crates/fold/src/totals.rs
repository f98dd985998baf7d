//! Totals of all iterations of an engine, over restarts: counters and histograms that never fall.

use trtllm_records::IterationStats;
use trtllm_records::iteration::{KvCacheStats, SpecDecodingStats};
use trtllm_records::schema::Schema as _;

use super::batch::{BatchSums, context_tokens};
use super::batch_time::seconds;
use super::counted::Counted;
use super::defaults::with_defaults;
use super::histogram::{BATCH_REQUESTS, BATCH_TOKENS, Histogram, ITERATION_SECONDS, SHORT_SECONDS};
use super::numbering::Losses;
use super::pools::PoolTotals;
use super::rank_totals::RankTotals;
use super::ranks::Iteration;
use super::saturating::{add, add_known};

with_defaults! {
    /// Plain numbers with one owner. Folding a record uses no atomics and allocates nothing.
    pub struct EngineTotals {
        pub iterations: u64,
        /// Iterations without a record.
        pub losses: Losses,
        /// Iterations per record. Known for PyTorch engines only.
        pub statistics_interval: Option<u64>,
        pub engine_restarts: u64,
        /// How often the clock of the records was set back, or forward by seconds.
        pub clock_steps: u64,
        pub requests_started: u64,
        pub requests_completed: u64,
        /// Sums over iterations. While the statistics are sampled, they are incomplete, and no reader shows them.
        pub batch: BatchSums,
        /// The sums before the statistics were sampled.
        before_sampling: BatchSums,
        sampled: bool,
        /// Drafts in all records, sampled or not, as trtllm-serve counts them.
        pub reported_drafts: SpecDecodingStats,
        /// The cumulative counts of the KV cache, over restarts. Each is absent until a record has it.
        pub kv: KvCacheStats,
        /// The same of the cross attention.
        pub cross_kv: Option<KvCacheStats>,
        pub pools: PoolTotals,
        /// Number of times that a request was paused. Absent until the engine reports its requests.
        pub request_pauses: Option<u64>,
        /// Context tokens that were computed before a pause of their request, too. Absent until rows of requests tell their blocks.
        pub recomputed_tokens: Option<u64>,
        /// Absent until a second rank of attention data parallelism is seen.
        pub ranks: Option<Box<RankTotals>>,
        /// Seconds. One observation per batch whose time is known (see `batch_time`).
        pub iteration_latency: Histogram = Histogram::new(ITERATION_SECONDS),
        /// Requests. One observation per iteration.
        pub iteration_scheduled_requests: Histogram = Histogram::new(BATCH_REQUESTS),
        /// Tokens. One observation per iteration with a context phase.
        pub iteration_context_tokens: Histogram = Histogram::new(BATCH_TOKENS),
        /// Tokens. One observation per row with a context phase, so one for each rank of an iteration, as in trtllm-serve.
        pub row_context_tokens: Histogram = Histogram::new(BATCH_TOKENS),
        /// Seconds. The mean over the requests that an iteration activated, observed once per request.
        pub new_request_queue_time: Histogram = Histogram::new(SHORT_SECONDS),
        /// Seconds of one pass of the host's loop. PyTorch backend only, like the next two histograms.
        pub host_step: Histogram = Histogram::new(ITERATION_SECONDS),
        /// Seconds of the previous device step.
        pub device_step: Histogram = Histogram::new(ITERATION_SECONDS),
        /// Seconds of the forward pass on the GPU.
        pub gpu_forward: Histogram = Histogram::new(ITERATION_SECONDS),
    }
}

impl EngineTotals {
    /// Adds the parts of the record that `counted` contains.
    pub(crate) fn absorb(&mut self, record: &IterationStats, counted: &Counted) {
        add(&mut self.requests_completed, counted.completed);
        if let Some(mut more) = counted.kv {
            self.kv.each_cumulative(&mut more, |total, more| add_known(total, *more));
        }
        if let Some(mut more) = counted.cross_kv {
            self.cross_kv.get_or_insert_default().each_cumulative(&mut more, |total, more| add_known(total, *more));
        }
        add(&mut self.requests_started, counted.started);
        if counted.batch {
            self.batch.absorb_tokens(record, counted.discarded);
            self.batch.absorb_speculation(record);
            self.row_context_tokens.observe(context_phase(context_tokens(record)));
        }
        if counted.own {
            self.pools.absorb(record);
            if let Some(spec) = &record.spec_decoding_stats {
                self.reported_drafts.add_events(spec);
            }
        }
        if counted.iteration {
            add(&mut self.iterations, 1);
            self.absorb_steps(record, counted);
        }
    }

    /// Observes one iteration, summed over its ranks.
    pub(crate) fn observe_iteration(&mut self, iteration: &Iteration) {
        self.iteration_scheduled_requests.observe(iteration.scheduled.map(|scheduled| scheduled as f64));
        self.iteration_latency.observe(iteration.time.map(|time| time.seconds));
        self.iteration_context_tokens.observe(context_phase(iteration.tokens.context));
    }

    /// Whether the engine reports only some iterations, so sums over its records are not totals. After a restart, the
    /// old answer stays until the interval of the new engine is known.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Sets whether the engine is sampled. If it turns out that it is not, the sums are complete.
    pub(crate) fn set_sampled(&mut self, sampled: bool) {
        if sampled && !self.sampled {
            self.before_sampling = self.batch;
            self.ranks.iter_mut().for_each(|ranks| ranks.begin_sampling());
        }
        self.sampled = sampled;
    }

    /// The engine has restarted. What was summed while it was sampled stays incomplete, and is dropped.
    pub(crate) fn restart(&mut self) {
        if self.sampled {
            self.batch = self.before_sampling;
        }
        self.ranks.iter_mut().for_each(|ranks| ranks.restart(self.sampled));
    }

    fn absorb_steps(&mut self, record: &IterationStats, counted: &Counted) {
        // The first steps after idle include the wait for work.
        self.host_step.observe(seconds(record.host_step_time_ms.filter(|_| counted.host_step)));
        self.device_step.observe(seconds(record.prev_device_step_time_ms.filter(|_| counted.device_step)));
        self.gpu_forward.observe(seconds(record.gpu_forward_time_ms));
    }
}

/// The tokens of a batch with a context phase.
fn context_phase(tokens: u64) -> Option<f64> {
    (tokens > 0).then_some(tokens as f64)
}
