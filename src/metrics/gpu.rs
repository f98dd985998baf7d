//! GPUs as samples. A reading that failed is absent; counters of this exporter remain.

use crate::model::gpu::{GpuInventory, GpuMemory, GpuReadings, GpuSnapshot, GpuState, MigInstance, NvmlState};

use super::catalog::Id;
use super::catalog::table::{OF_GPUS, OF_MIG_INSTANCES};
use super::gpu_health::health_page;
use super::page::Page;
use super::series_labels::LabelCache;
use super::writer::GpuWriter;

/// The GPUs, in NVML's order, and the driver.
#[must_use]
pub fn gpu_page(inventory: &GpuInventory, cache: &mut LabelCache) -> Page {
    let mut page = Page::with_capacity(cache.samples);
    cache.begin();
    for gpu in &inventory.gpus {
        one_gpu(gpu, inventory, &mut page, cache);
    }
    let mut node = GpuWriter::new(&mut page, cache.of(&[], 0..0));
    for device in &inventory.pods {
        let labels: [(&str, &str); 5] = [
            ("container", &device.container),
            ("gpu_uuid", &device.gpu_uuid),
            ("mig_uuid", &device.mig_uuid),
            ("namespace", &device.namespace),
            ("pod", &device.pod),
        ];
        node.with(Id::GpuPodInfo, &labels, Some(1_u64));
    }
    if inventory.nvml == NvmlState::Up {
        let versions = [
            ("cuda_version", text(&inventory.cuda_version)),
            ("driver_version", text(&inventory.driver_version)),
            ("nvml_version", text(&inventory.nvml_version)),
        ];
        node.with(Id::GpuDriverInfo, &versions, Some(1_u64));
    }
    cache.samples = page.samples().len();
    page
}

/// An unknown text is an empty label value.
fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

fn one_gpu(gpu: &GpuSnapshot, inventory: &GpuInventory, page: &mut Page, cache: &mut LabelCache) {
    for instance in &gpu.readings.mig {
        mig_instance(instance, &gpu.identity.uuid, page, cache);
    }
    let mut series = GpuWriter::new(page, cache.of(&[("gpu_uuid", &gpu.identity.uuid)], OF_GPUS));
    series.put(Id::GpuUp, Some(gpu.state == GpuState::Ok));
    series.in_order(Id::GpuState, GPU_STATES.map(|(_, state)| Some(state == gpu.state)));
    series.put(Id::GpuLastPoll, gpu.last_poll.map(|poll| poll.at_us as f64 / 1e6));
    series.put(Id::GpuPollDuration, gpu.last_poll.map(|poll| poll.took.as_secs_f64()));
    about(gpu, inventory, &mut series);
    load(&gpu.readings, &mut series);
    power_and_clocks(&gpu.readings, &mut series);
    health_page(&gpu.readings.health, &mut series);
    for (code, count) in &gpu.xids {
        series.with(Id::GpuXids, &[("xid", &code.to_string())], Some(*count));
    }
    series.put(Id::GpuLastXid, gpu.last_xid.map(|last| last.code));
    series.put(Id::GpuLastXidTime, gpu.last_xid.map(|last| last.at_us as f64 / 1e6));
}

fn about(gpu: &GpuSnapshot, inventory: &GpuInventory, series: &mut GpuWriter<'_>) {
    let identity = &gpu.identity;
    let (index, minor) = (identity.index.to_string(), identity.minor.map(|minor| minor.to_string()));
    let about = [
        ("architecture", text(&identity.architecture)),
        ("driver_version", text(&inventory.driver_version)),
        ("index", &*index),
        ("minor", text(&minor)),
        ("name", text(&identity.name)),
        ("pci_bus_id", text(&identity.pci_bus_id)),
        ("serial", text(&identity.serial)),
        ("vbios_version", text(&identity.vbios)),
    ];
    series.with(Id::GpuInfo, &about, Some(1_u64));
}

/// The families of GPM's ratios in the model's order, of a GPU and of a MIG instance.
const ACTIVITIES: [(Id, Id); crate::model::gpu::ACTIVITIES] = [
    (Id::GpuGpmGraphics, Id::MigGpmGraphics),
    (Id::GpuGpmSm, Id::MigGpmSm),
    (Id::GpuGpmSmOccupancy, Id::MigGpmSmOccupancy),
    (Id::GpuGpmTensor, Id::MigGpmTensor),
    (Id::GpuGpmTensorDfma, Id::MigGpmTensorDfma),
    (Id::GpuGpmTensorHmma, Id::MigGpmTensorHmma),
    (Id::GpuGpmTensorImma, Id::MigGpmTensorImma),
    (Id::GpuGpmDram, Id::MigGpmDram),
    (Id::GpuGpmFp64, Id::MigGpmFp64),
    (Id::GpuGpmFp32, Id::MigGpmFp32),
    (Id::GpuGpmFp16, Id::MigGpmFp16),
];

fn load(readings: &GpuReadings, series: &mut GpuWriter<'_>) {
    series.put(Id::GpuUtilization, readings.utilization_ratio);
    let GpuMemory { total_bytes, used_bytes, free_bytes, reserved_bytes } = readings.memory;
    series.put(Id::GpuMemoryTotal, total_bytes);
    series.put(Id::GpuMemoryUsed, used_bytes);
    series.put(Id::GpuMemoryFree, free_bytes);
    series.put(Id::GpuMemoryReserved, reserved_bytes);
    series.put(Id::GpuMemoryController, readings.memory_controller_utilization_ratio);
    let engines = [Id::GpuEncoderUtilization, Id::GpuDecoderUtilization, Id::GpuJpegUtilization, Id::GpuOfaUtilization];
    for (id, ratio) in engines.into_iter().zip(readings.engine_utilization_ratio) {
        series.put(id, ratio);
    }
    for ((id, _), ratio) in ACTIVITIES.into_iter().zip(readings.activity.ratio) {
        series.put(id, ratio);
    }
    let [transmit, receive] = readings.activity.pcie_bytes_per_second;
    series.put(Id::GpuGpmPcieTransmit, transmit);
    series.put(Id::GpuGpmPcieReceive, receive);
    let [transmit, receive] = readings.activity.nvlink_bytes_per_second;
    series.put(Id::GpuGpmNvlinkTransmit, transmit);
    series.put(Id::GpuGpmNvlinkReceive, receive);
    let [transmit, receive] = readings.pcie_bytes;
    series.put(Id::GpuPcieTransmit, transmit);
    series.put(Id::GpuPcieReceive, receive);
    let [transmit, receive] = readings.nvlink_bytes;
    series.put(Id::GpuNvlinkTransmit, transmit);
    series.put(Id::GpuNvlinkReceive, receive);
    series.put(Id::GpuMigEnabled, readings.mig_enabled);
}

fn power_and_clocks(readings: &GpuReadings, series: &mut GpuWriter<'_>) {
    series.put(Id::GpuPowerUsage, readings.power_usage_watts);
    series.put(Id::GpuPowerLimit, readings.power_limit_watts);
    series.put(Id::GpuPowerInstant, readings.power_instant_watts);
    series.put(Id::EnergyConsumption, readings.energy_joules);
    series.in_order(Id::GpuTemperature, readings.temperature_celsius);
    series.in_order(Id::GpuClock, readings.clock_hertz);
    // Bit n of NVML's mask is the catalog's reason n.
    let reasons = readings.clocks_event_reasons;
    series.in_order(Id::GpuClocksEvent, (0..64).map(|bit| reasons.map(|mask| mask >> bit & 1 == 1)));
    series.in_order(Id::GpuThrottle, readings.throttle_ns.map(|ns| ns.map(|ns| ns as f64 / 1e9)));
    series.put(Id::GpuPerformanceState, readings.performance_state.map(u64::from));
}

fn mig_instance(instance: &MigInstance, gpu_uuid: &str, page: &mut Page, cache: &mut LabelCache) {
    let base = [("gpu_uuid", gpu_uuid), ("mig_uuid", instance.uuid.as_str())];
    let mut series = GpuWriter::new(page, cache.of(&base, OF_MIG_INSTANCES));
    let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let (compute, gpu) = (id(instance.compute_instance_id), id(instance.gpu_instance_id));
    let about =
        [("compute_instance_id", &*compute), ("gpu_instance_id", &*gpu), ("mig_profile", text(&instance.profile))];
    series.with(Id::MigInfo, &about, Some(1_u64));
    series.put(Id::MigMemoryTotal, instance.memory.total_bytes);
    series.put(Id::MigMemoryUsed, instance.memory.used_bytes);
    series.put(Id::MigMemoryFree, instance.memory.free_bytes);
    for ((_, id), ratio) in ACTIVITIES.into_iter().zip(instance.activity.ratio) {
        series.put(id, ratio);
    }
}

const GPU_STATES: [(&str, GpuState); 5] = [
    ("ok", GpuState::Ok),
    ("lost", GpuState::Lost),
    ("stalled", GpuState::Stalled),
    ("reset_required", GpuState::ResetRequired),
    ("no_permission", GpuState::NoPermission),
];

pub(super) const NVML_STATES: [(&str, NvmlState); 9] = [
    ("off", NvmlState::Off),
    ("starting", NvmlState::Starting),
    ("up", NvmlState::Up),
    ("library_not_found", NvmlState::LibraryNotFound),
    ("driver_not_loaded", NvmlState::DriverNotLoaded),
    ("version_mismatch", NvmlState::VersionMismatch),
    ("no_permission", NvmlState::NoPermission),
    ("failed", NvmlState::Failed),
    ("released", NvmlState::Released),
];

#[cfg(test)]
mod tests {
    use super::super::page::Value;
    use super::*;

    #[test]
    fn states_are_in_the_catalogs_order() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::GpuState), GPU_STATES.map(|(name, _)| name));
        assert_eq!(values(Id::NvmlState), NVML_STATES.map(|(name, _)| name));
    }

    #[test]
    fn an_array_of_readings_has_one_element_for_each_label_value() {
        let length = |id: Id| id.metric().variant.unwrap().values.len();
        let readings = GpuReadings::default();
        for (id, model) in [
            (Id::GpuTemperature, readings.temperature_celsius.len()),
            (Id::GpuClock, readings.clock_hertz.len()),
            (Id::GpuThrottle, readings.throttle_ns.len()),
            (Id::GpuClockMax, readings.health.clock_max_hertz.len()),
            (Id::GpuPowerLimits, readings.health.power_limits_watts.len()),
            (Id::GpuTemperatureLimit, readings.health.temperature_limits_celsius.len()),
            (Id::GpuRetiredPages, readings.health.retired_pages.len()),
            (Id::GpuRemappedRows, readings.health.remapped_rows.len()),
            (Id::GpuNvlinkErrors, crate::model::gpu::NvLink::default().errors.len()),
        ] {
            assert_eq!(length(id), model, "{}", id.metric().name);
        }
    }

    #[test]
    fn each_clocks_event_reason_is_its_bit() {
        let mut page = Page::default();
        let readings = GpuReadings { clocks_event_reasons: Some(0x4 | 0x100), ..GpuReadings::default() };
        power_and_clocks(&readings, &mut GpuWriter::new(&mut page, LabelCache::default().of(&[], OF_GPUS)));
        let active = page.samples().iter().filter(|sample| sample.value == Value::from(true));
        let active: Vec<&str> = active.map(|sample| sample.labels.pairs()[0].1.as_str()).collect();
        assert_eq!(active, ["sw_power_cap", "display_clock_setting"]);
    }
}
