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
use super::ledger::Ledger;
use super::nvml::{self, NvmlUnavailable, Session};
use super::worker::{self, Outcome, Report, Watch, Worker};
use crate::model::gpu::{GpuInventory, GpuState};

/// Workers poll at the same time: a first change waits this long for the others, so that one inventory has them all.
const SETTLE: Duration = Duration::from_millis(20);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// How soon it is noticed that a session has been closed.
const CLOSING_STEP: Duration = Duration::from_millis(5);

/// What the supervisor hears, from everybody on one channel.
#[derive(Debug)]
pub(super) enum Event {
    Opened(Result<Session, NvmlUnavailable>),
    Report(Report),
    /// End, and wait for workers no longer than this.
    Stop(Instant),
}

/// Breaks off whatever is going on.
struct Stopped(Instant);

pub(super) struct Supervisor {
    config: GpuConfig,
    wanted: Arc<BTreeSet<String>>,
    publish: Box<dyn Fn(GpuInventory) + Send>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    ledger: Ledger,
    /// Tells reports of this initialisation from late ones of those before.
    session: u64,
    crew: Vec<Hand>,
    /// Disconnects when the last session is closed as far as the supervisor had it.
    closing: Option<mpsc::Receiver<Infallible>>,
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
        let wanted = Arc::new(config.uuids.iter().cloned().collect::<BTreeSet<_>>());
        let ledger = Ledger::new(Arc::clone(&wanted));
        Self {
            retry: config.timing.retry_first,
            wanted,
            publish,
            events,
            inbox,
            session: 0,
            crew: Vec::new(),
            closing: None,
            published: ledger.inventory(),
            published_at: Instant::now(),
            due: None,
            ledger,
            config,
        }
    }

    /// Runs until it is told to stop. `first` is a session that is open already.
    pub(super) fn run(mut self, mut first: Option<Session>) {
        let Stopped(deadline) = loop {
            if let Err(stopped) = self.cycle(first.take()) {
                break stopped;
            }
        };
        for hand in &mut self.crew {
            hand.leash = None;
        }
        // The last worker out shuts NVML down. One that is stalled is not waited for.
        let call_deadline = self.config.timing.call_deadline;
        let crew = self.crew.iter().filter(|hand| hand.overdue(call_deadline).is_none()).map(|hand| &hand.ended);
        for ended in crew.chain(&self.closing) {
            let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// One initialisation, what comes of it, and the wait before the next.
    fn cycle(&mut self, open: Option<Session>) -> Result<(), Stopped> {
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
        self.crew.iter().any(working) || self.closing.as_ref().is_some_and(is_alive)
    }

    /// Initialises NVML, however long it takes; `None` if that failed, which is in the ledger then.
    fn open(&mut self) -> Result<Option<Session>, Stopped> {
        let events = self.events.clone();
        let done = move |result| {
            let _ = events.send(Event::Opened(result));
        };
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

    /// Watches the GPUs of one session until it is of no more use.
    fn serve(&mut self, session: Session) -> Result<(), Stopped> {
        self.session += 1;
        self.ledger.up(&session);
        self.change();
        let step = self.config.interval.min(self.config.timing.call_deadline);
        let mut hired = BTreeSet::new();
        let mut departed = Vec::new();
        while self.ledger.session_is_useful() {
            departed.append(&mut self.hire(&session, &mut hired));
            match self.receive(Instant::now() + step)? {
                // A worker's last report comes before its end, so all that it said has been heard now.
                None => {
                    departed.drain(..).for_each(|index| self.ledger.unattended(index));
                    self.change();
                }
                Some(Event::Report(report)) if report.session == self.session => {
                    if matches!(report.outcome, Outcome::Polled(GpuState::Ok, _)) {
                        self.retry = self.config.timing.retry_first;
                    }
                    self.ledger.absorb(report);
                    self.change();
                }
                _ => {}
            }
            self.check_deadlines();
        }
        for hand in &mut self.crew {
            hand.leash = None;
        }
        // nvmlShutdown can hang as well, so not in this thread; while a worker is left it is the one to call it.
        let (alive, ended) = mpsc::channel();
        let closer = worker::thread("gpu-close").spawn(move || {
            drop(session);
            drop(alive);
        });
        closer.map_or_else(|error| tracing::warn!(%error, "NVML is closed in the supervisor"), drop);
        self.closing = Some(ended);
        Ok(())
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
    fn hire(&mut self, session: &Session, hired: &mut BTreeSet<u32>) -> Vec<u32> {
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
            match self.worker(session, index) {
                Ok(hand) => {
                    self.crew.push(hand);
                    hired.insert(index);
                }
                Err(_) => self.ledger.unattended(index),
            }
        }
        ended
    }

    fn worker(&self, session: &Session, index: u32) -> std::io::Result<Hand> {
        let (leash, leashed) = mpsc::channel();
        let (alive, ended) = mpsc::channel();
        let watch = Watch::default();
        let worker = Worker {
            nvml: Arc::clone(&session.nvml),
            session: self.session,
            index,
            interval: self.config.interval,
            reprobe: self.config.timing.reprobe,
            wanted: Arc::clone(&self.wanted),
            watch: watch.clone(),
            reports: self.events.clone(),
            leash: leashed,
        };
        worker::thread(&format!("gpu-{index}")).spawn(move || {
            worker.run();
            drop(alive);
        })?;
        Ok(Hand { index, session: self.session, watch, leash: Some(leash), ended })
    }

    /// The next event, or `None` at `until`; publishes what is due meanwhile.
    fn receive(&mut self, until: Instant) -> Result<Option<Event>, Stopped> {
        loop {
            let now = Instant::now();
            if self.due.is_some_and(|due| due <= now) {
                self.flush();
            }
            let wake = self.due.map_or(until, |due| due.min(until));
            match self.inbox.recv_timeout(wake.saturating_duration_since(now)) {
                Ok(Event::Stop(deadline)) => return Err(Stopped(deadline)),
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                // Cannot be: `self.events` is a sender.
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped(now)),
            }
        }
    }

    /// Something may have changed: look soon, but at most twice an interval.
    fn change(&mut self) {
        let settle = SETTLE.min(self.config.interval / 4);
        let earliest = self.published_at + self.config.interval / 2;
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
