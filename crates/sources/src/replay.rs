//! Replays the records of a file at the recorded speed or a given one: NDJSON, one JSON array, lines that Python
//! printed, or the iteration log of a server. After the last record the engine is idle. A report of trtllm-bench is
//! read in one poll.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trtllm_records::{Message, RejectReason};
use trtllm_service::file_text::{self, FileText};
use trtllm_service::small_file;

use super::batch::Batch;
use super::blocking::BlockingSource;
use super::error::OpenError;
use super::iteration_log::{LoggedMessages, is_log};
use super::keys::{LineParser, keys_of_first};
use super::trtllm_json::{Hello, PublisherLine, parse_records};
use super::{bench_report, python_text};

/// Bytes at the start of a file that show whether it is a report or has records.
const START: usize = 64 << 10;
/// How the lines of a recording begin.
const RECORDED: &[u8] = b"{\"us\":";

/// Speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// This many times as fast as recorded, by the timestamps of the records. Infinite: as fast as they can be read.
    Recorded(f64),
    /// Records per second.
    Rate(f64),
}

impl Pace {
    /// When the next message is due after the start of the replay. `delivered`: the number of messages before it. `clock`: its
    /// recorded time in seconds since the first.
    pub fn due(self, delivered: u64, clock: f64) -> Duration {
        let seconds = match self {
            Self::Rate(rate) => delivered as f64 / rate,
            Self::Recorded(speed) => clock / speed,
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }
}

/// A file being replayed.
#[derive(Debug)]
pub struct Replay {
    pace: Pace,
    input: ReplayInput,
    lines: LineParser,
    /// The keys of an array's first record, until the first poll.
    keys: BTreeSet<String>,
    started: Option<Instant>,
    /// The next message, which is not due yet.
    next: Option<Message>,
    delivered: u64,
    /// Recorded time of the last record, in seconds since the first.
    clock: f64,
    first_timestamp_us: Option<i64>,
    /// The writer of the pipe has not written the next line yet.
    waits: bool,
}

#[derive(Debug)]
enum ReplayInput {
    Lines(BufReader<File>, FileText),
    Messages(std::vec::IntoIter<Message>),
    Log(Box<LoggedMessages<BufReader<File>>>),
}

impl Replay {
    /// Checks that the file can be opened. A pipe or a terminal is not read, because its data would be lost. Fails as
    /// [`Self::open`].
    pub fn check(path: &Path, pace: Pace) -> Result<(), OpenError> {
        if small_file::is_stream(path) { Ok(()) } else { Self::open(path, pace).map(drop) }
    }

    /// Fails if the file cannot be read, is an array of other values than records, or a report with values that are not
    /// numbers.
    pub fn open(path: &Path, pace: Pace) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Replay { path: path.to_owned(), cause };
        let invalid = |cause: &str| failed(Error::new(ErrorKind::InvalidData, cause));
        let mut reader = BufReader::with_capacity(START, File::open(path).map_err(failed)?);
        let start = reader.fill_buf().map_err(failed)?;
        if start.starts_with(RECORDED) {
            return Err(invalid("these are lines of a recording, and a replay needs its directory"));
        }
        let (of_bench, of_log) = (bench_report::is_of_bench(start), is_log(start));
        let array = start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let (mut text, mut keys) = (FileText::default(), BTreeSet::new());
        let input = if of_bench {
            if !text.read_all(&mut reader).map_err(failed)? {
                let cause = "too long for a report of trtllm-bench; name the file that its --report_json wrote";
                return Err(failed(Error::new(ErrorKind::FileTooLarge, cause)));
            }
            let report = std::str::from_utf8(text.bytes()).map_err(|error| failed(Error::other(error)))?;
            let report = bench_report::parse(report).map_err(|error| failed(Error::other(error)))?;
            ReplayInput::Messages(vec![Message::BenchReport(Arc::new(report))].into_iter())
        } else if of_log {
            ReplayInput::Log(Box::new(LoggedMessages::of(reader)))
        } else if array {
            let is_all = text.read_all(&mut reader).map_err(failed)?;
            let mut batch = Batch::default();
            if is_all {
                parse_records(text.bytes(), &mut batch).map_err(|error| invalid(&error.to_string()))?;
            }
            if !is_all || batch.rejected[RejectReason::TooMany as usize] > 0 {
                return Err(invalid("the array has too many records; write one record per line"));
            }
            keys = keys_of_first(text.bytes());
            ReplayInput::Messages(batch.messages.into_iter())
        } else {
            ReplayInput::Lines(reader, text)
        };
        Ok(Self {
            pace,
            input,
            lines: LineParser::default(),
            keys,
            started: None,
            next: None,
            delivered: 0,
            clock: 0.0,
            first_timestamp_us: None,
            waits: false,
        })
    }

    fn read_message(&mut self, batch: &mut Batch) -> io::Result<Option<Message>> {
        let Self { input, lines, .. } = self;
        let (reader, text) = match input {
            ReplayInput::Messages(messages) => return Ok(messages.next()),
            ReplayInput::Log(messages) => {
                let Some((message, us)) = messages.next_message()? else { return Ok(None) };
                self.clock = (us - *self.first_timestamp_us.get_or_insert(us)) as f64 / 1e6;
                return Ok(Some(message));
            }
            ReplayInput::Lines(reader, text) => (reader, text),
        };
        loop {
            self.waits = !is_readable(reader);
            if self.waits {
                return Ok(None);
            }
            text.clear();
            let read = text.read_line(reader)?;
            if read.bytes == 0 {
                return Ok(None);
            }
            if !read.is_complete && read.bytes == file_text::MAX {
                text.clear();
                return Err(ErrorKind::FileTooLarge.into());
            }
            match parse(text.bytes(), lines, batch) {
                Ok(PublisherLine::Message(message)) => return Ok(Some(message)),
                Ok(PublisherLine::Hello(Hello { pid, config, .. })) => {
                    batch.update_settings(config);
                    if let Some(pid) = pid {
                        return Ok(Some(Message::Process(pid)));
                    }
                }
                Err(_) if text.bytes().iter().all(u8::is_ascii_whitespace) => {}
                Err(RejectReason::Truncated) => batch.reject(RejectReason::NotJson),
                Err(reason) => batch.reject(reason),
            }
        }
    }

    /// Moves the recorded clock to the time of the next message. Messages of a log come with it.
    fn advance(&mut self) {
        let Some(Message::Record(record)) = self.next.as_ref().filter(|_| !matches!(self.input, ReplayInput::Log(_)))
        else {
            return;
        };
        self.clock = match record.timestamp.map(|time| time.micros) {
            Some(micros) => {
                let first = *self.first_timestamp_us.get_or_insert(micros);
                ((micros - first) as f64 / 1e6).max(self.clock)
            }
            None => self.clock + record.iter_latency_ms.unwrap_or(0.0).max(0.0) / 1000.0,
        };
    }
}

impl BlockingSource for Replay {
    fn poll(&mut self, batch: &mut Batch) -> io::Result<()> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        batch.keys.append(&mut self.keys);
        if let ReplayInput::Log(log) = &self.input {
            (batch.only_log, batch.notice) = (true, log.notice());
        }
        loop {
            if !batch.has_room() {
                batch.more = true;
                break;
            }
            if self.next.is_none() {
                self.next = self.read_message(batch)?;
                self.advance();
            }
            let due = self.pace.due(self.delivered, self.clock);
            let Some(message) = self.next.take_if(|_| due <= elapsed) else {
                batch.ended = self.next.is_none() && !self.waits;
                break;
            };
            self.delivered += 1;
            batch.push(message);
        }
        Ok(())
    }
}

/// Whether a line can be read without a wait for its beginning. A file can always be read, and so can a pipe without a writer.
fn is_readable(reader: &BufReader<File>) -> bool {
    let mut pipe = [PollFd::new(reader.get_ref(), PollFlags::IN)];
    memchr::memchr(b'\n', reader.buffer()).is_some() || poll(&mut pipe, Some(&Timespec::default())) != Ok(0)
}

/// trtllm-bench writes Python's text of records to `--iteration_log`.
fn parse(line: &[u8], lines: &mut LineParser, batch: &mut Batch) -> Result<PublisherLine, RejectReason> {
    if !line.trim_ascii_start().starts_with(b"{'") {
        return lines.parse(line, &mut batch.keys);
    }
    let json = std::str::from_utf8(line).ok().and_then(python_text::to_json).ok_or(RejectReason::NotJson)?;
    lines.parse(json.as_bytes(), &mut batch.keys)
}
