//! An Executor in this process, behind the bridge. It has a thread of its own: a call into an engine that hangs hangs
//! there, and polls of it time out like any other.

mod feed;
pub mod hosting;
mod recording;
mod rows;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use trtllm_bridge::{BridgeError, Executor, IterationRow, KvEventRow, PerfRow, RequestRow};

use crate::model::RequestStatsPerIteration;
use crate::state::EngineAbout;

use feed::Feed;
use hosting::{Hosting, LoadPlan};

use super::{Answer, Batch, Item, OpenError, SourceError};

/// Rows drained at a time.
const ROWS: usize = 256;
/// What an engine may take to end when the daemon stops.
const FAREWELL: Duration = Duration::from_secs(5);

type Drained = Result<Vec<Item>, SourceError>;

/// The thread that owns an Executor.
#[derive(Debug)]
pub struct ExecutorThread {
    target: String,
    about: Option<EngineAbout>,
    /// None only while it is dropped.
    orders: Option<mpsc::Sender<oneshot::Sender<Drained>>>,
    /// An order not answered yet: a poll that timed out left it, the next one takes it up.
    pending: Option<oneshot::Receiver<Drained>>,
    ended: mpsc::Receiver<()>,
}

impl ExecutorThread {
    /// Constructs the engine, starts its load and waits until it runs.
    ///
    /// # Errors
    /// With the engine's own words when it cannot be opened, or the file of its load cannot be.
    pub fn start(hosting: Hosting) -> Result<Self, OpenError> {
        let engine = hosting.engine.clone();
        let failed = |cause: String| OpenError::Engine { engine: engine.clone(), cause };
        let feed = match &hosting.load {
            Some(LoadPlan::Recorded(plan)) => {
                Some(Feed::open(plan.clone()).map_err(|cause| OpenError::Load { path: plan.path.clone(), cause })?)
            }
            _ => None,
        };
        let (orders, inbox) = mpsc::channel();
        let (opened, outcome) = mpsc::sync_channel(1);
        let (ending, ended) = mpsc::channel::<()>();
        let serve = move || {
            match open(&hosting) {
                Ok(executor) => {
                    let _ = opened.send(Ok((executor.version(), executor.is_simulated())));
                    serve(executor, feed, &inbox);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            }
            drop(ending);
        };
        std::thread::Builder::new().name("executor".to_owned()).spawn(serve).map_err(|e| failed(e.to_string()))?;
        let opened = outcome.recv().map_err(|_| failed("its thread ended".to_owned()))?;
        let (version, simulated) = opened.map_err(|error| match error {
            BridgeError::Open { cause, .. } => failed(cause),
            other => failed(other.to_string()),
        })?;
        let version = Some(version).filter(|version| !version.is_empty());
        let about = EngineAbout { backend: Some("tensorrt".to_owned()), version, simulated };
        Ok(Self { target: engine, about: Some(about), orders: Some(orders), pending: None, ended })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        let gone = || SourceError::Engine { cause: "its thread ended".to_owned() };
        if self.pending.is_none() {
            let (reply, pending) = oneshot::channel();
            self.orders.as_ref().ok_or_else(gone)?.send(reply).map_err(|_| gone())?;
            self.pending = Some(pending);
        }
        if let Some(pending) = &mut self.pending {
            let drained = pending.await;
            self.pending = None;
            batch.items.extend(drained.map_err(|_| gone())??);
        }
        batch.about = self.about.take();
        if batch.about.as_ref().is_some_and(|about| about.simulated) {
            tracing::info!(engine = self.target, "this engine is simulated: its numbers describe no real model");
        }
        Ok(Answer::Present)
    }
}

/// An engine that this process made must not be in the middle of its work when the process ends.
impl Drop for ExecutorThread {
    fn drop(&mut self) {
        self.orders = None;
        if self.ended.recv_timeout(FAREWELL) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(engine = self.target, "this engine does not end; it is left behind");
        }
    }
}

fn open(hosting: &Hosting) -> Result<Executor, BridgeError> {
    let mut executor = Executor::open_with(&hosting.engine, &hosting.options)?;
    if let Some(LoadPlan::Synthetic(load)) = &hosting.load {
        match executor.start_load(load) {
            // A worker of a larger engine: its leader takes the requests.
            Err(BridgeError::NotLeader) => {
                tracing::info!("this rank takes no requests; its load is left to the leader")
            }
            other => other?,
        }
    }
    Ok(executor)
}

/// Answers orders until nobody can give any more.
fn serve(mut executor: Executor, mut feed: Option<Feed>, inbox: &mpsc::Receiver<oneshot::Sender<Drained>>) {
    let mut rows = Rows::default();
    loop {
        let wait = feed.as_mut().and_then(|feed| feed.run(&mut executor, Instant::now()));
        let order = match wait {
            Some(wait) => inbox.recv_timeout(wait),
            None => {
                feed = None;
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
        };
        match order {
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

/// Everything the engine has, oldest first. Asked first whether it may be: workers and stopped engines are a state.
fn drain(executor: &mut Executor, buffers: &mut Rows) -> Drained {
    let failed = |error: BridgeError| SourceError::Engine { cause: error.to_string() };
    if !executor.can_enqueue_requests() {
        let cause = "it has been shut down, or this process is not its leader".to_owned();
        return Err(SourceError::Engine { cause });
    }
    // Request rows first: the engine runs on meanwhile, and rows must find the record of their iteration already here.
    // Of each kind a poll takes what there is when it asks: the bridge ends a drain there.
    let mut of_requests = Vec::new();
    let mut iteration: Vec<RequestRow> = Vec::new();
    loop {
        let count = executor.drain_requests(&mut buffers.requests).map_err(failed)?;
        for row in &buffers.requests[..count] {
            if iteration.last().is_some_and(|last| !same_iteration(last, row)) {
                of_requests.extend(of_iteration(&iteration));
                iteration.clear();
            }
            iteration.push(*row);
        }
        if count < buffers.requests.len() {
            break;
        }
    }
    of_requests.extend(of_iteration(&iteration));
    let mut items = Vec::new();
    loop {
        let count = executor.drain_iterations(&mut buffers.iterations).map_err(failed)?;
        items.extend(buffers.iterations[..count].iter().map(|row| Item::Record(Box::new(rows::record(row)))));
        if count < buffers.iterations.len() {
            break;
        }
    }
    items.append(&mut of_requests);
    loop {
        let count = executor.drain_perf_metrics(&mut buffers.perf).map_err(failed)?;
        let entries = buffers.perf[..count].iter().map(rows::finished);
        items.extend(entries.map(|entry| Item::PerfMetrics(Box::new(entry))));
        if count < buffers.perf.len() {
            break;
        }
    }
    let mut of_events = Vec::new();
    loop {
        let count = executor.drain_kv_events(&mut buffers.kv_events).map_err(failed)?;
        of_events.extend_from_slice(&buffers.kv_events[..count]);
        if count < buffers.kv_events.len() {
            break;
        }
    }
    let events = of_events.chunk_by(|row, next| row.event_id == next.event_id && row.rank == next.rank);
    items.extend(events.map(|rows| Item::KvEvent(Box::new(rows::kv_event(rows)))));
    Ok(items)
}

/// All rows of one iteration.
fn of_iteration(of: &[RequestRow]) -> Option<Item> {
    let iter = of.first()?.iter;
    let request_stats = Some(of.iter().map(rows::request).collect());
    Some(Item::Requests(RequestStatsPerIteration { iter: Some(iter), request_stats }))
}

/// The idle flush and the iteration after it have one number. Within an iteration completed requests come last, so that one
/// that is not, after one that is, begins another.
fn same_iteration(row: &RequestRow, next: &RequestRow) -> bool {
    let complete = |row: &RequestRow| row.request_stage() == Some(trtllm_bridge::RequestStage::GenerationComplete);
    row.iter == next.iter && (complete(next) || !complete(row))
}
