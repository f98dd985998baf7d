//! What is asked of a GPU: who it is, and one poll of it. One line per reading; the rules for errors, deadlines and
//! counting are in [`Probe::ask`](super::worker::Probe::ask) and hold for every line.
//! Not asked on purpose: PCIe throughput (sleeps 20 ms per direction) and process lists (milliseconds; memory-unsafe
//! on early 535 drivers).

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

use super::worker::Probe;
use crate::model::gpu::{GpuIdentity, GpuReadings};

/// One poll. Energy is apart because the driver counts it from its own start, and the ledger makes it ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// `energy_joules` is not filled in.
    pub(super) gauges: GpuReadings,
    /// Millijoules since the driver was loaded.
    pub(super) energy_mj: Option<u64>,
}

/// Who the GPU is; `None` without a UUID, since nothing could be said of it.
pub(super) fn identify(device: &Device<'_>, index: u32, probe: &mut Probe) -> Option<GpuIdentity> {
    Some(GpuIdentity {
        uuid: probe.ask("uuid", || device.uuid())?,
        index,
        name: probe.ask("name", || device.name()),
        pci_bus_id: probe.ask("pci_info", || device.pci_info()).map(|pci| pci.bus_id),
    })
}

/// Asks for everything that changes.
pub(super) fn read(device: &Device<'_>, probe: &mut Probe) -> Reading {
    let gpu = TemperatureSensor::Gpu;
    // NVML documents utilisation as not supported under MIG; a driver that answers 0 there must not be believed.
    let mig = probe.ask("mig_mode", || device.mig_mode()).is_some_and(|mode| mode.current != 0);
    let utilization = if mig { None } else { probe.ask("utilization_rates", || device.utilization_rates()) };
    let memory = probe.ask("memory_info", || device.memory_info());
    Reading {
        gauges: GpuReadings {
            utilization_ratio: utilization.map(|rates| f64::from(rates.gpu) / 100.0),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            power_usage_watts: probe.ask("power_usage", || device.power_usage()).map(from_milli),
            power_limit_watts: probe.ask("power_management_limit", || device.power_management_limit()).map(from_milli),
            energy_joules: None,
            temperature_celsius: probe.ask("temperature", || device.temperature(gpu)).map(f64::from),
        },
        energy_mj: probe.ask("total_energy_consumption", || device.total_energy_consumption()),
    }
}

fn from_milli(value: u32) -> f64 {
    f64::from(value) / 1000.0
}
