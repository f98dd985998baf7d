//! GPU telemetry through NVML. Nothing here knows metrics or HTTP: whatever changes is handed to `publish` as one
//! complete, immutable [`GpuInventory`], and readers never call NVML.
//! In reading order: `nvml` (load, initialise, what an error means) · `probe` (how anything is asked) · `readings`,
//! `health`, `gpm`, `mig` by `fields` and `raw` (what is asked) · `worker` (one thread per GPU) · `events` (Xid errors) ·
//! `visible` (which GPUs) · `kubelet`, `claims`, `pods` (who has which) · `ledger` (what is known, pure) ·
//! `supervisor` (who runs when).

mod claims;
mod clocks;
mod event;
mod events;
mod fields;
mod gpm;
mod health;
mod kubelet;
mod ledger;
mod mig;
mod nvml;
mod pods;
mod probe;
mod processes;
mod raw;
mod readings;
mod supervisor;
mod units;
mod visible;
mod worker;

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::model::gpu::{GpuInventory, NvmlState};
use event::Event;
pub use nvml::{GpuError, NvmlUnavailable};
use supervisor::Supervisor;

/// `--gpu`: what an absent driver means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuMode {
    /// NVML is never touched.
    Off,
    /// An absent library, driver or GPU is a state that is published and retried.
    #[default]
    Auto,
    /// An absent library, driver or GPU at start is an error; later it is a state as in `Auto`.
    Required,
}

/// What to watch and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuConfig {
    pub mode: GpuMode,
    /// `--gpu.library`: this file only, instead of the search list.
    pub library: Option<PathBuf>,
    /// `--gpu.interval`: from one poll of a GPU to its next; raised to 10 ms where it is less. NVML's own power
    /// average and utilisation sample span up to a second, so a shorter interval than that shows little more.
    pub interval: Duration,
    /// `--gpu.uuid`: the GPUs to show, in NVML's full form; empty for those that `CUDA_VISIBLE_DEVICES` or
    /// `NVIDIA_VISIBLE_DEVICES` names, and without these for all that NVML sees.
    pub uuids: Vec<String>,
    /// `--gpu.processes`: the memory of each process, which costs milliseconds a GPU.
    pub per_process: bool,
    /// `--gpu.pod-resources`: the kubelet's socket, asked who has which GPU; `None` not to ask.
    pub pod_resources: Option<PathBuf>,
    pub timing: GpuTiming,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            mode: GpuMode::Auto,
            library: None,
            interval: Duration::from_secs(1),
            uuids: Vec::new(),
            per_process: false,
            pod_resources: None,
            timing: GpuTiming::default(),
        }
    }
}

/// How long to bear with a driver that does not answer. The defaults are for production; tests shorten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTiming {
    /// An NVML call that takes longer makes its GPU [`Stalled`](crate::model::gpu::GpuState::Stalled).
    pub call_deadline: Duration,
    /// Initialisation that takes longer makes NVML [`Failed`](NvmlState::Failed) until it returns. More than a call:
    /// without persistence mode the first touch costs seconds per GPU.
    pub init_deadline: Duration,
    /// From one look at what changes rarely or costs more (limits, ECC, links, processes) to the next; at least an
    /// interval.
    pub slow: Duration,
    /// From one question to the kubelet to the next.
    pub pods: Duration,
    /// From finding that a GPU does not support something to asking again.
    pub unsupported: Duration,
    /// From one look at a GPU that is lost, needs a reset or may not be read, to the next.
    pub reprobe: Duration,
    /// From the first failed initialisation to the next; doubles each time up to `retry_max`.
    pub retry_first: Duration,
    pub retry_max: Duration,
}

impl Default for GpuTiming {
    fn default() -> Self {
        Self {
            call_deadline: Duration::from_secs(5),
            init_deadline: Duration::from_secs(30),
            slow: Duration::from_secs(15),
            pods: Duration::from_secs(10),
            unsupported: Duration::from_secs(600),
            reprobe: Duration::from_secs(30),
            retry_first: Duration::from_secs(5),
            retry_max: Duration::from_secs(60),
        }
    }
}

/// Starts watching. `publish` gets the first inventory before this returns and then each one that differs from the
/// one before it, at most about twice an interval, from one thread; it must not block.
///
/// # Errors
/// In [`GpuMode::Required`] if the library, the driver or a GPU is absent now; in any mode if the supervisor's thread
/// cannot be started.
pub fn start(config: GpuConfig, publish: impl Fn(GpuInventory) + Send + Sync + 'static) -> Result<GpuHandle, GpuError> {
    let first = match config.mode {
        GpuMode::Off => {
            publish(GpuInventory::default());
            return Ok(GpuHandle { running: None });
        }
        GpuMode::Auto => None,
        GpuMode::Required => {
            let open = nvml::open_within(config.library.clone(), config.timing.init_deadline);
            Some(open.map_err(GpuError::Required)?)
        }
    };
    publish(GpuInventory { nvml: NvmlState::Starting, ..GpuInventory::default() });
    let (events, inbox) = mpsc::channel();
    let (running, finished) = mpsc::channel();
    let supervisor = Supervisor::new(config, Box::new(publish), events.clone(), inbox);
    worker::thread("gpu-supervisor")
        .spawn(move || {
            supervisor.run(first);
            drop(running);
        })
        .map_err(GpuError::Thread)?;
    Ok(GpuHandle { running: Some(Running { events, finished }) })
}

/// A running watch. Dropping it stops the watch without waiting.
#[derive(Debug)]
pub struct GpuHandle {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    events: mpsc::Sender<Event>,
    /// Disconnects when the supervisor has ended.
    finished: mpsc::Receiver<std::convert::Infallible>,
}

impl GpuHandle {
    /// Lets go of the driver, so that it can be unloaded or a GPU taken away; the state says when that is done. Nothing is
    /// read until [`resume`](Self::resume).
    pub fn release(&self) {
        self.tell(Event::Release);
    }

    /// Takes the driver again after [`release`](Self::release); without one this does nothing.
    pub fn resume(&self) {
        self.tell(Event::Resume);
    }

    fn tell(&self, event: Event) {
        if let Some(running) = &self.running {
            // It fails only if the watch has ended.
            let _ = running.events.send(event);
        }
    }

    /// Stops polling and shuts NVML down. Returns at the latest after `deadline`: a worker inside a call that does not
    /// return is left behind with its thread and its NVML, since neither can be taken from it.
    pub fn stop(mut self, deadline: Duration) {
        let Some(Running { events, finished }) = self.running.take() else { return };
        let _ = events.send(Event::Stop(Instant::now() + deadline));
        if finished.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(?deadline, "NVML did not shut down in time and is left behind");
        }
    }
}

impl Drop for GpuHandle {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            let _ = running.events.send(Event::Stop(Instant::now()));
        }
    }
}
