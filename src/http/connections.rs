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
/// An answer under way for longer may be cut off for the sake of others,
const STALLED: Duration = Duration::from_secs(2);
/// and sooner if its reader has taken nothing for this long.
const TAKES_NOTHING: Duration = Duration::from_millis(250);
/// Told to stop, who asks nothing is waited for this long.
const FAREWELL: Duration = Duration::from_secs(1);
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
    /// An answer was handed over, and has not been seen to have left.
    leaving: AtomicBool,
    /// The last write found no room.
    blocked: AtomicBool,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    phase: Phase,
    since: Instant,
    until: Instant,
    /// Some request was answered.
    served: bool,
    /// What was read last is not the end of a request.
    in_the_middle: bool,
    /// The answers that have not left; more than one only with HTTP/2.
    open: Vec<Open>,
    answers: u64,
    /// When a reader last took a piece, or began to take nothing.
    moved: Instant,
    /// Wakes the connection's task.
    waker: Option<Waker>,
}

/// An answer that has not left.
#[derive(Debug)]
struct Open {
    number: u64,
    since: Instant,
    until: Instant,
    /// All of it was handed over.
    leaving: bool,
    /// Leave to be answered, held until the answer has left.
    permit: Option<OwnedSemaphorePermit>,
}

/// What may be done about whoever has leave and does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stalled {
    Nobody,
    /// Somebody takes nothing, but not for long.
    Perhaps,
    Cut,
}

impl Activity {
    fn enter(&mut self, phase: Phase, limit: Duration) {
        let now = Instant::now();
        (self.phase, self.since, self.until) = (phase, now, now + limit);
    }

    /// The oldest open answer sets the time: one that goes on must not hide another that is stuck.
    fn oldest_counts(&mut self) {
        if let Some(first) = self.open.first() {
            (self.phase, self.since) = (Phase::Answering, first.since);
            self.until = self.open.iter().map(|open| open.until).min().unwrap_or(self.until);
        }
    }

    /// Some answer has left or was given up.
    fn let_go(&mut self) {
        if !self.open.is_empty() {
            return self.oldest_counts();
        }
        match self.in_the_middle {
            // Behind the request that was answered another has begun.
            true => self.enter(Phase::Asking, HEAD),
            false => self.enter(Phase::Idle, IDLE),
        }
    }

    /// Since when an answer with leave has not moved, and whether that is long enough.
    fn stalled(&self, may_block: bool) -> Option<(Instant, bool)> {
        let permitted = self.open.iter().find(|open| open.permit.is_some())?;
        let long = permitted.since.elapsed() > STALLED || may_block && self.moved.elapsed() > TAKES_NOTHING;
        (long || may_block).then_some((permitted.since.min(self.moved), long))
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
            in_the_middle: false,
            open: Vec::new(),
            answers: 0,
            moved: now,
            waker: None,
        };
        Arc::new(Self {
            task: OnceLock::new(),
            http2: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
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

    /// Something was read, to the end of a request or not. With HTTP/2 it need not be one.
    pub(super) fn heard(&self, to_the_end: bool) {
        if self.speaks_http2() {
            return;
        }
        let mut activity = self.activity();
        activity.in_the_middle = !to_the_end;
        if activity.phase == Phase::Idle {
            activity.enter(Phase::Asking, HEAD);
        }
    }

    /// Something was to be written; whether there was room.
    pub(super) fn wrote(&self, blocked: bool) {
        // Written by the one task that speaks.
        if self.blocked.load(Ordering::Relaxed) != blocked {
            self.blocked.store(blocked, Ordering::Relaxed);
            self.activity().moved = Instant::now();
        }
    }

    /// Everything written has left. Called often, and seldom with anything to do.
    pub(super) fn flushed(&self) {
        if !self.leaving.load(Ordering::Acquire) {
            return;
        }
        let mut activity = self.activity();
        self.leaving.store(false, Ordering::Relaxed);
        activity.open.retain(|open| !open.leaving);
        activity.let_go();
    }

    /// Whether it is to end with what is under way.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    fn end(&self) {
        let activity = self.activity();
        // Under the lock: one that begins to speak after this is not woken, and sees it.
        self.ending.store(true, Ordering::Relaxed);
        match &activity.waker {
            Some(waker) => waker.wake_by_ref(),
            // Nothing was asked yet.
            None => self.abort(),
        }
    }

    /// Ends it in the middle; leave to be answered is there for others at once.
    fn cut(&self) {
        self.activity().open.clear();
        self.abort();
    }

    fn abort(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// An answer on its way. Its body holds it, and is dropped when all of it was handed over or it was given up.
#[derive(Debug)]
pub(super) struct Answer {
    connection: Arc<Connection>,
    number: u64,
    permitted: bool,
}

impl Answer {
    pub(super) fn begin(connection: &Arc<Connection>, limit: Duration) -> Self {
        let mut activity = connection.activity();
        let (now, number) = (Instant::now(), activity.answers);
        activity.answers += 1;
        activity.served = true;
        // A pipelined request goes on with the leave of the one before.
        let before = (!connection.speaks_http2()).then(|| activity.open.pop()).flatten();
        let permit = before.and_then(|before| before.permit);
        let permitted = permit.is_some();
        activity.open.push(Open { number, since: now, until: now + limit, leaving: false, permit });
        activity.oldest_counts();
        drop(activity);
        Self { connection: Arc::clone(connection), number, permitted }
    }

    pub(super) const fn is_permitted(&self) -> bool {
        self.permitted
    }

    pub(super) fn permit(&mut self, permit: OwnedSemaphorePermit) {
        let mut activity = self.connection.activity();
        activity.moved = Instant::now();
        // One that was cut off meanwhile has no need of it.
        if let Some(open) = activity.open.iter_mut().find(|open| open.number == self.number) {
            open.permit = Some(permit);
            self.permitted = true;
        }
    }

    /// A piece is about to be handed over.
    pub(super) fn moves(&self) {
        self.connection.activity().moved = Instant::now();
    }
}

impl Drop for Answer {
    /// Its last byte is in the connection's buffer (with HTTP/2 there is room for it, too), or it was given up.
    fn drop(&mut self) {
        let mut activity = self.connection.activity();
        activity.moved = Instant::now();
        if let Some(open) = activity.open.iter_mut().find(|open| open.number == self.number) {
            open.leaving = true;
        }
        self.connection.leaving.store(true, Ordering::Release);
        // An HTTP/2 stream has a task of its own, and what it has sent may have left before it comes to this.
        if self.connection.speaks_http2()
            && let Some(waker) = &activity.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// All connections of one site.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    ended: OnceLock<Instant>,
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
        if self.ended.get().is_some() {
            newcomer.end();
        }
        all.insert(number, Arc::clone(newcomer));
        Some(Place { connections: Arc::clone(self), number })
    }

    /// Everybody is answered what they have asked, and nothing more.
    pub(super) fn end(&self) {
        let all = self.all();
        let _ = self.ended.set(Instant::now());
        all.values().for_each(|connection| connection.end());
    }

    /// Cuts off whoever has had leave for longest and does not read.
    pub(super) fn cut_stalled(&self, counts: &PageCounts) -> Stalled {
        let all = self.all();
        let (mut longest, mut found) = (None, Stalled::Nobody);
        for connection in all.values() {
            // Only of HTTP/2 it is not known whether it is the reader who holds up an answer.
            let may_block = connection.speaks_http2() || connection.blocked.load(Ordering::Relaxed);
            let Some((since, long)) = connection.activity().stalled(may_block) else { continue };
            found = Stalled::Perhaps;
            if long && longest.is_none_or(|(longest, _)| since < longest) {
                longest = Some((since, connection));
            }
        }
        if let Some((_, connection)) = longest {
            connection.cut();
            counts.refused(Refusal::Timeout);
            return Stalled::Cut;
        }
        found
    }

    /// Cuts off whoever is past its time, for ever.
    pub(super) async fn keep_time(&self, counts: &PageCounts) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            let now = ticks.tick().await;
            let farewell = self.ended.get().is_some_and(|ended| now.duration_since(*ended) > FAREWELL);
            for connection in self.all().values() {
                let mut activity = connection.activity();
                let over = farewell && activity.phase != Phase::Answering;
                if activity.until > now && !over {
                    continue;
                }
                if activity.phase != Phase::Idle && !over {
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
