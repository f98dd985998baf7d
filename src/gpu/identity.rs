//! Reads which GPU a device handle belongs to.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{
    NVML_DEVICE_ARCH_ADA, NVML_DEVICE_ARCH_AMPERE, NVML_DEVICE_ARCH_BLACKWELL, NVML_DEVICE_ARCH_HOPPER,
    NVML_DEVICE_ARCH_KEPLER, NVML_DEVICE_ARCH_MAXWELL, NVML_DEVICE_ARCH_PASCAL, NVML_DEVICE_ARCH_TURING,
    NVML_DEVICE_ARCH_UNKNOWN, NVML_DEVICE_ARCH_VOLTA,
};

use super::probe::Probe;
use crate::model::gpu::GpuIdentity;

/// Label values are API, so they do not follow the spelling of a foreign type.
const ARCHITECTURES: [(u32, &str); 9] = [
    (NVML_DEVICE_ARCH_KEPLER, "kepler"),
    (NVML_DEVICE_ARCH_MAXWELL, "maxwell"),
    (NVML_DEVICE_ARCH_PASCAL, "pascal"),
    (NVML_DEVICE_ARCH_VOLTA, "volta"),
    (NVML_DEVICE_ARCH_TURING, "turing"),
    (NVML_DEVICE_ARCH_AMPERE, "ampere"),
    (NVML_DEVICE_ARCH_ADA, "ada"),
    (NVML_DEVICE_ARCH_HOPPER, "hopper"),
    (NVML_DEVICE_ARCH_BLACKWELL, "blackwell"),
];

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

/// nvml-wrapper returns a number that is newer than itself as an error.
fn architecture(result: Result<DeviceArchitecture, NvmlError>) -> Option<String> {
    match result {
        Ok(known) => architecture_label(known.as_c()),
        Err(NvmlError::UnexpectedVariant(number)) => architecture_label(number),
        Err(_) => None,
    }
}

/// The value of the label `architecture` for NVML's number. `unknown_N` for a number that is missing in the table, `None`
/// where NVML itself does not know the architecture.
fn architecture_label(number: u32) -> Option<String> {
    if number == NVML_DEVICE_ARCH_UNKNOWN {
        return None;
    }
    let known = ARCHITECTURES.iter().find(|(known, _)| *known == number);
    Some(known.map_or_else(|| format!("unknown_{number}"), |(_, name)| (*name).to_owned()))
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
