//! Opens the sources and runs one poll driver per engine. Engines that publishers name join while the daemon runs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli::{Cli, DEFAULT_SOCKET};
use crate::config::{DEFAULT_MODEL, EngineConfig, SourceSpec};
use crate::poll::{Driver, DriverEvent, DriverEvents, End, Schedule};
use crate::shutdown::{self, Shutdown, Trigger};
use crate::sources::discovery::Finding;
#[cfg(feature = "executor")]
use crate::sources::executor::{ExecutorThread, hosting::Hosting};
use crate::sources::replay::Replay;
use crate::sources::server::Access;
use crate::sources::socket::{Admission, Ingest, Joined, Listener, NameTaken, Names, Naming};
use crate::sources::trtllm_serve::{Extras, TrtllmServe};
use crate::sources::{OpenError, Source};
use crate::state::{EngineName, EngineSlot, Place, State};
use crate::supervise::Heartbeats;

use super::discovered;

/// How long the first scrape waits for the initial polls. A scrape without the engines would look like idle engines.
const FIRST_POLLS: Duration = Duration::from_millis(200);

/// The poll drivers of all engines.
pub(super) struct Drivers {
    tasks: JoinSet<()>,
    /// As configured.
    sources: Vec<Running>,
    events: mpsc::UnboundedReceiver<DriverEvent>,
    /// Of sources that a reload has added. Their failure does not end the daemon.
    later: mpsc::UnboundedReceiver<DriverEvent>,
    joined: mpsc::UnboundedReceiver<Joined>,
    found: mpsc::UnboundedReceiver<Vec<Finding>>,
    engines_found: discovered::Engines,
    common: Common,
}

/// What all drivers share.
struct Common {
    schedule: Schedule,
    admission: Admission,
    state: Arc<State>,
    heartbeats: Arc<Heartbeats>,
    names: Arc<Names>,
    events: DriverEvents,
    later: DriverEvents,
    found: mpsc::UnboundedSender<Vec<Finding>>,
    forget_after: Duration,
}

/// A source that is being read.
struct Running {
    config: EngineConfig,
    place: Place,
    /// Of a socket whose publishers name their engines.
    socket: Option<u64>,
    trigger: Trigger,
    stop: Shutdown,
    /// Resolves when its tasks have ended.
    ended: Shutdown,
}

/// What is left of the sources that a reload has removed: a new source may need the path or the GPU of one of them.
type Leaving = Vec<Shutdown>;

/// How long a new source waits for those that a reload has removed.
const LEAVING: Duration = Duration::from_secs(10);

impl Drivers {
    /// Starts a driver per engine, which opens the source in its own task.
    pub(super) fn start(
        cli: &Cli,
        engines: Vec<EngineConfig>,
        admission: Admission,
        state: &Arc<State>,
        heartbeats: &Arc<Heartbeats>,
    ) -> Self {
        let schedule =
            Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
        let (sender, events) = mpsc::unbounded_channel();
        let (later_sender, later) = mpsc::unbounded_channel();
        let (joining, joined) = mpsc::unbounded_channel();
        let (finding, found) = mpsc::unbounded_channel();
        let forget_after = cli.forget_after;
        let names = Names::new(forget_after, joining);
        // No publisher has a name yet.
        let _ = names.configure(configured(&engines));
        let (state, heartbeats) = (Arc::clone(state), Arc::clone(heartbeats));
        let common = Common {
            schedule,
            admission,
            state,
            heartbeats,
            names,
            events: sender,
            later: later_sender,
            found: finding,
            forget_after,
        };
        let mut drivers = Self {
            tasks: JoinSet::new(),
            sources: Vec::new(),
            events,
            later,
            joined,
            found,
            engines_found: discovered::Engines::default(),
            common,
        };
        for (place, config) in engines.into_iter().enumerate() {
            let events = drivers.common.events.clone();
            drivers.add(place, config, Leaving::new(), events);
        }
        drivers
    }

    /// Starts, stops and keeps sources, so that those of `engines` run. Sources that stay the same keep their totals.
    ///
    /// # Errors
    /// If an engine that publishes on a socket has the name of one of them. Then nothing is changed.
    pub(super) fn reload(&mut self, engines: Vec<EngineConfig>) -> Result<(), NameTaken> {
        self.common.names.configure(configured(&engines))?;
        let mut before = std::mem::take(&mut self.sources);
        // A source that could not be opened is tried again.
        before.retain(|running| {
            !running.ended.has_begun() || {
                self.common.state.remove_all(&running.place);
                false
            }
        });
        let mut added = Vec::new();
        for (place, config) in engines.into_iter().enumerate() {
            match before.iter().position(|running| running.config == config) {
                Some(index) => {
                    let running = before.swap_remove(index);
                    running.place.set(place);
                    self.sources.push(running);
                }
                None => added.push((place, config)),
            }
        }
        let leaving: Leaving = before.iter().map(|running| running.ended.clone()).collect();
        if before.iter().any(|running| matches!(running.config.source, SourceSpec::Auto { .. })) {
            self.engines_found.end(&self.common.state, &self.common.names, |_| true);
            self.engines_found = discovered::Engines::default();
            self.common.state.discovery.store(Arc::default());
        }
        for running in &before {
            running.trigger.stop();
            self.common.state.remove_all(&running.place);
        }
        tracing::info!(
            added = added.len(),
            removed = before.len(),
            kept = self.sources.len(),
            "configuration reloaded"
        );
        for (place, config) in added {
            let events = self.common.later.clone();
            self.add(place, config, leaving.clone(), events);
        }
        self.common.state.sort();
        Ok(())
    }

    fn add(&mut self, place: usize, config: EngineConfig, leaving: Leaving, events: DriverEvents) {
        let (trigger, stop) = shutdown::channel();
        let (alive, ended) = shutdown::channel();
        let mut running = Running { place: Place::new(place), socket: None, trigger, stop, ended, config };
        let EngineConfig { name, source, .. } = &running.config;
        match source {
            SourceSpec::Socket(path) if running.config.names_its_engines => {
                let socket = self.common.names.socket(DEFAULT_MODEL);
                running.socket = Some(socket.id());
                let naming = Naming::ByPublishers(Arc::new(socket));
                let listening = listen(path.clone(), self.common.admission.clone(), naming, leaving);
                let is_default = running.config.is_default;
                let mut stop = running.stop.clone();
                self.tasks.spawn(async move {
                    let _alive = alive;
                    let listener = tokio::select! {
                        listener = listening => listener,
                        () = stop.wait() => return,
                    };
                    match listener {
                        Ok(_listener) => {
                            let _ = events.send(DriverEvent::FirstPoll);
                            stop.wait().await;
                        }
                        // Nobody asked for the default socket; GPU metrics work without it.
                        Err(error) if is_default => tracing::warn!(%error, "no default ingest socket"),
                        Err(error) => _ = events.send(DriverEvent::Failed(error)),
                    }
                });
            }
            SourceSpec::Auto { ports } => {
                let (ports, found, stop) = (ports.clone(), self.common.found.clone(), running.stop.clone());
                let _ = events.send(DriverEvent::FirstPoll);
                self.tasks.spawn(async move {
                    let _alive = alive;
                    discovered::search(ports, found, stop).await;
                });
            }
            _ => {
                let slot = self.common.state.add(&running.place, name.clone());
                let open = open(source.clone(), self.common.admission.clone(), leaving);
                self.drive(slot, open, running.stop.clone(), events, Some(alive));
            }
        }
        self.sources.push(running);
    }

    /// Runs the driver of an engine until it is stopped or the engine is gone.
    fn drive(
        &mut self,
        slot: Arc<EngineSlot>,
        open: impl Future<Output = Result<Source, OpenError>> + Send + 'static,
        stop: Shutdown,
        events: DriverEvents,
        alive: Option<Trigger>,
    ) {
        let Common { schedule, state, heartbeats, .. } = &self.common;
        let EngineName { model, version, .. } = &slot.name;
        let heartbeat = heartbeats.register(format!("the driver of engine {model} {version}"));
        let driver = Driver::new(Arc::clone(&slot), *schedule, events, heartbeat);
        let state = Arc::clone(state);
        self.tasks.spawn(async move {
            let _alive = alive;
            if driver.run(open, stop).await == End::Forgotten {
                let EngineName { model, version, .. } = &slot.name;
                tracing::info!(model, version, "engine forgotten: no publisher for --engine.forget-after");
                state.remove(&slot);
            }
        });
    }

    /// Starts the driver of an engine that a publisher has named.
    fn join(&mut self, joined: Joined) {
        let Some(running) = self.sources.iter().find(|running| running.socket == Some(joined.socket)) else { return };
        let SourceSpec::Socket(path) = &running.config.source else { return };
        let (model, version) = (joined.model.clone(), joined.version.clone());
        let name = EngineName { model, version, ..running.config.name.clone() };
        let slot = self.common.state.add(&running.place, name);
        let source = Source::Socket(Ingest::joined(path, joined));
        let (stop, events) = (running.stop.clone(), self.common.later.clone());
        self.drive(slot, std::future::ready(Ok(source)), stop, events, None);
    }

    /// Starts the drivers of engines that a search has found.
    fn found(&mut self, findings: Vec<Finding>) {
        let auto = self.sources.iter().find(|running| matches!(running.config.source, SourceSpec::Auto { .. }));
        // A reload may have removed it since.
        let Some(Running { config, place, .. }) = auto else { return };
        let (labels, place) = (config.name.clone(), place.clone());
        let taken = self.sources.iter().filter_map(|running| match &running.config.source {
            SourceSpec::TrtllmServe { access, .. } => Some(access.target.replace("//localhost:", "//127.0.0.1:")),
            _ => None,
        });
        let taken = taken.map(|target| target.replace("//[::1]:", "//127.0.0.1:")).collect();
        let Common { state, names, forget_after, .. } = &self.common;
        let (state, names, forget_after) = (Arc::clone(state), Arc::clone(names), *forget_after);
        let mut engines = std::mem::take(&mut self.engines_found);
        engines.update(findings, &taken, forget_after, (&state, &names), |target, model, version| {
            let name = EngineName { model: model.to_owned(), version, ..labels.clone() };
            let slot = state.add(&place, name);
            let access = Access { target: target.to_owned(), ca_file: None, bearer_token_file: None };
            let source = SourceSpec::TrtllmServe { access, extras: Extras::default() };
            let (trigger, stop) = shutdown::channel();
            let open = open(source, self.common.admission.clone(), Leaving::new());
            self.drive(Arc::clone(&slot), open, stop, self.common.later.clone(), None);
            (slot, trigger)
        });
        self.engines_found = engines;
    }

    /// Waits for the first polls, but not for an engine that hangs. A source that fails at once ends the start-up.
    pub(super) async fn first_polls(&mut self) -> Result<(), OpenError> {
        let deadline = tokio::time::Instant::now() + FIRST_POLLS;
        for _ in 0..self.sources.len() {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(DriverEvent::FirstPoll)) => {}
                Ok(Some(DriverEvent::Failed(error))) => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Starts drivers of engines that join. Resolves when a source cannot be opened after all.
    pub(super) async fn failure(&mut self) -> OpenError {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => match event {
                    DriverEvent::Failed(error) => return error,
                    DriverEvent::FirstPoll => {}
                },
                Some(event) = self.later.recv() => {
                    if let DriverEvent::Failed(error) = event {
                        self.common.state.config_reload.failed();
                        tracing::error!(%error, "a source of the new configuration cannot be opened; fix it and reload");
                    }
                }
                Some(joined) = self.joined.recv() => self.join(joined),
                Some(findings) = self.found.recv() => self.found(findings),
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// Stops all sources. An engine in this process gets a few seconds to stop.
    pub(super) async fn stop(mut self) {
        for running in &self.sources {
            running.trigger.stop();
        }
        self.engines_found = discovered::Engines::default();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Names that no publisher can have.
fn configured(engines: &[EngineConfig]) -> HashSet<(String, String)> {
    let named = engines.iter().filter(|engine| !engine.names_its_engines);
    named.map(|engine| (engine.name.model.clone(), engine.name.version.clone())).collect()
}

/// Without a configured source, engines can still publish to the default ingest socket.
pub(super) fn default_engine() -> EngineConfig {
    let path = Path::new(DEFAULT_SOCKET);
    if let Some(folder) = path.parent()
        && let Err(error) = std::fs::create_dir_all(folder)
    {
        tracing::debug!(%error, folder = %folder.display(), "cannot create the folder of the default ingest socket");
    }
    EngineConfig::default_socket(path)
}

/// Waits until removed sources have closed what they use.
async fn left(leaving: Leaving) {
    let all = async {
        for mut ended in leaving {
            ended.wait().await;
        }
    };
    let _ = tokio::time::timeout(LEAVING, all).await;
}

async fn listen(path: PathBuf, admission: Admission, naming: Naming, leaving: Leaving) -> Result<Listener, OpenError> {
    left(leaving).await;
    Listener::bind(&path, admission, naming).await
}

async fn open(source: SourceSpec, admission: Admission, leaving: Leaving) -> Result<Source, OpenError> {
    left(leaving).await;
    Ok(match source {
        SourceSpec::TrtllmServe { access, extras } => {
            Source::TrtllmServe(Box::new(TrtllmServe::open(access, extras).await?))
        }
        SourceSpec::Auto { .. } => {
            return Err(OpenError::Engine { engine: "auto".to_owned(), cause: "a search is no engine".to_owned() });
        }
        SourceSpec::Socket(path) => Source::Socket(Ingest::bind(&path, admission).await?),
        SourceSpec::Replay { path, pace } => Source::Replay(Replay::open(path, pace).await?),
        #[cfg(feature = "executor")]
        SourceSpec::Simulated(engine) => Source::Executor(ExecutorThread::start(Hosting::plain(engine))?),
        #[cfg(feature = "executor")]
        SourceSpec::Executor(hosting) => Source::Executor(ExecutorThread::start(*hosting)?),
        #[cfg(not(feature = "executor"))]
        SourceSpec::Simulated(engine) => {
            let cause = "this build has no Executor; build it with the feature \"executor\"".to_owned();
            return Err(OpenError::Engine { engine, cause });
        }
    })
}
