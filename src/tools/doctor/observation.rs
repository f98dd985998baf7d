//! What was seen in the window: two snapshots of each exporter, the records between them, and the answers of sources. Plain data
//! with derived numbers; the rules read nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::IterationStats;

use super::super::exporters::engines::About;
use super::super::exporters::page::{Change, Page};
use super::batches::Batches;

/// All that was seen.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    pub exporters: Vec<Exporter>,
    pub sources: Vec<SourceAnswer>,
}

/// One exporter.
#[derive(Debug, Clone, Default)]
pub struct Exporter {
    pub url: String,
    pub window: Duration,
    /// Age of its process in seconds, if its page says so.
    pub uptime: Option<f64>,
    /// Why it could not be read.
    pub error: Option<String>,
    pub page: Change,
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
}

/// One engine of an exporter.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    pub about: About,
    /// Seconds between the two pages.
    pub window: f64,
    /// Age of the exporter's process in seconds.
    pub uptime: Option<f64>,
    pub page: Change,
    pub batches: Batches,
}

/// Fewer iterations in the window prove nothing.
const ENOUGH_ITERATIONS: f64 = 10.0;

impl Engine {
    #[must_use]
    pub fn new(about: About, exporter: &Exporter, records: &[IterationStats]) -> Self {
        let labels = [("model", about.model.as_str()), ("version", about.version.as_str())];
        let page = Change { before: exporter.page.before.of(&labels), after: exporter.page.after.of(&labels) };
        let (window, uptime) = (exporter.window.as_secs_f64(), exporter.uptime);
        Self { window, uptime, page, batches: Batches::of(records), about }
    }

    /// `llama 1`
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.about.model, self.about.version)
    }

    /// The state on the last page.
    #[must_use]
    pub fn state(&self) -> &str {
        self.page.after.current("nv_trt_llm_engine_state", "state").unwrap_or(&self.about.state)
    }

    /// The engine ran enough iterations for a judgement about its load.
    #[must_use]
    pub fn was_busy(&self) -> bool {
        self.page.grew("nv_trt_llm_iterations_total", &[]) >= ENOUGH_ITERATIONS
            && self.batches.iterations as f64 >= ENOUGH_ITERATIONS
    }

    /// Iterations per record.
    #[must_use]
    pub fn sampling(&self) -> f64 {
        self.page.now("nv_trt_llm_statistics_interval_iterations", &[]).unwrap_or(1.0).max(1.0)
    }

    /// Share of the window in which iterations ran.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        let seconds = self.page.grew("nv_trt_llm_iteration_latency_seconds_sum", &[]) * self.sampling();
        if self.window > 0.0 { (seconds / self.window).min(1.0) } else { 0.0 }
    }

    /// Share of the window that the context phase took.
    #[must_use]
    pub fn context_time(&self) -> f64 {
        self.busy_share() * self.batches.context_share
    }

    /// Host and device step in seconds, if the engine reports both.
    #[must_use]
    pub fn steps(&self) -> Option<(f64, f64)> {
        let host = self.page.mean("nv_trt_llm_host_step_seconds", ENOUGH_ITERATIONS)?;
        let device = self.page.mean("nv_trt_llm_device_step_seconds", ENOUGH_ITERATIONS)?;
        (device > 0.0).then_some((host, device))
    }
}

/// One GPU of an exporter.
#[derive(Debug, Clone, Default)]
pub struct Gpu {
    pub uuid: String,
    /// The exporter reads GPUs. It does not while GPU monitoring is paused or the driver is unloaded.
    pub is_monitored: bool,
    /// Seconds between the two pages.
    pub window: f64,
    pub page: Change,
}

impl Gpu {
    #[must_use]
    pub fn name(&self) -> String {
        let index = self.page.after.label("nv_gpu_info", "index").or(self.page.before.label("nv_gpu_info", "index"));
        index.map_or(self.uuid.clone(), |index| format!("{index} {}", self.uuid))
    }

    /// Share of the window in which this policy limited the clocks.
    #[must_use]
    pub fn throttled(&self, policies: &[&'static str]) -> Option<(&'static str, f64)> {
        let share = |policy: &'static str| {
            let grew = self.page.grew("nv_gpu_throttle_seconds_total", &[("policy", policy)]);
            (policy, if self.window > 0.0 { grew / self.window } else { 0.0 })
        };
        policies.iter().map(|policy| share(policy)).max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// All GPUs on either page.
#[must_use]
pub fn gpus(page: &Change, window: Duration) -> Vec<Gpu> {
    let ids: BTreeSet<String> = [&page.before, &page.after]
        .iter()
        .flat_map(|page| page.0.iter())
        .filter(|series| series.name == "nv_gpu_up")
        .filter_map(|series| series.label("gpu_uuid").map(str::to_owned))
        .collect();
    let is_monitored = page.after.current("trtllm_exporter_nvml_state", "state").is_none_or(|state| state == "up");
    let gpu = |uuid: String| {
        let of = |page: &Page| page.of(&[("gpu_uuid", &uuid)]);
        Gpu {
            is_monitored,
            page: Change { before: of(&page.before), after: of(&page.after) },
            window: window.as_secs_f64(),
            uuid,
        }
    };
    ids.into_iter().map(gpu).collect()
}

/// What one source answered when it was asked directly.
#[derive(Debug, Clone, Default)]
pub struct SourceAnswer {
    /// As in `--source`, without options.
    pub target: String,
    /// The label of its engine, if it is known.
    pub model: Option<String>,
    /// An engine of an exporter that was read is starting, so this source may still load its model.
    pub starting: bool,
    /// What a request or the file system answered.
    pub reached: Reached,
    pub version: Option<String>,
    /// The status of `/health`.
    pub health: Option<u16>,
    /// `/prometheus/metrics`, which drains nothing: missing, or its series.
    pub page: Option<Result<Page, u16>>,
}

/// How a source answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reached {
    #[default]
    Yes,
    /// No connection, and why.
    No(String),
    /// A token is missing or wrong: the status.
    Refused(u16),
    /// It is not trtllm-serve.
    Other,
    /// The ingest socket does not exist.
    NoSocket,
}
