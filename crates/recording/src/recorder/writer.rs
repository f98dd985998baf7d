//! The thread of the recorder. It turns lines into text and text into frames, and writes the frames.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trtllm_records::{EngineName, RecorderCounts};
use trtllm_service::log::LogLimit;
use trtllm_service::supervise::{self, Task};

use crate::frame::{self, Encoder};
use crate::line::{ABOUT_KINDS, Entry, Header, Line, LineWriter, RecordedMoment};

use super::files::{Open, SegmentFiles};
use super::queue::Command;

/// Lines wait at most this long for their frame to fill. Together with the interval between polls, that is less than a second.
const FLUSH: Duration = Duration::from_millis(500);
/// Capacity of an engine's buffer that is kept from one frame to the next.
const KEPT: usize = 64 << 10;
/// How long the recorder waits after an error.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct SegmentWriter {
    files: SegmentFiles,
    engines: HashMap<u64, RecordedEngine>,
    encoder: Encoder,
    counts: RecorderCounts,
    session: i64,
    stale_after: Duration,
    /// When to try again after an error.
    failed_until: Option<Instant>,
    failures: LogLimit,
    is_logged: bool,
}

/// The recording of one engine.
struct RecordedEngine {
    name: Box<EngineName>,
    writer: LineWriter,
    segment: Option<Open>,
    /// The latest entries that describe the engine. Each segment begins with them, because older segments are deleted.
    about: [Option<Entry>; ABOUT_KINDS],
    /// The lines of the next frame, as text.
    text: Vec<u8>,
    /// Number of the engine's messages in this text.
    messages: u64,
    /// Messages whose loss this text reports. If it is not written, the next segment reports them.
    reported: u64,
    /// Messages that were dropped since this segment began. The next segment reports them.
    dropped: u64,
    since: Option<Instant>,
}

impl SegmentWriter {
    pub(super) fn new(files: SegmentFiles, counts: RecorderCounts, stale_after: Duration) -> Self {
        Self {
            files,
            engines: HashMap::new(),
            encoder: Encoder::default(),
            counts,
            session: unix_us(),
            stale_after,
            failed_until: None,
            failures: LogLimit::default(),
            is_logged: false,
        }
    }

    /// Writes until it is stopped or all senders are gone.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let next = self.engines.values().filter_map(|engine| engine.since).min().map(|since| since + FLUSH);
            let wake = next.into_iter().chain(self.failed_until).min();
            let command = match wake {
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wake) => commands.recv_timeout(wake.saturating_duration_since(Instant::now())),
            };
            match command {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(command) => self.catch(|writer| writer.handle(command)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.catch(|writer| writer.flush_due(Instant::now()));
        }
        let all: Vec<u64> = self.engines.keys().copied().collect();
        all.into_iter().for_each(|engine| self.flush(engine));
    }

    /// Runs one step. A panic ends all segments, because the step may have left one half written. The recording continues in new
    /// segments.
    fn catch(&mut self, step: impl FnOnce(&mut Self)) {
        if supervise::catch_now(Task::Record, || step(self)).is_ok() {
            return;
        }
        let engines: Vec<u64> = self.engines.keys().copied().collect();
        for engine in engines {
            if let Some(recorded) = self.engines.get_mut(&engine) {
                let messages = std::mem::take(&mut recorded.messages);
                recorded.drop_text(messages, &self.counts);
                recorded.text.clear();
                recorded.since = None;
            }
            self.fail(engine, &io::Error::other("a bug; please report the panic above"));
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Join { engine, name } => {
                self.engines.insert(engine, RecordedEngine::new(name));
            }
            Command::Write { engine, lines, held: _held } => self.add(engine, lines),
            Command::Leave { engine } => {
                self.flush(engine);
                if let Some(mut recorded) = self.engines.remove(&engine) {
                    recorded.close_segment(&mut self.files);
                }
            }
            Command::Stop => {}
        }
    }

    fn add(&mut self, engine: u64, lines: Vec<Line>) {
        if let Some(Line { at, .. }) = lines.first()
            && self.engines.get(&engine).is_some_and(|recorded| recorded.needs_segment(&self.files))
        {
            self.flush(engine);
            if self.failed_until.is_none()
                && let Err(error) = self.begin_segment(engine, *at)
            {
                self.fail(engine, &error);
            }
        }
        for line in lines {
            let Some(recorded) = self.engines.get_mut(&engine) else { return };
            let messages = u64::from(line.entry.is_message());
            if !recorded.add(line) {
                recorded.drop_messages(messages, &self.counts);
                continue;
            }
            recorded.messages += messages;
            recorded.since.get_or_insert_with(Instant::now);
            if recorded.text.len() >= frame::TARGET {
                self.flush(engine);
            }
        }
    }

    /// Closes the segment of the engine and begins the next one at this moment.
    fn begin_segment(&mut self, engine: u64, at: RecordedMoment) -> io::Result<()> {
        let Some(recorded) = self.engines.get_mut(&engine) else { return Ok(()) };
        recorded.close_segment(&mut self.files);
        let header = Header::new(&recorded.name, self.session, self.stale_after);
        let name = format!("{}-{}", header.model, header.version);
        let dropped = (recorded.dropped > 0).then_some(Entry::Dropped(recorded.dropped));
        let RecordedEngine { writer, text, about, .. } = recorded;
        for entry in [&Entry::Header(Box::new(header))].into_iter().chain(about.iter().flatten()).chain(&dropped) {
            writer.write(at, entry, text);
        }
        let text = std::mem::take(&mut recorded.text);
        let mut open = self.files.create(&name)?;
        let written = self.encoder.encode(&text).and_then(|frame| self.files.append(&mut open, &frame));
        if !matches!(written, Ok(true)) {
            self.files.discard(open);
            return written.and(Err(io::Error::new(io::ErrorKind::StorageFull, "--record.max-size is too small")));
        }
        (recorded.segment, recorded.dropped) = (Some(open), 0);
        if std::mem::take(&mut self.is_logged) {
            tracing::info!("recording continues");
        }
        Ok(())
    }

    /// Writes the frames whose lines have waited long enough, and allows new segments some time after an error.
    fn flush_due(&mut self, now: Instant) {
        let due =
            |engine: &RecordedEngine| engine.since.is_some_and(|since| now.saturating_duration_since(since) >= FLUSH);
        let due: Vec<u64> = self.engines.iter().filter(|(_, engine)| due(engine)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|engine| self.flush(engine));
        self.failed_until = self.failed_until.filter(|until| *until > now);
    }

    /// Writes the waiting lines of an engine as one frame.
    fn flush(&mut self, engine: u64) {
        let Some(recorded) = self.engines.get_mut(&engine) else { return };
        recorded.since = None;
        let messages = std::mem::take(&mut recorded.messages);
        let Some(open) = recorded.segment.as_mut().filter(|_| !recorded.text.is_empty()) else { return };
        let mut text = std::mem::take(&mut recorded.text);
        let encoded = self.encoder.encode(&text);
        let written = encoded.and_then(|frame| self.files.append(open, &frame));
        text.clear();
        text.shrink_to(KEPT);
        recorded.text = text;
        match written {
            Ok(true) => {
                self.counts.written.add(messages);
                recorded.reported = 0;
            }
            Ok(false) => {
                // All segments are open. The segment of this engine is closed, so that it can be deleted.
                recorded.drop_text(messages, &self.counts);
                recorded.close_segment(&mut self.files);
            }
            Err(error) => {
                recorded.drop_text(messages, &self.counts);
                self.fail(engine, &error);
            }
        }
    }

    /// Closes the segment of the engine. Messages until the next segment are dropped.
    fn fail(&mut self, engine: u64, error: &io::Error) {
        self.counts.errors.add(1);
        let now = Instant::now();
        self.failed_until = Some(now + RETRY);
        if let Some(recorded) = self.engines.get_mut(&engine) {
            recorded.close_segment(&mut self.files);
        }
        if !self.is_logged && self.failures.allow(now).is_some() {
            tracing::warn!(%error, "recording failed; trying again every second; free space on the disk, or change --record.dir or --record.max-size");
            self.is_logged = true;
        }
    }
}

impl RecordedEngine {
    fn new(name: Box<EngineName>) -> Self {
        Self {
            writer: LineWriter::new(&name),
            name,
            segment: None,
            about: Default::default(),
            text: Vec::new(),
            messages: 0,
            reported: 0,
            dropped: 0,
            since: None,
        }
    }

    fn needs_segment(&self, files: &SegmentFiles) -> bool {
        self.segment.as_ref().is_none_or(|open| files.is_full(open))
    }

    fn close_segment(&mut self, files: &mut SegmentFiles) {
        if let Some(open) = self.segment.take() {
            files.close(open);
        }
    }

    /// Adds a line to the next frame. False if it must be dropped.
    fn add(&mut self, Line { at, entry }: Line) -> bool {
        let is_written = self.segment.is_some() && self.writer.write(at, &entry, &mut self.text);
        match entry {
            Entry::Dropped(count) if is_written => self.reported += count,
            Entry::Dropped(count) => self.dropped += count,
            _ => {
                if let Some(kind) = entry.about_kind() {
                    self.about[kind] = Some(entry);
                }
            }
        }
        is_written
    }

    fn drop_messages(&mut self, messages: u64, counts: &RecorderCounts) {
        counts.dropped.add(messages);
        self.dropped += messages;
    }

    /// Drops the text of the next frame.
    fn drop_text(&mut self, messages: u64, counts: &RecorderCounts) {
        self.drop_messages(messages, counts);
        self.dropped += std::mem::take(&mut self.reported);
    }
}

fn unix_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use trtllm_records::{Message, Objectives};

    use crate::reader::Recording;

    use super::super::config::RecorderConfig;
    use super::super::queue::Queue;
    use super::*;

    #[test]
    fn after_a_panic_its_messages_are_counted_as_dropped_and_the_recording_continues() {
        let directory = tempfile::tempdir().unwrap();
        let counts = RecorderCounts::default();
        let config = RecorderConfig {
            directory: directory.path().to_owned(),
            max_size: 1 << 20,
            max_age: None,
            stale_after: Duration::from_secs(15),
        };
        let files = SegmentFiles::open(&config, counts.clone()).unwrap();
        let mut writer = SegmentWriter::new(files, counts.clone(), config.stale_after);
        let (queue, _received) = Queue::new();
        let name = EngineName {
            model: "m".into(),
            version: "1".into(),
            labels: Vec::new(),
            source: "socket",
            objectives: Objectives::default(),
        };
        writer.handle(Command::Join { engine: 7, name: Box::new(name) });
        let write = |writer: &mut SegmentWriter, entry| {
            let held = queue.reserve(&std::sync::Arc::default(), 1).unwrap();
            let lines = vec![Line { at: RecordedMoment::default(), entry }];
            writer.handle(Command::Write { engine: 7, lines, held });
        };
        let record_one = |writer: &mut SegmentWriter| write(writer, Entry::Message(Message::Record(Box::default())));
        record_one(&mut writer);
        write(&mut writer, Entry::Dropped(20));
        writer.catch(|_| panic!("planted"));
        writer.flush(7);
        assert_eq!((counts.dropped.get(), counts.written.get()), (1, 0));
        record_one(&mut writer);
        writer.flush(7);
        assert_eq!((counts.dropped.get(), counts.written.get()), (2, 0), "the disk rests after an error");
        write(&mut writer, Entry::Dropped(300));
        writer.flush_due(Instant::now() + RETRY);
        record_one(&mut writer);
        writer.flush(7);
        assert_eq!((counts.dropped.get(), counts.written.get()), (2, 1));
        let recording = Recording::open(directory.path()).unwrap();
        let mut reader = recording.read(None, "--engine", |_| i64::MAX).unwrap();
        let mut dropped = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            if let Entry::Dropped(count) = Line::parse(line).unwrap().entry {
                dropped.push(count);
            }
        }
        assert_eq!(dropped, [322], "what the queue dropped is reported, too");
    }
}
