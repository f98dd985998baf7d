//! Starting, stopping and awaiting the threads of this crate. The channels carry no values: a thread is asked to stop
//! by dropping the sender of its stop channel, and it has ended when its own sender is dropped.

use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use std::{io, thread};

/// Stack of a thread in bytes. Used stack pages stay in memory, so this limits the stacks of eight workers to 2 MB.
const STACK: usize = 256 << 10;

/// A started thread. Dropping it asks the thread to stop and does not wait.
#[derive(Debug)]
pub(super) struct ThreadHandle {
    stop: Option<mpsc::Sender<Infallible>>,
    ended: mpsc::Receiver<Infallible>,
}

/// Tells a thread that its handle asks it to stop.
#[derive(Debug)]
pub(super) struct StopSignal(mpsc::Receiver<Infallible>);

pub(super) fn spawn(name: &str, body: impl FnOnce(&StopSignal) + Send + 'static) -> io::Result<ThreadHandle> {
    spawn_with_stack(name, STACK, body)
}

/// Starts a thread. `body` and all that it captured are dropped before the thread counts as ended.
pub(super) fn spawn_with_stack(
    name: &str,
    stack: usize,
    body: impl FnOnce(&StopSignal) + Send + 'static,
) -> io::Result<ThreadHandle> {
    let (stop, stopped) = mpsc::channel();
    let (running, ended) = mpsc::channel();
    thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(move || {
        body(&StopSignal(stopped));
        drop(running);
    })?;
    Ok(ThreadHandle { stop: Some(stop), ended })
}

impl ThreadHandle {
    pub(super) fn request_stop(&mut self) {
        self.stop = None;
    }

    pub(super) fn is_running(&self) -> bool {
        self.ended.try_recv() != Err(TryRecvError::Disconnected)
    }

    /// Waits for the end of the thread, until `deadline` at the latest. Returns whether it has ended.
    pub(super) fn wait_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        self.ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
    }
}

impl StopSignal {
    /// Waits for `timeout`, or until the thread is asked to stop. Returns whether it was asked.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        self.0.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}
