//! Who runs when: one driver per engine polls its source at a fixed rate, folds what came and publishes. The one place
//! that times, counts and logs a source, so that logs and metrics cannot disagree.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::engine::{Engine, EngineState};
use crate::shutdown::Shutdown;
use crate::sources::{Answer, Batch, Item, RejectReason, Source, SourceError};
use crate::state::{EngineAbout, SourceStatus, State};

/// How an engine is polled.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub interval: Duration,
    pub timeout: Duration,
    pub stale_after: Duration,
}

/// How often an engine's state is looked at while a poll is under way: a hung source must not keep old numbers alive.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);

/// Held by each driver until its first poll is over.
pub type FirstPoll = mpsc::Sender<Infallible>;

/// The driver of the `index`-th engine of `state`.
#[derive(Debug)]
pub struct Driver {
    index: usize,
    model: String,
    schedule: Schedule,
    state: Arc<State>,
    /// Boxed, for it is tens of kilobytes: the driver is moved about before it runs.
    engine: Box<Engine>,
    source: SourceStatus,
    about: EngineAbout,
    published: EngineState,
    failing: Option<&'static str>,
    rejecting: bool,
}

impl Driver {
    #[must_use]
    pub fn new(index: usize, model: String, schedule: Schedule, state: Arc<State>) -> Self {
        Self {
            index,
            model,
            schedule,
            state,
            engine: Box::new(Engine::new(Instant::now(), schedule.stale_after)),
            source: SourceStatus::new(),
            about: EngineAbout::default(),
            published: EngineState::Starting,
            failing: None,
            rejecting: false,
        }
    }

    /// Polls until told to stop. `first` is dropped once the first poll is folded, whatever came of it.
    pub async fn run(mut self, mut source: Source, mut shutdown: Shutdown, first: FirstPoll) {
        let mut first = Some(first);
        // A fixed rate, not a pause after each poll: the engine's ring fills by the clock. Not a tick at once: timers count
        // whole milliseconds, and the first poll need not wait for one.
        let interval = self.schedule.interval;
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut batch = Batch::default();
        loop {
            let begun = Instant::now();
            let result = tokio::select! {
                result = self.poll(&mut source, &mut batch) => result,
                () = shutdown.wait() => return,
            };
            if result.is_err() {
                source.salvage(&mut batch);
            }
            self.fold(&mut batch, begun, result);
            self.publish();
            drop(first.take());
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.wait() => return,
            }
        }
    }

    /// One poll under its deadline; the engine's state is kept true meanwhile.
    async fn poll(&mut self, source: &mut Source, batch: &mut Batch) -> Result<Answer, SourceError> {
        let target = source.target().to_owned();
        let timeout = self.schedule.timeout;
        let mut health = tokio::time::interval(HEALTH_INTERVAL);
        let poll = tokio::time::timeout(timeout, source.poll(batch));
        tokio::pin!(poll);
        loop {
            tokio::select! {
                result = &mut poll => {
                    return result.unwrap_or(Err(SourceError::Timeout { target, after: timeout }));
                }
                _ = health.tick() => {
                    if self.engine.health.state(Instant::now()) != self.published {
                        self.publish();
                    }
                }
            }
        }
    }

    /// Takes what came into the totals, whether or not the poll succeeded in the end.
    fn fold(&mut self, batch: &mut Batch, begun: Instant, result: Result<Answer, SourceError>) {
        let now = Instant::now();
        let wall_us = wall_us();
        let items = batch.items.len();
        let mut records = Vec::new();
        for item in batch.items.drain(..) {
            match item {
                Item::Record(record) => {
                    self.engine.absorb(&record, now, wall_us);
                    records.push(record);
                }
                Item::Requests(rows) => self.engine.absorb_requests(&rows, now),
                Item::PerfMetrics(entry) => self.engine.absorb_perf_metrics(&entry, now),
                Item::KvEvent(event) => self.engine.absorb_kv_event(&event),
                Item::BenchReport(report) => self.source.bench_report = Some(report),
                Item::Process(process) => self.engine.process(process),
            }
        }
        self.state.keep_records(self.index, records);
        self.engine.settle(now);
        if batch.ended {
            self.engine.finish();
        }
        if let Some(about) = batch.about.take() {
            self.about = about;
        }
        self.source.connections = batch.connections;
        self.source.polls += 1;
        self.source.last_poll_us = Some(wall_us);
        self.source.poll_duration.observe(now.duration_since(begun).as_secs_f64());
        self.source.up = matches!(result, Ok(Answer::Present));
        self.source.ready |= result.is_ok();
        if self.source.up {
            self.source.last_success_us = Some(wall_us);
        }
        // A socket that no publisher has come to yet is waiting, not unreachable.
        if self.source.up || (result.is_ok() && self.source.last_success_us.is_none()) {
            self.engine.health.answered(now);
        }
        self.note_failure(result.err());
        self.note_rejections(&batch.rejected, items);
        batch.clear();
    }

    /// Counts every failure, logs each change.
    fn note_failure(&mut self, error: Option<SourceError>) {
        let kind = error.as_ref().map(SourceError::kind);
        if let Some(kind) = kind {
            self.source.errors[kind as usize] += 1;
        }
        let name = kind.map(|kind| kind.name());
        if name != self.failing {
            match &error {
                Some(error) => tracing::warn!(model = self.model, kind = name, %error, "source fails"),
                None => tracing::info!(model = self.model, "source answers again"),
            }
            self.failing = name;
        }
        self.source.last_error = error.map(|error| error.to_string());
    }

    fn note_rejections(&mut self, rejected: &[u64], records: usize) {
        let mut any = false;
        for (reason, (count, more)) in RejectReason::ALL.into_iter().zip(self.source.rejected.iter_mut().zip(rejected))
        {
            *count += more;
            if *more > 0 {
                any = true;
                if !self.rejecting {
                    tracing::warn!(
                        model = self.model,
                        reason = reason.name(),
                        count = more,
                        "records skipped: they are not what TensorRT-LLM writes; the rest of the source is read on"
                    );
                }
            }
        }
        // Good records without bad ones end the state; silence does not.
        if any || records > 0 {
            self.rejecting = any;
        }
    }

    fn publish(&mut self) {
        let state = self.engine.health.state(Instant::now());
        if state != self.published {
            if state.is_stale() {
                tracing::warn!(
                    model = self.model,
                    state = state.name(),
                    "engine is stale: its load gauges leave the page until it is heard again"
                );
            } else if self.published.is_stale() {
                tracing::info!(model = self.model, state = state.name(), "engine is back");
            }
            self.published = state;
        }
        self.state.update_engine(self.index, |snapshot| snapshot.write(state, &self.engine, &self.source, &self.about));
    }
}

/// Microseconds since 1970 UTC.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
