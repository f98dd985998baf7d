//! Wiring and exit codes, nothing else: 0 stopped by a signal, 1 could not start, 2 usage or configuration.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::sync::mpsc;
use trtllm_exporter::cli::{Cli, Command, DEFAULT_SOCKET};
use trtllm_exporter::config::{ConfigError, EngineConfig, SourceSpec};
use trtllm_exporter::gpu::{self, GpuConfig, GpuError, GpuMode};
use trtllm_exporter::http::layers::Gate;
use trtllm_exporter::http::listen::{self, Address, Listener};
use trtllm_exporter::http::{router, server as serve};
use trtllm_exporter::metrics::exporter::PageCounts;
use trtllm_exporter::poll::{Driver, Schedule};
#[cfg(feature = "executor")]
use trtllm_exporter::sources::executor::{ExecutorThread, hosting::Hosting};
use trtllm_exporter::sources::{OpenError, Source, replay::Replay, socket::Ingest, trtllm_serve::TrtllmServe};
use trtllm_exporter::state::{EngineName, State};
use trtllm_exporter::web::config::WebConfigError;
use trtllm_exporter::web::reload::Live;
use trtllm_exporter::{cli, log, process, shutdown, tools};

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
    fn exit_code(&self) -> ExitCode {
        match self {
            // The simulated engine refuses nothing but its options.
            Self::Config(_) | Self::WebConfig(_) | Self::Source(OpenError::Engine { .. } | OpenError::Load { .. }) => {
                ExitCode::from(2)
            }
            _ => ExitCode::from(1),
        }
    }
}

/// How long the first answer waits for the sources' first polls: not for an engine that hangs.
const FIRST_POLLS: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    // Before there is a thread.
    process::set_up();
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::CheckConfig { file }) => tools::check_config::run(file).map_err(StartError::from),
        Some(Command::Catalog { format }) => {
            tools::catalog::run(*format);
            Ok(())
        }
        None => start(&cli),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr)] // Before logging is set up, and the one message a caller reads.
            {
                eprintln!("trtllm-exporter: {error}");
            }
            error.exit_code()
        }
    }
}

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
    let sources = open(engines)?;
    let names: Vec<EngineName> = sources.iter().map(|(name, _)| name.clone()).collect();
    let state = Arc::new(State::new(names));
    let gpus = start_gpus(cli, &state)?;
    let (trigger, stop) = shutdown::channel();

    let schedule = Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
    let (first, mut first_polls) = mpsc::channel(1);
    for (index, (name, source)) in sources.into_iter().enumerate() {
        let (state, stop, first) = (Arc::clone(&state), stop.clone(), first.clone());
        // Made where it runs: while the first poll is made, so is the page.
        tokio::spawn(async move { Driver::new(index, name.model, schedule, state).run(source, stop, first).await });
    }
    drop(first);
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
    let server = tokio::spawn(async move {
        // Peers can connect already. Engines at hand answer within milliseconds, and a first scrape without them would
        // be taken for engines that have nothing to say.
        let _ = tokio::time::timeout(FIRST_POLLS, first_polls.recv()).await;
        serve::serve(gates, stop).await;
    });
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

    let signal = tokio::select! {
        signal = stop_signal => signal,
        never = hold_gpus => match never {},
    };
    tracing::info!(signal, "stopping");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    trigger.stop();
    let _ = server.await;
    if let Some(gpus) = gpus {
        // NVML must be let go within a second, or a driver update waits for us.
        gpus.stop(Duration::from_secs(1));
    }
    Ok(())
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

fn open(engines: Option<Vec<EngineConfig>>) -> Result<Vec<(EngineName, Source)>, StartError> {
    let Some(engines) = engines else { return Ok(default_engine()) };
    let opened = engines.into_iter().map(|engine| Ok((engine.name, open_source(engine.source)?)));
    opened.collect()
}

/// Nothing configured: an engine may still join through the socket. That it cannot be bound is no reason to withhold the
/// GPUs.
fn default_engine() -> Vec<(EngineName, Source)> {
    let path = Path::new(DEFAULT_SOCKET);
    match path.parent().map_or(Ok(()), std::fs::create_dir_all) {
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "no ingest socket; name one with --source socket:PATH")
        }
        Ok(()) => match Ingest::bind(path) {
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
                return vec![(name, Source::Socket(socket))];
            }
        },
    }
    Vec::new()
}

fn open_source(spec: SourceSpec) -> Result<Source, OpenError> {
    Ok(match spec {
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
