//! What the threads of this crate send to the supervisor, over one channel.

use std::sync::Arc;
use std::time::Instant;

use super::device_assignment::DeviceAssignment;
use super::nvml::{NvmlUnavailable, Session};
use super::probe::CallFailure;
use trtllm_records::gpu::{GpuIdentity, GpuPoll, GpuReadings, GpuState, NvmlState};

#[derive(Debug)]
pub(super) enum Event {
    /// An initialisation of NVML has ended.
    Opened(Result<Arc<Session>, NvmlUnavailable>),
    Report(WorkerReport),
    /// The kubelet's current device assignments, or the kind of error with which a request to it failed.
    Assignments(Result<Vec<DeviceAssignment>, &'static str>),
    /// Close NVML and keep it closed until `Resume`.
    Release,
    Resume,
    /// End the supervisor. Wait for workers until this moment at the latest.
    Stop(Instant),
}

/// What a worker reports after each attempt to read its GPU, or what the Xid thread reports about one GPU.
#[derive(Debug)]
pub(super) struct WorkerReport {
    /// The session of NVML that this report belongs to.
    pub(super) session: u64,
    pub(super) index: u32,
    pub(super) outcome: WorkerOutcome,
    /// The NVML calls that failed in this attempt, except [`PollReadings::slow_failures`].
    pub(super) failures: Vec<CallFailure>,
}

#[derive(Debug)]
pub(super) enum WorkerOutcome {
    /// This GPU is not selected; the worker has ended.
    Excluded,
    /// The GPU's identity was read; polls follow.
    Identified(GpuIdentity),
    /// The GPU's identity could not be read.
    Unidentified(GpuState),
    /// One poll. The readings are current only if the state is [`GpuState::Ok`].
    Polled(GpuState, Box<PollReadings>),
    /// The driver will report Xid errors of this GPU.
    XidsRegistered,
    /// The driver reported an Xid error at this moment, in microseconds since 1970 UTC.
    Xid { code: u64, at_us: i64 },
    /// NVML must be initialised again; the worker has ended.
    SessionLost(NvmlState),
}

#[derive(Debug)]
pub(super) struct PollReadings {
    pub(super) readings: GpuReadings,
    pub(super) poll: GpuPoll,
    /// The NVML calls that failed and that only a slow poll makes. `None` if this was no slow poll.
    pub(super) slow_failures: Option<Vec<CallFailure>>,
}
