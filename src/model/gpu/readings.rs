//! What one poll of a GPU says. Base units; `None` where a call failed or is not supported, never 0.
//! Arrays are in the order of the catalog's label values, which stands beside each.

/// Asked at every poll.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuReadings {
    /// Share of the sample period with a kernel running, 0..1. Never there with MIG.
    pub utilization_ratio: Option<f64>,
    /// Share of the sample period in which memory was read or written, 0..1.
    pub memory_controller_utilization_ratio: Option<f64>,
    pub memory: GpuMemory,
    /// Watts; on most GPUs since Ampere a one-second average.
    pub power_usage_watts: Option<f64>,
    /// Watts at one moment.
    pub power_instant_watts: Option<f64>,
    /// Watts, the management limit.
    pub power_limit_watts: Option<f64>,
    /// Joules since this exporter first read this GPU: starts at 0, never falls, continues over driver reloads, and
    /// stays at its last value while the GPU cannot be read. `None` only if it was never read.
    pub energy_joules: Option<f64>,
    /// Degrees Celsius: gpu, memory.
    pub temperature_celsius: [Option<f64>; 2],
    /// Hertz: graphics, sm, memory, video.
    pub clock_hertz: [Option<u64>; 4],
    /// Why clocks are below their maximum: NVML's bit mask `nvmlClocksThrottleReasons`.
    pub clocks_event_reasons: Option<u64>,
    /// Nanoseconds with clocks held back since the driver was loaded, by [`THROTTLE_POLICIES`].
    pub throttle_ns: [Option<u64>; THROTTLE_POLICIES],
    /// 0 (fastest) to 15.
    pub performance_state: Option<u32>,
    /// 0..1: encoder, decoder, jpeg, ofa.
    pub engine_utilization_ratio: [Option<f64>; 4],
    /// Bytes since the driver was loaded: transmit, receive.
    pub pcie_bytes: [Option<u64>; 2],
    /// Bytes over all links since the driver was loaded: transmit, receive.
    pub nvlink_bytes: [Option<u64>; 2],
    /// Profiling without DCGM; on Hopper and later.
    pub activity: GpuActivity,
    /// Whether MIG is enabled.
    pub mig_enabled: Option<bool>,
    pub mig: Vec<MigInstance>,
    /// As of the last slow poll.
    pub health: GpuHealth,
}

/// power, thermal, sync_boost, board_limit, low_utilization, reliability, sw_thermal_slowdown, hw_thermal_slowdown,
/// hw_power_brake_slowdown.
pub const THROTTLE_POLICIES: usize = 9;

/// Bytes of a GPU or a MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    pub total_bytes: Option<u64>,
    /// Without what the driver reserves, where the driver tells the two apart (510 and later).
    pub used_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
}

/// How busy the parts of a GPU or of a MIG instance were since the poll before. Source: NVML's GPM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuActivity {
    /// Shares of time or of the possible, 0..1, by [`ACTIVITIES`].
    pub ratio: [Option<f64>; ACTIVITIES],
    /// Bytes a second: transmit, receive.
    pub pcie_bytes_per_second: [Option<f64>; 2],
    /// Bytes a second: transmit, receive.
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
    /// Of the GPU instance, which its compute instances share.
    pub activity: GpuActivity,
}

/// What changes rarely or costs more to ask.
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
    /// 0..1 of the intended maximum; may be more than 1.
    pub fan_speed_ratio: Vec<Option<f64>>,
    /// Generation of the link now and at most.
    pub pcie_link_generation: [Option<u32>; 2],
    /// Lanes now and at most.
    pub pcie_link_width: [Option<u32>; 2],
    pub pcie_replays: Option<u64>,
    /// corrected and uncorrected since the driver was loaded (volatile), then both over the GPU's life (aggregate).
    pub ecc_errors: [Option<u64>; 4],
    /// The same by part of the GPU, of those that this GPU counts apart.
    pub ecc_locations: Vec<EccLocation>,
    /// Whether uncorrected errors in SRAM have reached what NVIDIA replaces a GPU for.
    pub ecc_sram_threshold_exceeded: Option<bool>,
    /// multiple_single_bit, double_bit.
    pub retired_pages: [Option<u64>; 2],
    pub retired_pages_pending: Option<bool>,
    /// correctable, uncorrectable.
    pub remapped_rows: [Option<u64>; 2],
    pub remapped_rows_pending: Option<bool>,
    pub remapped_rows_failure: Option<bool>,
    /// What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.
    pub recovery_action: Option<u64>,
    pub nvlinks: Vec<NvLink>,
    /// Processes with a compute context.
    pub processes: Option<u64>,
    /// With `--gpu.processes`.
    pub process_list: Vec<GpuProcess>,
}

/// ECC errors of one part of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EccLocation {
    /// e.g. `dram`, `sram`.
    pub location: &'static str,
    /// As [`GpuHealth::ecc_errors`].
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
    /// As NVML says it: the host's, unless the driver knows of PID namespaces.
    pub pid: u32,
    /// The command's name, absent where `/proc` does not show the process.
    pub name: Option<String>,
    /// Absent where the driver does not say.
    pub bytes: Option<u64>,
    /// Share of time in which the process had a kernel running, 0..1, since the slow poll before. Absent where it had none.
    pub sm_ratio: Option<f64>,
}
