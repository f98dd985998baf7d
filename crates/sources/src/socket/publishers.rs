//! The publishers of all ingest sockets: which ones may connect, and which one is dropped when all slots are in use.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use trtllm_records::{PublisherRefusal, RefusedPublishers};
use trtllm_service::log::LogLimit;

use super::refused::Refused;

/// A publisher that has sent no line for this time is dropped if another one needs its slot.
const SILENT: Duration = Duration::from_secs(5);
/// The same time for a publisher that has never sent a line.
const NEVER_SENT: Duration = Duration::from_secs(1);
/// How long a new publisher waits for a slot. Publishers that connect for one line leave within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting publisher checks whether another one is silent.
const LOOK: Duration = Duration::from_millis(100);
/// For each group of this many slots, one new connection may wait for a slot. A waiting connection needs a file descriptor,
/// so further connections wait in the backlog of their socket.
const PLACES_FOR_ONE_WAITING: usize = 8;

/// Who may publish.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Users that may publish. If empty, every user who can open the socket may publish.
    pub uids: Vec<u32>,
    /// The highest number of connected publishers, of all sockets together.
    pub limit: usize,
    pub refused: RefusedPublishers,
}

/// The table of connected publishers, which all sockets share.
#[derive(Debug)]
pub struct Publishers {
    admission: Admission,
    connected: Mutex<Vec<Arc<Publisher>>>,
    waiting: Arc<Semaphore>,
    left: Notify,
    refusals: Mutex<LogLimit>,
    hellos: Mutex<LogLimit>,
    disconnects: Mutex<LogLimit>,
}

/// The publishers of one socket.
#[derive(Debug)]
pub(super) struct SocketPublishers {
    all: Arc<Publishers>,
    /// Stands for the socket.
    group: Arc<()>,
}

/// One connected publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    /// Stands for its socket.
    group: Arc<()>,
    activity: Mutex<Activity>,
    evicted: Notify,
}

/// Decides which publisher is dropped first: the one that is silent for longest. The order of the fields matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Activity {
    last_line: Instant,
    has_sent: bool,
}

impl Activity {
    fn is_silent(&self) -> bool {
        self.last_line.elapsed() >= if self.has_sent { SILENT } else { NEVER_SENT }
    }
}

/// A publisher's slot in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct PublisherEntry {
    pub(super) publisher: Arc<Publisher>,
    table: Arc<Publishers>,
}

impl Publishers {
    pub fn new(admission: Admission) -> Arc<Self> {
        Arc::new(Self {
            waiting: Arc::new(Semaphore::new(admission.limit.div_ceil(PLACES_FOR_ONE_WAITING))),
            admission,
            connected: Mutex::default(),
            left: Notify::new(),
            refusals: Mutex::default(),
            hellos: Mutex::default(),
            disconnects: Mutex::default(),
        })
    }

    /// The publishers of a new socket.
    pub(super) fn of_socket(self: &Arc<Self>) -> Arc<SocketPublishers> {
        Arc::new(SocketPublishers { all: Arc::clone(self), group: Arc::default() })
    }

    /// Counts a refusal. Returns the number of log lines that were left out, if this one may be logged.
    fn refuse(&self, reason: PublisherRefusal) -> Option<u64> {
        self.admission.refused.count(reason);
        self.refusals.lock().allow(std::time::Instant::now())
    }
}

impl SocketPublishers {
    /// Waits until another connection may wait for a slot.
    pub(super) async fn may_wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all.waiting).acquire_owned().await.ok()
    }

    /// A slot for a new publisher, after a short wait if none is free. `None` if the publisher is refused.
    pub(super) async fn admit(self: &Arc<Self>, uid: Option<u32>) -> Option<PublisherEntry> {
        let uids = &self.all.admission.uids;
        if !uids.is_empty() && !uid.is_some_and(|uid| uids.contains(&uid)) {
            if let Some(left_out) = self.all.refuse(PublisherRefusal::Uid) {
                tracing::warn!(uid, left_out, "publisher refused; add its uid to --ingest.allow-uid");
            }
            return None;
        }
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        loop {
            let left = self.all.left.notified();
            if let Some(slot) = self.try_admit() {
                return Some(slot);
            }
            tokio::select! {
                () = left => {}
                () = tokio::time::sleep(LOOK) => {}
                () = &mut patience => break,
            }
        }
        let slot = self.try_admit();
        if slot.is_none()
            && let Some(left_out) = self.all.refuse(PublisherRefusal::Full)
        {
            let limit = self.all.admission.limit;
            tracing::warn!(
                limit,
                left_out,
                "publisher refused, all slots are in use; stop programs that are not engines, or raise LimitNOFILE="
            );
        }
        slot
    }

    fn try_admit(self: &Arc<Self>) -> Option<PublisherEntry> {
        let mut connected = self.all.connected.lock();
        if connected.len() >= self.all.admission.limit {
            let (first, reason) = self.first_to_leave(&connected)?;
            connected.swap_remove(first).evicted.notify_one();
            if let Some(left_out) = self.all.refuse(reason) {
                let limit = self.all.admission.limit;
                tracing::warn!(
                    limit,
                    left_out,
                    reason = PublisherRefusal::NAMES[reason as usize],
                    "publisher dropped to make room; stop programs that connect and are not engines"
                );
            }
        }
        let publisher = Publisher::new(&self.group);
        connected.push(Arc::clone(&publisher));
        Some(PublisherEntry { publisher, table: Arc::clone(&self.all) })
    }

    /// The publisher that makes room for one of this socket: a silent one, or one of a socket that has more publishers than this
    /// socket would have. So no socket keeps another one out.
    fn first_to_leave(&self, connected: &[Arc<Publisher>]) -> Option<(usize, PublisherRefusal)> {
        let activities = || connected.iter().map(|publisher| *publisher.activity.lock()).enumerate();
        let silent = activities().filter(|(_, activity)| activity.is_silent()).min_by_key(|(_, activity)| *activity);
        if let Some((silent, _)) = silent {
            return Some((silent, PublisherRefusal::Silent));
        }
        let size = |group: &Arc<()>| connected.iter().filter(|other| Arc::ptr_eq(&other.group, group)).count();
        let fullest = connected.iter().map(|publisher| &publisher.group).max_by_key(|group| size(group))?;
        let of_fullest = activities().filter(|(index, _)| Arc::ptr_eq(&connected[*index].group, fullest));
        let (first, _) = of_fullest.min_by_key(|(_, activity)| *activity)?;
        (size(fullest) > size(&self.group) + 1).then_some((first, PublisherRefusal::Full))
    }
}

impl Publisher {
    pub(super) fn new(group: &Arc<()>) -> Arc<Self> {
        let activity = Mutex::new(Activity { last_line: Instant::now(), has_sent: false });
        Arc::new(Self { group: Arc::clone(group), activity, evicted: Notify::new() })
    }

    pub(super) fn line_received(&self) {
        let mut activity = self.activity.lock();
        (activity.last_line, activity.has_sent) = (Instant::now(), true);
    }

    pub(super) fn last_line(&self) -> Instant {
        self.activity.lock().last_line
    }

    /// Ends its connection.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }
}

impl PublisherEntry {
    pub(super) fn line_received(&self) {
        self.publisher.line_received();
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

    fn publishers(limit: usize, uids: &[u32]) -> Arc<SocketPublishers> {
        Publishers::new(Admission { uids: uids.to_vec(), limit, refused: RefusedPublishers::default() }).of_socket()
    }

    fn refused(publishers: &SocketPublishers, reason: PublisherRefusal) -> u64 {
        publishers.all.admission.refused.counts()[reason as usize]
    }

    async fn is_evicted(slot: &PublisherEntry) -> bool {
        slot.unless_evicted(tokio::time::sleep(Duration::from_millis(1))).await.is_none()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_silent_publisher_makes_room_first() {
        let publishers = publishers(4, &[]);
        let mut slots = Vec::new();
        for _ in 0..4 {
            slots.push(publishers.admit(None).await.unwrap());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        // The second one has just sent a line.
        slots[1].line_received();
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut evicted = Vec::new();
        for _ in 0..4 {
            slots.push(publishers.admit(None).await.unwrap());
            for (index, slot) in slots.iter().enumerate() {
                if !evicted.contains(&index) && is_evicted(slot).await {
                    evicted.push(index);
                }
            }
            tokio::time::advance(SILENT).await;
        }
        assert_eq!(evicted, [0, 2, 3, 1]);
        assert_eq!(refused(&publishers, PublisherRefusal::Silent), 4);
        assert_eq!(publishers.all.connected.lock().len(), 4);
        drop(slots);
        assert_eq!(publishers.all.connected.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn publishers_that_send_lines_keep_their_places() {
        let publishers = publishers(2, &[]);
        let slots = [publishers.admit(None).await.unwrap(), publishers.admit(None).await.unwrap()];
        tokio::time::advance(2 * SILENT).await;
        slots.iter().for_each(PublisherEntry::line_received);
        assert!(publishers.admit(None).await.is_none());
        assert_eq!(refused(&publishers, PublisherRefusal::Full), 1);
        // A slot that becomes free while a new publisher waits is taken.
        let waiting = tokio::spawn(async move { publishers.admit(None).await.is_some() });
        tokio::task::yield_now().await;
        drop(slots);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_with_many_publishers_makes_room_for_one_with_few() {
        let many = publishers(6, &[]);
        let few = many.all.of_socket();
        let mut slots = Vec::new();
        for _ in 0..6 {
            slots.push(many.admit(None).await.unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        slots.iter().for_each(PublisherEntry::line_received);
        let mut of_few = Vec::new();
        for _ in 0..3 {
            of_few.push(few.admit(None).await.unwrap());
            of_few.iter().for_each(PublisherEntry::line_received);
        }
        assert!(few.admit(None).await.is_none(), "both sockets have as many");
        assert!(many.admit(None).await.is_none(), "both sockets have as many");
        let mut left = 0;
        for slot in &slots {
            left += usize::from(!is_evicted(slot).await);
        }
        assert_eq!((left, refused(&many, PublisherRefusal::Full)), (3, 3 + 2));
    }
}
