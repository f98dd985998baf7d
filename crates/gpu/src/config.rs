//! What to monitor and how.

use std::path::PathBuf;
use std::time::Duration;

use trtllm_records::gpu::PodName;
use trtllm_records::named_variants::named_variants;

named_variants! {
    /// `--gpu`: whether to read GPUs, and whether start-up needs one.
    #[derive(Default)]
    pub enum GpuMode {
        /// Never load NVML
        Off = "off",
        /// Read GPUs if there are any; retry in the background while the library, the driver or every GPU is missing
        #[default]
        Auto = "auto",
        /// Exit at start-up if the library, the driver or every GPU is missing; later behave as auto
        Required = "required",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuConfig {
    pub mode: GpuMode,
    /// `--gpu.library`: load this file instead of searching the usual paths.
    pub library: Option<PathBuf>,
    /// `--gpu.interval`: time between two polls of a GPU, at least 10 ms. NVML averages power and utilisation over up
    /// to a second, so a shorter interval shows little more.
    pub interval: Duration,
    /// `--gpu.uuid`: UUIDs of the GPUs to show, or beginnings of them. If empty, every GPU is shown.
    pub uuids: Vec<String>,
    /// `--gpu.processes`: read the memory of each process. This takes milliseconds per GPU.
    pub per_process: bool,
    /// Read which processes use each GPU, with every slow poll (see [`GpuTiming::slow_interval`]).
    pub pids: bool,
    /// `--gpu.pod-resources`: the kubelet's socket, to read which container uses which GPU; `None` to skip this.
    pub pod_resources: Option<PathBuf>,
    /// The pod of this process, which has not finished. `None` outside Kubernetes.
    pub own_pod: Option<PodName>,
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
            pids: false,
            pod_resources: None,
            own_pod: None,
            timing: GpuTiming::default(),
        }
    }
}

/// Whether the GPU with this UUID is shown.
pub(super) fn is_selected(selectors: &[String], uuid: &str) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| uuid.starts_with(selector))
}

/// Deadlines and intervals. The defaults are for production; tests shorten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTiming {
    /// An NVML call that takes longer makes its GPU [`Stalled`](trtllm_records::gpu::GpuState::Stalled).
    pub call_deadline: Duration,
    /// An initialisation that takes longer makes NVML [`Failed`](trtllm_records::gpu::NvmlState::Failed) until it
    /// returns. It is longer than `call_deadline`: without persistence mode the first access takes seconds per GPU.
    pub init_deadline: Duration,
    /// Time between two slow polls, which read what changes rarely or costs more (limits, ECC, links, processes). If it
    /// is shorter than the poll interval, every poll is slow.
    pub slow_interval: Duration,
    /// Time between two requests to the kubelet.
    pub pods_interval: Duration,
    /// Time until a call that a GPU does not support is tried again.
    pub unsupported_retry: Duration,
    /// Time between two attempts to read a GPU that is lost or needs a reset.
    pub reprobe_interval: Duration,
    /// Delay after the first failed initialisation. It doubles after each failure, up to `init_retry_max`.
    pub init_retry_min: Duration,
    pub init_retry_max: Duration,
}

impl Default for GpuTiming {
    fn default() -> Self {
        Self {
            call_deadline: Duration::from_secs(5),
            init_deadline: Duration::from_secs(30),
            slow_interval: Duration::from_secs(15),
            pods_interval: Duration::from_secs(10),
            unsupported_retry: Duration::from_secs(600),
            reprobe_interval: Duration::from_secs(30),
            init_retry_min: Duration::from_secs(5),
            init_retry_max: Duration::from_secs(60),
        }
    }
}
