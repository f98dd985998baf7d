//! GPUs as samples: what a GPU did not answer is absent, what was counted here stays.

use std::sync::Arc;

use crate::model::gpu::{GpuInventory, GpuMemory, GpuReadings, GpuSnapshot, GpuState, MigInstance, NvmlState};

use super::catalog::Id;
use super::gpu_health::health_page;
use super::label_cache::{LabelCache, Shelf};
use super::page::{Labels, Page, Value};

/// The GPUs, in NVML's order, and the driver.
#[must_use]
pub fn gpu_page(inventory: &GpuInventory, cache: &mut LabelCache) -> Page {
    let mut page = Page::with_capacity(cache.expected());
    cache.begin();
    for gpu in &inventory.gpus {
        one_gpu(gpu, inventory, &mut page, cache);
    }
    for device in &inventory.pods {
        let labels = Labels::new([
            ("container", &device.container),
            ("gpu_uuid", &device.gpu_uuid),
            ("mig_uuid", &device.mig_uuid),
            ("namespace", &device.namespace),
            ("pod", &device.pod),
        ]);
        page.push(Id::GpuPodInfo, &Arc::new(labels), 1_u64);
    }
    if inventory.nvml == NvmlState::Up {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let versions = [
            ("cuda_version", text(&inventory.cuda_version)),
            ("driver_version", text(&inventory.driver_version)),
            ("nvml_version", text(&inventory.nvml_version)),
        ];
        page.push(Id::GpuDriverInfo, &Arc::new(Labels::new(versions)), 1_u64);
    }
    page
}

/// One GPU's samples as they are made: absent readings leave no trace.
pub(super) struct Series<'p> {
    page: &'p mut Page,
    labels: &'p mut Shelf,
}

impl<'p> Series<'p> {
    pub(super) fn new(page: &'p mut Page, cache: &'p mut LabelCache, base: &[(&str, &str)]) -> Self {
        Self { page, labels: cache.shelf(base) }
    }

    pub(super) fn put(&mut self, id: Id, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.page.push(id, self.labels.base(), value);
        }
    }

    /// One value for each of the family's label values, in the catalog's order.
    pub(super) fn each<V: Into<Value>>(&mut self, id: Id, values: impl IntoIterator<Item = Option<V>>) {
        let Some(variant) = id.metric().variant else { return };
        for (name, value) in variant.values.iter().zip(values) {
            self.with(id, &[(variant.label, name)], value);
        }
    }

    /// With more labels.
    pub(super) fn with(&mut self, id: Id, more: &[(&str, &str)], value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let labels = self.labels.labels(more);
            self.page.push(id, &labels, value);
        }
    }
}

fn one_gpu(gpu: &GpuSnapshot, inventory: &GpuInventory, page: &mut Page, cache: &mut LabelCache) {
    for instance in &gpu.readings.mig {
        mig_instance(instance, &gpu.identity.uuid, page, cache);
    }
    let base = [("gpu_uuid", gpu.identity.uuid.as_str())];
    let mut series = Series::new(page, cache, &base);
    series.put(Id::GpuUp, Some(gpu.state == GpuState::Ok));
    series.each(Id::GpuState, GPU_STATES.map(|(_, state)| Some(state == gpu.state)));
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

fn about(gpu: &GpuSnapshot, inventory: &GpuInventory, series: &mut Series<'_>) {
    let identity = &gpu.identity;
    let minor = identity.minor.map(|minor| minor.to_string());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let about = [
        ("architecture", text(&identity.architecture)),
        ("driver_version", text(&inventory.driver_version)),
        ("index", identity.index.to_string()),
        ("minor", text(&minor)),
        ("name", text(&identity.name)),
        ("pci_bus_id", text(&identity.pci_bus_id)),
        ("serial", text(&identity.serial)),
        ("vbios_version", text(&identity.vbios)),
    ];
    series.with(Id::GpuInfo, &about.each_ref().map(|(name, value)| (*name, value.as_str())), Some(1_u64));
}

/// The families of GPM's ratios, in the model's order: of a GPU and of a MIG instance.
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

fn load(readings: &GpuReadings, series: &mut Series<'_>) {
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

fn power_and_clocks(readings: &GpuReadings, series: &mut Series<'_>) {
    series.put(Id::GpuPowerUsage, readings.power_usage_watts);
    series.put(Id::GpuPowerLimit, readings.power_limit_watts);
    series.put(Id::GpuPowerInstant, readings.power_instant_watts);
    series.put(Id::EnergyConsumption, readings.energy_joules);
    series.each(Id::GpuTemperature, readings.temperature_celsius);
    series.each(Id::GpuClock, readings.clock_hertz);
    // Bit n of NVML's mask is the catalog's n-th reason.
    let reasons = readings.clocks_event_reasons;
    series.each(Id::GpuClocksEvent, (0..64).map(|bit| reasons.map(|mask| mask >> bit & 1 == 1)));
    series.each(Id::GpuThrottle, readings.throttle_ns.map(|ns| ns.map(|ns| ns as f64 / 1e9)));
    series.put(Id::GpuPerformanceState, readings.performance_state.map(u64::from));
}

fn mig_instance(instance: &MigInstance, gpu_uuid: &str, page: &mut Page, cache: &mut LabelCache) {
    let base = [("gpu_uuid", gpu_uuid), ("mig_uuid", instance.uuid.as_str())];
    let mut series = Series::new(page, cache, &base);
    let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let about = [
        ("compute_instance_id", id(instance.compute_instance_id)),
        ("gpu_instance_id", id(instance.gpu_instance_id)),
        ("mig_profile", instance.profile.clone().unwrap_or_default()),
    ];
    series.with(Id::MigInfo, &about.each_ref().map(|(name, value)| (*name, value.as_str())), Some(1_u64));
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
    use super::*;

    #[test]
    fn the_states_are_the_catalogs() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::GpuState), GPU_STATES.map(|(name, _)| name));
        assert_eq!(values(Id::NvmlState), NVML_STATES.map(|(name, _)| name));
    }

    #[test]
    fn the_models_arrays_are_as_long_as_the_catalogs_values() {
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
    fn each_clocks_event_is_its_bit() {
        let mut page = Page::default();
        let readings = GpuReadings { clocks_event_reasons: Some(0x4 | 0x100), ..GpuReadings::default() };
        power_and_clocks(&readings, &mut Series::new(&mut page, &mut LabelCache::default(), &[]));
        let active = page.samples().iter().filter(|sample| sample.value == Value::from(true));
        let active: Vec<&str> = active.map(|sample| sample.labels.pairs()[0].1.as_str()).collect();
        assert_eq!(active, ["sw_power_cap", "display_clock_setting"]);
    }
}
