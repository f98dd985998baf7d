//! What is known of one GPU, folded from its worker's reports. Pure, except that it logs changes of state.

use std::collections::BTreeMap;

use super::probe::Failure;
use super::readings::PollResult;
use crate::model::gpu::{GpuIdentity, GpuReadings, GpuSnapshot, GpuState, LastPoll, LastXid};

#[derive(Debug)]
pub(super) struct TrackedGpu {
    pub(super) identity: GpuIdentity,
    /// `None` until the first poll has ended or failed.
    state: Option<GpuState>,
    readings: GpuReadings,
    energy: Energy,
    /// The last successful poll.
    last_poll: Option<LastPoll>,
    /// Failures of the last poll, to log only changes.
    failing: Vec<Failure>,
    xids: BTreeMap<u64, u64>,
    last_xid: Option<LastXid>,
    pub(super) reports_xids: bool,
}

impl TrackedGpu {
    pub(super) fn new(identity: GpuIdentity) -> Self {
        Self {
            identity,
            state: None,
            readings: GpuReadings::default(),
            energy: Energy::default(),
            last_poll: None,
            failing: Vec::new(),
            xids: BTreeMap::new(),
            last_xid: None,
            reports_xids: false,
        }
    }

    /// `call`: the NVML call that led to the state.
    pub(super) fn set_state(&mut self, state: GpuState, call: Option<&'static str>) {
        let GpuIdentity { uuid, index, name, .. } = &self.identity;
        if self.state != Some(state) {
            if state == GpuState::Ok {
                tracing::info!(gpu_uuid = %uuid, index, name = name.as_deref(), "GPU readings available");
            } else {
                tracing::warn!(gpu_uuid = %uuid, index, ?state, call, "GPU readings unavailable");
            }
        }
        self.state = Some(state);
        if state != GpuState::Ok {
            self.readings = GpuReadings::default();
        }
    }

    /// NVML is gone. The tracker logs that once for all GPUs.
    pub(super) fn nvml_lost(&mut self) {
        self.state = Some(GpuState::Lost);
        self.readings = GpuReadings::default();
        self.reports_xids = false;
    }

    pub(super) fn absorb(&mut self, result: PollResult, poll: LastPoll, failures: Vec<Failure>) {
        if let Some(energy) = result.energy_mj {
            self.energy.absorb(energy);
        }
        if self.state != Some(GpuState::Ok) {
            return;
        }
        self.readings = result.readings;
        self.last_poll = Some(poll);
        let uuid = &self.identity.uuid;
        for Failure { call, error } in failures.iter().filter(|failure| !self.failing.contains(failure)) {
            tracing::warn!(gpu_uuid = %uuid, call, error, "NVML call failed");
        }
        for before in self.failing.iter().filter(|before| failures.iter().all(|failure| failure.call != before.call)) {
            tracing::info!(gpu_uuid = %uuid, call = before.call, "NVML call succeeds again");
        }
        self.failing = failures;
    }

    pub(super) fn xid(&mut self, code: u64, at_us: i64) {
        tracing::warn!(gpu_uuid = %self.identity.uuid, xid = code, "GPU reported an Xid error");
        *self.xids.entry(code).or_default() += 1;
        self.last_xid = Some(LastXid { code, at_us });
    }

    /// `None` until the state is known.
    pub(super) fn snapshot(&self) -> Option<GpuSnapshot> {
        let readings = GpuReadings { energy_joules: self.energy.joules(), ..self.readings.clone() };
        let xids = self.xids.iter().map(|(code, count)| (*code, *count)).collect();
        let Self { state, last_poll, last_xid, reports_xids, .. } = *self;
        Some(GpuSnapshot {
            identity: self.identity.clone(),
            state: state?,
            readings,
            last_poll,
            xids,
            last_xid,
            reports_xids,
        })
    }
}

/// Joules since the first reading of a counter that restarts with the driver.
#[derive(Debug, Default, PartialEq)]
struct Energy {
    last_mj: Option<u64>,
    total_mj: u64,
}

impl Energy {
    /// A smaller reading means that the driver was reloaded: the total continues from there. The energy used between the
    /// last reading and the reload is unknown and left out.
    fn absorb(&mut self, reading_mj: u64) {
        let used = self.last_mj.and_then(|last| reading_mj.checked_sub(last)).unwrap_or(0);
        self.total_mj = self.total_mj.saturating_add(used);
        self.last_mj = Some(reading_mj);
    }

    /// `None` before the first reading.
    fn joules(&self) -> Option<f64> {
        // Exact to a millijoule up to 2^53 mJ: 280 years at 1 kW.
        self.last_mj.map(|_| self.total_mj as f64 / 1000.0)
    }
}
