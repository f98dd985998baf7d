//! What is known of one GPU, folded from its worker's reports. Pure, except that it logs changes of state.

use super::probe::CallFailure;
use trtllm_model::gpu::{GpuIdentity, GpuPoll, GpuReadings, GpuSnapshot, GpuState, LastXid};

/// Maximum number of Xid codes that are counted for one GPU. NVIDIA's catalog has about 170, and a GPU shows few of them.
const MOST_XIDS: usize = 64;

#[derive(Debug)]
pub(super) struct TrackedGpu {
    pub(super) snapshot: GpuSnapshot,
    /// False until the first poll has ended or failed; the state is unknown until then.
    pub(super) is_listed: bool,
    /// The last reading of the energy counter, which restarts with the driver.
    energy_mj: Option<u64>,
    /// Millijoules used since the first reading of that counter.
    used_mj: u64,
    /// Failures of the last poll, to log only changes.
    failing: Vec<CallFailure>,
}

impl TrackedGpu {
    pub(super) fn new(identity: GpuIdentity) -> Self {
        let snapshot = GpuSnapshot {
            identity,
            state: GpuState::Lost,
            readings: GpuReadings::default(),
            last_poll: None,
            xids: Vec::new(),
            last_xid: None,
            reports_xids: false,
        };
        Self { snapshot, is_listed: false, energy_mj: None, used_mj: 0, failing: Vec::new() }
    }

    /// `call`: the NVML call that led to the state.
    pub(super) fn set_state(&mut self, state: GpuState, call: Option<&'static str>) {
        let GpuIdentity { uuid, index, name, .. } = &self.snapshot.identity;
        if !self.is_listed || self.snapshot.state != state {
            if state == GpuState::Ok {
                tracing::info!(gpu_uuid = %uuid, index, name = name.as_deref(), "GPU readings available");
            } else {
                tracing::warn!(gpu_uuid = %uuid, index, ?state, call, "GPU readings unavailable; look for Xid errors in dmesg");
            }
        }
        self.enter(state);
    }

    /// NVML was lost or closed. The tracker logs that once for all GPUs.
    pub(super) fn nvml_lost(&mut self) {
        self.enter(GpuState::Lost);
        self.snapshot.reports_xids = false;
    }

    fn enter(&mut self, state: GpuState) {
        self.is_listed = true;
        self.snapshot.state = state;
        if state != GpuState::Ok {
            self.snapshot.readings = GpuReadings { energy_joules: self.joules(), ..GpuReadings::default() };
        }
    }

    pub(super) fn absorb(&mut self, readings: GpuReadings, poll: GpuPoll, failures: Vec<CallFailure>) {
        if let Some(energy_mj) = readings.energy_counter_mj {
            // A smaller reading means that the driver was reloaded: the total continues from there. The energy used
            // between the last reading and the reload is unknown and left out.
            let used = self.energy_mj.and_then(|last| energy_mj.checked_sub(last)).unwrap_or(0);
            self.used_mj = self.used_mj.saturating_add(used);
            self.energy_mj = Some(energy_mj);
        }
        let energy_joules = self.joules();
        if self.snapshot.state != GpuState::Ok {
            self.snapshot.readings.energy_joules = energy_joules;
            return;
        }
        self.snapshot.readings = GpuReadings { energy_joules, ..readings };
        self.snapshot.last_poll = Some(poll);
        let uuid = &self.snapshot.identity.uuid;
        for CallFailure { call, error } in failures.iter().filter(|failure| !self.failing.contains(failure)) {
            tracing::warn!(gpu_uuid = %uuid, call, error, "NVML call failed; compare with nvidia-smi -q");
        }
        for before in self.failing.iter().filter(|before| failures.iter().all(|failure| failure.call != before.call)) {
            tracing::info!(gpu_uuid = %uuid, call = before.call, "NVML call succeeds again");
        }
        self.failing = failures;
    }

    pub(super) fn xid(&mut self, xid: LastXid) {
        let gpu = &mut self.snapshot;
        tracing::warn!(gpu_uuid = %gpu.identity.uuid, xid = xid.code, "GPU reported an Xid error; look for its number in NVIDIA's Xid catalog");
        match gpu.xids.binary_search_by_key(&xid.code, |(code, _)| *code) {
            Ok(at) => gpu.xids[at].1 += 1,
            Err(at) if gpu.xids.len() < MOST_XIDS => gpu.xids.insert(at, (xid.code, 1)),
            Err(_) => {}
        }
        gpu.last_xid = Some(xid);
    }

    /// Energy used in joules. `None` before the first reading. Exact to a millijoule up to 2^53 mJ: 280 years at 1 kW.
    fn joules(&self) -> Option<f64> {
        self.energy_mj.map(|_| self.used_mj as f64 / 1000.0)
    }
}
