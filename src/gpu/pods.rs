//! Asks the kubelet again and again who has which GPU, on a thread of its own. No socket is no error: most machines have
//! no kubelet. Knows no GPU.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::claims::Claim;
use super::event::Event;
use super::kubelet::{self, KubeletError};

/// Longer without an answer, and what was known is known no more: containers come and go.
const KEPT: Duration = Duration::from_secs(60);

/// Reports until the leash is cut.
pub(super) fn watch(socket: &Path, interval: Duration, leash: &Receiver<Infallible>, reports: &Sender<Event>) {
    let mut answered = Instant::now();
    let mut failing = None;
    loop {
        let report = match socket.exists().then(|| ask(socket)) {
            None => Some(Event::Pods(Vec::new())),
            Some(Ok(claims)) => {
                if failing.take().is_some() {
                    tracing::info!(socket = %socket.display(), "the kubelet answers again");
                }
                answered = Instant::now();
                Some(Event::Pods(claims))
            }
            Some(Err(error)) => {
                if failing.replace(error.word()) != Some(error.word()) {
                    tracing::warn!(%error, "the kubelet does not say who has which GPU");
                }
                if reports.send(Event::PodsFailed(error.word())).is_err() {
                    return;
                }
                (answered.elapsed() > KEPT).then(|| Event::Pods(Vec::new()))
            }
        };
        if report.is_some_and(|report| reports.send(report).is_err())
            || leash.recv_timeout(interval) != Err(RecvTimeoutError::Timeout)
        {
            return;
        }
    }
}

/// A runtime for each question: a dozen microseconds every ten seconds, and no idle thread's memory between.
fn ask(socket: &Path) -> Result<Vec<Claim>, KubeletError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| KubeletError::Connect { path: socket.display().to_string(), cause })?;
    runtime.block_on(kubelet::claims(socket))
}
