//! Statistics of the orchestrator of disaggregated serving: counters and histograms of its own requests and of its
//! requests to the workers, and the number of its workers.

use serde::{Deserialize, Serialize};

use crate::named_variants::named_variants;

/// The kind of source that reads an orchestrator.
pub const SOURCE: &str = "trtllm-disagg";

/// One reading of an orchestrator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OrchestratorReading {
    pub counts: Vec<OrchestratorCount>,
    /// True if several processes, each with its own counts, answer at the orchestrator's address. Then `counts` is
    /// empty.
    #[serde(default)]
    pub several_processes: bool,
    /// True if `/health` reports that the orchestrator is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Registered workers. Absent if the orchestrator does not report them.
    pub workers: WorkerCounts,
    /// Workers that the orchestrator needs before it is ready.
    pub minimal_workers: WorkerCounts,
}

/// Number of workers of each kind. The orchestrator does not report encoders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// One counter series. Its value decreases if the orchestrator has restarted, or if another of its processes answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrchestratorCount {
    pub counter: OrchestratorCounter,
    pub value: u64,
}

named_variants! {
    /// A kind of worker. The orchestrator sends a request to one kind of worker after the other.
    #[derive(Hash, Serialize, Deserialize)]
    pub enum Side {
        Context = "context",
        Generation = "generation",
        /// Encoders of images and other inputs that are not text.
        Encoder = "encoder",
    }
}

impl Side {
    /// Prefix of the names of this side's metric families.
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
    /// Accepted requests with a streamed answer.
    Streamed,
    /// Accepted requests without streaming.
    Whole,
    Responses,
    /// Requests that were not accepted.
    Invalid,
    HttpErrors,
    InternalErrors,
    /// Requests that were sent to workers of this kind.
    Sent(Side),
    Retried(Side),
    /// Requests that failed, and attempts of streams that broke. Most releases do not count streams that a worker refused.
    Failed(Side),
    /// Requests that ended, including failed ones. A stream that broke and was repeated ended twice. A stream that its worker
    /// refused never ends.
    Ended(Side),
    /// One bucket of a histogram. The text is the upper bound of the bucket: `0.001` … `+Inf`.
    Time(OrchestratorTime, String),
    /// The sum of a histogram in nanoseconds. It is a whole number like the other counts.
    TimeNanos(OrchestratorTime),
}

/// A time that the orchestrator measures in a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OrchestratorTime {
    /// From the arrival of a request to the start of its routing.
    Queue,
    /// From the last attempt to send a streamed request to a worker to the first bytes of the answer.
    FirstBytes(Side),
    /// Between two reads of a streamed answer.
    BetweenReads(Side),
    /// From the last attempt to send a request to a worker to the end of the answer, for successful requests.
    Complete(Side),
}
