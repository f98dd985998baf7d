//! The publishers of all ingest sockets: which ones may connect, and which one is dropped when all slots are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use trtllm_records::{PublisherRefusal, RefusedPublishers};
use trtllm_service::log::LogLimit;

/// A publisher that has sent no line for this time is dropped if another one needs its slot.
const SILENT: Duration = Duration::from_secs(5);
/// The same time for a publisher that has never sent a line.
const NEVER_SENT: Duration = Duration::from_secs(1);
/// How long a new publisher waits for a slot. Publishers that connect for one line leave within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a new publisher that waits tries again.
const RETRY: Duration = Duration::from_millis(20);

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
    sockets: AtomicU64,
    refusals: Mutex<LogLimit>,
    connections: Mutex<LogLimit>,
}

/// One connected publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    /// The number of its socket.
    socket: u64,
    /// When it sent its last line, or connected, and whether it has sent one.
    last_line: Mutex<(Instant, bool)>,
    evicted: Notify,
}

/// A publisher's slot in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) publisher: Arc<Publisher>,
    pub(super) table: Arc<Publishers>,
}

impl Publishers {
    pub fn new(admission: Admission) -> Arc<Self> {
        Arc::new(Self {
            admission,
            connected: Mutex::default(),
            sockets: AtomicU64::new(0),
            refusals: Mutex::default(),
            connections: Mutex::default(),
        })
    }

    /// A number for a new socket.
    pub(super) fn next_socket(&self) -> u64 {
        self.sockets.fetch_add(1, Relaxed)
    }

    /// A slot for a new publisher of a socket, after a short wait if none is free. `None` if the publisher is refused.
    pub(super) async fn admit(self: &Arc<Self>, socket: u64, uid: Option<u32>) -> Option<Slot> {
        let Admission { uids, limit, .. } = &self.admission;
        if !uids.is_empty() && !uid.is_some_and(|uid| uids.contains(&uid)) {
            self.refuse(PublisherRefusal::Uid, |left_out| {
                tracing::warn!(uid, left_out, "publisher refused; add its uid to --ingest.allow-uid");
            });
            return None;
        }
        let began = Instant::now();
        loop {
            let slot = self.try_admit(socket);
            if slot.is_some() {
                return slot;
            }
            if began.elapsed() >= PATIENCE {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        self.refuse(PublisherRefusal::Full, |left_out| {
            tracing::warn!(
                limit,
                left_out,
                "publisher refused, all slots are in use; stop programs that are not engines, or raise LimitNOFILE="
            );
        });
        None
    }

    fn try_admit(self: &Arc<Self>, socket: u64) -> Option<Slot> {
        let mut connected = self.connected.lock();
        let limit = self.admission.limit;
        if connected.len() >= limit {
            let (first, reason) = first_to_leave(&connected, socket)?;
            connected.swap_remove(first).evict();
            self.refuse(reason, |left_out| {
                let reason = PublisherRefusal::NAMES[reason as usize];
                tracing::warn!(
                    limit,
                    left_out,
                    reason,
                    "publisher dropped to make room; stop programs that connect and are not engines"
                );
            });
        }
        let publisher = Publisher::new(socket);
        connected.push(Arc::clone(&publisher));
        Some(Slot { publisher, table: Arc::clone(self) })
    }

    /// Counts a refusal. Calls `log` with the number of log lines that were left out, unless this one is left out, too.
    pub(super) fn refuse(&self, reason: PublisherRefusal, log: impl FnOnce(u64)) {
        self.admission.refused.count(reason);
        let allowed = self.refusals.lock().allow(std::time::Instant::now());
        allowed.map(log);
    }

    pub(super) fn log_hello(&self, model: Option<&str>, version: Option<&str>, pid: Option<u64>) {
        if let Some(left_out) = self.connections.lock().allow(std::time::Instant::now()) {
            tracing::info!(model, version, pid, left_out, "publisher connected");
        }
    }

    /// Logs that a publisher has disconnected, for sockets of one engine only. On other sockets,
    /// [`super::names::Names`] logs it.
    pub(super) fn log_disconnect(&self, process: Option<u32>) {
        if let Some(left_out) = self.connections.lock().allow(std::time::Instant::now()) {
            tracing::info!(pid = process, left_out, "publisher disconnected");
        }
    }
}

/// The publisher that makes room for one of this socket: a silent one, or one of a socket that has more publishers than this
/// socket would have. So no socket keeps another one out. The one that is silent for longest is the first.
fn first_to_leave(connected: &[Arc<Publisher>], socket: u64) -> Option<(usize, PublisherRefusal)> {
    let first = |leaves: &dyn Fn(&Publisher) -> bool| {
        let leaving = connected.iter().enumerate().filter(|(_, publisher)| leaves(publisher));
        leaving.min_by_key(|(_, publisher)| publisher.last_line()).map(|(index, _)| index)
    };
    if let Some(silent) = first(&Publisher::is_silent) {
        return Some((silent, PublisherRefusal::Silent));
    }
    let size = |socket: u64| connected.iter().filter(|publisher| publisher.socket == socket).count();
    let fullest = connected.iter().map(|publisher| publisher.socket).max_by_key(|socket| size(*socket))?;
    let full = first(&|publisher| publisher.socket == fullest)?;
    (size(fullest) > size(socket) + 1).then_some((full, PublisherRefusal::Full))
}

impl Publisher {
    pub(super) fn new(socket: u64) -> Arc<Self> {
        Arc::new(Self { socket, last_line: Mutex::new((Instant::now(), false)), evicted: Notify::new() })
    }

    pub(super) fn line_received(&self) {
        *self.last_line.lock() = (Instant::now(), true);
    }

    pub(super) fn last_line(&self) -> Instant {
        self.last_line.lock().0
    }

    fn is_silent(&self) -> bool {
        let (last_line, has_sent) = *self.last_line.lock();
        last_line.elapsed() >= if has_sent { SILENT } else { NEVER_SENT }
    }

    /// Ends its connection.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// The result of `work`, or `None` if the publisher is dropped to make room.
    pub(super) async fn unless_evicted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.evicted.notified() => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.connected.lock().retain(|other| !Arc::ptr_eq(other, &self.publisher));
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

    async fn is_evicted(slot: &Slot) -> bool {
        slot.publisher.unless_evicted(tokio::time::sleep(Duration::from_millis(1))).await.is_none()
    }

    fn lines_received<'a>(slots: impl IntoIterator<Item = &'a Slot>) {
        slots.into_iter().for_each(|slot| slot.publisher.line_received());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_silent_publisher_makes_room_first() {
        let publishers = publishers(4, &[]);
        let mut slots = Vec::new();
        for _ in 0..4 {
            slots.push(publishers.admit(0, None).await.unwrap());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        // The second one has just sent a line.
        slots[1].publisher.line_received();
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut evicted = Vec::new();
        for _ in 0..4 {
            slots.push(publishers.admit(0, None).await.unwrap());
            for (index, slot) in slots.iter().enumerate() {
                if !evicted.contains(&index) && is_evicted(slot).await {
                    evicted.push(index);
                }
            }
            tokio::time::advance(SILENT).await;
        }
        assert_eq!(evicted, [0, 2, 3, 1]);
        assert_eq!(refused(&publishers, PublisherRefusal::Silent), 4);
        assert_eq!(publishers.connected.lock().len(), 4);
        drop(slots);
        assert_eq!(publishers.connected.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn publishers_that_send_lines_keep_their_places() {
        let publishers = publishers(2, &[]);
        let slots = [publishers.admit(0, None).await.unwrap(), publishers.admit(0, None).await.unwrap()];
        tokio::time::advance(2 * SILENT).await;
        lines_received(&slots);
        assert!(publishers.admit(0, None).await.is_none());
        assert_eq!(refused(&publishers, PublisherRefusal::Full), 1);
        // A slot that becomes free while a new publisher waits is taken.
        let waiting = tokio::spawn(async move { publishers.admit(0, None).await.is_some() });
        tokio::task::yield_now().await;
        drop(slots);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_with_many_publishers_makes_room_for_one_with_few() {
        let publishers = publishers(6, &[]);
        let [many, few] = [publishers.next_socket(), publishers.next_socket()];
        let mut slots = Vec::new();
        for _ in 0..6 {
            slots.push(publishers.admit(many, None).await.unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        lines_received(&slots);
        let mut of_few = Vec::new();
        for _ in 0..3 {
            of_few.push(publishers.admit(few, None).await.unwrap());
            lines_received(&of_few);
        }
        assert!(publishers.admit(few, None).await.is_none(), "both sockets have as many");
        assert!(publishers.admit(many, None).await.is_none(), "both sockets have as many");
        let mut left = 0;
        for slot in &slots {
            left += usize::from(!is_evicted(slot).await);
        }
        assert_eq!((left, refused(&publishers, PublisherRefusal::Full)), (3, 3 + 2));
    }
}
