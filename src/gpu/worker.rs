//! One thread per GPU: gets its handle, polls it, reports. Decides nothing and logs nothing; it may hang inside NVML
//! at any time, so everything that others need of it is a message or its [`Watch`].
//! The handle is held from one (re)probe to the next, which costs no call per poll; that is sound because NVML handles
//! of whole GPUs stay valid until shutdown (those of MIG devices do not). It is got by index, since a look-up by UUID
//! asks every GPU in turn, so that one which hangs would hang the look-up of the others.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::{Device, Nvml};

use super::event::{Event, Outcome, Report, now_us};
use super::probe::{Failure, Lacking, Probe, Watch};
use super::readings::{self, Rounds};
use super::visible::Visible;
use crate::model::gpu::{GpuState, LastPoll};

/// Touched pages count, so this bounds what eight workers may cost.
const STACK: usize = 256 << 10;

/// A thread of this room, not started yet.
pub(super) fn thread(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// A worker as its thread sees it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) nvml: Arc<Nvml>,
    pub(super) session: u64,
    pub(super) index: u32,
    pub(super) driver_version: Option<String>,
    pub(super) pace: Pace,
    /// `--gpu.processes`
    pub(super) per_process: bool,
    pub(super) visible: Arc<Visible>,
    pub(super) watch: Watch,
    pub(super) reports: mpsc::Sender<Event>,
    /// Told of this GPU when it answers, to listen for its errors.
    pub(super) listener: mpsc::Sender<u32>,
    /// Disconnected when the worker shall end.
    pub(super) leash: mpsc::Receiver<Infallible>,
}

/// How often a worker does what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) interval: Duration,
    pub(super) slow: Duration,
    pub(super) reprobe: Duration,
    /// A poll that takes longer than this tells of the past.
    pub(super) fresh: Duration,
    /// From finding out that something is not supported to asking again.
    pub(super) unsupported: Duration,
}

impl Worker {
    /// Works until the leash is cut or the session is over.
    pub(super) fn run(self) {
        let mut next = Instant::now();
        while self.attempt() {
            next += self.pace.reprobe;
            if !self.sleep_until(&mut next, self.pace.reprobe) {
                return;
            }
        }
    }

    /// Gets a handle and polls through it until the GPU faults. False: the worker has nothing left to do.
    fn attempt(&self) -> bool {
        let mut lacking = Lacking::default();
        let mut probe = Probe::new(&self.watch, &mut lacking);
        let device = probe.ask("device_by_index", || self.nvml.device_by_index(self.index));
        let identity = device.as_ref().and_then(|device| readings::identify(device, self.index, &mut probe));
        let (Some(device), Some(identity)) = (device, identity) else {
            let state = probe.state();
            let outcome = state.map_or_else(Outcome::SessionOver, Outcome::Unidentified);
            return self.report(outcome, probe.failures) && state.is_ok();
        };
        if !self.visible.shows(&identity) {
            self.report(Outcome::NotWanted, probe.failures);
            return false;
        }
        let heard = self.report(Outcome::Identified(identity), probe.failures);
        // Without a listener (no events in this driver) there are no Xid errors to tell of.
        let _ = self.listener.send(self.index);
        heard && self.poll(&device)
    }

    /// True: the GPU faulted, get a new handle later. A GPU whose calls merely all fail is polled on.
    fn poll<'nvml>(&'nvml self, device: &Device<'nvml>) -> bool {
        let Pace { interval, unsupported, .. } = self.pace;
        let mut rounds = Rounds::new(self.driver_version.as_deref(), self.per_process, interval, self.pace.slow);
        let mut lacking = Lacking::default();
        let mut next = Instant::now();
        let mut slow_before = false;
        loop {
            lacking.expire(unsupported);
            let begun = Instant::now();
            let mut probe = Probe::new(&self.watch, &mut lacking);
            let reading = readings::read(device, &mut rounds, &mut probe);
            let (state, faulted) = (probe.state(), probe.faulted());
            // A call hung midway: what was read before it is of then. Asked again at once, but once: a driver that is
            // always this slow has readings too.
            let took = begun.elapsed();
            let slow = took >= self.pace.fresh;
            if slow && !slow_before && state == Ok(GpuState::Ok) {
                slow_before = true;
                rounds.ask_all();
                continue;
            }
            slow_before = slow;
            let poll = LastPoll { at_us: now_us(), took };
            let outcome =
                state.map_or_else(Outcome::SessionOver, |state| Outcome::Polled(state, Box::new(reading), poll));
            if !self.report(outcome, probe.failures) || state.is_err() {
                return false;
            }
            if faulted {
                return true;
            }
            next += interval;
            if !self.sleep_until(&mut next, interval) {
                return false;
            }
        }
    }

    /// False when nobody listens any more.
    fn report(&self, outcome: Outcome, failures: Vec<Failure>) -> bool {
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
