//! Event sets. An Xid error that is appended to a GPU's list after the GPU was registered is an event.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use super::{INVALID_ARGUMENT, code, gpu, handle, index_of, put};
use crate::session;
use crate::state::Code;

const TIMEOUT: Code = 10;
/// Time between two reads of the control file during a wait.
const STEP: Duration = Duration::from_millis(100);

/// For each handle of an event set: how many Xid errors of each GPU have been delivered.
static SETS: Mutex<BTreeMap<usize, BTreeMap<usize, usize>>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<usize, BTreeMap<usize, usize>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn leaked() -> usize {
    sets().len()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    let result = || {
        session::in_session()?;
        let mut sets = sets();
        let number = sets.last_key_value().map_or(1, |(last, _)| last + 1);
        sets.insert(number, BTreeMap::new());
        // SAFETY: NVML's callers pass null or a pointer to one handle.
        unsafe { put(set, ptr::without_provenance_mut(number)) }
    };
    code(result())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    code(sets().remove(&set.addr()).map(drop).ok_or(INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, types: c_ulonglong, set: nvmlEventSet_t) -> nvmlReturn_t {
    let result = || {
        let delivered = gpu(device, "events")?.xids.len();
        if types & c_ulonglong::from(nvmlEventTypeXidCriticalError) != 0 {
            sets().get_mut(&set.addr()).ok_or(INVALID_ARGUMENT)?.entry(index_of(device)?).or_insert(delivered);
        }
        Ok(())
    };
    code(result())
}

/// The next event that has not been delivered.
fn next(set: nvmlEventSet_t) -> Result<Option<nvmlEventData_t>, Code> {
    let state = session::in_session()?;
    let mut sets = sets();
    for (index, delivered) in sets.get_mut(&set.addr()).ok_or(INVALID_ARGUMENT)? {
        let xids = state.gpus.get(*index).map_or(&[][..], |gpu| &gpu.xids);
        *delivered = (*delivered).min(xids.len());
        if let Some(xid) = xids.get(*delivered) {
            *delivered += 1;
            return Ok(Some(nvmlEventData_t {
                device: handle(*index),
                eventType: u64::from(nvmlEventTypeXidCriticalError),
                eventData: *xid,
                gpuInstanceId: u32::MAX,
                computeInstanceId: u32::MAX,
            }));
        }
    }
    Ok(None)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    let end = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    let event = loop {
        match next(set) {
            Ok(Some(event)) => break Ok(event),
            Ok(None) if Instant::now() >= end => break Err(TIMEOUT),
            Ok(None) => thread::sleep(STEP),
            Err(failure) => break Err(failure),
        }
    };
    // SAFETY: NVML's callers pass null or a pointer to one struct.
    code(event.and_then(|event| unsafe { put(data, event) }))
}

checked! { nvmlEventSetCreate nvmlEventSetFree nvmlDeviceRegisterEvents nvmlEventSetWait_v2 }
