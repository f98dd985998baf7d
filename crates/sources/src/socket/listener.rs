//! A bound socket: accepts publishers, reads their lines and hands them in for their engines.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;

use super::desk::{Desk, Queued};
use super::names::{Seat, Socket};
use super::publishers::{Admission, PublisherPlace, Publishers};
use crate::OpenError;
use crate::trtllm_json::{Hello, PublisherLine, parse_line};
use trtllm_model::RejectReason;
use trtllm_service::supervise::{self, Task};
use trtllm_service::unix_socket::{self, Activated, SocketFile};

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

/// Whose statistics the publishers of a socket send.
#[derive(Debug)]
pub enum Naming {
    /// All of them send those of one engine, whatever names they say.
    OneEngine(OneEngine),
    /// Each of them says it.
    ByPublishers(Arc<Socket>),
}

/// The engine of a socket that has only one.
#[derive(Debug)]
pub struct OneEngine(pub(super) Arc<Desk>);

/// A bound socket. Dropping it closes the connections and removes the socket, unless systemd listens on it.
#[derive(Debug)]
pub struct IngestListener {
    /// Removed at the end, before the task closes the socket.
    file: Option<SocketFile>,
    accepting: tokio::task::JoinHandle<()>,
}

impl IngestListener {
    /// Listens on `path`, or uses the socket if systemd listens on it already. Replaces a socket that a process left behind
    /// when it ended.
    ///
    /// # Errors
    /// If the path cannot be bound, another process listens on it, or it exists and is not a socket.
    pub async fn bind(
        path: &Path,
        activated: &Activated,
        admission: Admission,
        naming: Naming,
    ) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Socket { path: path.to_owned(), cause };
        let (listener, file) = match activated.listener(path).map_err(failed)? {
            Some(listener) => (listener, None),
            None => unix_socket::bind(path).await.map(|(listener, file)| (listener, Some(file))).map_err(failed)?,
        };
        let publishers = Publishers::new(admission);
        let naming = Arc::new(naming);
        let accepting = tokio::spawn(async move {
            supervise::restart_after_panic(Task::Accept, || accept(&listener, &publishers, &naming)).await;
        });
        Ok(Self { file, accepting })
    }
}

impl Drop for IngestListener {
    fn drop(&mut self) {
        self.file = None;
        self.accepting.abort();
    }
}

/// Accepts publishers, for ever.
async fn accept(listener: &UnixListener, publishers: &Arc<Publishers>, naming: &Arc<Naming>) {
    let (mut connections, mut failing) = (JoinSet::new(), false);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Most likely there are no free descriptors. An immediate retry would only use CPU time.
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "ingest socket cannot accept publishers; retrying; raise the limit of open files (LimitNOFILE=, ulimit -n)");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        failing = false;
        while connections.try_join_next().is_some() {}
        let peer = stream.peer_cred().ok();
        let uid = peer.map(|peer| peer.uid());
        // The kernel says 0 for a process of another container.
        let process = peer.and_then(|peer| u32::try_from(peer.pid()?).ok()).filter(|process| *process > 0);
        let Some(place) = publishers.admit(uid).await else { continue };
        let naming = Arc::clone(naming);
        connections.spawn(async move {
            if let Err(error) = receive(stream, process, &place, &naming).await {
                tracing::debug!(%error, "reading from a publisher failed");
            }
            if let Naming::OneEngine(_) = *naming {
                place.log_leaving(process);
            }
        });
    }
}

/// Reads from one publisher until it disconnects or must make room. An invalid line is counted and skipped.
async fn receive(stream: UnixStream, process: Option<u32>, place: &PublisherPlace, naming: &Naming) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut connection = PublisherConnection { place, naming, process, seat: None };
    if let Naming::OneEngine(OneEngine(desk)) = naming {
        connection.sit(Seat::alone(desk));
    }
    let mut first = true;
    // Between two lines, a publisher may be idle for as long as it likes.
    while let Some(bytes) = place.unless_evicted(reader.fill_buf()).await
        && !bytes?.is_empty()
    {
        let mut line = Vec::new();
        let reading = tokio::time::timeout(LINE_TIMEOUT, read_line(&mut reader, &mut line));
        let Some(Ok(Ok((fits, _long)))) = place.unless_evicted(reading).await else {
            // Late, broken off, or cut to make room.
            let text = Err(RejectReason::Truncated);
            connection.deliver(None, Queued::Line { text, _permit: None }).await;
            break;
        };
        place.line_received();
        let kib = u32::try_from(line.len() >> 10).unwrap_or(MAX_QUEUED_KIB) + 1;
        let Ok(permit) = QUEUED.acquire_many(kib).await else { break };
        if fits && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        line.shrink_to_fit();
        let mut hello = if std::mem::take(&mut first) && fits { read_hello(&line) } else { None };
        let queued = match &mut hello {
            Some(hello) => {
                place.publisher.hello_received();
                let settings = std::mem::take(&mut hello.config);
                Queued::Hello { process: hello.pid, settings, _permit: permit }
            }
            None => {
                let text = if fits { Ok(line) } else { Err(RejectReason::TooLong) };
                Queued::Line { text, _permit: Some(permit) }
            }
        };
        if !connection.deliver(hello.as_ref(), queued).await {
            break;
        }
    }
    Ok(())
}

/// A connected publisher and its engine. On a shared socket, the first line tells which engine that is.
struct PublisherConnection<'a> {
    place: &'a PublisherPlace,
    naming: &'a Naming,
    /// Its PID, if it is visible here.
    process: Option<u32>,
    seat: Option<Seat>,
}

impl PublisherConnection<'_> {
    fn sit(&mut self, seat: Seat) {
        seat.desk.published_by(self.process);
        self.seat = Some(seat);
    }

    /// Returns false if the publisher is refused or its engine is gone.
    async fn deliver(&mut self, hello: Option<&Hello>, queued: Queued) -> bool {
        if let (None, Naming::ByPublishers(socket)) = (&self.seat, self.naming) {
            match self.place.unless_evicted(socket.claim(hello)).await {
                Some(Ok(seat)) => self.sit(seat),
                Some(Err(refused)) => self.place.refuse_name(&refused),
                None => {}
            }
        } else if let Some(Hello { model, version, pid, .. }) = hello {
            self.place.log_hello(model.as_deref(), version.as_deref(), *pid);
        }
        self.seat.as_ref().is_some_and(|seat| seat.desk.hand_in(queued))
    }
}

/// The line as a hello with names that can be label values.
fn read_hello(line: &[u8]) -> Option<Hello> {
    match parse_line(line) {
        Ok(PublisherLine::Hello(hello)) if hello.is_short() => Some(hello),
        _ => None,
    }
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
