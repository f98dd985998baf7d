//! Who is connected, and since when each is what it is: shaking hands, asking, being answered, or idle. One sweep cuts off
//! whoever is past its time, and newcomers find room at the cost of whoever has waited longest without need.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::metrics::exporter::{PageCounts, Refusal};

/// Connections at once: some 10 MiB of buffers at most, and far below the 1024 descriptors a process may have.
const MAX_CONNECTIONS: usize = 256;
/// For a TLS handshake, and from a request's first byte to the end of its head.
const HEAD: Duration = Duration::from_secs(10);
/// For the whole of an answer, until the last byte has left.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// Between requests. Longer than the five minutes after which Prometheus lets go by itself.
const IDLE: Duration = Duration::from_secs(330);
/// An answer under way for longer may be cut off for the sake of others.
const STALLED: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A handshake, or a request's head.
    Asking,
    Answering,
    Idle,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Connection {
    task: OnceLock<AbortHandle>,
    http2: AtomicBool,
    /// What is under way is the last.
    ending: AtomicBool,
    /// An HTTP/1.1 answer was handed over, and has not been seen to have left.
    leaving: AtomicBool,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    phase: Phase,
    since: Instant,
    until: Instant,
    /// Some request was answered.
    served: bool,
    /// Number, begin and limit of the answers not handed over yet; more than one only with HTTP/2.
    open: Vec<(u64, Instant, Instant)>,
    answers: u64,
    /// Leave to be answered, held until the answer has left.
    permit: Option<OwnedSemaphorePermit>,
    /// Wakes the connection's task.
    waker: Option<Waker>,
}

impl Activity {
    fn enter(&mut self, phase: Phase, limit: Duration) {
        let now = Instant::now();
        (self.phase, self.since, self.until) = (phase, now, now + limit);
    }

    /// The oldest open answer sets the time: one that goes on must not hide another that is stuck.
    fn oldest_counts(&mut self) {
        if let Some((_, since, _)) = self.open.first() {
            (self.phase, self.since) = (Phase::Answering, *since);
            self.until = self.open.iter().map(|(_, _, until)| *until).min().unwrap_or(self.until);
        }
    }
}

impl Connection {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        let activity = Activity {
            phase: Phase::Asking,
            since: now,
            until: now + HEAD,
            served: false,
            open: Vec::new(),
            answers: 0,
            permit: None,
            waker: None,
        };
        Arc::new(Self {
            task: OnceLock::new(),
            http2: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            activity: Mutex::new(activity),
        })
    }

    fn activity(&self) -> std::sync::MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task that a cut ends.
    pub(super) fn run_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// The handshake is over; the first request has its own time. `waker` is that of the task that speaks.
    pub(super) fn speaks(&self, http2: bool, waker: Waker) {
        self.http2.store(http2, Ordering::Relaxed);
        let mut activity = self.activity();
        activity.waker = Some(waker);
        activity.enter(Phase::Asking, HEAD);
    }

    pub(super) fn speaks_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// Something was read. With HTTP/2 it need not be a request.
    pub(super) fn heard(&self) {
        let mut activity = self.activity();
        if activity.phase == Phase::Idle && !self.speaks_http2() {
            activity.enter(Phase::Asking, HEAD);
        }
    }

    /// Everything written has left. Called often, and seldom with anything to do.
    pub(super) fn flushed(&self) {
        // Set and looked at by the one task that speaks.
        if !self.leaving.load(Ordering::Relaxed) {
            return;
        }
        let mut activity = self.activity();
        if activity.phase == Phase::Answering && activity.open.is_empty() {
            self.leaving.store(false, Ordering::Relaxed);
            activity.permit = None;
            activity.enter(Phase::Idle, IDLE);
        }
    }

    /// Whether it is to end with what is under way.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    fn end(&self) {
        let activity = self.activity();
        // Under the lock: one that begins to speak after this is not woken, and sees it.
        self.ending.store(true, Ordering::Relaxed);
        if let Some(waker) = &activity.waker {
            waker.wake_by_ref();
        }
    }

    fn cut(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// An answer on its way; its end is when this is dropped, which happens once its last byte is in the connection's buffer.
#[derive(Debug)]
pub(super) struct Answer {
    connection: Arc<Connection>,
    number: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub(super) fn begin(connection: &Arc<Connection>, limit: Duration) -> Self {
        let mut activity = connection.activity();
        let (now, number) = (Instant::now(), activity.answers);
        activity.answers += 1;
        activity.served = true;
        activity.open.push((number, now, now + limit));
        activity.oldest_counts();
        // A pipelined request goes on with the leave of the one before.
        let permit = activity.permit.take();
        drop(activity);
        Self { connection: Arc::clone(connection), number, permit }
    }

    pub(super) const fn is_permitted(&self) -> bool {
        self.permit.is_some()
    }

    pub(super) fn permit(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut activity = self.connection.activity();
        activity.open.retain(|(number, ..)| *number != self.number);
        if !self.connection.speaks_http2() {
            // Given back by `flushed`; until then the answer's time runs on.
            activity.permit = self.permit.take();
            self.connection.leaving.store(true, Ordering::Relaxed);
        } else if activity.open.is_empty() {
            activity.enter(Phase::Idle, IDLE);
        } else {
            activity.oldest_counts();
        }
    }
}

/// All connections of one site.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    ending: AtomicBool,
}

/// A connection's place among the others.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.all().remove(&self.number);
    }
}

impl Connections {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer, if need be at another's cost. `None`: everybody is being answered.
    pub(super) fn admit(self: &Arc<Self>, newcomer: &Arc<Connection>, counts: &PageCounts) -> Option<Place> {
        let mut all = self.all();
        if all.len() >= MAX_CONNECTIONS {
            counts.refused(Refusal::Overloaded);
            let dispensable = |connection: &Connection| {
                let activity = connection.activity();
                let order = match activity.phase {
                    // Who has never asked anything goes first.
                    Phase::Asking if !activity.served => 0,
                    Phase::Asking | Phase::Idle => 1,
                    Phase::Answering if activity.since.elapsed() > STALLED => 2,
                    Phase::Answering => return None,
                };
                Some((order, activity.since))
            };
            let found = all.iter().filter_map(|(number, one)| Some((dispensable(one)?, *number))).min()?;
            if let Some(one) = all.remove(&found.1) {
                one.cut();
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.ending.load(Ordering::Relaxed) {
            newcomer.end();
        }
        all.insert(number, Arc::clone(newcomer));
        Some(Place { connections: Arc::clone(self), number })
    }

    /// Everybody is answered what they have asked, and nothing more.
    pub(super) fn end(&self) {
        let all = self.all();
        self.ending.store(true, Ordering::Relaxed);
        all.values().for_each(|connection| connection.end());
    }

    /// Cuts off the answer that has been under way longest, if any takes suspiciously long.
    pub(super) fn cut_stalled(&self, counts: &PageCounts) -> bool {
        let all = self.all();
        let stalled = all.values().filter_map(|connection| {
            let activity = connection.activity();
            let stalled = activity.phase == Phase::Answering && activity.since.elapsed() > STALLED;
            stalled.then(|| (activity.since, Arc::clone(connection)))
        });
        let Some((_, longest)) = stalled.min_by_key(|(since, _)| *since) else { return false };
        longest.cut();
        counts.refused(Refusal::Timeout);
        true
    }

    /// Cuts off whoever is past its time, for ever.
    pub(super) async fn keep_time(&self, counts: &PageCounts) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            let now = ticks.tick().await;
            for connection in self.all().values() {
                let mut activity = connection.activity();
                if activity.until > now {
                    continue;
                }
                if activity.phase != Phase::Idle {
                    counts.refused(Refusal::Timeout);
                }
                // Counted once, even if its end takes until the next sweep.
                activity.until = now + ANSWER;
                drop(activity);
                connection.cut();
            }
        }
    }
}
