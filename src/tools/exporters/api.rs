//! What the JSON API of an exporter says. The types of its answers are those of the exporter.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use trtllm_http::views::API_VERSION;
use trtllm_http::views::numbers::{Gpu, Load, Numbers, Orchestrator};
use trtllm_verdict::findings::Finding;
use trtllm_verdict::verdict::Verdict;

use super::client::{Client, Failure};

const MAX_ENGINES: usize = 256;
/// GPUs of an exporter. A host has 16.
const MAX_GPUS: usize = 256;
const MAX_FINDINGS: usize = 4096;

/// One engine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Engine {
    pub model: String,
    pub version: String,
    /// Of the configuration.
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
    pub totals: Option<Totals>,
    pub orchestrator: Option<Orchestrator>,
    pub load: Option<Load>,
    pub window: Option<Numbers>,
    /// Absent while too little is known.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    pub iterations: u64,
    pub iterations_lost: u64,
    pub engine_restarts: u64,
    pub requests_completed: u64,
}

/// The GPUs of an exporter.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Gpus {
    pub gpus: Vec<Gpu>,
    /// Why there is none.
    pub why: Option<String>,
}

/// The last minutes of one engine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Slots {
    pub slots: Vec<Slot>,
}

/// Five seconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Slot {
    /// Seconds before the newest slot.
    pub ago: f64,
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// The engines, in the order of the page.
pub(crate) async fn engines(client: &mut Client) -> Result<Vec<Engine>, Failure> {
    let mut engines: Vec<Engine> = read(client, "/api/v1/engines").await?;
    engines.truncate(MAX_ENGINES);
    Ok(engines)
}

/// What is worth knowing beside the verdicts.
pub(crate) async fn findings(client: &mut Client) -> Result<Vec<Finding>, Failure> {
    #[derive(Deserialize)]
    struct Answer {
        findings: Vec<Finding>,
    }
    let mut answer: Answer = read(client, "/api/v1/findings").await?;
    answer.findings.truncate(MAX_FINDINGS);
    Ok(answer.findings)
}

pub(crate) async fn gpus(client: &mut Client) -> Result<Gpus, Failure> {
    let mut gpus: Gpus = read(client, "/api/v1/gpus").await?;
    gpus.gpus.truncate(MAX_GPUS);
    Ok(gpus)
}

/// The last minutes of one engine, slot by slot, oldest first. `engine`: `model:version`.
pub(crate) async fn history(client: &mut Client, engine: &str) -> Result<Vec<Slot>, Failure> {
    #[derive(Deserialize)]
    struct Answer {
        engines: Vec<Slots>,
    }
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("engine", engine).finish();
    let mut answer: Answer = read(client, &format!("/api/v1/history?{query}")).await?;
    Ok(answer.engines.pop().unwrap_or_default().slots)
}

/// An answer of the API. One of another version of the exporter is named as such.
async fn read<T: DeserializeOwned>(client: &mut Client, path: &str) -> Result<T, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        api_version: u32,
    }
    let name = path.split('?').next().unwrap_or(path);
    let body = match client.get(path).await {
        Err(Failure::Status(404)) if path == name => {
            return Err(Failure::Unanswered(format!(
                "{name} is missing: this is not a trtllm-exporter, or it has another version; use the command of its release"
            )));
        }
        answer => answer?,
    };
    let version = serde_json::from_slice::<Versioned>(&body).ok().map(|answer| answer.api_version);
    if let Some(version) = version.filter(|version| *version != API_VERSION) {
        return Err(Failure::Unanswered(format!(
            "the exporter has version {version} of the API, and this program reads version {API_VERSION}; use the command of \
             the exporter's release"
        )));
    }
    serde_json::from_slice(&body).map_err(|error| {
        Failure::Unanswered(format!(
            "{name} is not as in this version of the exporter: {error}; use the command of its release"
        ))
    })
}
