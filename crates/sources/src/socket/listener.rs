//! A bound socket: accepts publishers, reads their lines and puts them into the queues of their engines.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::names::{Registration, Socket, cut};
use super::publishers::{PublisherEntry, Publishers, SocketPublishers};
use super::{Inbox, QueuedLine};
use crate::error::OpenError;
use crate::trtllm_json::{Hello, parse_hello};
use trtllm_records::RejectReason;
use trtllm_service::permits::{self, Permit, Permits};
use trtllm_service::supervise::{self, Task};
use trtllm_service::unix_socket::{self, Activated, SocketFile};

/// Longest line, in bytes.
const MAX_LINE: usize = 1 << 20;
/// Each connection may read this many bytes of a line without a permit.
const SHORT_LINE: usize = 24 << 10;
/// Permits for longer lines, while they are read and until they are queued.
static LONG_LINES: Permits = Permits::new(2);
/// Longest time from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for the rest of a long line, if others wait for its permit.
const LONG_LINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose statistics the publishers of a socket send.
#[derive(Debug)]
pub enum Naming {
    /// The statistics of one engine, whatever names the publishers send.
    OneEngine(Arc<Inbox>),
    /// The statistics of the engine that each publisher names.
    ByPublishers(Arc<Socket>),
}

/// A bound socket. Dropping it closes the connections and removes the socket, unless systemd listens on it.
#[derive(Debug)]
pub struct IngestListener {
    /// Comes first, so the file is removed before the task closes the socket: see [`SocketFile`].
    _file: Option<SocketFile>,
    _accepting: JoinSet<()>,
}

impl IngestListener {
    /// Listens on `path`, or uses the socket if systemd listens on it already. Replaces a socket that a process left behind
    /// when it ended. Fails if the path cannot be bound, another process listens on it, or it exists and is not a socket.
    pub async fn bind(
        path: &Path,
        activated: &Activated,
        publishers: &Arc<Publishers>,
        naming: Naming,
    ) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Socket { path: path.to_owned(), cause };
        let (listener, file) = match activated.listener(path).map_err(failed)? {
            Some(listener) => (listener, None),
            None => unix_socket::bind(path).await.map(|(listener, file)| (listener, Some(file))).map_err(failed)?,
        };
        let publishers = publishers.of_socket();
        let naming = Arc::new(naming);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            supervise::restart_after_panic(Task::Accept, || accept(&listener, &publishers, &naming)).await;
        });
        Ok(Self { _file: file, _accepting: accepting })
    }
}

/// Accepts publishers forever.
async fn accept(listener: &UnixListener, publishers: &Arc<SocketPublishers>, naming: &Arc<Naming>) {
    let (mut connections, mut failing) = (JoinSet::new(), false);
    loop {
        let accepted = listener.accept().await;
        let Some(waits) = publishers.may_wait().await else { return };
        let stream = match accepted {
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
        // The PID is 0 if the process is in another container.
        let process = peer.and_then(|peer| u32::try_from(peer.pid()?).ok()).filter(|process| *process > 0);
        let (publishers, naming) = (Arc::clone(publishers), Arc::clone(naming));
        // In a task of its own: while this publisher waits for a slot, others may get one.
        connections.spawn(async move {
            let Some(slot) = publishers.admit(uid).await else { return };
            drop(waits);
            if let Err(error) = receive(stream, process, &slot, &naming).await {
                tracing::debug!(%error, "reading from a publisher failed");
            }
            if let Naming::OneEngine(_) = *naming {
                slot.log_disconnect(process);
            }
        });
    }
}

/// Reads from one publisher until it disconnects or must make room. An invalid line is counted and skipped.
async fn receive(stream: UnixStream, process: Option<u32>, slot: &PublisherEntry, naming: &Naming) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut connection = PublisherConnection { slot, naming, process, registration: None };
    if let Naming::OneEngine(inbox) = naming {
        connection.register(Registration::alone(inbox));
    }
    let mut first = true;
    // Between two lines, a publisher may be idle for as long as it likes.
    while let Some(bytes) = slot.unless_evicted(reader.fill_buf()).await
        && !bytes?.is_empty()
    {
        let read = {
            let reading = pin!(read_line(&mut reader));
            slot.unless_evicted(permits::timeout(LINE_TIMEOUT, reading)).await
        };
        let Some(Ok(Ok((line, long)))) = read else {
            // The line took too long, the connection broke, or the publisher must make room.
            let hello = if first { unread_hello(naming) } else { None };
            connection.deliver(hello.as_ref(), QueuedLine::Line(Err(RejectReason::Truncated)), 0, &mut reader).await;
            break;
        };
        // An empty line has no data, so it does not count as activity.
        if line.as_ref().is_some_and(|line| line.iter().all(u8::is_ascii_whitespace)) {
            continue;
        }
        slot.line_received();
        let bytes = line.as_ref().map_or(0, Vec::len);
        let is_first = std::mem::take(&mut first);
        let mut hello = match &line {
            _ if !is_first => None,
            Some(line) => read_hello(line, naming),
            None => unread_hello(naming),
        };
        let queued = match &mut hello {
            Some(hello) => QueuedLine::Hello { process: hello.pid, settings: std::mem::take(&mut hello.config) },
            None => QueuedLine::Line(line.ok_or(RejectReason::TooLong)),
        };
        if !connection.deliver(hello.as_ref(), queued, bytes, &mut reader).await {
            break;
        }
        // A long line is now queued, so another one may be read.
        drop(long);
    }
    Ok(())
}

/// A connected publisher and its engine. On a shared socket, the first line names the engine.
struct PublisherConnection<'a> {
    slot: &'a PublisherEntry,
    naming: &'a Naming,
    /// PID of the publisher, if it is visible here.
    process: Option<u32>,
    registration: Option<Registration>,
}

impl PublisherConnection<'_> {
    fn register(&mut self, registration: Registration) {
        registration.inbox.add_process(self.process);
        self.registration = Some(registration);
    }

    /// Puts a line of this many bytes into the queue. Returns false if the publisher is refused or its engine is gone.
    async fn deliver(
        &mut self,
        hello: Option<&Hello>,
        line: QueuedLine,
        bytes: usize,
        reader: &mut BufReader<UnixStream>,
    ) -> bool {
        if let (None, Naming::ByPublishers(socket)) = (&self.registration, self.naming) {
            let more = async {
                let next = reader.fill_buf().await.unwrap_or_default();
                next.iter().any(|byte| !byte.is_ascii_whitespace())
            };
            match self.slot.unless_evicted(socket.claim(hello, &self.slot.publisher, more)).await {
                Some(Ok(registration)) => self.register(registration),
                Some(Err(refused)) => self.slot.refuse_name(&refused, self.process),
                None => {}
            }
        } else if let Some(Hello { model, version, pid, .. }) = hello {
            let [model, version] = [model, version].map(|name| name.as_deref().map(cut));
            self.slot.log_hello(model.as_deref(), version.as_deref(), *pid);
        }
        let Some(registration) = &self.registration else { return false };
        let line = match (line, self.naming) {
            // Several processes publish for this engine, so another one is no restart.
            (QueuedLine::Hello { settings, .. }, Naming::OneEngine(_)) if registration.inbox.connections() > 1 => {
                QueuedLine::Hello { process: None, settings }
            }
            (line, _) => line,
        };
        self.slot.unless_evicted(registration.inbox.push(line, bytes)).await == Some(true)
    }
}

/// Parses the line as a hello. `None` if it is not one.
fn read_hello(line: &[u8], naming: &Naming) -> Option<Hello> {
    match parse_hello(line) {
        Ok(hello) => hello,
        Err(_) => unread_hello(naming),
    }
}

/// A first line that could not be read may have a name, so its publisher must not share the engine of those without one.
fn unread_hello(naming: &Naming) -> Option<Hello> {
    matches!(naming, Naming::ByPublishers(_)).then(Hello::unreadable)
}

/// Reads a line without its line feed. The last line of a stream needs no line feed. Returns the line, unless it is above the
/// limit and was skipped to its end, and the permit of a long line.
async fn read_line(reader: &mut BufReader<UnixStream>) -> io::Result<(Option<Vec<u8>>, Option<Permit>)> {
    let mut line = Vec::new();
    let is_short = read_part(reader, &mut line, SHORT_LINE).await?;
    // The vector may have doubled its capacity, and this line may wait for long.
    line.shrink_to_fit();
    if is_short {
        return Ok((Some(line), None));
    }
    let permit = LONG_LINES.take().await;
    // Otherwise the vector doubles its capacity.
    line.reserve_exact(MAX_LINE + 1 - line.len());
    let rest = async {
        let mut fits = true;
        while !read_part(reader, &mut line, MAX_LINE).await? {
            fits = false;
            line.clear();
        }
        line.shrink_to_fit();
        Ok((fits.then_some(line), Some(permit)))
    };
    let too_long = async {
        loop {
            tokio::time::sleep(LONG_LINE_TIMEOUT).await;
            if LONG_LINES.is_awaited() {
                return;
            }
        }
    };
    tokio::select! {
        read = rest => read,
        () = too_long => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads more of a line. Returns false if it is now longer than `limit`, which does not include the line feed.
async fn read_part(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let room = limit - line.len().min(limit);
    let read = reader.take(room as u64 + 1).read_until(b'\n', line).await?;
    Ok(line.pop_if(|last| *last == b'\n').is_some() || read <= room)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use trtllm_records::RefusedPublishers;

    use super::super::{Admission, Names, Queued};
    use super::*;

    #[tokio::test]
    async fn a_second_process_that_publishes_for_an_engine_is_no_restart() {
        let (inbox, mut queue) = Inbox::new();
        let naming = Arc::new(Naming::OneEngine(inbox));
        let admission = Admission { uids: Vec::new(), limit: 2, refused: RefusedPublishers::default() };
        let publishers = Publishers::new(admission).of_socket();
        let mut open = Vec::new();
        for pid in [7, 8] {
            let (mut publisher, stream) = UnixStream::pair().unwrap();
            let (publishers, naming) = (Arc::clone(&publishers), Arc::clone(&naming));
            tokio::spawn(async move {
                let slot = publishers.admit(None).await.unwrap();
                receive(stream, None, &slot, &naming).await
            });
            publisher.write_all(format!("{{\"hello\":{{\"pid\":{pid}}}}}\n").as_bytes()).await.unwrap();
            open.push(publisher);
            let Some(Queued { line: QueuedLine::Hello { process, .. }, .. }) = queue.recv().await else { panic!() };
            assert_eq!(process, (pid == 7).then_some(7));
        }
    }

    #[test]
    fn a_first_line_with_a_broken_hello_is_a_hello_where_publishers_name_their_engines() {
        let names = Names::new(Duration::ZERO, tokio::sync::mpsc::unbounded_channel().0);
        let named = Naming::ByPublishers(Arc::new(names.socket("m")));
        let one = Naming::OneEngine(Inbox::new().0);
        for line in [r#"{"hello":["m"]}"#, r#"{"hello":{"model":"a "quoted" name"}}"#] {
            assert_eq!(read_hello(line.as_bytes(), &named), Some(Hello::unreadable()), "{line}");
            assert_eq!(read_hello(line.as_bytes(), &one), None, "{line}: a rejected line");
        }
        assert_eq!(read_hello(br#"{"iter":1}"#, &named), None);
    }
}
