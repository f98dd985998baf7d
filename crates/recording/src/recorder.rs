//! The flight recorder: keeps what the engines sent on disk. An intake passes its items to one thread, which writes them for all
//! engines. Nothing here blocks an intake: what does not fit in the queue is dropped and counted.

mod files;
mod queue;
mod tap;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use trtllm_model::{EngineName, RecorderCounts};

pub use tap::EngineRecorder;

use files::SegmentFiles;
use queue::{Message, Queue};

/// Where to record, and how much to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderConfig {
    pub directory: PathBuf,
    /// Bytes of all segments together.
    pub max_size: u64,
    /// Older segments are deleted.
    pub max_age: Option<Duration>,
}

impl RecorderConfig {
    /// Checks the directory without creating or locking it: another process may record into it now.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn check(&self) -> Result<(), RecorderError> {
        match std::fs::read_dir(&self.directory) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(RecorderError::Directory { directory: self.directory.clone(), cause })
            }
            _ => Ok(()),
        }
    }
}

/// The recorder cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error("--record.dir {directory}: another exporter records into it; give each exporter its own directory")]
    Locked { directory: PathBuf },
    #[error("--record.dir {directory}: {cause}; choose a directory that the exporter can write to")]
    Directory { directory: PathBuf, cause: io::Error },
}

/// A running recorder.
#[derive(Debug)]
pub struct Recorder {
    queue: Queue,
    counts: RecorderCounts,
    /// Locked at the end only.
    ended: Mutex<Receiver<()>>,
}

impl Recorder {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn start(config: RecorderConfig, counts: RecorderCounts) -> Result<Self, RecorderError> {
        let RecorderConfig { directory, max_size, .. } = &config;
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::WouldBlock => RecorderError::Locked { directory: directory.clone() },
            _ => RecorderError::Directory { directory: directory.clone(), cause },
        };
        let files = SegmentFiles::open(&config, counts.clone()).map_err(failed)?;
        let (queue, received) = Queue::new();
        let (alive, ended) = mpsc::channel();
        let writer = writer::SegmentWriter::new(files, counts.clone());
        let thread = thread::Builder::new().name("recorder".to_owned());
        let run = move || {
            // The directory is free once the thread counts as ended.
            writer.run(&received);
            drop(alive);
        };
        thread.spawn(run).map_err(failed)?;
        tracing::info!(directory = %show(directory), max_size, "recording started");
        Ok(Self { queue, counts, ended: Mutex::new(ended) })
    }

    /// The recorder of one engine.
    #[must_use]
    pub fn engine(&self, name: &EngineName) -> EngineRecorder {
        let engine = self.queue.engines.fetch_add(1, Ordering::Relaxed);
        self.queue.send(Message::Joined { engine, name: Box::new(name.clone()) });
        EngineRecorder::new(engine, self.queue.clone(), self.counts.clone())
    }

    /// Writes what waits and ends the thread. A disk that hangs is abandoned after `timeout`.
    pub fn stop(&self, timeout: Duration) {
        let _ = self.queue.messages.send(Message::Stop);
        // The thread drops its end when it has ended.
        let ended = self.ended.lock();
        if ended.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the recorder did not stop within {timeout:?}; abandoning it");
        }
    }
}

fn show(path: &Path) -> std::path::Display<'_> {
    path.display()
}
