//! Writes the GPUs under dcgm-exporter's names, with its units and labels. The label with the host's name has two
//! spellings, because dcgm-exporter's releases differ and each reader needs one of them.

use std::sync::Arc;

use trtllm_records::gpu::{Gpu, GpuInventory, GpuState, MigInstance, PodName};

use super::catalog::table::dcgm::{self, DcgmReadings};
use super::page::{Labels, Page};
use super::series_labels::SeriesLabels;
use super::writer::SeriesWriter;

/// Every sample of a GPU has all labels, because AIPerf takes a GPU's name from the first sample.
pub(super) fn dcgm_page(inventory: &GpuInventory, host: &str, page: &mut Page) {
    for gpu in &inventory.gpus {
        let labels = Arc::new(labels(gpu, inventory, host));
        let instances = &gpu.readings.mig;
        let has_xid = gpu.reports_xids && gpu.state == GpuState::Ok;
        // As in dcgm-exporter, only the MIG instances of such a GPU have memory and activity, so a sum counts them
        // once.
        let is_whole = instances.is_empty();
        let readings = DcgmReadings {
            gpu: Some(&gpu.readings),
            xid: has_xid.then(|| gpu.last_xid.unwrap_or(0)),
            memory: is_whole.then_some(&gpu.readings.memory),
            activity: is_whole.then_some(&gpu.readings.activity),
        };
        let pod = with_pod(&labels, inventory, &gpu.identity.uuid, "");
        SeriesWriter::new(page, &SeriesLabels::new(pod, &[])).table(dcgm::WRITE, &readings);
        for instance in instances {
            let labels = Arc::new(instance_labels(&labels, instance));
            let labels = with_pod(&labels, inventory, &gpu.identity.uuid, &instance.uuid);
            let (memory, activity) = (Some(&instance.memory), Some(&instance.activity));
            let readings = DcgmReadings { gpu: None, xid: None, memory, activity };
            SeriesWriter::new(page, &SeriesLabels::new(labels, &[])).table(dcgm::WRITE, &readings);
        }
    }
}

fn labels(gpu: &Gpu, inventory: &GpuInventory, host: &str) -> Labels {
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

/// Adds the labels of the pod that uses the device. A device shared by several pods gets none: one sample for each pod
/// would count the device several times, and `nv_gpu_pod_info` lists the pods.
fn with_pod(labels: &Arc<Labels>, inventory: &GpuInventory, gpu_uuid: &str, mig_uuid: &str) -> Arc<Labels> {
    let mut owners = inventory.pods.iter().filter(|pod| pod.gpu_uuid == gpu_uuid && pod.mig_uuid == mig_uuid);
    match (owners.next(), owners.next()) {
        (Some(owner), None) => {
            let PodName { namespace, pod } = &owner.pod;
            let pod = [("container", &owner.container), ("namespace", namespace), ("pod", pod)];
            Arc::new(Labels::extend(labels, pod.map(|(name, value)| (name, value.clone()))))
        }
        _ => Arc::clone(labels),
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Id;
    use super::*;
    use trtllm_records::gpu::{GpuIdentity, GpuMemory, GpuReadings, PodDevice};

    fn pod(gpu: &str, mig: &str, name: &str) -> PodDevice {
        let text = str::to_owned;
        PodDevice {
            gpu_uuid: text(gpu),
            mig_uuid: text(mig),
            pod: PodName { namespace: text("prod"), pod: text(name) },
            container: text("c"),
        }
    }

    fn inventory(mig: Vec<MigInstance>, pods: Vec<PodDevice>) -> GpuInventory {
        let memory = GpuMemory { used_bytes: Some(3 << 20), ..GpuMemory::default() };
        let gpu = Gpu {
            identity: GpuIdentity { uuid: "GPU-a".to_owned(), ..GpuIdentity::default() },
            state: GpuState::Ok,
            readings: GpuReadings { memory, power_usage_watts: Some(70.0), mig, ..GpuReadings::default() },
            ..Gpu::default()
        };
        GpuInventory { gpus: vec![gpu], pods, ..GpuInventory::default() }
    }

    /// The labels of each sample of a family.
    fn series(inventory: &GpuInventory, id: Id) -> Vec<String> {
        let mut page = Page::default();
        dcgm_page(inventory, "h", &mut page);
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
