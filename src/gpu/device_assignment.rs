//! Finds the GPU or MIG instance that a device id of the kubelet names. Knows the id formats of NVIDIA's device plugin,
//! GKE's device plugin and NVIDIA's DRA driver. Pure. The formats differ, so no resource name needs to be configured.

use crate::model::gpu::{GpuSnapshot, MigInstance, PodDevice};

/// A device that the kubelet assigned to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceAssignment {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) device: DeviceId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceId {
    /// `GPU-…`
    Gpu(String),
    /// `MIG-…`
    Mig(String),
    /// `nvidia0` (GKE) or `gpu-0` (DRA): the number in `/dev/nvidia0`.
    Minor(u32),
    /// `nvidia0/gi3` (GKE): minor number and GPU instance.
    MinorInstance(u32, u32),
    /// `MIG-GPU-…/3/0` (drivers before 470): GPU UUID, GPU instance and compute instance.
    OldMig(String, u32, u32),
    /// `gpu-0-mig-1g18gb-19-0` (DRA): minor number and profile without its dot. Ambiguous if several instances have the
    /// same profile.
    MinorProfile(u32, String),
}

impl DeviceId {
    /// `None` if this is not the id of an NVIDIA GPU.
    pub(super) fn parse(id: &str) -> Option<Self> {
        // Time-sliced and MPS devices have a suffix: `GPU-…::2`.
        let id = id.split_once("::").map_or(id, |(device, _)| device);
        if let Some(old) = id.strip_prefix("MIG-GPU-") {
            let mut parts = old.split('/');
            let (uuid, instance, compute) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            return Some(Self::OldMig(format!("GPU-{uuid}"), instance, compute));
        }
        if id.starts_with("MIG-") {
            return Some(Self::Mig(id.to_owned()));
        }
        if id.starts_with("GPU-") {
            return Some(Self::Gpu(id.to_owned()));
        }
        if let Some(rest) = id.strip_prefix("nvidia") {
            let mut parts = rest.split('/');
            let minor = parts.next()?.parse().ok()?;
            // `…/vgpu1` is a share of the device named before it.
            return match parts.next().and_then(|part| part.strip_prefix("gi")) {
                Some(instance) => Some(Self::MinorInstance(minor, instance.parse().ok()?)),
                None => Some(Self::Minor(minor)),
            };
        }
        Self::parse_dra(id)
    }

    /// Parses a device name of NVIDIA's DRA driver.
    pub(super) fn parse_dra(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("gpu-")?;
        let Some((minor, instance)) = rest.split_once("-mig-") else { return rest.parse().ok().map(Self::Minor) };
        let profile = instance.split('-').next().filter(|profile| profile.contains('g'))?;
        Some(Self::MinorProfile(minor.parse().ok()?, profile.to_owned()))
    }
}

/// The assignments of known GPUs, sorted and without duplicates.
pub(super) fn resolve(assignments: &[DeviceAssignment], gpus: &[GpuSnapshot]) -> Vec<PodDevice> {
    let devices = assignments.iter().filter_map(|assignment| {
        let (gpu, instance) = assignment.device.find(gpus)?;
        Some(PodDevice {
            gpu_uuid: gpu.identity.uuid.clone(),
            mig_uuid: instance.map(|instance| instance.uuid.clone()).unwrap_or_default(),
            namespace: assignment.namespace.clone(),
            pod: assignment.pod.clone(),
            container: assignment.container.clone(),
        })
    });
    let mut devices: Vec<PodDevice> = devices.collect();
    devices.sort();
    devices.dedup();
    devices
}

impl DeviceId {
    fn find<'g>(&self, gpus: &'g [GpuSnapshot]) -> Option<(&'g GpuSnapshot, Option<&'g MigInstance>)> {
        let by_uuid = |uuid: &str| gpus.iter().find(|gpu| gpu.identity.uuid == uuid);
        let by_minor = |minor| gpus.iter().find(|gpu| gpu.identity.minor == Some(minor));
        // `None` if several instances match: an ambiguous id must not name the wrong one.
        let within = |gpu: &'g GpuSnapshot, matches: &dyn Fn(&MigInstance) -> bool| {
            let mut found = gpu.readings.mig.iter().filter(|instance| matches(instance));
            let instance = found.next()?;
            found.next().is_none().then_some((gpu, Some(instance)))
        };
        match self {
            Self::Gpu(uuid) => by_uuid(uuid).map(|gpu| (gpu, None)),
            Self::Mig(uuid) => gpus.iter().find_map(|gpu| within(gpu, &|instance| instance.uuid == *uuid)),
            Self::Minor(minor) => by_minor(*minor).map(|gpu| (gpu, None)),
            Self::MinorInstance(minor, id) => within(by_minor(*minor)?, &|mig| mig.gpu_instance_id == Some(*id)),
            Self::OldMig(uuid, id, compute) => within(by_uuid(uuid)?, &|mig| {
                mig.gpu_instance_id == Some(*id) && mig.compute_instance_id == Some(*compute)
            }),
            Self::MinorProfile(minor, profile) => within(by_minor(*minor)?, &|mig| {
                mig.profile.as_ref().is_some_and(|own| own.replace('.', "") == *profile)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::gpu::{GpuIdentity, GpuReadings, GpuState};

    use super::*;

    #[test]
    fn every_device_id_format_is_parsed() {
        let gpu = |uuid: &str| Some(DeviceId::Gpu(uuid.to_owned()));
        let mig = |uuid: &str| Some(DeviceId::Mig(uuid.to_owned()));
        for (id, expected) in [
            ("GPU-8f1d", gpu("GPU-8f1d")),
            ("GPU-8f1d::3", gpu("GPU-8f1d")),
            ("MIG-4c2a", mig("MIG-4c2a")),
            ("MIG-4c2a::0", mig("MIG-4c2a")),
            ("MIG-GPU-8f1d/5/0", Some(DeviceId::OldMig("GPU-8f1d".to_owned(), 5, 0))),
            ("nvidia3", Some(DeviceId::Minor(3))),
            ("nvidia3/vgpu1", Some(DeviceId::Minor(3))),
            ("nvidia0/gi3", Some(DeviceId::MinorInstance(0, 3))),
            ("nvidia0/gi3/vgpu1", Some(DeviceId::MinorInstance(0, 3))),
            ("gpu-2", Some(DeviceId::Minor(2))),
            ("gpu-2-mig-1g18gb-19-0", Some(DeviceId::MinorProfile(2, "1g18gb".to_owned()))),
            ("gpu-2-mig-19-0-1", None),
            ("gpu-vfio-1", None),
            ("nvidia-fs", None),
            ("0000:00:1f.3", None),
            ("", None),
        ] {
            assert_eq!(DeviceId::parse(id), expected, "{id}");
        }
    }

    fn instance(uuid: &str, gpu_instance: u32, profile: &str) -> MigInstance {
        MigInstance {
            uuid: uuid.to_owned(),
            gpu_instance_id: Some(gpu_instance),
            compute_instance_id: Some(0),
            profile: Some(profile.to_owned()),
            ..MigInstance::default()
        }
    }

    fn gpu(uuid: &str, minor: u32, mig: Vec<MigInstance>) -> GpuSnapshot {
        GpuSnapshot {
            identity: GpuIdentity { uuid: uuid.to_owned(), minor: Some(minor), ..GpuIdentity::default() },
            state: GpuState::Ok,
            last_poll: None,
            readings: GpuReadings { mig, ..GpuReadings::default() },
            xids: Vec::new(),
            last_xid: None,
            reports_xids: true,
        }
    }

    #[test]
    fn each_device_id_format_resolves_to_its_gpu_or_instance() {
        let instances =
            vec![instance("MIG-a", 1, "3g.71gb"), instance("MIG-b", 5, "1g.18gb"), instance("MIG-c", 6, "1g.18gb")];
        let gpus = [gpu("GPU-a", 4, Vec::new()), gpu("GPU-b", 7, instances)];
        let found = |id: &str| {
            let device = DeviceId::parse(id).unwrap();
            let text = || "x".to_owned();
            let assignment = DeviceAssignment { namespace: text(), pod: text(), container: text(), device };
            let found = resolve(&[assignment.clone(), assignment], &gpus);
            assert!(found.len() <= 1, "duplicates are removed");
            found.first().map(|device| (device.gpu_uuid.clone(), device.mig_uuid.clone()))
        };
        let resolved = |gpu: &str, mig: &str| Some((gpu.to_owned(), mig.to_owned()));
        assert_eq!(found("GPU-a::1"), resolved("GPU-a", ""));
        assert_eq!(found("nvidia7"), resolved("GPU-b", ""));
        assert_eq!(found("gpu-4"), resolved("GPU-a", ""));
        assert_eq!(found("MIG-b"), resolved("GPU-b", "MIG-b"));
        assert_eq!(found("nvidia7/gi6"), resolved("GPU-b", "MIG-c"));
        assert_eq!(found("MIG-GPU-b/5/0"), resolved("GPU-b", "MIG-b"));
        assert_eq!(found("gpu-7-mig-3g71gb-9-0"), resolved("GPU-b", "MIG-a"));
        assert_eq!(found("gpu-7-mig-1g18gb-19-4"), None, "two instances have this profile");
        assert_eq!(found("GPU-elsewhere"), None);
    }
}
