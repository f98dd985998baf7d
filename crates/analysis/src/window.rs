//! What happened in the last minutes: the totals of an engine at the end of each slot of five seconds. The difference of two
//! totals gives counts, means, shares and quantiles of any span of the window. Verdicts, the JSON API and the charts use these.

use std::collections::VecDeque;

use trtllm_fold::histogram::{BUCKETS, Bound, Histogram};
use trtllm_fold::request_times::RequestTimes;
use trtllm_fold::request_totals::RequestTotals;
use trtllm_fold::{EngineTotals, Latest};
use trtllm_records::perf_metrics::FinishReason;

use super::cost_model::Prices;
use super::iteration_sums::IterationSums;
use super::numbers::{Numbers as _, mean, numbers, share};
use super::objectives::{ObjectiveTotals, Outcomes};
use super::observed_engine::ObservedEngine;
use crate::totals;

/// Length of a slot in seconds, and number of slots that are kept: five minutes.
pub const SLOT_SECONDS: f64 = 5.0;
const SLOTS: usize = 60;
/// A quantile in the first bucket is given only if that bucket ends at this many seconds or fewer.
const NARROW: f64 = 0.01;
/// Up to this share of iterations without a record does not matter.
const FEW_UNSEEN: f64 = 0.05;

totals! {
    /// Totals of an engine.
    #[derive(Default)]
    pub struct Counts of (engine: &EngineTotals, requests: &RequestTotals, objectives: Option<&ObjectiveTotals>) {
        iterations: f64 = engine.iterations as f64,
        iterations_lost: f64 = engine.losses.lost as f64,
        /// Iterations without a record that may be lost.
        iterations_unexplained: f64 = engine.losses.unexplained as f64,
        /// Lost iterations whose records the engine has dropped itself.
        dropped_by_engine: f64 = engine.losses.dropped as f64,
        restarts: f64 = engine.engine_restarts as f64,
        started: f64 = engine.requests_started as f64,
        completed: f64 = engine.requests_completed as f64,
        pauses: f64 = engine.request_pauses.max(engine.pools.suspended_requests).unwrap_or(0) as f64,
        blocks_reused: f64 = engine.kv.reused_blocks.unwrap_or(0) as f64,
        blocks_looked_up: f64 = engine.kv.looked_up_blocks().unwrap_or(0) as f64,
        blocks_allocated: f64 = engine.kv.alloc_total_blocks.unwrap_or(0) as f64,
        blocks_host_dropped: f64 = engine.pools.events.iter_host_dropped_blocks.unwrap_or(0) as f64,
        ended_well: f64 = ended(requests, FinishReason::Stop) + ended(requests, FinishReason::Length),
        timed_out: f64 = ended(requests, FinishReason::Timeout),
        cancelled: f64 = ended(requests, FinishReason::Cancelled),
        /// Requests that failed in the server. Those with a status 4xx are mistakes of clients.
        refused: f64 = failed_in_server(requests),
        ttft: JudgedRequests = JudgedRequests::of(objectives.and_then(ObjectiveTotals::ttft)),
        tpot: JudgedRequests = JudgedRequests::of(objectives.and_then(ObjectiveTotals::tpot)),
        e2e: JudgedRequests = JudgedRequests::of(objectives.and_then(ObjectiveTotals::e2e)),
        /// By all objectives together.
        all: JudgedRequests = JudgedRequests::of(objectives.map(|objectives| objectives.all)),
        /// Requests of which it is unknown whether they meet all objectives.
        unjudged: f64 = objectives.map_or(0, |objectives| objectives.all.unknown) as f64,
    }
}

fn failed_in_server(requests: &RequestTotals) -> f64 {
    let failed = requests.server.errors.iter().filter(|(code, _)| !code.starts_with('4'));
    failed.map(|(_, count)| *count).sum::<u64>() as f64
}

fn ended(requests: &RequestTotals, reason: FinishReason) -> f64 {
    requests.finished.map_or(0, |finished| finished[reason as usize]) as f64
}

numbers! {
    /// Requests whose outcome for an objective is known.
    pub struct JudgedRequests {
        met,
        missed,
    }
}

numbers! {
    /// Polls of the source of the engine, the records that it sent but that were rejected, and the impossible values that
    /// were left out.
    pub struct PollCounts {
        polls,
        polls_failed,
        records_rejected,
        values_rejected,
    }
}

/// A histogram at one moment, or what was added to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    bounds: &'static [Bound],
    counts: [u32; BUCKETS],
    pub count: f64,
    pub sum: f64,
}

impl Distribution {
    pub fn of(histogram: &Histogram) -> Self {
        let mut counts = [0; BUCKETS];
        for (count, all) in counts.iter_mut().zip(histogram.counts()) {
            // Counts may wrap, but the difference of two counts is still right.
            *count = *all as u32;
        }
        Self { bounds: histogram.bounds(), counts, count: histogram.count() as f64, sum: histogram.sum() }
    }

    pub fn since(&self, before: &Self) -> Self {
        let mut added = *self;
        for (count, old) in added.counts.iter_mut().zip(&before.counts) {
            *count = count.wrapping_sub(*old);
        }
        (added.count, added.sum) = (self.count - before.count, self.sum - before.sum);
        added
    }

    pub fn mean(&self) -> Option<f64> {
        mean(self.sum, self.count)
    }

    /// The value that this share of the observations does not exceed, interpolated within its bucket. Absent if the
    /// bucket is a wide first one, as in histograms of queue times: the value would be a guess.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: f64 = self.counts.iter().map(|count| f64::from(*count)).sum();
        if all <= 0.0 {
            return None;
        }
        let (wanted, mut below, mut lower) = (share * all, 0.0, 0.0);
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            let count = f64::from(*count);
            if below + count >= wanted && count > 0.0 {
                let says_something = lower > 0.0 || bound.value <= NARROW;
                return says_something.then(|| lower + (bound.value - lower) * (wanted - below) / count);
            }
            (below, lower) = (below + count, bound.value);
        }
        Some(lower)
    }

    /// Share of the observations in buckets that end at `limit` or below.
    pub fn share_up_to(&self, limit: f64) -> f64 {
        let all: f64 = self.counts.iter().map(|count| f64::from(*count)).sum();
        let within = self.bounds.iter().zip(&self.counts).filter(|(bound, _)| bound.value <= limit);
        let within: f64 = within.map(|(_, count)| f64::from(*count)).sum();
        share(within, all)
    }
}

numbers! {
    /// The number and the sum of a histogram's observations, where only the mean is needed.
    pub struct Mean {
        count,
        sum,
    }
}

impl Mean {
    pub fn of(histogram: &Histogram) -> Self {
        Self { count: histogram.count() as f64, sum: histogram.sum() }
    }

    pub fn mean(&self) -> Option<f64> {
        mean(self.sum, self.count)
    }
}

totals! {
    /// The distributions of a window, in seconds except for the ratio.
    pub struct Distributions of (engine: &EngineTotals, times: &RequestTimes) {
        iteration: Distribution = Distribution::of(&engine.iteration_latency),
        ttft: Distribution = Distribution::of(&times.time_to_first_token),
        /// Time to the first token from the arrival at the HTTP server.
        server_ttft: Distribution = Distribution::of(&times.server_time_to_first_token),
        tpot: Distribution = Distribution::of(&times.time_per_output_token),
        e2e: Distribution = Distribution::of(&times.e2e_latency),
        queue: Distribution = Distribution::of(&times.queue_time),
        /// Time in the queue of a generation server.
        generation_queue: Mean = Mean::of(&times.generation_queue),
        prefill: Mean = Mean::of(&times.prefill_time),
        transfer: Mean = Mean::of(&times.kv_cache_transfer),
        /// Hit ratio of each request, 0..1.
        hit_ratio: Distribution = Distribution::of(&times.kv_cache_hit_ratio),
    }
}

/// The totals of an engine at the end of a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// Seconds on the caller's clock, which never runs backwards.
    pub at: f64,
    pub counts: Counts,
    pub polling: PollCounts,
    pub sums: IterationSums,
    pub distributions: Distributions,
    /// Requests that wait for a seat or for their batch.
    pub waiting: Option<f64>,
    pub host_bytes: Option<f64>,
    pub costs: Option<Prices>,
    /// Iterations per record.
    pub sampling: f64,
    /// Energy of the engine's GPUs. Absent if they serve another engine, too, or if some of them were not found.
    pub joules: Option<f64>,
    /// 0 if not all GPUs that serve the engine are known.
    pub gpus: usize,
}

impl Mark {
    /// Polls and GPUs are unknown here: the caller sets them.
    pub fn of(ObservedEngine { fold, analysis }: &ObservedEngine, at: f64) -> Self {
        let (totals, requests, latest) = (&fold.totals, &fold.requests.totals, fold.latest());
        Self {
            at,
            counts: Counts::of(totals, requests, analysis.objectives.as_ref()),
            polling: PollCounts::default(),
            sums: analysis.iterations.sums,
            distributions: Distributions::of(totals, &requests.times),
            waiting: latest.and_then(Latest::all_waiting),
            host_bytes: latest.and_then(|latest| latest.cpu_memory).map(|bytes| bytes as f64),
            costs: analysis.iterations.model.costs(),
            sampling: totals.statistics_interval.unwrap_or(1).max(1) as f64,
            joules: None,
            gpus: 0,
        }
    }
}

impl JudgedRequests {
    fn of(outcomes: Option<Outcomes>) -> Self {
        let Outcomes { met, missed, .. } = outcomes.unwrap_or_default();
        Self { met: met as f64, missed: missed as f64 }
    }

    /// Share of them that missed the objective.
    pub fn missed_share(&self) -> Option<f64> {
        mean(self.missed, self.met + self.missed)
    }
}

/// What happened between two marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub seconds: f64,
    pub counts: Counts,
    pub polling: PollCounts,
    pub sums: IterationSums,
    pub distributions: Distributions,
    pub sampling: f64,
    pub joules: Option<f64>,
}

impl Span {
    pub fn between(before: &Mark, after: &Mark) -> Self {
        Self {
            seconds: (after.at - before.at).max(0.0),
            counts: after.counts.since(&before.counts),
            polling: after.polling.since(&before.polling),
            sums: after.sums.since(&before.sums),
            distributions: after.distributions.since(&before.distributions),
            sampling: after.sampling,
            joules: after.joules.zip(before.joules).map(|(after, before)| after - before),
        }
    }

    /// Share of the time in which iterations ran.
    pub fn busy(&self) -> f64 {
        share(self.distributions.iteration.sum * self.sampling, self.seconds).min(1.0)
    }

    /// Output tokens of the iterations that were reported, as a benchmark counts them: with the first token of each
    /// request, which comes from its context phase.
    pub fn output_tokens(&self) -> f64 {
        self.sums.decoded_tokens + self.counts.started
    }

    /// Whether (nearly) every iteration has a record, so that the sums over records are those of the engine.
    pub fn is_complete(&self) -> bool {
        let unseen = self.counts.iterations_lost + self.counts.iterations_unexplained;
        self.sampling <= 1.0 && unseen <= FEW_UNSEEN * self.counts.iterations
    }

    /// Whether only a generation server of disaggregated serving has this work: it computes no prompts.
    pub fn is_of_a_generation_server(&self) -> bool {
        self.sums.generation_requests > 0.0 && self.sums.work.context_tokens <= 0.0
    }

    /// Number of times that a request was paused. Records and the rows of requests both count a pause.
    pub fn pauses(&self) -> f64 {
        self.sums.paused.max(self.counts.pauses)
    }

    /// Mean share of the KV cache that is used.
    pub fn cache_used(&self) -> Option<f64> {
        mean(self.sums.cache_used, self.sums.cache_known)
    }

    /// Mean over the iterations of the highest share of the KV cache that was used during each.
    pub fn cache_peak(&self) -> Option<f64> {
        mean(self.sums.cache_peak, self.sums.cache_known)
    }

    /// Requests that failed or timed out. A request that its client cancels has not failed, and of one with an unknown reason it is
    /// unknown.
    pub fn failed(&self) -> f64 {
        self.counts.timed_out + self.counts.refused
    }

    /// Requests that the engine has served. The records count cancelled requests as completed, and do not count the requests of a
    /// context server when they leave it, so those that started are its served ones.
    pub fn served(&self) -> f64 {
        let counts = &self.counts;
        let has_only_prompts = self.sums.generation_requests <= 0.0 && self.sums.work.context_tokens > 0.0;
        let requests = if has_only_prompts { counts.started.max(counts.completed) } else { counts.completed };
        // A request that is cancelled before it becomes active is not among the completed ones.
        let ended = counts.ended_well + counts.timed_out;
        (requests - counts.cancelled).max(ended.min(requests)).max(0.0)
    }

    /// `number` per second.
    pub fn rate(&self, number: f64) -> f64 {
        share(number, self.seconds)
    }
}

/// Seconds over which a slowdown is measured, if enough iterations run in them.
const SLOWDOWN_SECONDS: f64 = 15.0;
const MINUTE: f64 = 60.0;
const ENOUGH_ITERATIONS: f64 = 50.0;
/// The least share of the time that iterations must have that can be compared.
const COMPARED: f64 = 0.4;
/// An estimate of the time of an iteration may be wrong. It shows a slowdown only from this ratio on, which is larger than its error.
const FAR_SLOWDOWN: f64 = 1.5;

/// How much longer iterations take than equal work took this engine before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    pub ratio: f64,
    /// Most of the work is new, so the times before are from the linear fit.
    pub is_estimate: bool,
}

/// The marks of the last five minutes, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Window {
    marks: VecDeque<Mark>,
}

impl Window {
    /// Adds the mark at the end of a slot, if it is newer than the last mark.
    pub fn push(&mut self, mark: Mark) {
        if self.marks.back().is_some_and(|last| mark.at <= last.at) {
            return;
        }
        if self.marks.len() > SLOTS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    pub fn last(&self) -> Option<&Mark> {
        self.marks.back()
    }

    /// The marks at the beginning and at the end of the last `seconds`, or of what is known of them.
    fn marks_of(&self, seconds: f64) -> Option<[&Mark; 2]> {
        let last = self.marks.back()?;
        // Slots are not exactly five seconds long.
        let first = self.marks.iter().find(|mark| last.at - mark.at <= seconds + 0.5 * SLOT_SECONDS)?;
        Some([first, last])
    }

    /// The last `seconds`, or what is known of them.
    pub fn span(&self, seconds: f64) -> Option<Span> {
        let [first, last] = self.marks_of(seconds)?;
        (last.at > first.at).then(|| Span::between(first, last))
    }

    /// Number of requests that waited at the beginning and at the end of the last `seconds`.
    pub fn waiting(&self, seconds: f64) -> [Option<f64>; 2] {
        self.marks_of(seconds).map_or([None; 2], |marks| marks.map(|mark| mark.waiting))
    }

    /// The slowdown of the last seconds, or of the last minute if few iterations ran. Absent if too few of them can be compared.
    pub fn slowdown(&self) -> Option<Slowdown> {
        let enough = |span: &Span| span.sums.iterations >= ENOUGH_ITERATIONS;
        let span = [SLOWDOWN_SECONDS, MINUTE].into_iter().filter_map(|seconds| self.span(seconds)).find(enough)?;
        let sums = &span.sums;
        let is_compared = |seconds: f64| seconds >= COMPARED * sums.seconds;
        if is_compared(sums.compared_seconds) && sums.expected_seconds > 0.0 {
            return Some(Slowdown { ratio: sums.compared_seconds / sums.expected_seconds, is_estimate: false });
        }
        let seconds = sums.compared_seconds + sums.estimate_compared_seconds;
        let ratio = seconds / (sums.expected_seconds + sums.estimated_seconds);
        (is_compared(seconds) && ratio >= FAR_SLOWDOWN).then_some(Slowdown { ratio, is_estimate: true })
    }

    /// Each slot, with the mark at its end.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = (Span, &Mark)> {
        self.marks.iter().zip(self.marks.iter().skip(1)).map(|(before, after)| (Span::between(before, after), after))
    }

    /// All marks, oldest first.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = &Mark> {
        self.marks.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_an_engine_takes_at_most_105_kb() {
        assert!((SLOTS + 1) * size_of::<Mark>() <= 105_000, "{}", size_of::<Mark>());
    }

    #[test]
    fn cancelled_requests_are_not_served_and_a_context_server_serves_what_it_starts() {
        let mark = Mark::of(&ObservedEngine::new(std::time::Duration::from_secs(15)), 0.0);
        let span = |counts: Counts, generation_requests| {
            let mut after = mark;
            (after.at, after.counts) = (10.0, counts);
            (after.sums.generation_requests, after.sums.work.context_tokens) = (generation_requests, 500.0);
            Span::between(&mark, &after)
        };
        let completed = Counts { started: 14.0, completed: 10.0, ..Counts::default() };
        assert_eq!(span(completed, 100.0).served(), 10.0);
        let active = Counts { cancelled: 3.0, ended_well: 7.0, ..completed };
        assert_eq!(span(active, 100.0).served(), 7.0);
        let queued = Counts { cancelled: 3.0, ended_well: 10.0, ..completed };
        assert_eq!(span(queued, 100.0).served(), 10.0);
        assert_eq!(span(Counts { completed: 0.0, ..completed }, 0.0).served(), 14.0);
    }

    #[test]
    fn a_span_has_what_was_added_in_it() {
        let mut engine = ObservedEngine::new(std::time::Duration::from_secs(15));
        let mut window = Window::default();
        for slot in 0..80_u64 {
            for _ in 0..slot {
                engine.fold.totals.iteration_latency.observe(0.02);
            }
            engine.fold.totals.iterations += slot;
            window.push(Mark::of(&engine, SLOT_SECONDS * slot as f64));
        }
        assert_eq!(window.marks().count(), SLOTS + 1);
        let span = window.span(10.0).unwrap();
        assert_eq!((span.seconds, span.counts.iterations, span.distributions.iteration.count), (10.0, 157.0, 157.0));
        assert_eq!(span.distributions.iteration.quantile(0.5), Some(0.0175));
        assert_eq!(window.span(1000.0).unwrap().seconds, 300.0);
        window.push(Mark::of(&engine, 0.0));
        assert_eq!(window.last().unwrap().at, 395.0, "a mark from before is left out");
    }
}
