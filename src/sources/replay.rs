//! Records from a file, NDJSON or one JSON array, at the recorded speed or a given one. After the last record the engine
//! is idle. A trtllm-bench report is read in one poll.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::RejectReason;

use super::trtllm_json::{Hello, Line, parse_bench_report, parse_line, parse_records};
use super::{Batch, Item, OpenError, Presence, SourceError};

/// Most records of one poll: a file that is read at full speed must not fill the memory.
const MAX_PER_POLL: usize = 4096;
/// A report is shorter than this. A file of records fills the reader's whole buffer at the first read.
const MAX_REPORT: usize = 8 << 10;
/// Longest line and longest array, in bytes: a device may have no end.
const MAX_LINE: u64 = 16 << 20;
const MAX_ARRAY: u64 = 256 << 20;

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
    input: Input,
    started: Option<Instant>,
    /// An item that was read before its time.
    next: Option<Item>,
    delivered: u64,
    /// Recorded time of the last record, in seconds since the first.
    clock: f64,
    first_timestamp_us: Option<i64>,
}

#[derive(Debug)]
enum Input {
    Lines(BufReader<File>),
    Records(std::vec::IntoIter<Item>),
}

impl Replay {
    /// # Errors
    /// If the file cannot be read, is an array of other values than records, or a report with values that are not numbers.
    pub async fn open(path: PathBuf, pace: Pace) -> Result<Self, OpenError> {
        // Opening a named pipe waits for its writer.
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || Self::read_start(&opening, pace)).await;
        opened.unwrap_or_else(|error| Err(OpenError::Replay { path, cause: error.into() }))
    }

    fn read_start(path: &Path, pace: Pace) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Replay { path: path.to_owned(), cause };
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let start = reader.fill_buf().map_err(failed)?;
        let report = start.len() < MAX_REPORT && memchr::memmem::find(start, b"\"latency_stats\"").is_some();
        let array = start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let invalid = |error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error));
        let input = if report {
            let mut text = String::new();
            reader.read_to_string(&mut text).map_err(failed)?;
            let report = parse_bench_report(&text).map_err(invalid)?.map(|report| Item::BenchReport(Arc::new(report)));
            Input::Records(Vec::from_iter(report).into_iter())
        } else if array {
            let (mut text, mut batch) = (Vec::new(), Batch::default());
            reader.take(MAX_ARRAY).read_to_end(&mut text).map_err(failed)?;
            parse_records(&text, &mut batch).map_err(invalid)?;
            if batch.rejected[RejectReason::TooMany as usize] > 0 {
                let cause = "the array has too many records; write one record per line".to_owned();
                return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, cause)));
            }
            Input::Records(batch.items.into_iter())
        } else {
            Input::Lines(reader)
        };
        Ok(Self {
            target: format!("replay:{}", path.display()),
            pace,
            input,
            started: None,
            next: None,
            delivered: 0,
            clock: 0.0,
            first_timestamp_us: None,
        })
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        for _ in 0..MAX_PER_POLL {
            if self.next.is_none() {
                self.next = self.read(batch)?;
                self.advance();
            }
            let due = self.due();
            let Some(item) = self.next.take_if(|_| due <= elapsed) else {
                batch.ended = self.next.is_none();
                break;
            };
            self.delivered += 1;
            batch.items.push(item);
        }
        Ok(Presence::Present)
    }

    fn read(&mut self, batch: &mut Batch) -> Result<Option<Item>, SourceError> {
        let lines = match &mut self.input {
            Input::Records(records) => return Ok(records.next()),
            Input::Lines(lines) => lines,
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
            let length =
                read.map_err(|cause| SourceError::Io { target: self.target.clone(), cause: cause.to_string() })?;
            if length == 0 {
                return Ok(None);
            }
            if line.pop_if(|last| *last == b'\n').is_none() && length as u64 == MAX_LINE {
                return Err(SourceError::TooLarge { target: self.target.clone(), limit: MAX_LINE as usize });
            }
            match parse_line(&line) {
                Ok(Line::Item(item)) => return Ok(Some(item)),
                Ok(Line::Hello(Hello { pid: Some(pid), .. })) => return Ok(Some(Item::Process(pid))),
                Ok(Line::Hello(_)) => {}
                Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Err(RejectReason::Truncated) => batch.reject(RejectReason::NotJson),
                Err(reason) => batch.reject(reason),
            }
        }
    }

    /// Moves the recorded clock to the time of the next item.
    fn advance(&mut self) {
        let Some(Item::Record(record)) = &self.next else { return };
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
