//! Turns the lines of an iteration log into records.
//!
//! A line has the batch k that a pass launched, the pass's own host step, and the device step of the pass before. With
//! the overlap scheduler, a pass waits for the batch before. So the time of batch k is the host step of line k + 1, or
//! its device step, which spans pass k. Without the overlap scheduler, the time of batch k is the host step of line k.
//! A pass that waited for work contains that wait. Such times are left out.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead};

use memchr::memmem;
use trtllm_records::Message;
use trtllm_records::iteration::{IterationStats, KvCacheStats};
use trtllm_service::file_text::FileText;

use super::super::Batch;
use super::line::{Pass, parse_executor};

/// Ranks whose lines are read.
const MAX_RANKS: i64 = 1024;
/// Each sum over recent lines forgets a fiftieth with a new line.
const RECENT: f64 = 0.98;

/// What to do about a file without any such line.
pub const NO_LINES: &str = "it has no line of an iteration log; set print_iter_log: true in the file of the server's \
     --config, and name the log of the server (with TLLM_LOG_LEVEL=INFO)";
const ONE_RANK: &str = "the iteration log has the lines of one rank of attention data parallelism, so the numbers are \
     those of this rank; set TLLM_PROFILE_LOG_RANKS=all on the server";
const DRAFTS: &str = "the iteration log does not tell which drafts are accepted, so one token counts for each request \
     and iteration; read the server itself for the number of generated tokens";

/// The reader of a log.
#[derive(Debug, Default)]
pub(super) struct IterationLog {
    ranks: BTreeMap<i64, Rank>,
    /// Number of times that the engine was started.
    starts: u64,
    /// Passes of rank 0 without a batch since the last start.
    without_batch: u64,
    has_attention_dp: bool,
    has_drafts: bool,
    /// How far the device steps are from the host steps that would be equal without the overlap scheduler, and with it,
    /// in milliseconds.
    errors: [f64; 2],
    /// Microseconds of the local time when the last pass ended. Lines have whole seconds only.
    time_us: i64,
}

/// The last pass of a rank.
#[derive(Debug, Clone, Copy)]
struct Rank {
    pass: Pass,
    /// The pass may have waited for work, because nothing shows that a request was running when it began.
    waited: bool,
    /// The same of the pass before.
    waited_before: bool,
    started: Option<i64>,
    is_delivered: bool,
}

impl IterationLog {
    /// Adds the records that a line completes: a record needs the line of the next pass. Any other line is skipped.
    pub(super) fn absorb(&mut self, line: &[u8], batch: &mut Batch) {
        if let Some(pass) = Pass::parse(line) {
            self.add(pass, batch);
        } else if let Some(record) = parse_executor(line) {
            self.time_us = record.timestamp.map_or(self.time_us, |time| time.micros);
            batch.push(Message::Record(Box::new(record)));
        }
    }

    /// What the user should change.
    pub(super) fn notice(&self) -> Option<&'static str> {
        match self.has_attention_dp && self.ranks.len() == 1 {
            true => Some(ONE_RANK),
            false => self.has_drafts.then_some(DRAFTS),
        }
    }

    /// Adds the records whose next line has not come.
    pub(super) fn flush(&mut self, batch: &mut Batch) {
        let ranks: Vec<i64> = self.ranks.keys().copied().collect();
        ranks.into_iter().for_each(|rank| self.deliver(rank, None, batch));
    }

    fn add(&mut self, pass: Pass, batch: &mut Batch) {
        self.has_attention_dp |= pass.fetched.is_some_and(|(own, _)| own > 0);
        // With tensor parallelism, the other ranks repeat the lines of rank 0.
        if pass.rank != 0 && !self.has_attention_dp || pass.rank >= MAX_RANKS {
            return;
        }
        if pass.rank == 0 {
            let ended_us = self.time_us.saturating_add((pass.host_ms.unwrap_or(0.0) * 1e3) as i64);
            self.time_us = pass.written_us.map_or(ended_us, |us| ended_us.clamp(us, us.saturating_add(999_999)));
        }
        let mut before = self.ranks.get(&pass.rank).copied();
        if before.is_some_and(|before| pass.iter <= before.pass.iter) {
            self.flush(batch);
            self.ranks.clear();
            (self.starts, self.without_batch, before) = (self.starts + 1, 0, None);
        }
        if self.ranks.is_empty() {
            batch.push(Message::Process(self.starts));
        }
        let next = before.filter(|before| before.pass.iter + 1 == pass.iter);
        // A request that decodes was running before, unless it came from another server.
        let was_running = next.is_some_and(|before| before.pass.has_batch());
        let waited = !(was_running && pass.has_batch() && pass.generation_slots > 0);
        self.deliver(pass.rank, Some((&pass, waited)), batch);
        let count = |(own, all): (i64, i64)| if self.has_attention_dp { own } else { all };
        let fetched = |pass: &Pass| pass.fetched.map(count).filter(|count| *count > 0);
        let started = before.and_then(|before| Some(fetched(&pass)? - before.pass.fetched.map(count)?));
        let waited_before = before.is_none_or(|before| before.waited);
        let is_delivered = !pass.has_batch();
        self.without_batch += u64::from(pass.rank == 0 && is_delivered);
        self.ranks.insert(pass.rank, Rank { pass, waited, waited_before, started, is_delivered });
    }

    /// Adds the record of the last pass of a rank, if it launched a batch. `next`: the pass after it, and whether that
    /// waited.
    fn deliver(&mut self, rank: i64, next: Option<(&Pass, bool)>, batch: &mut Batch) {
        let Some(rank) = self.ranks.get_mut(&rank).filter(|rank| !rank.is_delivered) else { return };
        rank.is_delivered = true;
        let Rank { pass, waited, waited_before, started, .. } = *rank;
        let next = next.filter(|(next, _)| next.iter == pass.iter + 1);
        let stats = pass.batch();
        // Padding for CUDA graphs does not double a batch.
        self.has_drafts |=
            stats.num_gen_requests.is_some_and(|requests| requests > 1 && pass.generation_slots >= 2 * requests);
        let used_share = pass.cache_used;
        let record = IterationStats {
            iter: Some(pass.iter),
            iter_latency_ms: self.batch_ms(&pass, waited, next),
            host_step_time_ms: pass.host_ms.filter(|_| !waited),
            prev_device_step_time_ms: pass.device_ms.filter(|_| !waited_before),
            num_active_requests: pass.active,
            num_new_active_requests: started,
            inflight_batching_stats: Some(stats),
            kv_cache_stats: used_share.map(|_| KvCacheStats { used_share, ..KvCacheStats::default() }),
            rank: self.has_attention_dp.then_some(pass.rank),
            // Every pass writes a line, so a missing number is a lost line.
            stats_sequence: pass.iter.checked_sub(self.without_batch).filter(|_| !self.has_attention_dp),
            ..IterationStats::default()
        };
        batch.push(Message::Record(Box::new(record)));
    }

    /// The time of a batch in milliseconds. Absent if it is unknown.
    fn batch_ms(&mut self, pass: &Pass, waited: bool, next: Option<(&Pass, bool)>) -> Option<f64> {
        let (after, span) = next.map_or((None, None), |(next, _)| (next.host_ms, next.device_ms));
        let next_waited = next.is_none_or(|(_, waited)| waited);
        if let Some((own, span)) = pass.host_ms.zip(span) {
            // A wait is in both or in none of the times of a pass.
            self.errors[0] = RECENT * self.errors[0] + (own - span).abs();
            let error = after.filter(|_| !waited && !next_waited).map_or(0.0, |after| (after - span).abs());
            self.errors[1] = RECENT * self.errors[1] + error;
        }
        let [serial, overlap] = self.errors;
        // Up to 0.19, whose lines lack the number of scheduled requests, the overlap scheduler is off unless it is
        // switched on.
        if pass.scheduled.is_none() || 3.0 * serial < overlap {
            return pass.host_ms.filter(|_| !waited);
        }
        if waited && serial <= 3.0 * overlap {
            return None;
        }
        match (after, span) {
            (after, _) if !next_waited => after.or(span.filter(|_| !waited)),
            // One of the two contains no wait: requests of this batch were running when the next pass began, or it had
            // none.
            (Some(after), Some(span)) => Some(after.min(span)),
            _ => None,
        }
    }
}

/// Whether a file that begins like this is the log of a server.
pub fn is_log(start: &[u8]) -> bool {
    let has = |text: &str| memmem::find(start, text.as_bytes()).is_some();
    has("[TRT-LLM]")
        || has("[TensorRT-LLM]")
        || start.split(|byte| *byte == b'\n').any(|line| Pass::parse(line).is_some())
}

/// The messages of a whole log, each with the time at which its line was written.
#[derive(Debug)]
pub struct LoggedMessages<R> {
    reader: R,
    text: FileText,
    log: IterationLog,
    batch: Batch,
    ready: VecDeque<(Message, i64)>,
    has_ended: bool,
}

impl<R: BufRead> LoggedMessages<R> {
    #[must_use]
    pub fn of(reader: R) -> Self {
        let (text, log, batch) = (FileText::default(), IterationLog::default(), Batch::default());
        Self { reader, text, log, batch, ready: VecDeque::new(), has_ended: false }
    }

    /// The next message and its time, in microseconds since 1970, as if the local time of the log were UTC. Fails if
    /// the file cannot be read.
    pub fn next_message(&mut self) -> io::Result<Option<(Message, i64)>> {
        while self.ready.is_empty() && !self.has_ended {
            if self.text.read_line(&mut self.reader)?.bytes > 0 {
                self.log.absorb(self.text.bytes(), &mut self.batch);
            } else {
                self.log.flush(&mut self.batch);
                self.has_ended = true;
            }
            self.ready.extend(self.batch.drain().map(|message| (message, self.log.time_us)));
        }
        Ok(self.ready.pop_front())
    }

    /// What the user should change.
    #[must_use]
    pub fn notice(&self) -> Option<&'static str> {
        self.log.notice()
    }
}
