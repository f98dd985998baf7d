//! GPM (GPU performance monitoring) samples. The metrics between two samples are the values that the control file had
//! when the second sample was taken.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlReturn_t};

use super::{ARGUMENT_VERSION_MISMATCH, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, code, gpu, put};
use crate::session;
use crate::state::{Code, Mig, NOT_SUPPORTED};

/// NVML's id of the only metric that this stand-in has for a MIG instance.
const SM_UTIL: u32 = 2;

/// The sample of each handle. `None` until the sample was taken.
static SAMPLES: Mutex<BTreeMap<usize, Option<BTreeMap<u32, f64>>>> = Mutex::new(BTreeMap::new());

fn samples() -> MutexGuard<'static, BTreeMap<usize, Option<BTreeMap<u32, f64>>>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn leaked() -> usize {
    samples().len()
}

fn fill(sample: nvmlGpmSample_t, values: BTreeMap<u32, f64>) -> Result<(), Code> {
    *samples().get_mut(&sample.addr()).ok_or(INVALID_ARGUMENT)? = Some(values);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let result = || {
        session::in_session()?;
        let mut samples = samples();
        let number = samples.last_key_value().map_or(1, |(last, _)| last + 1);
        samples.insert(number, None);
        // SAFETY: NVML's callers pass null or a pointer to one handle.
        unsafe { put(sample, ptr::without_provenance_mut(number)) }
    };
    code(result())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    code(samples().remove(&sample.addr()).map(drop).ok_or(INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let result = || {
        let gpu = gpu(device, "gpm")?;
        if gpu.mig != Mig::Off || gpu.short("gpm_supported")? == 0 {
            return Err(NOT_SUPPORTED);
        }
        fill(sample, gpu.gpm.clone())
    };
    code(result())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: nvmlDevice_t, instance: c_uint, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let result = || {
        let gpu = gpu(device, "gpm")?;
        let found = gpu.instances.values().find(|mig| mig.gpu_instance == instance).ok_or(NOT_FOUND)?;
        fill(sample, BTreeMap::from([(SM_UTIL, found.sm_percent)]))
    };
    code(result())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    let result = || {
        session::in_session()?;
        // SAFETY: NVML's callers pass null or one struct.
        let request = unsafe { request.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        if request.version != 1 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let samples = samples();
        let taken =
            |sample: nvmlGpmSample_t| samples.get(&sample.addr()).and_then(Option::as_ref).ok_or(INVALID_ARGUMENT);
        taken(request.sample1)?;
        let values = taken(request.sample2)?;
        if request.sample1 == request.sample2 {
            return Err(INVALID_ARGUMENT);
        }
        for metric in request.metrics.iter_mut().take(request.numMetrics as usize) {
            metric.nvmlReturn = if values.contains_key(&metric.metricId) { SUCCESS } else { NOT_SUPPORTED };
            metric.value = values.get(&metric.metricId).copied().unwrap_or(0.0);
        }
        Ok(())
    };
    code(result())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, support: *mut nvmlGpmSupport_t) -> nvmlReturn_t {
    let result = || {
        let supported = gpu(device, "gpm")?.short("gpm_supported")?;
        // SAFETY: NVML's callers pass null or one struct.
        let support = unsafe { support.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        if support.version != 1 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        support.isSupportedDevice = supported;
        Ok(())
    };
    code(result())
}

checked! { nvmlGpmSampleAlloc nvmlGpmSampleFree nvmlGpmSampleGet nvmlGpmMigSampleGet nvmlGpmMetricsGet nvmlGpmQueryDeviceSupport }
