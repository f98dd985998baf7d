//! MIG instances of one GPU. They are enumerated at every poll and no handle is kept, because NVML may reuse the handle
//! of a destroyed instance for another instance.

use std::collections::BTreeSet;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::gpm::GpmSampler;
use super::limits::{IMPOSSIBLE, is_blank};
use super::probe::{CallFailure, Probe};
use super::raw;
use trtllm_records::gpu::MigInstance;

/// Maximum number of instances that are read, which is more than any GPU has. It limits the loop.
const MOST_INSTANCES: u32 = 32;

/// The MIG instances of a GPU. NVML reports only the memory of an instance and, on Hopper and later, the activity of
/// its GPU instance.
pub(super) fn instances<'nvml>(
    device: &Device<'nvml>,
    gpm: &mut GpmSampler<'nvml>,
    probe: &mut Probe<'_>,
) -> Vec<MigInstance> {
    // NVML returns the maximum number of instances here, not the current number.
    let slots = probe.call("mig_device_count", || device.mig_device_count()).unwrap_or(0).min(MOST_INSTANCES);
    let mut uuids = BTreeSet::new();
    (0..slots)
        .filter_map(|slot| {
            let instance = probe.call("mig_device", || match device.mig_device_by_index(slot) {
                // The slot is empty.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => Ok(None),
                instance => instance.map(Some),
            });
            let instance = instance.flatten()?;
            let uuid = probe.call("mig_uuid", || instance.uuid())?;
            // Without a UUID of its own, its series would be those of another instance.
            if is_blank(&uuid) || !uuids.insert(uuid.clone()) {
                probe.failures.push(CallFailure { call: "mig_uuid", error: IMPOSSIBLE });
                return None;
            }
            let gpu_instance_id = probe.call("gpu_instance_id", || raw::gpu_instance_id(&instance));
            Some(MigInstance {
                uuid,
                gpu_instance_id,
                compute_instance_id: probe.call("compute_instance_id", || raw::compute_instance_id(&instance)),
                profile: probe.call("mig_name", || instance.name()).as_deref().and_then(profile).map(str::to_owned),
                memory: probe.memory("mig_memory_info", &instance),
                activity: gpu_instance_id
                    .map(|gpu_instance| gpm.read(device, Some(gpu_instance), probe))
                    .unwrap_or_default(),
            })
        })
        .collect()
}

/// The last part of a name like `NVIDIA H200 MIG 1g.18gb`.
fn profile(name: &str) -> Option<&str> {
    name.split_once(" MIG ").map(|(_, profile)| profile.trim()).filter(|profile| !profile.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_last_part_of_the_name() {
        assert_eq!(profile("NVIDIA H200 MIG 1g.18gb"), Some("1g.18gb"));
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), Some("1c.3g.20gb"));
        assert_eq!(profile("NVIDIA H200"), None);
    }
}
