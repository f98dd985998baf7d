//! Starts the daemon's parts, waits for a signal and stops them. Nothing here blocks the runtime: health checks are
//! answered and SIGTERM works while a host name is looked up or an engine loads its model.

mod discovered;
mod drivers;
mod engine_gpus;
mod opening;
mod prepare;
mod systemd;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use exporter_web_config::WebConfig;
use sd_notify::NotifyState;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::cli::{self, Cli};
use trtllm_config::{ConfigError, EngineConfig, SourceSpec};
use trtllm_engines::State;
use trtllm_gpu::usage::knows_processes;
use trtllm_gpu::{self as gpu, GpuConfig, GpuHandle, GpuMode};
use trtllm_http::listen::{self, BindError, Listener};
use trtllm_http::router::{self, RouterOptions};
use trtllm_http::server::{HttpServer, MAX_CONNECTIONS};
use trtllm_page::build;
use trtllm_page::metrics::own::{HttpMetrics, HttpRefusal};
use trtllm_recording::recorder::{Recorder, RecorderError};
use trtllm_records::RecorderCounts;
use trtllm_service::log;
use trtllm_service::process;
use trtllm_service::shutdown::{self, Shutdown};
use trtllm_service::small_file;
use trtllm_service::supervise::{self, Heartbeats, Task};
use trtllm_sources::socket::{Admission, Publishers};

use drivers::Drivers;
use opening::IngestSockets;

pub use prepare::{Prepared, StartError, prepare};

/// Limit of the publishers of all ingest sockets: enough for 64 engines while new processes replace theirs.
const MAX_PUBLISHERS: usize = 256;
/// Interval between checks of the heartbeats of the tasks.
const WATCH: Duration = Duration::from_secs(1);
/// How often freed memory is given back to the system.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// How long the drivers may take to stop. Kubernetes kills a process after 30 s.
const DRIVERS_STOP: Duration = Duration::from_secs(10);
/// How long the recorder may take to write its last lines.
const RECORDER_STOP: Duration = Duration::from_secs(2);
/// How long NVML may take to shut down. Until then, the GPU driver cannot be updated.
const GPU_STOP: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal stops it. Fails if it cannot start, or if a source that it starts with cannot be
/// opened.
pub fn run(cli: &Cli) -> Result<(), StartError> {
    let Prepared { engines, web } = prepare(cli)?;
    let _log = log::init(cli.log_level, cli.log_format);
    // Two threads: one may parse a large answer of an engine while the other serves a scrape.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve(cli, engines, web));
    // A blocking thread may hang in a name lookup or a file system. Do not wait for it longer.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve(cli: &Cli, engines: Vec<EngineConfig>, web: Option<WebConfig>) -> Result<(), StartError> {
    let mut signal = pin!(shutdown::signals()?);
    let (mut release, mut resume) = shutdown::gpu_signals()?;
    let (read, mut configurations) = mpsc::channel(1);
    tokio::spawn(read_again(shutdown::hangups()?, cli.sources.config_file.clone(), cli::read_file, read));
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
            Some(engines) = configurations.recv() => daemon.reload(engines),
            error = daemon.drivers.failure() => break Err(error.into()),
            _ = release.recv() => daemon.gpus.iter().for_each(GpuHandle::release),
            _ = resume.recv() => daemon.gpus.iter().for_each(GpuHandle::resume),
        }
    };
    systemd::notify(&[NotifyState::Stopping]);
    trigger.stop();
    while daemon.servers.join_next().await.is_some() {}
    // A driver that hangs must not keep the process alive.
    if tokio::time::timeout(DRIVERS_STOP, daemon.drivers.stop()).await.is_err() {
        tracing::warn!("an engine's driver did not stop within {DRIVERS_STOP:?}; abandoning it");
    }
    if let Some(recorder) = daemon.recorder {
        recorder.stop(RECORDER_STOP);
    }
    if let Some(gpus) = daemon.gpus {
        gpus.stop(GPU_STOP);
    }
    result
}

/// Reads the configuration again after each SIGHUP, on another thread, because a file system may hang. However many signals come
/// meanwhile, it is read once more afterwards.
async fn read_again(
    mut hangups: Signal,
    file: Option<PathBuf>,
    read: fn(&Path) -> Result<Vec<EngineConfig>, ConfigError>,
    configurations: mpsc::Sender<Result<Vec<EngineConfig>, ConfigError>>,
) {
    while hangups.recv().await.is_some() {
        let Some(file) = file.clone() else {
            // The web configuration needs no signal: its files are checked for changes four times per second.
            tracing::info!("SIGHUP: there is no --config.file to read again");
            continue;
        };
        tracing::info!(file = %file.display(), "SIGHUP: reading the configuration again");
        // The thread has no result if it panicked.
        if let Ok(configuration) = tokio::task::spawn_blocking(move || read(&file)).await {
            let _ = configurations.send(configuration).await;
        }
    }
}

/// The parts of the daemon that are stopped at the end, in this order.
struct Daemon {
    servers: JoinSet<()>,
    drivers: Drivers,
    recorder: Option<Arc<Recorder>>,
    gpus: Option<GpuHandle>,
    state: Arc<State>,
}

impl Daemon {
    /// Applies a configuration that was read again. An invalid configuration changes nothing.
    fn reload(&mut self, engines: Result<Vec<EngineConfig>, ConfigError>) {
        let applied = match engines {
            Ok(engines) => self.drivers.reload(engines).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match applied {
            Ok(()) => *self.state.config_reload.lock() = Some(true),
            Err(error) => {
                *self.state.config_reload.lock() = Some(false);
                tracing::error!(
                    error,
                    "configuration not reloaded, the previous one stays in use; fix the file and reload again"
                );
            }
        }
    }
}

async fn start(
    cli: &Cli,
    engines: Vec<EngineConfig>,
    web: Option<WebConfig>,
    stop: Shutdown,
) -> Result<Daemon, StartError> {
    // Without --web.systemd-socket, every Unix socket from systemd is for ingest: a reload may add the source that uses it.
    let is_ingest = |path: &Path| {
        !cli.web.systemd_socket || engines.iter().any(|engine| engine.source == SourceSpec::Socket(path.to_owned()))
    };
    let (passed, activated) = listen::from_systemd(is_ingest)?;
    if cli.web.systemd_socket && passed.is_empty() {
        return Err(BindError::NoneFromSystemd.into());
    }
    let listeners = if cli.web.systemd_socket {
        passed
    } else {
        if !passed.is_empty() {
            tracing::warn!(remedy = "set --web.systemd-socket", "systemd passed a socket for the metrics page");
        }
        listen::bind(&cli.web.listen_address, "--web.listen-address").await?
    };
    let health_listeners = listen::bind(&cli.web.health_addresses()?, "--web.health-address").await?;
    let addresses = |of: &[Listener]| -> Vec<String> {
        of.iter().filter_map(Listener::address).map(|address| address.to_string()).collect()
    };
    let (addresses, health_addresses) = (addresses(&listeners), addresses(&health_listeners));

    // The metrics server, the health server, the ingest sockets and everything else get a quarter of the descriptors each.
    let quarter = process::raise_descriptor_limit() / 4;
    let max_connections = quarter.clamp(4, MAX_CONNECTIONS);
    // One more connection of each socket may wait for a slot.
    let max_publishers = (quarter - quarter / 8).clamp(2, MAX_PUBLISHERS);
    let (state, heartbeats) = (Arc::new(State::new(Vec::new())), Arc::default());
    if cli.sources.config_file.is_some() {
        *state.config_reload.lock() = Some(true);
    }
    let refused = state.refused_publishers.clone();
    let admission = Admission { uids: cli.allow_uid.clone(), limit: max_publishers, refused };
    let sockets = IngestSockets { publishers: Publishers::new(admission), activated };
    let recorder = start_recorder(cli, &state)?;
    let mut drivers = Drivers::start(cli, engines, (sockets, recorder.clone()), &state, &heartbeats);
    tokio::spawn(Arc::clone(&state).keep_judging(stop.clone()));
    let (of_capacities, ended) = (Arc::clone(&state), stop.clone());
    let capacities = move || Arc::clone(&of_capacities).keep_capacities(ended.clone());
    tokio::spawn(supervise::restart_after_panic(Task::Fold, capacities));
    let pages = pages(cli, &state, web, listeners, &heartbeats, max_connections);
    let tls = pages.tls.is_some();
    let health = HttpServer {
        listeners: health_listeners,
        router: router::health(&state, &pages.metrics, &heartbeats),
        tls: None,
        metrics: Arc::clone(&pages.metrics),
        heartbeat: heartbeats.register("the server of health checks".to_owned()),
        max_connections,
    };
    tokio::spawn(watch_tasks(heartbeats, stop.clone()));
    let mut servers = JoinSet::new();
    servers.spawn(health.run(stop.clone()));
    drivers.first_polls().await?;
    servers.spawn(pages.run(stop));
    let gpus = start_gpus(cli, &state).await?;

    // Scripts wait for this file, so write it only when the start-up has succeeded.
    if let Some(path) = &cli.web.port_file {
        let written = small_file::replace(path, (addresses.join("\n") + "\n").as_bytes(), 0o666);
        written.map_err(|cause| StartError::PortFile { path: path.clone(), cause })?;
    }
    tracing::info!(version = build::VERSION, revision = build::REVISION, "trtllm-exporter started");
    for address in &addresses {
        tracing::info!(%address, path = %cli.web.telemetry_path, tls, "listening");
    }
    for address in health_addresses {
        tracing::info!(%address, "listening for health checks");
    }
    // Without systemd this does nothing.
    let status = format!("listening on {}", addresses.join(", "));
    systemd::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    Ok(Daemon { servers, drivers, recorder, gpus, state })
}

/// Reports to systemd's watchdog while all tasks make progress, and logs a task that does not. Gives freed memory back.
async fn watch_tasks(heartbeats: Arc<Heartbeats>, mut stop: Shutdown) {
    let watchdog = sd_notify::watchdog_enabled();
    let mut checks = every(WATCH);
    let mut reports = every(watchdog.map_or(WATCH, |timeout| WATCH.min(timeout / 2)));
    let mut give_backs = every(GIVE_BACK);
    loop {
        tokio::select! {
            _ = checks.tick() => {
                for task in heartbeats.check() {
                    tracing::error!(task, "a task makes no progress; restart the exporter and report this bug");
                }
            }
            _ = reports.tick() => {
                if watchdog.is_some() && heartbeats.stalled().is_none() {
                    systemd::notify(&[NotifyState::Watchdog]);
                }
            }
            _ = give_backs.tick() => process::give_back_memory(),
            () = stop.wait() => return,
        }
    }
}

/// Ticks that are not made up for after a time in which the process did not run.
fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The server of all pages.
fn pages(
    cli: &Cli,
    state: &Arc<State>,
    web: Option<WebConfig>,
    listeners: Vec<Listener>,
    heartbeats: &Arc<Heartbeats>,
    max_connections: usize,
) -> HttpServer {
    let metrics = Arc::new(HttpMetrics::new());
    let options = RouterOptions {
        telemetry_path: cli.web.telemetry_path.clone(),
        compat: cli.compat_sets(),
        profile: cli.profile,
        max_requests: cli.web.max_requests,
        allowed_hosts: cli.web.allowed_hosts.clone(),
    };
    let mut router = router::all(state, options, &metrics, heartbeats);
    let mut tls = None;
    if let Some(config) = web {
        let counting = Arc::clone(&metrics);
        let config = config.on_refusal(move |refusal| counting.refused(counted_as(refusal)));
        tls = config.tls_acceptor();
        router = router.layer(config.layer());
        tokio::spawn(config.watch());
    }
    let heartbeat = heartbeats.register("the server of the metrics page".to_owned());
    HttpServer { listeners, router, tls, metrics, heartbeat, max_connections }
}

fn counted_as(refusal: exporter_web_config::Refusal) -> HttpRefusal {
    use exporter_web_config::Refusal as Reason;
    match refusal {
        Reason::TlsHandshake => HttpRefusal::TlsHandshake,
        Reason::Unauthorized => HttpRefusal::Unauthorized,
        Reason::RateLimited => HttpRefusal::RateLimited,
        Reason::Overloaded => HttpRefusal::Overloaded,
        _ => HttpRefusal::WebConfig,
    }
}

/// Starts the recorder if --record.dir is set. Called before any engine is read, so that a directory without write access
/// ends the start-up.
fn start_recorder(cli: &Cli, state: &State) -> Result<Option<Arc<Recorder>>, RecorderError> {
    let Some(config) = cli.recorder() else { return Ok(None) };
    let counts = RecorderCounts::default();
    let recorder = Recorder::start(config, counts.clone())?;
    let _ = state.recorder.set(counts);
    Ok(Some(Arc::new(recorder)))
}

async fn start_gpus(cli: &Cli, state: &Arc<State>) -> Result<Option<GpuHandle>, StartError> {
    if cli.gpu.mode == GpuMode::Off {
        return Ok(None);
    }
    let config = GpuConfig {
        mode: cli.gpu.mode,
        library: cli.gpu.library.clone(),
        interval: cli.gpu.interval,
        uuids: cli.gpu.uuids.clone(),
        per_process: cli.gpu.processes,
        pids: knows_processes(Path::new("/proc")),
        pod_resources: Some(&cli.gpu.pod_resources).filter(|path| !path.is_empty()).map(PathBuf::from),
        own_pod: engine_gpus::own_pod(),
        ..GpuConfig::default()
    };
    let publish = engine_gpus::publisher(Arc::clone(state), config.own_pod.clone());
    // With --gpu required, this blocks until the driver answers.
    let start = move || gpu::start(config, publish);
    let started = tokio::task::spawn_blocking(start).await.map_err(std::io::Error::other)?;
    Ok(Some(started?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_of_a_process_that_grows_is_stalled_after_thirty_seconds_and_not_before() {
        let heartbeats = Arc::new(Heartbeats::default());
        let _silent = heartbeats.register("a".to_owned());
        let (_trigger, stop) = shutdown::channel();
        tokio::spawn(watch_tasks(Arc::clone(&heartbeats), stop));
        let mut grown = Vec::new();
        for _ in 0..50 {
            grown.push(vec![1_u8; 1_200_000]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(heartbeats.stalled(), None);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(heartbeats.stalled().is_some() && !grown.is_empty());
    }

    #[tokio::test]
    async fn a_file_that_hangs_has_one_reader_and_is_read_again_after_the_last_signal() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        static HANGS: AtomicBool = AtomicBool::new(true);
        let read = |_: &Path| {
            READS.fetch_add(1, Ordering::SeqCst);
            while HANGS.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Vec::new())
        };
        let until_read = async |times| {
            while READS.load(Ordering::SeqCst) < times {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let send = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
        let (sender, mut configurations) = mpsc::channel(1);
        tokio::spawn(read_again(shutdown::hangups().unwrap(), Some("config.yaml".into()), read, sender));
        send();
        until_read(1).await;
        (0..5).for_each(|_| send());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(READS.load(Ordering::SeqCst), 1);
        HANGS.store(false, Ordering::SeqCst);
        until_read(2).await;
        for _ in 0..2 {
            assert!(configurations.recv().await.unwrap().is_ok());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(READS.load(Ordering::SeqCst), 2, "the file may have changed since the first read began");
    }
}
