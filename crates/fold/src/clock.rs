//! Derives when the events happened that the rows of requests in an iteration show. The times of requests are computed
//! from this. The timestamp of a record means something different in each engine:
//!
//! - The C++ executor ends the previous batch, starts the next one and then writes the record, with the time of writing.
//! - The PyTorch engine notes the time when it starts a batch, and writes the record when the batch has ended.

use std::collections::VecDeque;
use std::time::Instant;

use trtllm_records::iteration::{Backend, SchedulerMode};
use trtllm_records::{IterationStats, RequestStage, RequestStats};

use super::batch::scheduled;
use super::batch_time::{BatchTime, BatchTimes};
use super::counted::Counted;

/// Number of iterations kept for rows of requests that arrive later: about as many as the engine's ring buffer holds by
/// default.
const KEPT: usize = 1024;
/// The same for the PyTorch backend, which sends the rows of requests inside its records.
const KEPT_OF_PYTORCH: usize = 64;
/// A clock that is set forward by less is not noticed.
const STEP_US: i64 = 5_000_000;
/// The same for a clock that is set back. Timestamps are rounded.
const BACK_US: i64 = 1000;

/// When the events happened that the rows of one iteration show, in microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockSpan {
    pub iter: Option<u64>,
    /// When the requests arrived that became active in this pass: as the engine tells it, on average, or else the earliest possible
    /// time. Absent if they may have waited for other requests to end, and the engine does not tell how long.
    pub arrived_us: Option<i64>,
    /// The earliest possible arrival of a request that these rows show for the first time, and that is not active.
    pub arrived_waiting_us: i64,
    /// The rows of an overlapped batch are written in the next pass, so an active request that is not in the batch can have become
    /// active in the next pass.
    pub overlaps: bool,
    /// When the batch started.
    pub scheduled_us: i64,
    /// When it became the batch that the engine waits for: the batch before it was handled.
    pub begun_us: i64,
    /// When the tokens that the rows count were complete, and the complete requests ended.
    pub ended_us: i64,
    /// Whether the record is the flush that the engine sends when it becomes idle. It has the number of the next
    /// iteration.
    pub flush: bool,
    /// Whether the record of the previous iteration was read. Only if it was, a request that is first seen in this
    /// iteration is new.
    pub continuous: bool,
}

/// The last record.
#[derive(Debug, Clone, Copy)]
struct Last {
    time_us: i64,
    /// Its time, as it was written.
    written_us: i64,
    received: Instant,
    latency_us: i64,
    start_us: i64,
    end_us: i64,
    /// The engine was idle after it. It has taken the next requests at once if some were queued.
    was_idle: bool,
    /// The last pass had a batch. A flush does not count as a pass.
    had_batch: bool,
    /// The engine could take no further request.
    is_full: bool,
}

/// The recent iterations, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct IterationClock {
    spans: VecDeque<ClockSpan>,
    pub(crate) batches: BatchTimes,
    last: Option<Last>,
    pub(crate) is_pipeline: bool,
    /// Latency of the last iteration whose latency is known, in microseconds.
    typical_us: i64,
    /// The rows are from the PyTorch engine, even if its records do not show that.
    pub(crate) pytorch_rows: bool,
}

impl IterationClock {
    /// Whether the loop forms a batch while the one before runs. False while that is unknown.
    pub(crate) fn overlaps(&self, record: &IterationStats) -> bool {
        record.backend() == Backend::PyTorch && self.batches.overlaps(record.scheduler_mode) == Some(true)
    }

    /// Whether the clock was set back or forward before this time of a record, which is received at `now`. A difference of times before
    /// and after that moment is wrong. A pass that hung is not a step of the clock: this record or the one before tells how long it took.
    pub(crate) fn is_set(&self, record: &IterationStats, time_us: i64, now: Instant) -> bool {
        self.last.is_some_and(|last| self.jumps(record, last, (last.time_us, time_us), now))
    }

    /// Like [`IterationClock::is_set`], by the times as they were written. Without a zone, a time is known modulo a quarter of an hour. An
    /// old record seems younger then, and the time of the next one may jump although no clock was set.
    pub(crate) fn is_set_as_written(&self, record: &IterationStats, time_us: i64, now: Instant) -> bool {
        let times = |last: Last| (last.written_us, written_us(record, time_us));
        self.last.is_some_and(|last| self.jumps(record, last, times(last), now))
    }

    fn jumps(&self, record: &IterationStats, last: Last, (before_us, time_us): (i64, i64), now: Instant) -> bool {
        let follows =
            self.spans.back().is_some_and(|span| record.iter.is_some_and(|iter| span.iter == iter.checked_sub(1)));
        let pass_us = record.iter_latency_ms.filter(|_| follows && !last.was_idle).map(|ms| (2000.0 * ms) as i64);
        let pass_us = pass_us.map(|us| us.max(last.latency_us.saturating_mul(2)));
        let received_us = i64::try_from(now.saturating_duration_since(last.received).as_micros()).unwrap_or(i64::MAX);
        let forward_us = time_us.saturating_sub(before_us);
        let expected_us = |pass_us: i64| received_us.saturating_add(pass_us).saturating_add(STEP_US);
        forward_us < -BACK_US || pass_us.is_some_and(|pass_us| forward_us > expected_us(pass_us))
    }

    /// Forgets the times of earlier records, because the clock was set. What is known of the engine stays.
    pub(crate) fn begin_again(&mut self) {
        self.spans.clear();
        (self.last, self.batches.last) = (None, None);
    }

    /// Adds a record. `time_us` is its time, or the time when it was received. Returns the time of its batch, or of the batch before
    /// if the record is from the C++ executor.
    pub(crate) fn record(
        &mut self,
        record: &IterationStats,
        time_us: i64,
        counted: &Counted,
        flush: bool,
        now: Instant,
    ) -> Option<BatchTime> {
        let is_static = record.static_batching_stats.as_ref().is_some_and(|batch| !batch.is_all_zero());
        self.pytorch_rows |= !is_static && record.request_stats.iter().flatten().any(is_pytorch);
        let pytorch = self.pytorch_rows || record.backend() == Backend::PyTorch;
        self.is_pipeline |= record.inflight_batching_stats.is_some_and(|batch| batch.is_in_pipeline());
        // The latency of the C++ executor is of the pass before. In a pipeline that pass may have had no batch.
        let had_batch = self.last.is_none_or(|last| last.had_batch);
        let latency_seconds = counted.latency_seconds.filter(|_| pytorch || had_batch);
        let waited = latency_seconds.is_none();
        let before_us = self.typical_us;
        let latency_us = record.iter_latency_ms.or(record.host_step_time_ms).map(|ms| (ms * 1000.0) as i64);
        if let Some(latency_us) = latency_us.filter(|_| !waited) {
            self.typical_us = latency_us;
        }
        let continuous = self.last.is_some() && !counted.gap.broken;
        let limit = record.max_num_active_requests.filter(|limit| *limit > 0);
        let is_full = record.num_active_requests.zip(limit).is_some_and(|(active, limit)| active >= limit);
        let batch = (pytorch && !flush).then(|| self.batches.observe(record, time_us, counted));
        let (start_us, end_us) = match batch {
            Some(batch) if record.timestamp.is_some() => {
                (batch.built_us, batch.handled_us.max(self.last.map_or(i64::MIN, |last| last.end_us)))
            }
            _ => self.written_at(record, time_us, continuous),
        };
        let last = self.last;
        let overlaps = pytorch && record.scheduler_mode != Some(SchedulerMode::NonOverlap);
        let (arrived_us, arrived_waiting_us, scheduled_us, begun_us) = if pytorch {
            // Requests in the batch arrived during the previous batch, or their arrival ended the idle time.
            let earlier_us = last.map_or(start_us, |last| last.start_us).max(start_us.saturating_sub(before_us));
            let earliest_us = if waited { start_us } else { earlier_us };
            let was_full = is_full || last.is_some_and(|last| last.is_full);
            let arrived_us = match seconds_before_active(record, counted) {
                Some(seconds) => Some(start_us.saturating_sub((seconds * 1e6) as i64)),
                None => (!was_full).then_some(earliest_us),
            };
            let begun_us = batch.map_or(start_us, |batch| batch.begun_us.max(start_us));
            (arrived_us, if overlaps { start_us } else { earliest_us }, start_us, begun_us)
        } else {
            // A static batch runs from its first to its last token before its record is written. In a pipeline, a pass launches its
            // batch and waits for the tokens of this batch (upstream: `decoderSync` in `forwardAsync`).
            let begun_us = if is_static || self.is_pipeline { start_us } else { end_us };
            // A request that ends the idle time is in the first record after it.
            let arrived_us = if last.is_some_and(|last| last.was_idle) { begun_us } else { start_us };
            (Some(arrived_us), arrived_us, begun_us, begun_us)
        };
        let was_idle = flush && record.num_queued_requests.unwrap_or(0) == 0;
        let had_batch = if flush { had_batch } else { scheduled(record) != Some(0) };
        self.last = Some(Last {
            time_us,
            written_us: written_us(record, time_us),
            received: now,
            latency_us: latency_us.unwrap_or(0),
            start_us,
            end_us,
            was_idle,
            had_batch,
            is_full,
        });
        let kept = if pytorch { KEPT_OF_PYTORCH } else { KEPT };
        while self.spans.len() >= kept {
            self.spans.pop_front();
        }
        self.spans.push_back(ClockSpan {
            iter: record.iter,
            arrived_us,
            arrived_waiting_us,
            overlaps,
            scheduled_us,
            begun_us,
            ended_us: end_us,
            flush,
            continuous,
        });
        match batch.filter(|_| record.backend() == Backend::PyTorch) {
            Some(batch) => batch.time,
            None => latency_seconds.map(|seconds| BatchTime { seconds, device_seconds: None }),
        }
    }

    /// Start and end of the batch that a record shows, if the record was written at `time_us`.
    fn written_at(&self, record: &IterationStats, time_us: i64, continuous: bool) -> (i64, i64) {
        let end_us = match (record.timestamp, self.last) {
            // Several records are received at once. Among these, the engine's own latencies are the better clock.
            (None, Some(last)) => {
                let stepped = last.end_us.saturating_add(self.typical_us);
                if (time_us - 1_000_000..=time_us).contains(&stepped) { stepped } else { time_us.max(last.end_us) }
            }
            (_, last) => time_us.max(last.map_or(i64::MIN, |last| last.end_us)),
        };
        let start_us = match self.last {
            Some(last) if continuous && !last.was_idle => last.end_us,
            // After an idle period, the time since the last record includes the wait for work.
            Some(last) => end_us.saturating_sub(self.typical_us).max(last.end_us),
            None => end_us.saturating_sub(self.typical_us),
        };
        (start_us, end_us)
    }

    pub(crate) fn newest(&self) -> Option<ClockSpan> {
        self.spans.back().copied()
    }

    /// The span for request rows that came without a record: the first unused span of iteration `iter`. Rows can belong to a
    /// flush only if all their requests are complete.
    pub(crate) fn take(&mut self, iter: Option<u64>, all_complete: bool) -> Option<ClockSpan> {
        let at = self.spans.iter().position(|span| span.iter == iter && (all_complete || !span.flush))?;
        self.spans.drain(..at);
        self.spans.pop_front()
    }
}

fn written_us(record: &IterationStats, time_us: i64) -> i64 {
    record.timestamp.map_or(time_us, |time| time.micros)
}

/// Mean seconds that the new requests of a record of the PyTorch engine have waited until they became active. Most of that time they
/// are in a queue of the loop that no row and no count shows. A row with `rank` has the time of all ranks.
fn seconds_before_active(record: &IterationStats, counted: &Counted) -> Option<f64> {
    let requests = counted.started.max(1) as f64;
    counted.waited.filter(|_| record.rank.is_none() && counted.started > 0).map(|seconds| seconds / requests)
}

/// The C++ executor never reports a complete request as scheduled, because its rows already show the next batch. Only static batches
/// have ended when their rows are written.
fn is_pytorch(row: &RequestStats) -> bool {
    row.stage == Some(RequestStage::Complete) && row.scheduled == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_records::RecordTime;
    use trtllm_records::iteration::InflightBatchingStats;

    const MS: i64 = 1000;

    fn record(at_ms: i64, latency_ms: f64) -> IterationStats {
        let timestamp = Some(RecordTime { micros: at_ms * MS, zoned: true });
        IterationStats { timestamp, iter_latency_ms: Some(latency_ms), ..IterationStats::default() }
    }

    fn pytorch(at_ms: i64, latency_ms: f64, mode: SchedulerMode) -> IterationStats {
        IterationStats { scheduler_mode: Some(mode), ..record(at_ms, latency_ms) }
    }

    /// The next record tells the time of a pass, which is none without a batch.
    #[test]
    fn a_pass_without_a_batch_has_no_time() {
        let pass = |at, micro_batch_id, scheduled| {
            let batch = InflightBatchingStats {
                micro_batch_id: Some(micro_batch_id),
                num_scheduled_requests: Some(scheduled),
                ..InflightBatchingStats::default()
            };
            IterationStats { inflight_batching_stats: Some(batch), ..record(at, 50.0) }
        };
        let has_time = |scheduled| {
            let mut clock = IterationClock::default();
            let counted = Counted { latency_seconds: Some(0.000_02), follows: true, ..Counted::default() };
            clock.record(&pass(100, 1, scheduled), 100 * MS, &counted, false, Instant::now());
            clock.record(&pass(150, 0, 4), 150 * MS, &counted, false, Instant::now()).is_some()
        };
        assert_eq!((has_time(0), has_time(4)), (false, true));
    }

    #[test]
    fn a_pass_that_hangs_is_not_a_step_of_the_clock() {
        let (mut clock, now) = (IterationClock::default(), Instant::now());
        let serial = |iter, at_ms, latency_ms| IterationStats {
            iter: Some(iter),
            ..pytorch(at_ms, latency_ms, SchedulerMode::NonOverlap)
        };
        let is_set = |clock: &IterationClock, record: &IterationStats| {
            clock.is_set(record, record.timestamp.map_or(0, |time| time.micros), now)
        };
        // The second pass takes 12 s. Its record, and not the next one, tells it.
        for (iter, at_ms, latency_ms) in [(1, 0, 20.0), (2, 20, 12_000.0), (3, 12_020, 20.0)] {
            let record = serial(iter, at_ms, latency_ms);
            assert!(!is_set(&clock, &record), "{iter}");
            let counted = Counted { latency_seconds: Some(latency_ms / 1000.0), ..Counted::default() };
            clock.record(&record, at_ms * MS, &counted, false, now);
        }
        assert!(is_set(&clock, &serial(4, 3_612_040, 20.0)));
        assert!(!is_set(&clock, &serial(9, 3_612_040, 20.0)), "records are missing, so the time may have passed");
        assert!(!clock.is_set(&serial(4, 3_612_040, 20.0), 3_612_040 * MS, now + std::time::Duration::from_secs(3600)));
    }
}
