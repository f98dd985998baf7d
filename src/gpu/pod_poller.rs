//! The thread that reads from the kubelet, at an interval, which container uses which GPU. A missing socket is not an
//! error: most machines run no kubelet. Knows no NVML.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::device_assignment::DeviceAssignment;
use super::event::Event;
use super::kubelet::{self, KubeletError};
use super::threads::StopSignal;

/// After this long without an answer the last assignments are dropped, because containers come and go.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Polls until it is asked to stop.
pub(super) fn run(socket: &Path, interval: Duration, stop: &StopSignal, events: &Sender<Event>) {
    let mut answered = Instant::now();
    let mut failing = None;
    loop {
        let assignments = match socket.exists().then(|| fetch(socket)) {
            None => Some(Vec::new()),
            Some(Ok(assignments)) => {
                if failing.take().is_some() {
                    tracing::info!(socket = %socket.display(), "kubelet request succeeds again");
                }
                answered = Instant::now();
                Some(assignments)
            }
            Some(Err(error)) => {
                if failing.replace(error.kind()) != Some(error.kind()) {
                    tracing::warn!(%error, "kubelet request failed; pods of GPUs are unknown or outdated");
                }
                if events.send(Event::Assignments(Err(error.kind()))).is_err() {
                    return;
                }
                (answered.elapsed() > MAX_AGE).then(Vec::new)
            }
        };
        if assignments.is_some_and(|assignments| events.send(Event::Assignments(Ok(assignments))).is_err())
            || stop.wait(interval)
        {
            return;
        }
    }
}

/// Builds a runtime for each request: that takes a dozen microseconds every ten seconds, and holds no memory in between.
fn fetch(socket: &Path) -> Result<Vec<DeviceAssignment>, KubeletError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| KubeletError::Connect { path: socket.display().to_string(), cause })?;
    runtime.block_on(kubelet::fetch(socket))
}
