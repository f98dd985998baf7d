//! One GPU as NVML last told it: plain readings in base units, absent where a call failed or is not supported.

/// What never changes while the driver is loaded. Source: NVML, read once per initialisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuIdentity {
    /// `GPU-xxxxxxxx-xxxx-…`, the key of every GPU series.
    pub uuid: String,
    /// NVML index at the time of enumeration.
    pub index: u32,
    /// Product name, absent if the driver did not say.
    pub name: Option<String>,
    /// `00000000:1B:00.0`
    pub pci_bus_id: Option<String>,
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

/// One poll of one GPU. A reading that failed or is not supported is `None`, never 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuReadings {
    /// Share of the sample period with a kernel running, 0..1.
    pub utilization_ratio: Option<f64>,
    /// Bytes.
    pub memory_total_bytes: Option<u64>,
    /// Bytes, without what the driver reserves.
    pub memory_used_bytes: Option<u64>,
    /// Watts; on most GPUs since Ampere a one-second average.
    pub power_usage_watts: Option<f64>,
    /// Watts, the management limit.
    pub power_limit_watts: Option<f64>,
    /// Joules since this exporter first read this GPU: starts at 0, never falls, continues over driver reloads, and
    /// stays at its last value while the GPU cannot be read. `None` only if it was never read.
    pub energy_joules: Option<f64>,
    /// Degrees Celsius of the GPU sensor.
    pub temperature_celsius: Option<f64>,
}

/// One GPU at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSnapshot {
    pub identity: GpuIdentity,
    pub state: GpuState,
    /// Empty (all `None`, except counters) while the state is not [`GpuState::Ok`].
    pub readings: GpuReadings,
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
}

/// Everything the page says about GPUs, in NVML index order. A GPU that was seen once stays listed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuInventory {
    pub nvml: NvmlState,
    pub driver_version: Option<String>,
    pub gpus: Vec<GpuSnapshot>,
    /// Most GPUs seen since start (of those asked for), so that a vanished one can be noticed.
    pub expected: u32,
    /// Failed NVML calls since start, by call and error word, sorted.
    pub read_errors: Vec<ReadError>,
    /// Failed initialisations since start.
    pub init_errors: u64,
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
