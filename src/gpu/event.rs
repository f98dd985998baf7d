//! What the threads of this folder send to the supervisor, over one channel.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::claims::Claim;
use super::nvml::{NvmlUnavailable, Session};
use super::probe::Failure;
use super::readings::Reading;
use crate::model::gpu::{GpuIdentity, GpuState, LastPoll, NvmlState};

/// What the supervisor hears, from everybody on one channel.
#[derive(Debug)]
pub(super) enum Event {
    Opened(Result<Session, NvmlUnavailable>),
    Report(Report),
    /// The driver will report the errors of the GPU at an index.
    HearsXids {
        session: u64,
        index: u32,
    },
    /// It reported one.
    Xid {
        session: u64,
        index: u32,
        code: u64,
        at_us: i64,
    },
    /// Who has which GPU now, as the kubelet says it.
    Pods(Vec<Claim>),
    /// The kubelet did not say it, with a word for why.
    PodsFailed(&'static str),
    /// Let go of the driver until it shall be taken again.
    Release,
    Resume,
    /// End, and wait for workers no longer than this.
    Stop(Instant),
}

/// What a worker has to say after each attempt.
#[derive(Debug)]
pub(super) struct Report {
    /// Which initialisation of NVML this belongs to.
    pub(super) session: u64,
    pub(super) index: u32,
    pub(super) outcome: Outcome,
    /// Calls that failed in this attempt, with NVML's error as a word.
    pub(super) failures: Vec<Failure>,
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
    Polled(GpuState, Box<Reading>, LastPoll),
    /// NVML must be initialised again; the worker has ended.
    SessionOver(NvmlState),
}

pub(super) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
