//! Reads which GPU a device handle belongs to.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;

use super::probe::Probe;
use crate::model::gpu::GpuIdentity;

/// `None` if the UUID cannot be read: without it no series can be labelled.
pub(super) fn read(device: &Device<'_>, index: u32, probe: &mut Probe<'_>) -> Option<GpuIdentity> {
    Some(GpuIdentity {
        uuid: probe.call("uuid", || device.uuid())?,
        index,
        name: probe.call("name", || device.name()),
        pci_bus_id: probe.call("pci_info", || device.pci_info()).map(|pci| pci.bus_id),
        minor: probe.call("minor_number", || device.minor_number()),
        serial: probe.call("serial", || device.serial()),
        vbios: probe.call("vbios_version", || device.vbios_version()),
        // Only a label of the info series, so a failure is not counted.
        architecture: probe.call("architecture", || Ok(architecture(device.architecture()))).flatten(),
    })
}

fn architecture(result: Result<DeviceArchitecture, NvmlError>) -> Option<String> {
    let known = result.ok().filter(|known| *known != DeviceArchitecture::Unknown)?;
    Some(format!("{known:?}").to_lowercase())
}
