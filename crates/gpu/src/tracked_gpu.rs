//! What is known of one GPU, folded from its worker's reports. Pure, except that it logs changes of state.

use std::collections::BTreeSet;

use super::event::PollReadings;
use super::limits::IMPOSSIBLE;
use super::probe::CallFailure;
use trtllm_records::gpu::{Gpu, GpuIdentity, GpuReadings, GpuState};

/// Maximum number of Xid codes that are counted for one GPU. NVIDIA's catalog has about 170, and a GPU shows few of them.
const MOST_XIDS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct TrackedGpu {
    pub(super) snapshot: Gpu,
    /// False until the first poll has ended or failed; the state is unknown until then.
    pub(super) is_listed: bool,
    /// Failures of the last poll, and of what the last slow poll read in addition, to log only changes.
    failing: BTreeSet<CallFailure>,
    pub(super) failing_slow: BTreeSet<CallFailure>,
}

impl TrackedGpu {
    /// `call`: the NVML call that led to the state.
    pub(super) fn set_state(&mut self, state: GpuState, call: Option<&'static str>) {
        let GpuIdentity { uuid, index, name, .. } = &self.snapshot.identity;
        if !self.is_listed || self.snapshot.state != state {
            if state == GpuState::Ok {
                tracing::info!(gpu_uuid = %uuid, index, name = name.as_deref(), "GPU readings available");
            } else {
                let remedy = remedy(state);
                tracing::warn!(gpu_uuid = %uuid, index, ?state, call, "GPU readings unavailable; {remedy}");
            }
        }
        self.enter(state);
    }

    /// NVML was lost or closed. The tracker logs that once for all GPUs.
    pub(super) fn nvml_lost(&mut self) {
        self.enter(GpuState::Lost);
        self.snapshot.reports_xids = false;
        self.snapshot.xids.take_if(|count| *count == 0);
    }

    fn enter(&mut self, state: GpuState) {
        self.is_listed = true;
        self.snapshot.state = state;
        if state != GpuState::Ok {
            let energy_joules = self.snapshot.readings.energy_joules;
            self.snapshot.readings = GpuReadings { energy_joules, ..GpuReadings::default() };
        }
    }

    /// Folds the readings of a poll and its failures.
    pub(super) fn absorb(&mut self, poll: PollReadings, failures: Vec<CallFailure>) {
        let PollReadings { readings, poll, slow_failures } = poll;
        if self.snapshot.state != GpuState::Ok {
            self.snapshot.readings.energy_joules = readings.energy_joules;
            return;
        }
        self.snapshot.readings = readings;
        self.snapshot.last_poll = Some(poll);
        let uuid = &self.snapshot.identity.uuid;
        log_changes(uuid, &mut self.failing, failures);
        if let Some(failures) = slow_failures {
            log_changes(uuid, &mut self.failing_slow, failures);
        }
    }

    /// The driver will report Xid errors of this GPU.
    pub(super) fn xids_registered(&mut self) {
        self.snapshot.reports_xids = true;
        self.snapshot.xids.get_or_insert(0);
    }

    pub(super) fn xid(&mut self, code: u64, at_us: i64) {
        let gpu = &mut self.snapshot;
        tracing::warn!(gpu_uuid = %gpu.identity.uuid, xid = code, "GPU reported an Xid error; look for its number in NVIDIA's Xid catalog");
        match gpu.xids_by_code.binary_search_by_key(&code, |(code, _)| *code) {
            Ok(at) => gpu.xids_by_code[at].1 += 1,
            Err(at) if gpu.xids_by_code.len() < MOST_XIDS => gpu.xids_by_code.insert(at, (code, 1)),
            Err(_) => {}
        }
        *gpu.xids.get_or_insert(0) += 1;
        (gpu.last_xid, gpu.last_xid_us) = (Some(code), Some(at_us));
    }
}

pub(super) fn remedy(state: GpuState) -> &'static str {
    match state {
        GpuState::NoPermission => {
            "let this user open /dev/nvidia*, and restart the exporter; recreate a container that has lost its devices"
        }
        _ => "look for Xid errors in dmesg",
    }
}

/// Logs which calls fail now and did not before, and the reverse.
fn log_changes(uuid: &str, failing: &mut BTreeSet<CallFailure>, failures: Vec<CallFailure>) {
    // A call may fail for several parts of the GPU, such as its links.
    let now: BTreeSet<CallFailure> = failures.into_iter().collect();
    for CallFailure { call, error } in now.difference(failing) {
        if *error == IMPOSSIBLE {
            tracing::warn!(gpu_uuid = %uuid, call, "impossible GPU reading left out; compare with nvidia-smi -q");
        } else {
            tracing::warn!(gpu_uuid = %uuid, call, error, "NVML call failed; compare with nvidia-smi -q");
        }
    }
    let calls = |failures: &BTreeSet<CallFailure>| failures.iter().map(|failure| failure.call).collect::<BTreeSet<_>>();
    for call in calls(failing).difference(&calls(&now)) {
        tracing::info!(gpu_uuid = %uuid, call, "GPU call succeeds again");
    }
    *failing = now;
}
