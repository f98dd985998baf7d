//! The thread that serves the page: a current-thread runtime. Its listener is bound before it starts, and it stops within
//! half a second.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use trtllm_http::listen::{self, Address, Listener};
use trtllm_http::router::{self, RouterOptions, TelemetryPath};
use trtllm_http::server::{self, HttpServer};
use trtllm_model::{EngineAbout, EngineName, EngineSettings, Objectives};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::state::State;
use trtllm_service::shutdown::{self, Shutdown, Trigger};
use trtllm_service::supervise::Heartbeats;

use crate::fold::Fold;

/// How often the state of the engine is checked between polls.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
/// How long open requests may delay the host's shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The options of the host.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    pub(crate) listen: String,
    pub(crate) telemetry_path: String,
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) engine_version: Option<String>,
    pub(crate) stale_after: Duration,
    pub(crate) settings: EngineSettings,
}

/// The running server.
#[derive(Debug)]
pub(crate) struct EmbeddedServer {
    fold: Arc<Mutex<Fold>>,
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: String,
    pub(crate) listener: RawFd,
}

impl EmbeddedServer {
    /// Binds the address and starts the thread. The error names the option to change.
    pub(crate) fn start(options: ServerOptions) -> Result<Self, String> {
        let address: Address =
            options.listen.parse().map_err(|why| format!("cannot listen on {:?}: {why}", options.listen))?;
        let telemetry_path: TelemetryPath = options
            .telemetry_path
            .parse()
            .map_err(|why| format!("telemetry path {:?}: {why}", options.telemetry_path))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot serve: {error}"))?;
        let listeners =
            runtime.block_on(listen::bind(&[address], "Options::listen")).map_err(|error| error.to_string())?;
        let address = listeners.iter().find_map(Listener::address).map(|address| address.to_string());
        let listener = listeners.first().map_or(-1, descriptor);

        let name = EngineName {
            model: options.model,
            version: options.version,
            labels: Vec::new(),
            source: "embedded",
            objectives: Objectives::default(),
        };
        let about = EngineAbout {
            backend: Some("tensorrt".to_owned()),
            version: options.engine_version,
            settings: options.settings,
            ..EngineAbout::default()
        };
        let state = Arc::new(State::new(vec![name]));
        let fold = Arc::new(Mutex::new(Fold::new(Arc::clone(&state.slots()[0]), options.stale_after, about)));
        let (trigger, stop) = shutdown::channel();
        let checked = Arc::clone(&fold);
        let serving = async move {
            // Nobody judges them: the host's process is not ours to end.
            let heartbeats = Arc::new(Heartbeats::default());
            let metrics = Arc::new(HttpMetrics::new());
            let options = RouterOptions { telemetry_path, compat: CompatSets::default(), max_requests: 0 };
            let router = router::all(&state, options, &metrics, &heartbeats);
            let heartbeat = heartbeats.register("the HTTP server".to_owned());
            let max_connections = server::MAX_CONNECTIONS;
            let server = HttpServer { listeners, router, tls: None, metrics, heartbeat, max_connections };
            tokio::spawn(state.keep_fresh(stop.clone()));
            tokio::spawn(check_health(checked, stop.clone()));
            let server = tokio::spawn(server.run(stop.clone()));
            let mut stop = stop;
            stop.wait().await;
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, server).await;
        };
        let thread = std::thread::Builder::new()
            .name("trtllm-exporter".to_owned())
            .spawn(move || {
                runtime.block_on(serving);
                runtime.shutdown_background();
            })
            .map_err(|error| format!("cannot serve: {error}"))?;
        Ok(Self { fold, trigger, thread: Some(thread), address: address.unwrap_or_default(), listener })
    }

    pub(crate) fn fold(&self) -> MutexGuard<'_, Fold> {
        // The C functions catch a panic under the lock. The numbers stay valid.
        self.fold.lock()
    }

    pub(crate) fn stop(mut self) {
        self.trigger.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn check_health(fold: Arc<Mutex<Fold>>, mut stop: Shutdown) {
    let mut ticks = tokio::time::interval(HEALTH_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => fold.lock().check_health(),
            () = stop.wait() => return,
        }
    }
}

fn descriptor(listener: &Listener) -> RawFd {
    match listener {
        Listener::Tcp(listener) => listener.as_raw_fd(),
        Listener::Unix(listener, _) => listener.as_raw_fd(),
    }
}
