//! How [`EngineFold`] folds a record: what kind it is, what it counts, and when its iteration is complete.

use std::time::Instant;

use trtllm_records::IterationStats;
use trtllm_records::iteration::Backend;
use trtllm_records::schema;

use super::alternation::Origin;
use super::batch_time::{BatchTime, TimedBatch};
use super::clock::ClockSpan;
use super::counted::Counted;
use super::epoch::RecordKind;
use super::observer::Observer;
use super::rank_totals::RankBatch;
use super::ranks::Iteration;
use super::seats::{Elsewhere, SeatQueue};
use super::{EngineFold, Implausible, Latest, Outstanding};

impl EngineFold {
    /// Folds one record. `wall_us` is the time of receipt in microseconds since 1970 UTC. It replaces a missing
    /// timestamp. If the timestamp is a local time, `wall_us` shows its time zone.
    ///
    /// # Errors
    /// If a key of the record is impossible. Nothing of it is counted, and its iteration counts as missing. Any other
    /// impossible value is left out, see [`EngineFold::take_rejected`].
    pub fn absorb(
        &mut self,
        record: &IterationStats,
        now: Instant,
        wall_us: i64,
        observer: &mut impl Observer,
    ) -> Result<(), Implausible> {
        let mut repaired = None;
        let record = match schema::check(record, &mut repaired, &mut self.rejected) {
            Ok(record) => record,
            Err(implausible) => {
                self.refuse_record(now);
                return Err(implausible);
            }
        };
        self.timed_batch = None;
        self.requests.server.counts.note_record();
        self.refused = false;
        if record.backend() == Backend::VisualGen {
            self.absorb_requests_in_flight(record, now, wall_us);
            return Ok(());
        }
        let mut kind = self.epoch.classify(record);
        match self.alternation.observe(record, kind, now) {
            Origin::One => {}
            Origin::Unknown => {
                self.begin_epoch(self.epoch.unseen(), observer);
                kind = self.epoch.classify(record);
            }
            Origin::Several => {
                self.leave_out(now, observer);
                return Ok(());
            }
        }
        if kind == RecordKind::Restart {
            self.restart(observer);
            kind = self.epoch.classify(record);
        }
        if matches!(kind, RecordKind::New | RecordKind::Flush) {
            self.close_iteration(observer);
        }
        let mut counted = self.epoch.count(record, kind);
        let has_one_rank =
            self.latest.as_ref().is_some_and(|latest| latest.attention_dp_ranks().is_none_or(|ranks| ranks <= 1));
        if kind == RecordKind::New && counted.follows && has_one_rank && self.clock.overlaps(record) {
            counted.discarded = self.elsewhere.discarded(record);
        }
        self.update_sampling(record);
        self.totals.absorb(record, &counted);
        if counted.batch {
            self.absorb_rank(record, kind);
        }
        match kind {
            RecordKind::SiblingRank => {
                if let Some(latest) = &mut self.latest {
                    latest.add_sibling(record);
                }
                self.add_rank(record, &counted, observer);
            }
            RecordKind::Late => {
                self.close_iteration(observer);
                // Its neighbours are unknown. The C++ executor reports the time of the batch before.
                let seconds = counted.latency_seconds.filter(|_| record.backend() == Backend::TensorRt);
                let time = seconds.map(|seconds| BatchTime { seconds, device_seconds: None });
                self.open_iteration(Iteration::new(record, &counted, time, true), observer);
            }
            _ => self.absorb_newest(record, kind, &counted, now, wall_us, observer),
        }
        self.publish_losses();
        let outstanding = self.outstanding();
        let runs = self.latest.as_ref().is_none_or(Latest::has_batch);
        self.health.record(now, outstanding, runs || outstanding == Outstanding::No);
        Ok(())
    }

    /// Folds a record of VisualGen. It tells which requests are active and queued. It is not an iteration.
    fn absorb_requests_in_flight(&mut self, record: &IterationStats, now: Instant, wall_us: i64) {
        self.latest.get_or_insert_default().update(record, wall_us, None);
        self.health.changed(now, self.outstanding());
    }

    /// Adds the record to the totals of its rank, which exist only after a second rank has appeared.
    fn absorb_rank(&mut self, record: &IterationStats, kind: RecordKind) {
        let Some(batch) = RankBatch::of(record) else { return };
        let is_newest = || self.latest.as_ref().is_some_and(|latest| latest.iter == batch.iter);
        let newest = kind == RecordKind::New || kind == RecordKind::SiblingRank && is_newest();
        let ranks = match &mut self.totals.ranks {
            Some(ranks) => ranks,
            None => {
                let Some(first) = self.only_rank.replace(batch).filter(|first| first.rank != batch.rank) else {
                    return;
                };
                let ranks = self.totals.ranks.insert(Box::default());
                if first.iter.is_some() && first.iter == batch.iter {
                    ranks.add(&first, newest);
                }
                ranks
            }
        };
        if kind == RecordKind::New {
            ranks.begin_iteration();
        }
        ranks.add(&batch, newest);
    }

    /// Folds the newest record, which the gauges show.
    fn absorb_newest(
        &mut self,
        record: &IterationStats,
        kind: RecordKind,
        counted: &Counted,
        now: Instant,
        wall_us: i64,
        observer: &mut impl Observer,
    ) {
        let latest = self.latest.get_or_insert_default();
        latest.update(record, wall_us, counted.kv.and_then(|kv| kv.alloc_total_blocks));
        let flush = kind == RecordKind::Flush;
        if self.clock.is_set(record, latest.time_us, now) {
            self.totals.clock_steps += u64::from(self.clock.is_set_as_written(record, latest.time_us, now));
            self.clock.begin_again();
            self.lifecycles.forget_times();
            self.seats = SeatQueue::default();
            observer.clock_set();
        }
        let time = self.clock.record(record, latest.time_us, counted, flush, now);
        let lag = u64::from(record.backend() == Backend::TensorRt);
        let iter = record.iter.and_then(|iter| iter.checked_sub(lag));
        let ended_us = self.clock.newest().map(|span| span.ended_us);
        self.timed_batch = time.zip(ended_us).map(|(time, ended_us)| TimedBatch { iter, ended_us, time });
        match kind {
            RecordKind::New => {
                latest.elsewhere = self.elsewhere.count(record, self.clock.overlaps(record));
                self.seats.begin(record, latest, ended_us.unwrap_or(latest.time_us));
                self.open_iteration(Iteration::new(record, counted, time, false), observer);
            }
            // Nothing runs until the next iteration.
            RecordKind::Flush => {
                self.elsewhere = Elsewhere::default();
                observer.idle(self.newest_span());
            }
            _ => {}
        }
        if let Some(rows) = &record.request_stats {
            self.absorb_rows(rows, self.clock.newest(), now, observer);
        }
    }

    /// The time of the newest iteration. Absent if it is unknown, or if the iterations before it are not reported.
    fn newest_span(&self) -> Option<ClockSpan> {
        self.clock.newest().filter(|_| !self.totals.is_sampled())
    }

    /// Keeps an iteration until the records of all ranks are read. Most engines have one rank, so the first record is also the last.
    fn open_iteration(&mut self, iteration: Iteration, observer: &mut impl Observer) {
        let ranks = self.latest.as_ref().and_then(|latest| latest.ranks_before);
        if iteration.is_complete(ranks) {
            self.observe_iteration(&iteration, observer);
        } else {
            self.open = Some(iteration);
        }
    }

    /// Adds a record to the open iteration, and closes the iteration after its last record.
    pub(super) fn add_rank(&mut self, record: &IterationStats, counted: &Counted, observer: &mut impl Observer) {
        // The records may come rank by rank, so this record can belong to an earlier iteration.
        let Some(mut open) = self.open.take_if(|open| open.iter == record.iter) else { return };
        open.add(record, counted);
        self.open_iteration(open, observer);
    }

    pub(super) fn close_iteration(&mut self, observer: &mut impl Observer) {
        if let Some(open) = self.open.take() {
            self.observe_iteration(&open, observer);
        }
    }

    /// Observes the sums over the ranks of an iteration.
    fn observe_iteration(&mut self, iteration: &Iteration, observer: &mut impl Observer) {
        self.totals.observe_iteration(iteration);
        let ranks = self.latest.as_ref().and_then(Latest::attention_dp_ranks);
        if let Some((seconds, requests)) = self.epoch.waited(iteration, ranks) {
            self.totals.new_request_queue_time.observe_times(seconds / requests as f64, requests);
        }
        if let (Some(imbalance), Some(ranks)) = (iteration.imbalance(ranks), &mut self.totals.ranks) {
            ranks.imbalance.observe(imbalance);
        }
        if !iteration.late {
            self.epoch.follow_requests(iteration);
            self.elsewhere.end(iteration);
            let span = self.newest_span();
            if let Some(latest) = &mut self.latest {
                if self.seats.is_begun() {
                    latest.waiting_for_seat = self.seats.end(latest, iteration);
                }
                observer.iteration(iteration, latest, span);
            }
        }
    }

    fn update_sampling(&mut self, record: &IterationStats) {
        match self.epoch.numbering.interval() {
            Some(interval) => self.totals.set_sampled(interval > 1),
            None if record.backend() != Backend::PyTorch => self.totals.set_sampled(false),
            // After a restart, assume what was known before it, until the new interval is known.
            None => {}
        }
    }

    pub(super) fn publish_losses(&mut self) {
        self.totals.losses = self.epoch.losses();
        self.totals.statistics_interval = self.epoch.numbering.interval();
    }
}
