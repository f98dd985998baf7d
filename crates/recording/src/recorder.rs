//! The flight recorder: stores on disk what the engines sent. All intakes pass their lines to one thread, which writes them.
//! Nothing here blocks an intake: lines that do not fit in the queue are dropped and counted.

mod age;
mod config;
mod engine;
mod files;
mod queue;
mod writer;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use trtllm_records::{EngineName, RecorderCounts};

use crate::reader::{OpenRecordingError, Recording};

pub use config::{RecorderConfig, RecorderError};
pub use engine::EngineRecorder;

use files::SegmentFiles;
use queue::{Command, Queue};

/// The default of `--record.max-size` in bytes. It keeps a day of one busy engine.
pub const DEFAULT_MAX_SIZE: u64 = 2 << 30;

/// A running recorder.
#[derive(Debug)]
pub struct Recorder {
    queue: Queue,
    counts: RecorderCounts,
    /// Only `stop` locks it.
    ended: Mutex<Receiver<()>>,
}

impl Recorder {
    /// Starts the thread that writes. Fails if the directory cannot be used.
    pub fn start(config: RecorderConfig, counts: RecorderCounts) -> Result<Self, RecorderError> {
        let RecorderConfig { directory, max_size, .. } = &config;
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::WouldBlock => RecorderError::Locked { directory: directory.clone() },
            _ => RecorderError::Directory { directory: directory.clone(), cause },
        };
        let files = SegmentFiles::open(&config, counts.clone()).map_err(failed)?;
        let (queue, received) = Queue::new();
        let (alive, ended) = mpsc::channel();
        let writer = writer::SegmentWriter::new(files, counts.clone(), config.stale_after);
        let thread = thread::Builder::new().name("recorder".to_owned());
        let recorded = directory.clone();
        let run = move || {
            // Here, because a slow disk must not delay the start.
            let other_formats = match Recording::open(&recorded) {
                Ok(recording) => recording.other_formats,
                Err(OpenRecordingError::OtherFormats(other)) => Some(other),
                Err(_) => None,
            };
            if let Some(note) = other_formats {
                tracing::warn!(directory = %recorded.display(), "{note}");
            }
            // `run` releases the lock of the directory, so the directory is free once the thread counts as ended.
            writer.run(&received);
            drop(alive);
        };
        thread.spawn(run).map_err(failed)?;
        tracing::info!(directory = %directory.display(), max_size, "recording started");
        Ok(Self { queue, counts, ended: Mutex::new(ended) })
    }

    /// The recorder of one engine.
    #[must_use]
    pub fn engine(&self, name: &EngineName) -> EngineRecorder {
        let engine = self.queue.engines.fetch_add(1, Ordering::Relaxed);
        self.queue.send(Command::Join { engine, name: Box::new(name.clone()) });
        EngineRecorder::new(engine, self.queue.clone(), self.counts.clone())
    }

    /// Writes the waiting lines and ends the thread. If the disk hangs, waits for at most `timeout`.
    pub fn stop(&self, timeout: Duration) {
        self.queue.send(Command::Stop);
        // The thread drops the sender when it has ended.
        let ended = self.ended.lock();
        if ended.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the recorder did not stop within {timeout:?}; abandoning it");
        }
    }
}
