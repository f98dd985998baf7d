//! The ingest socket: any process connects and publishes NDJSON, one record per line. The number of publishers, the
//! length of a line and the bytes of unread lines are limited. Data above these limits waits in the socket buffers.

mod publishers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;

use crate::log::LogLimit;
use crate::supervise::{self, Task};
use crate::unix_socket;

use super::trtllm_json::{Hello, Line, parse_line};
use super::{Batch, Item, OpenError, Presence};
use crate::model::RejectReason;

pub use publishers::Admission;
use publishers::{Place, Publisher, Publishers};

/// Longest line, in bytes.
const MAX_LINE: usize = 1 << 20;
/// KiB of lines of all sockets that were read and not yet parsed. Lines wait as text: an element of two bytes takes hundreds of
/// bytes once it is parsed.
const MAX_QUEUED_KIB: u32 = 8 << 10;
static QUEUED: Semaphore = Semaphore::const_new(MAX_QUEUED_KIB as usize);
/// Longer lines need one of the places for long lines, so that many publishers of long lines cannot fill the memory.
const SHORT_LINE: usize = 64 << 10;
static LONG_LINES: Semaphore = Semaphore::const_new(8);
/// Time from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A bound socket and its publishers.
#[derive(Debug)]
pub struct Ingest {
    pub(super) path: PathBuf,
    queue: mpsc::UnboundedReceiver<QueuedLine>,
    publishers: Arc<Publishers>,
    /// The poll that goes on has received lines.
    received: bool,
    log: LogLimit,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct QueuedLine {
    /// Without its line feed; or why it could not be read.
    text: Result<Vec<u8>, RejectReason>,
    is_first: bool,
    publisher: Arc<Publisher>,
    /// Released when the line has been parsed.
    _permit: Option<SemaphorePermit<'static>>,
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
            supervise::restart_after_panic(Task::Accept, || accept(&listener, &lines, &table)).await;
        });
        Ok(Self { path: path.to_owned(), queue, publishers, received: false, log: LogLimit::default(), accepting })
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Presence {
        while batch.has_room()
            && let Ok(line) = self.queue.try_recv()
        {
            self.received = true;
            match self.parse(&line) {
                Ok(Some(item)) => batch.push(item),
                Ok(None) => {}
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

    fn parse(
        &mut self,
        QueuedLine { text, is_first, publisher, .. }: &QueuedLine,
    ) -> Result<Option<Item>, RejectReason> {
        match parse_line(text.as_ref().map_err(|reason| *reason)?)? {
            Line::Item(item) => Ok(Some(item)),
            // The names become no labels: a publisher must not be able to create series.
            Line::Hello(hello) if *is_first && hello.is_short() => {
                publisher.hello_received();
                let Hello { model, version, pid } = &hello;
                if let Some(left_out) = self.log.allow(Instant::now()) {
                    tracing::info!(model, version, pid, left_out, "publisher connected");
                }
                Ok(pid.map(Item::Process))
            }
            Line::Hello(_) => Err(RejectReason::NotARecord),
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.accepting.abort();
        // If this fails, the next start replaces the socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

type Lines = mpsc::UnboundedSender<QueuedLine>;

/// Accepts publishers, for ever.
async fn accept(listener: &UnixListener, lines: &Lines, publishers: &Arc<Publishers>) {
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
        let lines = lines.clone();
        connections.spawn(async move {
            if let Err(error) = receive(stream, &lines, &place).await {
                tracing::debug!(%error, "publisher disconnected");
            }
        });
    }
}

/// Reads from one publisher until it disconnects or must make room. An invalid line is counted and skipped.
async fn receive(stream: UnixStream, lines: &Lines, place: &Place) -> io::Result<()> {
    let (mut reader, mut first) = (BufReader::new(stream), true);
    // Between two lines, a publisher may be idle for as long as it likes.
    while let Some(bytes) = place.unless_evicted(reader.fill_buf()).await
        && !bytes?.is_empty()
    {
        let mut line = Vec::new();
        let reading = tokio::time::timeout(LINE_TIMEOUT, read_line(&mut reader, &mut line));
        let publisher = Arc::clone(&place.publisher);
        let Some(Ok(Ok((fits, _long)))) = place.unless_evicted(reading).await else {
            // Late, broken off, or cut to make room.
            let text = Err(RejectReason::Truncated);
            let _ = lines.send(QueuedLine { text, is_first: false, publisher, _permit: None });
            break;
        };
        place.line_received();
        let kib = u32::try_from(line.len() >> 10).unwrap_or(MAX_QUEUED_KIB) + 1;
        let Ok(permit) = QUEUED.acquire_many(kib).await else { break };
        if fits && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        line.shrink_to_fit();
        let text = if fits { Ok(line) } else { Err(RejectReason::TooLong) };
        let is_first = std::mem::take(&mut first);
        if lines.send(QueuedLine { text, is_first, publisher, _permit: Some(permit) }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads a line without its line feed. The last line of a stream needs none. Returns whether the line is within the limit; a
/// longer one is skipped to its end. A long line has one of the places for long lines.
async fn read_line(
    reader: &mut BufReader<UnixStream>,
    line: &mut Vec<u8>,
) -> io::Result<(bool, Option<SemaphorePermit<'static>>)> {
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
            place = LONG_LINES.acquire().await.ok();
        } else {
            fits = false;
            line.clear();
        }
    }
}
