//! What one read of an exporter says: its engines and GPUs. Pure. All texts of others are made printable here.

use std::collections::BTreeMap;

use trtllm_model::IterationStats;
use trtllm_service::printable::printable;

use super::super::exporters::engines::About;
use super::super::exporters::page::Page;
use super::numbers::{Numbers, Totals};

/// GPUs of an exporter.
const MAX_GPUS: usize = 256;

/// One read of an exporter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// When its process started. Another time is a restart: its counters began at 0.
    pub started: Option<f64>,
    pub engines: Vec<EngineReading>,
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU.
    pub no_gpus: &'static str,
}

/// Tells the engines of an exporter apart, and is what a person sees of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineName {
    pub model: String,
    pub version: String,
    /// `name=value` of the configuration, separated by spaces.
    pub labels: String,
}

impl EngineName {
    #[must_use]
    pub fn text(&self) -> String {
        [&self.model, &self.version, &self.labels].map(String::as_str).join(" ").trim_end().to_owned()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineReading {
    pub name: EngineName,
    /// `model:version` as the API names it.
    pub id: String,
    pub state: String,
    /// The cause of the state.
    pub why: String,
    pub simulated: bool,
    /// Kind of source, backend and release of the engine.
    pub about: String,
    /// Gauges; rates and quantiles need two reads.
    pub numbers: Numbers,
    pub totals: Totals,
    pub ranks: Vec<Rank>,
}

/// One rank of attention data parallelism in the last iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rank {
    pub rank: i64,
    pub active: Option<f64>,
    pub scheduled: Option<f64>,
    pub context_tokens: Option<f64>,
    pub generation_requests: Option<f64>,
    pub kv_used: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    /// Index and name.
    pub name: String,
    pub state: String,
    pub utilization: Option<f64>,
    pub memory: Option<(f64, f64)>,
    pub watts: Option<f64>,
    pub watts_limit: Option<f64>,
    pub celsius: Option<f64>,
    /// What limits the clocks.
    pub limits: Vec<String>,
}

impl Reading {
    /// `records`: the last ones of the engines whose ranks are asked for, by `id`.
    #[must_use]
    pub fn new(page: &Page, abouts: &[About], records: &BTreeMap<String, Vec<IterationStats>>) -> Self {
        let ranks = |id: &String| records.get(id).map(|records| ranks(records)).unwrap_or_default();
        let engines = abouts.iter().map(|about| engine(page, about)).map(|engine| {
            let ranks = ranks(&engine.id);
            EngineReading { ranks, ..engine }
        });
        let infos = page.0.iter().filter(|series| series.name == "nv_gpu_info");
        Self {
            started: page.get("process_start_time_seconds", &[]),
            engines: engines.collect(),
            gpus: infos.take(MAX_GPUS).filter_map(|info| gpu(page, info.label("gpu_uuid")?)).collect(),
            no_gpus: why_no_gpus(page.current("trtllm_exporter_nvml_state", "state")),
        }
    }
}

fn engine(page: &Page, about: &About) -> EngineReading {
    let own = [("model", about.model.as_str()), ("version", about.version.as_str())];
    let labels = about.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let page = page.of(&own.into_iter().chain(labels).collect::<Vec<_>>());
    let state = page.current("nv_trt_llm_engine_state", "state").unwrap_or(&about.state);
    let release = about.engine_version.as_ref().map(|release| format!("TensorRT-LLM {release}"));
    let facts = [Some(about.source.clone()), about.backend.clone(), release];
    let labels: Vec<String> = about.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    EngineReading {
        name: EngineName {
            model: printable(&about.model),
            version: printable(&about.version),
            labels: printable(&labels.join(" ")),
        },
        id: format!("{}:{}", about.model, about.version),
        state: printable(state),
        why: printable(&about.why),
        simulated: about.simulated,
        about: printable(&facts.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        numbers: Numbers::of(&page),
        totals: Totals::of(&page),
        ranks: Vec::new(),
    }
}

fn gpu(page: &Page, uuid: &str) -> Option<Gpu> {
    let page = page.of(&[("gpu_uuid", uuid)]);
    let info = page.0.iter().find(|series| series.name == "nv_gpu_info")?;
    let name = [info.label("index"), info.label("name").or(Some(uuid))].into_iter().flatten().collect::<Vec<_>>();
    let limiting = |series: &&super::super::exporters::page::Series| {
        series.name == "nv_gpu_clocks_event_active" && series.value == 1.0
    };
    let reasons = page.0.iter().filter(limiting).filter_map(|series| series.label("reason"));
    Some(Gpu {
        name: printable(&name.join(" ")),
        state: printable(page.current("nv_gpu_state", "state").unwrap_or_default()).replace('_', " "),
        utilization: page.get("nv_gpu_utilization", &[]),
        memory: page.get("nv_gpu_memory_used_bytes", &[]).zip(page.get("nv_gpu_memory_total_bytes", &[])),
        watts: page.get("nv_gpu_power_usage", &[]),
        watts_limit: page.get("nv_gpu_power_limit", &[]),
        celsius: page.get("nv_gpu_temperature_celsius", &[("sensor", "gpu")]),
        limits: reasons.map(|reason| printable(reason).replace('_', " ")).collect(),
    })
}

fn why_no_gpus(state: Option<&str>) -> &'static str {
    match state {
        Some("off") => "GPU metrics are switched off (--gpu off)",
        Some("starting") => "NVML is being initialized",
        Some("up") => "NVML works, but no GPU is visible to the exporter",
        Some("library_not_found") => "NVIDIA's library libnvidia-ml.so.1 was not found",
        Some("driver_not_loaded") => "the NVIDIA driver is not loaded",
        Some("version_mismatch") => "the NVIDIA library and driver have different versions",
        Some("no_permission") => "the exporter may not open the GPU devices",
        Some("failed") => "NVML failed; the exporter's log has the reason",
        Some("released") => "NVML is closed on request",
        _ => "the exporter has no GPU metrics",
    }
}

/// The last row of each rank, if the records have ranks.
fn ranks(records: &[IterationStats]) -> Vec<Rank> {
    let mut ranks = BTreeMap::new();
    for record in records {
        let Some(rank) = record.rank.or(record.attention_dp_rank) else { continue };
        let number = |value: Option<i64>| value.map(|value| value as f64);
        let batch = record.inflight_batching_stats;
        let blocks = record.kv_cache_stats.and_then(|cache| cache.used_num_blocks.zip(cache.max_num_blocks));
        // Rows without `rank` have their own batch, and copy the rest from rank 0.
        let is_own = record.rank.is_some() || rank == 0;
        let of_rank = Rank {
            rank,
            active: number(record.num_active_requests.filter(|_| is_own)),
            scheduled: number(batch.and_then(|batch| batch.num_scheduled_requests)),
            context_tokens: number(batch.and_then(|batch| batch.num_ctx_tokens)),
            generation_requests: number(batch.and_then(|batch| batch.num_gen_requests)),
            kv_used: blocks.filter(|(_, max)| is_own && *max > 0).map(|(used, max)| used as f64 / max as f64),
        };
        ranks.insert(rank, of_rank);
    }
    if ranks.len() > 1 { ranks.into_values().collect() } else { Vec::new() }
}
