//! The names of engines. On a socket without a configured name, each publisher sends a name in its first line. A name
//! belongs to the open connection that sent it, not to a process id: in containers, every engine is process 1.

use std::borrow::Cow;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::publishers::Publisher;
use super::refused::{MAX_ENGINES, Refused};
use super::{Inbox, Queued};
use crate::discovery::short;
use crate::trtllm_json::{Hello, MAX_NAME};
use trtllm_records::PublisherRefusal;
use trtllm_service::log::LogLimit;

/// Stands for the socket of engines that discovery has found. No socket has this id.
const DISCOVERED: u64 = 0;
/// How long a publisher waits for a name that another connection holds. A process may connect again before the exporter
/// notices that its last connection has ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// A publisher that has been silent for this time loses its name to one that sends more than a hello. Otherwise a process that hangs,
/// or never had an engine, keeps its successor out. Two idle engines of one name do not take it from each other.
const SILENT: Duration = Duration::from_secs(10);

/// The names of all engines of this exporter.
#[derive(Debug)]
pub struct Names {
    table: Mutex<NameTable>,
    released: Notify,
    joined: mpsc::UnboundedSender<Joined>,
    /// How long an engine without a publisher is kept.
    forget_after: Duration,
    log: Mutex<LogLimit>,
}

#[derive(Debug, Default)]
struct NameTable {
    /// Model and version of each engine in the configuration.
    configured: HashSet<(String, String)>,
    /// Model and version of each engine that discovery has found.
    discovered: HashSet<(String, String)>,
    engines: Vec<Named>,
    next_id: u64,
}

/// An engine that was named by a publisher.
#[derive(Debug)]
struct Named {
    id: u64,
    socket: u64,
    model: String,
    version: String,
    /// The process id that its last publisher has sent.
    process: Option<u64>,
    owner: NameOwner,
    /// Its last publisher.
    publisher: Weak<Publisher>,
    inbox: Arc<Inbox>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameOwner {
    /// One connection: it sent the name, or the name was chosen for it.
    Connection,
    /// All connections without a hello. They share one name.
    Nameless,
    Nobody {
        since: Instant,
    },
}

/// One socket whose publishers name their engines.
#[derive(Debug)]
pub struct Socket {
    names: Arc<Names>,
    id: u64,
    default_model: &'static str,
}

/// A new engine, which has just got its name.
#[derive(Debug)]
pub struct Joined {
    /// Id of its socket.
    pub socket: u64,
    pub model: String,
    pub version: String,
    pub(super) id: u64,
    pub(super) names: Arc<Names>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) queue: mpsc::UnboundedReceiver<Queued>,
}

/// The configuration gives an engine a name that another engine got while the daemon was running.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("model {model:?} version {version:?} is the name of an engine that {by}; choose another name")]
pub struct NameTaken {
    pub model: String,
    pub version: String,
    pub by: &'static str,
}

/// Engines that a reload ends. Their names become free.
#[derive(Debug, Default)]
pub struct Ending {
    /// Ids of sockets that are closed.
    pub sockets: HashSet<u64>,
    /// Model and version of engines that discovery has found.
    pub discovered: HashSet<(String, String)>,
}

/// The name that a publisher asks for.
struct RequestedName<'a> {
    model: Cow<'a, str>,
    version: RequestedVersion<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedVersion<'a> {
    /// Exactly this version.
    Explicit(Cow<'a, str>),
    /// The lowest free version of the model.
    Derived,
    /// The version of all publishers without a hello.
    Nameless,
}

impl<'a> RequestedName<'a> {
    /// Fails if a field of the hello that decides the name is unclear.
    fn of(hello: Option<&'a Hello>, default_model: &'a str) -> Result<Self, Refused> {
        let Some(hello) = hello else {
            let model = Cow::Borrowed(default_model);
            return Ok(Self { model, version: RequestedVersion::Nameless });
        };
        let given = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        let (model, version) = (given(&hello.model), given(&hello.version));
        if let Some(field) = hello.unclear {
            return Err(Refused::Unclear { model: model.map(short), field });
        }
        let version = match model {
            Some(_) if !hello.derived => RequestedVersion::Explicit(cut(version.unwrap_or("1"))),
            _ => RequestedVersion::Derived,
        };
        Ok(Self { model: cut(model.unwrap_or(default_model)), version })
    }
}

/// A name as a label value: the same as discovery finds, if it is too long.
pub(super) fn cut(name: &str) -> Cow<'_, str> {
    if name.chars().count() > MAX_NAME { Cow::Owned(short(name)) } else { Cow::Borrowed(name) }
}

impl Names {
    /// Each new engine is sent to `joined`.
    pub fn new(forget_after: Duration, joined: mpsc::UnboundedSender<Joined>) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), released: Notify::new(), joined, forget_after, log: Mutex::default() })
    }

    /// Sets the names of the engines in the configuration. Publishers cannot have them. If an engine that is not in
    /// `ending` has one of these names, this fails and changes nothing.
    pub fn configure(&self, configured: HashSet<(String, String)>, ending: &Ending) -> Result<(), NameTaken> {
        let mut table = self.table.lock();
        let stay = table.engines.iter().filter(|engine| !ending.sockets.contains(&engine.socket));
        let published = stay.map(|engine| ((engine.model.clone(), engine.version.clone()), "publishes on a socket"));
        let found = table.discovered.difference(&ending.discovered);
        let found = found.map(|name| (name.clone(), "trtllm-exporter has found"));
        if let Some(((model, version), by)) = published.chain(found).find(|(name, _)| configured.contains(name)) {
            return Err(NameTaken { model, version, by });
        }
        table.configured = configured;
        Ok(())
    }

    /// Reserves the lowest free version of a model for an engine that discovery has found.
    #[must_use]
    pub fn discovered(&self, model: &str) -> String {
        let mut table = self.table.lock();
        let version = table.free_version(DISCOVERED, model, None);
        table.discovered.insert((model.to_owned(), version.clone()));
        version
    }

    /// Frees a name that [`Names::discovered`] has reserved.
    pub fn give_back(&self, model: &str, version: &str) {
        self.table.lock().discovered.remove(&(model.to_owned(), version.to_owned()));
    }

    /// A socket whose publishers name their engines. `default_model` is for publishers that send no model.
    #[must_use]
    pub fn socket(self: &Arc<Self>, default_model: &'static str) -> Socket {
        let mut table = self.table.lock();
        table.next_id += 1;
        Socket { names: Arc::clone(self), id: table.next_id, default_model }
    }

    /// Removes an engine whose last publisher disconnected long ago. Returns whether the engine is gone.
    pub(super) fn forget(&self, id: u64) -> bool {
        let mut table = self.table.lock();
        table.engines.retain(|engine| {
            let long_gone = matches!(engine.owner, NameOwner::Nobody { since } if since.elapsed() >= self.forget_after);
            engine.id != id || !long_gone
        });
        !table.engines.iter().any(|engine| engine.id == id)
    }

    /// Frees the name of an engine whose last connection has ended.
    fn release(&self, id: u64) {
        let mut table = self.table.lock();
        if let Some(engine) = table.engines.iter_mut().find(|engine| engine.id == id)
            && engine.inbox.connections() == 0
        {
            engine.owner = NameOwner::Nobody { since: Instant::now() };
            let Named { model, version, process, .. } = &*engine;
            if let Some(left_out) = self.log.lock().allow(std::time::Instant::now()) {
                tracing::info!(model, version, pid = process, left_out, "the last publisher of the engine has left");
            }
        }
        drop(table);
        self.released.notify_waiters();
    }

    /// Logs a publisher, but not too often: a publisher that connects again and again must not fill the log.
    fn log_publisher(&self, model: &str, version: &str, pid: Option<u64>) {
        if let Some(left_out) = self.log.lock().allow(std::time::Instant::now()) {
            tracing::info!(model, version, pid, left_out, "publisher connected");
        }
    }
}

impl Socket {
    /// The value of [`Joined::socket`] for the engines of this socket.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Registers a publisher at the engine that its hello names. If another connection has the name, waits up to a second, or until
    /// that connection has been silent for [`SILENT`]. `more`: whether the publisher sends more than its hello.
    pub(super) async fn claim(
        &self,
        hello: Option<&Hello>,
        publisher: &Arc<Publisher>,
        more: impl Future<Output = bool>,
    ) -> Result<Registration, Refused> {
        let (mut patience, mut more) = (pin!(tokio::time::sleep(PATIENCE)), pin!(more));
        let mut has_more = None;
        loop {
            let mut released = pin!(self.names.released.notified());
            released.as_mut().enable();
            let refused = match self.try_claim(hello, publisher, has_more == Some(true)) {
                Err(refused) if refused.reason() == PublisherRefusal::Name => refused,
                result => return result,
            };
            let silent_at = self.owner_is_silent_at(hello).filter(|_| has_more == Some(true));
            let is_soon = silent_at.is_some_and(|at| at <= Instant::now() + (SILENT - PATIENCE));
            if patience.is_elapsed() && !is_soon {
                return Err(refused);
            }
            tokio::select! {
                () = released => {}
                result = &mut more, if has_more.is_none() => has_more = Some(result),
                () = tokio::time::sleep_until(silent_at.unwrap_or_else(Instant::now)), if silent_at.is_some() => {}
                () = &mut patience, if !patience.is_elapsed() => {}
            }
        }
    }

    /// When the publisher whose name the hello wants will have been silent for [`SILENT`].
    fn owner_is_silent_at(&self, hello: Option<&Hello>) -> Option<Instant> {
        let RequestedName { model, version: RequestedVersion::Explicit(version), .. } =
            RequestedName::of(hello, self.default_model).ok()?
        else {
            return None;
        };
        self.names.table.lock().owner(self.id, &model, &version).map(|(_, owner)| owner.last_line() + SILENT)
    }

    /// `has_more`: the publisher sends more than its hello, so it may take the name of a silent one.
    fn try_claim(
        &self,
        hello: Option<&Hello>,
        publisher: &Arc<Publisher>,
        has_more: bool,
    ) -> Result<Registration, Refused> {
        let RequestedName { model, version: requested } = RequestedName::of(hello, self.default_model)?;
        let model = &*model;
        let process = hello.and_then(|hello| hello.pid);
        let mut table = self.names.table.lock();
        let is_nameless = requested == RequestedVersion::Nameless;
        let version = match requested {
            RequestedVersion::Explicit(version) => {
                if has_more
                    && let Some((engine, owner)) = table.owner(self.id, model, &version)
                    && owner.last_line().elapsed() >= SILENT
                {
                    engine.owner = NameOwner::Nobody { since: Instant::now() };
                    owner.evict();
                    let pid = engine.process;
                    tracing::warn!(model, %version, pid, "a silent publisher loses its name to another one; end the process if it hangs");
                }
                table.check_free(self.id, model, &version)?;
                version.into_owned()
            }
            RequestedVersion::Derived => table.free_version(self.id, model, process),
            RequestedVersion::Nameless => match table.nameless(self.id) {
                Some(engine) => return Ok(Registration::new(&self.names, engine)),
                None => table.free_version(self.id, model, None),
            },
        };
        let owner = if is_nameless { NameOwner::Nameless } else { NameOwner::Connection };
        let known = table.engines.iter_mut().find(|engine| engine.model == model && engine.version == version);
        if let Some(engine) = known {
            (engine.owner, engine.process) = (owner, process);
            engine.publisher = Arc::downgrade(publisher);
            self.names.log_publisher(model, &engine.version, process);
            return Ok(Registration::new(&self.names, engine));
        }
        if table.engines.len() >= MAX_ENGINES {
            return Err(Refused::TooMany);
        }
        table.next_id += 1;
        let (id, (inbox, queue)) = (table.next_id, Inbox::new());
        let model = model.to_owned();
        let publisher = Arc::downgrade(publisher);
        let engine = Named { id, socket: self.id, model, version, process, owner, publisher, inbox };
        let Named { model, version, inbox, .. } = &engine;
        self.names.log_publisher(model, version, process);
        let _ = self.names.joined.send(Joined {
            socket: self.id,
            model: model.clone(),
            version: version.clone(),
            id,
            names: Arc::clone(&self.names),
            inbox: Arc::clone(inbox),
            queue,
        });
        let registration = Registration::new(&self.names, &engine);
        table.engines.push(engine);
        Ok(registration)
    }
}

impl Drop for Socket {
    /// Ends the engines of this socket.
    fn drop(&mut self) {
        self.names.table.lock().engines.retain(|engine| engine.socket != self.id);
    }
}

impl NameTable {
    /// Checks that a publisher on this socket can have this name now.
    fn check_free(&self, socket: u64, model: &str, version: &str) -> Result<(), Refused> {
        let known = self.engines.iter().find(|engine| engine.model == model && engine.version == version);
        let name = (model.to_owned(), version.to_owned());
        let by = match known {
            _ if self.discovered.contains(&name) => "an engine that was found",
            _ if self.configured.contains(&name) => "an engine of the configuration",
            Some(engine) if engine.socket != socket => "an engine of another socket",
            Some(Named { owner: NameOwner::Connection | NameOwner::Nameless, .. }) => "another publisher",
            Some(_) | None => return Ok(()),
        };
        Err(Refused::Taken { model: model.to_owned(), version: version.to_owned(), by })
    }

    /// The connection that has a name on this socket.
    fn owner(&mut self, socket: u64, model: &str, version: &str) -> Option<(&mut Named, Arc<Publisher>)> {
        let mut engines = self.engines.iter_mut();
        let engine = engines.find(|engine| engine.model == model && engine.version == version)?;
        let is_owned = engine.socket == socket && engine.owner == NameOwner::Connection;
        let owner = engine.publisher.upgrade().filter(|_| is_owned)?;
        Some((engine, owner))
    }

    /// The version that this process had before, if it is free; otherwise the lowest free version.
    fn free_version(&self, socket: u64, model: &str, process: Option<u64>) -> String {
        let same = |engine: &&Named| engine.model == model && process.is_some() && engine.process == process;
        let before = self.engines.iter().filter(same).map(|engine| engine.version.clone());
        let all = (1_u64..).map(|number| number.to_string());
        let mut free = before.chain(all).filter(|version| self.check_free(socket, model, version).is_ok());
        free.next().unwrap_or_default()
    }

    /// The engine of connections without a hello, if there are any.
    fn nameless(&self, socket: u64) -> Option<&Named> {
        self.engines.iter().find(|engine| engine.socket == socket && engine.owner == NameOwner::Nameless)
    }
}

/// Registers a connection at its engine until the `Registration` is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) inbox: Arc<Inbox>,
    name: Option<(Arc<Names>, u64)>,
}

impl Registration {
    /// Registers a connection at an engine that has a socket of its own.
    pub(super) fn alone(inbox: &Arc<Inbox>) -> Self {
        inbox.connection_opened();
        Self { inbox: Arc::clone(inbox), name: None }
    }

    fn new(names: &Arc<Names>, engine: &Named) -> Self {
        engine.inbox.connection_opened();
        Self { inbox: Arc::clone(&engine.inbox), name: Some((Arc::clone(names), engine.id)) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let is_last = self.inbox.connection_closed();
        if let Some((names, id)) = self.name.take()
            && is_last
        {
            names.release(id);
        }
    }
}

#[cfg(test)]
mod tests;
