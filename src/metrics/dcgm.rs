//! dcgm-exporter's names for the same GPUs, with its units and labels. The host's name has both spellings, because
//! dcgm-exporter's releases differ and each reader needs one of them.

use std::sync::Arc;

use crate::model::gpu::{
    GpuActivity, GpuInventory, GpuMemory, GpuReadings, GpuSnapshot, GpuState, MigInstance, NvLinkErrors,
};

use super::catalog::Id;
use super::page::{Labels, Page, Value};

/// Every sample of a GPU has all labels, because AIPerf takes a GPU's name from the first sample.
#[must_use]
pub fn dcgm_page(inventory: &GpuInventory, host: &str) -> Page {
    let mut page = Page::default();
    for gpu in &inventory.gpus {
        let labels = Arc::new(labels(gpu, inventory, host));
        let instances = &gpu.readings.mig;
        let mut series = Series { page: &mut page, labels: with_pod(&labels, inventory, &gpu.identity.uuid, "") };
        device(gpu, &mut series);
        health(&gpu.readings, &mut series);
        // As in dcgm-exporter: MIG instances have their own memory and activity, and a sum must count them once.
        if instances.is_empty() {
            memory_and_activity(&gpu.readings.memory, &gpu.readings.activity, &mut series);
        }
        for instance in instances {
            let labels = Arc::new(instance_labels(&labels, instance));
            let labels = with_pod(&labels, inventory, &gpu.identity.uuid, &instance.uuid);
            memory_and_activity(&instance.memory, &instance.activity, &mut Series { page: &mut page, labels });
        }
    }
    page
}

/// Writes the samples of one GPU or MIG instance. An absent reading has no sample.
struct Series<'p> {
    page: &'p mut Page,
    labels: Arc<Labels>,
}

impl Series<'_> {
    fn put(&mut self, id: Id, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.page.push(id, &self.labels, value);
        }
    }
}

fn labels(gpu: &GpuSnapshot, inventory: &GpuInventory, host: &str) -> Labels {
    let identity = &gpu.identity;
    let index = identity.index.to_string();
    let device = format!("nvidia{}", identity.minor.unwrap_or(identity.index));
    Labels::new([
        ("DCGM_FI_DRIVER_VERSION", inventory.driver_version.as_deref().unwrap_or("")),
        ("Hostname", host),
        ("UUID", &identity.uuid),
        ("device", &device),
        ("gpu", &index),
        ("hostname", host),
        ("modelName", identity.name.as_deref().unwrap_or("")),
        ("pci_bus_id", identity.pci_bus_id.as_deref().unwrap_or("")),
    ])
}

fn instance_labels(labels: &Arc<Labels>, instance: &MigInstance) -> Labels {
    let id = instance.gpu_instance_id.map(|id| id.to_string()).unwrap_or_default();
    Labels::extend(labels, [("GPU_I_ID", id), ("GPU_I_PROFILE", instance.profile.clone().unwrap_or_default())])
}

/// Adds the labels of the pod that uses the device. A device shared by several pods gets none: one sample for each pod would
/// count the device several times, and `nv_gpu_pod_info` lists the pods.
fn with_pod(labels: &Arc<Labels>, inventory: &GpuInventory, gpu_uuid: &str, mig_uuid: &str) -> Arc<Labels> {
    let mut owners = inventory.pods.iter().filter(|pod| pod.gpu_uuid == gpu_uuid && pod.mig_uuid == mig_uuid);
    match (owners.next(), owners.next()) {
        (Some(owner), None) => {
            let pod = [("container", &owner.container), ("namespace", &owner.namespace), ("pod", &owner.pod)];
            Arc::new(Labels::extend(labels, pod.map(|(name, value)| (name, value.clone()))))
        }
        _ => Arc::clone(labels),
    }
}

fn device(gpu: &GpuSnapshot, series: &mut Series<'_>) {
    let readings = &gpu.readings;
    let mhz = |hertz: Option<u64>| hertz.map(|hertz| hertz / 1_000_000);
    let xid = gpu.last_xid.map_or(0, |last| last.code);
    series.put(Id::DcgmSmClock, mhz(readings.clock_hertz.sm));
    series.put(Id::DcgmMemClock, mhz(readings.clock_hertz.memory));
    series.put(Id::DcgmMemoryTemp, readings.temperature_celsius.memory);
    series.put(Id::DcgmGpuTemp, readings.temperature_celsius.gpu);
    series.put(Id::DcgmPowerUsage, readings.power_usage_watts);
    series.put(Id::DcgmPowerLimit, readings.power_limit_watts);
    series.put(Id::DcgmEnergy, readings.energy_joules.map(|joules| (joules * 1000.0).round() as u64));
    series.put(Id::DcgmGpuUtil, percent(readings.utilization_ratio));
    series.put(Id::DcgmMemCopyUtil, percent(readings.memory_controller_utilization_ratio));
    series.put(Id::DcgmEncUtil, percent(readings.engine_utilization.encoder));
    series.put(Id::DcgmDecUtil, percent(readings.engine_utilization.decoder));
    series.put(Id::DcgmXid, (gpu.reports_xids && gpu.state == GpuState::Ok).then_some(xid));
    series.put(Id::DcgmPowerViolation, readings.throttle_ns.power);
    series.put(Id::DcgmThermalViolation, readings.throttle_ns.thermal);
    series.put(Id::DcgmClocksEvent, readings.clocks_event_reasons);
    series.put(Id::DcgmPstate, readings.performance_state.map(u64::from));
}

fn health(readings: &GpuReadings, series: &mut Series<'_>) {
    let health = &readings.health;
    let links = |errors: fn(&NvLinkErrors) -> Option<u64>| {
        health.nvlinks.iter().filter_map(|link| errors(&link.errors)).reduce(u64::saturating_add)
    };
    series.put(Id::DcgmPcieReplay, health.pcie_replays);
    series.put(Id::DcgmFanSpeed, percent(health.fan_speed_ratio.first().copied().flatten()));
    series.put(Id::DcgmBar1Used, mib(health.bar1_used_bytes));
    series.put(Id::DcgmEccSbeVol, health.ecc_errors.corrected_volatile);
    series.put(Id::DcgmEccDbeVol, health.ecc_errors.uncorrected_volatile);
    series.put(Id::DcgmEccSbeAgg, health.ecc_errors.corrected_aggregate);
    series.put(Id::DcgmEccDbeAgg, health.ecc_errors.uncorrected_aggregate);
    series.put(Id::DcgmRetiredSbe, health.retired_pages.multiple_single_bit);
    series.put(Id::DcgmRetiredDbe, health.retired_pages.double_bit);
    series.put(Id::DcgmRetiredPending, health.retired_pages_pending);
    series.put(Id::DcgmUncRemapped, health.remapped_rows.uncorrectable);
    series.put(Id::DcgmCorRemapped, health.remapped_rows.correctable);
    series.put(Id::DcgmRemapFailure, health.remapped_rows_failure);
    series.put(Id::DcgmNvlinkReplay, links(|errors| errors.replay));
    series.put(Id::DcgmNvlinkRecovery, links(|errors| errors.recovery));
    series.put(Id::DcgmNvlinkCrcFlit, links(|errors| errors.crc_flit));
    series.put(Id::DcgmNvlinkCrcData, links(|errors| errors.crc_data));
    series.put(Id::DcgmPcieGen, health.pcie_link_generation.map(u64::from));
    series.put(Id::DcgmPcieWidth, health.pcie_link_width.map(u64::from));
}

fn memory_and_activity(memory: &GpuMemory, activity: &GpuActivity, series: &mut Series<'_>) {
    let rate = |rate: Option<f64>| rate.map(|rate| rate.round() as u64);
    series.put(Id::DcgmFbTotal, mib(memory.total_bytes));
    series.put(Id::DcgmFbFree, mib(memory.free_bytes));
    series.put(Id::DcgmFbUsed, mib(memory.used_bytes));
    series.put(Id::DcgmFbReserved, mib(memory.reserved_bytes));
    series.put(Id::DcgmProfGrEngine, activity.graphics);
    series.put(Id::DcgmProfSm, activity.sm);
    series.put(Id::DcgmProfSmOccupancy, activity.sm_occupancy);
    series.put(Id::DcgmProfTensor, activity.tensor);
    series.put(Id::DcgmProfDram, activity.dram);
    series.put(Id::DcgmProfFp64, activity.fp64);
    series.put(Id::DcgmProfFp32, activity.fp32);
    series.put(Id::DcgmProfFp16, activity.fp16);
    series.put(Id::DcgmProfPcieTx, rate(activity.pcie_bytes_per_second.transmit));
    series.put(Id::DcgmProfPcieRx, rate(activity.pcie_bytes_per_second.receive));
    series.put(Id::DcgmProfNvlinkTx, rate(activity.nvlink_bytes_per_second.transmit));
    series.put(Id::DcgmProfNvlinkRx, rate(activity.nvlink_bytes_per_second.receive));
}

fn percent(ratio: Option<f64>) -> Option<i64> {
    ratio.map(|ratio| (ratio * 100.0).round() as i64)
}

fn mib(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes >> 20)
}

#[cfg(test)]
mod tests {
    use crate::model::gpu::{GpuIdentity, PodDevice};

    use super::*;

    fn pod(gpu: &str, mig: &str, name: &str) -> PodDevice {
        let text = str::to_owned;
        PodDevice {
            gpu_uuid: text(gpu),
            mig_uuid: text(mig),
            namespace: text("prod"),
            pod: text(name),
            container: text("c"),
        }
    }

    fn inventory(mig: Vec<MigInstance>, pods: Vec<PodDevice>) -> GpuInventory {
        let memory = GpuMemory { used_bytes: Some(3 << 20), ..GpuMemory::default() };
        let gpu = GpuSnapshot {
            identity: GpuIdentity { uuid: "GPU-a".to_owned(), ..GpuIdentity::default() },
            state: GpuState::Ok,
            last_poll: None,
            readings: GpuReadings { memory, power_usage_watts: Some(70.0), mig, ..GpuReadings::default() },
            xids: Vec::new(),
            last_xid: None,
            reports_xids: false,
        };
        GpuInventory { gpus: vec![gpu], pods, ..GpuInventory::default() }
    }

    /// The labels of each sample of a family.
    fn series(inventory: &GpuInventory, id: Id) -> Vec<String> {
        let page = dcgm_page(inventory, "h");
        page.samples().iter().filter(|s| s.metric == id).map(|s| s.labels.series().to_owned()).collect()
    }

    #[test]
    fn a_gpu_has_the_labels_of_its_pod_unless_pods_share_it() {
        let one = inventory(Vec::new(), vec![pod("GPU-a", "", "engine-0"), pod("GPU-b", "", "other")]);
        let owned = series(&one, Id::DcgmPowerUsage);
        assert!(owned[0].contains("namespace=\"prod\"") && owned[0].contains("pod=\"engine-0\""), "{owned:?}");
        let shared = inventory(Vec::new(), vec![pod("GPU-a", "", "engine-0"), pod("GPU-a", "", "engine-1")]);
        let shared = series(&shared, Id::DcgmPowerUsage);
        assert!(shared.len() == 1 && !shared[0].contains("pod="), "{shared:?}");
    }

    #[test]
    fn a_gpu_with_mig_has_memory_by_instance_and_power_as_a_whole() {
        let instance = MigInstance {
            uuid: "MIG-a".to_owned(),
            gpu_instance_id: Some(5),
            profile: Some("1g.18gb".to_owned()),
            memory: GpuMemory { used_bytes: Some(2 << 20), ..GpuMemory::default() },
            ..MigInstance::default()
        };
        let split = inventory(vec![instance], vec![pod("GPU-a", "MIG-a", "small")]);
        let memory = series(&split, Id::DcgmFbUsed);
        assert_eq!(memory.len(), 1);
        for label in ["GPU_I_ID=\"5\"", "GPU_I_PROFILE=\"1g.18gb\"", "pod=\"small\"", "UUID=\"GPU-a\""] {
            assert!(memory[0].contains(label), "{memory:?}");
        }
        let power = series(&split, Id::DcgmPowerUsage);
        assert!(power.len() == 1 && !power[0].contains("pod=") && !power[0].contains("GPU_I_ID"), "{power:?}");
    }

    #[test]
    fn the_xid_family_is_absent_if_xid_errors_cannot_be_received() {
        let mut inventory = inventory(Vec::new(), Vec::new());
        assert!(series(&inventory, Id::DcgmXid).is_empty());
        inventory.gpus[0].reports_xids = true;
        assert_eq!(series(&inventory, Id::DcgmXid).len(), 1);
    }
}
