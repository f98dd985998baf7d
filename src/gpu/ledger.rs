//! What is known of NVML and its GPUs, folded from reports. Pure but for the log: no NVML, no thread, no clock.
//! The one place where failures are counted and where changes of state are logged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use super::claims::{self, Claim};
use super::event::{Outcome, Report};
use super::nvml::{NvmlUnavailable, Session};
use super::probe::Failure;
use super::readings::Reading;
use super::visible::Visible;
use crate::model::gpu::{
    GpuIdentity, GpuInventory, GpuReadings, GpuSnapshot, GpuState, LastPoll, LastXid, NvmlState, ReadError,
};

/// Everything known. GPUs are never forgotten: one that vanished stays listed as lost.
#[derive(Debug)]
pub(super) struct Ledger {
    visible: Arc<Visible>,
    /// Wanted, not found, and said so.
    missing: BTreeSet<String>,
    nvml: NvmlState,
    driver_version: Option<String>,
    nvml_version: Option<String>,
    cuda_version: Option<String>,
    gpus: BTreeMap<String, Gpu>,
    /// Which GPU was last seen at an NVML index.
    by_index: BTreeMap<u32, String>,
    /// This session's last word on each index; `None` for a GPU that is not wanted.
    verdicts: BTreeMap<u32, Option<GpuState>>,
    /// How many indexes this session has.
    enumerated: u32,
    expected: u32,
    read_errors: BTreeMap<(&'static str, &'static str), u64>,
    init_errors: u64,
    pods: Vec<Claim>,
}

#[derive(Debug)]
struct Gpu {
    identity: GpuIdentity,
    /// `None` until the first word on it.
    state: Option<GpuState>,
    gauges: GpuReadings,
    energy: Energy,
    /// The last that answered.
    last_poll: Option<LastPoll>,
    /// Calls that failed in the last poll, to tell a change.
    failing: Vec<Failure>,
    xids: BTreeMap<u64, u64>,
    last_xid: Option<LastXid>,
    hears_xids: bool,
}

/// Joules since the first reading, from a counter that starts with the driver.
#[derive(Debug, Default, PartialEq)]
struct Energy {
    last_mj: Option<u64>,
    total_mj: u64,
}

impl Energy {
    /// A smaller reading means that the driver was reloaded: counting goes on from there. What was used between the
    /// last reading and the reload is not known, so it is left out.
    fn absorb(&mut self, reading_mj: u64) {
        let used = self.last_mj.and_then(|last| reading_mj.checked_sub(last)).unwrap_or(0);
        self.total_mj = self.total_mj.saturating_add(used);
        self.last_mj = Some(reading_mj);
    }

    /// `None` while nothing was ever read.
    fn joules(&self) -> Option<f64> {
        // Exact to a millijoule up to 2^53 mJ: 280 years at 1 kW.
        self.last_mj.map(|_| self.total_mj as f64 / 1000.0)
    }
}

impl Ledger {
    pub(super) fn new(visible: Arc<Visible>) -> Self {
        Self {
            visible,
            missing: BTreeSet::new(),
            nvml: NvmlState::Starting,
            driver_version: None,
            nvml_version: None,
            cuda_version: None,
            gpus: BTreeMap::new(),
            by_index: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            enumerated: 0,
            expected: 0,
            read_errors: BTreeMap::new(),
            init_errors: 0,
            pods: Vec::new(),
        }
    }

    /// NVML is initialised; its workers will report.
    pub(super) fn up(&mut self, session: &Session) {
        let Session { library, driver_version, nvml_version, cuda_version, gpus, .. } = session;
        if self.nvml != NvmlState::Up {
            tracing::info!(%library, driver_version = driver_version.as_deref(), gpus, "NVML is up");
        }
        self.nvml = NvmlState::Up;
        self.driver_version.clone_from(driver_version);
        self.nvml_version.clone_from(nvml_version);
        self.cuda_version.clone_from(cuda_version);
        self.verdicts.clear();
        self.enumerated = *gpus;
        // With a filter only GPUs that said who they are can be counted.
        if self.visible.shows_all() {
            self.expected = self.expected.max(*gpus);
        }
    }

    /// An initialisation failed.
    pub(super) fn unavailable(&mut self, reason: &NvmlUnavailable) {
        self.init_errors += 1;
        self.down(reason.state(), reason);
    }

    /// The driver was let go on request.
    pub(super) fn released(&mut self) {
        if self.nvml != NvmlState::Released {
            tracing::info!("NVML is released: the driver can be unloaded; SIGUSR2 takes it again");
        }
        self.nvml = NvmlState::Released;
        self.forget_readings();
    }

    /// The driver was to be let go, and a call that hangs does not.
    pub(super) fn held(&mut self) {
        tracing::warn!(
            "an NVML call that hangs still holds the driver; it is let go when that returns or this process ends"
        );
        self.nvml = NvmlState::Failed;
        self.forget_readings();
    }

    /// NVML gives no readings until it is initialised again.
    fn down(&mut self, state: NvmlState, reason: &dyn Display) {
        if self.nvml != state {
            // A machine without GPUs is nothing to warn of; one that lost them is.
            if self.gpus.is_empty() {
                tracing::info!(?state, %reason, "no GPU readings; retrying in the background");
            } else {
                tracing::warn!(?state, %reason, "no GPU readings any more; retrying in the background");
            }
        }
        self.nvml = state;
        self.forget_readings();
    }

    fn forget_readings(&mut self) {
        self.driver_version = None;
        self.nvml_version = None;
        self.cuda_version = None;
        for gpu in self.gpus.values_mut() {
            gpu.state = Some(GpuState::Lost);
            gpu.gauges = GpuReadings::default();
            gpu.hears_xids = false;
        }
    }

    /// Whether this session is worth keeping. Once every GPU is gone it is not: to let go of the driver is what allows
    /// a GPU to be reset, and a new initialisation is what finds it again.
    pub(super) fn session_is_useful(&self) -> bool {
        let complete = self.verdicts.len() == self.enumerated as usize;
        let gone = |state: &GpuState| matches!(state, GpuState::Lost | GpuState::ResetRequired);
        let mut states = self.verdicts.values().flatten().peekable();
        self.nvml == NvmlState::Up && !(complete && states.peek().is_some() && states.all(gone))
    }

    /// Folds one worker's report in.
    pub(super) fn absorb(&mut self, report: Report) {
        let Report { index, outcome, failures, .. } = report;
        for failure in &failures {
            *self.read_errors.entry(*failure).or_default() += 1;
        }
        // Nothing is asked after the failure that decides the state, so that is the last one.
        let call = failures.last().map(|(call, _)| *call);
        match outcome {
            Outcome::NotWanted => {
                self.verdicts.insert(index, None);
                self.name_the_missing();
            }
            Outcome::Identified(identity) => self.identify(identity, &failures),
            // It is there but does not say who it is: nothing can be told of it.
            Outcome::Unidentified(GpuState::Ok) => self.judge(index, GpuState::Lost, call),
            Outcome::Unidentified(state) => self.judge(index, state, call),
            Outcome::Polled(state, reading, poll) => {
                self.judge(index, state, call);
                if let Some(gpu) = self.by_index.get(&index).and_then(|uuid| self.gpus.get_mut(uuid)) {
                    gpu.absorb(*reading, poll, failures);
                }
            }
            Outcome::SessionOver(state) => {
                let reason = failures.last().map_or("", |(_, error)| *error);
                self.down(state, &reason);
            }
        }
    }

    /// A call on this GPU has not returned within its deadline.
    pub(super) fn stalled(&mut self, index: u32, call: &'static str) {
        self.judge(index, GpuState::Stalled, Some(call));
    }

    /// This GPU has no worker.
    pub(super) fn unattended(&mut self, index: u32) {
        if !matches!(self.verdicts.get(&index), Some(None)) {
            self.judge(index, GpuState::Lost, None);
        }
    }

    /// The driver will report the errors of a GPU.
    pub(super) fn hears_xids(&mut self, index: u32) {
        if let Some(gpu) = self.by_index.get(&index).and_then(|uuid| self.gpus.get_mut(uuid)) {
            gpu.hears_xids = true;
        }
    }

    /// The driver reported an error of a GPU.
    pub(super) fn xid(&mut self, index: u32, code: u64, at_us: i64) {
        let Some(gpu) = self.by_index.get(&index).and_then(|uuid| self.gpus.get_mut(uuid)) else { return };
        tracing::warn!(gpu_uuid = %gpu.identity.uuid, xid = code, "the driver reports an Xid error of this GPU");
        *gpu.xids.entry(code).or_default() += 1;
        gpu.last_xid = Some(LastXid { code, at_us });
    }

    /// Who has which GPU, as of now.
    pub(super) fn pods(&mut self, claims: Vec<Claim>) {
        self.pods = claims;
    }

    /// That could not be told.
    pub(super) fn pods_failed(&mut self, error: &'static str) {
        *self.read_errors.entry(("pod_resources", error)).or_default() += 1;
    }

    /// A complete copy, in NVML index order.
    pub(super) fn inventory(&self) -> GpuInventory {
        let known = self.gpus.values().filter_map(|gpu| gpu.state.map(|state| gpu.snapshot(state)));
        let mut gpus: Vec<GpuSnapshot> = known.collect();
        gpus.sort_by_key(|gpu| gpu.identity.index);
        let read_errors = self.read_errors.iter();
        GpuInventory {
            nvml: self.nvml,
            driver_version: self.driver_version.clone(),
            nvml_version: self.nvml_version.clone(),
            cuda_version: self.cuda_version.clone(),
            pods: claims::resolve(&self.pods, &gpus),
            gpus,
            expected: self.expected,
            read_errors: read_errors.map(|((call, error), count)| ReadError { call, error, count: *count }).collect(),
            init_errors: self.init_errors,
        }
    }

    fn identify(&mut self, identity: GpuIdentity, failures: &[Failure]) {
        for (call, error) in failures {
            tracing::warn!(gpu_uuid = %identity.uuid, call, error, "NVML did not say all about this GPU");
        }
        let uuid = identity.uuid.clone();
        // Another GPU has taken this index: the one before is not seen any more.
        if let Some(before) = self.by_index.insert(identity.index, uuid.clone()).filter(|before| *before != uuid)
            && let Some(gpu) = self.gpus.get_mut(&before)
            && gpu.identity.index == identity.index
        {
            gpu.turn(GpuState::Lost, None);
        }
        let gpu = self.gpus.entry(uuid).or_insert_with(|| Gpu::new(identity.clone()));
        gpu.identity = identity;
        self.expected = self.expected.max(u32::try_from(self.gpus.len()).unwrap_or(u32::MAX));
    }

    /// Takes note of a GPU's state and logs a change, with the call that showed it.
    fn judge(&mut self, index: u32, state: GpuState, call: Option<&'static str>) {
        let before = self.verdicts.insert(index, Some(state));
        match self.by_index.get(&index).and_then(|uuid| self.gpus.get_mut(uuid)) {
            Some(gpu) => gpu.turn(state, call),
            None if before != Some(Some(state)) => {
                tracing::warn!(index, ?state, call, "a GPU does not say its UUID and cannot be shown");
            }
            None => {}
        }
        if before.is_none() {
            self.name_the_missing();
        }
    }

    /// Once every index has had a word: which wanted UUIDs are none of them. Each is named once.
    fn name_the_missing(&mut self) {
        if self.verdicts.len() < self.enumerated as usize {
            return;
        }
        let seen: Vec<&GpuIdentity> = self.gpus.values().map(|gpu| &gpu.identity).collect();
        for wanted in self.visible.missing(&seen) {
            if self.missing.insert(wanted.clone()) {
                let from = self.visible.origin();
                tracing::warn!(%wanted, from, "no GPU is the one asked for; compare with nvidia-smi -L");
            }
        }
    }
}

impl Gpu {
    fn new(identity: GpuIdentity) -> Self {
        Self {
            identity,
            state: None,
            gauges: GpuReadings::default(),
            energy: Energy::default(),
            last_poll: None,
            failing: Vec::new(),
            xids: BTreeMap::new(),
            last_xid: None,
            hears_xids: false,
        }
    }

    fn turn(&mut self, state: GpuState, call: Option<&'static str>) {
        let GpuIdentity { uuid, index, name, .. } = &self.identity;
        if self.state != Some(state) {
            if state == GpuState::Ok {
                tracing::info!(gpu_uuid = %uuid, index, name = name.as_deref(), "GPU is read");
            } else {
                tracing::warn!(gpu_uuid = %uuid, index, ?state, call, "GPU has no current readings");
            }
        }
        self.state = Some(state);
        if state != GpuState::Ok {
            self.gauges = GpuReadings::default();
        }
    }

    fn absorb(&mut self, reading: Reading, poll: LastPoll, failures: Vec<Failure>) {
        if let Some(energy) = reading.energy_mj {
            self.energy.absorb(energy);
        }
        if self.state != Some(GpuState::Ok) {
            return;
        }
        self.gauges = reading.gauges;
        self.last_poll = Some(poll);
        let uuid = &self.identity.uuid;
        for (call, error) in failures.iter().filter(|failure| !self.failing.contains(failure)) {
            tracing::warn!(gpu_uuid = %uuid, call, error, "an NVML reading fails");
        }
        for (call, _) in self.failing.iter().filter(|(call, _)| failures.iter().all(|(failed, _)| failed != call)) {
            tracing::info!(gpu_uuid = %uuid, call, "an NVML reading is back");
        }
        self.failing = failures;
    }

    fn snapshot(&self, state: GpuState) -> GpuSnapshot {
        let readings = GpuReadings { energy_joules: self.energy.joules(), ..self.gauges.clone() };
        let xids = self.xids.iter().map(|(code, count)| (*code, *count)).collect();
        let Self { last_poll, last_xid, hears_xids, .. } = *self;
        GpuSnapshot { identity: self.identity.clone(), state, readings, last_poll, xids, last_xid, hears_xids }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
