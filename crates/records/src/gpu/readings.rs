//! The readings of one poll of a GPU, in base units. A reading is `None`, never 0, if its call failed or is not supported.

use super::ClockReasons;
use crate::named_numbers::{NamedNumbers, named_numbers};

/// Values that every poll reads, except `health`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuReadings {
    /// Share of the sample period with a kernel running, 0..1. Always `None` with MIG.
    pub utilization_ratio: Option<f64>,
    /// Share of the sample period in which memory was read or written, 0..1.
    pub memory_controller_utilization_ratio: Option<f64>,
    pub memory: GpuMemory,
    /// Watts. On most GPUs since Ampere an average over one second.
    pub power_usage_watts: Option<f64>,
    /// Watts, without averaging.
    pub power_instant_watts: Option<f64>,
    /// The management limit in watts.
    pub power_limit_watts: Option<f64>,
    /// Joules since this exporter first read this GPU. Starts at 0, never decreases, continues over driver reloads and
    /// keeps its last value while the GPU cannot be read. `None` only before the first reading. Like every counter here, it
    /// never rises by more than a GPU can count in the time.
    pub energy_joules: Option<f64>,
    /// Millijoules since the driver was loaded, exactly as NVML reports them. `None` if they are impossible.
    pub energy_counter_mj: Option<u64>,
    pub temperature_celsius: Temperatures,
    pub clock_hertz: Clocks,
    /// Why the clocks are below their maximum.
    pub clocks_event_reasons: Option<ClockReasons>,
    /// Nanoseconds of throttling since the driver was loaded.
    pub throttle_ns: ThrottleTimes,
    /// Performance state, from 0 (fastest) to 15.
    pub performance_state: Option<u32>,
    pub engine_utilization: EngineUtilization,
    /// Bytes over all links since the driver was loaded.
    pub nvlink_bytes: LinkTraffic<u64>,
    /// Needs a Hopper GPU or later.
    pub activity: GpuActivity,
    /// Whether MIG is enabled.
    pub mig_enabled: Option<bool>,
    pub mig: Vec<MigInstance>,
    /// Values of the last slow poll, which happens every 15 s.
    pub health: GpuHealth,
}

named_numbers! {
    /// Temperatures in degrees Celsius, by sensor.
    #[derive(Copy)]
    pub struct Temperatures: f64 { gpu = "gpu", memory = "memory" }
}

named_numbers! {
    /// Clock frequencies in hertz, by clock.
    #[derive(Copy, Eq)]
    pub struct Clocks: u64 { graphics = "graphics", sm = "sm", memory = "memory", video = "video" }
}

named_numbers! {
    /// Time in which a policy limited the clocks, by policy.
    #[derive(Copy, Eq)]
    pub struct ThrottleTimes: u64 {
        power = "power",
        thermal = "thermal",
        sync_boost = "sync_boost",
        board_limit = "board_limit",
        low_utilization = "low_utilization",
        reliability = "reliability",
        sw_thermal_slowdown = "sw_thermal_slowdown",
        hw_thermal_slowdown = "hw_thermal_slowdown",
        hw_power_brake_slowdown = "hw_power_brake_slowdown",
    }
}

/// Share of the sample period in which each media engine was busy, 0..1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineUtilization {
    pub encoder: Option<f64>,
    pub decoder: Option<f64>,
    pub jpeg: Option<f64>,
    /// Optical flow.
    pub ofa: Option<f64>,
}

/// Bytes, or bytes per second, in each direction as seen from the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkTraffic<N> {
    pub transmit: Option<N>,
    pub receive: Option<N>,
}

/// Memory of a GPU or a MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    pub total_bytes: Option<u64>,
    /// Excludes reserved memory with driver 510 and later, includes it with older drivers.
    pub used_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
}

/// Activity of the parts of a GPU or a MIG instance since the last poll, as a share of time or of the maximum, 0..1. Source:
/// NVML's GPM.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuActivity {
    pub graphics: Option<f64>,
    pub sm: Option<f64>,
    pub sm_occupancy: Option<f64>,
    pub tensor: Option<f64>,
    pub tensor_dfma: Option<f64>,
    pub tensor_hmma: Option<f64>,
    pub tensor_imma: Option<f64>,
    pub dram: Option<f64>,
    pub fp64: Option<f64>,
    pub fp32: Option<f64>,
    pub fp16: Option<f64>,
    pub pcie_bytes_per_second: LinkTraffic<f64>,
    pub nvlink_bytes_per_second: LinkTraffic<f64>,
}

/// One MIG compute instance.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MigInstance {
    /// `MIG-…`
    pub uuid: String,
    pub gpu_instance_id: Option<u32>,
    pub compute_instance_id: Option<u32>,
    /// e.g. `1g.18gb`
    pub profile: Option<String>,
    pub memory: GpuMemory,
    /// The activity of the GPU instance, which its compute instances share.
    pub activity: GpuActivity,
}

/// Readings that change rarely or cost more to read. Only slow polls read them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuHealth {
    pub bar1_total_bytes: Option<u64>,
    pub bar1_used_bytes: Option<u64>,
    pub power_limits_watts: PowerLimits,
    pub temperature_limits_celsius: TemperatureLimits,
    pub clock_max_hertz: Clocks,
    /// Fan speeds as a ratio to the intended maximum. May exceed 1.
    pub fan_speed_ratio: Vec<Option<f64>>,
    pub pcie_link_generation: Option<u32>,
    pub pcie_link_generation_max: Option<u32>,
    /// Number of lanes.
    pub pcie_link_width: Option<u32>,
    pub pcie_link_width_max: Option<u32>,
    pub pcie_replays: Option<u64>,
    pub ecc_errors: EccErrors,
    /// ECC errors by part of the GPU, for parts that have their own counters.
    pub ecc_locations: Vec<EccLocation>,
    /// Whether uncorrected SRAM errors reached NVIDIA's threshold for replacing the GPU.
    pub ecc_sram_threshold_exceeded: Option<bool>,
    pub retired_pages: RetiredPages,
    pub retired_pages_pending: Option<bool>,
    pub remapped_rows: RemappedRows,
    pub remapped_rows_pending: Option<bool>,
    pub remapped_rows_failure: Option<bool>,
    /// The action that the driver recommends: 0 none, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.
    pub recovery_action: Option<u64>,
    pub nvlinks: Vec<NvLink>,
    /// Number of processes with a compute context.
    pub processes: Option<u64>,
    /// PIDs of these processes, sorted. `None` if they are not known.
    pub pids: Option<Vec<u32>>,
    /// Filled only with `--gpu.processes`.
    pub process_list: Vec<GpuProcess>,
}

named_numbers! {
    /// Power limits in watts, by kind.
    #[derive(Copy)]
    pub struct PowerLimits: f64 { enforced = "enforced", default = "default", min = "min", max = "max" }
}

named_numbers! {
    /// Temperature thresholds in degrees Celsius, by kind.
    #[derive(Copy)]
    pub struct TemperatureLimits: f64 {
        shutdown = "shutdown",
        slowdown = "slowdown",
        memory_max = "memory_max",
        gpu_max = "gpu_max",
    }
}

named_numbers! {
    /// Retired memory pages by cause.
    #[derive(Copy, Eq)]
    pub struct RetiredPages: u64 { multiple_single_bit = "multiple_single_bit", double_bit = "double_bit" }
}

named_numbers! {
    /// Remapped memory rows by cause.
    #[derive(Copy, Eq)]
    pub struct RemappedRows: u64 { correctable = "correctable", uncorrectable = "uncorrectable" }
}

/// ECC errors since the driver was loaded (volatile) and over the lifetime of the GPU (aggregate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EccErrors {
    pub corrected_volatile: Option<u64>,
    pub uncorrected_volatile: Option<u64>,
    pub corrected_aggregate: Option<u64>,
    pub uncorrected_aggregate: Option<u64>,
}

/// ECC errors of one part of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EccLocation {
    /// e.g. `dram`, `sram`.
    pub location: &'static str,
    pub errors: EccErrors,
}

/// One NVLink.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvLink {
    pub link: u32,
    pub up: bool,
    pub errors: NvLinkErrors,
}

named_numbers! {
    /// Errors of one NVLink by kind.
    #[derive(Copy, Eq)]
    pub struct NvLinkErrors: u64 { replay = "replay", recovery = "recovery", crc_flit = "crc_flit", crc_data = "crc_data" }
}

/// One process on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuProcess {
    /// The PID on the host, or in this PID namespace if the driver translates PIDs.
    pub pid: u32,
    /// Name of the command. `None` if the process is not visible in `/proc`, or if `/proc` has other PIDs than NVML.
    pub name: Option<String>,
    /// `None` if the driver does not report it.
    pub bytes: Option<u64>,
    /// Share of time in which the process ran a kernel, 0..1, since the last slow poll. `None` if it ran no kernel.
    pub sm_ratio: Option<f64>,
}
