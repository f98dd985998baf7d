//! What one read of an exporter says: its engines and GPUs. Pure. All texts of others are made printable here.

use trtllm_http::views::numbers::{Gpu, Orchestrator, RankLoad};
use trtllm_service::printable::printable;
use trtllm_verdict::verdict::Severity;

use super::super::exporters::api::{self, Gpus, Slot};
use super::numbers::Numbers;

/// One read of an exporter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU.
    pub no_gpus: String,
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

#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    pub name: EngineName,
    /// `model:version` as the API names it.
    pub id: String,
    pub state: String,
    /// What limits it, or the cause of its state.
    pub why: String,
    /// Of what limits it.
    pub severity: Severity,
    pub simulated: bool,
    /// Kind of source, backend and release of the engine.
    pub about: String,
    pub numbers: Numbers,
    pub ranks: Vec<RankLoad>,
    /// Of an orchestrator of disaggregated serving. `None` for an engine.
    pub orchestrator: Option<Orchestrator>,
    /// Seconds before now, and the numbers of five seconds, oldest first. Only of the selected engine.
    pub history: Vec<(f64, Numbers)>,
}

impl Reading {
    /// `history`: of the engine with this `id`.
    #[must_use]
    pub fn new(engines: Vec<api::Engine>, gpus: Gpus, history: Option<(&str, &[Slot])>) -> Self {
        let history = |id: &str| {
            let slots = history.filter(|(of, _)| *of == id).map(|(_, slots)| slots).unwrap_or_default();
            slots.iter().map(|slot| (slot.ago, Numbers::of_span(&slot.numbers))).collect()
        };
        Self {
            engines: engines.into_iter().map(|engine| self::engine(engine, history)).collect(),
            gpus: gpus.gpus.into_iter().map(gpu).collect(),
            no_gpus: printable(&gpus.why.unwrap_or_else(|| "the exporter has no GPU metrics".to_owned())),
        }
    }
}

fn engine(engine: api::Engine, history: impl Fn(&str) -> Vec<(f64, Numbers)>) -> Engine {
    let release = engine.engine_version.as_ref().map(|release| format!("TensorRT-LLM {release}"));
    let facts = [Some(engine.source.clone()), engine.backend.clone(), release];
    let labels: Vec<String> = engine.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let limit = engine.verdict.as_ref().filter(|verdict| verdict.severity > Severity::None);
    let why = limit.map(|verdict| format!("{}: {}", verdict.cause.name(), verdict.says));
    let id = format!("{}:{}", engine.model, engine.version);
    Engine {
        name: EngineName {
            model: printable(&engine.model),
            version: printable(&engine.version),
            labels: printable(&labels.join(" ")),
        },
        state: printable(&engine.state),
        why: printable(&why.unwrap_or_else(|| engine.why.clone())),
        severity: limit.map_or(Severity::None, |verdict| verdict.severity),
        simulated: engine.simulated,
        about: printable(&facts.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        numbers: Numbers::of(&engine),
        ranks: engine.load.map(|load| load.ranks).unwrap_or_default(),
        orchestrator: engine.orchestrator,
        history: history(&id),
        id,
    }
}

fn gpu(gpu: Gpu) -> Gpu {
    let words = |text: &str| printable(text).replace('_', " ");
    Gpu {
        uuid: printable(&gpu.uuid),
        name: gpu.name.as_deref().map(printable),
        state: words(&gpu.state),
        clocks_limited_by: gpu.clocks_limited_by.map(|reasons| reasons.iter().map(|reason| words(reason)).collect()),
        ..gpu
    }
}
