//! Runs the simulated engine in real time, and keeps its records and entries until a reader takes them.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_sim::config::Release;
use trtllm_sim::record::Entry;
use trtllm_sim::{Engine, Gpu, Step, write};

use crate::clock::{Clock, unix_seconds};
use crate::options::{Arguments, FrontendMode, Simulated};
use crate::orchestrator::Orchestrator;
use crate::page::{ServerPage, reason};
use crate::totals::{Totals, Waiting};
use crate::world::World;

/// Limit for the real time that one call of [`Live::advance`] may take.
const LONGEST: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Live {
    world: World,
    clock: Clock,
    next: Option<f64>,
    /// The engine hangs after this many iterations.
    iterations: u64,
    is_draining: bool,
    in_flight: Option<usize>,
    /// Before 1.3, trtllm-serve passed the time before tokenising to the C++ Executor. Another host does not.
    stamps_on_arrival: bool,
    ring_size: usize,
    ring: VecDeque<Waiting>,
    entries: VecDeque<Entry>,
    perf_metrics_file: Option<PathBuf>,
    iteration_log: Option<(PathBuf, write::IterationLog)>,
    mode: FrontendMode,
    frontends: Vec<FrontendState>,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) totals: Totals,
}

/// A process that answers HTTP requests.
#[derive(Debug, Default)]
struct FrontendState {
    page: ServerPage,
    /// Records that this frontend has taken from the engine and that no client has requested yet.
    records: Vec<Waiting>,
}

impl Live {
    pub(crate) fn new(world: World, speed: f64, iterations: Option<u64>, arguments: &Arguments, now: Instant) -> Self {
        let config = world.shown().config();
        let (release, in_flight) = (config.release, config.load.in_flight);
        let kind = if arguments.is_orchestrator() { "disagg" } else { "server" };
        let file = |directory: &PathBuf| {
            directory.join(format!("perf_metrics-{kind}-sim-{}-20261101T000000Z.jsonl", std::process::id()))
        };
        Self {
            world,
            clock: Clock::new(arguments.start, speed, now),
            next: Some(0.0),
            iterations: iterations.unwrap_or(u64::MAX),
            is_draining: false,
            in_flight,
            stamps_on_arrival: release.is_cpp() && arguments.socket.is_none(),
            ring_size: arguments.ring,
            ring: VecDeque::new(),
            entries: VecDeque::new(),
            perf_metrics_file: arguments.perf_metrics_dir.as_ref().map(file),
            iteration_log: arguments.iteration_log.clone().map(|file| (file, write::IterationLog::default())),
            mode: arguments.frontend_mode,
            frontends: (0..arguments.frontends).map(|_| FrontendState::default()).collect(),
            orchestrator: Orchestrator::default(),
            totals: Totals::new(release),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.world.shown()
    }

    /// Whether the model has been loaded.
    pub(crate) fn is_up(&self, now: Instant) -> bool {
        self.world.is_up(self.clock.now(now))
    }

    /// Runs all iterations that are due.
    pub(crate) fn advance(&mut self, now: Instant) {
        let (until, begun) = (self.clock.now(now), Instant::now());
        let wall = unix_seconds();
        while let Some(at) = self.next.filter(|at| *at <= until) {
            if self.clock.since.is_none() || self.engine().truth().iterations >= self.iterations {
                return;
            }
            let seen = self.world.step(at, &mut self.orchestrator);
            self.next = seen.next;
            // Chosen so that `epoch + at` is the wall-clock time of this step.
            let epoch = wall - (until - at) / self.clock.speed - at;
            if let Some(step) = seen.step {
                self.keep(step, (epoch * 1e6) as i64);
            }
            for line in &seen.lines {
                self.append(line);
            }
            if self.is_draining && self.engine().is_idle() {
                (self.clock.at, self.clock.since) = (at, None);
            } else if begun.elapsed() > LONGEST {
                // If the machine is too slow for this engine, virtual time slows down, so that readers still get answers.
                if !self.clock.is_shared {
                    (self.clock.at, self.clock.since) = (at, Some(Instant::now()));
                }
                return;
            }
        }
    }

    fn keep(&mut self, step: Step, epoch_us: i64) {
        let release = self.engine().config().release;
        let mut rows = step.rows.into_iter().peekable();
        let records = step.records.len();
        for (number, record) in (1..).zip(step.records) {
            if let (Some((file, log)), Release::PyTorch { era, .. }) = (&mut self.iteration_log, release) {
                // Nobody asks for a line that cannot be written.
                let _ = append(file, &log.lines(&record, era, epoch_us));
            }
            let mut value = write::record(&record, release, epoch_us);
            if let Some((iter, rows)) = rows.next_if(|(iter, _)| *iter == record.iter) {
                value["requestStats"] = write::rows(iter, &rows, release)["requestStats"].take();
            }
            if let Some(dropped) = value.get_mut("statsDroppedFrames") {
                // If the ring of waiting records is full, this record displaces the oldest one.
                *dropped = json!(self.totals.lost_records + u64::from(self.ring.len() >= self.ring_size));
            }
            let truth = self.world.shown().truth();
            let waiting = self.totals.record(record, value.to_string(), truth, number == records);
            self.ring.push_back(waiting);
            // TensorRT-LLM drops the oldest record without notice.
            if let Some(oldest) = (self.ring.len() > self.ring_size).then(|| self.ring.pop_front()).flatten() {
                self.totals.lost(&oldest);
            }
        }
        for entry in step.entries {
            self.finish(entry);
        }
    }

    fn finish(&mut self, mut entry: Entry) {
        if self.stamps_on_arrival {
            entry.arrival = entry.server_arrival;
        }
        self.totals.entry(&entry);
        let index = (entry.id % self.frontends.len() as u64) as usize;
        let config = self.world.shown().config();
        self.frontends[index].page.add(&entry, config.cache.tokens_per_block, config.release);
        if self.mode == FrontendMode::Own && self.frontends.len() > 1 {
            // The end of a request makes its frontend collect the records.
            self.frontends[index].records.extend(self.ring.drain(..));
        }
        if self.perf_metrics_file.is_some() {
            self.append(&write::entry(&entry, write::Version::V2));
            return;
        }
        self.entries.push_back(entry);
        if self.entries.len() > self.ring_size {
            self.entries.pop_front();
            self.totals.entries_lost += 1;
        }
    }

    /// Appends a line to the perf-metrics file.
    fn append(&mut self, line: &Value) {
        let Some(file) = &self.perf_metrics_file else { return };
        let written = append(file, &format!("{line}\n"));
        self.totals.entries_served += u64::from(written.is_ok());
    }

    /// Takes all waiting records. Call [`Totals::answered`] when they are sent.
    pub(crate) fn take_records(&mut self, frontend: usize) -> Vec<Waiting> {
        // Unless each frontend keeps its own records, the first frontend answers for all.
        let own = if self.mode == FrontendMode::Own { frontend } else { 0 };
        let mut records = std::mem::take(&mut self.frontends[own].records);
        records.extend(self.ring.drain(..));
        self.totals.open_answers += 1;
        records
    }

    pub(crate) fn take_entries(&mut self) -> Vec<Entry> {
        self.totals.entries_served += self.entries.len() as u64;
        self.entries.drain(..).collect()
    }

    /// The server's own metrics, or those of one of its frontends.
    pub(crate) fn page(&self, frontend: usize, model: &str) -> String {
        let config = self.engine().config();
        let mut page = ServerPage::default();
        for (index, each) in self.frontends.iter().enumerate() {
            if index == frontend || self.mode == FrontendMode::Multiproc {
                page.merge(&each.page);
            }
        }
        page.text(config.release, model, &self.totals.last)
    }

    /// Whether commands may change the engine.
    pub(crate) fn can_change(&mut self) -> bool {
        self.world.standalone_engine().is_some()
    }

    /// Replaces the load and the faults of the engine.
    pub(crate) fn change(&mut self, simulated: Simulated, now: Instant) {
        let at = self.interrupt(now);
        self.in_flight = simulated.config.load.in_flight;
        if let Some(engine) = self.world.standalone_engine() {
            engine.change(simulated.config, at);
        }
    }

    /// Crashes the engine, which serves again at once.
    pub(crate) fn restart(&mut self, now: Instant) {
        let at = self.interrupt(now);
        if let Some(engine) = self.world.standalone_engine() {
            engine.restart(at, at);
        }
    }

    /// Schedules a step of the engine for now, because a command is about to change the engine. Returns the virtual time.
    fn interrupt(&mut self, now: Instant) -> f64 {
        self.advance(now);
        let at = self.clock.now(now);
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        at
    }

    /// Stops the engine at once, or lets it continue.
    pub(crate) fn stop(&mut self, is_stopped: bool, now: Instant) {
        self.advance(now);
        self.clock.at = self.clock.now(now);
        self.clock.since = (!is_stopped).then_some(now);
    }

    /// Stops admitting requests, so that the engine becomes idle, or admits them again.
    pub(crate) fn drain(&mut self, is_draining: bool, now: Instant) {
        self.advance(now);
        self.is_draining = is_draining;
        let limit = if is_draining { Some(0) } else { self.in_flight };
        if let Some(engine) = self.world.standalone_engine() {
            engine.limit_in_flight(limit);
        }
        if self.clock.since.is_none() && !is_draining {
            self.clock.since = Some(now);
        }
    }

    /// The readings of each GPU of the only engine, under the keys that the stand-in for NVML (tests/nvml-standin) takes.
    pub(crate) fn gpus(&mut self, now: Instant) -> Value {
        let at = self.clock.now(now);
        self.world.standalone_engine().map(|engine| engine.gpus(at).iter().map(readings).collect()).unwrap_or_default()
    }

    pub(crate) fn truth(&self) -> Value {
        let mut value = self.totals.json(self.engine().truth());
        let in_ring = self.ring.len() + self.frontends.iter().map(|frontend| frontend.records.len()).sum::<usize>();
        value["in_ring"] = json!(in_ring);
        value["stopped"] = json!(self.clock.since.is_none());
        value["idle"] = json!(self.is_draining && self.engine().is_idle());
        value
    }
}

fn readings(gpu: &Gpu) -> Value {
    let milli = |value: f64| (value * 1e3) as u64;
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let throttle_reasons = match gpu.throttle_reason {
        Some("sw_power_cap") => 0x4,
        Some("hw_thermal_slowdown") => 0x8 | 0x40,
        _ => 0,
    };
    json!({
        "utilization_percent": (gpu.utilization * 100.0).round() as u64,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_total_bytes": gpu.memory_total_bytes,
        "power_mw": milli(gpu.power_watts),
        "power_limit_mw": milli(gpu.power_limit_watts),
        "enforced_power_limit_mw": milli(gpu.power_limit_watts),
        "default_power_limit_mw": milli(gpu.default_power_limit_watts),
        "energy_mj": milli(gpu.energy_joules),
        "temperature_celsius": gpu.temperature_celsius as u64,
        "clock_sm_mhz": gpu.sm_clock_mhz as u64,
        "clock_graphics_mhz": gpu.sm_clock_mhz as u64,
        "max_clock_sm_mhz": gpu.max_sm_clock_mhz as u64,
        "max_clock_graphics_mhz": gpu.max_sm_clock_mhz as u64,
        "throttle_reasons": throttle_reasons,
        // NVML_FI_DEV_PERF_POLICY_POWER and _THERMAL, in nanoseconds.
        "field.74": nanos(gpu.throttled_by_power),
        "field.75": nanos(gpu.throttled_by_heat),
        "gpm_supported": 0,
    })
}

fn append(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes())
}

/// A finished request as a publisher writes it, with JSON keys that neither the file nor `/perf_metrics` contains.
pub(crate) fn published(entry: &Entry, release: Release) -> Value {
    let mut value = write::entry(entry, if release.is_cpp() { write::Version::Host } else { write::Version::V2 });
    value["prompt_tokens"] = json!(entry.prompt_tokens);
    value["output_tokens"] = json!(entry.output_tokens);
    value["finish_reason"] = json!(reason(entry, release));
    value
}
