//! The GPUs of one engine, and what it has used of them.

use std::sync::Arc;

use trtllm_model::gpu::EngineGpus;

use super::catalog::Id;
use super::labels::Labels;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::writer::SampleWriter;

pub(super) fn engine_gpus_page(labels: &SeriesLabels, gpus: &EngineGpus) -> Page {
    let mut page = SampleWriter::new(labels);
    for uuid in &gpus.uuids {
        let labels = Labels::extend(labels.base(), [("gpu_uuid", uuid.clone())]);
        page.page.push(Id::EngineGpuInfo, &Arc::new(labels), 1_u64);
    }
    page.put(Id::EngineGpuEnergy, gpus.energy_joules);
    page.put(Id::EngineGpuSeconds, gpus.gpu_seconds);
    page.page
}
