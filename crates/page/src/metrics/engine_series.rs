//! The labels of the samples of one engine, under its own names and under those of other exporters.

use std::sync::Arc;

use trtllm_records::EngineName;

use super::catalog::table::{
    benchmark, engine_counters, engine_gauges, engine_gpus, engine_histograms, orchestrator, triton, triton_core,
    verdict,
};
use super::family::Id;
use super::labels::Labels;
use super::series_labels::SeriesLabels;

/// The families of an engine or an orchestrator under its own names, in page order.
const OF_ENGINES: [&[Id]; 9] = [
    triton::FAMILIES,
    engine_counters::FAMILIES,
    engine_histograms::FAMILIES,
    engine_gauges::FAMILIES,
    benchmark::FAMILIES,
    engine_gpus::FAMILIES,
    verdict::FAMILIES,
    triton_core::FAMILIES,
    orchestrator::FAMILIES,
];

/// The name and the labels of one engine's series. The labels are made once.
#[derive(Debug)]
pub(super) struct EngineSeries {
    pub(super) labels: SeriesLabels,
    /// Labels of the series that describe the engine's source.
    pub(super) source_labels: Arc<Labels>,
    pub(super) name: EngineName,
    /// Whether no other engine has this model's name.
    pub(super) model_is_unique: bool,
}

impl EngineSeries {
    pub(super) fn new(name: &EngineName, model_is_unique: bool) -> Self {
        let ours = [("model", name.model.as_str()), ("version", name.version.as_str())];
        let labels = labels(name, ours, &OF_ENGINES);
        let source_labels = Arc::new(Labels::extend(labels.base(), [("source", name.source)]));
        Self { labels, source_labels, name: name.clone(), model_is_unique }
    }

    /// Labels of another exporter's families, with `version` if several engines have the same model name.
    pub(super) fn compat_labels<const N: usize>(
        &self,
        theirs: [(&'static str, &str); N],
        table: &[Id],
    ) -> SeriesLabels {
        let version = (!self.model_is_unique).then_some(("version", self.name.version.as_str()));
        labels(&self.name, theirs.into_iter().chain(version), &[table])
    }
}

/// Labels from `ours` and from the configuration of the engine.
fn labels<'a>(
    name: &'a EngineName,
    ours: impl IntoIterator<Item = (&'a str, &'a str)>,
    tables: &[&[Id]],
) -> SeriesLabels {
    let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    SeriesLabels::new(Labels::new(ours.into_iter().chain(extra)), tables)
}
