//! Requests as the engine reports them at each iteration.

use serde::{Deserialize, Serialize};

pub use super::statistics::{DisServingRequestStats, RequestStats, RequestStatsPerIteration};

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
