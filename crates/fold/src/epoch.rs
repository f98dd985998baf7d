//! Classifies each record in the sequence of its engine: new, repeated, idle flush, late, record of another rank, or restart.
//! Corrects the quirks of the executor's loop, so that no other file has to know them.

use trtllm_records::IterationStats;
use trtllm_records::iteration::{Backend, SchedulerMode};

use super::batch::is_static;
use super::counted::Counted;
use super::cumulative::increases;
use super::in_flight::InFlight;
use super::numbering::{Gap, Losses, Numbering};
use super::ranks::{Iteration, Ranks};
use super::saturating::{add, unsigned};

/// How a record relates to the earlier records of its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// An iteration not seen before.
    New,
    /// The same iteration again.
    Repeated,
    /// The record that the C++ executor writes when it becomes idle. It is not an iteration.
    Flush,
    /// An iteration whose record comes after that of a later iteration, and fills a gap.
    Late,
    /// The record of another attention-DP rank for an iteration that is already counted (upstream PR 13649).
    SiblingRank,
    /// The numbers or the cumulative counts went backwards: the engine has restarted.
    Restart,
}

/// The time between two restarts of an engine. The default value is the first epoch. It begins with the first record that is
/// read, and the engine may have run long before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Epoch {
    /// Losses in earlier epochs.
    before: Losses,
    pub numbering: Numbering,
    ranks: Ranks,
    /// The iteration of the last record, and how many of its completed requests are already counted.
    completed: Option<(u64, i64)>,
    last_rank: Option<i64>,
    waits: Waits,
    /// Whether records have a `rank`. That does not change while an engine runs.
    by_rank: Option<bool>,
    /// The last late record: its iteration and its attention-DP rank.
    late: Option<(u64, Option<i64>)>,
    /// Records of other ranks copy their numbers from rank 0.
    copies_rank_0: bool,
    /// The unfinished requests, counted because PyTorch's records do not show when there are none. Absent for the C++
    /// executor.
    pub in_flight: Option<InFlight>,
    /// Requests have left the engine uncounted.
    some_left_uncounted: bool,
    /// The engine has decoded tokens.
    has_decoded: bool,
    /// Requests were queued at the last record.
    queued: bool,
    /// Seconds of waiting that ranks reported in an iteration without new requests. They belong to the next new requests.
    carried_wait: f64,
}

/// The passes of an engine's loop that waited for work, for the last two times that the engine was idle. A pass begins by
/// fetching requests, and an idle engine blocks there. The times of the pass contain the wait, and records report them later.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    /// First and last pass that may have waited.
    passes: [Option<(u64, u64)>; 2],
}

impl Waits {
    fn add(&mut self, first: u64, last: u64) {
        self.passes = [Some((first, last)), self.passes[0]];
    }

    /// Whether pass `iter` − `lag` may have waited.
    fn contain(&self, iter: Option<u64>, lag: u64) -> bool {
        let Some(pass) = iter.and_then(|iter| iter.checked_sub(lag)) else { return false };
        self.passes.iter().flatten().any(|(first, last)| (*first..=*last).contains(&pass))
    }
}

impl Epoch {
    /// The epoch after a restart. The cumulative counts of the new engine began at 0 and were seen from the start.
    pub(crate) fn next(&self) -> Self {
        Self { numbering: Numbering::from_start(), ranks: Ranks::new(true), ..self.unseen() }
    }

    /// The epoch after a time in which nobody read the records.
    pub(crate) fn unseen(&self) -> Self {
        let mut before = self.losses();
        add(&mut before.unreported, self.numbering.gap_before_answer);
        add(&mut before.unexplained, self.numbering.gap_before_answer);
        Self { before, ..Self::default() }
    }

    /// Whether a record with a number has been read.
    pub(crate) fn has_records(&self) -> bool {
        self.numbering.through.is_some()
    }

    /// In all epochs, except for what the engine has dropped itself.
    pub(crate) fn losses(&self) -> Losses {
        let Losses { lost, dropped, unreported, unexplained } = self.numbering.losses();
        Losses {
            lost: self.before.lost.saturating_add(lost),
            dropped,
            unreported: self.before.unreported.saturating_add(unreported),
            unexplained: self.before.unexplained.saturating_add(unexplained),
        }
    }

    /// The kind of the record. Changes nothing.
    pub(crate) fn classify(&self, record: &IterationStats) -> RecordKind {
        let flush = is_flush(record);
        let first = if flush { RecordKind::Flush } else { RecordKind::New };
        let (Some(iter), Some(through)) = (record.iter, self.numbering.through) else {
            return if record.iter.is_some() { first } else { RecordKind::New };
        };
        // A shortcut: almost every record is the next record of an engine without ranks.
        if iter == through.saturating_add(1) && record.rank.is_none() && self.by_rank != Some(true) {
            return first;
        }
        let counts = self.ranks.find(record);
        // The records of ranks may come rank by rank, so a record is compared with the previous record of the same rank.
        let last = if record.rank.is_some() { counts.and_then(|counts| counts.last_iter) } else { Some(through) };
        if self.by_rank.is_some_and(|by_rank| by_rank != record.rank.is_some()) {
            return RecordKind::Restart;
        }
        let is_new_engine = counts.is_some_and(|counts| counts.is_from_a_new_engine(record))
            || record.rank.is_none() && self.numbering.sequence_fell(record);
        let is_another_row =
            |rank| record.rank.is_some() || record.attention_dp_rank.is_some_and(|own| Some(own) != rank);
        match last {
            _ if self.late.is_some_and(|(late, rank)| late == iter && is_another_row(rank)) => RecordKind::SiblingRank,
            Some(last) if iter > last.saturating_add(1) && is_new_engine => RecordKind::Restart,
            // A new engine that begins with a missing number is found by its next record.
            Some(last) if iter < last && !flush && self.numbering.is_missing(iter) => RecordKind::Late,
            Some(last) if iter < last => RecordKind::Restart,
            _ if iter > through => first,
            Some(last) if record.rank.is_some() && iter == last => RecordKind::Repeated,
            _ if record.rank.is_some() => RecordKind::SiblingRank,
            _ if flush => first,
            _ if is_another_row(self.last_rank) => RecordKind::SiblingRank,
            _ => RecordKind::Repeated,
        }
    }

    /// Adds the record to the epoch. Returns the part that is added to the totals. After a [`RecordKind::Restart`], the caller
    /// begins a new epoch and classifies the record again.
    pub(crate) fn count(&mut self, record: &IterationStats, kind: RecordKind) -> Counted {
        use RecordKind::{Flush, Late, New, SiblingRank};
        let iteration = matches!(kind, New | Late);
        let copied = kind == SiblingRank && record.rank.is_none();
        let newest = kind == New;
        let was_idle = newest && self.was_idle_before(record);
        let before = self.numbering.through;
        let gap = self.account(record, kind, was_idle);
        let is_next = record.iter.is_some_and(|iter| before == iter.checked_sub(1));
        let all_reported = !gap.unexplained && self.numbering.interval_so_far() == 1;
        if newest {
            self.last_rank = record.attention_dp_rank;
            self.by_rank = Some(record.rank.is_some());
            if let (true, Some(iter)) = (was_idle, record.iter) {
                // If the statistics are sampled, the pass that waited may have no record.
                self.waits.add((iter + 1).saturating_sub(self.numbering.interval_so_far()), iter);
            }
        }
        self.late = match kind {
            Late => record.iter.map(|iter| (iter, record.attention_dp_rank)),
            SiblingRank => self.late,
            _ => None,
        };
        if copied {
            self.copies_rank_0 = true;
            return Counted { batch: true, ..Counted::default() };
        }
        let own = iteration || kind == SiblingRank;
        // The flush repeats the value of an earlier iteration.
        let started = if own { record.num_new_active_requests.map_or(0, unsigned) } else { 0 };
        let completed = if kind == SiblingRank {
            record.num_completed_requests.map_or(0, unsigned)
        } else {
            self.completed(record, kind)
        };
        let latency_seconds = self.latency_seconds(record, kind);
        let counts = self.ranks.of(record);
        // A record has the host step time of the previous pass. Under the overlap scheduler, this is the pass of the
        // record, because the records are one pass late (upstream: `profile_step`). The device step time in a record is
        // one pass older.
        let lag = u64::from(record.scheduler_mode != Some(SchedulerMode::Overlap));
        let mut counted = Counted {
            iteration,
            batch: own,
            own,
            started,
            completed,
            latency_seconds,
            follows: newest && !gap.broken && (is_next || all_reported || was_idle),
            host_step: iteration && !self.waits.contain(record.iter, lag),
            device_step: iteration && !self.waits.contain(record.iter, lag + 1),
            gap,
            ..Counted::default()
        };
        if let Some(counts) = counts {
            // Records that copy rank 0 have the waiting time of all ranks, but the number of new requests of one rank. Records with
            // their own numbers have the new requests of their rank, and the record of rank 0 has the waiting time of all ranks.
            let comparable = !self.copies_rank_0;
            let of_all_ranks = if record.rank.is_some() { started.max(1) } else { started };
            // What the engine sums since its start was already counted with the later record.
            let in_order = record.iter >= counts.last_iter;
            if in_order {
                // The flush has the number of the iteration that follows it.
                let read = record.iter.map(|iter| iter.saturating_sub(u64::from(kind == Flush)));
                counts.last_iter = counts.last_iter.max(read);
                counted.kv = record.kv_cache_stats.map(|stats| increases(&mut counts.kv, stats));
                counted.cross_kv = record.cross_kv_cache_stats.map(|stats| increases(&mut counts.cross_kv, stats));
            }
            if kind != Flush && (in_order || record.backend() == Backend::TensorRt) {
                counted.waited = counts.queue_time.waited(record, of_all_ranks).filter(|_| comparable);
            }
        }
        if kind == Flush {
            self.in_flight = (record.backend() == Backend::PyTorch).then(|| InFlight::begin(0, 0));
        }
        if kind != SiblingRank && kind != Late {
            self.queued = record.num_queued_requests.is_some_and(|queued| queued > 0);
        }
        counted
    }

    /// Seconds that the new requests of an iteration have waited in total, and their number. `None` if the two do not cover the
    /// same requests, because the records copy the number from one rank or the record of a rank is missing. `ranks`: number of ranks
    /// of the engine.
    pub(crate) fn waited(&mut self, iteration: &Iteration, ranks: Option<u64>) -> Option<(f64, u64)> {
        if iteration.copied || ranks.is_some_and(|ranks| iteration.ranks_read < ranks) {
            return None;
        }
        let seconds = iteration.waited? + std::mem::take(&mut self.carried_wait);
        if iteration.started == 0 {
            self.carried_wait = seconds;
            return None;
        }
        Some((seconds, iteration.started))
    }

    /// Counts the unfinished requests after all records of an iteration.
    pub(crate) fn follow_requests(&mut self, open: &Iteration) {
        self.has_decoded |= open.tokens.generation > 0;
        let (Backend::PyTorch, Some(active)) = (open.backend, open.active) else {
            self.in_flight = None;
            return;
        };
        let in_flight = match &mut self.in_flight {
            Some(in_flight) => {
                self.some_left_uncounted |= open.known && in_flight.lacks(active, open.started);
                in_flight.record(active, open.started, open.completed, open.known);
                in_flight
            }
            unknown => unknown.insert(InFlight::begin(active, open.completed)),
        };
        in_flight.one_rank = open.copied;
    }

    /// Whether this is the context server of a disaggregated deployment: it never decodes, and its requests leave uncounted.
    pub(crate) fn is_context_server(&self) -> bool {
        self.some_left_uncounted && !self.has_decoded
    }

    /// Updates the numbers. Returns what is missing before the record.
    fn account(&mut self, record: &IterationStats, kind: RecordKind, was_idle: bool) -> Gap {
        let Some(iter) = record.iter else { return Gap::default() };
        match kind {
            RecordKind::Late => {
                self.numbering.fill(iter);
                Gap::default()
            }
            RecordKind::SiblingRank => Gap::default(),
            _ => {
                // The first record of an engine: its counts begin at 0.
                if !self.has_records() && (iter <= 1 || record.stats_sequence.is_some_and(|sequence| sequence <= 1)) {
                    self.ranks.met_at_its_start();
                }
                self.numbering.advance(record, iter, kind == RecordKind::Flush, was_idle)
            }
        }
    }

    /// Completed requests that were not counted yet. The executor repeats the completed requests of the flush in the next
    /// record. The flush has the number of that record, or with static batching that of the record before.
    fn completed(&mut self, record: &IterationStats, kind: RecordKind) -> u64 {
        let Some(completed) = record.num_completed_requests else { return 0 };
        let is_late_flush = kind == RecordKind::Flush && is_static(record);
        let iter = record.iter.map(|iter| iter.saturating_add(u64::from(is_late_flush)));
        let counted = self.completed.filter(|(last, _)| Some(*last) == iter).map_or(0, |(_, counted)| counted);
        self.completed = iter.map(|iter| (iter, completed.max(counted)));
        unsigned(completed.saturating_sub(counted))
    }

    /// Whether a PyTorch engine was idle before this record. A pass of its loop starts by waiting for work, so its
    /// times contain the wait. Under the overlap scheduler the previous pass ends after that wait, so the latency of
    /// the previous pass contains the wait, too (upstream: `_executor_loop`, `_executor_loop_overlap`). The first
    /// iteration waited for the first request.
    fn was_idle_before(&self, record: &IterationStats) -> bool {
        record.backend() == Backend::PyTorch
            && match self.in_flight {
                Some(in_flight) => !self.queued && in_flight.may_be_idle(),
                None => record.iter.is_some_and(|iter| iter <= 1),
            }
    }

    /// `iterLatencyMS`, unless it contains a wait for work. The C++ executor takes its start time before it waits. After idle it
    /// reports 0.0, then a latency that contains the wait. `batch_time` knows which batches a latency covers.
    fn latency_seconds(&mut self, record: &IterationStats, kind: RecordKind) -> Option<f64> {
        let reported = record.iter_latency_ms.filter(|_| !self.waits.contain(record.iter, 0));
        match kind {
            // A PyTorch engine writes this record when it has started. The wait after it is handled like any other.
            RecordKind::Flush if record.backend() == Backend::PyTorch => None,
            RecordKind::Flush if is_static(record) => {
                // The next pass waits if no request is queued. The record after the next one has the time of that pass.
                if let Some(iter) = record.iter.filter(|_| record.num_queued_requests.unwrap_or(0) == 0) {
                    self.waits.add(iter + 2, iter + 2);
                }
                None
            }
            RecordKind::Repeated | RecordKind::SiblingRank => None,
            _ if kind == RecordKind::Flush || reported.is_some_and(|latency| latency <= 0.0) => {
                if let Some(iter) = record.iter {
                    self.waits.add(iter, iter + 1);
                }
                None
            }
            _ => reported.map(|latency| latency / 1000.0),
        }
    }
}

/// Two kinds of records have nothing scheduled, nothing active and no latency: the idle flush of the C++ executor, and the record
/// that a PyTorch engine writes when it has started (upstream: `_emit_initial_stats`). Executors before 0.11 report no latency.
fn is_flush(record: &IterationStats) -> bool {
    let scheduled = record.inflight_batching_stats.and_then(|stats| stats.num_scheduled_requests);
    let nothing_ran = match record.iter_latency_ms {
        Some(latency) => latency == 0.0 && scheduled.unwrap_or(0) == 0,
        None => scheduled == Some(0),
    };
    record.num_active_requests == Some(0) && nothing_ran
}
