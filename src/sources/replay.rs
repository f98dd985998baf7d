//! Records from a file: NDJSON or one JSON array, at the speed they were recorded or a given one; then idle. A
//! trtllm-bench report is read whole, at once.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::IterationStats;

use super::trtllm_json::{Line, parse_bench_report, parse_line, parse_records};
use super::{Answer, Batch, Item, OpenError, RejectReason, SourceError};

/// Most records a poll hands over, so that a file read at full speed cannot fill the memory.
const MAX_PER_POLL: usize = 4096;
/// A report is a page of JSON; the first bytes of records are as many as the reader takes at once.
const MAX_REPORT: usize = 8 << 10;

/// How fast records come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// By the records' own times, this many times as fast.
    Recorded(f64),
    /// Records per second.
    Rate(f64),
    /// As fast as they can be read.
    Unlimited,
}

/// A file being replayed.
#[derive(Debug)]
pub struct Replay {
    target: String,
    pace: Pace,
    input: Input,
    started: Option<Instant>,
    /// Read, and not due yet.
    next: Option<Item>,
    handed_over: u64,
    /// Recorded time of the last record, seconds since the first.
    clock: f64,
    first_timestamp_us: Option<i64>,
}

#[derive(Debug)]
enum Input {
    Lines(BufReader<File>),
    Records(std::vec::IntoIter<Item>),
    End,
}

impl Replay {
    /// # Errors
    /// When the file cannot be read, is an array that is no array of records, or a report with something else than numbers.
    pub fn open(path: &Path, pace: Pace) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Replay { path: path.to_owned(), cause };
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let start = reader.fill_buf().map_err(failed)?;
        let report = start.len() < MAX_REPORT && memchr::memmem::find(start, b"\"latency_stats\"").is_some();
        let array = start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let unreadable = |error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{error:?}")));
        let input = if report {
            let mut text = String::new();
            reader.read_to_string(&mut text).map_err(failed)?;
            let report = parse_bench_report(&text).map_err(unreadable)?;
            Input::Records(
                report.map(|report| Item::BenchReport(Arc::new(report))).into_iter().collect::<Vec<_>>().into_iter(),
            )
        } else if array {
            let (mut text, mut batch) = (Vec::new(), Batch::default());
            reader.read_to_end(&mut text).map_err(failed)?;
            parse_records(&text, &mut batch).map_err(unreadable)?;
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
            handed_over: 0,
            clock: 0.0,
            first_timestamp_us: None,
        })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        for _ in 0..MAX_PER_POLL {
            let item = match self.next.take() {
                Some(item) => item,
                None => match self.read(batch)? {
                    Some(item) => {
                        self.advance(&item);
                        item
                    }
                    None => {
                        batch.ended = true;
                        break;
                    }
                },
            };
            if self.due() > elapsed {
                self.next = Some(item);
                break;
            }
            self.handed_over += 1;
            batch.items.push(item);
        }
        Ok(Answer::Present)
    }

    fn read(&mut self, batch: &mut Batch) -> Result<Option<Item>, SourceError> {
        loop {
            match &mut self.input {
                Input::End => return Ok(None),
                Input::Records(records) => return Ok(records.next()),
                Input::Lines(reader) => {
                    let mut line = Vec::new();
                    let read = reader.read_until(b'\n', &mut line);
                    let length = read
                        .map_err(|cause| SourceError::Io { target: self.target.clone(), cause: cause.to_string() })?;
                    if length == 0 {
                        self.input = Input::End;
                        continue;
                    }
                    match parse_line(&line) {
                        Ok(Line::Item(item)) => return Ok(Some(item)),
                        Ok(Line::Hello(hello)) => {
                            if let Some(pid) = hello.pid {
                                return Ok(Some(Item::Process(pid)));
                            }
                        }
                        Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                        Err(RejectReason::Truncated) => batch.reject(RejectReason::NotJson),
                        Err(reason) => batch.reject(reason),
                    }
                }
            }
        }
    }

    /// Moves the recorded clock to this item.
    fn advance(&mut self, item: &Item) {
        let Item::Record(record) = item else { return };
        self.clock = match recorded_us(record) {
            Some(micros) => {
                let first = *self.first_timestamp_us.get_or_insert(micros);
                ((micros - first) as f64 / 1e6).max(self.clock)
            }
            None => self.clock + record.iter_latency_ms.unwrap_or(0.0).max(0.0) / 1000.0,
        };
    }

    fn due(&self) -> Duration {
        let seconds = match self.pace {
            Pace::Unlimited => 0.0,
            Pace::Rate(rate) => self.handed_over as f64 / rate,
            Pace::Recorded(speed) => self.clock / speed,
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }
}

fn recorded_us(record: &IterationStats) -> Option<i64> {
    record.timestamp.map(|time| time.micros)
}
