//! What is known of NVML and its GPUs, folded from events. Pure, except that it logs: it knows no NVML, thread or clock.
//! This is the only place that counts failures; it and `tracked_gpu` log changes of state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::{mem, slice};

use super::config::is_selected;
use super::device_assignment::{self, DeviceAssignment};
use super::event::{WorkerOutcome, WorkerReport};
use super::limits::IMPOSSIBLE;
use super::nvml::{NvmlUnavailable, Session};
use super::probe::CallFailure;
use super::tracked_gpu::{TrackedGpu, remedy};
use trtllm_records::gpu::{Gpu, GpuIdentity, GpuInventory, GpuState, NvmlState, ReadError};

/// Keeps every GPU that was ever seen: a GPU that vanished stays listed as lost.
#[derive(Debug, Default)]
pub(super) struct GpuTracker {
    /// The UUIDs of the GPUs to show, or beginnings of them. If empty, every GPU is shown.
    selected: Vec<String>,
    /// The selectors that match no GPU and have been logged.
    logged_unmatched: BTreeSet<String>,
    /// The inventory without its GPUs and pods.
    inventory: GpuInventory,
    /// Every GPU by its UUID.
    gpus: BTreeMap<String, TrackedGpu>,
    /// UUID of the GPU that was last seen at each index. A GPU has one index.
    by_index: BTreeMap<u32, String>,
    /// The latest state of each index that was reported in this session; `None` for a GPU that is not shown, because it is
    /// not selected, or its UUID is blank or that of a lower index.
    states: BTreeMap<u32, Option<GpuState>>,
    /// The indexes that were identified in this session.
    identified: BTreeSet<u32>,
    /// Number of indexes in this session.
    enumerated: u32,
    assignments: Vec<DeviceAssignment>,
}

impl GpuTracker {
    pub(super) fn new(selected: Vec<String>) -> Self {
        let inventory = GpuInventory { nvml: NvmlState::Starting, ..GpuInventory::default() };
        Self { selected, inventory, ..Self::default() }
    }

    pub(super) fn session_opened(&mut self, session: &Session) {
        let Session { library, driver_version, nvml_version, cuda_version, gpus, .. } = session;
        let inventory = &mut self.inventory;
        if inventory.nvml != NvmlState::Up {
            tracing::info!(%library, driver_version = driver_version.as_deref(), gpus, "GPU monitoring started");
        }
        inventory.nvml = NvmlState::Up;
        inventory.driver_version.clone_from(driver_version);
        inventory.nvml_version.clone_from(nvml_version);
        inventory.cuda_version.clone_from(cuda_version);
        // With a selection, it is unknown whether a GPU is expected until its identity was read.
        if self.selected.is_empty() {
            inventory.expected = inventory.expected.max(*gpus);
        }
        self.states.clear();
        self.identified.clear();
        self.enumerated = *gpus;
    }

    /// An initialisation failed.
    pub(super) fn unavailable(&mut self, reason: &NvmlUnavailable) {
        self.inventory.init_errors += 1;
        self.nvml_lost(reason.state(), reason);
    }

    /// NVML was closed on request.
    pub(super) fn released(&mut self) {
        if self.inventory.nvml != NvmlState::Released {
            tracing::info!("GPU monitoring paused; the driver can be unloaded; SIGUSR2 resumes monitoring");
        }
        self.close(NvmlState::Released);
    }

    /// NVML was asked to close, but a hung call prevents that.
    pub(super) fn release_blocked(&mut self) {
        tracing::warn!("cannot release the driver while an NVML call hangs; stop the exporter to release it");
        self.close(NvmlState::Failed);
    }

    fn nvml_lost(&mut self, state: NvmlState, reason: &dyn Display) {
        if self.inventory.nvml != state {
            // Only lost GPUs are worth a warning; a machine without GPUs is normal.
            if self.gpus.is_empty() {
                tracing::info!(?state, %reason, "GPU monitoring unavailable; retrying in the background");
            } else {
                tracing::warn!(?state, %reason, "GPU monitoring lost; retrying in the background");
            }
        }
        self.close(state);
    }

    fn close(&mut self, state: NvmlState) {
        let GpuInventory { expected, read_errors, init_errors, .. } = mem::take(&mut self.inventory);
        self.inventory = GpuInventory { nvml: state, expected, read_errors, init_errors, ..GpuInventory::default() };
        self.gpus.values_mut().for_each(TrackedGpu::nvml_lost);
    }

    /// False once no GPU can be read. Then NVML must be closed, because a GPU cannot be reset while NVML is open, and only a new
    /// initialisation finds the GPU again. A GPU that hangs may recover.
    pub(super) fn session_is_useful(&self) -> bool {
        let complete = self.states.len() == self.enumerated as usize;
        let gone = |state: &GpuState| !matches!(state, GpuState::Ok | GpuState::Stalled);
        let mut states = self.states.values().flatten().peekable();
        self.inventory.nvml == NvmlState::Up && !(complete && states.peek().is_some() && states.all(gone))
    }

    /// Folds a worker's report into the state.
    pub(super) fn absorb(&mut self, report: WorkerReport) {
        let WorkerReport { index, outcome, failures, .. } = report;
        failures.iter().for_each(|failure| self.count(failure));
        // The last failure decided the state, because every later call was skipped.
        let mut call = failures.last().map(|failure| failure.call);
        match outcome {
            WorkerOutcome::Excluded => {
                self.states.insert(index, None);
                self.log_unmatched_selectors();
            }
            WorkerOutcome::Identified(identity) => self.identify(identity, &failures),
            WorkerOutcome::Unidentified(_) if failures.last().is_some_and(|failure| failure.error == IMPOSSIBLE) => {
                if self.states.insert(index, None) != Some(None) {
                    tracing::warn!(index, "GPU has a blank UUID and is not shown; compare with nvidia-smi -L");
                }
            }
            // Without a UUID the GPU cannot be shown, even if other calls succeed.
            WorkerOutcome::Unidentified(GpuState::Ok) => self.set_state(index, GpuState::Lost, call),
            WorkerOutcome::Unidentified(state) => self.set_state(index, state, call),
            WorkerOutcome::Polled(state, poll) => {
                for failure in poll.slow_failures.iter().flatten() {
                    self.count(failure);
                    call = Some(failure.call);
                }
                self.set_state(index, state, call);
                if let Some(gpu) = self.gpu_at(index) {
                    gpu.absorb(*poll, failures);
                }
            }
            WorkerOutcome::XidsRegistered => {
                if let Some(gpu) = self.gpu_at(index) {
                    gpu.xids_registered();
                }
            }
            WorkerOutcome::Xid { code, at_us } => {
                if let Some(gpu) = self.gpu_at(index) {
                    gpu.xid(code, at_us);
                }
            }
            WorkerOutcome::SessionLost(state) => {
                let reason = failures.last().map_or("", |failure| failure.error);
                self.nvml_lost(state, &reason);
            }
        }
    }

    /// A call on this GPU did not return within its deadline.
    pub(super) fn stalled(&mut self, index: u32, call: &'static str) {
        self.set_state(index, GpuState::Stalled, Some(call));
    }

    /// The worker of this GPU has ended. Returns whether it needs a new one, because the GPU should be shown.
    pub(super) fn worker_missing(&mut self, index: u32) -> bool {
        self.set_state(index, GpuState::Lost, None);
        self.states.get(&index).is_some_and(Option::is_some)
    }

    /// The thread of this GPU cannot be started.
    pub(super) fn thread_missing(&mut self, index: u32, error: &std::io::Error) {
        let previous = self.states.insert(index, Some(GpuState::Lost));
        if let Some(gpu) = self.gpu_at(index) {
            gpu.set_state(GpuState::Lost, None);
        }
        if previous != Some(Some(GpuState::Lost)) {
            tracing::warn!(index, %error, "cannot start the thread of a GPU, which stays unknown; raise the limit of processes");
        }
        if previous.is_none() {
            self.log_unmatched_selectors();
        }
    }

    /// Replaces the kubelet's device assignments, or counts an error.
    pub(super) fn assignments(&mut self, assignments: Result<Vec<DeviceAssignment>, &'static str>) {
        match assignments {
            Ok(assignments) => self.assignments = assignments,
            Err(error) => self.count(&CallFailure { call: "pod_resources", error }),
        }
    }

    fn count(&mut self, CallFailure { call, error }: &CallFailure) {
        let errors = &mut self.inventory.read_errors;
        match errors.binary_search_by_key(&(*call, *error), |counted| (counted.call, counted.error)) {
            Ok(at) => errors[at].count += 1,
            Err(at) => errors.insert(at, ReadError { call, error, count: 1 }),
        }
    }

    /// A complete inventory, with the GPUs in NVML index order.
    pub(super) fn inventory(&self) -> GpuInventory {
        let listed = self.gpus.values().filter(|gpu| gpu.is_listed);
        let mut gpus: Vec<Gpu> = listed.map(|gpu| gpu.snapshot.clone()).collect();
        gpus.sort_by_key(|gpu| gpu.identity.index);
        let (pods, pods_with_other_gpus) = device_assignment::resolve(&self.assignments, &gpus);
        let excluded = self.states.values().filter(|state| state.is_none()).count();
        // With a selection, only GPUs with a UUID were ever expected.
        let never_shown = if self.selected.is_empty() { u32::try_from(excluded).unwrap_or(u32::MAX) } else { 0 };
        let known = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let expected = self.inventory.expected.saturating_sub(never_shown).max(known);
        let missing = expected.saturating_sub(self.visible());
        GpuInventory { gpus, pods, pods_with_other_gpus, excluded, expected, missing, ..self.inventory.clone() }
    }

    /// Number of shown GPUs that NVML lists. A GPU that this process was never allowed to read is one of them.
    fn visible(&self) -> u32 {
        if self.inventory.nvml != NvmlState::Up {
            return 0;
        }
        let is_unseen = |(index, state): &(&u32, &Option<GpuState>)| match state {
            None => true,
            Some(GpuState::NoPermission) => false,
            Some(_) => !self.by_index.contains_key(index),
        };
        let unseen = self.states.iter().filter(is_unseen).count();
        self.enumerated.saturating_sub(u32::try_from(unseen).unwrap_or(u32::MAX))
    }

    fn gpu_at(&mut self, index: u32) -> Option<&mut TrackedGpu> {
        self.gpus.get_mut(self.by_index.get(&index)?)
    }

    fn identify(&mut self, identity: GpuIdentity, failures: &[CallFailure]) {
        for CallFailure { call, error } in failures {
            tracing::warn!(gpu_uuid = %identity.uuid, call, error, "some GPU identity fields are unavailable");
        }
        let GpuIdentity { uuid, index, .. } = &identity;
        // If another GPU has taken this index, the previous GPU is no longer visible to NVML.
        if let Some(previous) = self.by_index.remove(index).filter(|previous| previous != uuid)
            && let Some(gpu) = self.gpus.get_mut(&previous)
        {
            gpu.set_state(GpuState::Lost, None);
        }
        self.identified.insert(*index);
        self.states.remove(index);
        // A GPU of an earlier session may have another index now.
        let other = self.by_index.iter().find(|(_, known)| *known == uuid).map(|(other, _)| *other);
        if let Some(other) = other.filter(|other| self.identified.contains(other)) {
            // The series of two GPUs with the same UUID would be the same.
            let hidden = other.max(*index);
            self.states.insert(hidden, None);
            tracing::warn!(gpu_uuid = %uuid, index, other, "two GPUs have the same UUID, so only the first is shown; compare with nvidia-smi -L");
            if hidden == *index {
                return;
            }
            self.gpus.remove(uuid);
        }
        if let Some(other) = other {
            self.by_index.remove(&other);
        }
        self.by_index.insert(*index, uuid.clone());
        let gpu = self.gpus.entry(uuid.clone()).or_default();
        gpu.snapshot.identity = identity;
        self.inventory.expected = self.inventory.expected.max(u32::try_from(self.gpus.len()).unwrap_or(u32::MAX));
    }

    /// `call`: the NVML call that led to the state. A GPU that is not shown has no state until it is identified again.
    fn set_state(&mut self, index: u32, state: GpuState, call: Option<&'static str>) {
        if self.states.get(&index) == Some(&None) {
            return;
        }
        let previous = self.states.insert(index, Some(state));
        match self.gpu_at(index) {
            Some(gpu) => gpu.set_state(state, call),
            None if previous != Some(Some(state)) => {
                let remedy = remedy(state);
                tracing::warn!(index, ?state, call, "GPU has no readable UUID and cannot be shown; {remedy}");
            }
            None => {}
        }
        if previous.is_none() {
            self.log_unmatched_selectors();
        }
    }

    /// When every index has a state, logs the selectors that match no GPU and were not logged before.
    fn log_unmatched_selectors(&mut self) {
        if self.states.len() < self.enumerated as usize {
            return;
        }
        for selector in &self.selected {
            let is_found = self.gpus.keys().any(|uuid| is_selected(slice::from_ref(selector), uuid));
            if !is_found && self.logged_unmatched.insert(selector.clone()) {
                tracing::warn!(gpu = %selector, "GPU of --gpu.uuid not found; compare with nvidia-smi -L");
            }
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
