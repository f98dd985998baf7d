//! What was seen in the window: two snapshots of each exporter, the records between them, and the answers of sources. Plain data
//! with derived numbers; the rules read nothing else.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::time::Duration;

use trtllm_model::IterationStats;

use super::about::About;
use super::batches::{Batches, Configured};
use super::page::{Change, Page};
use super::records::Name;

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

impl Exporter {
    /// What the pages, the API and the records show. `now`: seconds since 1970.
    #[must_use]
    pub fn observed<R: Borrow<IterationStats>>(
        url: String,
        page: Change,
        window: Duration,
        now: f64,
        abouts: Vec<About>,
        records: impl Fn(&Name) -> Vec<R>,
    ) -> Self {
        let process_started = page.now("process_start_time_seconds", &[]);
        let uptime = process_started.filter(|time| *time <= now).map(|time| now - time);
        let name = |about: &About| [about.model.clone(), about.version.clone()];
        let mut pages = page.by(["model", "version"], &abouts.iter().map(name).collect());
        let engines = abouts.into_iter().map(|about| {
            let name = name(&about);
            let page = pages.remove(&name).unwrap_or_default();
            let batches = Batches::of(&records(&name), configured(&page.after));
            let since = about.last_poll.unanswered_since_timestamp_seconds;
            let unanswered = since.map(|since| (now - since).max(0.0));
            Engine { about, window: window.as_secs_f64(), unanswered, page, batches }
        });
        let engines = engines.collect();
        Self { url, window, uptime, error: None, gpus: gpus(&page, window), page, engines }
    }
}

/// What the settings of an engine tell about its limits.
#[must_use]
pub fn configured(page: &Page) -> Configured {
    let limit = |label| {
        let value = page.label("nv_trt_llm_engine_config_info", label)?;
        value.parse::<u32>().ok().filter(|limit| *limit > 0).map(f64::from)
    };
    Configured { batch: limit("max_batch_size"), tokens: limit("max_num_tokens") }
}

/// One engine of an exporter.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    pub about: About,
    /// Seconds between the two pages.
    pub window: f64,
    /// Seconds for which its source has given no answer; absent if the last poll succeeded.
    pub unanswered: Option<f64>,
    pub page: Change,
    pub batches: Batches,
}

/// Fewer iterations in the window prove nothing.
const ENOUGH_ITERATIONS: f64 = 10.0;

impl Engine {
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

/// GPUs of one exporter. A host has 16.
const MAX_GPUS: usize = 256;

/// All GPUs on either page.
#[must_use]
pub fn gpus(page: &Change, window: Duration) -> Vec<Gpu> {
    let ids: BTreeSet<[String; 1]> = [&page.before, &page.after]
        .iter()
        .flat_map(|page| page.0.iter())
        .filter(|series| series.name == "nv_gpu_up")
        .filter_map(|series| series.label("gpu_uuid").map(|uuid| [uuid.to_owned()]))
        .collect();
    let ids = ids.into_iter().take(MAX_GPUS).collect();
    let is_monitored = page.after.current("trtllm_exporter_nvml_state", "state").is_none_or(|state| state == "up");
    let gpu = |([uuid], page): ([String; 1], Change)| Gpu { is_monitored, page, window: window.as_secs_f64(), uuid };
    page.by(["gpu_uuid"], &ids).into_iter().map(gpu).collect()
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
    /// No connection, no answer in time, or a broken one, and why.
    No(String),
    /// It was not asked, because a file of its options cannot be used, and why.
    NotAsked(String),
    /// A token is missing or wrong: the status.
    Refused(u16),
    /// It is not trtllm-serve.
    Other,
    /// The ingest socket does not exist.
    NoSocket,
}
