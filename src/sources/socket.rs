//! The ingest socket: any process connects and publishes NDJSON, one record per line. The number of publishers, the
//! length of a line and the bytes of unread lines are limited. Data above these limits waits in the socket buffers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::unix_socket;

use super::trtllm_json::{Hello, Line, parse_line};
use super::{Batch, Item, OpenError, Presence};
use crate::model::RejectReason;

/// Longest line, in bytes.
const MAX_LINE: usize = 1 << 20;
/// Connected publishers. One engine has fewer processes, so more than this is a mistake.
const MAX_PUBLISHERS: usize = 64;
/// Lines that were read and not yet folded, in KiB: the memory that a flood of lines can take.
const MAX_QUEUED_KIB: u32 = 8 << 10;
/// Time from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A bound socket and its publishers.
#[derive(Debug)]
pub struct Ingest {
    path: PathBuf,
    target: String,
    queue: mpsc::UnboundedReceiver<QueuedLine>,
    publishers: Arc<AtomicU64>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct QueuedLine {
    parsed: Result<Item, RejectReason>,
    /// Released when the line has been folded.
    _permit: OwnedSemaphorePermit,
}

impl Ingest {
    /// Listens on `path`. Replaces a socket that a process left behind when it ended.
    ///
    /// # Errors
    /// If the path cannot be bound, another process listens on it, or it exists and is not a socket.
    pub async fn bind(path: &Path) -> Result<Self, OpenError> {
        let listener =
            unix_socket::bind(path).await.map_err(|cause| OpenError::Socket { path: path.to_owned(), cause })?;
        let (lines, queue) = mpsc::unbounded_channel();
        let publishers = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, lines, Arc::clone(&publishers)));
        let target = format!("socket:{}", path.display());
        Ok(Self { path: path.to_owned(), target, queue, publishers, accepting })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Presence {
        let mut received = false;
        while let Ok(line) = self.queue.try_recv() {
            received = true;
            match line.parsed {
                Ok(item) => batch.items.push(item),
                Err(reason) => batch.reject(reason),
            }
        }
        let publishers = self.publishers.load(Ordering::Relaxed);
        batch.connections = Some(publishers);
        // A publisher may connect for each line and disconnect at once: its lines show that it is there.
        if received || publishers > 0 { Presence::Present } else { Presence::Disconnected }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.accepting.abort();
        // If this fails, the next start replaces the socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects without blocking: a blocking connection to a socket with a full backlog would wait for ever.
async fn accept(listener: UnixListener, lines: mpsc::UnboundedSender<QueuedLine>, publishers: Arc<AtomicU64>) {
    let budget = Arc::new(Semaphore::new(MAX_QUEUED_KIB as usize));
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_PUBLISHERS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                let (lines, budget, publishers) = (lines.clone(), Arc::clone(&budget), Arc::clone(&publishers));
                connections.spawn(async move {
                    publishers.fetch_add(1, Ordering::Relaxed);
                    receive(stream, &lines, &budget).await;
                    publishers.fetch_sub(1, Ordering::Relaxed);
                });
            }
            // Most likely there are no free descriptors. An immediate retry would only use CPU time.
            Err(error) => {
                tracing::warn!(%error, "ingest socket failed to accept a publisher; retrying in 1s");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Reads from one publisher until it disconnects. An invalid line is counted and skipped.
async fn receive(stream: UnixStream, lines: &mpsc::UnboundedSender<QueuedLine>, budget: &Arc<Semaphore>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.shrink_to(1 << 16);
        let end = match read_line(&mut reader, &mut line).await {
            Ok(end) => end,
            Err(error) => {
                tracing::debug!(%error, "publisher disconnected");
                return;
            }
        };
        let parsed = match end {
            End::Line if line.iter().all(u8::is_ascii_whitespace) => continue,
            End::Line => parse_line(&line),
            End::TooLong => Err(RejectReason::TooLong),
            End::Stream if line.iter().all(u8::is_ascii_whitespace) => return,
            // The last line needs no line feed, but it must be complete.
            End::Stream => parse_line(&line),
        };
        let parsed = match parsed {
            Ok(Line::Item(item)) => Ok(item),
            Ok(Line::Hello(hello)) => match process_of(&hello) {
                Some(process) => Ok(process),
                None => continue,
            },
            Err(reason) => Err(reason),
        };
        let kib = u32::try_from(line.len() >> 10).unwrap_or(MAX_QUEUED_KIB) + 1;
        let Ok(permit) = Arc::clone(budget).acquire_many_owned(kib).await else { return };
        if lines.send(QueuedLine { parsed, _permit: permit }).is_err() {
            return;
        }
        if end == End::Stream {
            return;
        }
    }
}

/// Logs the names that a publisher sends. They become no labels: a publisher must not be able to create series.
fn process_of(hello: &Hello) -> Option<Item> {
    tracing::info!(model = hello.model, version = hello.version, pid = hello.pid, "publisher connected");
    hello.pid.map(Item::Process)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A line, without its line feed.
    Line,
    /// A line above the limit. It was skipped to its end.
    TooLong,
    /// The publisher disconnected. The buffer holds the bytes after the last line feed.
    Stream,
}

/// An idle publisher may wait as long as it likes between two lines. Within a line it has [`LINE_TIMEOUT`].
async fn read_line(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<End> {
    if reader.fill_buf().await?.is_empty() {
        return Ok(End::Stream);
    }
    tokio::time::timeout(LINE_TIMEOUT, read_rest(reader, line)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

async fn read_rest(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<End> {
    let mut too_long = false;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(if too_long { End::TooLong } else { End::Stream });
        }
        let end = memchr::memchr(b'\n', chunk);
        let taken = end.unwrap_or(chunk.len());
        if line.len() + taken > MAX_LINE {
            too_long = true;
            line.clear();
        }
        if !too_long {
            line.extend_from_slice(&chunk[..taken]);
        }
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(if too_long { End::TooLong } else { End::Line });
        }
    }
}
