//! The side of the recorder that belongs to an engine's intake. It moves items into the queue and never waits.

use std::sync::Arc;
use std::time::Duration;

use trtllm_records::{EngineAbout, RecorderCounts};
use trtllm_service::budget::Peer;

use crate::{Item, RecordedFailure, RecordedMoment, Settled};

use crate::gpu::GpuReading;

use super::{Message, Queue};

/// Number of polls without items that are recorded after a poll with items, because they close the iteration of these items.
const EMPTY_POLLS: u32 = 2;
/// After these, a poll without items is recorded only once per interval. Some must be, because the fold waits up to 5 s
/// for exact times.
const EMPTY_INTERVAL: Duration = Duration::from_millis(500);
/// The same interval once no item has come for [`IDLE_AFTER`].
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The recorder of one engine.
#[derive(Debug)]
pub struct EngineRecorder {
    engine: u64,
    queue: Queue,
    /// Counts the memory that this engine's items take in the queue.
    peer: Arc<Peer>,
    counts: RecorderCounts,
    items: Vec<Item>,
    /// Polls without items since the last item.
    empty: u32,
    /// The last poll that was not recorded.
    skipped: Option<Settled>,
    last_pushed: Option<RecordedMoment>,
    last_item: Option<RecordedMoment>,
    /// Why polls fail now.
    failing: Option<RecordedFailure>,
    /// Messages that were dropped since items were last passed on.
    dropped: u64,
}

impl EngineRecorder {
    pub(super) fn new(engine: u64, queue: Queue, counts: RecorderCounts) -> Self {
        Self {
            engine,
            queue,
            peer: Arc::default(),
            counts,
            items: Vec::new(),
            empty: 0,
            skipped: None,
            last_pushed: None,
            last_item: None,
            failing: None,
            dropped: 0,
        }
    }

    /// Sets the moment at which the following items were received.
    pub fn received(&mut self, at: RecordedMoment) {
        self.add_skipped();
        self.items.push(Item::Received(at));
        (self.empty, self.last_item, self.last_pushed) = (0, Some(at), Some(at));
    }

    /// Adds an item that was folded. A refused item is added only if it is a record: others do not change the fold.
    pub fn item(&mut self, item: Item, refused: bool) {
        match item {
            Item::Record(record) if refused => self.items.push(Item::RefusedRecord(record)),
            _ if refused => {}
            item => self.items.push(item),
        }
    }

    pub fn about(&mut self, about: &EngineAbout) {
        self.items.push(Item::About(Box::new(about.clone())));
    }

    /// Adds the result of a poll if it differs from the previous one.
    pub fn polled(&mut self, failure: Option<RecordedFailure>, at: RecordedMoment) {
        if failure != self.failing {
            self.add_skipped();
            self.empty = 0;
            self.failing.clone_from(&failure);
            self.items.extend([Item::Received(at), Item::Failing(failure)]);
        }
    }

    /// Adds readings of GPUs, which are read independently of what the engine sends.
    pub fn gpus(&mut self, gpus: impl Iterator<Item = GpuReading>, at: RecordedMoment) {
        for gpu in gpus {
            self.add_skipped();
            self.items.extend([Item::Received(at), Item::Gpu(Box::new(gpu))]);
        }
    }

    /// Adds the end of a poll. Many polls of an idle engine change nothing, so most of them are left out.
    pub fn settled(&mut self, settled: Settled) {
        self.empty = self.empty.saturating_add(1);
        let since = |moment: Option<RecordedMoment>| {
            let us = moment.map_or(i64::MAX, |moment| settled.at.clock_us.saturating_sub(moment.clock_us));
            Duration::from_micros(u64::try_from(us).unwrap_or(0))
        };
        let interval = if since(self.last_item) >= IDLE_AFTER { IDLE_INTERVAL } else { EMPTY_INTERVAL };
        // The first poll that ends is the one with the items, which does not count as empty.
        if self.empty <= 1 + EMPTY_POLLS || since(self.last_pushed) >= interval {
            self.skipped = None;
            self.items.push(Item::Settled(settled));
            self.last_pushed = Some(settled.at);
        } else {
            self.skipped = Some(settled);
        }
    }

    /// Passes the items of a poll on to the writer, after they were folded.
    pub fn end(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let mut items = std::mem::take(&mut self.items);
        let weight = items.iter().map(Item::weight).sum();
        if let Some(held) = self.queue.reserve(&self.peer, weight) {
            if self.dropped > 0 {
                items.insert(0, Item::Dropped(std::mem::take(&mut self.dropped)));
            }
            self.queue.send(Message::Items { engine: self.engine, items, held });
        } else {
            let messages = items.iter().filter(|item| item.is_message()).count() as u64;
            self.counts.dropped(messages);
            self.dropped += messages;
            // Keeps the last settings of the engine, because the engine may not send them again.
            self.items.extend(items.into_iter().rfind(|item| matches!(item, Item::About(_))));
        }
    }

    fn add_skipped(&mut self) {
        self.items.extend(self.skipped.take().map(Item::Settled));
    }
}

impl Drop for EngineRecorder {
    fn drop(&mut self) {
        // A replay must end with the same poll as the engine, because requests may have waited until then.
        self.add_skipped();
        self.end();
        self.queue.send(Message::Left { engine: self.engine });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_costs_bounded_memory_and_the_recording_counts_the_lost_items() {
        let (queue, received) = Queue::new();
        let counts = RecorderCounts::default();
        let mut tap = EngineRecorder::new(0, queue.clone(), counts.clone());
        let mut sent = 0;
        let mut send = |tap: &mut EngineRecorder| {
            let at = RecordedMoment { clock_us: sent, us: 0 };
            tap.received(at);
            tap.about(&EngineAbout::default());
            (0..100).for_each(|_| tap.item(Item::Record(Box::default()), false));
            tap.settled(Settled { at, from_ring: true, lost_rest: false });
            tap.end();
            sent += 1;
        };
        while counts.items_dropped() == 0 {
            send(&mut tap);
        }
        send(&mut tap);
        assert_eq!(counts.items_dropped(), 200);
        assert!(queue.held() <= 2 << 20);
        let mut other = EngineRecorder::new(1, queue.clone(), RecorderCounts::default());
        send(&mut other);
        assert_eq!(counts.items_dropped(), 200, "another engine has room");
        let accepted = received.try_iter().count();
        assert!(accepted > 10, "{accepted}");
        assert_eq!(queue.held(), 0);
        for expected in [Some(200), None] {
            send(&mut tap);
            let Ok(Message::Items { items, .. }) = received.try_recv() else { panic!("nothing was sent") };
            let dropped = if let Item::Dropped(count) = items[0] { Some(count) } else { None };
            assert_eq!(dropped, expected);
            let abouts = items.iter().filter(|item| matches!(item, Item::About(_))).count();
            assert_eq!(abouts, if expected.is_some() { 2 } else { 1 }, "the settings of a dropped poll are kept");
        }
    }
}
