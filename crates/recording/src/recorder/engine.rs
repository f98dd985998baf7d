//! The side of the recorder that belongs to the intake of an engine. It moves lines into the queue and never waits.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use trtllm_records::gpu::Gpu;
use trtllm_records::{EngineAbout, Message, PollFailure, RecorderCounts};

use crate::line::{ABOUT_KINDS, Entry, Line, RecordedMoment, Settled};

use super::queue::{Command, Queue};

/// Number of poll ends that are recorded after a message: of the poll that delivered it, and of the next two, because the fold
/// closes an iteration only at the end of a later poll.
const ENDS_AFTER_MESSAGE: u32 = 3;
/// Interval between recorded poll ends after these. The fold needs some, because it counts requests that wait for more exact
/// times at the end of a poll.
const INTERVAL: Duration = Duration::from_millis(500);
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
    /// Poll ends since the last message or change of failure.
    poll_ends: u32,
    /// The last poll end, if it was not recorded.
    skipped_end: Option<Line>,
    /// The last message or recorded poll end.
    last_recorded: Option<RecordedMoment>,
    last_message: Option<RecordedMoment>,
    /// Why polls fail now.
    failure: Option<PollFailure>,
    is_disconnected: bool,
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
            poll_ends: 0,
            skipped_end: None,
            last_recorded: None,
            last_message: None,
            failure: None,
            is_disconnected: false,
            dropped: 0,
        }
    }

    /// Adds a message that was folded, or refused, at this moment.
    pub fn message(&mut self, message: Message, at: RecordedMoment) {
        self.push(Entry::Message(message), at);
        (self.poll_ends, self.last_message, self.last_recorded) = (0, Some(at), Some(at));
    }

    /// Adds a line of the recording that the engine replays. This recording has headers of its own.
    pub fn line(&mut self, line: Line) {
        if !matches!(line.entry, Entry::Header(_)) {
            self.lines.push(line);
        }
    }

    pub fn about(&mut self, about: &EngineAbout, at: RecordedMoment) {
        self.push(Entry::About(Box::new(about.clone())), at);
    }

    /// Adds the result of a poll if it differs from the previous one.
    pub fn polled(&mut self, failure: Option<PollFailure>, at: RecordedMoment) {
        if failure != self.failure {
            self.poll_ends = 0;
            self.failure.clone_from(&failure);
            self.push(Entry::Failing(failure), at);
        }
    }

    /// Adds whether the publisher is disconnected if that differs from the previous poll.
    pub fn disconnected(&mut self, is_disconnected: bool, at: RecordedMoment) {
        if is_disconnected != self.is_disconnected {
            (self.poll_ends, self.is_disconnected) = (0, is_disconnected);
            self.push(Entry::Disconnected(is_disconnected), at);
        }
    }

    /// Adds readings of GPUs, which are read independently of what the engine sends.
    pub fn gpus(&mut self, gpus: impl Iterator<Item = Gpu>, at: RecordedMoment) {
        gpus.for_each(|gpu| self.push(Entry::Gpu(Box::new(gpu)), at));
    }

    /// Adds the end of a poll. Most polls of an idle engine change nothing, so most of their ends are left out.
    pub fn settled(&mut self, settled: Settled, at: RecordedMoment) {
        self.poll_ends = self.poll_ends.saturating_add(1);
        let since = |moment: Option<RecordedMoment>| {
            let us = moment.map_or(i64::MAX, |moment| at.clock_us.saturating_sub(moment.clock_us));
            Duration::from_micros(u64::try_from(us).unwrap_or(0))
        };
        let interval = if since(self.last_message) >= IDLE_AFTER { IDLE_INTERVAL } else { INTERVAL };
        let line = Line { at, entry: Entry::Settled(settled) };
        if self.poll_ends <= ENDS_AFTER_MESSAGE || since(self.last_recorded) >= interval {
            self.skipped_end = None;
            self.lines.push(line);
            self.last_recorded = Some(at);
        } else {
            self.skipped_end = Some(line);
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
            // What describes the engine may not come again.
            let (mut kept, mut dropped): ([Option<Line>; ABOUT_KINDS], u64) = Default::default();
            for line in lines {
                match line.entry.about_kind() {
                    Some(kind) => kept[kind] = Some(line),
                    None => dropped += u64::from(line.entry.is_message()),
                }
            }
            self.counts.dropped.add(dropped);
            self.dropped += dropped;
            self.lines.extend(kept.into_iter().flatten());
            self.lines.sort_by_key(|line| line.at.clock_us);
        }
    }

    fn push(&mut self, entry: Entry, at: RecordedMoment) {
        self.lines.extend(self.skipped_end.take());
        self.lines.push(Line { at, entry });
    }
}

impl Drop for EngineRecorder {
    fn drop(&mut self) {
        // A replay must end with the same poll as the engine, because requests may have waited until then.
        self.lines.extend(self.skipped_end.take());
        self.end();
        self.queue.send(Command::Leave { engine: self.engine });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use trtllm_records::{EngineName, ErrorKind};

    use super::*;
    use crate::line::Header;

    #[test]
    fn a_disk_that_hangs_costs_bounded_memory_and_the_recording_counts_the_lost_messages() {
        let (queue, received) = Queue::new();
        let counts = RecorderCounts::default();
        let mut recorder = EngineRecorder::new(0, queue.clone(), counts.clone());
        let mut sent = 0;
        let mut send = |recorder: &mut EngineRecorder| {
            let at = RecordedMoment { clock_us: sent, us: 0 };
            recorder.about(&EngineAbout::default(), at);
            (0..100).for_each(|_| recorder.message(Message::Record(Box::default()), at));
            recorder.settled(Settled { from_ring: true, drained_unparsed: false }, at);
            recorder.end();
            sent += 1;
        };
        while counts.dropped.get() == 0 {
            send(&mut recorder);
        }
        send(&mut recorder);
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
            send(&mut recorder);
            let Ok(Command::Write { lines, .. }) = received.try_recv() else { panic!("nothing was sent") };
            let dropped = if let Entry::Dropped(count) = lines[0].entry { Some(count) } else { None };
            assert_eq!(dropped, expected);
            let abouts = lines.iter().filter(|line| matches!(line.entry, Entry::About(_))).count();
            assert_eq!(abouts, if expected.is_some() { 2 } else { 1 }, "the settings of a dropped poll are kept");
        }
    }

    /// The lines that wait in the queue.
    fn received(commands: &Receiver<Command>) -> Vec<Line> {
        let lines = |command| if let Command::Write { lines, .. } = command { lines } else { Vec::new() };
        commands.try_iter().flat_map(lines).collect()
    }

    #[test]
    fn a_failure_that_begins_or_ends_while_the_queue_is_full_is_recorded_later() {
        let (queue, commands) = Queue::new();
        let mut recorder = EngineRecorder::new(0, queue.clone(), RecorderCounts::default());
        let failure = Some(PollFailure { kind: ErrorKind::Connect, text: "refused".into(), not_ready: false });
        let mut at = RecordedMoment::default();
        let mut poll = |recorder: &mut EngineRecorder, failure: &Option<PollFailure>| {
            at.clock_us += 100_000;
            recorder.polled(failure.clone(), at);
            recorder.settled(Settled { from_ring: true, drained_unparsed: false }, at);
            recorder.end();
        };
        let of_other = Arc::default();
        for changed in [failure, None] {
            let full = queue.reserve(&of_other, 64 << 20).unwrap();
            poll(&mut recorder, &changed);
            assert!(received(&commands).is_empty());
            drop(full);
            poll(&mut recorder, &changed);
            let lines = received(&commands);
            assert!(lines.iter().any(|line| line.entry == Entry::Failing(changed.clone())), "{lines:?}");
        }
    }

    #[test]
    fn the_recording_of_a_replay_has_its_lines_without_their_headers() {
        let (queue, commands) = Queue::new();
        let mut recorder = EngineRecorder::new(0, queue, RecorderCounts::default());
        let header = Entry::Header(Box::new(Header::new(&EngineName::new("m", "1", "test"), 1, IDLE_AFTER)));
        for entry in [header, Entry::Dropped(0)] {
            recorder.line(Line { at: RecordedMoment::default(), entry });
        }
        recorder.end();
        assert_eq!(received(&commands), [Line { at: RecordedMoment::default(), entry: Entry::Dropped(0) }]);
    }

    #[test]
    fn most_ends_of_polls_without_messages_are_left_out() {
        let (queue, commands) = Queue::new();
        let mut recorder = EngineRecorder::new(0, queue, RecorderCounts::default());
        let mut recorded = Vec::new();
        for poll in 0..2000 {
            let at = RecordedMoment { clock_us: poll * 100_000, us: 0 };
            if poll == 0 || poll == 1900 {
                recorder.message(Message::Record(Box::default()), at);
            }
            recorder.settled(Settled { from_ring: true, drained_unparsed: false }, at);
            recorder.end();
            let ends = received(&commands).into_iter().filter(|line| matches!(line.entry, Entry::Settled(_)));
            recorded.extend(ends.map(|line| line.at.clock_us / 100_000));
        }
        // All three of the message, then each 0.5 s for 10 s, then each minute. The one before a message is recorded with it.
        let first = (0..3).chain((7..100).step_by(5));
        let idle = [697, 1297, 1897, 1899].into_iter();
        assert_eq!(recorded, first.chain(idle).chain(1900..1903).chain((1907..2000).step_by(5)).collect::<Vec<_>>());
    }
}
