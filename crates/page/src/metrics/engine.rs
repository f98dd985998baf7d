//! Turns one engine's snapshot into samples. A stale engine has no load gauges, the load of an idle engine is 0, and a value
//! that the engine did not send is absent.

use std::sync::{Arc, OnceLock};

use crate::state::EngineSnapshot;
use trtllm_engine::request_totals::LatencySource;
use trtllm_engine::{EngineState, Latest};
use trtllm_model::gpu::EngineGpus;
use trtllm_model::orchestrator::SOURCE as ORCHESTRATOR;
use trtllm_model::{BenchReport, EngineName, ErrorKind};

use super::catalog::Id;
use super::catalog::table::{OF_ENGINES, OF_ORCHESTRATORS};
use super::compat::{self, CompatSets};
use super::engine_gpus::engine_gpus_page;
use super::page::{Labels, Page};
use super::series_labels::SeriesLabels;
use super::verdict::verdict_page;
use super::writer::SampleWriter;
use crate::state::Judged;

/// Makes one engine's pages, with labels that are made once.
#[derive(Debug)]
pub struct EngineSeries {
    labels: SeriesLabels,
    /// Made for an orchestrator only.
    orchestrator: OnceLock<SeriesLabels>,
    source_labels: Arc<Labels>,
    name: EngineName,
    /// Whether no other engine has this model's name.
    pub(super) model_is_unique: bool,
}

impl EngineSeries {
    #[must_use]
    pub fn new(name: &EngineName, model_is_unique: bool) -> Self {
        let ours = [("model", name.model.as_str()), ("version", name.version.as_str())];
        let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let labels = SeriesLabels::new(Labels::new(ours.into_iter().chain(extra)), OF_ENGINES);
        let source_labels = Arc::new(Labels::extend(labels.base(), [("source", name.source)]));
        let orchestrator = OnceLock::new();
        Self { labels, orchestrator, source_labels, name: name.clone(), model_is_unique }
    }

    /// Labels of the series that describe the engine's source.
    pub(super) fn source_labels(&self) -> &Arc<Labels> {
        &self.source_labels
    }

    /// Samples of one engine, in any order: [`Page::join`] sorts them.
    #[must_use]
    pub fn page(&self, snapshot: &EngineSnapshot, compat: CompatSets) -> Page {
        if self.name.source == ORCHESTRATOR || snapshot.orchestrator.is_some() {
            return self.orchestrator_page(snapshot);
        }
        let mut page = SampleWriter::new(&self.labels);
        let load = snapshot.load();
        if let Some(latest) = &load {
            page.triton_load(latest);
            page.load(latest);
            page.stages(snapshot);
        }
        if let Some(latest) = &snapshot.latest {
            page.limits(latest, load.is_none());
        }
        page.ranks(snapshot, load.as_ref());
        page.totals(&snapshot.totals, snapshot.latest.as_ref());
        page.requests(snapshot);
        page.state(snapshot, self.name.source);
        page.config(snapshot);
        page.startup(snapshot);
        if let Some(report) = &snapshot.source.bench_report {
            page.bench_report(report);
        }
        let page = page.page;
        if compat == CompatSets::default() {
            return page;
        }
        Page::join([page, self.compat_page(snapshot, compat, load.as_ref())])
    }

    /// Empty until an orchestrator has answered.
    fn orchestrator_page(&self, snapshot: &EngineSnapshot) -> Page {
        let Some(totals) = &snapshot.orchestrator else { return Page::default() };
        let labels = self.orchestrator.get_or_init(|| self.labels.for_families(OF_ORCHESTRATORS));
        let mut page = SampleWriter::new(labels);
        page.orchestrator(totals, snapshot.state.is_stale());
        page.page
    }

    fn compat_page(&self, snapshot: &EngineSnapshot, compat: CompatSets, load: Option<&Latest>) -> Page {
        let mut parts = Vec::new();
        if compat.trtllm {
            let labels = compat::trtllm_labels(&self.name, snapshot.about.backend.as_deref(), self.model_is_unique);
            parts.push(compat::trtllm_page(&labels, snapshot, load));
            parts.push(compat::dynamo_page(&compat::dynamo_labels(&self.name, self.model_is_unique), snapshot));
        }
        if compat.vllm {
            let labels = compat::vllm_labels(&self.name, self.model_is_unique);
            parts.push(compat::vllm_page(&labels, snapshot, load));
        }
        if compat.triton_core {
            parts.push(compat::triton_core_page(&self.labels, snapshot, load));
        }
        if compat.spec {
            parts.push(compat::spec_page(&self.labels, snapshot, load));
        }
        Page::join(parts)
    }

    /// Samples of the engine's GPUs.
    #[must_use]
    pub fn gpus_page(&self, gpus: &EngineGpus, gpu_hour_cost: Option<f64>) -> Page {
        engine_gpus_page(&self.labels, gpus, gpu_hour_cost)
    }

    /// What limits the engine.
    #[must_use]
    pub fn verdict_page(&self, judged: &Judged, bench: Option<&BenchReport>) -> Page {
        verdict_page(&self.labels, judged, bench)
    }

    /// What the Kubernetes gateway's picker reads. An engine that refuses connections leaves at once: waiting until it is stale
    /// would send it requests that fail.
    #[must_use]
    pub fn gateway_page(&self, snapshot: &EngineSnapshot) -> Page {
        let refused = snapshot.source.last_failure.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Connect);
        let load = snapshot.load().filter(|_| !refused);
        let Some(latest) = load else { return Page::default() };
        let mut page = SampleWriter::new(&self.labels);
        page.gateway(&latest);
        let labels = compat::trtllm_labels(&self.name, snapshot.about.backend.as_deref(), self.model_is_unique);
        let mut trtllm = SampleWriter::new(&labels);
        trtllm.gateway_of_trtllm_serve(&latest);
        Page::join([page.page, trtllm.page]).for_gateway()
    }
}

impl SampleWriter<'_> {
    fn state(&mut self, snapshot: &EngineSnapshot, source: &'static str) {
        let fed_by = LatencySource::ALL.map(|source| (source == snapshot.requests.source).then_some(1_u64));
        self.in_order(Id::RequestLatencyInfo, fed_by);
        self.in_order(Id::EngineState, EngineState::ALL.map(|state| Some(state == snapshot.state)));
        let about = &snapshot.about;
        let unknown = || "unknown".to_owned();
        let about = [
            ("backend", about.backend.clone().unwrap_or_else(unknown)),
            ("engine_version", about.version.clone().unwrap_or_else(unknown)),
            ("simulated", about.simulated.to_string()),
            ("source", source.to_owned()),
        ];
        self.page.push(Id::EngineInfo, &Arc::new(Labels::extend(self.labels.base(), about)), 1_u64);
    }
}

#[cfg(test)]
mod tests {
    use trtllm_model::perf_metrics::FinishReason;

    use super::*;

    #[test]
    fn states_and_reasons_are_in_the_catalogs_order() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::EngineState), EngineState::ALL.map(EngineState::name));
        assert_eq!(values(Id::RequestLatencyInfo), LatencySource::ALL.map(LatencySource::name));
        assert_eq!(values(Id::RequestsFinished), FinishReason::ALL.map(FinishReason::name));
    }
}
