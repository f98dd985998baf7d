//! Readings of one GPU for which Triton has no metric.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlClockType_t, nvmlDevice_t, nvmlDeviceArchitecture_t, nvmlEnableState_t, nvmlProcessInfo_t,
    nvmlPstates_t, nvmlReturn_t, nvmlTemperatureThresholds_t,
};

use super::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, code, gpu, put};
use crate::state::{Code, Gpu, Mig, NOT_SUPPORTED};

/// Reads one of four keys. `kind` is the value of an NVML enum and the index of the key.
fn by_kind(gpu: &Gpu, kind: c_uint, keys: [&str; 4]) -> Result<c_uint, Code> {
    gpu.short(keys.get(kind as usize).ok_or(INVALID_ARGUMENT)?)
}

/// Utilisation of one unit of the GPU, such as the encoder, in percent. Not supported with MIG.
fn engine(device: nvmlDevice_t, call: &str, key: &str) -> Result<c_uint, Code> {
    let gpu = gpu(device, call)?;
    if gpu.mig == Mig::Off { gpu.short(key) } else { Err(NOT_SUPPORTED) }
}

values! {
    nvmlDeviceGetArchitecture(device: nvmlDevice_t) > architecture: *mut nvmlDeviceArchitecture_t =
        gpu(device, "architecture")?.short("architecture")?;
    nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t) > memory: *mut nvmlBAR1Memory_t = {
        let gpu = gpu(device, "bar1_memory_info")?;
        let (total, used) = (gpu.number("bar1_total_bytes")?, gpu.number("bar1_used_bytes")?);
        nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - used, bar1Used: used }
    };
    nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t) > milliwatts: *mut c_uint =
        gpu(device, "power_limit_default")?.short("default_power_limit_mw")?;
    nvmlDeviceGetTemperatureThreshold(device: nvmlDevice_t, kind: nvmlTemperatureThresholds_t) > celsius: *mut c_uint = {
        let keys = ["shutdown_celsius", "slowdown_celsius", "memory_max_celsius", "gpu_max_celsius"];
        by_kind(&*gpu(device, "temperature_threshold")?, kind, keys)?
    };
    nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: nvmlClockType_t) > megahertz: *mut c_uint = {
        let keys = ["clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz"];
        by_kind(&*gpu(device, "clock_info")?, kind, keys)?
    };
    nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, kind: nvmlClockType_t) > megahertz: *mut c_uint = {
        let keys = ["max_clock_graphics_mhz", "max_clock_sm_mhz", "max_clock_memory_mhz", "max_clock_video_mhz"];
        by_kind(&*gpu(device, "max_clock_info")?, kind, keys)?
    };
    nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t) > reasons: *mut c_ulonglong =
        gpu(device, "current_throttle_reasons")?.number("throttle_reasons")?;
    nvmlDeviceGetPerformanceState(device: nvmlDevice_t) > state: *mut nvmlPstates_t =
        gpu(device, "performance_state")?.short("performance_state")?;
    nvmlDeviceGetNumFans(device: nvmlDevice_t) > count: *mut c_uint = {
        let gpu = gpu(device, "fans")?;
        if gpu.fans.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        c_uint::try_from(gpu.fans.len()).map_err(|_| INVALID_ARGUMENT)?
    };
    nvmlDeviceGetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint) > percent: *mut c_uint =
        gpu(device, "fans")?.fans.get(fan as usize).copied().ok_or(INVALID_ARGUMENT)?;
    nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t) > generation: *mut c_uint =
        gpu(device, "pcie_link")?.short("pcie_gen")?;
    nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t) > generation: *mut c_uint =
        gpu(device, "pcie_link")?.short("pcie_gen_max")?;
    nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t) > lanes: *mut c_uint =
        gpu(device, "pcie_link")?.short("pcie_width")?;
    nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t) > lanes: *mut c_uint =
        gpu(device, "pcie_link")?.short("pcie_width_max")?;
    nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint) > active: *mut nvmlEnableState_t = {
        let gpu = gpu(device, "nvlink_state")?;
        let links = gpu.short("nvlinks")?;
        if links == 0 || gpu.nvlink_unused.contains(&link) {
            return Err(NOT_SUPPORTED);
        }
        if link >= links {
            return Err(INVALID_ARGUMENT);
        }
        nvmlEnableState_t::from(!gpu.nvlink_down.contains(&link))
    };
}

/// Defines symbols that write a percentage and its sampling period.
macro_rules! engines {
    ($($name:ident = $call:literal, $key:literal;)*) => {
        $(
            checked! { $name }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                device: nvmlDevice_t,
                percent: *mut c_uint,
                period_us: *mut c_uint,
            ) -> nvmlReturn_t {
                let value = engine(device, $call, $key);
                // SAFETY: NVML's callers pass null or pointers to one integer each.
                code(value.and_then(|value| unsafe { put(percent, value).and_then(|()| put(period_us, 167_000)) }))
            }
        )*
    };
}

engines! {
    nvmlDeviceGetEncoderUtilization = "encoder_utilization", "encoder_percent";
    nvmlDeviceGetDecoderUtilization = "decoder_utilization", "decoder_percent";
    nvmlDeviceGetJpgUtilization = "jpeg_utilization", "jpeg_percent";
    nvmlDeviceGetOfaUtilization = "ofa_utilization", "ofa_percent";
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: nvmlDevice_t,
    least: *mut c_uint,
    most: *mut c_uint,
) -> nvmlReturn_t {
    let limits = || {
        let gpu = gpu(device, "power_limit_constraints")?;
        Ok((gpu.short("min_power_limit_mw")?, gpu.short("max_power_limit_mw")?))
    };
    // SAFETY: NVML's callers pass null or pointers to one integer each.
    code(limits().and_then(|(low, high)| unsafe { put(least, low).and_then(|()| put(most, high)) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let result = || {
        let gpu = gpu(device, "processes")?;
        let processes = &gpu.processes;
        // SAFETY: NVML's callers pass null or a pointer to one integer.
        let room = unsafe { count.as_ref() }.copied().ok_or(INVALID_ARGUMENT)?;
        let found = c_uint::try_from(processes.len()).map_err(|_| INVALID_ARGUMENT)?;
        // SAFETY: as above.
        unsafe { put(count, found)? };
        if found > room {
            return Err(INSUFFICIENT_SIZE);
        }
        for (at, &(pid, bytes)) in processes.iter().enumerate() {
            let info = nvmlProcessInfo_t {
                pid,
                usedGpuMemory: bytes.unwrap_or(u64::MAX),
                gpuInstanceId: u32::MAX,
                computeInstanceId: u32::MAX,
            };
            // SAFETY: the caller's array has `room` elements, and `processes` is not longer.
            unsafe { put(infos.add(at), info)? };
        }
        Ok(())
    };
    code(result())
}

checked! { nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetComputeRunningProcesses_v3 }
