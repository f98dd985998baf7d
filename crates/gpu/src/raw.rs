//! The NVML calls that nvml-wrapper 0.13 lacks or implements in a way we cannot use. They go through its symbol table, so a
//! symbol that the driver lacks is an error, not a crash. All unsafe code of this crate is here.
//! Every block relies on this: [`Device`] borrows its [`Nvml`](nvml_wrapper::Nvml). So while the call runs, the library is
//! loaded and initialised, and the handle is valid.
#![allow(unsafe_code)] // calls C function pointers; each block says why that is sound

use std::ffi::OsStr;
use std::mem;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, EventSet};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlEccSramErrorStatus_v1_t, nvmlEventTypeXidCriticalError, nvmlFieldValue_t, nvmlMemory_t,
};

use super::fields::NvmlField;
use trtllm_records::gpu::GpuMemory;

/// Calls a function of NVML's symbol table with the device's handle and these arguments.
macro_rules! call {
    ($device:ident.$function:ident($($argument:expr),*)) => {
        nvml_sym($device.nvml().lib().$function.as_ref()).and_then(|function| {
            // SAFETY: see the module. Each argument is a number, an event set that borrows the same library, or a pointer to
            // a local value of the type that the function fills, which the compiler checks.
            nvml_try(unsafe { function($device.handle(), $($argument),*) })
        })
    };
}

/// NVML's `NVML_VALUE_TYPE_*`.
const DOUBLE: u32 = 0;
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG: u32 = 2;
const UNSIGNED_LONG_LONG: u32 = 3;
const SIGNED_LONG_LONG: u32 = 4;
const SIGNED_INT: u32 = 5;
const UNSIGNED_SHORT: u32 = 6;

/// Whether this file is a library without the symbol nvmlShutdown.
pub(super) fn lacks_shutdown(library: &OsStr) -> bool {
    // SAFETY: loading runs the library's initialisers, as nvml-wrapper's own loading of the same file does.
    unsafe { NvmlLib::new(library) }.is_ok_and(|library| library.nvmlShutdown.is_err())
}

/// The results, in the order of `fields`. They are matched by order, because the driver may return a field under
/// another id (driver 580.82 renumbered some fields). nvml-wrapper's own call omits the scope, which NVLink counters
/// need, and truncates unsigned long to 32 bits.
pub(super) fn field_values(
    device: &Device<'_>,
    fields: &[NvmlField],
) -> Result<Vec<Result<u64, NvmlError>>, NvmlError> {
    // SAFETY: integers and a union of numbers, for which all zeros are a valid value.
    let blank: nvmlFieldValue_t = unsafe { mem::zeroed() };
    let requests = fields.iter().map(|field| nvmlFieldValue_t { fieldId: field.id, scopeId: field.scope, ..blank });
    let mut values: Vec<nvmlFieldValue_t> = requests.collect();
    let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
    // `values` has `count` elements.
    call!(device.nvmlDeviceGetFieldValues(count, values.as_mut_ptr()))?;
    Ok(values.iter().map(number).collect())
}

/// The value of a field, which is a count or a size. A negative value or NaN is an error.
fn number(field: &nvmlFieldValue_t) -> Result<u64, NvmlError> {
    nvml_try(field.nvmlReturn)?;
    let signed = |value: i64| u64::try_from(value).map_err(|_| NvmlError::NoData);
    let value = &field.value;
    // SAFETY: every member of the union is a number that is valid for all bits, and the union was zeroed before the call.
    unsafe {
        match field.valueType {
            DOUBLE if value.dVal >= 0.0 => Ok(value.dVal as u64),
            DOUBLE => Err(NvmlError::NoData),
            UNSIGNED_INT => Ok(u64::from(value.uiVal)),
            UNSIGNED_LONG => Ok(value.ulVal),
            UNSIGNED_LONG_LONG => Ok(value.ullVal),
            SIGNED_LONG_LONG => signed(value.sllVal),
            SIGNED_INT => signed(i64::from(value.siVal)),
            UNSIGNED_SHORT => Ok(u64::from(value.usVal)),
            other => Err(NvmlError::UnexpectedVariant(other)),
        }
    }
}

/// Uses the second version of the NVML call. With drivers older than 510, uses the first version, which counts reserved
/// memory as used.
pub(super) fn memory(device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let (total, used, free, reserved) = match device.memory_info() {
        Ok(memory) => (memory.total, memory.used, memory.free, Some(memory.reserved)),
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::UnexpectedVariant(25)) => {
            let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
            call!(device.nvmlDeviceGetMemoryInfo(&raw mut memory))?;
            (memory.total, memory.used, memory.free, None)
        }
        Err(error) => return Err(error),
    };
    Ok(GpuMemory { total_bytes: Some(total), used_bytes: Some(used), free_bytes: Some(free), reserved_bytes: reserved })
}

/// The GPU instance of a MIG device.
pub(super) fn gpu_instance_id(device: &Device<'_>) -> Result<u32, NvmlError> {
    let mut id = 0;
    call!(device.nvmlDeviceGetGpuInstanceId(&raw mut id)).map(|()| id)
}

/// The compute instance of a MIG device.
pub(super) fn compute_instance_id(device: &Device<'_>) -> Result<u32, NvmlError> {
    let mut id = 0;
    call!(device.nvmlDeviceGetComputeInstanceId(&raw mut id)).map(|()| id)
}

/// Utilisation of the JPEG engine in percent.
pub(super) fn jpeg_utilization(device: &Device<'_>) -> Result<u32, NvmlError> {
    let (mut percent, mut period_us) = (0, 0);
    call!(device.nvmlDeviceGetJpgUtilization(&raw mut percent, &raw mut period_us)).map(|()| percent)
}

/// Utilisation of the optical flow engine in percent.
pub(super) fn ofa_utilization(device: &Device<'_>) -> Result<u32, NvmlError> {
    let (mut percent, mut period_us) = (0, 0);
    call!(device.nvmlDeviceGetOfaUtilization(&raw mut percent, &raw mut period_us)).map(|()| percent)
}

/// 1 if uncorrected SRAM errors reached NVIDIA's threshold for replacing the GPU, otherwise 0. Needs driver 535 or later.
pub(super) fn sram_ecc_threshold_exceeded(device: &Device<'_>) -> Result<u32, NvmlError> {
    // SAFETY: integers, for which all zeros are a valid value.
    let mut status: nvmlEccSramErrorStatus_v1_t = unsafe { mem::zeroed() };
    // NVML encodes a struct's version as its size plus a version number in the top byte.
    status.version = (mem::size_of::<nvmlEccSramErrorStatus_v1_t>() as u32) | 1 << 24;
    call!(device.nvmlDeviceGetSramEccErrorStatus(&raw mut status))?;
    Ok(status.bThresholdExceeded)
}

/// Registers a GPU's Xid errors with the event set. On an error, nvml-wrapper's own call would free the set with all other
/// GPUs in it.
pub(super) fn register_xids(device: &Device<'_>, set: &EventSet<'_>) -> Result<(), NvmlError> {
    call!(device.nvmlDeviceRegisterEvents(u64::from(nvmlEventTypeXidCriticalError), set.handle()))
}

/// A number that identifies a GPU during one session. It is only compared; the address is never dereferenced.
pub(super) fn handle_address(device: &Device<'_>) -> usize {
    // SAFETY: the handle is only compared.
    unsafe { device.handle() }.addr()
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings::nvmlValue_t;

    use super::*;

    fn field(kind: u32, value: nvmlValue_t) -> nvmlFieldValue_t {
        nvmlFieldValue_t { fieldId: 1, scopeId: 0, timestamp: 0, latencyUsec: 0, valueType: kind, nvmlReturn: 0, value }
    }

    #[test]
    fn no_value_type_is_truncated() {
        let big = 1 << 40;
        let value = |kind, value| number(&field(kind, value)).ok();
        assert_eq!(value(UNSIGNED_LONG, nvmlValue_t { ulVal: big }), Some(big));
        assert_eq!(value(UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: u64::MAX }), Some(u64::MAX));
        assert_eq!(value(UNSIGNED_SHORT, nvmlValue_t { usVal: 7 }), Some(7));
        assert_eq!(value(SIGNED_INT, nvmlValue_t { siVal: 9 }), Some(9));
        assert_eq!(value(DOUBLE, nvmlValue_t { dVal: 2.0 }), Some(2));
    }

    #[test]
    fn a_value_that_cannot_be_a_count_is_an_error() {
        let error = |kind, value| number(&field(kind, value)).unwrap_err();
        assert!(matches!(error(SIGNED_INT, nvmlValue_t { siVal: -1 }), NvmlError::NoData));
        assert!(matches!(error(DOUBLE, nvmlValue_t { dVal: f64::NAN }), NvmlError::NoData));
        assert!(matches!(error(99, nvmlValue_t { ullVal: 1 }), NvmlError::UnexpectedVariant(99)));
        let failed = nvmlFieldValue_t { nvmlReturn: 3, ..field(UNSIGNED_INT, nvmlValue_t { uiVal: 1 }) };
        assert!(matches!(number(&failed), Err(NvmlError::NotSupported)));
    }
}
