//! Turns GPUs into samples. A failed reading is absent; the counters that the exporter keeps of a GPU continue.

use trtllm_records::gpu::{GpuInventory, GpuSnapshot, NvmlState};

use super::catalog::table::{GPUS, MIG_INSTANCES, OneGpu, text};
use super::catalog::{Id, Table};
use super::page::Page;
use super::series_labels::LabelCache;
use super::writer::GpuWriter;

/// Adds the GPUs, in NVML's order, and the driver.
pub fn gpu_page(inventory: &GpuInventory, cache: &mut LabelCache, page: &mut Page) {
    let others = page.samples().len();
    page.reserve(cache.samples);
    cache.begin();
    for gpu in &inventory.gpus {
        one_gpu(gpu, inventory, page, cache);
    }
    let mut node = GpuWriter::new(page, cache.of(&[], &[]));
    for device in &inventory.pods {
        let labels: [(&str, &str); 5] = [
            ("container", &device.container),
            ("gpu_uuid", &device.gpu_uuid),
            ("mig_uuid", &device.mig_uuid),
            ("namespace", &device.namespace),
            ("pod", &device.pod),
        ];
        node.of(Id::GpuPodInfo).with(&labels, 1_u64);
    }
    if inventory.nvml == NvmlState::Up {
        let versions = [
            ("cuda_version", text(&inventory.cuda_version)),
            ("driver_version", text(&inventory.driver_version)),
            ("nvml_version", text(&inventory.nvml_version)),
        ];
        node.of(Id::GpuDriverInfo).with(&versions, 1_u64);
    }
    cache.samples = page.samples().len() - others;
}

fn one_gpu(gpu: &GpuSnapshot, inventory: &GpuInventory, page: &mut Page, cache: &mut LabelCache) {
    for instance in &gpu.readings.mig {
        let base = [("gpu_uuid", gpu.identity.uuid.as_str()), ("mig_uuid", instance.uuid.as_str())];
        GpuWriter::new(page, cache.of(&base, &[Table::Mig])).table(MIG_INSTANCES, instance);
    }
    let labels = cache.of(&[("gpu_uuid", &gpu.identity.uuid)], &[Table::Gpu]);
    let driver_version = text(&inventory.driver_version);
    let one = OneGpu { snapshot: gpu, readings: &gpu.readings, health: &gpu.readings.health, driver_version };
    GpuWriter::new(page, labels).table(GPUS, &one);
}

#[cfg(test)]
mod tests {
    use super::super::page::Value;
    use super::*;
    use trtllm_records::gpu::{GpuIdentity, GpuReadings, GpuState};

    #[test]
    fn each_clocks_event_reason_is_its_bit() {
        let readings = GpuReadings { clocks_event_reasons: Some(0x4 | 0x100), ..GpuReadings::default() };
        let gpu = GpuSnapshot {
            identity: GpuIdentity::default(),
            state: GpuState::Ok,
            readings,
            last_poll: None,
            xids: Vec::new(),
            last_xid: None,
            reports_xids: false,
        };
        let inventory = GpuInventory { gpus: vec![gpu], ..GpuInventory::default() };
        let mut page = Page::default();
        gpu_page(&inventory, &mut LabelCache::default(), &mut page);
        let events = page.samples().iter().filter(|sample| sample.metric == Id::GpuClocksEvent);
        let active = events.filter(|sample| sample.value == Value::from(true));
        let active: Vec<&str> = active.map(|sample| sample.labels.pairs()[1].1.as_str()).collect();
        assert_eq!(active, ["sw_power_cap", "display_clock_setting"]);
    }
}
