//! Wiring and exit codes, nothing else: 0 stopped by a signal, 1 could not start, 2 usage or configuration.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trtllm_exporter::cli::{Cli, Command, DEFAULT_SOCKET};
use trtllm_exporter::config::{ConfigError, EngineConfig, SourceSpec};
use trtllm_exporter::gpu::{self, GpuConfig, GpuError, GpuMode};
use trtllm_exporter::http::gate::Gate;
use trtllm_exporter::http::listen::{self, Address, Listener};
use trtllm_exporter::http::reload::Live;
use trtllm_exporter::http::web_config::WebConfigError;
use trtllm_exporter::http::{router, serve};
use trtllm_exporter::metrics::exporter::PageCounts;
use trtllm_exporter::poll::{Driver, DriverEvent, Schedule};
#[cfg(feature = "executor")]
use trtllm_exporter::sources::executor::{self, ExecutorThread, hosting::Hosting};
use trtllm_exporter::sources::{OpenError, Source, replay::Replay, socket::Ingest, trtllm_serve::TrtllmServe};
use trtllm_exporter::state::{EngineName, State};
use trtllm_exporter::{cli, heap, log, shutdown, tools};

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
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
    #[error("--web.port-file {}: {cause}", path.display())]
    PortFile { path: PathBuf, cause: std::io::Error },
    #[error("cannot run: {0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    fn exit_code(&self) -> u8 {
        match self {
            // The simulated engine refuses nothing but its options.
            Self::Config(_) | Self::WebConfig(_) | Self::Source(OpenError::Engine { .. } | OpenError::Load { .. }) => 2,
            _ => 1,
        }
    }
}

/// How long the first answer waits for the sources' first polls: not for an engine that hangs.
const FIRST_POLLS: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    // Before there is a thread.
    heap::set_up();
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::CheckConfig { file }) => tools::check_config::run(file).map_err(StartError::from),
        Some(Command::Catalog { format }) => {
            tools::catalog::run(*format);
            Ok(())
        }
        None => start(&cli),
    };
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            #[allow(clippy::print_stderr)] // Before logging is set up, and the one message a caller reads.
            {
                eprintln!("trtllm-exporter: {error}");
            }
            error.exit_code()
        }
    };
    #[cfg(feature = "executor")]
    if executor::is_any_running() {
        executor::exit_now(code);
    }
    ExitCode::from(code)
}

/// Opens a source in its driver's task.
type Opening = Pin<Box<dyn Future<Output = Result<Source, OpenError>> + Send>>;

fn start(cli: &Cli) -> Result<(), StartError> {
    cli.check()?;
    let engines = cli.engines()?;
    let config_file = cli.web_config_file.as_deref().filter(|path| !path.as_os_str().is_empty());
    let terms = config_file.map_or_else(|| Ok(Live::open_to_all()), Live::read)?;
    log::init(cli.log_level, cli.log_format);
    // Two threads: one may be parsing a large answer while the other serves a scrape.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run(cli, engines, terms));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(cli: &Cli, engines: Option<Vec<EngineConfig>>, terms: Live) -> Result<(), StartError> {
    let stop_signal = shutdown::signals()?;
    let (listeners, health) = listeners(cli).await?;
    let sources = match engines {
        Some(engines) => engines.into_iter().map(|engine| (engine.name, open_source(engine.source))).collect(),
        None => default_engine().await,
    };
    let names: Vec<EngineName> = sources.iter().map(|(name, _)| name.clone()).collect();
    let state = Arc::new(State::new(names));
    let (trigger, stop) = shutdown::channel();

    let schedule = Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
    let (events, mut driver_events) = mpsc::unbounded_channel();
    let mut first_polls = sources.len();
    let mut drivers = JoinSet::new();
    for (index, (name, source)) in sources.into_iter().enumerate() {
        let (state, stop, events) = (Arc::clone(&state), stop.clone(), events.clone());
        // Created in its task: the page is built while the first poll runs.
        drivers.spawn(async move { Driver::new(index, name.model, schedule, state, events).run(source, stop).await });
    }
    // Peers can connect already. Local engines answer within milliseconds, and a first scrape without their numbers would
    // look like engines without statistics. A source that fails at once ends the start-up.
    let deadline = tokio::time::Instant::now() + FIRST_POLLS;
    while first_polls > 0 {
        match tokio::time::timeout_at(deadline, driver_events.recv()).await {
            Ok(Some(DriverEvent::FirstPoll)) => first_polls -= 1,
            Ok(Some(DriverEvent::Failed(error))) => return Err(error.into()),
            Ok(None) | Err(_) => break,
        }
    }
    let gpus = start_gpus(cli, &state)?;
    tokio::spawn(Arc::clone(&state).keep_fresh(stop.clone()));

    let counts = Arc::new(PageCounts::new());
    let pages = router::all(Arc::clone(&state), &cli.telemetry_path, cli.compat_sets(), Arc::clone(&counts));
    let addresses: Vec<String> =
        listeners.iter().filter_map(Listener::address).map(|address| address.to_string()).collect();
    let health_addresses: Vec<_> = health.iter().filter_map(Listener::address).collect();
    let tls = terms.tls();
    let gates = vec![
        (listeners, Gate::new(pages, terms, Arc::clone(&counts), cli.max_requests)),
        // Whoever asks for health has no password, and no certificate.
        (health, Gate::new(router::health(state), Live::open_to_all(), counts, 0)),
    ];
    let server = tokio::spawn(serve::serve(gates, stop));
    // Before anybody is told that it runs: without a handler either signal would end it.
    let hold_gpus = shutdown::gpu_signals(|hold| match (&gpus, hold) {
        (Some(gpus), true) => gpus.resume(),
        (Some(gpus), false) => gpus.release(),
        (None, _) => {}
    })?;
    if let Some(path) = &cli.port_file {
        write_whole(path, &addresses).map_err(|cause| StartError::PortFile { path: path.clone(), cause })?;
    }
    // Only now: one that could not start says why and nothing else.
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "trtllm-exporter starts");
    for address in &addresses {
        tracing::info!(%address, path = cli.telemetry_path, tls, "serving");
    }
    for address in health_addresses {
        tracing::info!(%address, "serving health");
    }
    // Without a service manager this does nothing.
    let status = format!("serving on {}", addresses.join(", "));
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status(&status)]);

    let failure = async {
        loop {
            match driver_events.recv().await {
                Some(DriverEvent::Failed(error)) => return error,
                Some(DriverEvent::FirstPoll) => {}
                None => std::future::pending().await,
            }
        }
    };
    let result = tokio::select! {
        signal = stop_signal => {
            tracing::info!(signal, "stopping");
            Ok(())
        }
        error = failure => Err(error.into()),
        never = hold_gpus => match never {},
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    trigger.stop();
    let _ = server.await;
    // An engine of this process gets a few seconds to stop.
    while drivers.join_next().await.is_some() {}
    if let Some(gpus) = gpus {
        // NVML must be let go within a second, or a driver update waits for us.
        gpus.stop(Duration::from_secs(1));
    }
    result
}

/// Those for everything, and those for health alone.
async fn listeners(cli: &Cli) -> Result<(Vec<Listener>, Vec<Listener>), StartError> {
    let address = |at| match at {
        cli::ListenAt::Tcp(address) => Address::Tcp(address),
        cli::ListenAt::Unix(path) => Address::Unix(path),
    };
    let addresses = |found: Vec<cli::ListenAt>| found.into_iter().map(address).collect::<Vec<_>>();
    let (all, health) = (addresses(cli.addresses()?), addresses(cli.health_addresses()?));
    let listeners = match cli.systemd_socket {
        true => listen::handed_over()?,
        false => listen::bind(&all, "--web.listen-address").await?,
    };
    Ok((listeners, listen::bind(&health, "--web.health-address").await?))
}

/// Nothing configured: an engine may still join through the socket. That it cannot be bound is no reason to withhold the
/// GPUs.
async fn default_engine() -> Vec<(EngineName, Opening)> {
    let path = Path::new(DEFAULT_SOCKET);
    match path.parent().map_or(Ok(()), std::fs::create_dir_all) {
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "no ingest socket; name one with --source socket:PATH")
        }
        Ok(()) => match Ingest::bind(path).await {
            Err(error) => tracing::warn!(%error, "no ingest socket"),
            Ok(socket) => {
                tracing::info!(path = %path.display(), "no --source: waiting for an engine on the ingest socket");
                let name = EngineName {
                    model: "tensorrt_llm".to_owned(),
                    version: "1".to_owned(),
                    labels: Vec::new(),
                    source: "socket",
                    implicit: true,
                };
                return vec![(name, Box::pin(async { Ok(Source::Socket(socket)) }))];
            }
        },
    }
    Vec::new()
}

fn open_source(spec: SourceSpec) -> Opening {
    Box::pin(async move {
        Ok(match spec {
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
    })
}

fn start_gpus(cli: &Cli, state: &Arc<State>) -> Result<Option<gpu::GpuHandle>, GpuError> {
    let mode = match cli.gpu {
        cli::GpuMode::Off => return Ok(None),
        cli::GpuMode::Auto => GpuMode::Auto,
        cli::GpuMode::Required => GpuMode::Required,
    };
    let config = GpuConfig {
        mode,
        library: cli.gpu_library.clone(),
        interval: cli.gpu_interval,
        uuids: cli.gpu_uuid.clone(),
        per_process: cli.gpu_processes,
        pod_resources: Some(&cli.gpu_pod_resources).filter(|path| !path.is_empty()).map(PathBuf::from),
        ..GpuConfig::default()
    };
    let state = Arc::clone(state);
    gpu::start(config, move |inventory| state.publish_gpus(inventory)).map(Some)
}

/// A reader of the file never sees half of it.
fn write_whole(path: &Path, lines: &[String]) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, lines.join("\n") + "\n")?;
    std::fs::rename(&part, path)
}
