//! The readings of one poll of a GPU, in base units. A reading is `None`, never 0, if its call failed or is not supported.
//! Arrays are in the order of the catalog's label values, which each comment lists.

/// Read at every poll, except `health`.
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
    /// keeps its last value while the GPU cannot be read. `None` only before the first reading.
    pub energy_joules: Option<f64>,
    /// Degrees Celsius: gpu, memory.
    pub temperature_celsius: [Option<f64>; 2],
    /// Hertz: graphics, sm, memory, video.
    pub clock_hertz: [Option<u64>; 4],
    /// Why the clocks are below their maximum: NVML's bit mask `nvmlClocksThrottleReasons`.
    pub clocks_event_reasons: Option<u64>,
    /// Nanoseconds of throttling since the driver was loaded, by [`THROTTLE_POLICIES`].
    pub throttle_ns: [Option<u64>; THROTTLE_POLICIES],
    /// 0 (fastest) to 15.
    pub performance_state: Option<u32>,
    /// 0..1: encoder, decoder, jpeg, ofa.
    pub engine_utilization_ratio: [Option<f64>; 4],
    /// Bytes since the driver was loaded: transmit, receive.
    pub pcie_bytes: [Option<u64>; 2],
    /// Bytes over all links since the driver was loaded: transmit, receive.
    pub nvlink_bytes: [Option<u64>; 2],
    /// Needs Hopper or later.
    pub activity: GpuActivity,
    /// Whether MIG is enabled.
    pub mig_enabled: Option<bool>,
    pub mig: Vec<MigInstance>,
    /// From the last slow poll.
    pub health: GpuHealth,
}

/// power, thermal, sync_boost, board_limit, low_utilization, reliability, sw_thermal_slowdown, hw_thermal_slowdown,
/// hw_power_brake_slowdown.
pub const THROTTLE_POLICIES: usize = 9;

/// Memory of a GPU or a MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    pub total_bytes: Option<u64>,
    /// Excludes reserved memory with driver 510 and later, includes it with older ones.
    pub used_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
}

/// Activity of the parts of a GPU or a MIG instance since the last poll. Source: NVML's GPM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuActivity {
    /// Share of time or of the maximum, 0..1, by [`ACTIVITIES`].
    pub ratio: [Option<f64>; ACTIVITIES],
    /// Bytes per second: transmit, receive.
    pub pcie_bytes_per_second: [Option<f64>; 2],
    /// Bytes per second: transmit, receive.
    pub nvlink_bytes_per_second: [Option<f64>; 2],
}

/// graphics, sm, sm_occupancy, tensor, tensor_dfma, tensor_hmma, tensor_imma, dram, fp64, fp32, fp16.
pub const ACTIVITIES: usize = 11;

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

/// What changes rarely or costs more to read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuHealth {
    /// Bytes: total, used.
    pub bar1_bytes: [Option<u64>; 2],
    /// Watts: enforced, default, min, max.
    pub power_limits_watts: [Option<f64>; 4],
    /// Degrees Celsius: shutdown, slowdown, memory_max, gpu_max.
    pub temperature_limits_celsius: [Option<f64>; 4],
    /// Hertz: graphics, sm, memory, video.
    pub clock_max_hertz: [Option<u64>; 4],
    /// Ratio to the intended maximum; may exceed 1.
    pub fan_speed_ratio: Vec<Option<f64>>,
    /// Current and maximum generation of the link.
    pub pcie_link_generation: [Option<u32>; 2],
    /// Current and maximum number of lanes.
    pub pcie_link_width: [Option<u32>; 2],
    pub pcie_replays: Option<u64>,
    /// Corrected and uncorrected since the driver was loaded (volatile), then both over the lifetime of the GPU (aggregate).
    pub ecc_errors: [Option<u64>; 4],
    /// The same by part of the GPU, for parts with counters of their own.
    pub ecc_locations: Vec<EccLocation>,
    /// Whether uncorrected SRAM errors reached NVIDIA's threshold for replacing the GPU.
    pub ecc_sram_threshold_exceeded: Option<bool>,
    /// multiple_single_bit, double_bit.
    pub retired_pages: [Option<u64>; 2],
    pub retired_pages_pending: Option<bool>,
    /// correctable, uncorrectable.
    pub remapped_rows: [Option<u64>; 2],
    pub remapped_rows_pending: Option<bool>,
    pub remapped_rows_failure: Option<bool>,
    /// The action that the driver recommends: 0 none, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.
    pub recovery_action: Option<u64>,
    pub nvlinks: Vec<NvLink>,
    /// Number of processes with a compute context.
    pub processes: Option<u64>,
    /// Filled only with `--gpu.processes`.
    pub process_list: Vec<GpuProcess>,
}

/// ECC errors of one part of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EccLocation {
    /// e.g. `dram`, `sram`.
    pub location: &'static str,
    /// In the order of [`GpuHealth::ecc_errors`].
    pub errors: [Option<u64>; 4],
}

/// One NVLink.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvLink {
    pub link: u32,
    pub up: bool,
    /// replay, recovery, crc_flit, crc_data.
    pub errors: [Option<u64>; 4],
}

/// One process on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuProcess {
    /// The PID on the host, or in this PID namespace if the driver translates PIDs.
    pub pid: u32,
    /// Name of the command. `None` if the process is not visible in `/proc`.
    pub name: Option<String>,
    /// `None` if the driver does not report it.
    pub bytes: Option<u64>,
    /// Share of time in which the process ran a kernel, 0..1, since the last slow poll. `None` if it ran none.
    pub sm_ratio: Option<f64>,
}
