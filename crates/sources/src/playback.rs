//! Replays a recording at the recorded speed or a given one. After the last line the engine is idle.

use std::io;
use std::path::Path;
use std::time::Instant;

use trtllm_recording::{Entry, Line, Reader, RecordedMoment, Recording};
use trtllm_records::RejectReason;

use super::batch::Batch;
use super::blocking::BlockingSource;
use super::error::OpenError;
use super::replay::Pace;

/// The recording of one engine that is being replayed.
#[derive(Debug)]
pub struct Playback {
    pace: Pace,
    reader: Reader,
    started: Option<Instant>,
    /// The next line, which is not due yet.
    next: Option<Line>,
    /// Number of messages in all lines so far.
    delivered: u64,
    /// Recorded time of the next line, in seconds since the first. The time between two exporters is skipped.
    clock: f64,
    before: Option<RecordedMoment>,
    /// The process that wrote the recording.
    session: Option<i64>,
}

impl Playback {
    /// Opens the recording of `engine`: MODEL or MODEL:VERSION, or `None` for the only one. Fails if the directory has no recording of
    /// the engine that this version can read.
    pub fn open(path: &Path, engine: Option<&str>, pace: Pace) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Replay { path: path.to_owned(), cause: io::Error::other(error) };
        let recording = Recording::open(path).map_err(failed)?;
        if let Some(note) = &recording.other_formats {
            tracing::warn!(path = %path.display(), "{note}");
        }
        let reader = recording.read(engine, "engine=MODEL or engine=MODEL:VERSION", |_| i64::MIN).map_err(failed)?;
        Ok(Self { pace, reader, started: None, next: None, delivered: 0, clock: 0.0, before: None, session: None })
    }

    /// The next line, and moves the recorded clock to its time. Headers go to `batch` at once.
    fn read_line(&mut self, batch: &mut Batch) -> io::Result<Option<Line>> {
        loop {
            let torn = self.reader.torn();
            let parsed = self.reader.next_line()?.map(Line::parse);
            (torn..self.reader.torn()).for_each(|_| batch.reject(RejectReason::Truncated));
            match parsed {
                None => return Ok(None),
                Some(Err(_)) => batch.reject(RejectReason::NotARecord),
                Some(Ok(Line { at, entry: Entry::Header(header) })) => {
                    let is_other = self.session.replace(header.session).is_some_and(|before| before != header.session);
                    if is_other {
                        // Another exporter continued the recording. Its clock has another origin.
                        let at = self.before.take().unwrap_or(at);
                        batch.push_line(Line { at, entry: Entry::Dropped(0) });
                    }
                    batch.push_line(Line { at, entry: Entry::Header(header) });
                }
                Some(Ok(line)) => {
                    let before = self.before.replace(line.at).unwrap_or(line.at);
                    self.clock += line.at.clock_us.saturating_sub(before.clock_us).max(0) as f64 / 1e6;
                    return Ok(Some(line));
                }
            }
        }
    }
}

impl BlockingSource for Playback {
    /// Reads the lines that are due. The failures in them are those of the replayed polls, and not of this one.
    fn poll(&mut self, batch: &mut Batch) -> io::Result<()> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        loop {
            if !batch.has_room() {
                batch.more = true;
                break;
            }
            if self.next.is_none() {
                self.next = self.read_line(batch)?;
            }
            let due = self.pace.due(self.delivered, self.clock);
            let Some(line) = self.next.take_if(|_| due <= elapsed) else {
                batch.ended = self.next.is_none();
                break;
            };
            self.delivered += u64::from(line.entry.is_message());
            batch.push_line(line);
        }
        Ok(())
    }
}
