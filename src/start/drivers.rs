//! Opens the sources and runs one poll driver per engine. Publishers and searches can add engines while the daemon runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli::Cli;
use trtllm_config::{DEFAULT_MODEL, EngineConfig, SourceSpec, local_port, server_key};
use trtllm_engines::{EngineOrigin, EngineSlot, SourceIndex, State};
use trtllm_intake::Intake;
use trtllm_intake::poll::{Driver, DriverEvent, DriverEvents, End, Schedule};
use trtllm_page::metrics::catalog::not_read::unknown_keys;
use trtllm_recording::recorder::Recorder;
use trtllm_records::gpu::PodName;
use trtllm_records::{BenchReport, EngineName};
use trtllm_service::shutdown::{self, Shutdown, Trigger};
use trtllm_service::supervise::Heartbeats;
use trtllm_sources::discovery::{FoundPod, FoundServer};
use trtllm_sources::server::Access;
use trtllm_sources::socket::{Ending, Ingest, IngestListener, Joined, NameTaken, Names, Naming};
use trtllm_sources::trtllm_serve::Extras;
use trtllm_sources::{OpenError, Source, orchestrator};

use super::discovered::{self, Discovered, FoundKind};
use super::opening::{self, IngestSockets, Leaving};

/// How long the first scrape waits for the initial polls. In a scrape without their data, the engines would look idle.
const FIRST_POLLS: Duration = Duration::from_millis(200);

/// The poll drivers of all engines.
pub(super) struct Drivers {
    tasks: JoinSet<()>,
    /// One for each source of the configuration.
    sources: Vec<RunningSource>,
    schedule: Schedule,
    stale_after: Duration,
    sockets: IngestSockets,
    state: Arc<State>,
    heartbeats: Arc<Heartbeats>,
    recorder: Option<Arc<Recorder>>,
    forget_after: Duration,
    names: Arc<Names>,
    engines_found: discovered::Engines,
    known: discovered::Known,
    /// Events of the sources that the daemon started with. A failure ends the daemon.
    events: mpsc::UnboundedReceiver<DriverEvent>,
    /// Keeps `events` open after all drivers of these sources have ended.
    _events: DriverEvents,
    /// Events of the sources and engines that joined later. A failure does not end the daemon.
    later_events: mpsc::UnboundedReceiver<DriverEvent>,
    later: DriverEvents,
    joined: mpsc::UnboundedReceiver<Joined>,
    found: mpsc::UnboundedReceiver<Vec<FoundServer>>,
    searches: mpsc::UnboundedSender<Vec<FoundServer>>,
}

/// A source that is being read.
struct RunningSource {
    config: EngineConfig,
    index: SourceIndex,
    /// The id of a socket whose publishers name their engines.
    socket: Option<u64>,
    trigger: Trigger,
    stop: Shutdown,
    /// Signals that all tasks of the source have ended.
    ended: Shutdown,
}

impl RunningSource {
    /// Whether a search finds the engines of the source.
    fn is_search(&self) -> bool {
        matches!(self.config.source, SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_))
    }

    /// True if the source still runs, and `engines`, a new configuration, contains it unchanged.
    fn stays(&self, engines: &[EngineConfig]) -> bool {
        !self.ended.has_begun() && engines.contains(&self.config)
    }
}

impl Drivers {
    /// Starts a driver per engine, which opens the source in its own task.
    pub(super) fn start(
        cli: &Cli,
        engines: Vec<EngineConfig>,
        (sockets, recorder): (IngestSockets, Option<Arc<Recorder>>),
        state: &Arc<State>,
        heartbeats: &Arc<Heartbeats>,
    ) -> Self {
        for engine in engines.iter().filter(|engine| engine.is_default) {
            create_folder(&engine.source);
        }
        let (start, events) = mpsc::unbounded_channel();
        let (later, later_events) = mpsc::unbounded_channel();
        let (joining, joined) = mpsc::unbounded_channel();
        let (searches, found) = mpsc::unbounded_channel();
        let names = Names::new(cli.forget_after, joining);
        // This cannot fail, because no other engine has a name yet.
        let _ = names.configure(configured(&engines), &Ending::default());
        let mut drivers = Self {
            tasks: JoinSet::new(),
            sources: Vec::new(),
            schedule: Schedule { interval: cli.poll.interval, timeout: cli.poll.timeout },
            stale_after: cli.poll.stale_after,
            sockets,
            state: Arc::clone(state),
            heartbeats: Arc::clone(heartbeats),
            recorder,
            forget_after: cli.forget_after,
            names,
            engines_found: discovered::Engines::default(),
            known: discovered::Known::default(),
            events,
            _events: start.clone(),
            later_events,
            later,
            joined,
            found,
            searches,
        };
        for (index, config) in engines.into_iter().enumerate() {
            drivers.add(index, config, Leaving::new(), start.clone());
        }
        drivers
    }

    /// Starts and stops sources, so that those of `engines` run. Sources that stay the same keep their totals. Changes nothing and
    /// fails if a new engine has the name that a publisher or a search gave to an engine that stays.
    pub(super) fn reload(&mut self, engines: Vec<EngineConfig>) -> Result<(), NameTaken> {
        let read = servers(engines.iter());
        let has_search = self.sources.iter().any(|running| running.is_search() && running.stays(&engines));
        let superseded = |engine: &Discovered| !has_search || read.contains(&server_key(&engine.target));
        let sockets = self.sources.iter().filter(|running| !running.stays(&engines));
        let ending = Ending {
            sockets: sockets.filter_map(|running| running.socket).collect(),
            discovered: self.engines_found.names(superseded),
        };
        self.names.configure(configured(&engines), &ending)?;
        self.engines_found.end(&self.state, &self.names, superseded);
        if !has_search {
            self.engines_found = discovered::Engines::default();
            self.state.discovery.lock().clear();
        }
        let mut before = std::mem::take(&mut self.sources);
        // A source that could not be opened has ended. It is removed here, and started again below.
        before.retain(|running| {
            !running.ended.has_begun() || {
                self.state.remove_all(&running.index);
                false
            }
        });
        let mut added = Vec::new();
        for (index, config) in engines.into_iter().enumerate() {
            match before.iter().position(|running| running.config == config) {
                Some(at) => {
                    let running = before.swap_remove(at);
                    running.index.set(index);
                    self.sources.push(running);
                }
                None => added.push((index, config)),
            }
        }
        let leaving: Leaving = before.iter().map(|running| running.ended.clone()).collect();
        for running in &before {
            running.trigger.stop();
            self.state.remove_all(&running.index);
        }
        tracing::info!(
            added = added.len(),
            removed = before.len(),
            kept = self.sources.len(),
            "configuration reloaded"
        );
        for (index, config) in added {
            let events = self.later.clone();
            self.add(index, config, leaving.clone(), events);
        }
        self.state.sort();
        Ok(())
    }

    fn add(&mut self, index: usize, config: EngineConfig, leaving: Leaving, events: DriverEvents) {
        let (trigger, stop) = shutdown::channel();
        let (alive, ended) = shutdown::channel();
        let mut running = RunningSource { index: SourceIndex::new(index), socket: None, trigger, stop, ended, config };
        let sockets = self.sockets.clone();
        let open = match running.config.source.clone() {
            SourceSpec::Socket(path) if running.config.names_its_engines => {
                let socket = self.names.socket(DEFAULT_MODEL);
                running.socket = Some(socket.id());
                let listening = opening::listen(path, sockets, Naming::ByPublishers(Arc::new(socket)), leaving);
                self.accept(listening, running.stop.clone(), events, alive, running.config.is_default);
                return self.sources.push(running);
            }
            SourceSpec::Auto { ports } => {
                let (known, found, stop) = (Arc::clone(&self.known), self.searches.clone(), running.stop.clone());
                let _ = events.send(DriverEvent::FirstPoll);
                self.tasks.spawn(async move {
                    let _alive = alive;
                    discovered::search(ports, known, found, stop).await;
                });
                return self.sources.push(running);
            }
            SourceSpec::Kubernetes(selection) => {
                #[cfg(not(feature = "kubernetes"))]
                {
                    let cause = "this build has no such source; build it with --features kubernetes".to_owned();
                    drop((selection, alive));
                    let _ = events.send(DriverEvent::Failed(OpenError::Kubernetes { cause }));
                }
                #[cfg(feature = "kubernetes")]
                {
                    let (found, stop) = (self.searches.clone(), running.stop.clone());
                    let _ = events.send(DriverEvent::FirstPoll);
                    self.tasks.spawn(async move {
                        let _alive = alive;
                        discovered::follow_pods(&selection, found, stop).await;
                    });
                }
                return self.sources.push(running);
            }
            source => opening::open(source, sockets, leaving),
        };
        let EngineConfig { name, gpu_hour_cost, bench_report: report, .. } = running.config.clone();
        let slot = self.state.add(&running.index, name, running.config.origin(), gpu_hour_cost);
        self.drive(slot, report, open, running.stop.clone(), events, Some(alive));
        self.sources.push(running);
    }

    /// Accepts publishers that name their engines, until it is stopped.
    fn accept(
        &mut self,
        listening: impl Future<Output = Result<IngestListener, OpenError>> + Send + 'static,
        mut stop: Shutdown,
        events: DriverEvents,
        alive: Trigger,
        is_default: bool,
    ) {
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
                Err(error) if is_default => {
                    tracing::warn!(%error, "no default ingest socket; GPU metrics work without it")
                }
                Err(error) => _ = events.send(DriverEvent::Failed(error)),
            }
        });
    }

    /// Runs the driver of an engine until it is stopped or the engine is forgotten.
    fn drive(
        &mut self,
        slot: Arc<EngineSlot>,
        report: Option<Arc<BenchReport>>,
        open: impl Future<Output = Result<Source, OpenError>> + Send + 'static,
        stop: Shutdown,
        events: DriverEvents,
        alive: Option<Trigger>,
    ) {
        let heartbeat = self.heartbeats.register(format!("the driver of engine {}", slot.name.words()));
        let stale_after = match slot.name.source {
            // An orchestrator is polled less often. One late poll must not make it stale.
            "trtllm-disagg" => self.stale_after.max(3 * orchestrator::INTERVAL),
            _ => self.stale_after,
        };
        let mut intake = Intake::new(Arc::clone(&slot), stale_after);
        intake.find_unknown_keys_with(unknown_keys);
        slot.lock().source.bench_report = report;
        if let Some(recorder) = &self.recorder {
            intake.record_to(recorder.engine(&slot.name));
        }
        let driver = Driver::new(intake, self.schedule, events, heartbeat);
        let state = Arc::clone(&self.state);
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
        let (model, version) = joined.name.clone();
        let name = EngineName { model, version, ..running.config.name.clone() };
        let slot = self.state.add(&running.index, name, EngineOrigin::default(), running.config.gpu_hour_cost);
        let source = Source::Socket(Ingest::joined(path, joined));
        let report = running.config.bench_report.clone();
        let (stop, events) = (running.stop.clone(), self.later.clone());
        self.drive(slot, report, std::future::ready(Ok(source)), stop, events, None);
    }

    /// Starts the drivers of engines that a search has found.
    fn found(&mut self, findings: Vec<FoundServer>) {
        // A reload may have removed the source since the search.
        let Some(RunningSource { config, index, .. }) = self.sources.iter().find(|running| running.is_search()) else {
            return;
        };
        let (labels, report, index) = (config.name.clone(), config.bench_report.clone(), index.clone());
        let cost = config.gpu_hour_cost;
        let search = if matches!(config.source, SourceSpec::Auto { .. }) { "auto" } else { "kubernetes" };
        let taken = servers(self.sources.iter().map(|running| &running.config));
        let (state, names, forget_after) = (Arc::clone(&self.state), Arc::clone(&self.names), self.forget_after);
        let mut engines = std::mem::take(&mut self.engines_found);
        engines.update(findings, &taken, forget_after, (&state, &names, search), |target, kind, pod, version| {
            let access = Access { target: target.to_owned(), ca_file: None, bearer_token_file: None };
            let (source, report) = match kind {
                FoundKind::Engine(_) => (SourceSpec::TrtllmServe { access, extras: Extras::default() }, report.clone()),
                FoundKind::Orchestrator => (SourceSpec::Orchestrator(access), None),
            };
            let (model, source_kind) = (kind.model().to_owned(), source.kind());
            let mut name = EngineName { model, version, source: source_kind, ..labels.clone() };
            if let Some(FoundPod { name: PodName { namespace, pod }, node, replica, .. }) = pod {
                let of_pod = [("namespace", namespace), ("pod", pod), ("node", node), ("replica", replica)];
                name.labels.extend(of_pod.map(|(label, value)| (label.to_owned(), value.clone())));
            }
            let open = opening::open(source, self.sockets.clone(), Leaving::new());
            let (port, pod) = (local_port(target), pod.map(|pod| pod.name.clone()));
            let origin = EngineOrigin { port, pod, is_found: true, ..EngineOrigin::default() };
            let slot = state.add(&index, name, origin, cost);
            let (trigger, stop) = shutdown::channel();
            self.drive(Arc::clone(&slot), report, open, stop, self.later.clone(), None);
            (slot, trigger)
        });
        *self.known.lock() = engines.targets();
        self.engines_found = engines;
    }

    /// Waits for the first poll of each source, at most `FIRST_POLLS`. Fails if a source fails meanwhile.
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

    /// Starts the drivers of engines that are added. Returns when opening a source that the daemon started with has failed.
    pub(super) async fn failure(&mut self) -> OpenError {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => match event {
                    DriverEvent::Failed(error) => return error,
                    DriverEvent::FirstPoll => {}
                },
                Some(event) = self.later_events.recv() => {
                    if let DriverEvent::Failed(error) = event {
                        *self.state.config_reload.lock() = Some(false);
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

/// The [keys](server_key) of the servers of these engines.
fn servers<'a>(engines: impl Iterator<Item = &'a EngineConfig>) -> HashSet<String> {
    let targets = engines.filter_map(|engine| match &engine.source {
        SourceSpec::TrtllmServe { access, .. } | SourceSpec::Orchestrator(access) => Some(&access.target),
        _ => None,
    });
    targets.map(|target| server_key(target)).collect()
}

/// The configured names. No publisher may use one of them.
fn configured(engines: &[EngineConfig]) -> HashSet<(String, String)> {
    let named = engines.iter().filter(|engine| !engine.names_its_engines);
    named.map(|engine| (engine.name.model.clone(), engine.name.version.clone())).collect()
}

/// Creates the folder of the default ingest socket. Users create the folder of a socket that they configure.
fn create_folder(source: &SourceSpec) {
    if let SourceSpec::Socket(path) = source
        && let Some(folder) = path.parent()
        && let Err(error) = std::fs::create_dir_all(folder)
    {
        tracing::debug!(%error, folder = %folder.display(), "cannot create the folder of the default ingest socket");
    }
}
