//! One daemon with three engines: the faults affect only the engine `victim`. After each fault, everything must be as
//! before, except the counters of the fault.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::engine::{Answer, End, Engine, record, refusal};
use crate::support::daemon::{Daemon, Launch};
use crate::support::ingest::Ingest;
use crate::support::page::Page;
use crate::support::{ensure, until};

/// Limit of the daemon's memory in bytes. No input may exceed it.
pub(crate) const MOST_MEMORY: u64 = 64_000_000;

pub(crate) const VICTIM: &[&str] = &["model=victim"];
pub(crate) const SOCKET: &[&str] = &["model=socket"];
pub(crate) const HEALTHY: &[&str] = &["model=healthy"];

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) daemon: Daemon,
    pub(crate) victim: Engine,
    healthy: Engine,
    pub(crate) socket: Ingest,
    publisher: Publisher,
    descriptors: u64,
    /// Resident memory in bytes before the first fault.
    memory: u64,
    pub(crate) table: Mutex<Vec<Row>>,
    /// The page and the counts after the last fault.
    rest: Mutex<Rest>,
}

/// The page after everything that the engines sent has been counted, and the number of records that they had sent.
#[derive(Debug, Clone, Default)]
struct Rest {
    page: Page,
    sent: u64,
}

impl Rest {
    /// The number of records counted since `before` that are not from the engines' normal answers.
    fn beyond(&self, before: &Self) -> u64 {
        iterations_of_all(&self.page) - iterations_of_all(&before.page) - (self.sent - before.sent)
    }
}

/// One line of the table of faults.
#[derive(Debug)]
pub(crate) struct Row {
    area: &'static str,
    name: String,
    counted: String,
    /// What differs from the expectation, if anything.
    wrong: Option<String>,
}

/// Sends records over its own connection, until it is dropped.
#[derive(Debug)]
struct Publisher {
    sent: Arc<AtomicU64>,
    paused: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
}

impl Publisher {
    fn start(socket: &Ingest) -> Self {
        let publisher = Self { sent: Arc::default(), paused: Arc::default(), stopped: Arc::default() };
        let (sent, paused, stopped) =
            (Arc::clone(&publisher.sent), Arc::clone(&publisher.paused), Arc::clone(&publisher.stopped));
        let mut stream = socket.publisher(r#"{"model":"socket","version":"1","pid":7}"#);
        thread::spawn(move || {
            while !stopped.load(SeqCst) {
                if !paused.load(SeqCst) {
                    let line = record(sent.load(SeqCst) + 1) + "\n";
                    if stream.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                    sent.fetch_add(1, SeqCst);
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        publisher
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stopped.store(true, SeqCst);
    }
}

impl Scene {
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::start_behind(&["env"], more)
    }

    /// Starts the daemon through `program`, which runs the command that follows its own arguments.
    pub(crate) fn start_behind(program: &[&str], more: &[&str]) -> Self {
        let socket = Ingest::new();
        let (victim, healthy) = (Engine::start(), Engine::start());
        let (a, b, c) = (victim.source(), healthy.source(), socket.source());
        let arguments = ["--source", &a, "--source", &b, "--source", &c, "--poll.interval", "20ms"];
        let names = ["--model", "victim", "--model", "healthy", "--model", "socket"];
        let daemon = Launch::behind(program).start(&[&arguments[..], &names, more].concat());
        let publisher = Publisher::start(&socket);
        let page = daemon.until(|page| {
            let up = [VICTIM, HEALTHY, SOCKET].map(|engine| counted(page, engine));
            ensure(up.iter().all(|count| *count > 2), || format!("{up:?} iterations"))
        });
        let descriptors = page.count("process_open_fds", &[]);
        let memory = daemon.resident_memory();
        let scene = Self {
            daemon,
            victim,
            healthy,
            socket,
            publisher,
            descriptors,
            memory,
            table: Mutex::default(),
            rest: Mutex::default(),
        };
        scene.pause();
        scene.rest();
        scene
    }

    /// Runs one fault and adds it to the table. `act` causes the fault and waits until it has happened. `expected` gets
    /// the errors and rejections that the daemon counts because of the fault (such as `not_json 1`), and the number of
    /// counted records that are not from the engines' normal answers.
    pub(crate) fn fault(
        &self,
        area: &'static str,
        name: &str,
        expected: &dyn Fn(&str, u64) -> bool,
        act: impl FnOnce(&Self),
    ) {
        let before = self.rest.lock().unwrap().clone();
        // The engine must be working when the fault occurs.
        self.resume();
        self.pause();
        act(self);
        self.pause();
        let after = self.rest();
        after.page.never_below(&before.page);
        let extra = after.beyond(&before);
        let faults = trouble(&after.page, &before.page);
        let wrong = if expected(&faults, extra) {
            // On a busy machine, a fault can take so long that the paused engines look stalled. Check again after the
            // engines have sent new records.
            self.broken(&after.page).err().and_then(|_| {
                self.resume();
                self.pause();
                self.broken(&self.rest().page).err()
            })
        } else {
            Some(format!("unexpected; {extra} more records than the engines sent"))
        };
        self.table.lock().unwrap().push(Row { area, name: name.to_owned(), counted: faults, wrong });
    }

    /// Answers the next request for `path` with `answer`, and waits until the daemon has read the answer.
    pub(crate) fn answer(&self, path: &'static str, answer: Answer) {
        self.victim.set(path, answer);
        until(|| ensure(self.victim.is_over(), || format!("{path} is not read")));
        self.daemon.poll(VICTIM, 2);
    }

    /// The victim does not answer one poll to its end. Its load must disappear from the page, and come back. The `records` that the
    /// answer contains must be counted.
    pub(crate) fn hang(&self, name: &str, answer: Answer, records: u64) {
        let load = |page: &Page, engine: &[&str]| {
            page.find("nv_trt_llm_request_metrics", &[engine, &["request_type=active"]].concat()).is_some()
        };
        let before = self.rest.lock().unwrap().clone();
        self.resume();
        self.victim.set("/metrics", answer);
        let stale = self.daemon.until(|page| {
            assert!(load(page, HEALTHY), "a healthy engine left the page");
            ensure(page.state(VICTIM) == "unreachable", || format!("{name}: {}", page.state(VICTIM)))
        });
        let wrong = load(&stale, VICTIM).then(|| "old numbers stay on the page".to_owned());
        let page =
            self.daemon.until(|page| ensure(load(page, VICTIM), || format!("{name}: the load does not come back")));
        page.never_below(&before.page);
        let counted = trouble(&page, &before.page);
        self.pause();
        let extra = self.rest().beyond(&before);
        let right = counted == "timeout 1" && extra == records;
        let wrong = wrong.or_else(|| (!right).then(|| format!("unexpected; {extra} more records")));
        self.table.lock().unwrap().push(Row { area: "hang", name: name.to_owned(), counted, wrong });
    }

    /// Like [`Scene::answer`], but first makes a poll fail. After a failure, the next poll also reads the paths that it
    /// otherwise reads only once or rarely.
    pub(crate) fn answer_after_failure(&self, path: &'static str, answer: Answer) {
        self.victim.set(path, answer);
        self.answer("/metrics", Answer::Raw(refusal("500 Internal Server Error"), End::Close));
    }

    fn pause(&self) {
        for engine in [&self.victim, &self.healthy] {
            engine.pause(true);
        }
        self.publisher.paused.store(true, SeqCst);
    }

    /// Waits until everything that the paused engines sent has been counted.
    fn rest(&self) -> Rest {
        const POLLS: &str = "trtllm_exporter_polls_total";
        const ALL: [&[&str]; 3] = [VICTIM, HEALTHY, SOCKET];
        // Wait for a line that the publisher is sending, and for an answer that an engine is sending.
        thread::sleep(Duration::from_millis(15));
        let sent = [self.victim.handed_out(), self.healthy.handed_out(), self.publisher.sent.load(SeqCst)];
        let page = self.daemon.until(|page| {
            let counted = ALL.map(|engine| counted(page, engine));
            ensure(counted.iter().zip(sent).all(|(counted, sent)| *counted >= sent), || {
                format!("the engines sent {sent:?}, counted are {counted:?}")
            })
        });
        // No fault may change the count of the healthy engine.
        assert_eq!(counted(&page, HEALTHY), sent[1]);
        // Wait until each engine has been polled twice more, because the daemon polls each independently.
        let before = ALL.map(|engine| page.count(POLLS, engine));
        let page = self.daemon.until(|page| {
            let polls = ALL.map(|engine| page.count(POLLS, engine));
            ensure(polls.iter().zip(before).all(|(polls, before)| *polls >= before + 2), || "no polls".to_owned())
        });
        let rest = Rest { page, sent: sent.iter().sum() };
        *self.rest.lock().unwrap() = rest.clone();
        rest
    }

    pub(crate) fn resume(&self) {
        for engine in [&self.victim, &self.healthy] {
            engine.pause(false);
        }
        self.publisher.paused.store(false, SeqCst);
        let (a, b) = (self.victim.handed_out(), self.publisher.sent.load(SeqCst));
        until(|| {
            let work = self.victim.handed_out() > a && self.publisher.sent.load(SeqCst) > b;
            ensure(work, || "the engines do not continue".to_owned())
        });
    }

    /// Checks the conditions that must hold after every fault.
    pub(crate) fn broken(&self, page: &Page) -> Result<(), String> {
        for engine in [VICTIM, HEALTHY, SOCKET] {
            let up = page.get("trtllm_exporter_source_up", engine);
            ensure(up == 1.0, || format!("{engine:?} is not up"))?;
            let state = page.state(engine);
            ensure(state == "busy", || format!("{engine:?} is {state}"))?;
        }
        for counter in ["iterations_lost", "engine_restarts"] {
            let count = page.count(&format!("nv_trt_llm_{counter}_total"), HEALTHY);
            ensure(count == 0, || format!("the healthy engine has {count} {counter}"))?;
        }
        let restarts: f64 = page
            .series
            .iter()
            .filter(|(name, _)| name.starts_with("trtllm_exporter_task_restarts_total"))
            .map(|s| s.1)
            .sum();
        ensure(restarts == 0.0, || format!("{restarts} tasks were restarted"))?;
        let odd = page.series.iter().find(|(_, value)| !value.is_finite() || value.abs() > 1e16);
        ensure(odd.is_none(), || format!("{odd:?} is on the page"))?;
        let descriptors = page.count("process_open_fds", &[]);
        ensure(descriptors <= self.descriptors + 16, || format!("{descriptors} open descriptors"))?;
        let memory = self.daemon.peak_memory();
        ensure(memory <= MOST_MEMORY, || format!("{} MB resident", memory / 1_000_000))?;
        ensure(self.daemon.get("/readyz").status == 200, || "not ready".to_owned())?;
        ensure(self.daemon.get("/healthz").status == 200, || "not healthy".to_owned())
    }

    /// Prints the table. Panics if a fault did not end as expected.
    pub(crate) fn finish(self) {
        let table = self.table.into_inner().unwrap();
        for Row { area, name, counted, wrong } in &table {
            println!(
                "{area:<12} {name:<60} {counted}{}",
                wrong.as_ref().map(|w| format!("   WRONG: {w}")).unwrap_or_default()
            );
        }
        let lines = self.daemon.stderr().lines().count();
        let (before, after) = (self.memory / 1_000_000, self.daemon.resident_memory() / 1_000_000);
        let most = self.daemon.peak_memory() / 1_000_000;
        println!("{} faults; {before} MB before, {most} MB at most, {after} MB after; {lines} log lines", table.len());
        let wrong: Vec<&Row> = table.iter().filter(|row| row.wrong.is_some()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", self.daemon.stderr());
        assert!(after <= before + 8, "{after} MB are kept, {before} MB were used before");
        // For each cause, the daemon may log a few lines at once, and then one line every ten seconds.
        assert!(lines <= 80 + table.len() / 10, "{lines} log lines:\n{}", self.daemon.stderr());
    }
}

fn counted(page: &Page, engine: &[&str]) -> u64 {
    page.count("nv_trt_llm_iterations_total", engine)
}

fn iterations_of_all(page: &Page) -> u64 {
    [VICTIM, HEALTHY, SOCKET].iter().map(|engine| counted(page, engine)).sum()
}

/// The errors and rejections that were counted between two pages, such as `not_json 1`.
fn trouble(after: &Page, before: &Page) -> String {
    const COUNTERS: [&str; 3] = [
        "trtllm_exporter_poll_errors_total{",
        "trtllm_exporter_records_rejected_total{",
        "trtllm_exporter_publishers_refused_total{",
    ];
    let counts = |page: &Page| -> BTreeMap<String, f64> {
        let counters = page.series.iter().filter(|(name, _)| COUNTERS.iter().any(|counter| name.starts_with(counter)));
        counters.cloned().collect()
    };
    let (after, before) = (counts(after), counts(before));
    let mut kinds = Vec::new();
    for (series, count) in after {
        let more = count - before.get(&series).copied().unwrap_or_default();
        if more > 0.0 {
            let label =
                series.split(['{', ',']).find(|label| label.starts_with("kind=") || label.starts_with("reason="));
            let kind = label.unwrap_or_default().split('"').nth(1).unwrap_or_default();
            kinds.push(format!("{kind} {more}"));
        }
    }
    kinds.join(", ")
}
