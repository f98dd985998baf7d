//! The side of the recorder that belongs to an engine's intake. It moves items into the queue and never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::model::{BenchReport, EngineAbout, RecorderCounts};
use crate::recording::{Line, Moment, Settled};
use crate::sources::{Item, Recorded};

use super::queue::{CHECKPOINT_WEIGHT, Checkpoint, Message, Queue};

/// Polls without items that are recorded after one with items: they close its iteration.
const EMPTY_POLLS: u32 = 2;
/// Afterwards the last poll of this time is recorded: the fold waits up to 5 s for the exact times of requests.
const EMPTY_INTERVAL: Duration = Duration::from_millis(500);
/// And later of this time.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The recorder of one engine.
#[derive(Debug)]
pub struct EngineRecorder {
    engine: u64,
    queue: Queue,
    /// Set by the writer: the next lines should begin a new segment.
    wanted: Arc<AtomicBool>,
    counts: RecorderCounts,
    lines: Vec<Line>,
    weight: usize,
    /// Polls without items since the last item.
    empty: u32,
    /// The last poll that was not recorded.
    skipped: Option<Settled>,
    last_line: Option<Moment>,
    last_item: Option<Moment>,
    /// Set while items are folded. A fold that panicked has made the recording incomplete.
    folding: bool,
}

impl EngineRecorder {
    pub(super) fn new(engine: u64, queue: Queue, wanted: Arc<AtomicBool>, counts: RecorderCounts) -> Self {
        Self {
            engine,
            queue,
            wanted,
            counts,
            lines: Vec::new(),
            weight: 0,
            empty: 0,
            skipped: None,
            last_line: None,
            last_item: None,
            folding: false,
        }
    }

    /// Before items are folded. Takes a copy of the fold if the next lines begin a new segment.
    pub fn begin(&mut self, fold: &Engine, bench_report: Option<&Arc<BenchReport>>, about: &EngineAbout, at: Moment) {
        if std::mem::replace(&mut self.folding, true) {
            self.wanted.store(true, Ordering::Relaxed);
            self.drop_lines();
        }
        if self.wanted.load(Ordering::Relaxed) && self.queue.reserve(CHECKPOINT_WEIGHT) {
            self.wanted.store(false, Ordering::Relaxed);
            // Part of the fold.
            self.skipped = None;
            let checkpoint =
                Checkpoint { fold: fold.clone(), bench_report: bench_report.cloned(), about: about.clone() };
            self.queue.send(Message::Checkpoint { engine: self.engine, checkpoint: Box::new(checkpoint), at });
        }
    }

    /// The following items were received at this moment.
    pub fn received(&mut self, at: Moment) {
        self.add_skipped();
        self.lines.push(Line::Received(at));
        (self.empty, self.last_item, self.last_line) = (0, Some(at), Some(at));
    }

    /// An item was folded. Of refused items only records change the fold.
    pub fn item(&mut self, item: Item, refused: bool) {
        let weight = item.weight();
        let line = match item {
            Item::Record(record) if refused => Line::RefusedRecord(record),
            _ if refused => return,
            Item::Record(record) => Line::Record(record),
            Item::Requests(rows) => Line::RequestRows(rows),
            Item::PerfMetrics(entry) => Line::FinishedRequest(entry),
            Item::KvEvent(event) => Line::KvEvent(event),
            Item::ServerMetrics(page) => Line::ServerMetrics(page),
            Item::BenchReport(report) => Line::BenchReport(report),
            Item::Process(process) => Line::Process(process),
            Item::Recorded(recorded) => match recorded {
                Recorded::Received(at) => Line::Received(at),
                Recorded::Settled(settled) => Line::Settled(settled),
                Recorded::Refused(record) => Line::RefusedRecord(record),
                Recorded::About(about) => Line::About(about),
                // The writer asks for checkpoints of its own; this one may follow from other segments.
                Recorded::Checkpoint(_) => {
                    self.wanted.store(true, Ordering::Relaxed);
                    return;
                }
            },
        };
        self.weight += weight;
        self.lines.push(line);
    }

    pub fn about(&mut self, about: &EngineAbout) {
        self.lines.push(Line::About(Box::new(about.clone())));
    }

    /// A poll has ended. Many polls of an idle engine change nothing, so most of them are left out.
    pub fn settled(&mut self, settled: Settled) {
        self.empty = self.empty.saturating_add(1);
        let since = |moment: Option<Moment>| {
            let ns = moment.map_or(i64::MAX, |moment| settled.at.ns.saturating_sub(moment.ns));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
        };
        let interval = if since(self.last_item) >= IDLE_AFTER { IDLE_INTERVAL } else { EMPTY_INTERVAL };
        // The first one ends the poll with the items.
        if self.empty <= 1 + EMPTY_POLLS || since(self.last_line) >= interval {
            self.skipped = None;
            self.lines.push(Line::Settled(settled));
            self.last_line = Some(settled.at);
        } else {
            self.skipped = Some(settled);
        }
    }

    /// Items were folded: passes their lines on.
    pub fn end(&mut self) {
        self.folding = false;
        if self.lines.is_empty() {
            return;
        }
        let weight = std::mem::take(&mut self.weight) + self.lines.len() * size_of::<Line>();
        if self.queue.reserve(weight) {
            let lines = std::mem::take(&mut self.lines);
            self.queue.send(Message::Lines { engine: self.engine, lines, weight });
        } else {
            self.drop_lines();
            // A new segment has the totals with the items that were dropped.
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    fn drop_lines(&mut self) {
        self.weight = 0;
        self.counts.dropped(self.lines.drain(..).filter(Line::is_item).count() as u64);
    }

    fn add_skipped(&mut self) {
        self.lines.extend(self.skipped.take().map(Line::Settled));
    }
}

impl Drop for EngineRecorder {
    fn drop(&mut self) {
        self.queue.send(Message::Left { engine: self.engine });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_disk_that_hangs_costs_items_and_bounded_memory_and_the_next_segment_has_their_totals() {
        let (messages, received) = mpsc::channel();
        let queue = Queue { messages, weight: Arc::default(), engines: Arc::default() };
        let (wanted, counts) = (Arc::new(AtomicBool::new(false)), RecorderCounts::default());
        let mut tap = EngineRecorder::new(0, queue.clone(), Arc::clone(&wanted), counts.clone());
        let fold = Engine::new(Duration::from_secs(15));
        let mut sent = 0;
        while counts.items_dropped() == 0 {
            let at = Moment { ns: sent, us: 0 };
            tap.begin(&fold, None, &EngineAbout::default(), at);
            tap.received(at);
            (0..100).for_each(|_| tap.item(Item::Record(Box::default()), false));
            tap.settled(Settled { at, from_ring: true });
            tap.end();
            sent += 1;
        }
        assert!(wanted.load(Ordering::Relaxed));
        assert_eq!(counts.items_dropped(), 100);
        assert!(queue.weight.load(Ordering::Relaxed) <= 8 << 20 && sent > 10, "{sent}");
        // Not before there is room for it.
        tap.begin(&fold, None, &EngineAbout::default(), Moment { ns: 0, us: 0 });
        assert!(wanted.load(Ordering::Relaxed));
        for message in received.try_iter() {
            queue.weight.fetch_sub(message.weight(), Ordering::Relaxed);
        }
        tap.begin(&fold, None, &EngineAbout::default(), Moment { ns: 0, us: 0 });
        assert!(!wanted.load(Ordering::Relaxed));
        assert!(matches!(received.try_recv(), Ok(Message::Checkpoint { .. })));
    }
}
