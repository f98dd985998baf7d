//! ECC errors by location on the GPU, and the utilisation of processes.

use std::ffi::{c_uint, c_ulonglong};
use std::mem;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEccCounterType_t, nvmlEccSramErrorStatus_t, nvmlMemoryErrorType_t, nvmlMemoryLocation_t,
    nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

use super::{ARGUMENT_VERSION_MISMATCH, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, code, gpu, put};
use crate::state::{Code, Mig, NOT_SUPPORTED};

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryErrorCounter(
    device: nvmlDevice_t,
    error: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    location: nvmlMemoryLocation_t,
    count: *mut c_ulonglong,
) -> nvmlReturn_t {
    let result = || gpu(device, "ecc_counter")?.ecc.get(&(location, counter, error)).copied().ok_or(NOT_SUPPORTED);
    // SAFETY: NVML's callers pass null or a pointer to one integer.
    code(result().and_then(|value| unsafe { put(count, value) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSramEccErrorStatus(
    device: nvmlDevice_t,
    status: *mut nvmlEccSramErrorStatus_t,
) -> nvmlReturn_t {
    let result = || {
        let gpu = gpu(device, "sram_ecc_status")?;
        let exceeded = gpu.short("sram_threshold_exceeded")?;
        // SAFETY: NVML's callers pass null or a pointer to one such struct.
        let status = unsafe { status.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        if status.version != (mem::size_of::<nvmlEccSramErrorStatus_t>() as c_uint) | 1 << 24 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        status.bThresholdExceeded = exceeded;
        Ok(())
    };
    code(result())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    after_us: c_ulonglong,
) -> nvmlReturn_t {
    let result = || -> Result<(), Code> {
        let gpu = gpu(device, "process_utilization")?;
        if gpu.mig != Mig::Off {
            return Err(NOT_SUPPORTED);
        }
        let found: Vec<_> = gpu.process_utilization.iter().filter(|(_, _, at_us)| *at_us > after_us).collect();
        if found.is_empty() {
            return Err(NOT_FOUND);
        }
        // SAFETY: NVML's callers pass null or a pointer to one integer.
        let room = unsafe { count.as_ref() }.copied().ok_or(INVALID_ARGUMENT)?;
        // SAFETY: as above.
        unsafe { put(count, found.len() as c_uint)? };
        if samples.is_null() || found.len() > room as usize {
            return Err(INSUFFICIENT_SIZE);
        }
        for (at, &&(pid, percent, at_us)) in found.iter().enumerate() {
            let sample = nvmlProcessUtilizationSample_t {
                pid,
                timeStamp: at_us,
                smUtil: percent,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            };
            // SAFETY: the caller's array has `room` elements, and `found` is not longer.
            unsafe { put(samples.add(at), sample)? };
        }
        Ok(())
    };
    code(result())
}

checked! { nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetProcessUtilization }
