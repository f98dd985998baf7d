//! The names of engines. On a socket without a configured name, each publisher sends a name in its first line. A name
//! belongs to the open connection that sent it, not to a process id: in containers, every engine is process 1.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::publishers::Publisher;
use super::{Inbox, Queued};
use crate::discovery::short;
use crate::trtllm_json::{Hello, MAX_NAME};
use trtllm_records::PublisherRefusal;
use trtllm_service::log::LogLimit;

/// Limit of the engines that publishers may name.
const MAX_ENGINES: usize = 64;
/// Stands for the socket of engines that discovery has found. No socket has this id.
const DISCOVERED: u64 = 0;
/// How long a publisher waits for a name that another connection holds. A process may connect again before the exporter
/// notices that its last connection has ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a publisher that waits for a name tries again.
const RETRY: Duration = Duration::from_millis(20);
/// A publisher that has been silent for this time loses its name to one that sends more than a hello. Otherwise a process that hangs,
/// or never had an engine, keeps its successor out. Two idle engines of one name do not take it from each other.
const SILENT: Duration = Duration::from_secs(10);

/// Model and version of an engine.
pub type Name = (String, String);

/// The names of all engines of this exporter.
#[derive(Debug)]
pub struct Names {
    table: Mutex<NameTable>,
    joined: mpsc::UnboundedSender<Joined>,
    /// How long an engine without a publisher is kept.
    forget_after: Duration,
    log: Mutex<LogLimit>,
}

#[derive(Debug, Default)]
struct NameTable {
    owners: BTreeMap<Name, Owner>,
    last_socket: u64,
}

#[derive(Debug)]
enum Owner {
    /// An engine of the configuration.
    Configured,
    /// An engine that discovery has found.
    Discovered,
    /// An engine that a publisher has named. It stays when its last publisher has left, until it is forgotten.
    Publisher(Published),
}

#[derive(Debug)]
struct Published {
    socket: u64,
    /// The process id that its last publisher has sent.
    process: Option<u64>,
    /// Its last publisher sent no hello. All such connections of a socket share one name.
    is_nameless: bool,
    /// Its last publisher.
    publisher: Weak<Publisher>,
    inbox: Arc<Inbox>,
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
    pub name: Name,
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
    /// Engines that discovery has found.
    pub discovered: HashSet<Name>,
}

/// Why a publisher cannot have its name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("model {model:?} version {version:?} belongs to {by}; give each engine its own name")]
    Taken {
        model: String,
        version: String,
        by: &'static str,
        /// When the publisher that has the name will have been silent for [`SILENT`], if one has it.
        silent_at: Option<Instant>,
    },
    #[error("there are {MAX_ENGINES} engines already; lower --engine.forget-after if old names are not needed")]
    TooMany,
    #[error(
        "the hello of {} has no valid {field}; send an object with model and version as text, and derived as true or false",
        model.as_ref().map_or("a publisher".to_owned(), |model| format!("model {model:?}"))
    )]
    Unclear { model: Option<String>, field: &'static str },
}

impl Refused {
    pub(super) fn reason(&self) -> PublisherRefusal {
        match self {
            Self::Taken { .. } | Self::Unclear { .. } => PublisherRefusal::Name,
            Self::TooMany => PublisherRefusal::Engines,
        }
    }
}

/// The name that a publisher asks for.
struct RequestedName {
    model: String,
    /// `None`: a free version of the model.
    version: Option<String>,
    process: Option<u64>,
    is_nameless: bool,
}

impl RequestedName {
    /// Fails if a field of the hello that decides the name is unclear.
    fn of(hello: Option<&Hello>, default_model: &str) -> Result<Self, Refused> {
        let Some(hello) = hello else {
            return Ok(Self { model: default_model.to_owned(), version: None, process: None, is_nameless: true });
        };
        let [model, version] =
            [&hello.model, &hello.version].map(|text| text.as_deref().filter(|text| !text.is_empty()));
        if let Some(field) = hello.unclear {
            return Err(Refused::Unclear { model: model.map(short), field });
        }
        let is_explicit = model.is_some() && !hello.derived;
        Ok(Self {
            model: cut(model.unwrap_or(default_model)),
            version: is_explicit.then(|| cut(version.unwrap_or("1"))),
            process: hello.pid,
            is_nameless: false,
        })
    }
}

/// A name as a label value: the same as discovery finds, if it is too long.
pub(super) fn cut(name: &str) -> String {
    if name.chars().count() > MAX_NAME { short(name) } else { name.to_owned() }
}

impl Names {
    /// Each new engine is sent to `joined`.
    pub fn new(forget_after: Duration, joined: mpsc::UnboundedSender<Joined>) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), joined, forget_after, log: Mutex::default() })
    }

    /// Sets the names of the engines in the configuration. Publishers cannot have them. If an engine that is not in
    /// `ending` has one of these names, this fails and changes nothing.
    pub fn configure(&self, configured: HashSet<Name>, ending: &Ending) -> Result<(), NameTaken> {
        let owners = &mut self.table.lock().owners;
        for (name, owner) in owners.iter().filter(|(name, _)| configured.contains(name)) {
            let by = match owner {
                Owner::Publisher(engine) if !ending.sockets.contains(&engine.socket) => "publishes on a socket",
                Owner::Discovered if !ending.discovered.contains(name) => "trtllm-exporter has found",
                _ => continue,
            };
            let (model, version) = name.clone();
            return Err(NameTaken { model, version, by });
        }
        owners.retain(|_, owner| !matches!(owner, Owner::Configured));
        owners.extend(configured.into_iter().map(|name| (name, Owner::Configured)));
        Ok(())
    }

    /// Reserves the lowest free version of a model for an engine that discovery has found.
    #[must_use]
    pub fn discovered(&self, model: &str) -> String {
        let mut table = self.table.lock();
        let version = table.free_version(DISCOVERED, model, None);
        table.owners.insert((model.to_owned(), version.clone()), Owner::Discovered);
        version
    }

    /// Frees a name that [`Names::discovered`] has reserved.
    pub fn give_back(&self, model: &str, version: &str) {
        let name = (model.to_owned(), version.to_owned());
        let owners = &mut self.table.lock().owners;
        if let Some(Owner::Discovered) = owners.get(&name) {
            owners.remove(&name);
        }
    }

    /// A socket whose publishers name their engines. `default_model` is for publishers that send no model.
    #[must_use]
    pub fn socket(self: &Arc<Self>, default_model: &'static str) -> Socket {
        let last_socket = &mut self.table.lock().last_socket;
        *last_socket += 1;
        Socket { names: Arc::clone(self), id: *last_socket, default_model }
    }

    /// Removes an engine whose last publisher disconnected long ago. Returns whether the engine is gone.
    pub(super) fn forget(&self, name: &Name, inbox: &Arc<Inbox>) -> bool {
        let owners = &mut self.table.lock().owners;
        match owners.get(name) {
            Some(Owner::Publisher(engine)) if Arc::ptr_eq(&engine.inbox, inbox) => {
                let is_long_gone = inbox.unused_for().is_some_and(|unused| unused >= self.forget_after);
                if is_long_gone {
                    owners.remove(name);
                }
                is_long_gone
            }
            _ => true,
        }
    }

    /// Logs what a publisher did, but not too often: one that connects again and again must not fill the log.
    fn log(&self, (model, version): &Name, pid: Option<u64>, what: &str) {
        if let Some(left_out) = self.log.lock().allow(std::time::Instant::now()) {
            tracing::info!(model, version, pid, left_out, "{what}");
        }
    }
}

impl Socket {
    /// The value of [`Joined::socket`] for the engines of this socket.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Registers a publisher at the engine that its hello names. If another connection has the name, tries again for a second, or until
    /// that connection has been silent for [`SILENT`]. `more`: whether the publisher sends more than its hello.
    pub(super) async fn claim(
        &self,
        hello: Option<&Hello>,
        publisher: &Arc<Publisher>,
        more: impl Future<Output = bool>,
    ) -> Result<Registration, Refused> {
        let requested = RequestedName::of(hello, self.default_model)?;
        let (mut until, mut more, mut has_more) = (Instant::now() + PATIENCE, pin!(more), None);
        loop {
            let talks = has_more == Some(true);
            let refused = match self.try_claim(&requested, publisher, talks) {
                Err(refused) if refused.reason() == PublisherRefusal::Name => refused,
                result => return result,
            };
            let now = Instant::now();
            if now >= until {
                let Refused::Taken { silent_at: Some(silent_at), .. } = refused else { return Err(refused) };
                if !talks || silent_at >= now + (SILENT - PATIENCE) {
                    return Err(refused);
                }
                until = silent_at;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until.min(now + RETRY)) => {}
                result = &mut more, if has_more.is_none() => has_more = Some(result),
            }
        }
    }

    /// `talks`: the publisher sends more than its hello, so it may take the name of a silent one.
    fn try_claim(
        &self,
        requested: &RequestedName,
        publisher: &Arc<Publisher>,
        talks: bool,
    ) -> Result<Registration, Refused> {
        let &RequestedName { ref model, ref version, process, is_nameless } = requested;
        let mut table = self.names.table.lock();
        let shared = if is_nameless { table.nameless(self.id) } else { None };
        let version = version.clone().or(shared).unwrap_or_else(|| table.free_version(self.id, model, process));
        let name = (model.clone(), version);
        if let Some((by, holder)) = table.holder(self.id, &name, is_nameless) {
            let silent = holder.as_ref().filter(|holder| talks && holder.last_line().elapsed() >= SILENT);
            let Some(silent) = silent else {
                let silent_at = holder.map(|holder| holder.last_line() + SILENT);
                let (model, version) = name;
                return Err(Refused::Taken { model, version, by, silent_at });
            };
            silent.evict();
            let pid = table.process(&name);
            let (model, version) = &name;
            tracing::warn!(model, %version, pid, "a silent publisher loses its name to another one; end the process if it hangs");
        }
        let inbox = match table.owners.get(&name) {
            Some(Owner::Publisher(engine)) => Arc::clone(&engine.inbox),
            _ if table.engines().count() >= MAX_ENGINES => return Err(Refused::TooMany),
            _ => {
                let ((inbox, queue), names) = (Inbox::new(), Arc::clone(&self.names));
                let joined = Joined { socket: self.id, name: name.clone(), names, inbox: Arc::clone(&inbox), queue };
                let _ = self.names.joined.send(joined);
                inbox
            }
        };
        self.names.log(&name, process, "publisher connected");
        let registration = Registration::new(&inbox, Some((Arc::clone(&self.names), name.clone(), process)));
        let publisher = Arc::downgrade(publisher);
        let engine = Published { socket: self.id, process, is_nameless, publisher, inbox };
        table.owners.insert(name, Owner::Publisher(engine));
        Ok(registration)
    }
}

impl Drop for Socket {
    /// Ends the engines of this socket.
    fn drop(&mut self) {
        let is_of_this = |owner: &Owner| matches!(owner, Owner::Publisher(engine) if engine.socket == self.id);
        self.names.table.lock().owners.retain(|_, owner| !is_of_this(owner));
    }
}

impl NameTable {
    /// The engines that publishers have named.
    fn engines(&self) -> impl Iterator<Item = (&Name, &Published)> {
        self.owners.iter().filter_map(|(name, owner)| match owner {
            Owner::Publisher(engine) => Some((name, engine)),
            Owner::Configured | Owner::Discovered => None,
        })
    }

    /// Who keeps a publisher on this socket from having the name now, and the connection that has it, if it may lose it.
    fn holder(&self, socket: u64, name: &Name, is_nameless: bool) -> Option<(&'static str, Option<Arc<Publisher>>)> {
        match self.owners.get(name)? {
            Owner::Discovered => Some(("an engine that was found", None)),
            Owner::Configured => Some(("an engine of the configuration", None)),
            Owner::Publisher(engine) if engine.socket != socket => Some(("an engine of another socket", None)),
            Owner::Publisher(engine) if engine.inbox.connections() == 0 => None,
            Owner::Publisher(engine) if engine.is_nameless => (!is_nameless).then_some(("another publisher", None)),
            Owner::Publisher(engine) => Some(("another publisher", engine.publisher.upgrade())),
        }
    }

    /// The process id that the last publisher of an engine has sent.
    fn process(&self, name: &Name) -> Option<u64> {
        self.engines().find(|(of, _)| *of == name).and_then(|(_, engine)| engine.process)
    }

    /// The version that this process had before, if it is free; otherwise the lowest free version.
    fn free_version(&self, socket: u64, model: &str, process: Option<u64>) -> String {
        let of_process = |((of, version), engine): (&Name, &Published)| {
            (of == model && process.is_some() && engine.process == process).then(|| version.clone())
        };
        let all = (1_u64..).map(|number| number.to_string());
        let mut versions = self.engines().filter_map(of_process).chain(all);
        let is_free = |version: &String| self.holder(socket, &(model.to_owned(), version.clone()), false).is_none();
        versions.find(is_free).unwrap_or_default()
    }

    /// The version of connections without a hello, if there are any.
    fn nameless(&self, socket: u64) -> Option<String> {
        let shared =
            |engine: &Published| engine.socket == socket && engine.is_nameless && engine.inbox.connections() > 0;
        self.engines().find(|(_, engine)| shared(engine)).map(|((_, version), _)| version.clone())
    }
}

/// Registers a connection at its engine until the `Registration` is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) inbox: Arc<Inbox>,
    /// `None` if the engine has a socket of its own.
    named: Option<(Arc<Names>, Name, Option<u64>)>,
}

impl Registration {
    /// Registers a connection at an engine that has a socket of its own.
    pub(super) fn alone(inbox: &Arc<Inbox>) -> Self {
        Self::new(inbox, None)
    }

    fn new(inbox: &Arc<Inbox>, named: Option<(Arc<Names>, Name, Option<u64>)>) -> Self {
        inbox.connection_opened();
        Self { inbox: Arc::clone(inbox), named }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let is_last = self.inbox.connection_closed();
        if let Some((names, name, process)) = self.named.as_ref().filter(|_| is_last) {
            names.log(name, *process, "the last publisher of the engine has left");
        }
    }
}

#[cfg(test)]
mod tests;
