//! Keeps a task alive: a panic ends one step of its work and is counted, and then the task continues.

mod heartbeat;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

pub use heartbeat::{Heartbeat, Heartbeats};

/// A supervised task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Polls an engine.
    Poll,
    /// Folds what a poll has read, publishes the state of the engine, and judges it.
    Fold,
    /// Accepts connections of publishers or of HTTP clients.
    Accept,
    /// Writes the recording.
    Record,
}

const TASKS: usize = Task::Record as usize + 1;

impl Task {
    /// The names on the metrics page, in the order of the variants.
    pub const NAMES: [&'static str; TASKS] = ["poll", "fold", "accept", "record"];
}

static RESTARTS: [AtomicU64; TASKS] = [const { AtomicU64::new(0) }; TASKS];

/// The work has panicked. The log has the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

/// Runs `work` to its end or to its first panic, which is counted. Fails if `work` panics.
pub async fn catch<T>(task: Task, work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_now(task, || work.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Starts `work` again after each panic. The pause keeps a panic that always happens from using a whole core.
pub async fn restart_after_panic<F: Future<Output = ()>>(task: Task, mut work: impl FnMut() -> F) {
    while catch(task, work()).await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Like [`catch`], for work that does not wait. Fails if `work` panics.
pub fn catch_now<T>(task: Task, work: impl FnOnce() -> T) -> Result<T, Panicked> {
    // The data of the work is used again after a panic. It is valid: a poll may be dropped at any point, and totals only grow.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        RESTARTS[task as usize].fetch_add(1, Ordering::Relaxed);
        Panicked
    })
}

/// Restarts of each task, in the order of [`Task`].
pub fn restarts() -> [u64; TASKS] {
    RESTARTS.each_ref().map(|count| count.load(Ordering::Relaxed))
}
