//! Values of the schema that TensorRT-LLM writes as a name of a fixed set.

use serde::{Deserialize, Serialize};

use super::named_variants::named_variants;

named_variants! {
    /// Why a request ended, in trtllm-serve's terms. The Executor's names (`END_ID`, …) are accepted, too.
    #[derive(Hash, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum FinishReason {
        /// An end token or a stop word.
        #[serde(alias = "end_id", alias = "stop_words", alias = "END_ID", alias = "STOP_WORDS")]
        Stop = "stop",
        /// Also a request that a context server hands to a generation server after its first token (upstream: `not_finished`, before that
        /// `length`).
        #[serde(alias = "LENGTH", alias = "not_finished", alias = "NOT_FINISHED")]
        Length = "length",
        #[serde(alias = "timed_out", alias = "TIMED_OUT")]
        Timeout = "timeout",
        #[serde(alias = "CANCELLED")]
        Cancelled = "cancelled",
        /// A reason that is not known, so it is unknown whether the request failed.
        #[serde(other)]
        Other = "other",
    }
}

impl FinishReason {
    /// The reason with this name in trtllm-serve's own metrics.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "not_finished" => Self::Length,
            _ => Self::ALL.into_iter().find(|reason| reason.name() == name).unwrap_or(Self::Other),
        }
    }
}

/// The stage of a request. The names without `_IN_PROGRESS` are from older documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum RequestStage {
    #[serde(rename = "QUEUED")]
    Queued,
    #[serde(rename = "ENCODER_IN_PROGRESS", alias = "ENCODER")]
    Encoder,
    #[serde(rename = "CONTEXT_IN_PROGRESS", alias = "CONTEXT", alias = "CONTEXT_INIT")]
    Context,
    #[serde(rename = "GENERATION_IN_PROGRESS", alias = "GENERATION", alias = "GENERATION_INIT")]
    Generation,
    #[serde(rename = "GENERATION_COMPLETE")]
    Complete,
    #[serde(other)]
    Unknown,
}

/// The kind of layers that share a life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleKind {
    Attention,
    /// Layers of a state space model.
    Ssm,
    #[serde(other)]
    Unknown,
}

/// How the PyTorch scheduler interleaves host and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerMode {
    Overlap,
    NonOverlap,
    #[serde(other)]
    Unknown,
}
