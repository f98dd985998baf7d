//! Field values: one call returns many numbers, each with its own return code.

use std::ffi::c_int;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t};

use super::{INVALID_ARGUMENT, SUCCESS, code, gpu};
use crate::defaults::value_type;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    let result = || {
        let gpu = gpu(device, "field_values")?;
        let count = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
        if values.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and NVML's callers pass an array of `count` elements.
        for field in unsafe { std::slice::from_raw_parts_mut(values, count) } {
            match gpu.field(field.fieldId, field.scopeId) {
                Ok(value) => {
                    field.nvmlReturn = SUCCESS;
                    field.valueType = value_type(field.fieldId);
                    // Like NVML, write only the member that the type names.
                    match u32::try_from(value) {
                        Ok(short) if field.valueType == 1 => field.value.uiVal = short,
                        _ => field.value = nvmlValue_t { ullVal: value },
                    }
                }
                Err(failure) => field.nvmlReturn = failure,
            }
        }
        Ok(())
    };
    code(result())
}

checked! { nvmlDeviceGetFieldValues }
