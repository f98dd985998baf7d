//! MIG instances. The handle of an instance is the handle of its GPU with the instance's slot + 1 in the upper bits.

use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{INVALID_ARGUMENT, NOT_FOUND, SLOT, code, gpu, handle, index_of, put};
use crate::session;
use crate::state::{Code, Gpu, Mig, MigDevice, NOT_SUPPORTED};

/// The GPU of a handle, and its MIG instance if the handle belongs to one.
pub(super) fn instance(device: nvmlDevice_t, call: &str) -> Result<(Arc<Gpu>, Option<MigDevice>), Code> {
    let Some(slot) = (device.addr() >> SLOT).checked_sub(1) else { return Ok((gpu(device, call)?, None)) };
    // In the control file, calls on an instance have their own names.
    let call = if call.starts_with("memory_info") { "mig_memory_info" } else { "mig_device" };
    let gpu = session::gpu(index_of(device)?, call)?;
    let slot = u32::try_from(slot).map_err(|_| INVALID_ARGUMENT)?;
    let instance = gpu.instances.get(&slot).cloned().ok_or(INVALID_ARGUMENT)?;
    Ok((gpu, Some(instance)))
}

fn mig(device: nvmlDevice_t) -> Result<MigDevice, Code> {
    instance(device, "mig_device")?.1.ok_or(INVALID_ARGUMENT)
}

values! {
    nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t) > count: *mut c_uint = {
        if gpu(device, "mig_device")?.mig == Mig::Off { 0 } else { 7 }
    };
    nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, slot: c_uint) > instance: *mut nvmlDevice_t = {
        let gpu = gpu(device, "mig_device")?;
        if gpu.mig == Mig::Off {
            return Err(NOT_SUPPORTED);
        }
        if !gpu.instances.contains_key(&slot) {
            return Err(NOT_FOUND);
        }
        ptr::without_provenance_mut(device.addr() | (slot as usize + 1) << SLOT)
    };
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: nvmlDevice_t) > device: *mut nvmlDevice_t = {
        mig(instance)?;
        handle(index_of(instance)?)
    };
    nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t) > id: *mut c_uint = mig(device)?.gpu_instance;
    nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t) > id: *mut c_uint = mig(device)?.compute_instance;
}
