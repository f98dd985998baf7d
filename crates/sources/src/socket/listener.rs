//! A bound socket: accepts publishers, reads their lines and puts them into the queues of their engines.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::names::{Refused, Registration, Socket, cut};
use super::publishers::{Publishers, Slot};
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
        let (publishers, naming) = (Arc::clone(publishers), Arc::new(naming));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            supervise::restart_after_panic(Task::Accept, || accept(&listener, &publishers, &naming)).await;
        });
        Ok(Self { _file: file, _accepting: accepting })
    }
}

/// Accepts publishers forever. One that waits for a slot needs a file descriptor, so the next ones wait in the backlog.
async fn accept(listener: &UnixListener, publishers: &Arc<Publishers>, naming: &Arc<Naming>) {
    let (mut connections, mut failing) = (JoinSet::new(), false);
    let socket = publishers.next_socket();
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
        // The PID is 0 if the process is in another container.
        let process = peer.and_then(|peer| u32::try_from(peer.pid()?).ok()).filter(|process| *process > 0);
        let Some(slot) = publishers.admit(socket, peer.map(|peer| peer.uid())).await else { continue };
        connections.spawn(PublisherConnection::new(stream, process, slot, naming).run());
    }
}

/// A connected publisher and its engine. On a shared socket, the first line names the engine.
struct PublisherConnection {
    reader: BufReader<UnixStream>,
    /// PID of the publisher, if it is visible here.
    process: Option<u32>,
    slot: Slot,
    naming: Arc<Naming>,
    registration: Option<Registration>,
    /// A line has begun and not ended.
    in_line: bool,
}

impl PublisherConnection {
    fn new(stream: UnixStream, process: Option<u32>, slot: Slot, naming: &Arc<Naming>) -> Self {
        let (reader, naming) = (BufReader::new(stream), Arc::clone(naming));
        Self { reader, process, slot, naming, registration: None, in_line: false }
    }

    /// Reads from the publisher until it disconnects or must make room.
    async fn run(mut self) {
        if let Naming::OneEngine(inbox) = &*self.naming {
            let registration = Registration::alone(inbox);
            self.register(registration);
        }
        let publisher = Arc::clone(&self.slot.publisher);
        if let Some(Err(error)) = publisher.unless_evicted(self.receive()).await {
            tracing::debug!(%error, "reading from a publisher failed");
        }
        match &self.registration {
            _ if !self.in_line => {}
            Some(Registration { inbox, .. }) => {
                inbox.push(QueuedLine::Line(Err(RejectReason::Truncated)), 0).await;
            }
            // The line may have had a name.
            None => self.refuse(&Refused::Unclear { model: None, field: "hello" }),
        }
        if let Naming::OneEngine(_) = &*self.naming {
            self.slot.table.log_disconnect(self.process);
        }
    }

    /// Reads until the publisher disconnects or is refused. An invalid line is counted and skipped.
    async fn receive(&mut self) -> io::Result<()> {
        let mut is_first = true;
        // Between two lines, a publisher may be idle for as long as it likes.
        while !self.reader.fill_buf().await?.is_empty() {
            self.in_line = true;
            // A long line has its permit until it is queued.
            let (line, _permit) = {
                let reading = pin!(read_line(&mut self.reader));
                permits::timeout(LINE_TIMEOUT, reading).await??
            };
            self.in_line = false;
            // An empty line has no data, so it does not count as activity.
            if line.as_ref().is_some_and(|line| line.iter().all(u8::is_ascii_whitespace)) {
                continue;
            }
            self.slot.publisher.line_received();
            let bytes = line.as_ref().map_or(0, Vec::len);
            let mut queued = QueuedLine::Line(line.ok_or(RejectReason::TooLong));
            if std::mem::take(&mut is_first) {
                queued = self.begin(queued).await;
            }
            let Some(Registration { inbox, .. }) = &self.registration else { break };
            if !inbox.push(queued, bytes).await {
                break;
            }
        }
        Ok(())
    }

    /// Registers the publisher at the engine that its first line names, or refuses it. Returns what to queue of the line.
    async fn begin(&mut self, line: QueuedLine) -> QueuedLine {
        let naming = Arc::clone(&self.naming);
        let hello = match &line {
            QueuedLine::Line(Ok(text)) => read_hello(text, &naming),
            _ => unread_hello(&naming),
        };
        let is_alone = match &*naming {
            Naming::OneEngine(inbox) => {
                if let Some(Hello { model, version, pid, .. }) = &hello {
                    let [model, version] = [model, version].map(|name| name.as_deref().map(cut));
                    self.slot.table.log_hello(model.as_deref(), version.as_deref(), *pid);
                }
                inbox.connections() <= 1
            }
            Naming::ByPublishers(socket) => {
                let more = async {
                    let next = self.reader.fill_buf().await.unwrap_or_default();
                    next.iter().any(|byte| !byte.is_ascii_whitespace())
                };
                match socket.claim(hello.as_ref(), &self.slot.publisher, more).await {
                    Ok(registration) => self.register(registration),
                    Err(refused) => self.refuse(&refused),
                }
                true
            }
        };
        let Some(Hello { pid, config, .. }) = hello else { return line };
        // If several processes publish for this engine, the hello of another one does not mean a restart.
        QueuedLine::Hello { process: pid.filter(|_| is_alone), settings: config }
    }

    fn register(&mut self, registration: Registration) {
        registration.inbox.add_process(self.process);
        self.registration = Some(registration);
    }

    /// Counts and logs that this publisher cannot have its name.
    fn refuse(&self, refused: &Refused) {
        self.slot.table.refuse(refused.reason(), |left_out| {
            tracing::warn!(pid = self.process, left_out, "publisher refused: {refused}");
        });
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
        let publishers = Publishers::new(admission);
        let mut open = Vec::new();
        for pid in [7, 8] {
            let (mut publisher, stream) = UnixStream::pair().unwrap();
            let (publishers, naming) = (Arc::clone(&publishers), Arc::clone(&naming));
            tokio::spawn(async move {
                let slot = publishers.admit(0, None).await.unwrap();
                PublisherConnection::new(stream, None, slot, &naming).run().await
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
