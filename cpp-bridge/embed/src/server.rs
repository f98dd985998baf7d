//! The page's own thread: one small runtime, bound before it starts, ended within half a second.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use exporter::http::listen::{self, Address, Listener};
use exporter::http::router::{self, Options, TelemetryPath};
use exporter::http::server::Server as HttpServer;
use exporter::metrics::compat::CompatSets;
use exporter::metrics::own::HttpMetrics;
use exporter::shutdown::{self, Shutdown, Trigger};
use exporter::state::{EngineAbout, EngineName, State};

use crate::fold::Fold;

/// How often the engine's state is looked at between polls.
const HEALTH: Duration = Duration::from_millis(100);
/// What requests under way may take of the host's shutdown.
const DRAIN: Duration = Duration::from_millis(500);

/// What the host asked for.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) listen: String,
    pub(crate) telemetry_path: String,
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) engine_version: Option<String>,
    pub(crate) stale_after: Duration,
}

/// A page that is being served.
#[derive(Debug)]
pub(crate) struct Server {
    fold: Arc<Mutex<Fold>>,
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: String,
    pub(crate) listener: RawFd,
}

impl Server {
    /// Binds and starts; the message says what the host can change.
    pub(crate) fn start(wishes: Wishes) -> Result<Self, String> {
        let address: Address =
            wishes.listen.parse().map_err(|why| format!("cannot listen on {:?}: {why}", wishes.listen))?;
        let telemetry_path: TelemetryPath = wishes
            .telemetry_path
            .parse()
            .map_err(|why| format!("telemetry path {:?}: {why}", wishes.telemetry_path))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot serve: {error}"))?;
        let listeners =
            runtime.block_on(listen::bind(&[address], "Options::listen")).map_err(|error| error.to_string())?;
        let address = listeners.iter().find_map(Listener::address).map(|address| address.to_string());
        let listener = listeners.first().map_or(-1, descriptor);

        let name = EngineName {
            model: wishes.model,
            version: wishes.version,
            labels: Vec::new(),
            source: "embedded",
            implicit: false,
        };
        let about =
            EngineAbout { backend: Some("tensorrt".to_owned()), version: wishes.engine_version, simulated: false };
        let state = Arc::new(State::new(vec![name]));
        let fold = Arc::new(Mutex::new(Fold::new(Arc::clone(&state), wishes.stale_after, about)));
        let (trigger, stop) = shutdown::channel();
        let ticking = Arc::clone(&fold);
        let serving = async move {
            let metrics = Arc::new(HttpMetrics::new());
            let options = Options { telemetry_path, compat: CompatSets::default(), max_requests: 0 };
            let router = router::all(&state, options, &metrics);
            let server = HttpServer { listeners, router, tls: None, metrics };
            tokio::spawn(state.keep_fresh(stop.clone()));
            tokio::spawn(tick(ticking, stop.clone()));
            let server = tokio::spawn(server.run(stop.clone()));
            let mut stop = stop;
            stop.wait().await;
            let _ = tokio::time::timeout(DRAIN, server).await;
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
        // A panic under the lock has been caught at the border; plain numbers are still numbers.
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(mut self) {
        self.trigger.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn tick(fold: Arc<Mutex<Fold>>, mut stop: Shutdown) {
    let mut ticks = tokio::time::interval(HEALTH);
    loop {
        tokio::select! {
            _ = ticks.tick() => fold.lock().unwrap_or_else(PoisonError::into_inner).tick(),
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
