//! The ingest socket: any process connects and publishes NDJSON (contract, section 6). Publishers are bounded in number,
//! in line length and in bytes waiting; what they say beyond that waits in their own socket buffers.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::trtllm_json::{Hello, Line, parse_line};
use super::{Answer, Batch, Item, OpenError, RejectReason, SourceError};

/// Longest line, bytes (contract, section 6).
const MAX_LINE: usize = 1 << 20;
/// Publishers at once. More than one engine's processes is a mistake, not a load to serve.
const MAX_PUBLISHERS: usize = 64;
/// Lines read and not yet folded, in KiB of their text: the memory a flood can take.
const MAX_WAITING_KIB: u32 = 8 << 10;
/// A line begun must end within this time.
const LINE_DEADLINE: Duration = Duration::from_secs(30);

/// A bound socket and its publishers.
#[derive(Debug)]
pub struct Ingest {
    path: PathBuf,
    target: String,
    waiting: mpsc::UnboundedReceiver<Delivery>,
    publishers: Arc<AtomicU64>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Delivery {
    what: Result<Item, RejectReason>,
    /// Given back when the delivery has been folded.
    _room: OwnedSemaphorePermit,
}

impl Ingest {
    /// Listens on `path`. A socket left behind by a process that ended is replaced; one that is served is not.
    ///
    /// # Errors
    /// When the path cannot be bound, another process serves it, or something else than a socket stands there.
    pub fn bind(path: &Path) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Socket { path: path.to_owned(), cause };
        remove_leftover(path).map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Owner and group may publish: a sidecar's engine runs under another user of the same group.
        std::fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
        let (deliver, waiting) = mpsc::unbounded_channel();
        let publishers = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, deliver, Arc::clone(&publishers)));
        let target = format!("socket:{}", path.display());
        Ok(Self { path: path.to_owned(), target, waiting, publishers, accepting })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        let mut heard = false;
        while let Ok(delivery) = self.waiting.try_recv() {
            heard = true;
            match delivery.what {
                Ok(item) => batch.items.push(item),
                Err(reason) => batch.reject(reason),
            }
        }
        let publishers = self.publishers.load(Ordering::Relaxed);
        batch.connections = Some(publishers);
        // A publisher may connect for one line at a time: having heard it is as good as seeing it.
        Ok(if heard || publishers > 0 { Answer::Present } else { Answer::Nobody })
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.accepting.abort();
        // The next start replaces it anyway.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn remove_leftover(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "something other than a socket stands there"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
            Err(_) => std::fs::remove_file(path),
        },
    }
}

async fn accept(listener: UnixListener, deliver: mpsc::UnboundedSender<Delivery>, publishers: Arc<AtomicU64>) {
    let room = Arc::new(Semaphore::new(MAX_WAITING_KIB as usize));
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_PUBLISHERS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                let (deliver, room, publishers) = (deliver.clone(), Arc::clone(&room), Arc::clone(&publishers));
                connections.spawn(async move {
                    publishers.fetch_add(1, Ordering::Relaxed);
                    publish(stream, &deliver, &room).await;
                    publishers.fetch_sub(1, Ordering::Relaxed);
                });
            }
            // Out of descriptors, most likely: others may be freed, trying at once would only spin.
            Err(error) => {
                tracing::warn!(%error, "ingest socket cannot accept a publisher");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// One publisher until it leaves. A bad line is counted and skipped; the connection stays.
async fn publish(stream: UnixStream, deliver: &mpsc::UnboundedSender<Delivery>, room: &Arc<Semaphore>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.shrink_to(1 << 16);
        let end = match read_line(&mut reader, &mut line).await {
            Ok(end) => end,
            Err(error) => {
                tracing::debug!(%error, "publisher gone");
                return;
            }
        };
        let what = match end {
            End::Line if line.iter().all(u8::is_ascii_whitespace) => continue,
            End::Line => parse_line(&line),
            End::TooLong => Err(RejectReason::TooLong),
            End::Stream if line.iter().all(u8::is_ascii_whitespace) => return,
            // The last line needs no end, but it must be whole.
            End::Stream => parse_line(&line),
        };
        let what = match what {
            Ok(Line::Item(item)) => Ok(item),
            Ok(Line::Hello(hello)) => match greet(&hello) {
                Some(process) => Ok(process),
                None => continue,
            },
            Err(reason) => Err(reason),
        };
        let kib = u32::try_from(line.len() >> 10).unwrap_or(MAX_WAITING_KIB) + 1;
        let Ok(permit) = Arc::clone(room).acquire_many_owned(kib).await else { return };
        if deliver.send(Delivery { what, _room: permit }).is_err() {
            return;
        }
        if end == End::Stream {
            return;
        }
    }
}

/// Labels are the configuration's, so that a publisher cannot make series; what it calls itself is logged.
fn greet(hello: &Hello) -> Option<Item> {
    tracing::info!(model = hello.model, version = hello.version, pid = hello.pid, "publisher connected");
    hello.pid.map(Item::Process)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A line, without its end.
    Line,
    /// A line over the limit, skipped to its end.
    TooLong,
    /// The publisher closed; the buffer holds what came after the last line.
    Stream,
}

/// Waiting for a line to begin is what an idle publisher does; once begun it has [`LINE_DEADLINE`] to end.
async fn read_line(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<End> {
    if reader.fill_buf().await?.is_empty() {
        return Ok(End::Stream);
    }
    tokio::time::timeout(LINE_DEADLINE, read_rest(reader, line)).await.map_err(|_| io::ErrorKind::TimedOut)?
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
