//! An Executor in this process, behind the bridge. It is constructed, polled and dropped on a thread of its own: a model
//! may take half an hour to load, and a call that hangs must not block anything else. Polls of it time out like others.

mod feed;
pub mod hosting;
mod recording;
mod rows;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use trtllm_bridge::{BridgeError, Executor, IterationRow, KvEventRow, PerfRow, RequestRow};

use crate::model::{EngineAbout, RequestStatsPerIteration};

use feed::Feed;
use hosting::{Hosting, LoadPlan};

use super::{Batch, Item, OpenError, Presence, SourceError};

pub use trtllm_bridge::exit_now;

/// Rows drained at a time.
const ROWS: usize = 256;
/// How long the engine may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Threads of [`ExecutorThread`]s that have not ended.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether an engine of this process is still loading or has not stopped. The process must then end by [`exit_now`]: a
/// normal exit would run the destructors of C++ globals that the engine's threads still use.
#[must_use]
pub fn is_any_running() -> bool {
    RUNNING.load(Ordering::Acquire) > 0
}

type Drained = Result<Vec<Item>, SourceError>;

/// The thread that owns an Executor.
#[derive(Debug)]
pub struct ExecutorThread {
    target: String,
    /// The result of the construction; None once it has been received.
    loading: Option<oneshot::Receiver<Result<EngineAbout, OpenError>>>,
    /// Asks the thread to drain the engine.
    polls: mpsc::Sender<oneshot::Sender<Drained>>,
    /// The answer to a poll that timed out. The next poll waits for it instead of asking again.
    pending: Option<oneshot::Receiver<Drained>>,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl ExecutorThread {
    /// Starts the thread, which constructs the engine and starts its load. Returns at once: polls wait for the engine.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(hosting: Hosting) -> Result<Self, OpenError> {
        let target = hosting.engine.clone();
        let (polls, inbox) = mpsc::channel();
        let (loaded, loading) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let guard = RunningGuard::new();
        let thread = move || {
            match construct(&hosting) {
                Ok((executor, feed)) => {
                    let version = Some(executor.version()).filter(|version| !version.is_empty());
                    let simulated = executor.is_simulated();
                    let _ = loaded.send(Ok(EngineAbout { backend: Some("tensorrt".to_owned()), version, simulated }));
                    serve(executor, feed, &inbox);
                }
                Err(error) => {
                    let _ = loaded.send(Err(error));
                }
            }
            drop(guard);
            let _ = ending.send(());
        };
        std::thread::Builder::new()
            .name("executor".to_owned())
            .spawn(thread)
            .map_err(|error| OpenError::Engine { engine: target.clone(), cause: error.to_string() })?;
        Ok(Self { target, loading: Some(loading), polls, pending: None, ended })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Whether the engine is not constructed yet.
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let thread_ended = || SourceError::Engine { cause: "the thread of the engine ended".to_owned() };
        if let Some(loading) = &mut self.loading {
            let loaded = loading.await;
            self.loading = None;
            let about = loaded.map_err(|_| thread_ended())??;
            if about.simulated {
                tracing::info!(engine = self.target, "this engine is simulated; its numbers describe no real model");
            }
            batch.about = Some(about);
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
        batch.items.extend(drained.map_err(|_| thread_ended())??);
        Ok(Presence::Present)
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

/// Counts a thread in [`RUNNING`] until it ends, also by a panic.
#[derive(Debug)]
struct RunningGuard;

impl RunningGuard {
    fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Opens the file of recorded requests, if any, and the engine.
fn construct(hosting: &Hosting) -> Result<(Executor, Option<Feed>), OpenError> {
    let feed = match &hosting.load {
        Some(LoadPlan::Recorded(plan)) => {
            Some(Feed::open(plan.clone()).map_err(|cause| OpenError::Load { path: plan.path.clone(), cause })?)
        }
        _ => None,
    };
    let executor = open(hosting).map_err(|error| {
        let cause = match error {
            BridgeError::Open { cause, .. } => cause,
            other => other.to_string(),
        };
        OpenError::Engine { engine: hosting.engine.clone(), cause }
    })?;
    Ok((executor, feed))
}

fn open(hosting: &Hosting) -> Result<Executor, BridgeError> {
    let mut executor = Executor::open_with(&hosting.engine, &hosting.options)?;
    if let Some(LoadPlan::Synthetic(load)) = &hosting.load {
        match executor.start_load(load) {
            // A worker of a larger engine: only the leader accepts requests.
            Err(BridgeError::NotLeader) => {
                tracing::info!("this rank accepts no requests; the leader generates the load")
            }
            other => other?,
        }
    }
    Ok(executor)
}

/// Drains the engine for each poll until the [`ExecutorThread`] is dropped. Sends recorded requests between polls.
fn serve(mut executor: Executor, mut feed: Option<Feed>, inbox: &mpsc::Receiver<oneshot::Sender<Drained>>) {
    let mut rows = Rows::default();
    loop {
        let wait = feed.as_mut().and_then(|feed| feed.run(&mut executor, Instant::now()));
        let poll = match wait {
            Some(wait) => inbox.recv_timeout(wait),
            None => {
                feed = None;
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
        };
        match poll {
            Ok(reply) => {
                let _ = reply.send(drain(&mut executor, &mut rows));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Buffers kept between drains.
#[derive(Debug)]
struct Rows {
    iterations: Vec<IterationRow>,
    requests: Vec<RequestRow>,
    perf: Vec<PerfRow>,
    kv_events: Vec<KvEventRow>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            iterations: vec![IterationRow::default(); ROWS],
            requests: vec![RequestRow::default(); ROWS],
            perf: vec![PerfRow::default(); ROWS],
            kv_events: vec![KvEventRow::default(); ROWS],
        }
    }
}

/// Everything the engine has, oldest first. Workers and stopped engines have no statistics, so that is checked first.
fn drain(executor: &mut Executor, buffers: &mut Rows) -> Drained {
    let failed = |error: BridgeError| SourceError::Engine { cause: error.to_string() };
    if !executor.can_enqueue_requests() {
        let cause = "the engine was shut down, or this process is not its leader".to_owned();
        return Err(SourceError::Engine { cause });
    }
    // Request rows are drained first and delivered after the records: the engine keeps running meanwhile, and the record
    // of an iteration must come before its request rows. A drain ends at what the engine had when it began.
    let mut requests = Vec::new();
    let mut iteration: Vec<RequestRow> = Vec::new();
    loop {
        let count = executor.drain_requests(&mut buffers.requests).map_err(failed)?;
        for row in &buffers.requests[..count] {
            if iteration.last().is_some_and(|last| !same_iteration(last, row)) {
                requests.extend(iteration_item(&iteration));
                iteration.clear();
            }
            iteration.push(*row);
        }
        if count < buffers.requests.len() {
            break;
        }
    }
    requests.extend(iteration_item(&iteration));
    let mut items = Vec::new();
    loop {
        let count = executor.drain_iterations(&mut buffers.iterations).map_err(failed)?;
        items.extend(buffers.iterations[..count].iter().map(|row| Item::Record(Box::new(rows::record(row)))));
        if count < buffers.iterations.len() {
            break;
        }
    }
    items.append(&mut requests);
    loop {
        let count = executor.drain_perf_metrics(&mut buffers.perf).map_err(failed)?;
        let entries = buffers.perf[..count].iter().map(rows::finished);
        items.extend(entries.map(|entry| Item::PerfMetrics(Box::new(entry))));
        if count < buffers.perf.len() {
            break;
        }
    }
    let mut event_rows = Vec::new();
    loop {
        let count = executor.drain_kv_events(&mut buffers.kv_events).map_err(failed)?;
        event_rows.extend_from_slice(&buffers.kv_events[..count]);
        if count < buffers.kv_events.len() {
            break;
        }
    }
    let events = event_rows.chunk_by(|row, next| row.event_id == next.event_id && row.rank == next.rank);
    items.extend(events.map(|rows| Item::KvEvent(Box::new(rows::kv_event(rows)))));
    Ok(items)
}

/// All request rows of one iteration.
fn iteration_item(rows: &[RequestRow]) -> Option<Item> {
    let iter = rows.first()?.iter;
    let request_stats = Some(rows.iter().map(rows::request).collect());
    Some(Item::Requests(RequestStatsPerIteration { iter: Some(iter), request_stats }))
}

/// The idle flush and the iteration after it have the same number. Within an iteration completed requests come last, so a
/// row that is not complete, after one that is, begins the next iteration.
fn same_iteration(row: &RequestRow, next: &RequestRow) -> bool {
    let complete = |row: &RequestRow| row.request_stage() == Some(trtllm_bridge::RequestStage::GenerationComplete);
    row.iter == next.iter && (complete(next) || !complete(row))
}
