//! Turns GPUs into samples. A failed reading is absent; the counters that the exporter keeps of a GPU continue.

use trtllm_records::gpu::{GpuInventory, NvmlState};

use super::catalog::Id;
use super::catalog::table::gpu::{self, GpuView, text};
use super::catalog::table::mig;
use super::page::{Labels, Page};
use super::series_labels::{LabelCache, SeriesLabels};
use super::writer::FamilyWriter;

/// Adds the GPUs, in NVML's order, and the driver. `cache` has the labels of the last page.
pub fn gpu_page(inventory: &GpuInventory, cache: &mut LabelCache, page: &mut Page) {
    let mut before = std::mem::take(cache);
    let driver_version = text(&inventory.driver_version);
    for gpu in &inventory.gpus {
        let uuid = gpu.identity.uuid.as_str();
        for instance in &gpu.readings.mig {
            let labels = cache.of(&mut before, uuid, Some(&instance.uuid));
            FamilyWriter::new(page, labels).table(mig::WRITE, instance);
        }
        let view = GpuView { gpu, readings: &gpu.readings, health: &gpu.readings.health, driver_version };
        FamilyWriter::new(page, cache.of(&mut before, uuid, None)).table(gpu::WRITE, &view);
    }
    let unlabelled = SeriesLabels::new(Labels::default(), &[]);
    let mut node = FamilyWriter::new(page, &unlabelled);
    for device in &inventory.pods {
        let labels = [
            ("container", &device.container),
            ("gpu_uuid", &device.gpu_uuid),
            ("mig_uuid", &device.mig_uuid),
            ("namespace", &device.pod.namespace),
            ("pod", &device.pod.pod),
        ];
        node.of(Id::GpuPodInfo).with(labels.map(|(name, value)| (name, value.clone())), 1_u64);
    }
    if inventory.nvml == NvmlState::Up {
        let versions = [
            ("cuda_version", &inventory.cuda_version),
            ("driver_version", &inventory.driver_version),
            ("nvml_version", &inventory.nvml_version),
        ];
        node.of(Id::GpuDriverInfo).with(versions.map(|(name, value)| (name, text(value).to_owned())), 1_u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Value;
    use super::*;
    use trtllm_records::gpu::{ClockReasons, Gpu, GpuReadings};

    #[test]
    fn each_clocks_event_reason_is_its_bit() {
        let readings = GpuReadings { clocks_event_reasons: Some(ClockReasons(0x4 | 0x100)), ..GpuReadings::default() };
        let inventory = GpuInventory { gpus: vec![Gpu { readings, ..Gpu::default() }], ..GpuInventory::default() };
        let mut page = Page::default();
        gpu_page(&inventory, &mut LabelCache::default(), &mut page);
        let events = page.samples().iter().filter(|sample| sample.metric == Id::GpuClocksEvent);
        let active = events.filter(|sample| sample.value == Value::from(true));
        let active: Vec<&str> = active.map(|sample| sample.labels.pairs()[1].1).collect();
        assert_eq!(active, ["sw_power_cap", "display_clock_setting"]);
    }
}
