//! The ingest socket: any process connects and publishes NDJSON, one record per line. The number of publishers, the
//! length of a line and the bytes of unread lines are limited. Data above these limits waits in the socket buffers.

mod publishers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;

use crate::log::LogLimit;
use crate::supervise::{self, Task};
use crate::unix_socket;

use super::trtllm_json::{Hello, Line, parse_line};
use super::{Batch, Item, OpenError, Presence};
use crate::model::RejectReason;

pub use publishers::Admission;
use publishers::{Place, Publishers};

/// Longest line, in bytes.
const MAX_LINE: usize = 1 << 20;
/// Lines that were read and not yet folded, in KiB: the memory that a flood of lines can take.
const MAX_QUEUED_KIB: u32 = 8 << 10;
/// Longer lines need one of the places for long lines, so that many publishers of long lines cannot fill the memory.
const SHORT_LINE: usize = 64 << 10;
const LONG_LINES: usize = 8;
/// Time from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A bound socket and its publishers.
#[derive(Debug)]
pub struct Ingest {
    pub(super) path: PathBuf,
    queue: mpsc::UnboundedReceiver<QueuedLine>,
    publishers: Arc<Publishers>,
    /// Lines of the poll that goes on.
    received: bool,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct QueuedLine {
    parsed: Result<Item, RejectReason>,
    /// Released when the line has been folded.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Ingest {
    /// Listens on `path`. Replaces a socket that a process left behind when it ended.
    ///
    /// # Errors
    /// If the path cannot be bound, another process listens on it, or it exists and is not a socket.
    pub async fn bind(path: &Path, admission: Admission) -> Result<Self, OpenError> {
        let listener =
            unix_socket::bind(path).await.map_err(|cause| OpenError::Socket { path: path.to_owned(), cause })?;
        let (lines, queue) = mpsc::unbounded_channel();
        let publishers = Publishers::new(admission);
        let table = Arc::clone(&publishers);
        let accepting = tokio::spawn(async move {
            while supervise::catch(Task::Accept, accept(&listener, &lines, &table)).await.is_err() {}
        });
        Ok(Self { path: path.to_owned(), queue, publishers, received: false, accepting })
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Presence {
        while batch.has_room()
            && let Ok(line) = self.queue.try_recv()
        {
            self.received = true;
            match line.parsed {
                Ok(item) => batch.push(item),
                Err(reason) => batch.reject(reason),
            }
        }
        if !batch.has_room() {
            batch.more = true;
            return Presence::Present;
        }
        let received = std::mem::take(&mut self.received);
        let connected = self.publishers.count();
        batch.connections = Some(connected);
        batch.publishers_refused = self.publishers.take_refused();
        // A publisher may connect for each line and disconnect at once: its lines show that it is there.
        if received || connected > 0 { Presence::Present } else { Presence::Disconnected }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.accepting.abort();
        // If this fails, the next start replaces the socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Memory that all publishers share, and what the log says about them.
struct Limits {
    /// KiB of lines that were read and not yet folded.
    queued: Arc<Semaphore>,
    long_lines: Semaphore,
    log: Mutex<LogLimit>,
}

type Lines = mpsc::UnboundedSender<QueuedLine>;

/// Accepts publishers, for ever.
async fn accept(listener: &UnixListener, lines: &Lines, publishers: &Arc<Publishers>) {
    let limits = Arc::new(Limits {
        queued: Arc::new(Semaphore::new(MAX_QUEUED_KIB as usize)),
        long_lines: Semaphore::new(LONG_LINES),
        log: Mutex::default(),
    });
    let (mut connections, mut failing) = (JoinSet::new(), false);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Most likely there are no free descriptors. An immediate retry would only use CPU time.
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "ingest socket cannot accept publishers; retrying");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        failing = false;
        while connections.try_join_next().is_some() {}
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let Some(place) = publishers.admit(uid).await else { continue };
        let (lines, limits) = (lines.clone(), Arc::clone(&limits));
        connections.spawn(async move {
            if let Err(error) = receive(stream, &lines, &limits, &place).await {
                tracing::debug!(%error, "publisher disconnected");
            }
        });
    }
}

/// Reads from one publisher until it disconnects or must make room. An invalid line is counted and skipped.
async fn receive(stream: UnixStream, lines: &Lines, limits: &Limits, place: &Place) -> io::Result<()> {
    let (mut reader, mut line, mut first) = (BufReader::new(stream), Vec::new(), true);
    // Between two lines, a publisher may be idle for as long as it likes.
    while let Some(bytes) = place.unless_evicted(reader.fill_buf()).await
        && !bytes?.is_empty()
    {
        line.clear();
        line.shrink_to(1 << 16);
        let reading = tokio::time::timeout(LINE_TIMEOUT, read_line(&mut reader, &mut line, limits));
        let Some(Ok(Ok((fits, _long)))) = place.unless_evicted(reading).await else {
            // Late, broken off, or cut to make room.
            let _ = lines.send(QueuedLine { parsed: Err(RejectReason::Truncated), _permit: None });
            break;
        };
        place.line_received();
        // Taken before the line is parsed, because its items may take more memory than its text.
        let kib = u32::try_from(line.len() >> 10).unwrap_or(MAX_QUEUED_KIB) + 1;
        let Ok(permit) = Arc::clone(&limits.queued).acquire_many_owned(kib).await else { break };
        if fits && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed = if fits { parse_line(&line) } else { Err(RejectReason::TooLong) };
        let is_first = std::mem::take(&mut first);
        let parsed = match parsed {
            Ok(Line::Item(item)) => Ok(item),
            Ok(Line::Hello(hello)) if is_first && hello.is_short() => {
                place.hello_received();
                limits.log_publisher(&hello);
                match hello.pid {
                    Some(pid) => Ok(Item::Process(pid)),
                    None => continue,
                }
            }
            Ok(Line::Hello(_)) => Err(RejectReason::NotARecord),
            Err(reason) => Err(reason),
        };
        if lines.send(QueuedLine { parsed, _permit: Some(permit) }).is_err() {
            break;
        }
    }
    Ok(())
}

impl Limits {
    /// The names become no labels: a publisher must not be able to create series. A publisher that connects for each line must
    /// not fill the log.
    fn log_publisher(&self, Hello { model, version, pid }: &Hello) {
        if let Some(left_out) = self.log.lock().unwrap_or_else(PoisonError::into_inner).allow(Instant::now()) {
            tracing::info!(model, version, pid, left_out, "publisher connected");
        }
    }
}

/// Reads a line without its line feed. The last line of a stream needs none. Returns whether the line is within the limit; a
/// longer one is skipped to its end. A long line has one of the places for long lines.
async fn read_line<'l>(
    reader: &mut BufReader<UnixStream>,
    line: &mut Vec<u8>,
    limits: &'l Limits,
) -> io::Result<(bool, Option<SemaphorePermit<'l>>)> {
    let (mut fits, mut place) = (true, None);
    loop {
        let limit = if place.is_some() { MAX_LINE } else { SHORT_LINE };
        let before = line.len();
        // One byte more than the longest line is its line feed.
        (&mut *reader).take((limit - before.min(limit)) as u64 + 1).read_until(b'\n', line).await?;
        let at_the_end = line.len() == before;
        if line.pop_if(|last| *last == b'\n').is_some() || at_the_end || line.len() <= limit {
            return Ok((fits, place));
        }
        if place.is_none() {
            place = limits.long_lines.acquire().await.ok();
        } else {
            fits = false;
            line.clear();
        }
    }
}
