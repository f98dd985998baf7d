//! The answers of `/api/v1`, as the server writes them and commands read them. `engine` and `numbers` have the parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trtllm_engines::EngineSlot;
use trtllm_records::gpu::Gpu;
use trtllm_records::{EngineName, full_name};
use trtllm_verdict::findings::Finding;
use trtllm_verdict::verdict::Verdict;
use trtllm_what_if::MeasuredEngine;

use super::numbers::Numbers;

/// JSON of `/api/v1`: an answer with the version of the API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Versioned<T> {
    api_version: u32,
    #[serde(flatten)]
    answer: T,
}

impl<T> Versioned<T> {
    pub(super) fn new(answer: T) -> Self {
        Self { api_version: super::API_VERSION, answer }
    }
}

/// JSON of `/api/v1/findings`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    #[serde(default)]
    pub engines: Vec<EngineVerdict>,
    /// The most severe first.
    pub findings: Vec<Finding>,
}

/// JSON of `/api/v1/findings`: what limits one engine. Absent while too little is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineVerdict {
    pub model: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub verdict: Option<Verdict>,
}

/// JSON of `/api/v1/gpus`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// The state of NVML, as on the metrics page.
    pub nvml: String,
    /// Why there is no GPU.
    pub why: Option<String>,
    pub gpus: Vec<Gpu>,
}

/// JSON of `/api/v1/history`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    #[serde(default)]
    pub slot_seconds: f64,
    pub engines: Vec<EngineHistory>,
    #[serde(default)]
    pub gpus: Vec<GpuHistory>,
}

/// JSON of `/api/v1/history`: the slots of one engine, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineHistory {
    pub model: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub slots: Vec<Slot>,
}

/// JSON of `/api/v1/history`: the numbers of five seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slot {
    /// Seconds before the newest slot.
    pub ago: f64,
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// JSON of `/api/v1/history`: the slots of one GPU, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuHistory {
    pub uuid: String,
    pub slots: Vec<GpuSlot>,
}

/// JSON of `/api/v1/history`: a GPU at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuSlot {
    /// Seconds before the newest slot.
    pub ago: f64,
    /// Whether the GPU can be read.
    pub ok: bool,
    pub utilization_ratio: Option<f64>,
    pub power_watts: Option<f64>,
    /// Clock ÷ the highest clock of this GPU.
    pub clock_ratio: Option<f64>,
}

/// JSON of `/api/v1/model`: the costs and requests of one engine, from which `what-if` and `compare` answer questions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub model: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Seconds since 1970. Absent for a running engine, so the API never has it.
    #[serde(skip)]
    pub at: Option<f64>,
    /// Settings and versions by name.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    #[serde(rename = "present")]
    pub measured: MeasuredEngine,
}

impl Model {
    /// `at`: the time in seconds since 1970, or `None` for a running engine.
    pub fn of(slot: &EngineSlot, at: Option<f64>) -> Self {
        let EngineName { model, version, labels, .. } = slot.name.clone();
        let configuration = slot.lock().configuration();
        Self { model, version, labels: labels.into_iter().collect(), at, configuration, measured: slot.measured() }
    }

    /// The name in texts for people.
    pub fn name(&self) -> String {
        of_labels(" ", &self.model, &self.version, &self.labels)
    }
}

/// [`full_name`] of an engine with these labels.
pub(super) fn of_labels(separator: &str, model: &str, version: &str, labels: &BTreeMap<String, String>) -> String {
    full_name(separator, model, version, labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// JSON of `/api/v1/discovery`: what `--source auto` found at one address, as text for people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Discovered {
    pub address: String,
    pub finding: String,
}

/// JSON of `/api/v1/iterations`, under the key `derived` of a record: what the exporter has derived from it and its neighbours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Derived {
    pub batch_seconds: f64,
    pub device_seconds: Option<f64>,
}
