//! The thread that waits for Xid errors of all GPUs, one per session. It may hang in an NVML call like a worker; only
//! the end of its session waits for it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::clock::now_us;
use super::event::{Event, WorkerOutcome, WorkerReport};
use super::limits::XID;
use super::nvml::Session;
use super::raw;
use super::threads::StopSignal;

/// Length of one wait. It limits how late a GPU is registered and how long the end of a session takes.
const WAIT: Duration = Duration::from_millis(200);
/// Maximum number of errors that are read in one [`PERIOD`]. Further errors wait in the driver.
const MOST_AT_ONCE: u32 = 64;
const PERIOD: Duration = Duration::from_secs(1);
/// NVML's own code for an Xid error that it could not read.
const UNKNOWN_XID: u64 = 999;

/// Runs until it is asked to stop. `indexes`: NVML indexes of GPUs to register, each sent when its GPU is identified.
/// An index that is sent again is registered again, because a reset GPU may have lost its registration.
pub(super) fn run(session: &Session, indexes: &Receiver<u32>, stop: &StopSignal, events: &Sender<Event>) {
    let nvml = &session.nvml;
    // nvml-wrapper 0.13 frees the event set in its Drop and panics without this symbol.
    if nvml.lib().nvmlEventSetFree.is_err() {
        return;
    }
    let Ok(set) = nvml.create_event_set() else { return };
    let report = |index, outcome| {
        events
            .send(Event::Report(WorkerReport { session: session.number, index, outcome, failures: Vec::new() }))
            .is_ok()
    };
    let mut registered: HashMap<usize, u32> = HashMap::new();
    let (mut period, mut taken) = (Instant::now(), 0);
    while !stop.wait(if taken < MOST_AT_ONCE { Duration::ZERO } else { PERIOD.saturating_sub(period.elapsed()) }) {
        if period.elapsed() >= PERIOD {
            (period, taken) = (Instant::now(), 0);
        }
        while let Ok(index) = indexes.try_recv() {
            // A GPU without events (vGPU, WSL) is skipped. Its worker reports every other problem.
            if let Ok(device) = nvml.device_by_index(index)
                && raw::register_xids(&device, &set).is_ok()
            {
                registered.insert(raw::handle_address(&device), index);
                report(index, WorkerOutcome::XidsRegistered);
            }
        }
        match set.wait(WAIT.as_millis() as u32) {
            Ok(event) => {
                taken += 1;
                let code = match event.event_data {
                    Some(XidError::Value(code)) if XID.contains(&code) => code,
                    Some(XidError::Value(_) | XidError::Unknown) => UNKNOWN_XID,
                    None => continue,
                };
                let Some(&index) = registered.get(&raw::handle_address(&event.device)) else { continue };
                if !report(index, WorkerOutcome::Xid { code, at_us: now_us() }) {
                    return;
                }
            }
            Err(NvmlError::Timeout) => {}
            // Any other error may return at once; wait here to avoid a busy loop.
            Err(_) => thread::sleep(WAIT),
        }
    }
}
