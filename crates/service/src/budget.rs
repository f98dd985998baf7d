//! Limits the bytes that are held on behalf of peers. A reader reserves bytes before it reads, shrinks the reservation
//! to what it keeps, and gives it back when the data is freed. A peer that is sending has a place. A slow peer loses
//! its place, and its bytes, as soon as another peer needs room. Each kind of input has its own share, which no other
//! kind can use up. Beyond these shares, all kinds share one more amount, the rest.

use std::iter;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A peer that sends fewer bytes than this in [`STALL`] keeps its place only while no other peer needs it.
const STEP: usize = 64 << 10;
/// The time in which a peer must send [`STEP`] bytes.
const STALL: Duration = Duration::from_millis(500);
/// The time after which a peer may lose its place, even if it is not slow.
const PLACE: Duration = Duration::from_secs(2);
/// How often a waiting reader looks for a slow peer.
const LOOK: Duration = Duration::from_millis(50);

/// The bytes that all kinds of input may take beyond their own shares.
pub static REST: Rest = Rest::new(2 << 20);

/// Bytes that several budgets may take beyond their own shares.
#[derive(Debug)]
pub struct Rest {
    limit: usize,
    taken: AtomicUsize,
}

/// The limit for one kind of input, of all peers together.
#[derive(Debug)]
pub struct Budget {
    own: usize,
    rest: &'static Rest,
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug)]
struct Table {
    held: usize,
    /// The peers that are sending, oldest first.
    places: Vec<Weak<Place>>,
    /// The peers that wait for room, in the order in which they asked.
    waiting: Vec<Arc<Waiting>>,
}

/// A peer, or a group of peers, such as the publishers of a socket. The next place goes to the group that holds the fewest
/// bytes, and in this group to the peer that holds the fewest. A peer that was slow comes after all others.
#[derive(Debug, Default)]
pub struct Peer {
    group: Option<Arc<Self>>,
    held: AtomicUsize,
    is_slow: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    peer: Arc<Peer>,
}

/// A peer that is sending.
#[derive(Debug)]
struct Place {
    peer: Arc<Peer>,
    began: Instant,
    step: Mutex<Step>,
    is_cut: AtomicBool,
}

#[derive(Debug)]
struct Step {
    bytes: usize,
    at: Instant,
}

/// Reserved bytes of a budget. Dropping this value gives them back.
#[derive(Debug)]
pub struct Held {
    budget: &'static Budget,
    peer: Arc<Peer>,
    bytes: usize,
}

/// Reserved bytes of a budget for what a peer is sending. The peer may lose them.
#[derive(Debug)]
pub struct Receiving {
    held: Held,
    /// Listed in the table until it is dropped.
    place: Arc<Place>,
}

impl Peer {
    /// A peer of this group.
    #[must_use]
    pub fn of(group: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { group: Some(Arc::clone(group)), ..Self::default() })
    }

    /// The bytes that the peer holds of all budgets.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    fn rank(&self) -> (bool, usize, usize) {
        let group = self.group.as_ref().map_or(0, |group| group.held.load(Relaxed));
        (self.is_slow.load(Relaxed), group, self.held())
    }

    /// The peer and its group.
    fn with_group(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(self.group.as_deref())
    }
}

impl Rest {
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0) }
    }

    fn try_take(&self, bytes: usize) -> bool {
        let room = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.limit);
        bytes == 0 || self.taken.fetch_update(Relaxed, Relaxed, room).is_ok()
    }

    /// Takes the bytes, or all that are left. Returns how many.
    fn take_up_to(&self, bytes: usize) -> usize {
        let more = |taken: usize| bytes.min(self.limit.saturating_sub(taken));
        let before = self.taken.fetch_update(Relaxed, Relaxed, |taken| Some(taken + more(taken)));
        before.map_or(0, more)
    }
}

impl Budget {
    /// A budget of `own` bytes and what is left of the rest. A peer that asks for more gets all that is left, if no
    /// other peer holds any of the `own` bytes.
    #[must_use]
    pub const fn new(own: usize, rest: &'static Rest) -> Self {
        let table = Table { held: 0, places: Vec::new(), waiting: Vec::new() };
        Self { own, rest, table: Mutex::new(table), changed: Notify::const_new() }
    }

    /// The bytes that are held now.
    pub fn held(&self) -> usize {
        self.table.lock().held
    }

    /// Takes the bytes if there is room and no peer waits for it.
    pub fn try_take(&'static self, peer: &Arc<Peer>, bytes: usize) -> Option<Held> {
        let mut table = self.table.lock();
        let bytes = if table.waiting.is_empty() { self.take_now(&mut table, peer, bytes)? } else { return None };
        Some(Held { budget: self, peer: Arc::clone(peer), bytes })
    }

    /// Takes the bytes even if there is no room, because they are in memory already. Afterwards, the caller must free
    /// other bytes if [`Self::is_over`].
    pub fn take_anyway(&'static self, bytes: usize) -> Held {
        let mut held = Held { budget: self, peer: Arc::default(), bytes: 0 };
        held.grow_anyway(bytes);
        held
    }

    /// Whether more bytes are held than the limits allow.
    pub fn is_over(&self) -> bool {
        self.held() > self.own && self.rest.taken.load(Relaxed) > self.rest.limit
    }

    /// Takes the bytes. Waits for room, and takes places of slow peers away.
    pub async fn take(&'static self, peer: &Arc<Peer>, bytes: usize) -> Held {
        if let Some(held) = self.try_take(peer, bytes) {
            return held;
        }
        let waiting = Arc::new(Waiting { peer: Arc::clone(peer) });
        self.table.lock().waiting.push(Arc::clone(&waiting));
        // Removes the peer from the waiting list, even if this future is dropped.
        let _leaving = Leaving { budget: self, waiting: &waiting };
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(bytes) = self.serve(&waiting, bytes) {
                return Held { budget: self, peer: Arc::clone(peer), bytes };
            }
            let _ = tokio::time::timeout(LOOK, changed).await;
        }
    }

    /// Like [`Self::take`], for bytes that the peer sends from now on. The peer may lose them: see [`Receiving::cut`].
    /// The reservation may be smaller than `bytes`: see [`Receiving::bytes`].
    pub async fn receive(&'static self, peer: &Arc<Peer>, bytes: usize) -> Receiving {
        let held = self.take(peer, bytes).await;
        let began = Instant::now();
        let step = Mutex::new(Step { bytes: 0, at: began });
        let place = Arc::new(Place { peer: Arc::clone(peer), began, step, is_cut: AtomicBool::new(false) });
        let places = &mut self.table.lock().places;
        places.retain(|place| place.strong_count() > 0);
        places.push(Arc::downgrade(&place));
        Receiving { held, place }
    }

    /// Takes the bytes if there is room. Returns how many were taken.
    fn take_now(&self, table: &mut Table, peer: &Peer, bytes: usize) -> Option<usize> {
        let is_alone = table.held == 0;
        if self.add(table, peer, bytes, Rest::try_take) {
            return Some(bytes);
        }
        // Without this, an input that is longer than the own share might never get its bytes.
        is_alone.then(|| {
            let there_is = self.own + self.rest.take_up_to(bytes - self.own);
            table.held += there_is;
            peer.with_group().for_each(|peer| _ = peer.held.fetch_add(there_is, Relaxed));
            there_is
        })
    }

    /// Adds the bytes, if `take` allows the part of them that comes from the rest.
    fn add(&self, table: &mut Table, peer: &Peer, bytes: usize, take: impl FnOnce(&Rest, usize) -> bool) -> bool {
        let held = table.held.saturating_add(bytes);
        let fits = take(self.rest, held.saturating_sub(self.own) - table.held.saturating_sub(self.own));
        if fits {
            table.held = held;
            peer.with_group().for_each(|peer| _ = peer.held.fetch_add(bytes, Relaxed));
        }
        fits
    }

    /// Takes the bytes if it is this peer's turn. If there is no room, takes the place of a slow peer away.
    fn serve(&self, waiting: &Arc<Waiting>, bytes: usize) -> Option<usize> {
        let mut table = self.table.lock();
        let first = table.waiting.iter().min_by_key(|other| other.peer.rank());
        if !first.is_some_and(|first| Arc::ptr_eq(first, waiting)) {
            return None;
        }
        let taken = self.take_now(&mut table, &waiting.peer, bytes);
        let places = || table.places.iter().filter_map(Weak::upgrade);
        if taken.is_some() || places().any(|place| place.is_cut.load(Relaxed)) {
            // If nothing was taken, a place was cut before, and its bytes come back soon.
            return taken;
        }
        let now = Instant::now();
        let slow = places().filter(|place| place.is_slow(now));
        if let Some(place) = slow.max_by_key(|place| (place.peer.rank(), now - place.began)) {
            place.is_cut.store(true, Relaxed);
            place.peer.is_slow.store(true, Relaxed);
            drop(table);
            self.changed.notify_waiters();
        }
        None
    }

    fn give_back(&self, peer: &Peer, bytes: usize) {
        let mut table = self.table.lock();
        let of_rest = table.held.saturating_sub(self.own).min(bytes);
        self.rest.taken.fetch_sub(of_rest, Relaxed);
        table.held -= bytes;
        peer.with_group().for_each(|peer| _ = peer.held.fetch_sub(bytes, Relaxed));
        let is_awaited = !table.waiting.is_empty();
        drop(table);
        if is_awaited && bytes > 0 {
            self.changed.notify_waiters();
        }
    }
}

impl Place {
    /// Whether the place can be taken away. A peer that was slow before loses it at once.
    fn is_slow(&self, now: Instant) -> bool {
        now - self.step.lock().at >= STALL || now - self.began >= PLACE || self.peer.is_slow.load(Relaxed)
    }
}

struct Leaving<'w> {
    budget: &'static Budget,
    waiting: &'w Arc<Waiting>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.budget.table.lock().waiting.retain(|other| !Arc::ptr_eq(other, self.waiting));
        self.budget.changed.notify_waiters();
    }
}

impl Held {
    /// Like [`Budget::take_anyway`], but adds the bytes to this reservation.
    pub fn grow_anyway(&mut self, bytes: usize) {
        self.budget.add(&mut self.budget.table.lock(), &self.peer, bytes, |rest, more| {
            rest.taken.fetch_add(more, Relaxed);
            true
        });
        self.bytes += bytes;
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.budget.give_back(&self.peer, rest);
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Receiving {
    /// How much the peer may send.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.bytes
    }

    /// Notes that the peer has sent this many bytes so far.
    pub fn arrived(&self, bytes: usize) {
        let mut step = self.place.step.lock();
        if bytes >= step.bytes + STEP {
            *step = Step { bytes, at: Instant::now() };
        }
    }

    /// Returns when the peer has lost its place. The caller must then free what the peer has sent.
    pub async fn cut(&self) {
        loop {
            let mut changed = pin!(self.held.budget.changed.notified());
            changed.as_mut().enable();
            if self.place.is_cut.load(Relaxed) {
                return;
            }
            changed.await;
        }
    }

    /// Ends the reception. A peer that was in time no longer counts as slow.
    #[must_use]
    pub fn complete(self) -> Held {
        let Self { held, place } = self;
        if !place.is_cut.load(Relaxed) {
            held.peer.is_slow.store(false, Relaxed);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn budget(limit: usize) -> &'static Budget {
        sharing(limit, Box::leak(Box::new(Rest::new(0))))
    }

    fn sharing(own: usize, rest: &'static Rest) -> &'static Budget {
        Box::leak(Box::new(Budget::new(own, rest)))
    }

    /// Polls a future once.
    async fn is_ready<T>(future: impl Future<Output = T>) -> bool {
        tokio::time::timeout(Duration::ZERO, future).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_never_above_the_limit_and_comes_back() {
        let (budget, peer) = (budget(100 * KIB), Arc::default());
        let mut all = Vec::new();
        while let Some(held) = budget.try_take(&peer, 30 * KIB) {
            all.push(held);
            assert!(budget.held() <= 100 * KIB);
        }
        assert_eq!(all.len(), 3);
        all[0].shrink_to(10 * KIB);
        // `shrink_to` does not let a reservation grow.
        all[0].shrink_to(20 * KIB);
        assert_eq!((budget.held(), all[0].bytes()), (70 * KIB, 10 * KIB));
        assert!(is_ready(budget.take(&peer, 30 * KIB)).await);
        drop(all);
        assert_eq!((budget.held(), peer.held.load(Relaxed)), (0, 0));
        // A peer that asks for more than the limit gets the whole limit, if no other peer holds any of it.
        let whole = budget.try_take(&peer, 200 * KIB);
        assert_eq!((whole.as_ref().map(Held::bytes), budget.held()), (Some(100 * KIB), 100 * KIB));
        assert!(budget.try_take(&peer, 1).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_alone_gets_what_is_left_of_the_rest_and_never_more() {
        let rest = Box::leak(Box::new(Rest::new(12 * KIB)));
        let (answers, lines) = (sharing(4 * KIB, rest), sharing(2 * KIB, rest));
        let (server, publisher) = (Arc::default(), Arc::default());
        for (flooded, expected) in [(0, 16), (2, 16), (5, 13), (14, 4)] {
            let flood = (flooded > 0).then(|| lines.try_take(&publisher, flooded * KIB).unwrap());
            let answer = answers.receive(&server, 16 * KIB).await;
            assert_eq!(answer.bytes(), expected * KIB, "beside {flooded}");
            assert!(answers.held() + lines.held() <= 18 * KIB);
            assert!(lines.try_take(&publisher, (2 * KIB).saturating_sub(flooded * KIB)).is_some(), "the own share");
            drop((flood, answer));
            assert_eq!((answers.held(), server.held.load(Relaxed), rest.taken.load(Relaxed)), (0, 0, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_flooded_takes_the_rest_and_nothing_of_another_kind() {
        let rest = Box::leak(Box::new(Rest::new(6 * KIB)));
        let (flooded, other) = (sharing(2 * KIB, rest), sharing(2 * KIB, rest));
        let (hostile, honest) = (Arc::default(), Arc::default());
        let mut floods: Vec<_> = std::iter::from_fn(|| flooded.try_take(&hostile, KIB)).collect();
        assert_eq!((floods.len(), rest.taken.load(Relaxed)), (8, 6 * KIB));
        // The other budget can take its whole share, again and again, and no more.
        for _ in 0..3 {
            let both = [(); 2].map(|()| other.try_take(&honest, KIB));
            assert!(both.iter().all(Option::is_some) && other.try_take(&honest, 1).is_none());
        }
        // What one budget gives back, the other one can take.
        floods.truncate(5);
        assert!(other.try_take(&honest, 2 * KIB).is_some());
        let more = other.try_take(&honest, 5 * KIB);
        assert!(more.is_some() && flooded.try_take(&hostile, 1).is_none());
        drop((floods, more));
        assert_eq!((flooded.held(), other.held(), rest.taken.load(Relaxed)), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_in_memory_already_count_even_above_the_limit() {
        let rest = Box::leak(Box::new(Rest::new(KIB)));
        let (pages, lines, peer) = (sharing(KIB, rest), sharing(KIB, rest), Arc::default());
        let two = pages.take_anyway(2 * KIB);
        assert!(!pages.is_over());
        let third = pages.take_anyway(KIB);
        assert!(pages.is_over() && !lines.is_over());
        assert!(lines.try_take(&peer, KIB).is_some(), "its own share");
        drop(third);
        assert!(!pages.is_over());
        drop(two);
        assert_eq!((pages.held(), rest.taken.load(Relaxed)), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_reader_that_is_dropped_holds_up_nobody() {
        let (budget, peer) = (budget(KIB), Arc::default());
        let held = budget.take(&peer, KIB).await;
        assert!(!is_ready(budget.take(&peer, KIB)).await);
        drop(held);
        assert!(budget.try_take(&peer, KIB).is_some());
    }

    /// Peers that have stopped sending hold eight places, and forty more peers wait for a place.
    #[tokio::test(start_paused = true)]
    async fn an_honest_peer_waits_for_one_slow_peer_however_many_there_are() {
        let budget = budget(8 * KIB);
        let (hostile, honest) = (Arc::new(Peer::default()), Arc::new(Peer::default()));
        for _ in 0..48 {
            let peer = Peer::of(&hostile);
            tokio::spawn(async move {
                loop {
                    let place = budget.receive(&peer, KIB).await;
                    place.cut().await;
                }
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(budget.held(), 8 * KIB);
        for line in 0..20 {
            let asked = Instant::now();
            let place = budget.receive(&honest, KIB).await;
            assert!(asked.elapsed() <= STALL + LOOK, "line {line}: {:?}", asked.elapsed());
            drop(place.complete());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_was_slow_gives_way_at_once_until_it_is_in_time() {
        let (budget, slow, honest) = (budget(KIB), Arc::default(), Arc::default());
        let place = budget.receive(&slow, KIB).await;
        let (held, ()) = tokio::join!(budget.take(&honest, KIB), async {
            place.cut().await;
            drop(place);
        });
        drop(held);
        let again = budget.receive(&slow, KIB).await;
        let asked = Instant::now();
        let (held, ()) = tokio::join!(budget.take(&honest, KIB), async {
            again.cut().await;
            drop(again);
        });
        assert!(asked.elapsed() <= LOOK, "{:?}", asked.elapsed());
        drop(held);
        drop(budget.receive(&slow, KIB).await.complete());
        let place = budget.receive(&slow, KIB).await;
        assert!(!place.place.is_slow(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_makes_progress_keeps_its_place_and_one_that_nobody_waits_for_does_too() {
        let (budget, peer, other) = (budget(KIB), Arc::default(), Arc::default());
        let place = budget.receive(&peer, KIB).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!is_ready(place.cut()).await, "nobody waits");
        drop(place);
        let place = budget.receive(&peer, KIB).await;
        let waiting = tokio::spawn(async move { budget.take(&other, KIB).await.bytes() });
        for step in 1..=4 {
            tokio::time::sleep(STALL - LOOK).await;
            place.arrived(step * STEP);
            assert!(!is_ready(place.cut()).await);
        }
        // Even a peer that makes progress loses its place in the end, because others wait.
        tokio::time::sleep(PLACE).await;
        assert!(is_ready(place.cut()).await);
        drop(place);
        assert_eq!(waiting.await.unwrap(), KIB);
    }
}
