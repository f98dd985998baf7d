//! GPU telemetry through NVML. Each change is published as one complete, immutable [`GpuInventory`]; readers never call
//! NVML. This crate knows no metrics and serves no HTTP. In reading order: `config`, `supervisor`, `worker` (one thread
//! per GPU), `tracker` (pure state), `counters` (totals of a GPU), `nvml` (initialisation and errors), `probe` (the rules of
//! every call), then the files that read values: `readings`, `limits`, `gpm`, `mig`, `processes`, `xid_events`. `kubelet`
//! reads which container uses which GPU, `usage` finds which engine does.

mod clock;
mod config;
mod counters;
mod device_assignment;
mod device_holders;
mod event;
mod fields;
mod gpm;
mod kubelet;
mod limits;
mod mig;
mod nvml;
mod probe;
mod processes;
mod publisher;
mod raw;
mod readings;
mod supervisor;
mod threads;
mod tracked_gpu;
mod tracker;
pub mod usage;
mod worker;
mod xid_events;

use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use config::{GpuConfig, GpuMode, GpuTiming};
use event::Event;
#[doc(hidden)]
pub use kubelet::pods_of_answer;
pub use nvml::{GpuError, NvmlUnavailable};
use supervisor::Supervisor;
use threads::ThreadHandle;
use trtllm_records::gpu::{GpuInventory, NvmlState};

/// Starts GPU monitoring. `publish` gets the first inventory before this returns, and then every inventory that differs
/// from the one before, at most about twice per interval. It is never called concurrently, and must not block.
///
/// # Errors
/// Fails in [`GpuMode::Required`] if the library, the driver or every GPU is missing now, and in any mode if the
/// supervisor's thread cannot be started.
pub fn start(config: GpuConfig, publish: impl Fn(GpuInventory) + Send + Sync + 'static) -> Result<GpuHandle, GpuError> {
    let (events, inbox) = mpsc::channel();
    let first = match config.mode {
        GpuMode::Off => {
            publish(GpuInventory::default());
            return Ok(GpuHandle { events, thread: None });
        }
        GpuMode::Auto => None,
        GpuMode::Required => {
            let session = nvml::open_within(config.library.clone(), config.timing.init_deadline);
            Some(session.map_err(GpuError::Required)?)
        }
    };
    publish(GpuInventory { nvml: NvmlState::Starting, ..GpuInventory::default() });
    let supervisor = Supervisor::new(config, Box::new(publish), events.clone(), inbox);
    let thread = threads::spawn("gpu-supervisor", move |_| supervisor.run(first)).map_err(GpuError::Thread)?;
    Ok(GpuHandle { events, thread: Some(thread) })
}

/// Running GPU monitoring. Dropping it stops monitoring without waiting.
#[derive(Debug)]
pub struct GpuHandle {
    events: mpsc::Sender<Event>,
    /// `None` in [`GpuMode::Off`].
    thread: Option<ThreadHandle>,
}

impl GpuHandle {
    /// Closes NVML, so that the driver can be unloaded or a GPU removed. The state becomes
    /// [`Released`](NvmlState::Released) when NVML is closed. Nothing is read until [`resume`](Self::resume).
    pub fn release(&self) {
        self.send(Event::Release);
    }

    /// Opens NVML again after [`release`](Self::release); otherwise does nothing.
    pub fn resume(&self) {
        self.send(Event::Resume);
    }

    /// Stops polling and shuts NVML down. Returns after `deadline` at the latest. A worker whose NVML call does not
    /// return is abandoned: its thread and its NVML session stay open, because a thread cannot be cancelled.
    pub fn stop(mut self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.send(Event::Stop(until));
        if self.thread.take().is_some_and(|thread| !thread.wait_until(until)) {
            tracing::warn!(?deadline, "NVML did not shut down in time; abandoning it");
        }
    }

    fn send(&self, event: Event) {
        // Sending fails only if the supervisor has ended or was never started.
        let _ = self.events.send(event);
    }
}

impl Drop for GpuHandle {
    fn drop(&mut self) {
        self.send(Event::Stop(Instant::now()));
    }
}
