//! The engines of an exporter, as its API describes them.

use serde::{Deserialize, Serialize};

/// What the API knows about an engine beside its numbers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    pub model: String,
    pub version: String,
    pub source: String,
    pub state: String,
    pub backend: Option<String>,
    pub engine_version: Option<String>,
    pub simulated: bool,
    pub notice: Option<String>,
    pub last_poll: LastPoll,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastPoll {
    pub succeeded: bool,
    pub error: Option<String>,
}
