//! One driver per engine: opens its source, polls it at a fixed rate and closes it. The intake counts and logs the results.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::intake::{Intake, Moment};
use trtllm_service::permits::Deadline;
use trtllm_service::shutdown::Shutdown;
use trtllm_service::supervise::{self, Heartbeat, Panicked, Task};
use trtllm_sources::{Batch, OpenError, Presence, Source, SourceError};

/// How an engine is polled.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub interval: Duration,
    pub timeout: Duration,
}

/// How often the state of an engine is checked during a poll: a source that hangs must not keep old numbers on the page.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);

/// An idle engine is polled at least this often: the endpoint picker of a gateway should see its next request soon.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// During a long poll, its messages are published at least this often.
const PUBLISHED: Duration = Duration::from_secs(1);

/// Shown by `/readyz`.
const LOADING: &str = "the engine is still loading its model";

/// What a driver reports to the start-up code, each event at most once.
#[derive(Debug)]
pub enum DriverEvent {
    /// The first poll has ended, whether it succeeded or not. Not sent while an engine still loads its model.
    FirstPoll,
    /// The source cannot be opened, and the driver has ended.
    Failed(OpenError),
}

/// Why a driver has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stopped,
    /// The engine is gone for good, and its series end.
    Forgotten,
}

pub type DriverEvents = mpsc::UnboundedSender<DriverEvent>;

/// The driver of one engine.
#[derive(Debug)]
pub struct Driver {
    schedule: Schedule,
    intake: Intake,
    events: DriverEvents,
    heartbeat: Heartbeat,
}

impl Driver {
    pub fn new(intake: Intake, schedule: Schedule, events: DriverEvents, heartbeat: Heartbeat) -> Self {
        Self { schedule, intake, events, heartbeat }
    }

    /// Opens the source and polls it. Returns at shutdown, if the source fails for good, or if the engine is gone. `open` may take
    /// as long as it needs: the engine is `starting` meanwhile, and a shutdown drops the future.
    pub async fn run(mut self, open: impl Future<Output = Result<Source, OpenError>>, mut shutdown: Shutdown) -> End {
        let opened = tokio::select! {
            opened = self.watch(Some("the source is still being opened"), open) => opened,
            () = shutdown.wait() => return End::Stopped,
        };
        let result = match opened {
            Ok(mut source) => {
                let result = self.poll_until(&mut source, &mut shutdown).await;
                source.close().await;
                result
            }
            Err(error) => Err(error),
        };
        result.unwrap_or_else(|error| {
            self.intake.cannot_open(&error, Moment::now());
            // The receiver is gone only if the daemon stops anyway.
            let _ = self.events.send(DriverEvent::Failed(error));
            End::Stopped
        })
    }

    /// Keeps the state of the engine up to date during `work`. `starting` is the reason why the engine has no statistics yet.
    async fn watch<T>(&mut self, starting: Option<&'static str>, work: impl Future<Output = T>) -> T {
        let mut health = tokio::time::interval(HEALTH_INTERVAL);
        let mut work = pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                _ = health.tick() => {
                    self.heartbeat.beat();
                    let now = Moment::now();
                    // A panic is counted, and the next check is a new attempt.
                    let _ = supervise::catch_now(Task::Fold, || {
                        if let Some(reason) = starting {
                            self.intake.still_starting(reason, now);
                        }
                        self.intake.check_health(now.instant);
                    });
                }
            }
        }
    }

    async fn poll_until(&mut self, source: &mut Source, shutdown: &mut Shutdown) -> Result<End, OpenError> {
        // Polls at a fixed rate, without a pause after each poll, because the engine fills its ring at its own rate.
        // The first poll does not wait for a tick, because timers have a resolution of one millisecond.
        let mut due = Instant::now();
        let mut batch = Batch::default();
        let mut first_poll = true;
        loop {
            self.heartbeat.beat();
            let begun = Moment::now().instant;
            let result = tokio::select! {
                result = self.poll(source, &mut batch) => result,
                () = shutdown.wait() => return Ok(End::Stopped),
            };
            let at = Moment::now();
            match result {
                Ok(Presence::Forgotten) => return Ok(End::Forgotten),
                Ok(Presence::Loading) => self.intake.still_starting(LOADING, at),
                // Not logged here: it ends the daemon, which prints it.
                Err(SourceError::Open(error)) => return Err(error),
                result => {
                    let duration = at.instant.duration_since(begun);
                    if result.is_err() {
                        self.take_partial(source, &mut batch).await;
                    }
                    if batch.about.as_ref().is_some_and(|about| about.simulated) {
                        let engine = source.target();
                        tracing::info!(engine, "this engine is simulated; its numbers describe no real model");
                    }
                    let is_cut = batch.more && result.is_ok();
                    let end = || self.intake.end_poll(&mut batch, duration, result.as_ref().copied(), at);
                    let folded = supervise::catch_now(Task::Fold, end);
                    if folded.is_err() {
                        batch = Batch::default();
                    }
                    if std::mem::take(&mut first_poll) {
                        let _ = self.events.send(DriverEvent::FirstPoll);
                    }
                    if is_cut {
                        continue;
                    }
                }
            }
            let interval = self.schedule.interval.max(source.interval());
            // An idle engine is polled half as often, if a router still learns of a new request within [`IDLE_INTERVAL`].
            let period = match self.intake.is_idle() && 2 * interval <= IDLE_INTERVAL {
                true => 2 * interval,
                false => interval,
            };
            due = next_poll(due, period, Instant::now());
            let wait = async {
                match interval > HEALTH_INTERVAL {
                    true => self.watch(None, tokio::time::sleep_until(due)).await,
                    // The next poll checks the state soon enough. A second timer would double the cost of an idle engine.
                    false => tokio::time::sleep_until(due).await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = shutdown.wait() => return Ok(End::Stopped),
            }
        }
    }

    /// Folds what a failed poll has received, in parts, so that only one part takes memory.
    async fn take_partial(&mut self, source: &mut Source, batch: &mut Batch) {
        let mut part = || {
            let more = source.take_partial(batch);
            if more {
                self.intake.absorb_messages(batch, Moment::now());
            }
            more
        };
        while supervise::catch_now(Task::Fold, &mut part) == Ok(true) {
            tokio::task::yield_now().await;
        }
    }

    /// Polls once, within the timeout. If the source delivers in parts, the messages of a part are folded before the next part.
    async fn poll(&mut self, source: &mut Source, batch: &mut Batch) -> Result<Presence, SourceError> {
        let timeout = self.schedule.timeout;
        let (mut deadline, published) = (Deadline::after(timeout), Instant::now() + PUBLISHED);
        let starting = source.is_loading().then_some(LOADING);
        let polled = loop {
            let part = {
                // Pinned here: an async function that gets a future by value stores it twice, and this one has 8 KB.
                let part = pin!(source.poll(batch));
                let part = pin!(deadline.run(part));
                let part = pin!(supervise::catch(Task::Poll, part));
                self.watch(starting, part).await
            };
            // A source that always has more messages must not delay the update of the page. The next poll reads the rest.
            if !batch.more || !matches!(part, Ok(Ok(Ok(_)))) || Instant::now() >= published {
                break part;
            }
            let _ = supervise::catch_now(Task::Fold, || self.intake.absorb_messages(batch, Moment::now()));
            tokio::task::yield_now().await;
        };
        match polled {
            Ok(Ok(result)) => result,
            Ok(Err(_)) if source.is_loading() => Ok(Presence::Loading),
            Ok(Err(_)) => Err(SourceError::Timeout { target: source.target(), after: timeout }),
            Err(Panicked) => Err(SourceError::Panicked { target: source.target() }),
        }
    }
}

/// When the next poll of a fixed rate is due. Missed polls are skipped.
fn next_poll(last: Instant, period: Duration, now: Instant) -> Instant {
    let next = last + period;
    let missed = now.saturating_duration_since(next).as_nanos().div_ceil(period.as_nanos());
    next + period * u32::try_from(missed).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use trtllm_engines::{Engine, State};
    use trtllm_fold::EngineState;
    use trtllm_records::Message;
    use trtllm_records::{EngineName, IterationStats};
    use trtllm_service::shutdown;
    use trtllm_service::supervise::Heartbeats;

    const SCHEDULE: Schedule = Schedule { interval: Duration::from_millis(10), timeout: Duration::from_millis(10) };

    /// The driver of one engine.
    fn driver(schedule: Schedule) -> (State, Driver, mpsc::UnboundedReceiver<DriverEvent>) {
        let state = State::new(vec![EngineName::new("m", "1", "test")]);
        let intake = Intake::new(Arc::clone(&state.slots()[0]), 10 * schedule.interval);
        let (events, received) = mpsc::unbounded_channel();
        let heartbeat = Heartbeats::default().register(String::new());
        (state, Driver::new(intake, schedule, events, heartbeat), received)
    }

    /// There is one such task per engine. It had 34 KB when each layer kept the future of a poll twice.
    #[test]
    fn the_task_of_an_engine_takes_little_memory() {
        let (_, driver, _events) = driver(SCHEDULE);
        let (_trigger, shutdown) = shutdown::channel();
        let task = driver.run(std::future::pending(), shutdown);
        assert!(size_of_val(&task) <= 14_000, "{} bytes", size_of_val(&task));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_engine_is_polled_half_as_often_and_a_busy_one_at_the_full_rate() {
        static POLLS: AtomicU64 = AtomicU64::new(0);
        static ACTIVE: AtomicU64 = AtomicU64::new(0);
        let source = Source::Test(|batch| {
            let iter = POLLS.fetch_add(1, Ordering::SeqCst) + 1;
            let active = Some(ACTIVE.load(Ordering::SeqCst) as i64);
            let record = IterationStats { iter: Some(iter), num_active_requests: active, ..IterationStats::default() };
            batch.messages.push(Message::Record(Box::new(record)));
            (Duration::ZERO, Ok(Presence::Present))
        });
        let schedule = Schedule { interval: Duration::from_millis(100), timeout: Duration::from_secs(5) };
        let (_state, driver, _events) = driver(schedule);
        let (_trigger, shutdown) = shutdown::channel();
        tokio::spawn(driver.run(std::future::ready(Ok(source)), shutdown));
        for (active, expected) in [(0, 50), (1, 100), (0, 50)] {
            ACTIVE.store(active, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let before = POLLS.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(10)).await;
            let polls = POLLS.load(Ordering::SeqCst) - before;
            assert!(polls.abs_diff(expected) <= 1, "{polls} polls in 10 s with {active} active requests");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_part_of_a_long_poll_does_not_wait_for_the_next_interval() {
        static PARTS: AtomicU64 = AtomicU64::new(0);
        // As a server whose records take 2 s and whose requests follow.
        let source = Source::Test(|batch| {
            batch.more = PARTS.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            (Duration::from_secs(if batch.more { 2 } else { 0 }), Ok(Presence::Present))
        });
        let schedule = Schedule { interval: Duration::from_secs(10), timeout: Duration::from_secs(5) };
        let (_state, driver, _events) = driver(schedule);
        let (_trigger, shutdown) = shutdown::channel();
        tokio::spawn(driver.run(std::future::ready(Ok(source)), shutdown));
        tokio::time::sleep(Duration::from_secs(95)).await;
        assert_eq!(PARTS.load(Ordering::SeqCst), 20, "two parts in each interval");
    }

    #[tokio::test]
    async fn missed_polls_are_left_out_and_the_rate_keeps_its_rhythm() {
        let (start, period) = (Instant::now(), Duration::from_millis(100));
        for (took, next) in [(0, 100), (99, 100), (100, 100), (101, 200), (950, 1000)] {
            let due = next_poll(start, period, start + Duration::from_millis(took));
            assert_eq!(due - start, Duration::from_millis(next), "after a poll of {took} ms");
        }
    }

    #[tokio::test]
    async fn an_engine_is_starting_while_its_source_is_opened_and_a_shutdown_ends_that() {
        let (state, driver, mut events) = driver(SCHEDULE);
        let (trigger, shutdown) = shutdown::channel();
        let running = tokio::spawn(driver.run(std::future::pending(), shutdown));
        // Waits for several health checks, and for longer than the engine may take to become stale.
        while state.slots()[0].lock().source.loading.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(30 * SCHEDULE.interval).await;
        let at_the_end = |engine: &Engine| (engine.state, engine.source.ready);
        assert_eq!(at_the_end(&state.slots()[0].lock()), (EngineState::Starting, false));
        trigger.stop();
        running.await.unwrap();
        assert!(events.recv().await.is_none(), "neither a first poll nor a failure");
    }

    #[tokio::test]
    async fn a_source_that_cannot_be_opened_is_reported_once_and_ends_its_driver() {
        let (_state, driver, mut events) = driver(SCHEDULE);
        let (_trigger, shutdown) = shutdown::channel();
        let failing = async {
            tokio::task::yield_now().await;
            Err(OpenError::Engine { engine: "e".to_owned(), cause: "out of memory".to_owned() })
        };
        driver.run(failing, shutdown).await;
        let Some(DriverEvent::Failed(error)) = events.recv().await else { panic!("no failure") };
        assert!(error.to_string().contains("out of memory"));
        assert!(events.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_poll_that_panics_is_counted_and_the_next_one_continues_the_totals() {
        static POLLS: AtomicU64 = AtomicU64::new(0);
        let source = Source::Test(|batch| {
            let poll = POLLS.fetch_add(1, Ordering::SeqCst);
            let record = IterationStats { iter: Some(poll + 1), ..IterationStats::default() };
            batch.messages.push(Message::Record(Box::new(record)));
            assert!(poll != 1, "as if the system had no more threads");
            (Duration::ZERO, Ok(Presence::Present))
        });
        let (state, driver, _events) = driver(SCHEDULE);
        let (trigger, shutdown) = shutdown::channel();
        let before = supervise::restarts();
        let running = tokio::spawn(driver.run(std::future::ready(Ok(source)), shutdown));
        while POLLS.load(Ordering::SeqCst) < 6 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        trigger.stop();
        running.await.unwrap();
        let slots = state.slots();
        let engine = slots[0].lock();
        // What the poll had read before it panicked is not lost.
        assert!(engine.totals().iterations >= 5, "{}", engine.totals().iterations);
        assert!(supervise::restarts()[Task::Poll as usize] > before[Task::Poll as usize], "other tests count, too");
        let errors: u64 = engine.source.metrics.errors.iter().map(|count| count.get()).sum();
        assert_eq!(errors, 1);
    }
}
