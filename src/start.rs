//! Starts the daemon's parts, waits for a signal and stops them. Nothing here blocks the runtime: while a name is looked up
//! or an engine loads its model, health is served and SIGTERM ends the process.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli::{Cli, DEFAULT_SOCKET};
use crate::config::{ConfigError, DEFAULT_MODEL, DEFAULT_VERSION, EngineConfig, SourceSpec};
use crate::gpu::{self, GpuConfig, GpuError, GpuHandle, GpuMode};
use crate::http::router::{self, Options};
use crate::http::server::Server;
use crate::listen::{self, Listener};
use crate::log;
use crate::metrics::own::HttpMetrics;
use crate::poll::{Driver, DriverEvent, Schedule};
use crate::shutdown::{self, GpuRequest, GpuSignals, Shutdown};
#[cfg(feature = "executor")]
use crate::sources::executor::{ExecutorThread, hosting::Hosting};
use crate::sources::{OpenError, Source, replay::Replay, socket::Ingest, trtllm_serve::TrtllmServe};
use crate::state::{EngineName, State};
use crate::web::config::WebConfigError;
use crate::web::{self, Acceptor, ReloadingConfig, reload};

/// How long the first scrape waits for the initial polls. A scrape without the engines would look like idle engines.
const FIRST_POLLS: Duration = Duration::from_millis(200);
/// How long NVML may take to shut down. A driver update waits for it.
const GPU_STOP: Duration = Duration::from_secs(1);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Source(#[from] OpenError),
    #[error(transparent)]
    Bind(#[from] listen::BindError),
    #[error(transparent)]
    WebConfig(#[from] WebConfigError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error("--web.port-file {}: {cause}; choose a path in a writable directory", path.display())]
    PortFile { path: PathBuf, cause: std::io::Error },
    #[error("system error: {0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// 2 for a usage or configuration error, 1 for anything else.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            // The simulated engine fails only because of its options.
            Self::Config(_) | Self::WebConfig(_) | Self::Source(OpenError::Engine { .. } | OpenError::Load { .. }) => 2,
            _ => 1,
        }
    }
}

/// The web configuration: what is current, and what its reloads need.
type Web = Option<(Arc<ReloadingConfig>, reload::Watch)>;

/// Runs the daemon until a signal stops it.
///
/// # Errors
/// When it cannot start.
pub fn run(cli: &Cli) -> Result<(), StartError> {
    cli.check()?;
    let engines = cli.engines()?;
    let web_file = cli.web_config_file.as_deref().filter(|path| !path.as_os_str().is_empty());
    let web = web_file.map(ReloadingConfig::read).transpose()?;
    let _log = log::init(cli.log_level, cli.log_format);
    // Two threads: one may parse a large answer of an engine while the other serves a scrape.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve(cli, engines, web));
    // A name look-up or a file system may hang on a blocking thread.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve(cli: &Cli, engines: Option<Vec<EngineConfig>>, web: Web) -> Result<(), StartError> {
    let mut signal = pin!(shutdown::signals()?);
    let mut gpu_signals = GpuSignals::new()?;
    let mut hangups = shutdown::hangups()?;
    let (trigger, stop) = shutdown::channel();
    let mut daemon = tokio::select! {
        daemon = start(cli, engines, web, stop) => daemon?,
        signal = &mut signal => {
            tracing::info!(signal, "stopped during start-up");
            return Ok(());
        }
    };
    let result = loop {
        tokio::select! {
            signal = &mut signal => {
                tracing::info!(signal, "stopping");
                break Ok(());
            }
            // The files of the web configuration are compared four times per second anyway.
            _ = hangups.recv() => tracing::info!("SIGHUP: web configuration files are read again when they change"),
            error = daemon.drivers.failure() => break Err(error.into()),
            request = gpu_signals.next() => match (&daemon.gpus, request) {
                (Some(gpus), GpuRequest::Release) => gpus.release(),
                (Some(gpus), GpuRequest::Resume) => gpus.resume(),
                (None, _) => {}
            }
        }
    };
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    trigger.stop();
    while daemon.servers.join_next().await.is_some() {}
    // An engine in this process gets a few seconds to stop.
    while daemon.drivers.tasks.join_next().await.is_some() {}
    if let Some(gpus) = daemon.gpus {
        gpus.stop(GPU_STOP);
    }
    result
}

/// What is stopped at the end, in this order.
struct Daemon {
    servers: JoinSet<()>,
    drivers: Drivers,
    gpus: Option<GpuHandle>,
}

async fn start(cli: &Cli, engines: Option<Vec<EngineConfig>>, web: Web, stop: Shutdown) -> Result<Daemon, StartError> {
    let listeners = match cli.systemd_socket {
        true => listen::from_systemd()?,
        false => listen::bind(&cli.listen_address, "--web.listen-address").await?,
    };
    let health_listeners = listen::bind(&cli.health_addresses()?, "--web.health-address").await?;
    let addresses = |of: &[Listener]| -> Vec<String> {
        of.iter().filter_map(Listener::address).map(|address| address.to_string()).collect()
    };
    let (addresses, health_addresses) = (addresses(&listeners), addresses(&health_listeners));

    let engines = engines.unwrap_or_else(|| vec![default_engine()]);
    let state = Arc::new(State::new(engines.iter().map(|engine| engine.name.clone()).collect()));
    let mut drivers = Drivers::start(cli, engines, &state, &stop);
    tokio::spawn(Arc::clone(&state).keep_fresh(stop.clone()));
    let (pages, tls) = pages(cli, &state, web, listeners);
    let (router, metrics) = (router::health(&state, &pages.metrics), Arc::clone(&pages.metrics));
    let mut servers = JoinSet::new();
    servers.spawn(Server { listeners: health_listeners, router, tls: None, metrics }.run(stop.clone()));
    drivers.first_polls().await?;
    servers.spawn(pages.run(stop));
    let gpus = start_gpus(cli, &state).await?;

    // A script waits for this file: it must not appear before a start-up that fails.
    if let Some(path) = &cli.port_file {
        write_atomically(path, &addresses).map_err(|cause| StartError::PortFile { path: path.clone(), cause })?;
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "trtllm-exporter started");
    for address in &addresses {
        tracing::info!(%address, path = %cli.telemetry_path, tls, "listening");
    }
    for address in health_addresses {
        tracing::info!(%address, "listening for health checks");
    }
    // Without systemd this does nothing.
    let status = format!("listening on {}", addresses.join(", "));
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    Ok(Daemon { servers, drivers, gpus })
}

/// The server of all pages, and whether it uses TLS.
fn pages(cli: &Cli, state: &Arc<State>, web: Web, listeners: Vec<Listener>) -> (Server, bool) {
    let metrics = Arc::new(HttpMetrics::new());
    let options = Options {
        telemetry_path: cli.telemetry_path.clone(),
        compat: cli.compat_sets(),
        max_requests: cli.max_requests,
    };
    let mut router = router::all(state, options, &metrics);
    let mut tls = None;
    if let Some((config, watch)) = web {
        tls = Acceptor::new(&config);
        router = web::protect(router, Arc::clone(&config), Arc::clone(&metrics));
        tokio::spawn(config.watch(watch));
    }
    let uses_tls = tls.is_some();
    (Server { listeners, router, tls, metrics }, uses_tls)
}

/// The poll drivers of all engines.
struct Drivers {
    tasks: JoinSet<()>,
    events: mpsc::UnboundedReceiver<DriverEvent>,
}

impl Drivers {
    /// Starts a driver per engine, which opens the source in its own task.
    fn start(cli: &Cli, engines: Vec<EngineConfig>, state: &Arc<State>, stop: &Shutdown) -> Self {
        let schedule =
            Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (index, EngineConfig { name, source }) in engines.into_iter().enumerate() {
            let (state, stop, sender) = (Arc::clone(state), stop.clone(), sender.clone());
            tasks.spawn(async move {
                let driver = Driver::new(index, name.model, schedule, state, sender);
                if !name.implicit {
                    return driver.run(open(source), stop).await;
                }
                // Nobody asked for the default socket; GPU metrics work without it.
                match open(source).await {
                    Ok(source) => driver.run(std::future::ready(Ok(source)), stop).await,
                    Err(error) => tracing::warn!(%error, "no default ingest socket"),
                }
            });
        }
        Self { tasks, events }
    }

    /// Waits for the first polls, but not for an engine that hangs. A source that fails at once ends the start-up.
    async fn first_polls(&mut self) -> Result<(), OpenError> {
        let deadline = tokio::time::Instant::now() + FIRST_POLLS;
        for _ in 0..self.tasks.len() {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(DriverEvent::FirstPoll)) => {}
                Ok(Some(DriverEvent::Failed(error))) => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Resolves when a source cannot be opened after all.
    async fn failure(&mut self) -> OpenError {
        loop {
            match self.events.recv().await {
                Some(DriverEvent::Failed(error)) => return error,
                Some(DriverEvent::FirstPoll) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Without a configured source, an engine can still publish to the default ingest socket.
fn default_engine() -> EngineConfig {
    let name = EngineName {
        model: DEFAULT_MODEL.to_owned(),
        version: DEFAULT_VERSION.to_owned(),
        labels: Vec::new(),
        source: "socket",
        implicit: true,
    };
    let path = Path::new(DEFAULT_SOCKET);
    if let Some(folder) = path.parent()
        && let Err(error) = std::fs::create_dir_all(folder)
    {
        tracing::debug!(%error, folder = %folder.display(), "cannot create the folder of the default ingest socket");
    }
    EngineConfig { name, source: SourceSpec::Socket(path.to_owned()) }
}

async fn open(source: SourceSpec) -> Result<Source, OpenError> {
    Ok(match source {
        SourceSpec::TrtllmServe { target, extras } => Source::TrtllmServe(TrtllmServe::new(target, extras)),
        SourceSpec::Socket(path) => Source::Socket(Ingest::bind(&path).await?),
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

async fn start_gpus(cli: &Cli, state: &Arc<State>) -> Result<Option<GpuHandle>, StartError> {
    if cli.gpu == GpuMode::Off {
        return Ok(None);
    }
    let config = GpuConfig {
        mode: cli.gpu,
        library: cli.gpu_library.clone(),
        interval: cli.gpu_interval,
        uuids: cli.gpu_uuid.clone(),
        per_process: cli.gpu_processes,
        pod_resources: Some(&cli.gpu_pod_resources).filter(|path| !path.is_empty()).map(PathBuf::from),
        ..GpuConfig::default()
    };
    let state = Arc::clone(state);
    // With --gpu required this waits for the driver.
    let start = move || gpu::start(config, move |inventory| state.publish_gpus(inventory));
    let started = tokio::task::spawn_blocking(start).await.map_err(std::io::Error::other)?;
    Ok(Some(started?))
}

/// A reader never sees a partial file.
fn write_atomically(path: &Path, lines: &[String]) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, lines.join("\n") + "\n")?;
    std::fs::rename(&part, path)
}
