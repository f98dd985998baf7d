//! The iteration log of a server (`print_iter_log: true`): one line for each pass of the engine's loop.
//!
//! A line has the batch k that a pass launched, the pass's own host step, and the device step of the pass before. With
//! the overlap scheduler, a pass waits for the batch before. So the time of batch k is the host step of line k + 1, or
//! its device step, which spans pass k. Without the overlap scheduler, the time of batch k is the host step of line k.
//! A pass that waited for work contains that wait. Such times are left out.

mod line;

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memchr::memmem;
use rustix::fs::OFlags;
use trtllm_records::Message;
use trtllm_records::iteration::IterationStats;
use trtllm_service::file_text::FileText;
use trtllm_service::small_file;

use super::batch::Batch;
use super::blocking::BlockingSource;
use super::error::OpenError;
use super::followed_lines::{FollowedLines, LineFiles, LinesDir, STDIN};
use line::Pass;

/// A pass whose successor is not written within this time is delivered without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Ranks whose lines are read.
const MAX_RANKS: i64 = 1024;

/// What to do about a file without any such line.
pub const NO_LINES: &str = "it has no line of an iteration log; set print_iter_log: true in the file of the server's \
     --config, and name the log of the server (with TLLM_LOG_LEVEL=INFO)";
const ONE_RANK: &str = "the iteration log has the lines of one rank of attention data parallelism, so the numbers are \
     those of this rank; set TLLM_PROFILE_LOG_RANKS=all on the server";
const DRAFTS: &str = "the iteration log does not tell which drafts are accepted, so one token counts for each request \
     and iteration; read the server itself for the number of generated tokens";

/// The reader of a log.
#[derive(Debug, Default)]
struct IterationLog {
    /// The last pass of each rank.
    ranks: BTreeMap<i64, Pass>,
    /// Number of times that the engine was started.
    starts: u64,
    /// Passes of rank 0 without a batch since the last start.
    without_batch: u64,
    has_attention_dp: bool,
    has_drafts: bool,
    /// Sums over recent lines, in milliseconds: how far the device steps are from the host steps that would be equal
    /// without the overlap scheduler, and with it.
    errors: [f64; 2],
    /// Microseconds of the local time when the last pass ended. Lines have whole seconds only.
    time_us: i64,
}

impl FollowedLines for IterationLog {
    /// Adds the records that a line completes: a record needs the line of the next pass. Any other line is skipped.
    fn absorb(&mut self, line: &[u8], batch: &mut Batch) {
        let Some(mut pass) = Pass::parse(line) else { return };
        let written_us = pass.record.timestamp.map(|time| time.micros);
        let Some((rank, iter)) = pass.record.rank.zip(pass.record.iter) else {
            self.time_us = written_us.unwrap_or(self.time_us);
            return batch.push(Message::Record(Box::new(pass.record)));
        };
        if self.ranks.get(&rank).is_some_and(|before| before.record.iter >= Some(iter)) {
            self.flush(batch);
            // The engine may have been started with other settings.
            *self = Self { starts: self.starts + 1, time_us: self.time_us, ..Self::default() };
        }
        self.has_attention_dp |= pass.fetched.is_some_and(|(own, _)| own > 0);
        // With tensor parallelism, the other ranks repeat the lines of rank 0.
        if rank != 0 && !self.has_attention_dp || rank >= MAX_RANKS {
            return;
        }
        if self.ranks.is_empty() {
            batch.push(Message::Process(self.starts));
        }
        if rank == 0 {
            let ended_us = self.time_us.saturating_add((pass.record.host_step_time_ms.unwrap_or(0.0) * 1e3) as i64);
            self.time_us = written_us.map_or(ended_us, |us| ended_us.clamp(us, us.saturating_add(999_999)));
            self.without_batch += u64::from(!pass.has_batch());
        }
        let mut before = self.ranks.remove(&rank).unwrap_or_default();
        let is_next = before.record.iter == iter.checked_sub(1);
        // A request that decodes was running before, unless it came from another server.
        pass.was_busy = is_next && before.has_batch() && pass.has_batch() && pass.generation_slots > 0;
        self.deliver(&mut before, is_next.then_some(&pass), batch);
        // Padding for CUDA graphs does not double a batch.
        let requests = pass.record.inflight_batching_stats.and_then(|stats| stats.num_gen_requests).unwrap_or(0);
        self.has_drafts |= requests > 1 && pass.generation_slots >= 2 * requests;
        let fetched = |pass: &Pass| pass.fetched.map(|(own, all)| if self.has_attention_dp { own } else { all });
        let started = fetched(&pass).filter(|count| *count > 0).zip(fetched(&before)).map(|(now, then)| now - then);
        let record = &mut pass.record;
        (record.timestamp, record.num_new_active_requests) = (None, started);
        record.prev_device_step_time_ms.take_if(|_| !before.was_busy);
        record.rank = self.has_attention_dp.then_some(rank);
        // Every pass writes a line, so a missing number is a lost line.
        record.stats_sequence = iter.checked_sub(self.without_batch).filter(|_| !self.has_attention_dp);
        self.ranks.insert(rank, pass);
    }
}

impl IterationLog {
    /// What the user should change.
    fn notice(&self) -> Option<&'static str> {
        match self.has_attention_dp && self.ranks.len() == 1 {
            true => Some(ONE_RANK),
            false => self.has_drafts.then_some(DRAFTS),
        }
    }

    /// Adds the records whose next line has not come.
    fn flush(&mut self, batch: &mut Batch) {
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.values_mut().for_each(|pass| self.deliver(pass, None, batch));
        self.ranks = ranks;
    }

    /// Adds the record of the batch of a pass, if it has one. `next`: the pass after it, if known.
    fn deliver(&mut self, pass: &mut Pass, next: Option<&Pass>, batch: &mut Batch) {
        let Some(stats) = pass.record.inflight_batching_stats.filter(|_| !pass.is_delivered) else { return };
        let (own, was_busy) = (pass.record.host_step_time_ms, pass.was_busy);
        let after = next.and_then(|next| next.record.host_step_time_ms);
        let span = next.and_then(|next| next.record.prev_device_step_time_ms);
        let next_was_busy = next.is_some_and(|next| next.was_busy);
        if let Some((own, span)) = own.zip(span) {
            // A wait is in both or in none of the times of a pass.
            let overlap = after.filter(|_| was_busy && next_was_busy).map_or(0.0, |after| (after - span).abs());
            self.errors = [0.98 * self.errors[0] + (own - span).abs(), 0.98 * self.errors[1] + overlap];
        }
        let [serial, overlap] = self.errors;
        // Up to 0.19, no line has the number of scheduled requests, and the overlap scheduler is off by default.
        let is_serial = stats.num_scheduled_requests.is_none() || 3.0 * serial < overlap;
        let host_step_time_ms = own.filter(|_| was_busy);
        let iter_latency_ms = match (after, span) {
            _ if is_serial => host_step_time_ms,
            _ if !was_busy && serial <= 3.0 * overlap => None,
            (after, _) if next_was_busy => after.or(span.filter(|_| was_busy)),
            // One contains no wait: requests of this batch were running when the next pass began, or that had none.
            (after, span) => after.zip(span).map(|(after, span)| after.min(span)),
        };
        let record = IterationStats { iter_latency_ms, host_step_time_ms, ..pass.record.clone() };
        batch.push(Message::Record(Box::new(record)));
        pass.is_delivered = true;
    }
}

/// Whether a file that begins like this is the log of a server.
pub fn is_log(start: &[u8]) -> bool {
    let marks: [&[u8]; 3] = [b"[TRT-LLM]", b"[TensorRT-LLM]", b"'num_ctx_requests'"];
    marks.iter().any(|mark| memmem::find(start, mark).is_some())
}

/// The messages of a whole log, each with the time at which its line was written.
#[derive(Debug)]
pub struct LoggedMessages<R> {
    reader: R,
    text: FileText,
    log: IterationLog,
    ready: std::vec::IntoIter<Message>,
}

impl<R: BufRead> LoggedMessages<R> {
    pub fn of(reader: R) -> Self {
        Self { reader, text: FileText::default(), log: IterationLog::default(), ready: Vec::new().into_iter() }
    }

    /// The next message and its time, in microseconds since 1970, as if the local time of the log were UTC. Fails if
    /// the file cannot be read.
    pub fn next_message(&mut self) -> io::Result<Option<(Message, i64)>> {
        let mut has_line = true;
        while has_line && self.ready.len() == 0 {
            let mut batch = Batch::default();
            has_line = self.text.read_line(&mut self.reader)?.bytes > 0;
            match has_line {
                true => self.log.absorb(self.text.bytes(), &mut batch),
                false => self.log.flush(&mut batch),
            }
            self.ready = batch.messages.into_iter();
        }
        Ok(self.ready.next().map(|message| (message, self.log.time_us)))
    }

    /// What the user should change.
    pub fn notice(&self) -> Option<&'static str> {
        self.log.notice()
    }
}

/// A log that is being followed, like `tail -F` does. `-` is the standard input.
#[derive(Debug)]
pub struct FollowedLog {
    files: LineFiles<IterationLog>,
    /// When the last record came.
    last: Instant,
}

/// Checks that the file can be read, if it exists: the server may create it later.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match small_file::open_regular(path, OFlags::empty()) {
        Err(cause) if path != Path::new(STDIN) && cause.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Log { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

impl FollowedLog {
    /// `from_start`: whether the lines that the file already has count, too.
    pub fn new(path: PathBuf, from_start: bool) -> Self {
        let files = LineFiles::new(LinesDir { path, from_start }, IterationLog::default());
        Self { files, last: Instant::now() }
    }
}

impl BlockingSource for FollowedLog {
    /// Reads the lines that are there, and does not wait for others.
    fn poll(&mut self, batch: &mut Batch) -> io::Result<()> {
        let read = self.files.read(batch);
        let log = &mut self.files.lines;
        if !batch.messages.is_empty() {
            self.last = Instant::now();
        } else if batch.ended || self.last.elapsed() >= PATIENCE {
            log.flush(batch);
        }
        batch.notice = log.notice();
        // Only the standard input ends. A file may always grow.
        match batch.ended {
            true => read.and(Err(io::Error::other("the standard input has ended, because its writer is gone"))),
            false => read,
        }
    }
}

#[cfg(test)]
mod tests;
