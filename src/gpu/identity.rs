//! Reads which GPU a device handle belongs to.

use super::probe::Probe;
use crate::model::gpu::GpuIdentity;
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;

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

/// `None` where NVML itself does not know the architecture. nvml-wrapper returns a number that is newer than itself as an
/// error.
fn architecture(result: Result<DeviceArchitecture, NvmlError>) -> Option<String> {
    match result {
        Ok(DeviceArchitecture::Unknown) => None,
        Ok(known) => Some(known.to_string().to_lowercase()),
        Err(NvmlError::UnexpectedVariant(number)) => Some(format!("unknown_{number}")),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_architecture_has_its_label_value() {
        let labels = (2..=10).map(|number| architecture(DeviceArchitecture::try_from(number)).unwrap());
        let expected = ["kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_newer_architecture_is_labelled_with_its_number() {
        assert_eq!(architecture(DeviceArchitecture::try_from(11)).as_deref(), Some("unknown_11"));
    }

    #[test]
    fn an_architecture_that_cannot_be_read_has_no_label() {
        assert_eq!(architecture(Ok(DeviceArchitecture::Unknown)), None);
        assert_eq!(architecture(Err(NvmlError::NotSupported)), None);
    }
}
