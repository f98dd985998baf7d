//! Limits how much long input is in memory at once. A reader needs a permit above its free allowance.
//! The table in docs/ARCHITECTURE.md ("What peers can cost") has each kind of input, its permits and the bytes of one.
//!
//! A reader that waits for a permit waits for other peers, so this time is not part of its [`Deadline`].

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

/// The permits of one kind of input. They are given in the order in which they were asked for.
#[derive(Debug)]
pub struct Permits {
    free: Semaphore,
    waiting: AtomicUsize,
}

/// Dropping it gives it back. Never `None`, because no semaphore is closed.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "dropped with the permit")] Option<SemaphorePermit<'static>>);

tokio::task_local! {
    /// The time that the current work has waited for permits.
    static WAITED: Waited;
}

#[derive(Debug, Clone, Default)]
struct Waited {
    before: Cell<Duration>,
    since: Cell<Option<Instant>>,
}

impl Waited {
    fn total(&self) -> Duration {
        self.before.get() + self.since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Counts one waiter until dropped.
struct Waiting(&'static Permits);

impl Waiting {
    fn begin(permits: &'static Permits) -> Self {
        permits.waiting.fetch_add(1, Relaxed);
        let _ = WAITED.try_with(|waited| waited.since.set(Some(Instant::now())));
        Self(permits)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
        let _ = WAITED.try_with(|waited| {
            waited.before.set(waited.total());
            waited.since.set(None);
        });
    }
}

impl Permits {
    pub const fn new(permits: usize) -> Self {
        Self { free: Semaphore::const_new(permits), waiting: AtomicUsize::new(0) }
    }

    /// Waits for a permit.
    pub async fn take(&'static self) -> Permit {
        if let Ok(permit) = self.free.try_acquire() {
            return Permit(Some(permit));
        }
        let _waiting = Waiting::begin(self);
        Permit(self.free.acquire().await.ok())
    }

    /// The permits that nobody has now.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Whether somebody waits for a permit now.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}

/// A deadline that is noticed later than this has passed while the process did not run.
const LATE: Duration = Duration::from_millis(500);

/// When some work must have ended. The time in which it waits for permits does not count. If the process did not run when the deadline
/// passed, the work gets all of its time again, once: nobody was slow.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    limit: Duration,
    at: Instant,
    is_renewed: bool,
}

impl Deadline {
    pub fn after(limit: Duration) -> Self {
        Self { limit, at: Instant::now() + limit, is_renewed: false }
    }

    /// Does a part of the work. Fails if the deadline passes. The caller pins the work, because an async function that gets a
    /// future by value stores it twice.
    pub async fn run<T>(&mut self, work: impl Future<Output = T> + Unpin) -> Result<T, Elapsed> {
        // The deadline of a part of some work is inside the deadline of the work.
        if WAITED.try_with(|_| ()).is_ok() {
            return self.run_counting(work).await;
        }
        WAITED.scope(Waited::default(), self.run_counting(work)).await
    }

    async fn run_counting<T>(&mut self, mut work: impl Future<Output = T> + Unpin) -> Result<T, Elapsed> {
        let (deadline, before) = (self.at, WAITED.with(Waited::total));
        loop {
            let ended = tokio::time::timeout_at(self.at, &mut work).await;
            let until = std::mem::replace(&mut self.at, deadline + (WAITED.with(Waited::total) - before));
            let late = self.at.elapsed();
            if late > LATE && !std::mem::replace(&mut self.is_renewed, true) {
                // Counts as a wait, so the deadline around this one moves, too.
                WAITED.with(|waited| waited.before.set(waited.before.get() + late + self.limit));
                self.at += late + self.limit;
            }
            if ended.is_ok() || until == self.at {
                return ended;
            }
        }
    }
}

/// Like [`tokio::time::timeout`], without the time that `work` waits for permits.
pub async fn timeout<T>(limit: Duration, work: impl Future<Output = T> + Unpin) -> Result<T, Elapsed> {
    Deadline::after(limit).run(work).await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn permits(number: usize) -> &'static Permits {
        Box::leak(Box::new(Permits::new(number)))
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_given_in_order_and_come_back() {
        let permits = permits(1);
        let first = permits.take().await;
        assert_eq!((permits.free(), permits.is_awaited()), (0, false));
        let waiting = [1, 2].map(|number| {
            tokio::spawn(async move {
                let permit = permits.take().await;
                tokio::time::sleep(SECOND).await;
                drop(permit);
                (number, Instant::now())
            })
        });
        // One that no longer waits holds up nobody.
        assert!(tokio::time::timeout(SECOND, permits.take()).await.is_err());
        assert!(permits.is_awaited());
        let freed = Instant::now();
        drop(first);
        for (waiting, seconds) in waiting.into_iter().zip(1..) {
            assert_eq!(waiting.await.unwrap(), (seconds, freed + seconds * SECOND));
        }
        assert_eq!((permits.free(), permits.is_awaited()), (1, false));
    }

    /// Some work takes 3 s, then waits for a permit for 60 s, and then takes 3 s again.
    #[tokio::test(start_paused = true)]
    async fn the_time_until_a_permit_is_not_part_of_a_deadline() {
        for (limit, inner, in_time) in [(7, 7, true), (5, 7, false), (7, 5, false), (2, 7, false)] {
            let permits = permits(1);
            let other = permits.take().await;
            let started = Instant::now();
            let work = async {
                let work = pin!(async {
                    tokio::time::sleep(3 * SECOND).await;
                    let _permit = permits.take().await;
                    tokio::time::sleep(3 * SECOND).await;
                });
                let part = pin!(timeout(inner * SECOND, work));
                timeout(limit * SECOND, part).await
            };
            let freeing = async {
                tokio::time::sleep(63 * SECOND).await;
                drop(other);
            };
            let (ended, ()) = tokio::join!(work, freeing);
            assert_eq!(matches!(ended, Ok(Ok(()))), in_time, "{limit} s, {inner} s");
            assert!(started.elapsed() >= 63 * SECOND);
            assert_eq!(permits.free(), 1, "given back, also if the work was dropped");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_dropped_while_it_waits_stops_waiting() {
        let permits = permits(1);
        let _other = permits.take().await;
        let work = pin!(async {
            // The first wait is given up after 2 s, so 5 s are left.
            let _ = tokio::time::timeout(2 * SECOND, permits.take()).await;
            std::future::pending::<()>().await;
        });
        let started = Instant::now();
        assert!(timeout(5 * SECOND, work).await.is_err());
        assert_eq!(started.elapsed(), 7 * SECOND);
    }

    /// The process stops for 15 s, once or twice. The work then needs two or six seconds more.
    #[tokio::test(start_paused = true)]
    async fn work_whose_deadline_passes_while_the_process_does_not_run_gets_its_time_again_once() {
        for (stops, rest, in_time) in [(1, 2, true), (1, 6, false), (2, 2, false)] {
            let work = pin!(async {
                for _ in 0..stops {
                    tokio::time::sleep(SECOND).await;
                    tokio::time::advance(15 * SECOND).await;
                }
                tokio::time::sleep(rest * SECOND).await;
            });
            assert_eq!(timeout(5 * SECOND, work).await.is_ok(), in_time, "{stops} stops, {rest} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_gets_its_time_again_is_not_ended_by_the_deadline_around_it() {
        let part = pin!(async {
            tokio::time::sleep(3 * SECOND).await;
            tokio::time::advance(Duration::from_millis(2300)).await;
            tokio::time::sleep(2 * SECOND).await;
        });
        let work = pin!(timeout(4 * SECOND, part));
        assert!(matches!(timeout(5 * SECOND, work).await, Ok(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_parts_of_some_work_share_a_deadline() {
        let permits = permits(1);
        let other = permits.take().await;
        let mut deadline = Deadline::after(5 * SECOND);
        let taking = pin!(permits.take());
        let (first, ()) = tokio::join!(deadline.run(taking), async {
            tokio::time::sleep(9 * SECOND).await;
            drop(other);
        });
        assert!(first.is_ok());
        assert!(deadline.run(pin!(tokio::time::sleep(4 * SECOND))).await.is_ok());
        assert!(deadline.run(pin!(tokio::time::sleep(2 * SECOND))).await.is_err());
    }
}
