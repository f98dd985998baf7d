//! Opens the sources and runs one poll driver per engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli::{Cli, DEFAULT_SOCKET};
use crate::config::{DEFAULT_MODEL, DEFAULT_VERSION, EngineConfig, SourceSpec};
use crate::poll::{Driver, DriverEvent, Schedule};
use crate::shutdown::Shutdown;
#[cfg(feature = "executor")]
use crate::sources::executor::{ExecutorThread, hosting::Hosting};
use crate::sources::replay::Replay;
use crate::sources::socket::{Admission, Ingest};
use crate::sources::trtllm_serve::TrtllmServe;
use crate::sources::{OpenError, Source};
use crate::state::{EngineName, State};
use crate::supervise::Heartbeats;

/// How long the first scrape waits for the initial polls. A scrape without the engines would look like idle engines.
const FIRST_POLLS: Duration = Duration::from_millis(200);

/// The poll drivers of all engines.
pub(super) struct Drivers {
    pub(super) tasks: JoinSet<()>,
    events: mpsc::UnboundedReceiver<DriverEvent>,
}

impl Drivers {
    /// Starts a driver per engine, which opens the source in its own task.
    pub(super) fn start(
        cli: &Cli,
        engines: Vec<EngineConfig>,
        admission: &Admission,
        state: &Arc<State>,
        heartbeats: &Heartbeats,
        stop: &Shutdown,
    ) -> Self {
        let schedule =
            Schedule { interval: cli.poll_interval, timeout: cli.poll_timeout, stale_after: cli.stale_after };
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (index, EngineConfig { name, source }) in engines.into_iter().enumerate() {
            let (state, stop, sender) = (Arc::clone(state), stop.clone(), sender.clone());
            let heartbeat = heartbeats.register(format!("the driver of engine {} {}", name.model, name.version));
            let admission = admission.clone();
            tasks.spawn(async move {
                let driver = Driver::new(index, name.model, schedule, state, sender, heartbeat);
                if !name.implicit {
                    return driver.run(open(source, admission), stop).await;
                }
                // Nobody asked for the default socket; GPU metrics work without it.
                match open(source, admission).await {
                    Ok(source) => driver.run(std::future::ready(Ok(source)), stop).await,
                    Err(error) => tracing::warn!(%error, "no default ingest socket"),
                }
            });
        }
        Self { tasks, events }
    }

    /// Waits for the first polls, but not for an engine that hangs. A source that fails at once ends the start-up.
    pub(super) async fn first_polls(&mut self) -> Result<(), OpenError> {
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
    pub(super) async fn failure(&mut self) -> OpenError {
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
pub(super) fn default_engine() -> EngineConfig {
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

async fn open(source: SourceSpec, admission: Admission) -> Result<Source, OpenError> {
    Ok(match source {
        SourceSpec::TrtllmServe { target, extras } => Source::TrtllmServe(Box::new(TrtllmServe::new(target, extras))),
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
