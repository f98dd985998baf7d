//! An Executor in this process, behind the C++ bridge. It is constructed, polled and dropped on a thread of its own: a model
//! may take half an hour to load, and a call that hangs must not block anything else. A poll times out like that of any
//! other source.

pub mod records;

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::oneshot;
use trtllm_bridge::{BridgeError, Executor, ExecutorOptions, RequestStatsPerIteration, SyntheticLoad};
use trtllm_records::Message;

use trtllm_records::{EngineAbout, EngineSettings};
use trtllm_service::small_file;

use super::batch::{Batch, Presence};
use super::engine_settings::parse_engine_config;
use super::error::{OpenError, SourceError};
use super::hosting::Hosting;

pub use trtllm_bridge::{exit_now, is_simulated};

/// Number of records that are drained at a time. They fit into the fastest cache of a CPU.
const ROWS: usize = 32;
/// How long the engine may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Each thread of an [`ExecutorThread`] holds a clone until it ends.
static RUNNING: LazyLock<Arc<()>> = LazyLock::new(Arc::default);

/// Whether an engine of this process is still loading or has not stopped. The process must then end by [`exit_now`]: a
/// normal exit would run the destructors of C++ globals that the engine's threads still use.
pub fn is_any_running() -> bool {
    Arc::strong_count(&RUNNING) > 1
}

type Drained = (Vec<Message>, Result<(), SourceError>);

/// The thread that owns an Executor.
#[derive(Debug)]
pub struct ExecutorThread {
    pub(super) target: String,
    /// The result of the construction. `None` once it has been received.
    pub(super) loading: Option<oneshot::Receiver<Result<EngineAbout, OpenError>>>,
    /// Asks the thread to drain the engine.
    polls: mpsc::Sender<oneshot::Sender<Drained>>,
    /// The answer to a poll that timed out. The next poll waits for it instead of asking again.
    pending: Option<oneshot::Receiver<Drained>>,
    /// Resolves when the thread has ended. Nothing is ever sent, so the result is an error.
    ended: oneshot::Receiver<()>,
}

impl ExecutorThread {
    /// Starts the thread, which constructs the engine and starts its load. Returns at once: polls wait for the engine. Fails
    /// if no thread can be started.
    pub fn start(hosting: Hosting) -> Result<Self, OpenError> {
        let target = hosting.engine.clone();
        let (polls, inbox) = mpsc::channel();
        let (loaded, loading) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let running = Arc::clone(&RUNNING);
        let thread = move || {
            // The thread owns both, so they are dropped when it ends, even by a panic.
            let _guards: (Arc<()>, oneshot::Sender<()>) = (running, ending);
            match construct(&hosting) {
                Ok(executor) => {
                    let version = Some(executor.version()).filter(|version| !version.is_empty());
                    let simulated = executor.is_simulated();
                    let _ = loaded.send(Ok(EngineAbout {
                        backend: Some("tensorrt".to_owned()),
                        version,
                        simulated,
                        settings: settings(&hosting.engine),
                        ..EngineAbout::default()
                    }));
                    serve(executor, &inbox);
                }
                Err(error) => drop(loaded.send(Err(error))),
            }
        };
        std::thread::Builder::new()
            .name("executor".to_owned())
            .spawn(thread)
            .map_err(|error| OpenError::Engine { engine: target.clone(), cause: error.to_string() })?;
        Ok(Self { target, loading: Some(loading), polls, pending: None, ended })
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let thread_ended = || SourceError::Engine { cause: "the thread of the engine ended".to_owned() };
        if let Some(loading) = &mut self.loading {
            let loaded = loading.await;
            self.loading = None;
            batch.about = Some(loaded.map_err(|_| thread_ended())??);
        }
        let pending = match &mut self.pending {
            Some(pending) => pending,
            None => {
                let (reply, pending) = oneshot::channel();
                self.polls.send(reply).map_err(|_| thread_ended())?;
                self.pending.insert(pending)
            }
        };
        let drained = pending.await;
        self.pending = None;
        let (messages, result) = drained.map_err(|_| thread_ended())?;
        batch.messages.extend(messages);
        result.map(|()| Presence::Present)
    }

    /// Stops the engine, so that it does not work any more when the process ends. A constructor cannot be interrupted:
    /// an engine that is still loading is abandoned at once.
    pub(super) async fn stop(self) {
        let Self { target, loading, polls, ended, .. } = self;
        drop(polls);
        if loading.is_some_and(|mut loading| matches!(loading.try_recv(), Err(oneshot::error::TryRecvError::Empty))) {
            tracing::warn!(engine = target, "engine is still loading; abandoning it");
        } else if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!(engine = target, "engine did not stop within {STOP_TIMEOUT:?}; abandoning it");
        }
    }
}

/// The settings in the engine's directory. Empty if the file is missing or invalid.
fn settings(engine: &str) -> EngineSettings {
    let file = small_file::read(&Path::new(engine).join("config.json"));
    file.map(|body| parse_engine_config(&body)).unwrap_or_default()
}

/// Checks what can be checked without a model and a GPU. A simulated engine is started and stopped. Fails if the engine
/// cannot start.
pub fn check(hosting: &Hosting) -> Result<(), OpenError> {
    let mut hosting = hosting.clone();
    let engine = &mut hosting.engine;
    if is_simulated() || engine.starts_with("sim:") {
        *engine = at_once(engine);
        return construct(&hosting).map(drop);
    }
    std::fs::read_dir(&*engine).map(drop).map_err(|error| {
        let cause = format!("cannot read the engine's directory: {error}; name the directory that trtllm-build wrote");
        OpenError::Engine { engine: engine.clone(), cause }
    })
}

/// The simulated engine, with a loading time of 0.
fn at_once(engine: &str) -> String {
    let described = small_file::read(&Path::new(engine).join("simulated.engine")).unwrap_or_default();
    let described = String::from_utf8_lossy(&described);
    let engine = described.lines().next().filter(|line| line.starts_with("sim:")).unwrap_or(engine);
    match engine.starts_with("sim:") {
        // If an option occurs twice, its last value counts.
        true => format!("{engine}{}load_seconds=0", if engine.contains('?') { '&' } else { '?' }),
        false => engine.to_owned(),
    }
}

/// Opens the engine and starts its load, if any.
fn construct(hosting: &Hosting) -> Result<Executor, OpenError> {
    let &Hosting { ref engine, iter_stats_max_iterations, request_stats_max_iterations, load } = hosting;
    let failed = |error| {
        let cause = match error {
            BridgeError::Open { cause, .. } => cause,
            other => other.to_string(),
        };
        OpenError::Engine { engine: engine.clone(), cause }
    };
    let options = ExecutorOptions { iter_stats_max_iterations, request_stats_max_iterations };
    let mut executor = Executor::open(engine, &options).map_err(failed)?;
    if let Some(load) = load {
        let load = SyntheticLoad {
            in_flight: load.in_flight,
            prompt_tokens: load.prompt_tokens,
            output_tokens: load.output_tokens,
            requests: load.requests,
        };
        match executor.start_load(&load) {
            // This process is a worker of a larger engine: only the leader accepts requests.
            Err(BridgeError::NotLeader) => {
                tracing::info!("this rank accepts no requests; the leader generates the load")
            }
            started => started.map_err(failed)?,
        }
    }
    Ok(executor)
}

/// Drains the engine for each poll until the [`ExecutorThread`] is dropped.
fn serve(mut executor: Executor, inbox: &mpsc::Receiver<oneshot::Sender<Drained>>) {
    while let Ok(reply) = inbox.recv() {
        let mut messages = Vec::new();
        let result = drain(&mut executor, &mut messages);
        let _ = reply.send((messages, result));
    }
}

/// Adds all statistics that the engine holds, oldest first. Fails for workers and stopped engines, which have none. What was taken
/// before a failure stays.
fn drain(executor: &mut Executor, messages: &mut Vec<Message>) -> Result<(), SourceError> {
    if !executor.can_enqueue_requests() {
        let cause = "the engine was shut down, or this process is not its leader".to_owned();
        return Err(SourceError::Engine { cause });
    }
    // Request rows are drained first and delivered after the records: the engine keeps running meanwhile, and the record
    // of an iteration must come before its request rows. A drain returns only what the engine held when the drain began.
    let (mut requests, mut of_iteration) = (Vec::new(), RequestStatsPerIteration::default());
    let rows_end = loop {
        match executor.next_requests(&mut of_iteration) {
            Ok(true) => requests.push(Message::RequestRows(records::requests(&of_iteration))),
            end => break end,
        }
    };
    let record = |from: &_| Message::Record(Box::new(records::iteration(from)));
    let records_end = all(executor, Executor::drain_iterations, record, messages);
    messages.append(&mut requests);
    rows_end.map(drop).and(records_end).map_err(failed)?;
    let entry = |from: &_| Message::FinishedRequest(Box::new(records::finished(from)));
    all(executor, Executor::drain_finished, entry, messages).map_err(failed)
}

/// Calls `drain` until it does not fill the slice.
fn all<Row: Clone + Default>(
    executor: &mut Executor,
    drain: fn(&mut Executor, &mut [Row]) -> Result<usize, BridgeError>,
    convert: impl Fn(&Row) -> Message,
    messages: &mut Vec<Message>,
) -> Result<(), BridgeError> {
    let mut rows = vec![Row::default(); ROWS];
    loop {
        let count = drain(executor, &mut rows)?;
        messages.extend(rows[..count].iter().map(&convert));
        if count < ROWS {
            return Ok(());
        }
    }
}

fn failed(error: BridgeError) -> SourceError {
    SourceError::Engine { cause: error.to_string() }
}
