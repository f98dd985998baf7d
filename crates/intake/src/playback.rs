//! Replays a recording at the recorded speed or a given one. After the last line the engine is idle.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use trtllm_recording::{Entry, Line, Reader, RecordedMoment, Recording};
use trtllm_records::{PollFailure, RejectReason};
use trtllm_sources::replay::Pace;
use trtllm_sources::{Batch, BlockingSource, OpenError, Presence, SourceError};

/// The recording of one engine that is being replayed.
#[derive(Debug)]
pub struct Playback {
    target: String,
    pace: Pace,
    reader: Reader,
    started: Option<Instant>,
    /// The next line, which is not due yet.
    next: Option<Line>,
    /// The lines of the last poll.
    lines: Vec<Line>,
    /// Number of messages in all lines so far.
    delivered: u64,
    /// Recorded time of the next line, in seconds since the first. The time between two exporters is skipped.
    clock: f64,
    before: Option<RecordedMoment>,
    /// The process that wrote the recording.
    session: Option<i64>,
    /// The recorded source has no records of iterations.
    only_requests: bool,
    only_log: bool,
    /// The failure of the polls that are replayed now.
    failure: Option<PollFailure>,
    is_disconnected: bool,
}

impl Playback {
    /// Opens the recording of `engine`: MODEL or MODEL:VERSION, or `None` for the only one.
    ///
    /// # Errors
    /// If the directory has no recording of the engine that this version can read.
    pub async fn open(path: PathBuf, engine: Option<String>, pace: Pace) -> Result<Self, OpenError> {
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || Self::read(&opening, engine.as_deref(), pace)).await;
        opened.unwrap_or_else(|error| Err(OpenError::Replay { path, cause: error.into() }))
    }

    /// Checks that [`Self::open`] would succeed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(path: &Path, engine: Option<&str>, pace: Pace) -> Result<(), OpenError> {
        Self::read(path, engine, pace).map(drop)
    }

    fn read(path: &Path, engine: Option<&str>, pace: Pace) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Replay { path: path.to_owned(), cause: Error::other(error) };
        let recording = Recording::open(path).map_err(failed)?;
        if let Some(note) = &recording.other_formats {
            tracing::warn!(path = %path.display(), "{note}");
        }
        let reader = recording.read(engine, "engine=MODEL or engine=MODEL:VERSION", |_| i64::MIN).map_err(failed)?;
        Ok(Self {
            target: format!("replay:{}", path.display()),
            pace,
            reader,
            started: None,
            next: None,
            lines: Vec::new(),
            delivered: 0,
            clock: 0.0,
            before: None,
            session: None,
            only_requests: false,
            only_log: false,
            failure: None,
            is_disconnected: false,
        })
    }

    pub(crate) fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// The next line, and moves the recorded clock to its time.
    fn read_line(&mut self, batch: &mut Batch) -> Result<Option<Line>, SourceError> {
        loop {
            let torn = self.reader.torn();
            let failed = |cause: Error| match cause.kind() {
                ErrorKind::FileTooLarge => {
                    SourceError::TooLarge { target: self.target.clone(), limit: trtllm_service::file_text::MAX }
                }
                _ => SourceError::Io { target: self.target.clone(), cause: cause.to_string() },
            };
            let parsed = self.reader.next_line().map_err(failed)?.map(Line::parse);
            (torn..self.reader.torn()).for_each(|_| batch.reject(RejectReason::Truncated));
            match parsed {
                None => return Ok(None),
                Some(Err(_)) => batch.reject(RejectReason::NotARecord),
                Some(Ok(Line { at, entry: Entry::Header(header) })) => {
                    (self.only_requests, self.only_log) = (header.has_only_requests(), header.is_of_log());
                    let is_other = self.session.replace(header.session).is_some_and(|before| before != header.session);
                    if is_other {
                        // If the polls of the next process fail, its first lines say so.
                        (self.failure, self.is_disconnected) = (None, false);
                        // Another exporter continued the recording. Its clock has another origin.
                        let at = self.before.take().unwrap_or(at);
                        return Ok(Some(Line { at, entry: Entry::Dropped(0) }));
                    }
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
    fn target(&self) -> String {
        self.target.clone()
    }

    /// Reads the lines that are due. `take_lines` returns them. `batch` gets what cannot be read.
    fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        let mut weight = 0;
        loop {
            if weight >= Batch::ENOUGH {
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
            match &line.entry {
                Entry::Failing(failure) => self.failure.clone_from(failure),
                Entry::Disconnected(is_disconnected) => self.is_disconnected = *is_disconnected,
                _ => {}
            }
            weight += line.weight();
            self.lines.push(line);
        }
        (batch.only_requests, batch.only_log) = (self.only_requests, self.only_log);
        batch.connections = self.is_disconnected.then_some(0);
        match &self.failure {
            Some(failure) if !batch.ended => Err(SourceError::Recorded(failure.clone())),
            _ if self.is_disconnected && !batch.ended => Ok(Presence::Disconnected),
            _ => Ok(Presence::Present),
        }
    }
}
