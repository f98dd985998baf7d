//! The numbers of an engine's records: which iterations were read, which are lost, and which the engine never reported.
//!
//! A gap in the numbers counts as a loss only where that is certain. The C++ executor writes one record per number. The PyTorch
//! engine also counts passes without a batch, and writes only every Nth record if `iter_perf_stats_interval` is N.

use trtllm_records::IterationStats;
use trtllm_records::iteration::Backend;

use super::cumulative::increase;
use super::saturating::{add, unsigned};

/// Default size of the engine's ring buffer of records. It may have overflowed before an answer of this length.
const RING: u64 = 1000;
/// Number of records with requests that are needed to know the interval of the statistics.
const ENOUGH_RECORDS: u32 = 3;

/// Iterations without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    pub lost: u64,
    /// Lost iterations whose records the engine has dropped itself since it started.
    pub dropped: u64,
    /// Iterations that are not known to be lost.
    pub unreported: u64,
    /// Those of them that may be lost: not the passes without a batch of an engine whose records are numbered.
    pub unexplained: u64,
}

/// The iteration numbers of one epoch (the time between two restarts).
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbering {
    /// The highest number so far. Every iteration up to it is read, lost or unreported.
    pub(crate) through: Option<u64>,
    /// Bit n is 0 if iteration `through` − n is missing. The first record sets all bits, because earlier iterations do
    /// not count as missing.
    read: u64,
    sequence: Option<u64>,
    lost_by_gap: u64,
    /// The engine's own count of dropped records.
    dropped: Option<i64>,
    first_answer: FirstAnswer,
    /// Iterations whose records the engine has dropped itself.
    lost_by_engine: u64,
    unreported: u64,
    /// Neither a sequence number nor the engine's loop explains these.
    unexplained: u64,
    /// A record was rejected since the last valid record, so its number is missing.
    pub(crate) rejected: bool,
    /// Iterations in the answer that is being read, and the gap before the first of them.
    answer: u64,
    pub(crate) gap_before_answer: u64,
    last_answer_was_full: bool,
    /// The source has taken records from the engine that it could not read. They are missing before the next record.
    pub(crate) drained_unparsed: bool,
    /// Greatest common divisor of the iteration numbers of the records with requests.
    divisor: u64,
    records_with_work: u32,
}

/// What the first answer says of records that the engine dropped before it.
///
/// The engine drops its oldest record if nobody has read its ring. In a full ring, each record was written while another one was dropped.
/// So the increase over the first answer is nobody's loss: nothing shows that somebody read the engine before. It is a loss only
/// if the ring had room at the beginning of the answer, because then a reader emptied the ring and stopped, as in a restart of the exporter.
#[derive(Debug, Clone, Copy, Default)]
struct FirstAnswer {
    ended: bool,
    first_sequence: Option<u64>,
    /// A record followed another one, and none was dropped between them.
    had_room: bool,
    /// Records dropped after that.
    dropped: u64,
}

impl FirstAnswer {
    /// Adds a record. Returns the records that were lost for certain. `follows`: its sequence number is above that of the record before.
    fn add(&mut self, record: &IterationStats, dropped: u64, follows: bool) -> u64 {
        // All records of an engine whose first record is read are the exporter's to read.
        self.ended |= self.first_sequence.is_none() && record.stats_sequence.is_some_and(|sequence| sequence <= 1);
        if self.ended {
            return dropped;
        }
        self.first_sequence = self.first_sequence.or(record.stats_sequence);
        self.had_room |= follows && dropped == 0;
        if self.had_room {
            add(&mut self.dropped, dropped);
        }
        0
    }

    /// Ends the answer. Returns the records that were lost for certain. `all_dropped`: the engine's own count since its start.
    fn end(&mut self, all_dropped: Option<u64>) -> u64 {
        let was_ended = std::mem::replace(&mut self.ended, true);
        // If the engine has dropped every record before this answer, nobody has ever read it. The first number is 0 or 1.
        let was_read = self.first_sequence.zip(all_dropped).is_some_and(|(first, all)| first > all.saturating_add(1));
        if !was_ended && was_read { self.dropped } else { 0 }
    }
}

/// What is missing before a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gap {
    /// Records are lost or were rejected.
    pub broken: bool,
    /// Numbers are missing, and the interval of the statistics does not explain that. Records may be lost.
    pub unexplained: bool,
}

impl Numbering {
    /// The numbers of an engine that has just started.
    pub(crate) fn from_start() -> Self {
        let first_answer = FirstAnswer { ended: true, ..FirstAnswer::default() };
        Self { dropped: Some(0), first_answer, ..Self::default() }
    }

    /// Without the gap before an answer that has not ended: nobody knows yet whether it is a loss, and no count may fall.
    pub(crate) fn losses(&self) -> Losses {
        Losses {
            // Both describe the same records, so it is not their sum.
            lost: self.lost_by_gap.max(self.lost_by_engine),
            dropped: self.lost_by_engine,
            unreported: self.unreported,
            unexplained: self.unexplained,
        }
    }

    /// Iterations per record, once enough records of a PyTorch engine have been read.
    pub(crate) fn interval(&self) -> Option<u64> {
        (self.records_with_work >= ENOUGH_RECORDS && self.divisor > 0).then_some(self.divisor)
    }

    /// Like [`Numbering::interval`], but known from the first record on: a multiple of the interval, or 1.
    pub(crate) fn interval_so_far(&self) -> u64 {
        self.divisor.max(1)
    }

    /// Whether the iteration is in a gap among the last 64 numbers.
    pub(crate) fn is_missing(&self, iter: u64) -> bool {
        let behind = self.through.map(|through| through.saturating_sub(iter));
        behind.is_some_and(|behind| (1..64).contains(&behind) && self.read >> behind & 1 == 0)
    }

    /// Whether the record's sequence number is smaller than before, so the engine has restarted.
    pub(crate) fn sequence_fell(&self, record: &IterationStats) -> bool {
        self.sequence.zip(record.stats_sequence).is_some_and(|(last, next)| next < last)
    }

    /// A late record fills its gap. What was counted as lost stays counted, because a counter never falls.
    pub(crate) fn fill(&mut self, iter: u64) {
        if let Some(behind) = self.through.map(|through| through.saturating_sub(iter))
            && behind < 64
        {
            self.read |= 1 << behind;
        }
    }

    /// Adds a record with the number `iter`. The idle flush (see `epoch`) has the number of the *next* iteration, so it
    /// accounts for all iterations before that number. `was_idle`: the record is the first of a PyTorch engine after an idle time. Its
    /// loop takes one number without a batch when it becomes idle (upstream: `_executor_loop_overlap`).
    pub(crate) fn advance(&mut self, record: &IterationStats, iter: u64, flush: bool, was_idle: bool) -> Gap {
        let rejected = std::mem::take(&mut self.rejected);
        let frames = match (self.sequence, record.stats_sequence) {
            (Some(last), Some(next)) if next > last => Some(next - last - 1),
            _ => None,
        };
        self.sequence = record.stats_sequence.max(self.sequence);
        // No iteration is before iteration 0.
        let Some(reached) = iter.checked_sub(u64::from(flush)) else { return Gap::default() };
        let step = self.through.map_or(0, |through| reached.saturating_sub(through));
        let gap = if flush { step } else { step.saturating_sub(1) };
        let pytorch = !flush && record.backend() == Backend::PyTorch;
        match frames {
            Some(frames) => {
                add(&mut self.lost_by_gap, frames);
                add(&mut self.unreported, gap.saturating_sub(frames));
            }
            None if !pytorch => add(&mut self.lost_by_gap, gap),
            None if was_idle && gap == 1 => add(&mut self.unreported, gap),
            None if self.answer == 0 => add(&mut self.gap_before_answer, gap),
            None => {
                add(&mut self.unreported, gap);
                add(&mut self.unexplained, gap);
            }
        }
        let dropped = record
            .stats_dropped_frames
            .and_then(|n| i64::try_from(n).ok())
            .map_or(0, |n| unsigned(increase(&mut self.dropped, n)));
        add(&mut self.lost_by_engine, self.first_answer.add(record, dropped, frames.is_some()));
        if step > 0 || self.through.is_none() {
            let shifted = u32::try_from(step).ok().and_then(|step| self.read.checked_shl(step)).unwrap_or(0);
            self.read = if self.through.is_none() { u64::MAX } else { shifted | 1 };
            self.through = Some(reached);
        }
        self.answer += 1;
        if pytorch && record.num_active_requests.is_some_and(|active| active > 0) {
            self.divisor = greatest_common_divisor(self.divisor, iter);
            self.records_with_work = self.records_with_work.saturating_add(1);
        }
        let lost = frames.map_or(!pytorch && gap > 0, |frames| frames > 0);
        let broken = lost || rejected;
        Gap { broken, unexplained: broken || gap > 0 && frames.is_none() && self.interval() != Some(step) }
    }

    /// Ends an answer of the source. The gap before it is a loss if this answer or the previous one filled the engine's
    /// ring buffer, or if the rest of an earlier answer was lost, however many empty answers came after it.
    pub(crate) fn end_answer(&mut self, from_ring: bool) {
        if self.answer > 0 {
            let lost = self.first_answer.end(self.dropped.map(unsigned));
            add(&mut self.lost_by_engine, lost);
        }
        let full = from_ring && self.answer >= RING;
        let gap = std::mem::take(&mut self.gap_before_answer);
        // Sampled statistics have such a gap before each record.
        let is_regular = self.interval().is_some_and(|interval| gap < interval);
        let drained_unparsed = self.answer > 0 && std::mem::take(&mut self.drained_unparsed) && !is_regular;
        if full || self.last_answer_was_full || drained_unparsed {
            add(&mut self.lost_by_gap, gap);
        } else {
            add(&mut self.unreported, gap);
            add(&mut self.unexplained, gap);
        }
        self.last_answer_was_full = full;
        self.answer = 0;
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
