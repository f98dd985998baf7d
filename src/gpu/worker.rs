//! One thread per GPU: gets its handle, polls it, reports. Decides nothing and logs nothing; it may hang inside NVML
//! at any time, so everything that others need of it is a message or its [`Watch`].
//! The handle is held from one (re)probe to the next, which costs no call per poll; that is sound because NVML handles
//! of whole GPUs stay valid until shutdown (those of MIG devices do not). It is got by index, since a look-up by UUID
//! asks every GPU in turn, so that one which hangs would hang the look-up of the others.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::nvml::{Reach, meaning};
use super::readings::{self, Reading};
use super::supervisor::Event;
use crate::model::gpu::{GpuIdentity, GpuState, NvmlState};

/// Touched pages count, so this bounds what eight workers may cost.
const STACK: usize = 256 << 10;

/// A thread of this room, not started yet.
pub(super) fn thread(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// What a worker has to say after each attempt.
#[derive(Debug)]
pub(super) struct Report {
    /// Which initialisation of NVML this belongs to.
    pub(super) session: u64,
    pub(super) index: u32,
    pub(super) outcome: Outcome,
    /// Calls that failed in this attempt, with NVML's error as a word.
    pub(super) failures: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// The GPU is not one of those to show; the worker has ended.
    NotWanted,
    /// The GPU said who it is; polls follow.
    Identified(GpuIdentity),
    /// The GPU did not say who it is.
    Unidentified(GpuState),
    /// One poll; the state says whether anything can be made of the readings.
    Polled(GpuState, Reading),
    /// NVML must be initialised again; the worker has ended.
    SessionOver(NvmlState),
}

/// The call a worker is inside of, for the supervisor's deadline.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Option<(&'static str, Instant)>>>);

impl Watch {
    /// The call and when it began.
    pub(super) fn inside(&self) -> Option<(&'static str, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, call: Option<&'static str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call.map(|call| (call, Instant::now()));
    }
}

/// Asks NVML one thing after another and keeps what went wrong.
#[derive(Debug, Default)]
pub(super) struct Probe {
    watch: Watch,
    answered: u32,
    failures: Vec<(&'static str, &'static str)>,
    /// The first error that reaches beyond its own call; nothing is asked after it.
    fault: Option<Reach>,
}

impl Probe {
    /// The answer, or `None`: unsupported, failed (kept as a failure), or not asked after a fault.
    pub(super) fn ask<T>(&mut self, call: &'static str, body: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.fault.is_some() {
            return None;
        }
        self.watch.set(Some(call));
        let answer = body();
        self.watch.set(None);
        let error = match answer {
            Ok(value) => {
                self.answered += 1;
                return Some(value);
            }
            Err(error) => error,
        };
        match meaning(&error) {
            (_, Reach::Unsupported) => self.answered += 1,
            (word, reach) => {
                self.failures.push((call, word));
                self.fault = (reach != Reach::Call).then_some(reach);
            }
        }
        None
    }

    /// What the GPU's answers make of it. One that answers no call at all is as good as lost, whatever it says; after
    /// a cgroup lost its devices (`systemctl daemon-reload`), every call says "unknown".
    fn state(&self) -> Result<GpuState, NvmlState> {
        match self.fault {
            Some(Reach::Session(state)) => Err(state),
            Some(Reach::Gpu(state)) => Ok(state),
            _ if self.answered > 0 => Ok(GpuState::Ok),
            _ if self.failures.iter().all(|(_, word)| *word == "no_permission") => Ok(GpuState::NoPermission),
            _ => Ok(GpuState::Lost),
        }
    }
}

/// A worker as its thread sees it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) nvml: Arc<Nvml>,
    pub(super) session: u64,
    pub(super) index: u32,
    pub(super) interval: Duration,
    pub(super) reprobe: Duration,
    /// Empty for all.
    pub(super) wanted: Arc<BTreeSet<String>>,
    pub(super) watch: Watch,
    pub(super) reports: mpsc::Sender<Event>,
    /// Disconnected when the worker shall end.
    pub(super) leash: mpsc::Receiver<Infallible>,
}

impl Worker {
    /// Works until the leash is cut or the session is over.
    pub(super) fn run(self) {
        let mut next = Instant::now();
        while self.attempt() {
            next += self.reprobe;
            if !self.sleep_until(&mut next, self.reprobe) {
                return;
            }
        }
    }

    /// Gets a handle and polls through it until the GPU faults. False: the worker has nothing left to do.
    fn attempt(&self) -> bool {
        let mut probe = self.probe();
        let device = probe.ask("device_by_index", || self.nvml.device_by_index(self.index));
        let identity = device.as_ref().and_then(|device| readings::identify(device, self.index, &mut probe));
        let (Some(device), Some(identity)) = (device, identity) else {
            let state = probe.state();
            let outcome = state.map_or_else(Outcome::SessionOver, Outcome::Unidentified);
            return self.report(outcome, probe.failures) && state.is_ok();
        };
        if !self.wanted.is_empty() && !self.wanted.contains(&identity.uuid) {
            self.report(Outcome::NotWanted, probe.failures);
            return false;
        }
        self.report(Outcome::Identified(identity), probe.failures) && self.poll(&device)
    }

    /// True: the GPU faulted, get a new handle later. A GPU whose calls merely all fail is polled on.
    fn poll(&self, device: &Device<'_>) -> bool {
        let mut next = Instant::now();
        loop {
            let mut probe = self.probe();
            let reading = readings::read(device, &mut probe);
            let state = probe.state();
            let outcome = state.map_or_else(Outcome::SessionOver, |state| Outcome::Polled(state, reading));
            if !self.report(outcome, probe.failures) || state.is_err() {
                return false;
            }
            if probe.fault.is_some() {
                return true;
            }
            next += self.interval;
            if !self.sleep_until(&mut next, self.interval) {
                return false;
            }
        }
    }

    fn probe(&self) -> Probe {
        Probe { watch: self.watch.clone(), ..Probe::default() }
    }

    /// False when nobody listens any more.
    fn report(&self, outcome: Outcome, failures: Vec<(&'static str, &'static str)>) -> bool {
        let report = Report { session: self.session, index: self.index, outcome, failures };
        self.reports.send(Event::Report(report)).is_ok()
    }

    /// Sleeps to the tick; ticks missed during a slow call are skipped, not made up for. False: end.
    fn sleep_until(&self, next: &mut Instant, step: Duration) -> bool {
        let now = Instant::now();
        if *next < now {
            *next = now + step;
        }
        self.leash.recv_timeout(next.duration_since(now)) == Err(RecvTimeoutError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reading_is_kept_by_call_and_word_and_the_next_is_asked() {
        let mut probe = Probe::default();
        assert_eq!(probe.ask("power_usage", || Err::<u32, _>(NvmlError::Unknown)), None);
        assert_eq!(probe.ask("temperature", || Ok(40)), Some(40));
        assert_eq!(probe.failures, [("power_usage", "unknown")]);
        assert_eq!(probe.state(), Ok(GpuState::Ok));
    }

    #[test]
    fn an_unsupported_reading_is_no_failure() {
        let mut probe = Probe::default();
        assert_eq!(probe.ask("power_usage", || Err::<u32, _>(NvmlError::NotSupported)), None);
        assert!(probe.failures.is_empty());
        assert_eq!(probe.state(), Ok(GpuState::Ok));
    }

    #[test]
    fn a_lost_gpu_is_asked_nothing_more() {
        let mut probe = Probe::default();
        probe.ask("power_usage", || Err::<u32, _>(NvmlError::GpuLost));
        assert_eq!(probe.ask("temperature", || Ok(40)), None);
        assert_eq!(probe.state(), Ok(GpuState::Lost));
    }

    #[test]
    fn a_gpu_that_answers_no_call_is_lost_and_one_that_forbids_all_is_no_permission() {
        let mut probe = Probe::default();
        probe.ask("power_usage", || Err::<u32, _>(NvmlError::Unknown));
        probe.ask("temperature", || Err::<u32, _>(NvmlError::NoPermission));
        assert_eq!(probe.state(), Ok(GpuState::Lost));
        let mut probe = Probe::default();
        probe.ask("temperature", || Err::<u32, _>(NvmlError::NoPermission));
        assert_eq!(probe.state(), Ok(GpuState::NoPermission));
    }

    #[test]
    fn an_unloaded_driver_ends_the_session() {
        let mut probe = Probe::default();
        probe.ask("temperature", || Err::<u32, _>(NvmlError::DriverNotLoaded));
        assert_eq!(probe.state(), Err(NvmlState::DriverNotLoaded));
    }

    #[test]
    fn the_watch_names_the_call_only_while_it_runs() {
        let mut probe = Probe::default();
        let watch = probe.watch.clone();
        probe.ask("power_usage", || {
            assert_eq!(watch.inside().map(|(call, _)| call), Some("power_usage"));
            Ok(0)
        });
        assert_eq!(watch.inside(), None);
    }
}
