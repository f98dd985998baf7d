//! The thread that has NVML initialised, keeps one worker per GPU, checks the workers' deadlines, starts again after
//! the driver was unloaded, and publishes inventories. It calls NVML itself only to shut it down, if it drops the last
//! reference. Invariants: a working NVML is initialised once, never per poll; a GPU has at most one worker, even if
//! that worker hangs while the driver is reloaded; this thread never waits for a call that may hang.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::config::GpuConfig;
use super::counters::CountersOfGpus;
use super::event::{Event, WorkerOutcome};
use super::nvml::{self, NvmlUnavailable, Session};
use super::probe::CurrentCall;
use super::publisher::InventoryPublisher;
use super::threads::{self, ThreadHandle};
use super::tracker::GpuTracker;
use super::worker::{Worker, WorkerHandle};
use super::{kubelet, xid_events};
use trtllm_records::gpu::{GpuInventory, GpuState};

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Time between two checks whether a session has been closed.
const CLOSE_CHECK: Duration = Duration::from_millis(5);
/// Timeout of a wait that only an event should end.
const LONG_WAIT: Duration = Duration::from_secs(3600);

/// An event that interrupts whatever the supervisor is doing.
enum Interrupt {
    Release,
    Stop(Instant),
}

pub(super) struct Supervisor {
    config: Arc<GpuConfig>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    tracker: GpuTracker,
    publisher: InventoryPublisher,
    counters: CountersOfGpus,
    /// At most one per NVML index, even if a worker hangs while the driver is reloaded.
    workers: Vec<WorkerHandle>,
    /// The other threads that hold a session open: they open it, close it or wait for Xid errors.
    session_threads: Vec<ThreadHandle>,
    /// Delay before the next initialisation.
    retry: Duration,
}

impl Supervisor {
    pub(super) fn new(
        mut config: GpuConfig,
        publish: Box<dyn Fn(GpuInventory) + Send>,
        events: mpsc::Sender<Event>,
        inbox: mpsc::Receiver<Event>,
    ) -> Self {
        config.interval = config.interval.max(SHORTEST_INTERVAL);
        let config = Arc::new(config);
        let tracker = GpuTracker::new(config.uuids.clone());
        Self {
            events,
            inbox,
            publisher: InventoryPublisher::new(publish, config.interval, tracker.inventory()),
            tracker,
            counters: CountersOfGpus::default(),
            workers: Vec::new(),
            session_threads: Vec::new(),
            retry: config.timing.init_retry_min,
            config,
        }
    }

    /// Runs until [`Event::Stop`]. `first` is a session that is open already.
    pub(super) fn run(mut self, mut first: Option<Arc<Session>>) {
        // The poller stops when this handle is dropped at the end of the function.
        let _pod_poller = self.start_pod_poller();
        let deadline = loop {
            let ended = self.run_session(first.take()).or_else(|interrupt| match interrupt {
                Interrupt::Release => self.wait_while_released(),
                stop => Err(stop),
            });
            if let Err(Interrupt::Stop(deadline)) = ended {
                break deadline;
            }
        };
        // The last thread of a session shuts NVML down. A worker with a hung call is not waited for.
        for thread in self.responsive_threads() {
            thread.wait_until(deadline);
        }
    }

    fn start_pod_poller(&self) -> Option<ThreadHandle> {
        let socket = self.config.pod_resources.clone()?;
        let (interval, events) = (self.config.timing.pods_interval, self.events.clone());
        let own_pod = self.config.own_pod.clone();
        let poll = move |stop: &_| kubelet::poll(&socket, own_pod.as_ref(), interval, stop, &events);
        let thread = threads::spawn("gpu-pods", poll);
        thread
            .inspect_err(|error| tracing::warn!(%error, "cannot start the kubelet thread, pods of GPUs stay unknown; raise the limit of processes"))
            .ok()
    }

    /// Waits for [`Event::Resume`]. The state becomes "released" only when no thread holds NVML any more.
    fn wait_while_released(&mut self) -> Result<(), Interrupt> {
        let warn_at = Instant::now() + self.config.timing.call_deadline;
        let mut warned = false;
        loop {
            let workers = self.workers.iter().map(|worker| &worker.thread);
            let held = workers.chain(&self.session_threads).any(ThreadHandle::is_running);
            if !held {
                self.tracker.released();
                self.publisher.schedule();
            } else if !warned && Instant::now() >= warn_at {
                warned = true;
                self.tracker.release_blocked();
                self.publisher.schedule();
            }
            let step = if held { CLOSE_CHECK } else { LONG_WAIT };
            match self.receive(Instant::now() + step) {
                Ok(Some(Event::Resume)) => break,
                Ok(_) | Err(Interrupt::Release) => {}
                Err(stop) => return Err(stop),
            }
        }
        tracing::info!("GPU monitoring resumed");
        self.retry = self.config.timing.init_retry_min;
        Ok(())
    }

    /// Initialises NVML, monitors its GPUs until the session ends, and waits before the next initialisation.
    fn run_session(&mut self, open: Option<Arc<Session>>) -> Result<(), Interrupt> {
        if let Some(session) = open.map_or_else(|| self.open(), |session| Ok(Some(session)))? {
            self.monitor_and_close(session)?;
        }
        let next = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(self.config.timing.init_retry_max);
        while self.receive(next)?.is_some() {}
        // nvmlInit is reference-counted: while the old session is open, another call would change nothing. A session that a
        // hung worker holds open is not waited for.
        let deadline = next + self.config.timing.call_deadline;
        while self.responsive_threads().any(ThreadHandle::is_running) && Instant::now() < deadline {
            self.receive(Instant::now() + CLOSE_CHECK)?;
        }
        Ok(())
    }

    /// The threads that can be waited for: all except workers with an overdue call.
    fn responsive_threads(&self) -> impl Iterator<Item = &ThreadHandle> {
        let deadline = self.config.timing.call_deadline;
        let workers = self.workers.iter().filter(move |worker| worker.overdue(deadline).is_none());
        workers.map(|worker| &worker.thread).chain(&self.session_threads)
    }

    /// Initialises NVML and waits for the result, however long that takes. `None` if it failed; the tracker has the reason.
    fn open(&mut self) -> Result<Option<Arc<Session>>, Interrupt> {
        let events = self.events.clone();
        let done = move |result| drop(events.send(Event::Opened(result)));
        match nvml::open_in_background(self.config.library.clone(), done) {
            Ok(thread) => self.session_threads.push(thread),
            Err(reason) => drop(self.events.send(Event::Opened(Err(reason)))),
        }
        let deadline = self.config.timing.init_deadline;
        let mut until = Instant::now() + deadline;
        loop {
            match self.receive(until)? {
                Some(Event::Opened(Ok(session))) => return Ok(Some(session)),
                Some(Event::Opened(Err(reason))) => {
                    self.tracker.unavailable(&reason);
                    return Ok(None);
                }
                Some(_) => {}
                // A second attempt beside one that hangs would hang, too, and occupy a thread each time.
                None => {
                    self.tracker.unavailable(&NvmlUnavailable::Stalled(deadline));
                    self.publisher.schedule();
                    until = Instant::now() + LONG_WAIT;
                }
            }
        }
    }

    fn monitor_and_close(&mut self, session: Arc<Session>) -> Result<(), Interrupt> {
        self.tracker.session_opened(&session);
        self.publisher.schedule();
        // Starts the thread that waits for Xid errors. It registers the GPUs whose indexes are sent to it.
        let (registrations, indexes) = mpsc::channel();
        let (shared, events) = (Arc::clone(&session), self.events.clone());
        match threads::spawn("gpu-events", move |stop| xid_events::run(&shared, &indexes, stop, &events)) {
            Ok(thread) => self.session_threads.push(thread),
            Err(error) => {
                tracing::warn!(%error, "cannot start the Xid thread, Xid errors stay unknown; raise the limit of processes")
            }
        }
        let result = self.monitor(&session, &registrations);
        self.session_threads.retain(ThreadHandle::is_running);
        let workers = self.workers.iter_mut().map(|worker| &mut worker.thread);
        workers.chain(&mut self.session_threads).for_each(ThreadHandle::request_stop);
        // nvmlShutdown can hang too, so another thread drops the session. While a worker runs, the worker's own
        // reference keeps NVML open, and the last worker shuts it down.
        match threads::spawn("gpu-close", move |_| drop(session)) {
            Ok(thread) => self.session_threads.push(thread),
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread to close NVML, so the supervisor closed it; raise the limit of processes")
            }
        }
        result
    }

    /// Monitors the GPUs of one session until the session is useless or an interrupt comes.
    fn monitor(&mut self, session: &Arc<Session>, registrations: &mpsc::Sender<u32>) -> Result<(), Interrupt> {
        let step = self.config.interval.min(self.config.timing.call_deadline);
        while self.tracker.session_is_useful() {
            self.spawn_missing_workers(session);
            let ended =
                self.workers.iter().filter(|worker| !worker.thread.is_running() && worker.session == session.number);
            let ended: Vec<u32> = ended.map(|worker| worker.index).collect();
            match self.receive(Instant::now() + step)? {
                // A worker sends its last report before it ends, so an empty inbox means that no report is missing.
                None => {
                    let died: Vec<u32> =
                        ended.into_iter().filter(|index| self.tracker.worker_missing(*index)).collect();
                    // They have panicked. Each gets a new worker with the next step.
                    self.workers.retain(|worker| !died.contains(&worker.index));
                    self.publisher.schedule();
                }
                Some(Event::Report(report)) if report.session == session.number => {
                    match report.outcome {
                        WorkerOutcome::Polled(GpuState::Ok, ..) => self.retry = self.config.timing.init_retry_min,
                        // Sending fails if this driver has no events: the Xid thread has ended then, which is fine.
                        WorkerOutcome::Identified(_) => drop(registrations.send(report.index)),
                        _ => {}
                    }
                    self.tracker.absorb(report);
                }
                _ => {}
            }
            for worker in &self.workers {
                if let Some(call) = worker.overdue(self.config.timing.call_deadline) {
                    self.tracker.stalled(worker.index, call);
                    self.publisher.schedule();
                }
            }
        }
        Ok(())
    }

    /// Spawns one worker per index and session. An index whose worker of an earlier session hangs gets no new worker.
    fn spawn_missing_workers(&mut self, session: &Arc<Session>) {
        self.workers.retain(|worker| worker.session == session.number || worker.thread.is_running());
        for index in 0..session.gpus {
            if self.workers.iter().any(|worker| worker.index == index) {
                continue;
            }
            let worker = Worker {
                session: Arc::clone(session),
                index,
                config: Arc::clone(&self.config),
                current_call: CurrentCall::default(),
                counters: Arc::clone(&self.counters),
                events: self.events.clone(),
            };
            match worker.spawn() {
                Ok(worker) => self.workers.push(worker),
                Err(error) => self.tracker.thread_missing(index, &error),
            }
        }
    }

    /// Waits for the next event; returns `None` at `until`. Publishes inventories that become due in the meantime.
    fn receive(&mut self, until: Instant) -> Result<Option<Event>, Interrupt> {
        loop {
            let due = self.publisher.run(|| self.tracker.inventory());
            let wake = due.map_or(until, |due| due.min(until));
            let event = self.inbox.recv_timeout(wake.saturating_duration_since(Instant::now()));
            if event.is_ok() {
                self.publisher.schedule();
            }
            match event {
                Ok(Event::Stop(deadline)) => return Err(Interrupt::Stop(deadline)),
                Ok(Event::Release) => return Err(Interrupt::Release),
                Ok(Event::Assignments(assignments)) => self.tracker.assignments(assignments),
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                // Impossible: `self.events` is a sender of this channel.
                Err(RecvTimeoutError::Disconnected) => return Err(Interrupt::Stop(until)),
            }
        }
    }
}
