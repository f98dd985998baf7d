//! What the orchestrator of disaggregated serving tells: counters and histograms of its own requests and of its requests to the
//! workers of each side, and how many workers it has.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The kind of source that reads one.
pub const SOURCE: &str = "trtllm-disagg";

/// One reading of an orchestrator.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OrchestratorReading {
    pub counts: Vec<OrchestratorCount>,
    /// Several processes answer at its address, each with counts of its own. `counts` is empty then.
    #[serde(default)]
    pub several_processes: bool,
    /// Whether `/health` says that it is ready.
    pub ready: Option<bool>,
    /// Workers that are registered. Absent if it does not tell.
    pub workers: WorkerCounts,
    /// Workers that it needs to be ready.
    pub minimal_workers: WorkerCounts,
}

/// One number by side. The orchestrator tells no encoders.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    pub context: Option<u64>,
    pub generation: Option<u64>,
}

/// One series. It falls only if the orchestrator was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrchestratorCount {
    pub counter: OrchestratorCounter,
    pub value: u64,
}

/// The workers that a request goes to, one side after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    Context,
    Generation,
    /// Encoders of images and other inputs that are not text.
    Encoder,
}

impl Side {
    pub const ALL: [Self; 3] = [Self::Context, Self::Generation, Self::Encoder];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Generation => "generation",
            Self::Encoder => "encoder",
        }
    }

    /// How the names of its families begin.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Context => "ctx_",
            Self::Generation => "gen_",
            Self::Encoder => "mme_",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OrchestratorCounter {
    /// Accepted requests whose answer is a stream.
    Streamed,
    /// Accepted requests with one answer.
    Whole,
    Responses,
    /// Requests that were not accepted.
    Invalid,
    HttpErrors,
    InternalErrors,
    /// Requests to workers of a side.
    Sent(Side),
    Retried(Side),
    Failed(Side),
    /// Failed ones, too.
    Ended(Side),
    /// Observations of a time, by the upper bound of their bucket: `0.001` … `+Inf`.
    Time(OrchestratorTime, String),
    /// The sum of those times, in nanoseconds: a whole number like the other counts.
    TimeNanos(OrchestratorTime),
}

/// A histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OrchestratorTime {
    /// From the arrival of a request to the start of its routing.
    Queue,
    /// From a streamed request to a worker to the first bytes of the answer.
    FirstBytes(Side),
    /// Between two reads of a streamed answer.
    BetweenReads(Side),
    /// From a request to a worker to the end of the answer, if it succeeds.
    Complete(Side),
}
