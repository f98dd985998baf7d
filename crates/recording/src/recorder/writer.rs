//! The thread of the recorder. It turns messages into lines and lines into frames, and writes the frames.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trtllm_records::{EngineName, RecorderCounts};
use trtllm_service::log::LogLimit;
use trtllm_service::supervise::{self, Task};

use crate::frame::{self, Encoder};
use crate::item::FORMAT;
use crate::{Header, Item, RecordedMoment, Settled, Stamp};

use super::Message;
use super::files::{Open, SegmentFiles};

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
    stamp: Stamp,
    segment: Option<Open>,
    /// The latest items that describe the engine. Each segment begins with them, because older segments are deleted.
    about: [Option<Item>; 4],
    /// Lines of the next frame.
    lines: Vec<u8>,
    /// Number of the engine's messages in these lines.
    messages: u64,
    /// Number of messages that were dropped since the last frame.
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
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let next = self.engines.values().filter_map(|engine| engine.since).min().map(|since| since + FLUSH);
            let wake = next.into_iter().chain(self.failed_until).min();
            let message = match wake {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wake) => messages.recv_timeout(wake.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => {
                    let engine = message.engine();
                    self.catch(engine, |writer| writer.handle(message));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.catch(None, |writer| writer.flush_due(Instant::now()));
        }
        let all: Vec<u64> = self.engines.keys().copied().collect();
        all.into_iter().for_each(|engine| self.flush(engine));
    }

    /// Runs one step. A panic ends the segments that the step may have left half written. The recording continues in new segments.
    fn catch(&mut self, engine: Option<u64>, step: impl FnOnce(&mut Self)) {
        if supervise::catch_now(Task::Record, || step(self)).is_ok() {
            return;
        }
        let concerned: Vec<u64> =
            self.engines.keys().copied().filter(|id| engine.is_none_or(|one| one == *id)).collect();
        for engine in concerned {
            if let Some(recorded) = self.engines.get_mut(&engine) {
                let messages = std::mem::take(&mut recorded.messages);
                recorded.drop_messages(messages, &self.counts);
                recorded.lines.clear();
                recorded.since = None;
            }
            self.fail(engine, &io::Error::other("a bug; please report the panic above"));
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Joined { engine, name } => {
                self.engines.insert(engine, RecordedEngine::new(name));
            }
            Message::Items { engine, items, held: _held } => self.add(engine, &items),
            Message::Left { engine } => {
                self.flush(engine);
                if let Some(mut recorded) = self.engines.remove(&engine) {
                    recorded.close_segment(&mut self.files);
                }
            }
            Message::Stop => {}
        }
    }

    fn add(&mut self, engine: u64, items: &[Item]) {
        if self.engines.get(&engine).is_some_and(|recorded| recorded.needs_segment(&self.files)) {
            self.flush(engine);
            if self.failed_until.is_none()
                && let Err(error) = self.begin_segment(engine, items)
            {
                self.fail(engine, &error);
            }
        }
        for item in items {
            let Some(recorded) = self.engines.get_mut(&engine) else { return };
            let messages = u64::from(item.is_message());
            if !recorded.add(item) {
                recorded.drop_messages(messages, &self.counts);
                continue;
            }
            recorded.messages += messages;
            recorded.since.get_or_insert_with(Instant::now);
            if recorded.lines.len() >= frame::TARGET {
                self.flush(engine);
            }
        }
    }

    /// Closes the segment of the engine and begins the next one, which will contain these items.
    fn begin_segment(&mut self, engine: u64, items: &[Item]) -> io::Result<()> {
        let Some(recorded) = self.engines.get_mut(&engine) else { return Ok(()) };
        recorded.close_segment(&mut self.files);
        if let Some(at) = items.iter().find_map(moment) {
            recorded.stamp.set(at);
        }
        let EngineName { model, version, labels, source, objectives } = &*recorded.name;
        let header = Header {
            format: FORMAT,
            exporter: env!("CARGO_PKG_VERSION").to_owned(),
            session: self.session,
            model: model.clone(),
            version: version.clone(),
            labels: labels.clone(),
            source: (*source).to_owned(),
            objectives: *objectives,
            stale_after_ms: u64::try_from(self.stale_after.as_millis()).unwrap_or(u64::MAX),
        };
        let name = format!("{model}-{version}");
        // Lines that are still waiting were counted as dropped.
        recorded.lines.clear();
        let header = Item::Recording(Box::new(header));
        let about = std::mem::take(&mut recorded.about);
        [&header].into_iter().chain(about.iter().flatten()).for_each(|item| {
            recorded.write(item);
        });
        recorded.about = about;
        if recorded.dropped > 0 {
            recorded.write(&Item::Dropped(recorded.dropped));
        }
        let text = std::mem::take(&mut recorded.lines);
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
        let Some(open) = recorded.segment.as_mut().filter(|_| !recorded.lines.is_empty()) else { return };
        let mut text = std::mem::take(&mut recorded.lines);
        let encoded = self.encoder.encode(&text);
        let written = encoded.and_then(|frame| self.files.append(open, &frame));
        text.clear();
        text.shrink_to(KEPT);
        recorded.lines = text;
        match written {
            Ok(true) => self.counts.wrote(messages),
            Ok(false) => {
                // All segments are open. The segment of this engine is closed, so that it can be deleted.
                recorded.drop_messages(messages, &self.counts);
                recorded.close_segment(&mut self.files);
            }
            Err(error) => {
                recorded.drop_messages(messages, &self.counts);
                self.fail(engine, &error);
            }
        }
    }

    /// Closes the segment of the engine. Items until the next segment are dropped.
    fn fail(&mut self, engine: u64, error: &io::Error) {
        self.counts.failed();
        let now = Instant::now();
        self.failed_until = Some(now + RETRY);
        if let Some(recorded) = self.engines.get_mut(&engine) {
            recorded.close_segment(&mut self.files);
        }
        if !self.is_logged && self.failures.allow(now).is_some() {
            tracing::warn!(%error, "recording failed; trying again every second; free space on the disk, or change --record.dir");
            self.is_logged = true;
        }
    }
}

impl RecordedEngine {
    fn new(name: Box<EngineName>) -> Self {
        Self {
            stamp: Stamp::new(&name.model, &name.version),
            name,
            segment: None,
            about: Default::default(),
            lines: Vec::new(),
            messages: 0,
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

    /// Adds an item to the next frame. False if it must be dropped.
    fn add(&mut self, item: &Item) -> bool {
        if let Some(at) = moment(item) {
            self.stamp.set(at);
        }
        let kept = match item {
            Item::About(_) => Some(0),
            Item::BenchReport(_) => Some(1),
            Item::Process(_) => Some(2),
            Item::Failing(_) => Some(3),
            // Each line has its time, so this item needs no line.
            Item::Received(_) => return true,
            _ => None,
        };
        if let Some(kept) = kept {
            self.about[kept] = Some(item.clone());
        }
        self.segment.is_some() && self.write(item)
    }

    fn write(&mut self, item: &Item) -> bool {
        item.write(&self.stamp, &mut self.lines)
    }

    fn drop_messages(&mut self, messages: u64, counts: &RecorderCounts) {
        counts.dropped(messages);
        self.dropped += messages;
    }
}

fn moment(item: &Item) -> Option<RecordedMoment> {
    match item {
        Item::Received(at) | Item::Settled(Settled { at, .. }) => Some(*at),
        _ => None,
    }
}

fn unix_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use trtllm_records::Objectives;

    use super::super::Queue;
    use super::super::RecorderConfig;
    use super::*;

    #[test]
    fn after_a_panic_its_items_are_counted_as_dropped_and_the_recording_continues() {
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
        writer.handle(Message::Joined { engine: 7, name: Box::new(name) });
        let record_one = |writer: &mut SegmentWriter| {
            let held = queue.reserve(&std::sync::Arc::default(), 1).unwrap();
            writer.handle(Message::Items { engine: 7, items: vec![Item::Record(Box::default())], held });
        };
        record_one(&mut writer);
        writer.catch(Some(7), |_| panic!("planted"));
        writer.flush(7);
        assert_eq!((counts.items_dropped(), counts.items_written()), (1, 0));
        record_one(&mut writer);
        writer.flush(7);
        assert_eq!((counts.items_dropped(), counts.items_written()), (2, 0), "the disk rests after an error");
        writer.flush_due(Instant::now() + RETRY);
        record_one(&mut writer);
        writer.flush(7);
        assert_eq!((counts.items_dropped(), counts.items_written()), (2, 1));
    }
}
