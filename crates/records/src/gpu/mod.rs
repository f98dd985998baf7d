//! GPUs as NVML last reported them, in base units. A value is absent if its call failed or is not supported.

mod json;
mod readings;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use readings::*;

use crate::named_variants::named_variants;

/// The identity of a GPU. It does not change while the driver is loaded, so it is read once per initialisation of NVML.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuIdentity {
    /// `GPU-xxxxxxxx-xxxx-…`; identifies the GPU in every series.
    pub uuid: String,
    /// NVML index at the time of enumeration.
    pub index: u32,
    /// Product name.
    pub name: Option<String>,
    /// `00000000:1B:00.0`
    pub pci_bus_id: Option<String>,
    /// The minor number: N in `/dev/nvidiaN`.
    pub minor: Option<u32>,
    pub serial: Option<String>,
    pub vbios: Option<String>,
    /// `kepler` to `blackwell`, or `unknown_N` with NVML's number for an architecture newer than this exporter.
    pub architecture: Option<String>,
}

named_variants! {
    /// Whether a GPU has current readings and, if not, why.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case", from = "String")]
    pub enum GpuState {
        /// The last poll succeeded.
        Ok = "ok",
        /// NVML reports the GPU as lost, no longer finds it, or fails every call on it with an error that is none of the states
        /// below; or NVML itself is unavailable, see [`GpuInventory::nvml`].
        #[default]
        Lost = "lost",
        /// A call did not return within its deadline.
        Stalled = "stalled",
        /// NVML reports that the GPU needs a reset.
        ResetRequired = "reset_required",
        /// This process has no permission to read the GPU, or every call returns "unknown", as in a container that has lost its
        /// devices.
        NoPermission = "no_permission",
    }
}

/// A state that only a newer exporter knows also means that the GPU cannot be read.
impl From<String> for GpuState {
    fn from(name: String) -> Self {
        Self::ALL.into_iter().find(|state| state.name() == name).unwrap_or_default()
    }
}

/// One GPU at one moment. `json` has the list of the values that `/api/v1/gpus` and recordings have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gpu {
    pub identity: GpuIdentity,
    pub state: GpuState,
    /// In a recording: whether it is known that the engine runs on this GPU.
    pub serves: Option<bool>,
    /// Empty unless the state is [`GpuState::Ok`]. Only the energy is always kept.
    pub readings: GpuReadings,
    /// The last successful poll. Kept in every state.
    pub last_poll: Option<GpuPoll>,
    /// Number of Xid errors since this exporter started. Kept in every state. Absent if the driver does not report them.
    pub xids: Option<u64>,
    /// The same by code, in order of code.
    pub xids_by_code: Vec<(u64, u64)>,
    /// Code of the latest Xid error.
    pub last_xid: Option<u64>,
    /// When the exporter received it, in microseconds since 1970 UTC.
    pub last_xid_us: Option<i64>,
    /// Whether the driver reports Xid errors of this GPU now.
    pub reports_xids: bool,
}

/// A successful poll of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPoll {
    /// End of the poll in microseconds since 1970 UTC.
    pub at_us: i64,
    /// The same moment on the monotonic clock, which starts at an arbitrary moment.
    pub monotonic: Duration,
    /// Duration of all NVML calls of the poll.
    pub took: Duration,
}

/// The GPUs that serve one engine, and what the engine has used of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineGpus {
    /// UUIDs of the GPUs, sorted.
    pub uuids: Vec<String>,
    /// Number of further GPUs that the engine has but that were not found, such as those of another node. 0 if the engine does not
    /// report how many it has.
    pub missing: usize,
    /// Joules since the engine appeared. `None` if a GPU is missing, or if the energy of the GPUs
    /// cannot be attributed to this engine alone.
    pub energy_joules: Option<f64>,
    /// GPU seconds since the engine appeared, summed over its GPUs. `None` if a GPU is missing or is
    /// shared with something else.
    pub gpu_seconds: Option<f64>,
}

/// One GPU or MIG instance that the kubelet assigned to a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodDevice {
    pub gpu_uuid: String,
    /// Empty for a whole GPU.
    pub mig_uuid: String,
    pub pod: PodName,
    pub container: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    pub namespace: String,
    pub pod: String,
}

/// Why the clocks of a GPU are below their maximum: NVML's bit mask `nvmlClocksThrottleReasons`. JSON has the names of the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<&'static str>")]
pub struct ClockReasons(pub u64);

impl ClockReasons {
    /// The name of each bit.
    pub const NAMES: [&str; 9] = [
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "display_clock_setting",
    ];

    /// Whether each reason limits the clocks, in the order of the names.
    pub fn active(self) -> impl Iterator<Item = bool> {
        (0..Self::NAMES.len()).map(move |bit| self.0 >> bit & 1 == 1)
    }

    /// The names of the reasons that limit the clocks.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().zip(self.active()).filter_map(|(name, is_active)| is_active.then_some(name))
    }
}

impl From<ClockReasons> for Vec<&'static str> {
    fn from(reasons: ClockReasons) -> Self {
        reasons.names().collect()
    }
}

impl From<Vec<String>> for ClockReasons {
    fn from(names: Vec<String>) -> Self {
        let bits = Self::NAMES.iter().enumerate().filter(|(_, name)| names.iter().any(|other| other == *name));
        Self(bits.map(|(bit, _)| 1 << bit).sum())
    }
}

named_variants! {
    /// The state of NVML itself.
    #[derive(Default)]
    pub enum NvmlState {
        /// Switched off with `--gpu off`.
        #[default]
        Off = "off",
        /// Not initialised yet.
        Starting = "starting",
        Up = "up",
        /// The NVML library was not found.
        LibraryNotFound = "library_not_found",
        /// The library was found, but the driver is not loaded.
        DriverNotLoaded = "driver_not_loaded",
        /// The library and the driver have different versions.
        VersionMismatch = "version_mismatch",
        NoPermission = "no_permission",
        /// Any other NVML error.
        Failed = "failed",
        /// Closed on request, so that the driver can be unloaded. Nothing is read until monitoring resumes.
        Released = "released",
    }
}

/// Everything known about the GPUs. A GPU stays listed after it disappears.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuInventory {
    pub nvml: NvmlState,
    pub driver_version: Option<String>,
    /// Version of the NVML library.
    pub nvml_version: Option<String>,
    /// The newest CUDA version that the driver supports, e.g. `13.0`.
    pub cuda_version: Option<String>,
    /// In NVML index order.
    pub gpus: Vec<Gpu>,
    /// The largest number of selected GPUs since start.
    pub expected: u32,
    /// How many of them NVML does not list now, or lists without an identity for another reason than a missing permission. All while
    /// NVML is not up.
    pub missing: u32,
    /// Number of GPUs that are not selected and so not listed.
    pub excluded: usize,
    /// Failed NVML calls since start, sorted by call and error.
    pub read_errors: Vec<ReadError>,
    /// Failed initialisations since start.
    pub init_errors: u64,
    /// Containers and their GPUs, sorted. Empty if there is no kubelet.
    pub pods: Vec<PodDevice>,
    /// Pods with a GPU that is not in `gpus`.
    pub pods_with_other_gpus: BTreeSet<PodName>,
}

impl GpuInventory {
    /// Number of selected GPUs that NVML lists now.
    pub fn visible(&self) -> u32 {
        self.expected.saturating_sub(self.missing)
    }
}

/// How often one NVML call failed with one error, or returned an impossible value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// e.g. `power_usage`
    pub call: &'static str,
    /// e.g. `gpu_is_lost`, or `impossible`. "Not supported" does not count as an error and never appears here.
    pub error: &'static str,
    pub count: u64,
}
