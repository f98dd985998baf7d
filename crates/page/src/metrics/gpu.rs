//! Turns GPUs into samples. A failed reading is absent; the counters that the exporter keeps of a GPU continue.

use trtllm_records::gpu::{
    EccErrors, GpuHealth, GpuInventory, GpuReadings, GpuSnapshot, GpuState, MigInstance, NvLinkErrors, NvmlState,
};
use trtllm_records::named_numbers::NamedNumbers as _;

use super::catalog::Id;
use super::catalog::table::{OF_GPUS, OF_MIG_INSTANCES, VALUES_OF_GPUS, VALUES_OF_MIG_INSTANCES};
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
    let mut node = GpuWriter { page, labels: cache.of(&[], 0..0) };
    for device in &inventory.pods {
        let labels: [(&str, &str); 5] = [
            ("container", &device.container),
            ("gpu_uuid", &device.gpu_uuid),
            ("mig_uuid", &device.mig_uuid),
            ("namespace", &device.namespace),
            ("pod", &device.pod),
        ];
        node.with(Id::GpuPodInfo, &labels, 1_u64);
    }
    if inventory.nvml == NvmlState::Up {
        let versions = [
            ("cuda_version", text(&inventory.cuda_version)),
            ("driver_version", text(&inventory.driver_version)),
            ("nvml_version", text(&inventory.nvml_version)),
        ];
        node.with(Id::GpuDriverInfo, &versions, 1_u64);
    }
    cache.samples = page.samples().len() - others;
}

/// An unknown text is an empty label value.
fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

fn one_gpu(gpu: &GpuSnapshot, inventory: &GpuInventory, page: &mut Page, cache: &mut LabelCache) {
    for instance in &gpu.readings.mig {
        mig_instance(instance, &gpu.identity.uuid, page, cache);
    }
    let mut series = GpuWriter { page, labels: cache.of(&[("gpu_uuid", &gpu.identity.uuid)], OF_GPUS) };
    series.put(Id::GpuUp, gpu.state == GpuState::Ok);
    series.in_order(Id::GpuState, GpuState::ALL.map(|state| Some(state == gpu.state)));
    series.put(Id::GpuLastPoll, gpu.last_poll.map(|poll| poll.at_us as f64 / 1e6));
    series.put(Id::GpuPollDuration, gpu.last_poll.map(|poll| poll.took.as_secs_f64()));
    about(gpu, inventory, &mut series);
    series.put_all(VALUES_OF_GPUS, &gpu.readings);
    power_and_clocks(&gpu.readings, &mut series);
    health(&gpu.readings.health, &mut series);
    for (code, count) in &gpu.xids {
        series.with(Id::GpuXids, &[("xid", &code.to_string())], *count);
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
    series.with(Id::GpuInfo, &about, 1_u64);
}

fn power_and_clocks(readings: &GpuReadings, series: &mut GpuWriter<'_>) {
    series.each(Id::GpuTemperature, readings.temperature_celsius);
    series.each(Id::GpuClock, readings.clock_hertz);
    // Bit n of NVML's mask stands for reason n of the catalog.
    let reasons = readings.clocks_event_reasons;
    series.in_order(Id::GpuClocksEvent, (0..64).map(|bit| reasons.map(|mask| mask >> bit & 1 == 1)));
    let throttled = readings.throttle_ns.numbers();
    series.in_order(Id::GpuThrottle, throttled.map(|ns| ns.map(|ns| ns as f64 / 1e9)));
}

fn health(health: &GpuHealth, series: &mut GpuWriter<'_>) {
    series.each(Id::GpuPowerLimits, health.power_limits_watts);
    series.each(Id::GpuTemperatureLimit, health.temperature_limits_celsius);
    series.each(Id::GpuClockMax, health.clock_max_hertz);
    for (fan, speed) in health.fan_speed_ratio.iter().enumerate() {
        series.with(Id::GpuFanSpeed, &[("fan", &fan.to_string())], *speed);
    }
    for link in &health.nvlinks {
        let number = link.link.to_string();
        series.with(Id::GpuNvlinkUp, &[("link", &number)], link.up);
        for (kind, count) in NvLinkErrors::NAMES.iter().zip(link.errors.numbers()) {
            series.with(Id::GpuNvlinkErrors, &[("link", &number), ("kind", kind)], count);
        }
    }
    for (error, persistence, count) in ecc_counts(&health.ecc_errors) {
        series.with(Id::GpuEcc, &[("error", error), ("persistence", persistence)], count);
    }
    for part in &health.ecc_locations {
        for (error, persistence, count) in ecc_counts(&part.errors) {
            let labels = [("error", error), ("location", part.location), ("persistence", persistence)];
            series.with(Id::GpuEccLocations, &labels, count);
        }
    }
    series.each(Id::GpuRetiredPages, health.retired_pages);
    series.each(Id::GpuRemappedRows, health.remapped_rows);
    for process in &health.process_list {
        let (name, pid) = (process.name.as_deref().unwrap_or(""), process.pid.to_string());
        series.with(Id::GpuProcessMemory, &[("name", name), ("pid", &pid)], process.bytes);
        series.with(Id::GpuProcessSm, &[("name", name), ("pid", &pid)], process.sm_ratio);
    }
}

/// Each count with its labels `error` and `persistence`.
fn ecc_counts(errors: &EccErrors) -> [(&'static str, &'static str, Option<u64>); 4] {
    [
        ("corrected", "volatile", errors.corrected_volatile),
        ("uncorrected", "volatile", errors.uncorrected_volatile),
        ("corrected", "aggregate", errors.corrected_aggregate),
        ("uncorrected", "aggregate", errors.uncorrected_aggregate),
    ]
}

fn mig_instance(instance: &MigInstance, gpu_uuid: &str, page: &mut Page, cache: &mut LabelCache) {
    let base = [("gpu_uuid", gpu_uuid), ("mig_uuid", instance.uuid.as_str())];
    let mut series = GpuWriter { page, labels: cache.of(&base, OF_MIG_INSTANCES) };
    let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let (compute, gpu) = (id(instance.compute_instance_id), id(instance.gpu_instance_id));
    let about =
        [("compute_instance_id", &*compute), ("gpu_instance_id", &*gpu), ("mig_profile", text(&instance.profile))];
    series.with(Id::MigInfo, &about, 1_u64);
    series.put_all(VALUES_OF_MIG_INSTANCES, instance);
}

#[cfg(test)]
mod tests {
    use super::super::page::Value;
    use super::*;
    use trtllm_records::gpu::{
        Clocks, PowerLimits, RemappedRows, RetiredPages, TemperatureLimits, Temperatures, ThrottleTimes,
    };

    #[test]
    fn the_names_of_readings_are_the_catalogs_label_values() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        for (id, names) in [
            (Id::GpuTemperature, Temperatures::NAMES),
            (Id::GpuClock, Clocks::NAMES),
            (Id::GpuThrottle, ThrottleTimes::NAMES),
            (Id::GpuClockMax, Clocks::NAMES),
            (Id::GpuPowerLimits, PowerLimits::NAMES),
            (Id::GpuTemperatureLimit, TemperatureLimits::NAMES),
            (Id::GpuRetiredPages, RetiredPages::NAMES),
            (Id::GpuRemappedRows, RemappedRows::NAMES),
            (Id::GpuNvlinkErrors, NvLinkErrors::NAMES),
        ] {
            assert_eq!(values(id), names, "{}", id.metric().name);
        }
    }

    #[test]
    fn each_clocks_event_reason_is_its_bit() {
        let mut page = Page::default();
        let readings = GpuReadings { clocks_event_reasons: Some(0x4 | 0x100), ..GpuReadings::default() };
        let mut cache = LabelCache::default();
        power_and_clocks(&readings, &mut GpuWriter { page: &mut page, labels: cache.of(&[], OF_GPUS) });
        let active = page.samples().iter().filter(|sample| sample.value == Value::from(true));
        let active: Vec<&str> = active.map(|sample| sample.labels.pairs()[0].1.as_str()).collect();
        assert_eq!(active, ["sw_power_cap", "display_clock_setting"]);
    }
}
