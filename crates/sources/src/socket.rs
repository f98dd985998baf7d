//! The ingest socket: any process connects and publishes NDJSON, one record per line. The number of publishers, the
//! length of a line and the bytes of queued lines are limited. Data above these limits waits in the socket's buffers.

mod listener;
mod names;
mod publishers;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::batch::{Batch, Presence};
use super::error::OpenError;
use super::keys::LineParser;
use super::trtllm_json::PublisherLine;
use trtllm_records::Message;
use trtllm_records::{EngineSettings, RejectReason};
use trtllm_service::unix_socket::{self, Activated};

pub use listener::{IngestListener, Naming};
pub use names::{Ending, Joined, Name, NameTaken, Names, Socket};
pub use publishers::{Admission, Publishers};

/// Limit of the process ids that are kept for one engine. No engine has so many.
const MAX_PROCESSES: usize = 64;
/// Bytes of queued lines that each engine may have, whatever the others have.
const OWN_ROOM: usize = 64 << 10;
/// Bytes of queued lines that all engines together may have beyond these.
static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(4 << 20)));

/// The lines of one engine, until its next poll.
#[derive(Debug)]
pub struct Ingest {
    /// The name of the source in messages.
    pub(super) target: String,
    queue: mpsc::UnboundedReceiver<Queued>,
    lines: LineParser,
    inbox: Arc<Inbox>,
    /// True if an earlier part of this poll has received lines.
    received: bool,
    origin: Origin,
}

/// The socket from which the lines come.
#[derive(Debug)]
enum Origin {
    /// A socket of this engine alone. It is closed with the engine.
    OwnSocket { _listener: IngestListener },
    /// A socket whose publishers name their engines.
    Shared { names: Arc<Names>, name: Name },
}

impl Ingest {
    /// Listens on `path` for one engine, like [`IngestListener::bind`]. Fails if the path cannot be bound, another
    /// process listens on it, or it exists and is not a socket.
    pub async fn bind(path: &Path, activated: &Activated, publishers: &Arc<Publishers>) -> Result<Self, OpenError> {
        let (inbox, queue) = Inbox::new();
        let naming = Naming::OneEngine(Arc::clone(&inbox));
        let listener = IngestListener::bind(path, activated, publishers, naming).await?;
        let target = format!("socket:{}", path.display());
        Ok(Self::new(target, queue, inbox, Origin::OwnSocket { _listener: listener }))
    }

    /// The source of an engine that its publisher has named.
    pub fn joined(socket: &Path, Joined { name, names, inbox, queue, .. }: Joined) -> Self {
        let target = format!("socket:{}", socket.display());
        Self::new(target, queue, inbox, Origin::Shared { names, name })
    }

    fn new(target: String, queue: mpsc::UnboundedReceiver<Queued>, inbox: Arc<Inbox>, origin: Origin) -> Self {
        Self { target, queue, lines: LineParser::default(), inbox, received: false, origin }
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Presence {
        while batch.has_room()
            && let Ok(queued) = self.queue.try_recv()
        {
            self.received = true;
            match queued.line {
                QueuedLine::Hello { process, settings } => {
                    // The publisher may be another engine with other keys.
                    self.lines = LineParser::default();
                    process.into_iter().for_each(|process| batch.push(Message::Process(process)));
                    batch.update_settings(settings);
                }
                QueuedLine::Line(text) => match text.and_then(|line| self.lines.parse(&line, &mut batch.keys)) {
                    Ok(PublisherLine::Message(item)) => batch.push(item),
                    // Only the first line of a connection may be a hello, and the listener has read that line.
                    Ok(PublisherLine::Hello(_)) => batch.reject(RejectReason::NotARecord),
                    Err(reason) => batch.reject(reason),
                },
            }
        }
        let connected = self.inbox.connections();
        batch.connections = Some(connected);
        batch.processes = self.inbox.processes();
        if !batch.has_room() {
            batch.more = true;
            return Presence::Present;
        }
        // A publisher may connect for each line and disconnect at once. Then only its lines show that it is present.
        match (std::mem::take(&mut self.received) || connected > 0, &self.origin) {
            (true, _) => Presence::Present,
            (false, Origin::Shared { names, name }) if names.forget(name, &self.inbox) => Presence::Forgotten,
            (false, _) => Presence::Disconnected,
        }
    }
}

/// A line in the queue.
#[derive(Debug)]
struct Queued {
    line: QueuedLine,
    /// A permit for each byte, until the poll drops the line.
    _room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum QueuedLine {
    /// A publisher has connected. Its first line was a hello.
    Hello { process: Option<u64>, settings: EngineSettings },
    /// The text without its line feed, or why it could not be read.
    Line(Result<Vec<u8>, RejectReason>),
}

/// The sending end of an engine's queue, which the connections of the engine share.
#[derive(Debug)]
pub struct Inbox {
    lines: mpsc::UnboundedSender<Queued>,
    /// A permit for each byte of [`OWN_ROOM`] that is free.
    room: Arc<Semaphore>,
    publishers: Mutex<EnginePublishers>,
}

/// The publishers of an engine.
#[derive(Debug, Default)]
struct EnginePublishers {
    connections: u64,
    /// When the last connection ended.
    unused_since: Option<Instant>,
    /// The processes that have connected since the engine last had no connection. `None` for a process that is not visible here.
    processes: Vec<Option<u32>>,
}

impl Inbox {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Queued>) {
        let (lines, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(OWN_ROOM));
        (Arc::new(Self { lines, room, publishers: Mutex::default() }), queue)
    }

    /// Number of open connections that publish for the engine.
    fn connections(&self) -> u64 {
        self.publishers.lock().connections
    }

    fn connection_opened(&self) {
        let mut publishers = self.publishers.lock();
        publishers.connections += 1;
        publishers.unused_since = None;
    }

    /// Returns true if this was the last connection.
    fn connection_closed(&self) -> bool {
        let mut publishers = self.publishers.lock();
        publishers.connections -= 1;
        let is_last = publishers.connections == 0;
        if is_last {
            publishers.processes.clear();
            publishers.unused_since = Some(Instant::now());
        }
        is_last
    }

    /// For how long the engine has had no connection, if it has none.
    fn unused_for(&self) -> Option<Duration> {
        self.publishers.lock().unused_since.map(|since| since.elapsed())
    }

    /// Notes that a connection of this process publishes for the engine.
    fn add_process(&self, process: Option<u32>) {
        let processes = &mut self.publishers.lock().processes;
        if !processes.contains(&process) && processes.len() < MAX_PROCESSES {
            processes.push(process);
        }
    }

    /// The processes that publish for the engine; empty if one of them is not visible here.
    fn processes(&self) -> Vec<u32> {
        self.publishers.lock().processes.iter().copied().collect::<Option<_>>().unwrap_or_default()
    }

    /// Queues a line of this many bytes, once there is room. Returns false if the engine is gone.
    async fn push(&self, line: QueuedLine, bytes: usize) -> bool {
        let room = self.room(size_of::<Queued>() + bytes).await;
        self.lines.send(Queued { line, _room: room }).is_ok()
    }

    /// The room of the engine first, so that no engine waits for another one, unless its line is too long for its own room.
    /// Never `None`, because no semaphore is closed.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let free = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(permits).ok();
        if let Some(room) = free(&self.room).or_else(|| free(&ROOM)) {
            return Some(room);
        }
        let room = if bytes <= OWN_ROOM { &self.room } else { &*ROOM };
        Arc::clone(room).acquire_many_owned(permits).await.ok()
    }
}

/// Checks that the path can be listened on, without listening.
pub fn check(path: &Path) -> Result<(), OpenError> {
    unix_socket::check(path).map_err(|cause| OpenError::Socket { path: path.to_owned(), cause })
}
