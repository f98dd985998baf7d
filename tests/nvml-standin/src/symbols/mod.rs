//! The C ABI. The compiler checks the signatures against nvml-wrapper-sys (`checked!`), so a symbol cannot
//! differ from NVIDIA's header unnoticed. Results come from `session`.
#![allow(non_snake_case)] // NVML's names

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t, nvmlTemperatureSensors_t,
    nvmlUtilization_t,
};

use crate::session;
use crate::state::{Code, Gpu, Mig, NOT_SUPPORTED};

const SUCCESS: Code = 0;
const INVALID_ARGUMENT: Code = 2;
const NOT_FOUND: Code = 6;
const INSUFFICIENT_SIZE: Code = 7;
const ARGUMENT_VERSION_MISMATCH: Code = 25;

fn code(result: Result<(), Code>) -> nvmlReturn_t {
    result.err().unwrap_or(SUCCESS)
}

/// Writes through a caller's pointer. A null pointer gives INVALID_ARGUMENT, as in NVML.
///
/// # Safety
/// `target` is null or valid for writing a `T`.
unsafe fn put<T>(target: *mut T, value: T) -> Result<(), Code> {
    if target.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and valid for a write by this function's contract.
    unsafe { target.write(value) };
    Ok(())
}

/// Writes text with a terminating zero. A buffer that is too small gives INSUFFICIENT_SIZE.
///
/// # Safety
/// `target` is null or valid for writing `room` bytes.
unsafe fn put_text(target: *mut c_char, room: usize, text: &str) -> Result<(), Code> {
    if target.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= room {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and one more byte fit into `room`, which is writable by this function's contract; a fresh
    // allocation and the caller's buffer do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), target, text.len());
        target.add(text.len()).write(0);
    }
    Ok(())
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and zero-terminated by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID_ARGUMENT)
}

/// From this bit on, a handle contains the slot of a MIG instance + 1, or 0 for a whole GPU.
const SLOT: u32 = 16;

/// A handle is the index + 1 as a pointer that is never dereferenced.
fn handle(index: usize) -> nvmlDevice_t {
    ptr::without_provenance_mut(index + 1)
}

fn index_of(device: nvmlDevice_t) -> Result<usize, Code> {
    (device.addr() & ((1 << SLOT) - 1)).checked_sub(1).ok_or(INVALID_ARGUMENT)
}

/// The GPU of a call that, like most calls, does not support MIG instances.
fn gpu(device: nvmlDevice_t, call: &str) -> Result<Arc<Gpu>, Code> {
    let gpu = session::gpu(index_of(device)?, call)?;
    if device.addr() >> SLOT == 0 { Ok(gpu) } else { Err(NOT_SUPPORTED) }
}

/// Number of samples and event sets that the client has not freed.
pub(crate) fn leaked_objects() -> usize {
    gpm::leaked() + events::leaked()
}

fn find(matches: impl Fn(&Gpu) -> bool) -> Result<nvmlDevice_t, Code> {
    let index = session::in_session()?.gpus.iter().position(|gpu| matches(gpu)).ok_or(NOT_FOUND)?;
    session::gpu(index, "device_by_index").map(|_| handle(index))
}

/// The file from which this library was loaded.
pub(crate) fn library_path() -> Option<PathBuf> {
    let own: extern "C" fn() -> nvmlReturn_t = nvmlInit_v2;
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: dladdr reads any address and writes one Dl_info.
    let known = unsafe { libc::dladdr(own as *const c_void, &raw mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: dladdr succeeded, so the name is a C string that lives as long as this library.
    known.then(|| unsafe { CStr::from_ptr(info.dli_fname) }).map(|name| OsStr::from_bytes(name.to_bytes()).into())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    code(session::init())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    code(session::shutdown())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        9 => c"Driver Not Loaded",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        18 => c"Driver/library version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// Compiles only if each symbol has the type that the bindings expect.
macro_rules! checked {
    ($($name:ident)*) => {$(
        const _: fn(&mut nvml_wrapper_sys::bindings::NvmlLib) = |lib| lib.$name = Ok($name);
    )*};
}

/// Defines symbols that write one value for the caller. The expression may return early with a return code.
macro_rules! values {
    ($($name:ident($($arg:ident: $kind:ty),*) > $out:ident: *mut $result:ty = $value:expr;)*) => {$(
        checked! { $name }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind,)* $out: *mut $result) -> nvmlReturn_t {
            let value = (|| -> Result<$result, Code> { Ok($value) })();
            // SAFETY: NVML's callers pass null or a pointer to one value of this type.
            code(value.and_then(|value| unsafe { put($out, value) }))
        }
    )*};
}

mod events;
mod fields;
mod gpm;
mod health;
mod instances;
mod readings;

values! {
    nvmlSystemGetCudaDriverVersion() > version: *mut c_int = session::current()?.cuda;
    nvmlSystemGetCudaDriverVersion_v2() > version: *mut c_int = session::current()?.cuda;
    nvmlDeviceGetCount_v2() > count: *mut c_uint = c_uint::try_from(session::in_session()?.gpus.len()).unwrap_or(0);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint) > device: *mut nvmlDevice_t = {
        let index = usize::try_from(index).map_err(|_| INVALID_ARGUMENT)?;
        session::gpu(index, "device_by_index").map(|_| handle(index))?
    };
    nvmlDeviceGetHandleByUUID(uuid: *const c_char) > device: *mut nvmlDevice_t = {
        // SAFETY: NVML's callers pass null or a C string.
        let uuid = unsafe { text(uuid) }?;
        find(|gpu| gpu.uuid == uuid)?
    };
    nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char) > device: *mut nvmlDevice_t = {
        // SAFETY: NVML's callers pass null or a C string.
        let id = unsafe { text(id) }?;
        find(|gpu| gpu.pci_bus_id().eq_ignore_ascii_case(id))?
    };
    nvmlDeviceGetIndex(device: nvmlDevice_t) > index: *mut c_uint = {
        gpu(device, "index")?;
        c_uint::try_from(index_of(device)?).map_err(|_| INVALID_ARGUMENT)?
    };
    nvmlDeviceGetMinorNumber(device: nvmlDevice_t) > minor: *mut c_uint = {
        gpu(device, "minor_number")?;
        c_uint::try_from(index_of(device)?).map_err(|_| INVALID_ARGUMENT)?
    };
    nvmlDeviceGetUtilizationRates(device: nvmlDevice_t) > rates: *mut nvmlUtilization_t = {
        let gpu = gpu(device, "utilization_rates")?;
        if gpu.mig == Mig::On {
            return Err(NOT_SUPPORTED);
        }
        nvmlUtilization_t { gpu: gpu.short("utilization_percent")?, memory: gpu.short("memory_utilization_percent")? }
    };
    nvmlDeviceGetMemoryInfo(device: nvmlDevice_t) > memory: *mut nvmlMemory_t = {
        let Memory { total, used, reserved } = memory_of(device, "memory_info_v1")?;
        // The first version of this call has no field `reserved`. It counts reserved memory as used.
        let used = used.saturating_add(reserved);
        nvmlMemory_t { total, free: total.saturating_sub(used), used }
    };
    nvmlDeviceGetPowerUsage(device: nvmlDevice_t) > milliwatts: *mut c_uint =
        gpu(device, "power_usage")?.short("power_mw")?;
    nvmlDeviceGetPowerManagementLimit(device: nvmlDevice_t) > milliwatts: *mut c_uint =
        gpu(device, "power_management_limit")?.short("power_limit_mw")?;
    nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t) > milliwatts: *mut c_uint =
        gpu(device, "enforced_power_limit")?.short("enforced_power_limit_mw")?;
    nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t) > millijoules: *mut c_ulonglong =
        gpu(device, "total_energy_consumption")?.number("energy_mj")?;
    nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t) > celsius: *mut c_uint = {
        let gpu = gpu(device, "temperature")?;
        if sensor != 0 {
            return Err(INVALID_ARGUMENT);
        }
        gpu.short("temperature_celsius")?
    };
    nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t) > pci: *mut nvmlPciInfo_t = pci_info(&*gpu(device, "pci_info")?)?;
}

struct Memory {
    total: u64,
    used: u64,
    reserved: u64,
}

/// The memory of a GPU or a MIG instance.
fn memory_of(device: nvmlDevice_t, call: &str) -> Result<Memory, Code> {
    let (gpu, instance) = instances::instance(device, call)?;
    Ok(match instance {
        Some(instance) => Memory { total: instance.total_bytes, used: instance.used_bytes, reserved: 0 },
        None => Memory {
            total: gpu.number("memory_total_bytes")?,
            used: gpu.number("memory_used_bytes")?,
            reserved: gpu.number("memory_reserved_bytes")?,
        },
    })
}

fn pci_info(gpu: &Gpu) -> Result<nvmlPciInfo_t, Code> {
    let mut pci = nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: gpu.bus,
        device: 0,
        pciDeviceId: 0x2335_10de,
        pciSubSystemId: 0x18be_10de,
        busId: [0; 32],
    };
    let id = gpu.pci_bus_id();
    // SAFETY: both arrays are writable for their whole length. The legacy id has a domain of four digits.
    unsafe {
        put_text(pci.busId.as_mut_ptr(), pci.busId.len(), &id)?;
        put_text(pci.busIdLegacy.as_mut_ptr(), pci.busIdLegacy.len(), &id[4..])?;
    }
    Ok(pci)
}

/// Defines symbols that fill a caller's text buffer.
macro_rules! texts {
    ($($name:ident($($arg:ident: $kind:ty),*) = $value:expr;)*) => {$(
        checked! { $name }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind,)* text: *mut c_char, length: c_uint) -> nvmlReturn_t {
            let value = (|| -> Result<String, Code> { Ok($value) })();
            // SAFETY: NVML's callers pass null or a buffer of `length` bytes.
            code(value.and_then(|value| unsafe { put_text(text, length as usize, &value) }))
        }
    )*};
}

texts! {
    nvmlSystemGetDriverVersion() = session::in_session()?.driver.clone();
    nvmlSystemGetNVMLVersion() = session::current()?.nvml.clone();
    nvmlDeviceGetUUID(device: nvmlDevice_t) = match instances::instance(device, "uuid")? {
        (_, Some(instance)) => instance.uuid,
        (gpu, None) => gpu.uuid.clone(),
    };
    nvmlDeviceGetName(device: nvmlDevice_t) = match instances::instance(device, "name")? {
        (gpu, Some(instance)) => format!("{} MIG {}", gpu.name, instance.profile),
        (gpu, None) => gpu.name.clone(),
    };
    nvmlDeviceGetSerial(device: nvmlDevice_t) = gpu(device, "serial")?.serial.clone();
    nvmlDeviceGetVbiosVersion(device: nvmlDevice_t) = gpu(device, "vbios_version")?.vbios.clone();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    let mode = gpu(device, "mig_mode").map(|gpu| c_uint::from(gpu.mig != Mig::Off));
    // SAFETY: NVML's callers pass null or pointers to one integer each.
    code(mode.and_then(|mode| unsafe { put(current, mode).and_then(|()| put(pending, mode)) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    let version = (size_of::<nvmlMemory_v2_t>() | (2 << 24)) as c_uint;
    let result = || {
        let Memory { total, used, reserved } = memory_of(device, "memory_info")?;
        // SAFETY: NVML's callers pass null or one struct whose version is set.
        let requested = unsafe { memory.as_ref() }.ok_or(INVALID_ARGUMENT)?.version;
        if requested != version {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let value = nvmlMemory_v2_t {
            version,
            total,
            reserved,
            free: total.saturating_sub(used.saturating_add(reserved)),
            used,
        };
        // SAFETY: as above.
        unsafe { put(memory, value) }
    };
    code(result())
}

checked! { nvmlInit_v2 nvmlInitWithFlags nvmlShutdown nvmlErrorString nvmlDeviceGetMigMode nvmlDeviceGetMemoryInfo_v2 }
