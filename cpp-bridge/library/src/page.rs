//! The page of all engines of the host that have the same `listen` option, and the thread that serves it with a
//! current-thread runtime. The listener is bound before the thread starts. The thread stops within half a second after
//! the last engine closes.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use trtllm_http::listen::{self, Address, Listener};
use trtllm_http::router::{self, RouterOptions, TelemetryPath};
use trtllm_http::server::{self, HttpServer};
use trtllm_model::{EngineAbout, EngineName, Objectives, RejectReason};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::state::{EngineSlot, SourcePlace, State};
use trtllm_service::shutdown::{self, Shutdown, Trigger};
use trtllm_service::supervise::Heartbeats;
use trtllm_sources::trtllm_json::Hello;

use crate::engine::{EngineOptions, HostedFold};

/// How often the state of the engines is checked. Each poll checks it too, so this check matters only if a poll hangs.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// How long open requests may delay the host's shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait while another thread opens or closes an engine. The wait needs a limit: in the child of a fork, the
/// thread that holds the lock may not exist.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pages of this process. A page is freed when its last engine closes; then its `Weak` cannot be upgraded.
static PAGES: Mutex<Vec<(PageKey, Weak<HostedPage>)>> = Mutex::new(Vec::new());

/// The process is part of the key: a fork copies no threads, so a child cannot use the pages of its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageKey {
    process: u32,
    listen: String,
}

/// The folds of the engines of a page.
type Folds = Arc<Mutex<Vec<Weak<Mutex<HostedFold>>>>>;

#[derive(Debug)]
pub(crate) struct HostedPage {
    state: Arc<State>,
    folds: Folds,
    telemetry_path: String,
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: String,
    pub(crate) listener: RawFd,
}

impl HostedPage {
    /// Adds an engine to the page with this address, or starts a page.
    pub(crate) fn open(options: EngineOptions) -> Result<HostedEngine, String> {
        let mut pages = PAGES.try_lock_for(PATIENCE).ok_or("another thread opens or closes a page; try again")?;
        pages.retain(|(_, page)| page.strong_count() > 0);
        let key = |listen: &str| PageKey { process: std::process::id(), listen: listen.to_owned() };
        let wanted = key(&options.listen);
        let found = pages.iter().find(|(key, _)| *key == wanted).and_then(|(_, page)| page.upgrade());
        if let Some(page) = found {
            if page.telemetry_path != options.telemetry_path {
                let path = &page.telemetry_path;
                return Err(format!("the page at {:?} has the path {path:?}; use the same one", options.listen));
            }
            return page.add(options);
        }
        let page = Arc::new(Self::start(&options)?);
        // Also store the page under its real address, because port 0 stands for any port.
        pages.push((key(&page.address), Arc::downgrade(&page)));
        if !options.listen.ends_with(":0") && options.listen != page.address {
            pages.push((wanted, Arc::downgrade(&page)));
        }
        page.add(options)
    }

    /// Removes an engine, and stops the page with its last one.
    pub(crate) fn close(engine: HostedEngine) {
        let pages = PAGES.try_lock_for(PATIENCE);
        let HostedEngine { slot, page, .. } = engine;
        page.state.remove(&slot);
        // Drop the page while the lock is held. Otherwise a thread that opens a page at the same address could find the
        // port in use.
        drop(page);
        drop(pages);
    }

    fn start(options: &EngineOptions) -> Result<Self, String> {
        let listen = &options.listen;
        let address: Address = listen.parse().map_err(|why| format!("cannot listen on {listen:?}: {why}"))?;
        let telemetry_path = options.telemetry_path.clone();
        let path: TelemetryPath =
            telemetry_path.parse().map_err(|why| format!("telemetry path {telemetry_path:?}: {why}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot serve: {error}"))?;
        let listeners =
            runtime.block_on(listen::bind(&[address], "Options::listen")).map_err(|error| error.to_string())?;
        let address = listeners.iter().find_map(Listener::address).map(|address| address.to_string());
        let listener = listeners.first().map_or(-1, descriptor);
        let state = Arc::new(State::new(Vec::new()));
        let folds = Folds::default();
        let (trigger, stop) = shutdown::channel();
        let (served, checked) = (Arc::clone(&state), Arc::clone(&folds));
        let serving = async move {
            // No watchdog reads these heartbeats, because the library must not end the host's process.
            let heartbeats = Arc::new(Heartbeats::default());
            let metrics = Arc::new(HttpMetrics::new());
            let options = RouterOptions {
                telemetry_path: path,
                compat: CompatSets::default(),
                max_requests: server::MAX_REQUESTS,
                allowed_hosts: Vec::new(),
            };
            let router = router::all(&served, options, &metrics, &heartbeats);
            let heartbeat = heartbeats.register("the HTTP server".to_owned());
            let max_connections = server::MAX_CONNECTIONS;
            let server = HttpServer { listeners, router, tls: None, metrics, heartbeat, max_connections };
            tokio::spawn(Arc::clone(&served).keep_fresh(stop.clone()));
            tokio::spawn(served.keep_judging(stop.clone()));
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
        let address = address.unwrap_or_default();
        Ok(Self { state, folds, telemetry_path, trigger, thread: Some(thread), address, listener })
    }

    fn add(self: Arc<Self>, options: EngineOptions) -> Result<HostedEngine, String> {
        let (model, version) = self.name(&options.hello)?;
        let slot = self.state.add(
            &SourcePlace::new(0),
            EngineName { model, version, labels: Vec::new(), source: "embedded", objectives: Objectives::default() },
        );
        let about = EngineAbout {
            backend: Some("tensorrt".to_owned()),
            version: Some(options.engine_version).filter(|version| !version.is_empty()),
            settings: options.hello.config,
            ..EngineAbout::default()
        };
        let stale_after = Duration::from_millis(options.stale_after_ms);
        let fold = Arc::new(Mutex::new(HostedFold::new(Arc::clone(&slot), stale_after, about)));
        self.folds.lock().push(Arc::downgrade(&fold));
        Ok(HostedEngine { fold, slot, page: self })
    }

    /// Fails if a chosen name is not unique. Gives a derived name the lowest free version.
    fn name(&self, hello: &Hello) -> Result<(String, String), String> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let engines = self.state.slots();
        let is_taken = |model: &str, version: &str| {
            engines.iter().any(|slot| slot.name.model == model && slot.name.version == version)
        };
        match given(&hello.model) {
            Some(model) if !hello.derived => {
                let version = given(&hello.version).unwrap_or_else(|| "1".to_owned());
                if is_taken(&model, &version) {
                    return Err(format!(
                        "model {model:?} version {version:?} is on the page at {} already; give each engine its own name",
                        self.address
                    ));
                }
                Ok((model, version))
            }
            model => {
                let model = model.unwrap_or_else(|| "tensorrt_llm".to_owned());
                let version = (1..).map(|number: u32| number.to_string()).find(|version| !is_taken(&model, version));
                Ok((model, version.unwrap_or_default()))
            }
        }
    }
}

/// The engine behind the handle that a host holds.
#[derive(Debug)]
pub(crate) struct HostedEngine {
    pub(crate) fold: Arc<Mutex<HostedFold>>,
    pub(crate) slot: Arc<EngineSlot>,
    pub(crate) page: Arc<HostedPage>,
}

impl HostedEngine {
    /// The error names the option that must be changed.
    pub(crate) fn open(options: &[u8]) -> Result<Self, String> {
        let options: EngineOptions =
            serde_json::from_slice(options).map_err(|error| format!("the options are not valid JSON: {error}"))?;
        if !options.hello.is_short() {
            return Err("the model's name or version has more than 64 characters; choose a shorter one".to_owned());
        }
        HostedPage::open(options)
    }

    /// Takes one line. The error says why it was rejected.
    pub(crate) fn publish(&self, line: &[u8]) -> Result<(), RejectReason> {
        self.fold.lock().absorb(line)
    }

    /// Ends a poll. The page then shows the values of the lines since the last poll.
    pub(crate) fn end_poll(&self, duration: Duration, failure: Option<String>) {
        self.fold.lock().end_poll(duration, failure);
    }

    pub(crate) fn close(self) {
        HostedPage::close(self);
    }
}

impl Drop for HostedPage {
    fn drop(&mut self) {
        self.trigger.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn check_health(folds: Folds, mut stop: Shutdown) {
    let mut ticks = tokio::time::interval(HEALTH_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => folds.lock().retain(|fold| {
                fold.upgrade().inspect(|fold| fold.lock().check_health()).is_some()
            }),
            () = stop.wait() => return,
        }
    }
}

fn descriptor(listener: &Listener) -> RawFd {
    match listener {
        Listener::Tcp(listener) => listener.as_raw_fd(),
        Listener::Unix(_, listener) => listener.as_raw_fd(),
    }
}
