//! Starts the daemon's parts, waits for a signal and stops them. Nothing here blocks the runtime: while a name is looked up
//! or an engine loads its model, health is served and SIGTERM ends the process.

use std::convert::Infallible;
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
use crate::http::listen::{self, Listener};
use crate::http::router::{self, Options};
use crate::http::server::Server;
use crate::log;
use crate::metrics::own::HttpMetrics;
use crate::poll::{Driver, FirstPoll, Schedule};
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
    log::init(cli.log_level, cli.log_format);
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
    let (trigger, stop) = shutdown::channel();
    let Daemon { mut servers, gpus } = tokio::select! {
        daemon = start(cli, engines, web, stop) => daemon?,
        signal = &mut signal => {
            tracing::info!(signal, "stopped during start-up");
            return Ok(());
        }
    };
    let signal = loop {
        tokio::select! {
            signal = &mut signal => break signal,
            request = gpu_signals.next() => match (&gpus, request) {
                (Some(gpus), GpuRequest::Release) => gpus.release(),
                (Some(gpus), GpuRequest::Resume) => gpus.resume(),
                (None, _) => {}
            }
        }
    };
    tracing::info!(signal, "stopping");
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    trigger.stop();
    while servers.join_next().await.is_some() {}
    if let Some(gpus) = gpus {
        gpus.stop(GPU_STOP);
    }
    Ok(())
}

/// What must be stopped in order; pollers end by themselves.
struct Daemon {
    servers: JoinSet<()>,
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
    if let Some(path) = &cli.port_file {
        write_atomically(path, &addresses).map_err(|cause| StartError::PortFile { path: path.clone(), cause })?;
    }

    let engines = engines.unwrap_or_else(|| vec![default_engine()]);
    let state = Arc::new(State::new(engines.iter().map(|engine| engine.name.clone()).collect()));
    let (first, first_polls) = mpsc::channel(1);
    let (pages, tls) = pages(cli, &state, web, listeners);
    let health = Server {
        listeners: health_listeners,
        router: router::health(&state, &pages.metrics),
        tls: None,
        metrics: Arc::clone(&pages.metrics),
    };
    let mut servers = JoinSet::new();
    servers.spawn(health.run(stop.clone()));
    servers.spawn(serve_after_first_polls(pages, first_polls, stop.clone()));
    tokio::spawn(Arc::clone(&state).keep_fresh(stop.clone()));

    let gpus = start_gpus(cli, &state).await?;
    start_engines(cli, engines, &state, &stop, first).await?;

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
    Ok(Daemon { servers, gpus })
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

async fn serve_after_first_polls(pages: Server, mut first_polls: mpsc::Receiver<Infallible>, stop: Shutdown) {
    // Receives nothing: the channel closes when all engines have been polled once.
    let _ = tokio::time::timeout(FIRST_POLLS, first_polls.recv()).await;
    pages.run(stop).await;
}

/// Opens the sources and starts a poll driver for each.
async fn start_engines(
    cli: &Cli,
    engines: Vec<EngineConfig>,
    state: &Arc<State>,
    stop: &Shutdown,
    first: FirstPoll,
) -> Result<(), StartError> {
    let schedule = Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
    for (index, EngineConfig { name, source }) in engines.into_iter().enumerate() {
        let source = match open(source).await {
            Ok(source) => source,
            // Nobody asked for the default socket; GPU metrics work without it.
            Err(error) if name.implicit => {
                tracing::warn!(%error, "no default ingest socket");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (state, stop, first) = (Arc::clone(state), stop.clone(), first.clone());
        // The driver is constructed in its own task, in parallel with the first page.
        tokio::spawn(async move { Driver::new(index, name.model, schedule, state).run(source, stop, first).await });
    }
    Ok(())
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
        SourceSpec::Socket(path) => Source::Socket(Ingest::bind(&path)?),
        SourceSpec::Replay { path, pace } => Source::Replay(Replay::open(&path, pace)?),
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
