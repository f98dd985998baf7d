//! Who runs when: one thread that initialises NVML, keeps one worker per GPU, watches their deadlines, begins again
//! after the driver went away, and publishes. It calls NVML only to shut it down at the very end.
//! Invariants: an NVML that is up is initialised once, never per poll · at most one worker per GPU, also when one
//! hangs over a driver reload · nothing here waits for a call that may hang.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::GpuConfig;
use super::event::{Event, Outcome};
use super::events;
use super::ledger::Ledger;
use super::nvml::{self, NvmlUnavailable, Session};
use super::pods;
use super::probe::Watch;
use super::visible::Visible;
use super::worker::{self, Pace, Worker};
use crate::model::gpu::{GpuInventory, GpuState};

/// Workers poll at the same time: a first change waits this long for the others, so that one inventory has them all.
const SETTLE: Duration = Duration::from_millis(20);
/// Nothing is kept from the page for longer, however long the interval.
const UNSEEN: Duration = Duration::from_millis(500);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// How soon it is noticed that a session has been closed.
const CLOSING_STEP: Duration = Duration::from_millis(5);

/// Breaks off whatever is going on.
enum Broken {
    Release,
    Stop(Instant),
}

pub(super) struct Supervisor {
    config: GpuConfig,
    visible: Arc<Visible>,
    publish: Box<dyn Fn(GpuInventory) + Send>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    ledger: Ledger,
    /// Tells reports of this initialisation from late ones of those before.
    session: u64,
    crew: Vec<Hand>,
    /// Each disconnects when a thread that holds a session open beside the workers has ended: the one that closes it and
    /// the one that listens for errors.
    closing: Vec<mpsc::Receiver<Infallible>>,
    /// The next wait before NVML is initialised again.
    retry: Duration,
    published: GpuInventory,
    published_at: Instant,
    /// When to look whether there is something to publish.
    due: Option<Instant>,
}

/// A worker as seen from here.
struct Hand {
    index: u32,
    session: u64,
    watch: Watch,
    /// Dropped to end the worker.
    leash: Option<mpsc::Sender<Infallible>>,
    /// Disconnects when the worker has ended and let go of NVML.
    ended: mpsc::Receiver<Infallible>,
}

impl Supervisor {
    pub(super) fn new(
        mut config: GpuConfig,
        publish: Box<dyn Fn(GpuInventory) + Send>,
        events: mpsc::Sender<Event>,
        inbox: mpsc::Receiver<Event>,
    ) -> Self {
        config.interval = config.interval.max(SHORTEST_INTERVAL);
        let visible = Arc::new(Visible::new(&config.uuids, |name| std::env::var(name).ok()));
        let ledger = Ledger::new(Arc::clone(&visible));
        Self {
            retry: config.timing.retry_first,
            visible,
            publish,
            events,
            inbox,
            session: 0,
            crew: Vec::new(),
            closing: Vec::new(),
            published: ledger.inventory(),
            published_at: Instant::now(),
            due: None,
            ledger,
            config,
        }
    }

    /// Runs until it is told to stop. `first` is a session that is open already.
    pub(super) fn run(mut self, mut first: Option<Session>) {
        let _pods = self.ask_kubelet();
        let deadline = loop {
            match self.cycle(first.take()) {
                Ok(()) => {}
                Err(Broken::Stop(deadline)) => break deadline,
                Err(Broken::Release) => {
                    if let Err(Broken::Stop(deadline)) = self.stay_released() {
                        break deadline;
                    }
                }
            }
        };
        // The last worker out shuts NVML down. One that is stalled is not waited for.
        let call_deadline = self.config.timing.call_deadline;
        let crew = self.crew.iter().filter(|hand| hand.overdue(call_deadline).is_none()).map(|hand| &hand.ended);
        for ended in crew.chain(&self.closing) {
            let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Asks who has which GPU until the sender is dropped.
    fn ask_kubelet(&self) -> Option<mpsc::Sender<Infallible>> {
        let socket = self.config.pod_resources.clone()?;
        let (leash, leashed) = mpsc::channel();
        let (interval, reports) = (self.config.timing.pods, self.events.clone());
        let asking = worker::thread("gpu-pods").spawn(move || pods::watch(&socket, interval, &leashed, &reports));
        asking.map_or_else(|error| tracing::warn!(%error, "no thread to ask the kubelet who has which GPU"), drop);
        Some(leash)
    }

    /// Waits until the driver shall be taken again. It is said to be released only when nothing of ours holds it.
    fn stay_released(&mut self) -> Result<(), Broken> {
        let patience = Instant::now() + self.config.timing.call_deadline;
        let (mut released, mut warned) = (false, false);
        loop {
            let held = self.crew.iter().map(|hand| &hand.ended).chain(&self.closing).any(is_alive);
            if !held && !released {
                released = true;
                self.ledger.released();
                self.change();
            } else if held && !warned && Instant::now() >= patience {
                warned = true;
                self.ledger.held();
                self.change();
            }
            let step = if released { Duration::from_secs(3600) } else { CLOSING_STEP };
            if self.resumes(Instant::now() + step)? {
                tracing::info!("NVML is taken again");
                self.retry = self.config.timing.retry_first;
                return Ok(());
            }
        }
    }

    /// Hears until then whether the driver shall be taken again.
    fn resumes(&mut self, until: Instant) -> Result<bool, Broken> {
        match self.receive(until) {
            Ok(Some(Event::Resume)) => Ok(true),
            Ok(_) | Err(Broken::Release) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// One initialisation, what comes of it, and the wait before the next.
    fn cycle(&mut self, open: Option<Session>) -> Result<(), Broken> {
        match open.map_or_else(|| self.open(), |session| Ok(Some(session)))? {
            Some(session) => self.serve(session)?,
            None => self.change(),
        }
        let again = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(self.config.timing.retry_max);
        while self.receive(again)?.is_some() {}
        // nvmlInit is counted: beside a session that is still open it would change nothing.
        let patience = again + self.config.timing.call_deadline;
        while self.is_open() && Instant::now() < patience {
            self.receive(Instant::now() + CLOSING_STEP)?;
        }
        Ok(())
    }

    /// Whether a session is still being closed. One that a stalled worker holds open is not waited for.
    fn is_open(&self) -> bool {
        let call_deadline = self.config.timing.call_deadline;
        let working = |hand: &Hand| hand.overdue(call_deadline).is_none() && is_alive(&hand.ended);
        self.crew.iter().any(working) || self.closing.iter().any(is_alive)
    }

    /// Initialises NVML, however long it takes; `None` if that failed, which is in the ledger then.
    fn open(&mut self) -> Result<Option<Session>, Broken> {
        let events = self.events.clone();
        let (alive, ended) = mpsc::channel::<Infallible>();
        let done = move |result| {
            let _ = events.send(Event::Opened(result));
            drop(alive);
        };
        self.closing.push(ended);
        if let Err(reason) = nvml::open_in_background(self.config.library.clone(), done) {
            self.ledger.unavailable(&reason);
            return Ok(None);
        }
        let deadline = self.config.timing.init_deadline;
        let mut until = Instant::now() + deadline;
        loop {
            match self.receive(until)? {
                Some(Event::Opened(Ok(session))) => return Ok(Some(session)),
                Some(Event::Opened(Err(reason))) => {
                    self.ledger.unavailable(&reason);
                    return Ok(None);
                }
                Some(_) => {}
                // No second attempt beside one that hangs: it would hang too, and cost a thread each time.
                None => {
                    self.ledger.unavailable(&NvmlUnavailable::Stalled(deadline));
                    self.change();
                    until = Instant::now() + Duration::from_secs(3600);
                }
            }
        }
    }

    /// Watches the GPUs of one session until it is of no more use or the watch is broken off.
    fn serve(&mut self, session: Session) -> Result<(), Broken> {
        self.session += 1;
        self.ledger.up(&session);
        self.change();
        let (listener, listener_leash) = self.listen(&session);
        let result = self.watch(&session, &listener);
        for hand in &mut self.crew {
            hand.leash = None;
        }
        drop(listener_leash);
        // nvmlShutdown can hang as well, so not in this thread; while a worker is left it is the one to call it.
        let (alive, ended) = mpsc::channel();
        let closer = worker::thread("gpu-close").spawn(move || {
            drop(session);
            drop(alive);
        });
        closer.map_or_else(|error| tracing::warn!(%error, "NVML is closed in the supervisor"), drop);
        self.closing.retain(is_alive);
        self.closing.push(ended);
        result
    }

    fn watch(&mut self, session: &Session, listener: &mpsc::Sender<u32>) -> Result<(), Broken> {
        let step = self.config.interval.min(self.config.timing.call_deadline);
        let mut hired = BTreeSet::new();
        let mut departed = Vec::new();
        while self.ledger.session_is_useful() {
            departed.append(&mut self.hire(session, listener, &mut hired));
            match self.receive(Instant::now() + step)? {
                // A worker's last report comes before its end, so all that it said has been heard now.
                None => {
                    departed.drain(..).for_each(|index| self.ledger.unattended(index));
                    self.change();
                }
                Some(Event::Report(report)) if report.session == self.session => {
                    if matches!(report.outcome, Outcome::Polled(GpuState::Ok, ..)) {
                        self.retry = self.config.timing.retry_first;
                    }
                    self.ledger.absorb(report);
                    self.change();
                }
                Some(Event::HearsXids { session, index }) if session == self.session => {
                    self.ledger.hears_xids(index);
                    self.change();
                }
                Some(Event::Xid { session, index, code, at_us }) if session == self.session => {
                    self.ledger.xid(index, code, at_us);
                    self.change();
                }
                _ => {}
            }
            self.check_deadlines();
        }
        Ok(())
    }

    /// Starts to listen for errors, until the second sender is dropped. The first is told of GPUs.
    fn listen(&mut self, session: &Session) -> (mpsc::Sender<u32>, mpsc::Sender<Infallible>) {
        let (gpus, inbox) = mpsc::channel();
        let (leash, leashed) = mpsc::channel();
        let (alive, ended) = mpsc::channel();
        let (nvml, number, reports) = (Arc::clone(&session.nvml), self.session, self.events.clone());
        let listening = worker::thread("gpu-events").spawn(move || {
            events::listen(&nvml, number, &inbox, &leashed, &reports);
            drop(nvml);
            drop(alive);
        });
        match listening {
            Ok(_) => self.closing.push(ended),
            Err(error) => tracing::warn!(%error, "no thread to listen for Xid errors"),
        }
        (gpus, leash)
    }

    fn check_deadlines(&mut self) {
        let overdue =
            self.crew.iter().filter_map(|hand| Some((hand.index, hand.overdue(self.config.timing.call_deadline)?)));
        let overdue: Vec<(u32, &'static str)> = overdue.collect();
        for (index, call) in overdue {
            self.ledger.stalled(index, call);
            self.change();
        }
    }

    /// One worker for every index of this session, once. An index whose worker of an earlier session still hangs gets
    /// its new one when that has ended. Returns the indexes whose worker of this session has ended.
    fn hire(&mut self, session: &Session, listener: &mpsc::Sender<u32>, hired: &mut BTreeSet<u32>) -> Vec<u32> {
        let now = self.session;
        let mut ended = Vec::new();
        self.crew.retain(|hand| {
            let alive = is_alive(&hand.ended);
            if !alive && hand.session == now {
                ended.push(hand.index);
            }
            alive
        });
        for index in 0..session.gpus {
            if hired.contains(&index) || self.crew.iter().any(|hand| hand.index == index) {
                continue;
            }
            match self.worker(session, listener, index) {
                Ok(hand) => {
                    self.crew.push(hand);
                    hired.insert(index);
                }
                Err(_) => self.ledger.unattended(index),
            }
        }
        ended
    }

    fn worker(&self, session: &Session, listener: &mpsc::Sender<u32>, index: u32) -> std::io::Result<Hand> {
        let (leash, leashed) = mpsc::channel();
        let (alive, ended) = mpsc::channel();
        let watch = Watch::default();
        let worker = Worker {
            nvml: Arc::clone(&session.nvml),
            session: self.session,
            index,
            driver_version: session.driver_version.clone(),
            pace: Pace {
                interval: self.config.interval,
                slow: self.config.timing.slow.max(self.config.interval),
                reprobe: self.config.timing.reprobe,
                fresh: self.config.interval.max(Duration::from_secs(1)).min(self.config.timing.call_deadline),
                unsupported: self.config.timing.unsupported,
            },
            per_process: self.config.per_process,
            visible: Arc::clone(&self.visible),
            watch: watch.clone(),
            reports: self.events.clone(),
            listener: listener.clone(),
            leash: leashed,
        };
        worker::thread(&format!("gpu-{index}")).spawn(move || {
            worker.run();
            drop(alive);
        })?;
        Ok(Hand { index, session: self.session, watch, leash: Some(leash), ended })
    }

    /// The next event, or `None` at `until`; publishes what is due meanwhile.
    fn receive(&mut self, until: Instant) -> Result<Option<Event>, Broken> {
        loop {
            let now = Instant::now();
            if self.due.is_some_and(|due| due <= now) {
                self.flush();
            }
            let wake = self.due.map_or(until, |due| due.min(until));
            match self.inbox.recv_timeout(wake.saturating_duration_since(now)) {
                Ok(Event::Stop(deadline)) => return Err(Broken::Stop(deadline)),
                Ok(Event::Release) => return Err(Broken::Release),
                Ok(Event::Pods(claims)) => {
                    self.ledger.pods(claims);
                    self.change();
                }
                Ok(Event::PodsFailed(error)) => {
                    self.ledger.pods_failed(error);
                    self.change();
                }
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                // Cannot be: `self.events` is a sender.
                Err(RecvTimeoutError::Disconnected) => return Err(Broken::Stop(now)),
            }
        }
    }

    /// Something may have changed: look soon, but at most twice an interval.
    fn change(&mut self) {
        let settle = SETTLE.min(self.config.interval / 4);
        let earliest = self.published_at + (self.config.interval / 2).min(UNSEEN);
        self.due.get_or_insert(earliest.max(Instant::now() + settle));
    }

    fn flush(&mut self) {
        self.due = None;
        let inventory = self.ledger.inventory();
        if inventory != self.published {
            self.published_at = Instant::now();
            self.published.clone_from(&inventory);
            (self.publish)(inventory);
        }
    }
}

/// Whether the thread that holds the other end still runs.
fn is_alive(ended: &mpsc::Receiver<Infallible>) -> bool {
    ended.try_recv() != Err(TryRecvError::Disconnected)
}

impl Hand {
    /// The call that has not returned within `deadline`.
    fn overdue(&self, deadline: Duration) -> Option<&'static str> {
        self.watch.inside().filter(|(_, since)| since.elapsed() >= deadline).map(|(call, _)| call)
    }
}
