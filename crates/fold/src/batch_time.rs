//! The time that each batch took. Everything that puts a time beside work takes it from here.
//!
//! A PyTorch loop handles the tokens of a batch at the time of the record's timestamp plus `iterLatencyMS`, in every release and
//! in both loops (upstream: `_get_init_iter_stats`, `_process_iter_stats`). A batch takes the time from the moment when the batch
//! before it was handled, or from its own timestamp if that is later, until it is handled itself.
//!
//! | records | time of the batch of record k |
//! | --- | --- |
//! | overlap with host step (1.3) | latency k − latency k−1 + host step k−1: the same difference, without the noise of timestamps |
//! | overlap of 1.0 to 1.2 | timestamp k + latency k − (timestamp k−1 + latency k−1) |
//! | serial | latency k |
//! | first after idle | as 1.0 to 1.2; the pass began when the batch before was handled, and its wait ended at the timestamp |
//! | with host step, after several passes without a batch | latency k − host step k, and the time to form it, from idle times before |
//! | with host step, first of all, after a loss, sampled | latency k − host step k. Without host step: unknown |
//! | pipeline parallelism | as 1.0 to 1.2, because the host step is that of another pass |
//! | attention-DP records | by the first record: all ranks run in step |
//! | handled only after an idle time (a request ended by a stop word is in one more batch) | unknown |
//! | C++ executor | the latency of record k is the time of batch k−1, unless the engine was idle |
//! | no timestamp (0.20) | latency k, which covers two batches if the engine overlaps |
//! | line of the iteration log | latency k: it has no timestamp, and its source has computed the time of the batch |
//!
//! The device's part is the forward pass, if the engine reports it (`gpuForwardTimeMS`). The rest is the host's part. If the host is the
//! limit, it spends the rest on building the next batch. The rest still counts for this batch. Otherwise batches after a prompt would
//! look short, and iterations with equal work could not be compared.

use trtllm_records::IterationStats;
use trtllm_records::iteration::SchedulerMode;

use super::counted::Counted;

/// The time of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchTime {
    pub seconds: f64,
    /// The part in which the GPU ran the forward pass. Absent if the engine does not report it.
    pub device_seconds: Option<f64>,
}

/// A batch whose time a record told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedBatch {
    /// The iteration of its own record. The C++ executor tells the time of a batch in the next record.
    pub iter: Option<u64>,
    /// Microseconds since 1970 UTC.
    pub ended_us: i64,
    pub time: BatchTime,
}

/// A batch on the clock of the engine's timestamps, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSpan {
    /// When the loop began to build the batch.
    pub built_us: i64,
    /// When the batch before was handled, or `built_us` if that is later.
    pub begun_us: i64,
    /// When the tokens of the batch were handled.
    pub handled_us: i64,
    pub time: Option<BatchTime>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handled {
    iter: Option<u64>,
    built_us: i64,
    at_us: i64,
    passes: Passes,
    /// A later batch was handled, but it is unknown when.
    is_outdated: bool,
    /// It was the first after an idle time.
    was_idle: bool,
}

/// Each sum over recent batches forgets a fiftieth with a new batch.
const RECENT: f64 = 0.98;

/// The batches of a PyTorch engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchTimes {
    pub last: Option<Handled>,
    /// Sums of the latencies and of the times of recent batches. With the overlap scheduler, a latency covers two batches.
    latencies: f64,
    times: f64,
    /// Mean seconds that the loop needs to form a batch, from the batches after an idle time: then it waits for no other batch.
    forming: Option<f64>,
}

/// 0 means that the time was not measured.
pub(crate) fn seconds(ms: Option<f64>) -> Option<f64> {
    ms.filter(|ms| *ms > 0.0).map(|ms| ms / 1000.0)
}

fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// What a record tells of the passes of the loop, in seconds.
#[derive(Debug, Clone, Copy)]
struct Passes {
    latency: f64,
    /// Of the pass that built the batch, which waited for the batch before. Absent in the serial loop and in a pipeline.
    host_step: Option<f64>,
    device: Option<f64>,
}

impl Passes {
    fn of(record: &IterationStats) -> Self {
        let is_in_pipeline = record.inflight_batching_stats.is_some_and(|batch| batch.is_in_pipeline());
        let overlap = record.scheduler_mode == Some(SchedulerMode::Overlap);
        Self {
            latency: seconds(record.iter_latency_ms).unwrap_or(0.0),
            host_step: seconds(record.host_step_time_ms).filter(|_| overlap && !is_in_pipeline),
            device: seconds(record.gpu_forward_time_ms),
        }
    }

    /// How long the next pass waited for the batch.
    fn wait_of_next_pass(&self) -> Option<f64> {
        self.host_step.map(|host_step| self.latency - host_step).filter(|wait| *wait > 0.0)
    }

    /// Seconds between the moments in which the batch of the pass before and this batch were handled.
    fn since(&self, before: &Self) -> Option<f64> {
        self.host_step.and(before.host_step).map(|host_step| self.latency - before.latency + host_step)
    }
}

impl BatchTimes {
    /// Adds a record with its own timestamp `built_us`.
    pub(crate) fn observe(&mut self, record: &IterationStats, built_us: i64, counted: &Counted) -> BatchSpan {
        let passes = Passes::of(record);
        let built_us = built_us.max(self.last.map_or(i64::MIN, |last| last.built_us));
        let may_have_waited = counted.latency_seconds.is_none();
        let before = self.last.filter(|last| counted.follows && (may_have_waited || !last.is_outdated));
        // Without timestamps, only new requests show that the engine was not idle when it built the batch.
        let is_clocked = record.timestamp.is_some();
        let is_busy =
            before.is_some_and(|before| if is_clocked { built_us < before.at_us } else { counted.started == 0 });
        if let (true, true, 0, Some(before)) = (may_have_waited, is_busy, counted.started, before) {
            // All requests of this batch had ended when it was built. The next pass, which handles it, waits for work first.
            self.last = Some(Handled { is_outdated: true, ..before });
            return BatchSpan { built_us, begun_us: before.at_us, handled_us: before.at_us, time: None };
        }
        let waited = may_have_waited && !is_busy;
        let previous =
            before.filter(|before| !waited && record.iter.is_some_and(|iter| before.iter == iter.checked_sub(1)));
        let handled_us = match (waited, previous.is_none() && passes.host_step.is_some()) {
            (false, false) => Some(built_us.saturating_add(micros(passes.latency))),
            _ => self.handled_after_others(&passes, record.iter, built_us, before, waited),
        };
        let begun_us = before.map_or(built_us, |before| before.at_us.max(built_us));
        let by_passes = previous.and_then(|previous| passes.since(&previous.passes));
        let by_clock = before.and(handled_us).map(|at_us| (at_us - begun_us) as f64 / 1e6).filter(|_| is_clocked);
        let reported = counted.latency_seconds.filter(|_| match record.scheduler_mode {
            // After a loss it is unknown whether the engine was idle.
            Some(SchedulerMode::NonOverlap) => !counted.gap.broken,
            Some(_) => false,
            None => !is_clocked,
        });
        let seconds =
            reported.or(by_passes).or(by_clock).or(passes.wait_of_next_pass()).filter(|seconds| *seconds > 0.0);
        let time = seconds
            .map(|seconds| BatchTime { seconds, device_seconds: passes.device.map(|device| device.min(seconds)) });
        self.note(record.scheduler_mode, passes.latency, time.filter(|_| !waited && is_clocked), previous, built_us);
        self.last = handled_us.map(|at_us| Handled {
            iter: record.iter,
            built_us,
            at_us,
            passes,
            is_outdated: false,
            was_idle: waited,
        });
        BatchSpan { built_us, begun_us, handled_us: handled_us.unwrap_or(built_us), time }
    }

    /// When a batch was handled whose pass does not follow that of another batch. A pass that `waited` began when the batch before was
    /// handled, because an engine that becomes idle runs at most one pass without a batch. If it ran more, as during a transfer of KV
    /// caches, only the wait of the next pass for the batch is known.
    fn handled_after_others(
        &self,
        passes: &Passes,
        iter: Option<u64>,
        built_us: i64,
        before: Option<Handled>,
        waited: bool,
    ) -> Option<i64> {
        let passes_since = before.and_then(|before| iter?.checked_sub(before.iter?));
        let at_us = match before.filter(|_| waited && passes_since.is_none_or(|passes| passes <= 2)) {
            Some(before) => before.at_us.saturating_add(micros(passes.latency)),
            None => {
                let forming = self.forming.filter(|_| before.is_some());
                built_us.saturating_add(micros(passes.wait_of_next_pass()? + forming.unwrap_or(0.0)))
            }
        };
        Some(at_us.clamp(built_us, built_us.saturating_add(micros(passes.latency))))
    }

    /// Learns how the loop works. `time` and `previous` are absent if the pass waited for work.
    fn note(
        &mut self,
        mode: Option<SchedulerMode>,
        latency: f64,
        time: Option<BatchTime>,
        previous: Option<Handled>,
        built_us: i64,
    ) {
        if let Some(time) = time {
            (self.latencies, self.times) = (RECENT * self.latencies + latency, RECENT * self.times + time.seconds);
        }
        if let Some(previous) = previous.filter(|previous| previous.was_idle && mode != Some(SchedulerMode::NonOverlap))
        {
            let forming = (built_us - previous.built_us) as f64 / 1e6;
            self.forming = Some(self.forming.map_or(forming, |mean| mean + (forming - mean) / 10.0));
        }
    }

    /// Whether a batch is formed while the one before runs. Engines before 1.3 do not report it, so it is absent until a batch is timed.
    pub(crate) fn overlaps(&self, mode: Option<SchedulerMode>) -> Option<bool> {
        match mode {
            Some(mode) => Some(mode == SchedulerMode::Overlap),
            None => (self.times > 0.0).then_some(self.latencies > 1.5 * self.times),
        }
    }

    pub(crate) fn forming_seconds(&self) -> Option<f64> {
        self.forming
    }
}

#[cfg(test)]
mod tests;
