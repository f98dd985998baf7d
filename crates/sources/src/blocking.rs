//! Polls a source whose reads may hang, such as those of a pipe or of a network file system, on a thread for blocking work. So the
//! state of its engine is kept up to date meanwhile. A read that hangs outlives its poll, and a later poll takes what it has read.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::task::{JoinHandle, spawn_blocking};

use super::batch::{Batch, Presence};
use super::error::SourceError;

/// A source whose reads may hang.
pub trait BlockingSource: Send + 'static {
    /// What the source reads, for messages.
    fn target(&self) -> String;

    /// As [`super::Source::poll`].
    fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError>;
}

type Read<S> = (S, Batch, std::thread::Result<Result<Presence, SourceError>>);

#[derive(Debug)]
pub struct Blocking<S> {
    pub target: String,
    /// `None` while a thread reads.
    pub source: Option<S>,
    reading: Option<JoinHandle<Read<S>>>,
}

impl<S: BlockingSource> Blocking<S> {
    #[must_use]
    pub fn new(source: S) -> Self {
        Self { target: source.target(), source: Some(source), reading: None }
    }

    /// As [`super::Source::poll`].
    pub async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        if let Some(mut source) = self.source.take() {
            let mut read = std::mem::take(batch);
            self.reading = Some(spawn_blocking(move || {
                // The source is read again after a panic.
                let result = catch_unwind(AssertUnwindSafe(|| source.poll(&mut read)));
                (source, read, result)
            }));
        }
        let ended = match &mut self.reading {
            Some(reading) => reading.await.ok(),
            None => None,
        };
        self.reading = None;
        // Only a runtime that stops drops a read.
        let Some((source, read, result)) = ended else {
            return Err(SourceError::Panicked { target: self.target.clone() });
        };
        (self.source, *batch) = (Some(source), read);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use trtllm_records::Message;

    use super::*;

    impl BlockingSource for Receiver<u64> {
        fn target(&self) -> String {
            "test".to_owned()
        }

        fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
            let process = self.recv().expect("planted");
            batch.push(Message::Process(process));
            Ok(Presence::Present)
        }
    }

    #[tokio::test]
    async fn what_a_read_that_hung_has_found_is_in_a_later_poll_and_a_panic_ends_one_poll() {
        let (sender, receiver) = channel();
        let (mut source, mut batch) = (Blocking::new(receiver), Batch::default());
        for _ in 0..2 {
            let poll = tokio::time::timeout(Duration::from_millis(5), source.poll(&mut batch)).await;
            assert!(poll.is_err() && batch.messages.is_empty(), "it hangs, and the other tasks of this thread run");
        }
        sender.send(7).unwrap();
        source.poll(&mut batch).await.unwrap();
        assert_eq!(batch.messages, [Message::Process(7)]);
        drop(sender);
        for _ in 0..2 {
            let poll = std::pin::pin!(source.poll(&mut batch));
            let ended = trtllm_service::supervise::catch(trtllm_service::supervise::Task::Poll, poll).await;
            assert!(ended.is_err(), "each poll is an attempt of its own");
        }
    }
}
