//! Replays records at the recorded speed or a given one. They come from a recording, or from a file with NDJSON, one JSON
//! array or lines that Python printed. After the last record the engine is idle. A report of trtllm-bench is read in one
//! poll.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_recording::{Item, Line, Reader, RecordedFailure, RecordedMoment, Recording, Settled};
use trtllm_records::RejectReason;
use trtllm_service::file_text::{self, FileText};
use trtllm_service::small_file;

use super::keys::{LineParser, keys_of_first};
use super::trtllm_json::{Hello, PublisherLine, parse_records};
use super::{Batch, OpenError, Presence, SourceError, bench_report, python_text};

/// Bytes at the start of a file that show whether it is a report or has records.
const START: usize = 64 << 10;

/// Speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// This many times as fast as recorded, by the timestamps of the records. Infinite: as fast as they can be read.
    Recorded(f64),
    /// Records per second.
    Rate(f64),
}

/// A file being replayed.
#[derive(Debug)]
pub struct Replay {
    pub(super) target: String,
    pace: Pace,
    input: ReplayInput,
    lines: LineParser,
    /// The keys of an array's first record, until the first poll.
    keys: BTreeSet<String>,
    started: Option<Instant>,
    /// The next item, which is not due yet.
    next: Option<Item>,
    delivered: u64,
    /// Recorded time of the last record, in seconds since the first.
    clock: f64,
    first_timestamp_us: Option<i64>,
    /// The recorded moment up to which `clock` has advanced, and the process that wrote the recording.
    received: Option<RecordedMoment>,
    session: Option<i64>,
    /// The moment of the last line. If a line has another moment than the one before, its moment is delivered first,
    /// and its item waits in `behind`.
    at: Option<RecordedMoment>,
    behind: Option<Item>,
    /// The failure of the polls that are replayed now.
    failure: Option<RecordedFailure>,
}

#[derive(Debug)]
enum ReplayInput {
    Lines(BufReader<File>, FileText),
    Records(std::vec::IntoIter<Item>),
    Recording(Box<Reader>),
}

/// A parsed line.
enum ReplayedLine {
    /// A line of the recorder.
    Recorded(Result<Line, serde_json::Error>),
    /// A line of an engine.
    Published(Result<PublisherLine, RejectReason>),
    Blank,
}

impl Replay {
    /// Fails if the file cannot be read, is an array of other values than records, or a report with values that are not
    /// numbers.
    pub async fn open(path: PathBuf, engine: Option<String>, pace: Pace) -> Result<Self, OpenError> {
        // Opening a named pipe waits for its writer.
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || Self::read(&opening, engine.as_deref(), pace)).await;
        opened.unwrap_or_else(|error| Err(OpenError::Replay { path, cause: error.into() }))
    }

    /// Checks that the file can be opened. A pipe or a terminal is not read, because its data would be lost. Fails as
    /// [`Self::open`].
    pub fn check(path: &Path, engine: Option<&str>, pace: Pace) -> Result<(), OpenError> {
        if small_file::is_stream(path) { Ok(()) } else { Self::read(path, engine, pace).map(drop) }
    }

    fn read(path: &Path, engine: Option<&str>, pace: Pace) -> Result<Self, OpenError> {
        match path.is_dir() {
            true => Self::read_recording(path, engine, pace),
            false => Self::read_start(path, pace),
        }
    }

    fn read_start(path: &Path, pace: Pace) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Replay { path: path.to_owned(), cause };
        let mut reader = BufReader::with_capacity(START, File::open(path).map_err(failed)?);
        let start = reader.fill_buf().map_err(failed)?;
        let of_bench = bench_report::is_of_bench(start);
        let array = start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let invalid = |error| failed(std::io::Error::new(ErrorKind::InvalidData, error));
        let (mut text, mut keys) = (FileText::default(), BTreeSet::new());
        let input = if of_bench {
            if !text.read_all(&mut reader).map_err(failed)? {
                return Err(failed(std::io::Error::new(
                    ErrorKind::FileTooLarge,
                    "too long for a report of trtllm-bench; name the file that its --report_json wrote",
                )));
            }
            let report = std::str::from_utf8(text.bytes()).map_err(|error| failed(std::io::Error::other(error)))?;
            let report = bench_report::parse(report).map_err(|error| failed(std::io::Error::other(error)))?;
            ReplayInput::Records(vec![Item::BenchReport(Arc::new(report))].into_iter())
        } else if array {
            let is_all = text.read_all(&mut reader).map_err(failed)?;
            let mut batch = Batch::default();
            if is_all {
                parse_records(text.bytes(), &mut batch).map_err(invalid)?;
            }
            if !is_all || batch.rejected[RejectReason::TooMany as usize] > 0 {
                let cause = "the array has too many records; write one record per line".to_owned();
                return Err(failed(std::io::Error::new(ErrorKind::InvalidData, cause)));
            }
            keys = keys_of_first(text.bytes());
            ReplayInput::Records(batch.items.into_iter())
        } else {
            ReplayInput::Lines(reader, text)
        };
        Ok(Self { keys, ..Self::new(path, pace, input) })
    }

    fn read_recording(path: &Path, engine: Option<&str>, pace: Pace) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Replay { path: path.to_owned(), cause: std::io::Error::other(error) };
        let recording = Recording::open(path).map_err(failed)?;
        if let Some(note) = &recording.other_formats {
            tracing::warn!(path = %path.display(), "{note}");
        }
        let reader = recording.read(engine, "engine=MODEL or engine=MODEL:VERSION", |_| i64::MIN).map_err(failed)?;
        Ok(Self::new(path, pace, ReplayInput::Recording(Box::new(reader))))
    }

    fn new(path: &Path, pace: Pace, input: ReplayInput) -> Self {
        Self {
            target: format!("replay:{}", path.display()),
            pace,
            input,
            lines: LineParser::default(),
            keys: BTreeSet::new(),
            started: None,
            next: None,
            delivered: 0,
            clock: 0.0,
            first_timestamp_us: None,
            received: None,
            session: None,
            at: None,
            behind: None,
            failure: None,
        }
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        batch.keys.append(&mut self.keys);
        loop {
            if !batch.has_room() {
                batch.more = true;
                break;
            }
            if self.next.is_none() {
                self.next = self.read_item(batch)?;
                self.advance();
            }
            let due = self.due();
            let Some(item) = self.next.take_if(|_| due <= elapsed) else {
                batch.ended = self.next.is_none();
                break;
            };
            self.delivered += u64::from(item.is_message());
            if let Item::Failing(failure) = &item {
                self.failure.clone_from(failure);
            }
            batch.push(item);
        }
        match &self.failure {
            Some(failure) if !batch.ended => Err(SourceError::Recorded(failure.clone())),
            _ => Ok(Presence::Present),
        }
    }

    fn read_item(&mut self, batch: &mut Batch) -> Result<Option<Item>, SourceError> {
        if let ReplayInput::Records(records) = &mut self.input {
            return Ok(records.next());
        }
        if let Some(item) = self.behind.take() {
            return Ok(Some(item));
        }
        loop {
            let parsed = self.input.next_line(&mut self.lines, batch).map_err(|cause| match cause.kind() {
                ErrorKind::FileTooLarge => SourceError::TooLarge { target: self.target.clone(), limit: file_text::MAX },
                _ => SourceError::Io { target: self.target.clone(), cause: cause.to_string() },
            })?;
            match parsed {
                None => return Ok(None),
                Some(ReplayedLine::Recorded(Ok(Line { item: Item::Recording(header), .. }))) => {
                    if self.begins_session(header.session) {
                        return Ok(Some(Item::Dropped(0)));
                    }
                }
                Some(ReplayedLine::Recorded(Ok(Line { at, item }))) => {
                    let is_known = self.at.replace(at) == Some(at);
                    if is_known || matches!(item, Item::Settled(_)) {
                        return Ok(Some(item));
                    }
                    self.behind = Some(item);
                    return Ok(Some(Item::Received(at)));
                }
                Some(ReplayedLine::Published(Ok(PublisherLine::Item(item)))) => return Ok(Some(item)),
                Some(ReplayedLine::Recorded(Err(_))) => batch.reject(RejectReason::NotARecord),
                Some(ReplayedLine::Published(Ok(PublisherLine::Hello(Hello { pid, config, .. })))) => {
                    batch.update_settings(config);
                    if let Some(pid) = pid {
                        return Ok(Some(Item::Process(pid)));
                    }
                }
                Some(ReplayedLine::Published(Err(RejectReason::Truncated))) => batch.reject(RejectReason::NotJson),
                Some(ReplayedLine::Published(Err(reason))) => batch.reject(reason),
                Some(ReplayedLine::Blank) => {}
            }
        }
    }

    /// Whether another exporter continued the recording. Its clock has another origin, so the time between them is skipped.
    fn begins_session(&mut self, session: i64) -> bool {
        let is_other = self.session.replace(session).is_some_and(|before| before != session);
        if is_other {
            self.received = None;
        }
        is_other
    }

    /// Moves the recorded clock to the time of the next item.
    fn advance(&mut self) {
        let record = match &self.next {
            Some(Item::Record(record)) if self.session.is_none() => record,
            Some(Item::Received(at) | Item::Settled(Settled { at, .. })) => {
                let last = self.received.replace(*at).map_or(at.clock_us, |last| last.clock_us);
                self.clock += at.clock_us.saturating_sub(last).max(0) as f64 / 1e6;
                return;
            }
            _ => return,
        };
        self.clock = match record.timestamp.map(|time| time.micros) {
            Some(micros) => {
                let first = *self.first_timestamp_us.get_or_insert(micros);
                ((micros - first) as f64 / 1e6).max(self.clock)
            }
            None => self.clock + record.iter_latency_ms.unwrap_or(0.0).max(0.0) / 1000.0,
        };
    }

    fn due(&self) -> Duration {
        let seconds = match self.pace {
            Pace::Rate(rate) => self.delivered as f64 / rate,
            Pace::Recorded(speed) => self.clock / speed,
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }
}

impl ReplayedLine {
    fn parse(line: &[u8], lines: &mut LineParser, batch: &mut Batch) -> Self {
        if Item::is_recorded(line) {
            return Self::Recorded(Item::parse(line));
        }
        // trtllm-bench writes records like this to `--iteration_log`.
        let parsed = match line.trim_ascii_start().starts_with(b"{'") {
            true => std::str::from_utf8(line)
                .ok()
                .and_then(python_text::to_json)
                .ok_or(RejectReason::NotJson)
                .and_then(|json| lines.parse(json.as_bytes(), &mut batch.keys)),
            false => lines.parse(line, &mut batch.keys),
        };
        match parsed {
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => Self::Blank,
            parsed => Self::Published(parsed),
        }
    }
}

impl ReplayInput {
    /// The next line; `None` at the end.
    fn next_line(&mut self, parser: &mut LineParser, batch: &mut Batch) -> std::io::Result<Option<ReplayedLine>> {
        match self {
            Self::Records(_) => Ok(None),
            Self::Recording(reader) => {
                let torn = reader.torn();
                let line = reader.next_line().map(|line| line.map(|line| ReplayedLine::parse(line, parser, batch)));
                (torn..reader.torn()).for_each(|_| batch.reject(RejectReason::Truncated));
                line
            }
            Self::Lines(lines, line) => {
                let read = line.read_line(lines)?;
                if !read.is_complete && read.bytes == file_text::MAX {
                    line.clear();
                    return Err(ErrorKind::FileTooLarge.into());
                }
                let parsed = (read.bytes > 0).then(|| ReplayedLine::parse(line.bytes(), parser, batch));
                line.clear();
                Ok(parsed)
            }
        }
    }
}
