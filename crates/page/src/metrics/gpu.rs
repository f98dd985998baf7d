//! Turns GPUs into samples. A failed reading is absent; the counters that the exporter keeps of a GPU continue.

use std::collections::HashMap;

use trtllm_records::gpu::{GpuInventory, NvmlState};

use super::catalog::table::gpu::{self, GpuView, text};
use super::catalog::table::mig;
use super::family::Id;
use super::page::{Labels, Page};
use super::series_labels::SeriesLabels;
use super::writer::SeriesWriter;

/// The labels of the GPUs and MIG instances of a page, by the UUIDs of both.
#[derive(Debug, Default)]
pub struct LabelCache(HashMap<(String, String), SeriesLabels>);

impl LabelCache {
    /// The labels of a GPU, or of a MIG instance of it. `before`: those of the last page, which are used again.
    pub(super) fn of(&mut self, before: &mut Self, uuid: &str, mig_uuid: Option<&str>) -> &SeriesLabels {
        let key = (uuid.to_owned(), mig_uuid.unwrap_or_default().to_owned());
        let labels = before.0.remove(&key).unwrap_or_else(|| {
            let base = Labels::new([("gpu_uuid", uuid)].into_iter().chain(mig_uuid.map(|uuid| ("mig_uuid", uuid))));
            SeriesLabels::new(base, &[if mig_uuid.is_some() { mig::FAMILIES } else { gpu::FAMILIES }])
        });
        self.0.entry(key).or_insert(labels)
    }
}

/// Adds the GPUs, in NVML's order, and the driver. `cache` has the labels of the last page.
pub fn gpu_page(inventory: &GpuInventory, cache: &mut LabelCache, page: &mut Page) {
    let mut before = std::mem::take(cache);
    let driver_version = text(&inventory.driver_version);
    for gpu in &inventory.gpus {
        let uuid = gpu.identity.uuid.as_str();
        for instance in &gpu.readings.mig {
            let labels = cache.of(&mut before, uuid, Some(&instance.uuid));
            SeriesWriter::new(page, labels).table(mig::WRITE, instance);
        }
        let view = GpuView { gpu, readings: &gpu.readings, health: &gpu.readings.health, driver_version };
        SeriesWriter::new(page, cache.of(&mut before, uuid, None)).table(gpu::WRITE, &view);
    }
    let unlabelled = SeriesLabels::new(Labels::default(), &[]);
    let mut node = SeriesWriter::new(page, &unlabelled);
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
    use std::sync::Arc;

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

    #[test]
    fn labels_are_made_once_and_dropped_by_the_page_after_their_last_use() {
        let (mut first, mut second, mut third) = (LabelCache::default(), LabelCache::default(), LabelCache::default());
        let base = Arc::clone(first.of(&mut LabelCache::default(), "a", None).base());
        assert_eq!(base.series(), "{gpu_uuid=\"a\"} ");
        assert!(Arc::ptr_eq(&base, second.of(&mut first, "a", None).base()));
        assert_eq!(second.of(&mut first, "a", Some("b")).base().series(), "{gpu_uuid=\"a\",mig_uuid=\"b\"} ");
        assert!(Arc::ptr_eq(&base, third.of(&mut second, "a", None).base()));
        assert_eq!((first.0.len(), third.0.len()), (0, 1));
    }
}
