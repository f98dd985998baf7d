//! Polls a source whose reads may hang, such as those of a pipe or of a network file system, on a thread for blocking work. So the
//! state of its engine is kept up to date meanwhile. A read that hangs outlives its poll, and a later poll takes what it has read.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use tokio::task::{JoinHandle, spawn_blocking};
use trtllm_service::file_text;

use super::batch::{Batch, Presence};
use super::error::{OpenError, SourceError};

/// A source whose reads may hang.
pub trait BlockingSource: Send + 'static {
    /// Adds what can be read now. Fails with [`io::ErrorKind::FileTooLarge`] if a line is longer than [`file_text::MAX`].
    fn poll(&mut self, batch: &mut Batch) -> io::Result<()>;
}

type Read<S> = (S, Batch, std::thread::Result<io::Result<()>>);

#[derive(Debug)]
pub struct Blocking<S> {
    /// What the source reads, for messages.
    pub target: String,
    /// `None` while a thread reads.
    source: Option<S>,
    reading: Option<JoinHandle<Read<S>>>,
}

impl<S: BlockingSource> Blocking<S> {
    pub fn new(target: String, source: S) -> Self {
        Self { target, source: Some(source), reading: None }
    }

    /// Opens what is replayed. Opening may hang, too: that of a named pipe waits for its writer.
    pub async fn replay(
        path: PathBuf,
        open: impl FnOnce(&Path) -> Result<S, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (target, opening) = (format!("replay:{}", path.display()), path.clone());
        let opened = spawn_blocking(move || open(&opening)).await;
        let opened = opened.unwrap_or_else(|error| Err(OpenError::Replay { path, cause: error.into() }));
        opened.map(|source| Self::new(target, source))
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
        let target = || self.target.clone();
        match result.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(()) => Ok(Presence::Present),
            Err(cause) if cause.kind() == io::ErrorKind::FileTooLarge => {
                Err(SourceError::TooLarge { target: target(), limit: file_text::MAX })
            }
            Err(cause) => Err(SourceError::Io { target: target(), cause: cause.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use trtllm_records::Message;

    use super::*;

    impl BlockingSource for Receiver<u64> {
        fn poll(&mut self, batch: &mut Batch) -> io::Result<()> {
            let process = self.recv().expect("planted");
            batch.push(Message::Process(process));
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_a_read_that_hung_has_found_is_in_a_later_poll_and_a_panic_ends_one_poll() {
        let (sender, receiver) = channel();
        let (mut source, mut batch) = (Blocking::new("test".to_owned(), receiver), Batch::default());
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
