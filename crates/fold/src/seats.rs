//! The requests that wait for a seat. An engine has as many seats as requests can be active (`maxNumActiveRequests`).
//!
//! The C++ executor reports its whole queue. Since 1.0, each pass of the PyTorch loop moves all that arrived into a waiting queue, and
//! gives free seats to its first requests (upstream: `_fetch_and_enqueue_requests`, `_pop_from_waiting_queue`). No member counts
//! the waiting queue. `numQueuedRequests` counts the arrivals since the fetch of the pass in which the record is written. So the
//! waiting requests are estimated:
//!
//! - If a seat is free, no request waits.
//! - Otherwise each arrival adds a request, and each new active request takes one away. Arrivals between the writing of a record
//!   and the next fetch are in no record. They count at the rate of the others.
//! - `newActiveRequestsQueueLatencyMS` tells how long the last new requests have waited, so when they arrived. Requests that arrived
//!   before them wait no longer, and those that arrived after them still wait. This corrects the sum, which errs after lost
//!   records.
//! - If records counted less than half of the requests that arrived with these, as in the first pass after an idle time, the number is
//!   taken from the wait alone: as many as took seats during one wait. This lags by one wait.
//!
//! Of records that copy rank 0, only the mean is known. In a pipeline and under the overlap scheduler, some active requests are in no batch of
//! the record although they do not wait: see [`Elsewhere`].

use std::collections::VecDeque;

use trtllm_records::IterationStats;

use super::latest::Latest;
use super::ranks::Iteration;
use super::saturating::unsigned;

/// The moments of one pass in microseconds since 1970 UTC, and what its record tells of the queue.
#[derive(Debug, Clone, Copy)]
struct Pass {
    fetch_us: i64,
    handled_us: i64,
    /// Arrivals between the last fetch before `handled_us` and `handled_us`.
    queued: f64,
    /// Seconds that all requests with a seat have waited since the engine started.
    waited: Option<f64>,
}

/// Arrivals until a moment, since the entry before.
#[derive(Debug, Clone, Copy)]
struct Arrivals {
    until_us: i64,
    /// Those that records tell, in `seen_us` microseconds of the time.
    requests: f64,
    seen_us: i64,
}

impl Arrivals {
    /// Both entries as one.
    fn and(&self, next: &Self) -> Self {
        let (requests, seen_us) = (self.requests + next.requests, self.seen_us + next.seen_us);
        Self { until_us: next.until_us, requests, seen_us }
    }
}

/// The most entries of arrivals. If there are more, two become one, so that the entries cover any time.
const ENTRIES: usize = 256;
/// The least length of an entry at first.
const RESOLUTION_US: i64 = 50_000;
/// Less than this part of a pass lies between the writing of a record and the next fetch of a loop that does not overlap.
const SOON: i64 = 20;
/// The rate of arrivals is computed from the seated requests that arrived in at least and at most this time.
const ENOUGH_US: i64 = 3_000_000;
const RECENT_US: i64 = 120_000_000;
/// The arrival of requests was counted if enough others were counted in this time before and after it.
const AROUND_US: i64 = 1_000_000;
/// The mean age of the time that a mean number of waiting requests is from.
const MEAN_SECONDS: f64 = 5.0;
/// The error of the arrival time of a request that took a seat: this share of its wait, but at least this many passes.
const ERROR_OF_WAIT: f64 = 0.05;
const ERROR_IN_PASSES: i64 = 2;

/// The estimate of the waiting queue of a PyTorch engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeatQueue {
    /// The pass of the last record, and of the record before.
    open: Option<Pass>,
    last: Option<Pass>,
    /// Absent while it is unknown how many waited before the first record.
    waiting: Option<f64>,
    /// Only the wait of the next seated requests tells how many wait.
    is_doubtful: bool,
    arrivals: VecDeque<Arrivals>,
    /// When the arrivals of `arrivals` begin.
    since_us: i64,
    /// Nobody waited at `since_us`.
    was_empty: bool,
    resolution_us: i64,
    /// When the first and the last requests of a recent time arrived that took seats, and how many took seats after the first ones.
    seated_us: Option<(i64, i64)>,
    seated: f64,
    /// Of the last seated requests, those that arrived at about the same time: when the first one arrived, and their number.
    together: (i64, f64),
    /// Seconds that requests have waited, and all seconds, of a recent time.
    recent: [f64; 2],
}

impl SeatQueue {
    /// Notes the first record of an iteration. `handled_us`: when its tokens were handled.
    pub(crate) fn begin(&mut self, record: &IterationStats, latest: &Latest, handled_us: i64) {
        let is_told = latest.is_pytorch && record.timestamp.is_some() && record.num_new_active_requests.is_some();
        self.open = record.num_queued_requests.filter(|_| is_told).map(|queued| Pass {
            fetch_us: latest.time_us,
            handled_us: handled_us.max(latest.time_us),
            queued: unsigned(queued) as f64,
            waited: record.new_active_requests_queue_latency_ms.filter(|seconds| *seconds >= 0.0),
        });
    }

    /// Whether the record of the open iteration tells what the estimate needs.
    pub(crate) fn is_begun(&self) -> bool {
        self.open.is_some()
    }

    /// The number of requests that wait for a seat, after all records of the iteration. Absent if it cannot be told.
    pub(crate) fn end(&mut self, latest: &Latest, iteration: &Iteration) -> Option<f64> {
        let now = self.open.take()?;
        let is_full = latest.is_full()?;
        let last = self.last.replace(now).filter(|last| last.fetch_us <= now.fetch_us);
        if let Some(last) = &last {
            self.note_waits(&now, last);
        }
        if iteration.copied {
            return if is_full { self.mean() } else { Some(0.0) };
        }
        let started = iteration.started as f64;
        let Some(last) = last else {
            self.restart(now.fetch_us, !is_full);
            return self.waiting;
        };
        // Under the overlap scheduler, the record before was written well after the fetch of this pass, otherwise just before it.
        let is_after_fetch = last.handled_us - now.fetch_us > (now.fetch_us - last.fetch_us) / SOON;
        if !is_full {
            self.restart(now.fetch_us, true);
        }
        let seen_since_us = if is_after_fetch { now.fetch_us } else { last.fetch_us };
        let arrived = self.arrive(&last, seen_since_us);
        if !is_full {
            self.waiting = Some(if is_after_fetch { arrived } else { 0.0 });
            return Some(0.0);
        }
        if !iteration.known {
            // The requests that took seats meanwhile are unknown. Until the next ones do, as many wait as before.
            (self.seated_us, self.seated, self.is_doubtful) = (None, 0.0, true);
            return self.waiting;
        }
        if !self.is_doubtful {
            self.waiting = self.waiting.map(|waiting| (waiting + arrived - started).max(0.0));
        }
        if let Some(waited) = now.waited.zip(last.waited).map(|(now, last)| now - last).filter(|_| started > 0.0) {
            self.seat(&now, &last, waited / started, started);
        }
        self.waiting
    }

    fn note_waits(&mut self, now: &Pass, last: &Pass) {
        let Some(waited) = now.waited.zip(last.waited).map(|(now, last)| (now - last).max(0.0)) else { return };
        let seconds = (now.fetch_us - last.fetch_us) as f64 / 1e6;
        let kept = (-seconds / MEAN_SECONDS).exp();
        let [all_waited, all_seconds] = self.recent;
        self.recent = [kept * all_waited + waited, kept * all_seconds + seconds];
    }

    /// The mean number that waited in the last seconds: the increase of the waiting time ÷ the time (Little's law). It lags by one wait. Records
    /// that copy rank 0 tell the waiting time of all ranks, but only the new requests of rank 0.
    fn mean(&self) -> Option<f64> {
        let [waited, seconds] = self.recent;
        (seconds > 0.0).then(|| waited / seconds)
    }

    fn restart(&mut self, since_us: i64, is_empty: bool) {
        self.arrivals.clear();
        (self.since_us, self.was_empty, self.resolution_us) = (since_us, is_empty, RESOLUTION_US);
        (self.seated_us, self.seated) = (None, 0.0);
        (self.waiting, self.is_doubtful) = (is_empty.then_some(0.0), !is_empty);
    }

    /// Adds the arrivals that the record of `pass` counts, which are those from `since_us` on. Returns about how many arrived since the
    /// entry before.
    fn arrive(&mut self, pass: &Pass, since_us: i64) -> f64 {
        let begin_us = self.arrivals.back().map_or(self.since_us, |last| last.until_us);
        if pass.handled_us <= begin_us {
            return 0.0;
        }
        let counted_us = (pass.handled_us - since_us.max(begin_us)).max(0);
        // Between the fetch and the record before, requests arrived as they did after the fetch.
        let seen_us = (pass.handled_us - begin_us).min(2 * counted_us);
        let requests = if counted_us > 0 { pass.queued * seen_us as f64 / counted_us as f64 } else { 0.0 };
        let new = Arrivals { until_us: pass.handled_us, requests, seen_us };
        let before_us = self.arrivals.len().checked_sub(2).map_or(self.since_us, |at| self.arrivals[at].until_us);
        match self.arrivals.back_mut() {
            Some(last) if pass.handled_us - before_us < self.resolution_us => *last = last.and(&new),
            _ => self.arrivals.push_back(new),
        }
        if self.arrivals.len() > ENTRIES {
            self.resolution_us *= 2;
            let pairs = self.arrivals.make_contiguous().chunks(2);
            let pairs: VecDeque<_> =
                pairs.filter_map(|pair| pair.iter().copied().reduce(|one, next| one.and(&next))).collect();
            self.arrivals = pairs;
        }
        requests + self.rate() * (pass.handled_us - begin_us - seen_us) as f64
    }

    /// Arrivals in a microsecond, from the times that records tell. If these are few, as with sampled statistics, from the requests that
    /// took seats.
    fn rate(&self) -> f64 {
        let (requests, seen_us) =
            self.arrivals.iter().fold((0.0, 0), |(all, us), entry| (all + entry.requests, us + entry.seen_us));
        let known_us = self.arrivals.back().map_or(0, |last| last.until_us - self.since_us);
        let seated_us = self.seated_us.map_or(0, |(first_us, last_us)| last_us - first_us);
        if 2 * seen_us < known_us && seated_us > ENOUGH_US {
            self.seated / seated_us as f64
        } else if seen_us > 0 {
            requests / seen_us as f64
        } else {
            0.0
        }
    }

    fn seat(&mut self, now: &Pass, last: &Pass, wait: f64, started: f64) {
        if wait < 0.0 {
            return;
        }
        let pass_us = now.fetch_us - last.fetch_us;
        let error_us = (ERROR_IN_PASSES * pass_us).max((ERROR_OF_WAIT * wait * 1e6) as i64);
        let arrived_us = now.fetch_us.saturating_sub((wait * 1e6) as i64);
        match &mut self.seated_us {
            Some((first_us, last_us)) => {
                *last_us = arrived_us;
                self.seated += started;
                if arrived_us - *first_us > RECENT_US {
                    *first_us += RECENT_US / 2;
                    self.seated /= 2.0;
                }
            }
            unknown => *unknown = Some((arrived_us, arrived_us)),
        }
        // The estimate does not need older arrivals.
        while self.arrivals.front().is_some_and(|first| first.until_us < arrived_us - error_us) {
            let first = self.arrivals.pop_front();
            self.since_us = first.map_or(self.since_us, |first| first.until_us);
            self.was_empty = false;
        }
        self.correct(arrived_us, error_us, started);
    }

    /// Limits the sum to what the wait of the last seated requests allows. `arrived_us`: their mean arrival, which may be wrong by
    /// `error_us`.
    fn correct(&mut self, arrived_us: i64, error_us: i64, seated: f64) {
        let around_us = error_us.max(AROUND_US);
        if arrived_us.abs_diff(self.together.0) > around_us.unsigned_abs() {
            self.together = (arrived_us, 0.0);
        }
        self.together.1 += seated;
        // About half of them arrived after their mean.
        let later = (seated - 1.0).max(0.0) / 2.0;
        let rate = self.rate();
        let after = |moment_us: i64| (self.arrived_after(moment_us, rate) - later).max(0.0);
        let known = self.waiting.filter(|_| !self.is_doubtful);
        let least = after(arrived_us + error_us);
        let most = after(arrived_us - error_us).max(least);
        let seen = after(arrived_us - around_us) - after(arrived_us + around_us);
        self.waiting = if seen < 0.5 * self.together.1 {
            // Most of these arrivals were in no record, so later arrivals are uncounted, too: use at least the mean wait.
            self.mean().into_iter().chain(known).reduce(f64::max)
        } else {
            Some(known.unwrap_or_else(|| after(arrived_us)).clamp(least, most))
        };
        self.is_doubtful = false;
    }

    /// About how many requests arrived after this moment. Those that no record counts arrived at this rate, but none before `since_us` if
    /// nobody waited then.
    fn arrived_after(&self, moment_us: i64, rate: f64) -> f64 {
        let mut begin_us = self.since_us;
        let mut arrived = 0.0;
        for entry in &self.arrivals {
            let length_us = (entry.until_us - begin_us).max(1);
            let part = ((entry.until_us - moment_us) as f64 / length_us as f64).clamp(0.0, 1.0);
            arrived += part * (entry.requests + rate * (length_us - entry.seen_us) as f64);
            begin_us = entry.until_us;
        }
        let before_us = if self.was_empty { 0 } else { (self.since_us - moment_us).max(0) };
        arrived + rate * before_us as f64
    }
}

/// The most micro-batches that are told apart.
const MICRO_BATCHES: usize = 64;

/// Counts active requests that are in no batch of the record, but do not wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere {
    /// Scheduled requests of the last record of each micro-batch. The other micro-batches of a pipeline run meanwhile, and a request
    /// stays active until its micro-batch has its turn again.
    micro_batches: Vec<i64>,
    /// Requests that the record before completed. An overlapping loop counts them once more, because it counts the active requests
    /// before it handles the batch before (upstream: `GENERATION_TO_COMPLETE`).
    completed: u64,
    /// The iteration of the record before.
    iter: Option<u64>,
}

impl Elsewhere {
    /// `overlaps`: the loop forms a batch while the one before runs.
    pub(crate) fn count(&mut self, record: &IterationStats, overlaps: bool) -> i64 {
        let micro_batch = record.inflight_batching_stats.and_then(|batch| {
            let id = usize::try_from(batch.micro_batch_id?).ok().filter(|id| *id < MICRO_BATCHES)?;
            Some((id, batch.num_scheduled_requests.unwrap_or(0).max(0)))
        });
        if let Some((id, scheduled)) = micro_batch {
            self.micro_batches.resize(self.micro_batches.len().max(id + 1), 0);
            self.micro_batches[id] = scheduled;
            if self.micro_batches.len() > 1 {
                return self.micro_batches.iter().sum::<i64>() - scheduled;
            }
        }
        if !overlaps {
            return 0;
        }
        // If statistics are sampled, it is the mean of the passes since the record before.
        let passes = record.iter.zip(self.iter).map_or(1, |(iter, before)| iter.saturating_sub(before).max(1));
        i64::try_from(self.completed.div_ceil(passes)).unwrap_or(i64::MAX)
    }

    /// Requests of this batch that the record before completed. An answer that ends by a stop word is in one more batch, which was formed
    /// before the word was seen. Its token is thrown away. A request that is not in this batch either ended by its length or waits, so
    /// these are the fewest possible. For an engine of one rank in no pipeline: other records do not tell it.
    pub(crate) fn discarded(&self, record: &IterationStats) -> u64 {
        let is_next = self.iter.is_some() && self.iter == record.iter.and_then(|iter| iter.checked_sub(1));
        let is_told = is_next && self.micro_batches.len() <= 1;
        let batch = record.inflight_batching_stats.filter(|_| is_told);
        let missing = record.num_active_requests.zip(batch.and_then(|batch| batch.num_scheduled_requests));
        missing
            .map_or(0, |(active, scheduled)| self.completed.saturating_sub(unsigned(active.saturating_sub(scheduled))))
    }

    /// Notes the end of an iteration: how many requests it completed.
    pub(crate) fn end(&mut self, iteration: &Iteration) {
        (self.completed, self.iter) = (iteration.completed, iteration.iter);
    }
}
