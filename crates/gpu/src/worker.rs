//! One thread per GPU, which gets the device handle, polls the GPU and reports to the supervisor. It makes no decisions
//! and does not log. It may hang in an NVML call at any time, so other threads use only its messages and its
//! [`CurrentCall`]. The handle is kept until the GPU fails, which saves a call per poll. NVML keeps handles of whole
//! GPUs valid until shutdown (unlike those of MIG devices). The handle is looked up by index: a look-up by UUID queries
//! every GPU in turn, so one hung GPU would block the others.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;

use super::clock::{monotonic, now_us};
use super::config::{GpuConfig, is_selected};
use super::counters::{Counters, CountersOfGpus};
use super::event::{Event, PollReadings, WorkerOutcome, WorkerReport};
use super::limits::{IMPOSSIBLE, is_blank};
use super::nvml::Session;
use super::probe::{CallFailure, CurrentCall, Probe, Unsupported};
use super::readings::PollState;
use super::threads::{self, StopSignal, ThreadHandle};
use trtllm_records::gpu::{GpuIdentity, GpuPoll, GpuState};

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) session: Arc<Session>,
    pub(super) index: u32,
    pub(super) config: Arc<GpuConfig>,
    pub(super) current_call: CurrentCall,
    pub(super) counters: CountersOfGpus,
    pub(super) events: mpsc::Sender<Event>,
}

/// What the supervisor knows of a worker.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) index: u32,
    pub(super) session: u64,
    pub(super) thread: ThreadHandle,
    current_call: CurrentCall,
}

impl WorkerHandle {
    /// The NVML call that has not returned within `deadline`.
    pub(super) fn overdue(&self, deadline: Duration) -> Option<&'static str> {
        self.current_call.lock().filter(|(_, since)| since.elapsed() >= deadline).map(|(call, _)| call)
    }
}

impl Worker {
    pub(super) fn spawn(self) -> io::Result<WorkerHandle> {
        let (index, session, current_call) = (self.index, self.session.number, self.current_call.clone());
        let thread = threads::spawn(&format!("gpu-{index}"), move |stop| self.run(stop))?;
        Ok(WorkerHandle { index, session, thread, current_call })
    }

    /// Runs until it is asked to stop or the session is over.
    fn run(self, stop: &StopSignal) {
        let step = self.config.timing.reprobe_interval;
        let mut next = Instant::now();
        while self.attempt(stop) {
            if !sleep(&mut next, step, stop) {
                return;
            }
        }
    }

    /// Gets a device handle and polls it until the GPU fails. Returns whether to try again later.
    fn attempt(&self, stop: &StopSignal) -> bool {
        let (mut unsupported, mut none) = (Unsupported::default(), Counters::default());
        let mut probe = Probe::new(&self.current_call, &mut unsupported, &mut none);
        let device = probe.call("device_by_index", || self.session.nvml.device_by_index(self.index));
        let identity = device.as_ref().and_then(|device| read_identity(device, self.index, &mut probe));
        let (Some(device), Some(identity)) = (device, identity) else {
            let state = probe.state();
            let outcome = state.map_or_else(WorkerOutcome::SessionLost, WorkerOutcome::Unidentified);
            return self.report(outcome, probe.failures) && state.is_ok();
        };
        if !is_selected(&self.config.uuids, &identity.uuid) {
            self.report(WorkerOutcome::Excluded, probe.failures);
            return false;
        }
        let uuid = identity.uuid.clone();
        if !self.report(WorkerOutcome::Identified(identity), probe.failures) {
            return false;
        }
        // Taken, so that a second GPU with this UUID has counters of its own.
        let mut counters = self.counters.lock().remove(&uuid).unwrap_or_default();
        counters.expect_restart();
        // After a panic, a new worker continues the counters.
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll(&device, &mut counters, stop)));
        self.counters.lock().insert(uuid, counters);
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Polls until the GPU fails. Returns whether to try again later with a new handle. If every call fails, but no
    /// error concerns the whole GPU, polling continues.
    fn poll<'nvml>(&'nvml self, device: &Device<'nvml>, counters: &mut Counters, stop: &StopSignal) -> bool {
        let GpuConfig { interval, timing, .. } = &*self.config;
        let max_poll_time = (*interval).max(Duration::from_secs(1)).min(timing.call_deadline);
        let mut kept = PollState::new(&self.config, self.session.driver_version.as_deref());
        let mut unsupported = Unsupported::default();
        let mut next = Instant::now();
        let mut retried = false;
        loop {
            unsupported.expire(timing.unsupported_retry);
            let begun = Instant::now();
            let mut probe = Probe::new(&self.current_call, &mut unsupported, counters);
            let (readings, slow_failures) = kept.read(device, &mut probe);
            let (state, failed) = (probe.state(), probe.gpu_failed());
            let took = begun.elapsed();
            // A call hung, so what was read before it is outdated. Poll again at once, but only once, because a driver may
            // always be this slow.
            let too_slow = took >= max_poll_time;
            if too_slow && !retried && state == Ok(GpuState::Ok) {
                retried = true;
                kept.request_slow_poll();
                continue;
            }
            retried = too_slow;
            let poll = GpuPoll { at_us: now_us(), monotonic: monotonic(), took };
            let mut failures = probe.failures;
            let outcome = match state {
                Ok(state) => WorkerOutcome::Polled(state, Box::new(PollReadings { readings, poll, slow_failures })),
                Err(state) => {
                    failures.extend(slow_failures.into_iter().flatten());
                    WorkerOutcome::SessionLost(state)
                }
            };
            if !self.report(outcome, failures) || state.is_err() {
                return false;
            }
            if failed {
                return true;
            }
            if !sleep(&mut next, *interval, stop) {
                return false;
            }
        }
    }

    /// Sends a report. Returns false if the supervisor has ended.
    fn report(&self, outcome: WorkerOutcome, failures: Vec<CallFailure>) -> bool {
        let report = WorkerReport { session: self.session.number, index: self.index, outcome, failures };
        self.events.send(Event::Report(report)).is_ok()
    }
}

/// Advances `next` by one step and sleeps until then. Steps that were missed during a slow call are skipped. Returns
/// false if asked to stop.
fn sleep(next: &mut Instant, step: Duration, stop: &StopSignal) -> bool {
    let now = Instant::now();
    *next += step;
    if *next < now {
        *next = now + step;
    }
    !stop.wait(next.duration_since(now))
}

/// The identity of a GPU. `None` if the UUID cannot be read, because without it no series can be labelled.
fn read_identity(device: &Device<'_>, index: u32, probe: &mut Probe<'_>) -> Option<GpuIdentity> {
    Some(GpuIdentity {
        uuid: uuid(device, probe)?,
        index,
        name: probe.call("name", || device.name()),
        pci_bus_id: probe.call("pci_info", || device.pci_info()).map(|pci| pci.bus_id),
        minor: probe.call("minor_number", || device.minor_number()),
        serial: probe.call("serial", || device.serial()),
        vbios: probe.call("vbios_version", || device.vbios_version()),
        // The architecture is only a label of the info series, so a failure is not counted.
        architecture: probe.call("architecture", || Ok(architecture(device.architecture()))).flatten(),
    })
}

/// A blank UUID is a failure: several GPUs with the same one could not be told apart.
fn uuid(device: &Device<'_>, probe: &mut Probe<'_>) -> Option<String> {
    let uuid = probe.call("uuid", || device.uuid())?;
    if is_blank(&uuid) {
        probe.failures.push(CallFailure { call: "uuid", error: IMPOSSIBLE });
        return None;
    }
    Some(uuid)
}

/// The name of an architecture. `None` where NVML itself does not know it. nvml-wrapper returns an error for a number
/// that it does not know yet.
fn architecture(result: Result<DeviceArchitecture, NvmlError>) -> Option<String> {
    match result {
        Ok(DeviceArchitecture::Unknown) => None,
        Ok(known) => Some(known.to_string().to_lowercase()),
        Err(NvmlError::UnexpectedVariant(number)) => Some(format!("unknown_{number}")),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_architecture_has_its_label_value() {
        let labels = (2..=10).map(|number| architecture(DeviceArchitecture::try_from(number)).unwrap());
        let expected = ["kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
        let newer = architecture(DeviceArchitecture::try_from(77));
        assert_eq!(newer.as_deref(), Some("unknown_77"), "newer than the exporter");
    }

    #[test]
    fn an_architecture_that_cannot_be_read_has_no_label() {
        assert_eq!(architecture(Ok(DeviceArchitecture::Unknown)), None);
        assert_eq!(architecture(Err(NvmlError::NotSupported)), None);
    }
}
