//! The publishers of one ingest socket: which ones may connect, and which one is dropped when all places are in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use trtllm_records::{PublisherRefusal, RefusedPublishers};
use trtllm_service::budget::Peer;
use trtllm_service::log::LogLimit;

use super::names::Refused;

/// A publisher that has sent no line for this time is dropped if another one needs its place.
const SILENT: Duration = Duration::from_secs(5);
/// The same time for a publisher that has never sent a line.
const NEVER_SENT: Duration = Duration::from_secs(1);
/// How long a new publisher waits for a place. Publishers that connect for one line leave within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting publisher checks whether another one is silent.
const LOOK: Duration = Duration::from_millis(100);

/// Who may publish.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Users that may publish. If empty, every user who can open the socket may publish.
    pub uids: Vec<u32>,
    /// The highest number of connected publishers.
    pub limit: usize,
    pub refused: RefusedPublishers,
}

/// The table of connected publishers.
#[derive(Debug)]
pub(super) struct Publishers {
    admission: Admission,
    connected: Mutex<Vec<Arc<Publisher>>>,
    left: Notify,
    /// For budgets, all publishers of the socket are one group, and the connections of one process are one peer.
    group: Arc<Peer>,
    peers: Mutex<HashMap<Option<u32>, Weak<Peer>>>,
    refusals: Mutex<LogLimit>,
    hellos: Mutex<LogLimit>,
    disconnects: Mutex<LogLimit>,
}

/// One connected publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    activity: Mutex<Activity>,
    evicted: Notify,
}

/// Decides which publisher is dropped first: publishers without a hello before the others, then those that are silent
/// for longest. The order of the fields matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Activity {
    has_said_hello: bool,
    last_line: Instant,
    has_sent: bool,
}

impl Activity {
    fn is_silent(&self) -> bool {
        self.last_line.elapsed() >= if self.has_sent { SILENT } else { NEVER_SENT }
    }
}

/// A publisher's place in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct PublisherEntry {
    pub(super) publisher: Arc<Publisher>,
    pub(super) peer: Arc<Peer>,
    table: Arc<Publishers>,
}

impl Publishers {
    pub(super) fn new(admission: Admission) -> Arc<Self> {
        Arc::new(Self {
            admission,
            connected: Mutex::default(),
            left: Notify::new(),
            group: Arc::default(),
            peers: Mutex::default(),
            refusals: Mutex::default(),
            hellos: Mutex::default(),
            disconnects: Mutex::default(),
        })
    }

    /// How many publishers may be connected.
    pub(super) fn places(&self) -> usize {
        self.admission.limit
    }

    /// A place for a new publisher, after a short wait if none is free. `None` if the publisher is refused.
    pub(super) async fn admit(self: &Arc<Self>, uid: Option<u32>, process: Option<u32>) -> Option<PublisherEntry> {
        let uids = &self.admission.uids;
        if !uids.is_empty() && !uid.is_some_and(|uid| uids.contains(&uid)) {
            if let Some(left_out) = self.refuse(PublisherRefusal::Uid) {
                tracing::warn!(uid, left_out, "publisher refused; add its uid to --ingest.allow-uid");
            }
            return None;
        }
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        loop {
            let left = self.left.notified();
            if let Some(place) = self.try_admit(process) {
                return Some(place);
            }
            tokio::select! {
                () = left => {}
                () = tokio::time::sleep(LOOK) => {}
                () = &mut patience => break,
            }
        }
        let place = self.try_admit(process);
        if place.is_none()
            && let Some(left_out) = self.refuse(PublisherRefusal::Full)
        {
            let limit = self.admission.limit;
            tracing::warn!(
                limit,
                left_out,
                "publisher refused, all places are in use; stop programs that are not engines, or raise LimitNOFILE="
            );
        }
        place
    }

    fn try_admit(self: &Arc<Self>, process: Option<u32>) -> Option<PublisherEntry> {
        let mut connected = self.connected.lock();
        if connected.len() >= self.admission.limit {
            let activities = connected.iter().map(|publisher| *publisher.activity.lock()).enumerate();
            let silent = activities.filter(|(_, activity)| activity.is_silent());
            let (first, _) = silent.min_by_key(|(_, activity)| *activity)?;
            connected.swap_remove(first).evicted.notify_one();
            if let Some(left_out) = self.refuse(PublisherRefusal::Silent) {
                tracing::warn!(
                    limit = self.admission.limit,
                    left_out,
                    "silent publisher dropped to make room; stop programs that connect and send nothing"
                );
            }
        }
        let activity = Mutex::new(Activity { has_said_hello: false, last_line: Instant::now(), has_sent: false });
        let publisher = Arc::new(Publisher { activity, evicted: Notify::new() });
        connected.push(Arc::clone(&publisher));
        Some(PublisherEntry { publisher, peer: self.peer(process), table: Arc::clone(self) })
    }

    /// The peer of a process, shared by its connections.
    fn peer(&self, process: Option<u32>) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(&process).and_then(Weak::upgrade) {
            return peer;
        }
        peers.retain(|_, peer| peer.strong_count() > 0);
        let peer = Peer::of(&self.group);
        peers.insert(process, Arc::downgrade(&peer));
        peer
    }

    /// Counts a refusal. Returns the number of log lines that were left out, if this one may be logged.
    fn refuse(&self, reason: PublisherRefusal) -> Option<u64> {
        self.admission.refused.count(reason);
        self.refusals.lock().allow(std::time::Instant::now())
    }
}

impl Publisher {
    pub(super) fn hello_received(&self) {
        self.activity.lock().has_said_hello = true;
    }
}

impl PublisherEntry {
    pub(super) fn line_received(&self) {
        let mut activity = self.publisher.activity.lock();
        (activity.last_line, activity.has_sent) = (Instant::now(), true);
    }

    /// Counts and logs that this publisher cannot have its name.
    pub(super) fn refuse_name(&self, refused: &Refused, process: Option<u32>) {
        if let Some(left_out) = self.table.refuse(refused.reason()) {
            tracing::warn!(pid = process, left_out, "publisher refused: {refused}");
        }
    }

    pub(super) fn log_hello(&self, model: Option<&str>, version: Option<&str>, pid: Option<u64>) {
        if let Some(left_out) = self.table.hellos.lock().allow(std::time::Instant::now()) {
            tracing::info!(model, version, pid, left_out, "publisher connected");
        }
    }

    /// Logs that the publisher has disconnected, for sockets of one engine only. On other sockets,
    /// [`super::names::Names`] logs it.
    pub(super) fn log_disconnect(&self, process: Option<u32>) {
        if let Some(left_out) = self.table.disconnects.lock().allow(std::time::Instant::now()) {
            tracing::info!(pid = process, left_out, "publisher disconnected");
        }
    }

    /// The result of `work`, or `None` if the publisher is dropped to make room.
    pub(super) async fn unless_evicted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.publisher.evicted.notified() => None,
        }
    }
}

impl Drop for PublisherEntry {
    fn drop(&mut self) {
        self.table.connected.lock().retain(|other| !Arc::ptr_eq(other, &self.publisher));
        self.table.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publishers(limit: usize, uids: &[u32]) -> Arc<Publishers> {
        Publishers::new(Admission { uids: uids.to_vec(), limit, refused: RefusedPublishers::default() })
    }

    fn refused(publishers: &Publishers, reason: PublisherRefusal) -> u64 {
        publishers.admission.refused.counts()[reason as usize]
    }

    async fn is_evicted(place: &PublisherEntry) -> bool {
        place.unless_evicted(tokio::time::sleep(Duration::from_millis(1))).await.is_none()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_silent_publisher_without_a_hello_makes_room_first() {
        let publishers = publishers(4, &[]);
        let mut places = Vec::new();
        for _ in 0..4 {
            places.push(publishers.admit(None, None).await.unwrap());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        // The first one has a name, the second has just sent a line.
        places[0].publisher.hello_received();
        places[1].line_received();
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut evicted = Vec::new();
        for _ in 0..4 {
            places.push(publishers.admit(None, None).await.unwrap());
            for (index, place) in places.iter().enumerate() {
                if !evicted.contains(&index) && is_evicted(place).await {
                    evicted.push(index);
                }
            }
            tokio::time::advance(SILENT).await;
        }
        assert_eq!(evicted, [2, 3, 1, 4], "the last one has a name, but each of the others was silent");
        assert_eq!(refused(&publishers, PublisherRefusal::Silent), 4);
        assert_eq!(publishers.connected.lock().len(), 4);
        drop(places);
        assert_eq!(publishers.connected.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn publishers_that_send_lines_keep_their_places() {
        let publishers = publishers(2, &[]);
        let places = [publishers.admit(None, None).await.unwrap(), publishers.admit(None, None).await.unwrap()];
        tokio::time::advance(2 * SILENT).await;
        places.iter().for_each(PublisherEntry::line_received);
        assert!(publishers.admit(None, None).await.is_none());
        assert_eq!(refused(&publishers, PublisherRefusal::Full), 1);
        // A place that becomes free while a new publisher waits is taken.
        let waiting = tokio::spawn(async move { publishers.admit(None, None).await.is_some() });
        tokio::task::yield_now().await;
        drop(places);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn only_listed_users_may_publish_and_nobody_is_listed_by_default() {
        let publishers = publishers(2, &[1000]);
        for (uid, admitted) in [(Some(1000), true), (Some(0), false), (Some(1001), false), (None, false)] {
            assert_eq!(publishers.admit(uid, None).await.is_some(), admitted, "{uid:?}");
        }
        assert_eq!(refused(&publishers, PublisherRefusal::Uid), 3);
    }
}
