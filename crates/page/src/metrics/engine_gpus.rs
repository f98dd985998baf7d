//! The GPUs of one engine, and what it has used of them.

use std::sync::Arc;

use trtllm_model::gpu::EngineGpus;

use super::catalog::Id;
use super::labels::Labels;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::writer::SampleWriter;

pub(super) fn engine_gpus_page(labels: &SeriesLabels, gpus: &EngineGpus, gpu_hour_cost: Option<f64>) -> Page {
    let mut page = SampleWriter::new(labels);
    for uuid in &gpus.uuids {
        let labels = Labels::extend(labels.base(), [("gpu_uuid", uuid.clone())]);
        page.page.push(Id::EngineGpuInfo, &Arc::new(labels), 1_u64);
    }
    page.put(Id::EngineGpuEnergy, gpus.energy_joules);
    page.put(Id::EngineGpuSeconds, gpus.gpu_seconds);
    page.put(Id::EngineGpuCost, gpus.gpu_seconds.zip(gpu_hour_cost).map(|(seconds, cost)| seconds / 3600.0 * cost));
    page.page
}
