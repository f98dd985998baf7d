//! An engine as the JSON API describes it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the API knows about an engine beside its numbers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    pub model: String,
    pub version: String,
    /// Of the configuration. No rule reads them.
    pub labels: BTreeMap<String, String>,
    pub source: String,
    pub state: String,
    pub backend: Option<String>,
    pub engine_version: Option<String>,
    pub simulated: bool,
    pub notice: Option<String>,
    pub last_poll: LastPoll,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastPoll {
    pub error: Option<String>,
}
