//! Finds the GPU or MIG instance that a device id of the kubelet names. Knows the id formats of NVIDIA's device plugin,
//! GKE's device plugin and NVIDIA's DRA driver. Pure. The formats differ, so no resource name needs to be configured.

use std::collections::{BTreeSet, HashMap};

use trtllm_records::gpu::{Gpu, GpuIdentity, PodDevice, PodName};

/// A device that the kubelet assigned to a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceAssignment {
    pub(super) pod: PodName,
    pub(super) container: String,
    /// The kubelet's id of the device.
    pub(super) device: String,
    /// Whether the kubelet gives the device to one container at a time. A claim of DRA may be shared by several.
    pub(super) exclusive: bool,
}

/// Whether this may be the id of a GPU: plugins of other devices have other formats.
pub(super) fn is_gpu(id: &str) -> bool {
    ["GPU-", "MIG-", "nvidia", "gpu-"].iter().any(|prefix| id.starts_with(prefix))
}

/// The assignments of `gpus`, sorted and without duplicates, and the pods that have a device which is none of `gpus`.
pub(super) fn resolve(assignments: &[DeviceAssignment], gpus: &[Gpu]) -> (Vec<PodDevice>, BTreeSet<PodName>) {
    let (mut devices, mut pods_with_others) = (BTreeSet::new(), BTreeSet::new());
    if assignments.is_empty() {
        return (Vec::new(), pods_with_others);
    }
    let uuids = uuids_by_id(gpus);
    for DeviceAssignment { pod, container, device, .. } in assignments {
        let (pod, container) = (pod.clone(), container.clone());
        match uuids.get(without_suffix(device)).copied().flatten() {
            Some((gpu, mig)) => {
                devices.insert(PodDevice { gpu_uuid: gpu.to_owned(), mig_uuid: mig.to_owned(), pod, container });
            }
            None => {
                pods_with_others.insert(pod);
            }
        }
    }
    (devices.into_iter().collect(), pods_with_others)
}

/// For each id that a device can have: the UUIDs of its GPU and of its MIG instance (empty for a whole GPU). `None` for
/// an id that several instances have: an ambiguous id must not select the wrong instance.
fn uuids_by_id(gpus: &[Gpu]) -> HashMap<String, Option<(&str, &str)>> {
    let mut found = HashMap::new();
    for gpu in gpus {
        let GpuIdentity { uuid, minor, .. } = &gpu.identity;
        found.entry(uuid.clone()).or_insert(Some((&**uuid, "")));
        if let Some(minor) = minor {
            // GKE and DRA name a GPU by the number in /dev/nvidia0.
            found.entry(format!("nvidia{minor}")).or_insert(Some((uuid, "")));
            found.entry(format!("gpu-{minor}")).or_insert(Some((uuid, "")));
        }
        for instance in &gpu.readings.mig {
            let mut ids = vec![instance.uuid.clone()];
            if let (Some(id), Some(compute)) = (instance.gpu_instance_id, instance.compute_instance_id) {
                // Format of drivers before 470.
                ids.push(format!("MIG-{uuid}/{id}/{compute}"));
            }
            if let (Some(minor), Some(id)) = (minor, instance.gpu_instance_id) {
                // Format of GKE.
                ids.push(format!("nvidia{minor}/gi{id}"));
            }
            if let (Some(minor), Some(profile)) = (minor, &instance.profile) {
                // Format of DRA. Instances with the same profile share the id.
                ids.push(format!("gpu-{minor}-mig-{}", profile.replace('.', "")));
            }
            for id in ids {
                found.entry(id).and_modify(|uuids| *uuids = None).or_insert(Some((uuid, &instance.uuid)));
            }
        }
    }
    // Older DRA drivers name a GPU by its index. If that is the minor number of another GPU, the name is ambiguous.
    for GpuIdentity { index, minor, .. } in gpus.iter().map(|gpu| &gpu.identity) {
        let (of_gpu, of_instance) = (format!("gpu-{index}"), format!("gpu-{index}-mig-"));
        let by_index = found.iter_mut().filter(|(id, _)| **id == of_gpu || id.starts_with(&of_instance));
        by_index.filter(|_| *minor != Some(*index)).for_each(|(_, uuids)| *uuids = None);
    }
    found
}

/// The id without the number of a share of a GPU (as in `GPU-…::2` and `nvidia0/vgpu1`), and without the placement that
/// follows the profile (as in `gpu-0-mig-1g18gb-19-0`).
fn without_suffix(id: &str) -> &str {
    let id = id.split_once("::").map_or(id, |(device, _)| device);
    let id = id.split_once("/vgpu").map_or(id, |(device, _)| device);
    let Some((_, instance)) = id.split_once("-mig-") else { return id };
    instance.split_once('-').map_or(id, |(_, placement)| &id[..id.len() - placement.len() - 1])
}

#[cfg(test)]
mod tests {
    use trtllm_records::gpu::{GpuReadings, GpuState, MigInstance};

    use super::*;

    fn instance(uuid: &str, gpu_instance: u32, profile: &str) -> MigInstance {
        MigInstance {
            uuid: uuid.to_owned(),
            gpu_instance_id: Some(gpu_instance),
            compute_instance_id: Some(0),
            profile: Some(profile.to_owned()),
            ..MigInstance::default()
        }
    }

    fn gpu(uuid: &str, minor: u32, mig: Vec<MigInstance>) -> Gpu {
        Gpu {
            identity: GpuIdentity { uuid: uuid.to_owned(), minor: Some(minor), ..GpuIdentity::default() },
            state: GpuState::Ok,
            readings: GpuReadings { mig, ..GpuReadings::default() },
            ..Gpu::default()
        }
    }

    #[test]
    fn a_number_that_is_the_index_of_one_gpu_and_the_minor_number_of_another_is_ambiguous() {
        let with_index = |index, gpu: Gpu| Gpu { identity: GpuIdentity { index, ..gpu.identity }, ..gpu };
        let mig = vec![instance("MIG-a", 1, "3g.71gb")];
        let gpus = [
            with_index(0, gpu("GPU-a", 1, mig)),
            with_index(1, gpu("GPU-b", 0, vec![])),
            with_index(2, gpu("GPU-c", 2, vec![])),
        ];
        let ids = uuids_by_id(&gpus);
        let known = ["gpu-0", "gpu-1", "gpu-1-mig-3g71gb", "gpu-2", "nvidia0"].map(|id| ids[id]);
        assert_eq!(known, [None, None, None, Some(("GPU-c", "")), Some(("GPU-b", ""))]);
    }

    #[test]
    fn each_device_id_format_resolves_to_its_gpu_or_instance() {
        let instances =
            vec![instance("MIG-a", 1, "3g.71gb"), instance("MIG-b", 5, "1g.18gb"), instance("MIG-c", 6, "1g.18gb")];
        let gpus = [gpu("GPU-a", 4, Vec::new()), gpu("GPU-b", 7, instances)];
        let found = |id: &str| {
            let text = || "x".to_owned();
            let (pod, container, device) = (PodName { namespace: text(), pod: text() }, text(), id.to_owned());
            let assignment = DeviceAssignment { pod, container, device, exclusive: true };
            let (found, _) = resolve(&[assignment.clone(), assignment], &gpus);
            assert!(found.len() <= 1, "duplicates are removed");
            found.into_iter().next().map(|device| (device.gpu_uuid, device.mig_uuid))
        };
        for (id, expected) in [
            ("GPU-a", Some(("GPU-a", ""))),
            ("GPU-a::1", Some(("GPU-a", ""))),
            ("MIG-b", Some(("GPU-b", "MIG-b"))),
            ("MIG-b::0", Some(("GPU-b", "MIG-b"))),
            ("MIG-GPU-b/5/0", Some(("GPU-b", "MIG-b"))),
            ("MIG-GPU-b/5/1", None),
            ("nvidia7", Some(("GPU-b", ""))),
            ("nvidia7/vgpu1", Some(("GPU-b", ""))),
            ("nvidia7/gi6", Some(("GPU-b", "MIG-c"))),
            ("nvidia7/gi6/vgpu1", Some(("GPU-b", "MIG-c"))),
            ("gpu-4", Some(("GPU-a", ""))),
            ("gpu-7-mig-3g71gb-9-0", Some(("GPU-b", "MIG-a"))),
            // Two instances have this profile, so the id is ambiguous.
            ("gpu-7-mig-1g18gb-19-4", None),
            ("gpu-7-mig-19-0-1", None),
            ("gpu-vfio-1", None),
            ("nvidia-fs", None),
            ("0000:00:1f.3", None),
            ("GPU-elsewhere", None),
            ("", None),
        ] {
            let expected = expected.map(|(gpu, mig)| (gpu.to_owned(), mig.to_owned()));
            assert_eq!(found(id), expected, "{id}");
        }
    }
}
