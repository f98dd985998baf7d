//! The data of the exporter's own families, and the collector that encodes them in the order of the catalog.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::HttpMetrics;
use super::process::ProcessReadings;
use super::writer::OwnWriter;
use crate::metrics::catalog::table::EXPORTER;
use crate::metrics::catalog::{Id, Profile};
use crate::metrics::page::Labels;
use trtllm_engines::SourceStatus;
use trtllm_records::gpu::{GpuInventory, NvmlState};
use trtllm_records::{RecorderCounts, RefusedPublishers};

/// The data of all own families at one moment.
#[derive(Debug)]
pub(in crate::metrics) struct OwnMetrics {
    /// The engines on the page, each with the labels of its source's series.
    pub(in crate::metrics) sources: Vec<(Arc<Labels>, SourceStatus)>,
    pub(in crate::metrics) gpus: Arc<GpuInventory>,
    pub(in crate::metrics) http: HttpMetrics,
    /// Absent without a recorder.
    pub(in crate::metrics) recorder: Option<RecorderCounts>,
    pub(in crate::metrics) refused_publishers: RefusedPublishers,
    /// Whether the last reload of the configuration succeeded, if there is a file.
    pub(in crate::metrics) config_reload: Option<bool>,
    pub(in crate::metrics) process: ProcessReadings,
    pub(in crate::metrics) profile: Profile,
}

impl Collector for OwnMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = OwnWriter { encoder, family: Id::BuildInfo, result: Ok(()) };
        for (family, write) in EXPORTER.iter().filter(|(family, _)| family.metric().is_in(self.profile)) {
            writer.family = *family;
            write(self, &mut writer);
        }
        writer.result
    }
}

impl OwnMetrics {
    /// A value of each source that has it, with the labels of the source.
    pub(in crate::metrics) fn by_source<V>(
        &self,
        read: impl Fn(&SourceStatus) -> Option<V>,
    ) -> impl Iterator<Item = (&[(String, String)], V)> {
        self.sources.iter().filter_map(move |(labels, source)| Some((labels.pairs(), read(source)?)))
    }

    /// The inventory, unless NVML is off.
    pub(in crate::metrics) fn nvml(&self) -> Option<&GpuInventory> {
        (self.gpus.nvml != NvmlState::Off).then_some(&*self.gpus)
    }
}
