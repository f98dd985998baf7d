//! One thread an initialisation that waits for Xid errors of all GPUs. It may hang inside NVML like a worker; nothing
//! waits for it but the end of its session.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::event::{Event, now_us};
use super::raw;

/// One wait: how late a new GPU is registered and how long the end of a session takes.
const WAIT: Duration = Duration::from_millis(200);
/// Of NVML's own code for an Xid that it could not read.
const UNKNOWN_XID: u64 = 999;

/// Reports until the leash is cut: `gpus` may be held by a worker that hangs. `gpus`: NVML indexes, each when its GPU has answered; one that comes again is
/// registered again, since a GPU that was reset may have lost its registration.
pub(super) fn listen(
    nvml: &Nvml,
    session: u64,
    gpus: &Receiver<u32>,
    leash: &Receiver<Infallible>,
    reports: &Sender<Event>,
) {
    // The wrapper frees a set with `expect` when it is dropped (0.13).
    if nvml.lib().nvmlEventSetFree.is_err() {
        return;
    }
    let Ok(set) = nvml.create_event_set() else { return };
    let mut indexes: HashMap<usize, u32> = HashMap::new();
    while leash.try_recv() != Err(TryRecvError::Disconnected) {
        while let Ok(index) = gpus.try_recv() {
            // A GPU without events (vGPU, WSL) is left out; whatever else fails, its worker says better.
            if let Ok(device) = nvml.device_by_index(index)
                && raw::register_xids(&device, &set).is_ok()
            {
                indexes.insert(raw::handle_of(&device), index);
                let _ = reports.send(Event::HearsXids { session, index });
            }
        }
        match set.wait(WAIT.as_millis() as u32) {
            Ok(event) => {
                let code = match event.event_data {
                    Some(XidError::Value(code)) => code,
                    Some(XidError::Unknown) => UNKNOWN_XID,
                    None => continue,
                };
                let Some(&index) = indexes.get(&raw::handle_of(&event.device)) else { continue };
                if reports.send(Event::Xid { session, index, code, at_us: now_us() }).is_err() {
                    return;
                }
            }
            Err(NvmlError::Timeout) => {}
            // Whatever it is, it may come back at once: wait here instead.
            Err(_) => thread::sleep(WAIT),
        }
    }
}
