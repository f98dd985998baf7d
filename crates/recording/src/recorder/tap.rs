//! The side of the recorder that belongs to an engine's intake. It moves lines into the queue and never waits.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use trtllm_records::gpu::Gpu;
use trtllm_records::{EngineAbout, Message, PollFailure, RecorderCounts};

use crate::line::{Entry, Line, RecordedMoment, Settled};

use super::queue::{Command, Queue};

/// Number of polls without messages that are recorded after a poll with messages, because they close the iteration of these
/// messages.
const EMPTY_POLLS: u32 = 2;
/// After these, a poll without messages is recorded only once per interval. Some must be, because the fold waits up to 5 s
/// for exact times.
const EMPTY_INTERVAL: Duration = Duration::from_millis(500);
/// The same interval once no message has come for [`IDLE_AFTER`].
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The recorder of one engine.
#[derive(Debug)]
pub struct EngineRecorder {
    engine: u64,
    queue: Queue,
    /// Counts the memory that this engine's lines take in the queue.
    waiting: Arc<AtomicUsize>,
    counts: RecorderCounts,
    lines: Vec<Line>,
    /// Polls without messages since the last message.
    empty: u32,
    /// The last poll that was not recorded.
    skipped: Option<Line>,
    last_pushed: Option<RecordedMoment>,
    last_message: Option<RecordedMoment>,
    /// Why polls fail now.
    failing: Option<PollFailure>,
    /// Messages that were dropped since lines were last passed on.
    dropped: u64,
}

impl EngineRecorder {
    pub(super) fn new(engine: u64, queue: Queue, counts: RecorderCounts) -> Self {
        Self {
            engine,
            queue,
            waiting: Arc::default(),
            counts,
            lines: Vec::new(),
            empty: 0,
            skipped: None,
            last_pushed: None,
            last_message: None,
            failing: None,
            dropped: 0,
        }
    }

    /// Adds a message that was folded, or refused, at this moment.
    pub fn message(&mut self, message: Message, at: RecordedMoment) {
        self.push(Entry::Message(message), at);
        (self.empty, self.last_message, self.last_pushed) = (0, Some(at), Some(at));
    }

    /// Adds a line of the recording that the engine replays.
    pub fn line(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub fn about(&mut self, about: &EngineAbout, at: RecordedMoment) {
        self.push(Entry::About(Box::new(about.clone())), at);
    }

    /// Adds the result of a poll if it differs from the previous one.
    pub fn polled(&mut self, failure: Option<PollFailure>, at: RecordedMoment) {
        if failure != self.failing {
            self.empty = 0;
            self.failing.clone_from(&failure);
            self.push(Entry::Failing(failure), at);
        }
    }

    /// Adds readings of GPUs, which are read independently of what the engine sends.
    pub fn gpus(&mut self, gpus: impl Iterator<Item = Gpu>, at: RecordedMoment) {
        gpus.for_each(|gpu| self.push(Entry::Gpu(Box::new(gpu)), at));
    }

    /// Adds the end of a poll. Many polls of an idle engine change nothing, so most of them are left out.
    pub fn settled(&mut self, settled: Settled, at: RecordedMoment) {
        self.empty = self.empty.saturating_add(1);
        let since = |moment: Option<RecordedMoment>| {
            let us = moment.map_or(i64::MAX, |moment| at.clock_us.saturating_sub(moment.clock_us));
            Duration::from_micros(u64::try_from(us).unwrap_or(0))
        };
        let interval = if since(self.last_message) >= IDLE_AFTER { IDLE_INTERVAL } else { EMPTY_INTERVAL };
        let line = Line { at, entry: Entry::Settled(settled) };
        // The first poll that ends is the one with the messages, which does not count as empty.
        if self.empty <= 1 + EMPTY_POLLS || since(self.last_pushed) >= interval {
            self.skipped = None;
            self.lines.push(line);
            self.last_pushed = Some(at);
        } else {
            self.skipped = Some(line);
        }
    }

    /// Passes the lines of a poll on to the writer, after they were folded.
    pub fn end(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        let Some(Line { at, .. }) = lines.first() else { return };
        let weight = lines.iter().map(Line::weight).sum();
        if let Some(held) = self.queue.reserve(&self.waiting, weight) {
            if self.dropped > 0 {
                let entry = Entry::Dropped(std::mem::take(&mut self.dropped));
                lines.insert(0, Line { at: *at, entry });
            }
            self.queue.send(Command::Write { engine: self.engine, lines, held });
        } else {
            let messages = lines.iter().filter(|line| line.entry.is_message()).count() as u64;
            self.counts.dropped.add(messages);
            self.dropped += messages;
            // Keeps the last settings of the engine, because the engine may not send them again.
            self.lines.extend(lines.into_iter().rfind(|line| matches!(line.entry, Entry::About(_))));
        }
    }

    fn push(&mut self, entry: Entry, at: RecordedMoment) {
        self.lines.extend(self.skipped.take());
        self.lines.push(Line { at, entry });
    }
}

impl Drop for EngineRecorder {
    fn drop(&mut self) {
        // A replay must end with the same poll as the engine, because requests may have waited until then.
        self.lines.extend(self.skipped.take());
        self.end();
        self.queue.send(Command::Leave { engine: self.engine });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_costs_bounded_memory_and_the_recording_counts_the_lost_messages() {
        let (queue, received) = Queue::new();
        let counts = RecorderCounts::default();
        let mut tap = EngineRecorder::new(0, queue.clone(), counts.clone());
        let mut sent = 0;
        let mut send = |tap: &mut EngineRecorder| {
            let at = RecordedMoment { clock_us: sent, us: 0 };
            tap.about(&EngineAbout::default(), at);
            (0..100).for_each(|_| tap.message(Message::Record(Box::default()), at));
            tap.settled(Settled { from_ring: true, drained_unparsed: false }, at);
            tap.end();
            sent += 1;
        };
        while counts.dropped.get() == 0 {
            send(&mut tap);
        }
        send(&mut tap);
        assert_eq!(counts.dropped.get(), 200);
        // Half of the memory, and the last poll that had room.
        assert!(queue.held() <= 3 << 20);
        let mut other = EngineRecorder::new(1, queue.clone(), RecorderCounts::default());
        send(&mut other);
        assert_eq!(counts.dropped.get(), 200, "another engine has room");
        let accepted = received.try_iter().count();
        assert!(accepted > 10, "{accepted}");
        assert_eq!(queue.held(), 0);
        for expected in [Some(200), None] {
            send(&mut tap);
            let Ok(Command::Write { lines, .. }) = received.try_recv() else { panic!("nothing was sent") };
            let dropped = if let Entry::Dropped(count) = lines[0].entry { Some(count) } else { None };
            assert_eq!(dropped, expected);
            let abouts = lines.iter().filter(|line| matches!(line.entry, Entry::About(_))).count();
            assert_eq!(abouts, if expected.is_some() { 2 } else { 1 }, "the settings of a dropped poll are kept");
        }
    }
}
