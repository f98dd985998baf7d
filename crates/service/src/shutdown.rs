//! Signals: shutdown for all tasks, and release and resume for the GPU driver.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Starts the shutdown by [`Trigger::stop`], or when it is dropped.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Resolves when the shutdown starts.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Whether the shutdown has started.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    pub async fn wait(&mut self) {
        // An error means that the trigger was dropped.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Resolves on SIGTERM (systemd, Kubernetes) or SIGINT (a terminal), with the name of the signal. Without a handler, PID 1 of a
/// container would ignore both. Fails if the handlers cannot be installed.
pub fn signals() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// SIGHUP, which would end the process without a handler. Fails if the handler cannot be installed.
pub fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// SIGUSR1 (release the GPU driver) and SIGUSR2 (use it again). Without a handler either signal would end the process. Fails if a
/// handler cannot be installed.
pub fn gpu_signals() -> std::io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?))
}
