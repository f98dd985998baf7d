//! Signals: one to stop, heard by every task, and two for the GPU driver.

use tokio::sync::watch;

/// Keeps the daemon running until it is dropped or triggered.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Resolves when it is time to stop.
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
    pub async fn wait(&mut self) {
        // A dropped trigger means the same as a pulled one.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Resolves on SIGTERM (systemd, Kubernetes) or SIGINT (a terminal), with the signal's name. As PID 1 of a container a
/// process without a handler would ignore both.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn signals() -> std::io::Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// Tells `hold` false on SIGUSR1 (let go of the GPU driver) and true on SIGUSR2 (take it again). Never ends. Without a
/// handler either would end the process.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn gpu_signals(hold: impl Fn(bool)) -> std::io::Result<impl Future<Output = std::convert::Infallible>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut release = signal(SignalKind::user_defined1())?;
    let mut resume = signal(SignalKind::user_defined2())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = release.recv() => hold(false),
                _ = resume.recv() => hold(true),
            }
        }
    })
}
