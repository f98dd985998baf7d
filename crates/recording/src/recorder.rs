//! The flight recorder: stores on disk what the engines sent. All intakes pass their lines to one thread, which writes them.
//! Nothing here blocks an intake: lines that do not fit in the queue are dropped and counted.

mod age;
mod files;
mod tap;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use trtllm_records::{EngineName, RecorderCounts};

use crate::line::Line;
use crate::reader::{OpenRecordingError, Recording};

pub use tap::EngineRecorder;

use files::SegmentFiles;

/// The default of `--record.max-size` in bytes. It keeps a day of one busy engine.
pub const DEFAULT_MAX_SIZE: u64 = 2 << 30;
/// Approximate maximum memory of all lines that wait for the disk.
const WEIGHT: usize = 4 << 20;

/// Where to record, and how much to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderConfig {
    pub directory: PathBuf,
    /// Maximum bytes of all segments together.
    pub max_size: u64,
    /// Older segments are deleted.
    pub max_age: Option<Duration>,
    /// Time without news after which engines are stale. It is recorded, so that a reader judges them in the same way.
    pub stale_after: Duration,
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

/// Why the recorder cannot start.
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
    /// Only `stop` locks it.
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

/// The queue between the intakes and the thread that writes. Its memory is bounded, and sending never waits.
#[derive(Debug, Clone)]
struct Queue {
    commands: Sender<Command>,
    /// Approximate memory of the lines that wait.
    waiting: Arc<AtomicUsize>,
    engines: Arc<AtomicU64>,
}

impl Queue {
    fn new() -> (Self, Receiver<Command>) {
        let (commands, received) = mpsc::channel();
        (Self { commands, waiting: Arc::default(), engines: Arc::default() }, received)
    }

    /// Reserves this much memory, if there is room. A single large line is accepted if nothing else waits. An engine may hold as
    /// much as is left for all others, so an engine that floods the queue loses only its own lines.
    fn reserve(&self, of_engine: &Arc<AtomicUsize>, weight: usize) -> Option<Held> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let left = WEIGHT.saturating_sub(waiting);
        let fits = waiting == 0 || of_engine.load(Ordering::Relaxed) + weight <= left;
        fits.then(|| Held::new([&self.waiting, of_engine], weight))
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The thread survives panics, so it is gone only when the daemon stops.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// The memory of lines that wait. Two engines at once may exceed the limit by the lines of a poll.
#[derive(Debug)]
struct Held {
    counts: [Arc<AtomicUsize>; 2],
    weight: usize,
}

impl Held {
    fn new(counts: [&Arc<AtomicUsize>; 2], weight: usize) -> Self {
        for count in counts {
            count.fetch_add(weight, Ordering::Relaxed);
        }
        Self { counts: counts.map(Arc::clone), weight }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(self.weight, Ordering::Relaxed);
        }
    }
}

enum Command {
    Join {
        engine: u64,
        name: Box<EngineName>,
    },
    /// The reserved memory is released when the lines are written.
    Write {
        engine: u64,
        lines: Vec<Line>,
        held: Held,
    },
    Leave {
        engine: u64,
    },
    Stop,
}
