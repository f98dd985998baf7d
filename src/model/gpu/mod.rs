//! One GPU as NVML last told it: plain readings in base units, absent where a call failed or is not supported.

mod readings;

use std::time::Duration;

pub use readings::{
    ACTIVITIES, EccLocation, GpuActivity, GpuHealth, GpuMemory, GpuProcess, GpuReadings, MigInstance, NvLink,
    THROTTLE_POLICIES,
};

/// What never changes while the driver is loaded. Source: NVML, read once per initialisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuIdentity {
    /// `GPU-xxxxxxxx-xxxx-…`, the key of every GPU series.
    pub uuid: String,
    /// NVML index at the time of enumeration.
    pub index: u32,
    /// Product name, absent if the driver did not say.
    pub name: Option<String>,
    /// `00000000:1B:00.0`
    pub pci_bus_id: Option<String>,
    /// The N of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    pub serial: Option<String>,
    pub vbios: Option<String>,
    /// e.g. `hopper`, absent for one that is newer than this exporter.
    pub architecture: Option<String>,
}

/// Why a GPU has, or has no, current readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuState {
    /// The last poll answered.
    Ok,
    /// Cannot be read: NVML says it is lost or fell off the bus, no longer finds it, or fails every call on it; or
    /// NVML itself is gone, which [`GpuInventory::nvml`] says then.
    Lost,
    /// A call has not returned within its deadline.
    Stalled,
    /// NVML says the GPU needs a reset.
    ResetRequired,
    /// The process may not read this GPU.
    NoPermission,
}

/// One GPU at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSnapshot {
    pub identity: GpuIdentity,
    pub state: GpuState,
    /// Empty (all `None`, except the energy counted here) while the state is not [`GpuState::Ok`].
    pub readings: GpuReadings,
    /// The last poll that answered, whatever became of the GPU since.
    pub last_poll: Option<LastPoll>,
    /// Xid errors since this exporter started, by code, in order of code. They outlast every state.
    pub xids: Vec<(u64, u64)>,
    pub last_xid: Option<LastXid>,
    /// Whether the driver would tell us of one.
    pub hears_xids: bool,
}

/// One look at a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastPoll {
    /// Microseconds since 1970 UTC, when it ended.
    pub at_us: i64,
    /// How long all its calls took.
    pub took: Duration,
}

/// The latest error that the driver reported of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastXid {
    pub code: u64,
    /// Microseconds since 1970 UTC, when it was heard.
    pub at_us: i64,
}

/// One GPU or MIG instance that the kubelet has given to a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodDevice {
    pub gpu_uuid: String,
    /// Of a MIG instance, else empty.
    pub mig_uuid: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

/// Whether NVML itself is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NvmlState {
    /// `--gpu off`
    #[default]
    Off,
    /// Not initialised yet.
    Starting,
    Up,
    /// No library on the search list.
    LibraryNotFound,
    /// The library is there, the driver is not.
    DriverNotLoaded,
    /// Library and driver are of different versions.
    VersionMismatch,
    NoPermission,
    /// Any other NVML error.
    Failed,
    /// Let go on request, so that the driver can be unloaded; nothing is asked until it is taken again.
    Released,
}

/// Everything the page says about GPUs, in NVML index order. A GPU that was seen once stays listed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuInventory {
    pub nvml: NvmlState,
    pub driver_version: Option<String>,
    /// The library's own version.
    pub nvml_version: Option<String>,
    /// The newest CUDA that the driver runs, e.g. `13.0`.
    pub cuda_version: Option<String>,
    pub gpus: Vec<GpuSnapshot>,
    /// Most GPUs seen since start (of those asked for), so that a vanished one can be noticed.
    pub expected: u32,
    /// Failed NVML calls since start, by call and error word, sorted.
    pub read_errors: Vec<ReadError>,
    /// Failed initialisations since start.
    pub init_errors: u64,
    /// Who was given which GPU, where the kubelet's socket is there; sorted.
    pub pods: Vec<PodDevice>,
}

/// How often one NVML call failed in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// e.g. `power_usage`
    pub call: &'static str,
    /// e.g. `gpu_is_lost`, `not_supported` is not an error and never here.
    pub error: &'static str,
    pub count: u64,
}
