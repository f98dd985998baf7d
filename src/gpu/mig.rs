//! MIG instances of one GPU. Walked anew at every poll: NVML may hand out the handle of a destroyed instance again for
//! another one, so none is kept.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::gpm::Gpm;
use super::probe::Probe;
use super::raw;
use crate::model::gpu::MigInstance;

/// More than any GPU has.
const MOST_INSTANCES: u32 = 32;

/// Every instance there is. What NVML has of one: memory and, on Hopper and later, how busy its GPU instance is.
pub(super) fn instances<'nvml>(
    device: &Device<'nvml>,
    gpm: &mut Gpm<'nvml>,
    probe: &mut Probe<'_>,
) -> Vec<MigInstance> {
    // The most there can be, not how many there are.
    let slots = probe.ask("mig_device_count", || device.mig_device_count()).unwrap_or(0).min(MOST_INSTANCES);
    (0..slots)
        .filter_map(|slot| {
            let instance = probe.ask("mig_device", || match device.mig_device_by_index(slot) {
                // An empty slot.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => Ok(None),
                instance => instance.map(Some),
            });
            let instance = instance.flatten()?;
            let uuid = probe.ask("mig_uuid", || instance.uuid())?;
            let gpu_instance_id = probe.ask("gpu_instance_id", || raw::gpu_instance_id(&instance));
            Some(MigInstance {
                uuid,
                gpu_instance_id,
                compute_instance_id: probe.ask("compute_instance_id", || raw::compute_instance_id(&instance)),
                profile: probe.ask("mig_name", || instance.name()).as_deref().and_then(profile).map(str::to_owned),
                memory: probe.ask("mig_memory_info", || raw::memory(&instance)).unwrap_or_default(),
                activity: gpu_instance_id
                    .map(|gpu_instance| gpm.read(device, Some(gpu_instance), probe))
                    .unwrap_or_default(),
            })
        })
        .collect()
}

/// `NVIDIA H200 MIG 1g.18gb` ends in the profile.
fn profile(name: &str) -> Option<&str> {
    name.split_once(" MIG ").map(|(_, profile)| profile.trim()).filter(|profile| !profile.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_tail_of_the_name() {
        assert_eq!(profile("NVIDIA H200 MIG 1g.18gb"), Some("1g.18gb"));
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), Some("1c.3g.20gb"));
        assert_eq!(profile("NVIDIA H200"), None);
    }
}
