//! An engine as the JSON API describes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::finding::Severity;

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
    /// `loading`, `never_answered`, `no_record` or `no_publisher` while it is starting.
    pub start_phase: Option<String>,
    /// The cause of the state.
    pub why: String,
    pub backend: Option<String>,
    pub engine_version: Option<String>,
    pub simulated: bool,
    pub notice: Option<String>,
    /// Keys of the engine's messages that its exporter does not know.
    pub unread_keys: Vec<String>,
    pub missing_endpoints: Vec<String>,
    pub last_poll: LastPoll,
    /// Absent while too little is known, and of an older exporter.
    pub verdict: Option<Verdict>,
}

/// What limits the engine, as its exporter has judged it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    pub cause: String,
    pub severity: String,
    pub confidence: String,
    pub says: String,
    pub evidence: Vec<Evidence>,
    pub cost: Option<String>,
    pub remedy: String,
    pub settings: Vec<String>,
    pub consequences: Vec<String>,
    pub since: f64,
}

impl Verdict {
    /// `None` if nothing limits the engine.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        [Severity::Info, Severity::Warning, Severity::Critical].into_iter().find(|known| known.name() == self.severity)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Evidence {
    pub name: String,
    pub value: f64,
    pub unit: String,
    pub threshold: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastPoll {
    /// Seconds since 1970. Absent if the last poll succeeded.
    pub unanswered_since_timestamp_seconds: Option<f64>,
    pub error: Option<String>,
}
