//! The values of an idle H200, used for everything that the control file does not set, and the names of calls.

use std::collections::BTreeMap;

use crate::state::Code;

/// The calls that identify a GPU. `all` does not include them.
pub(crate) const IDENTITY: &[&str] = &[
    "device_by_index",
    "uuid",
    "name",
    "index",
    "minor_number",
    "pci_info",
    "serial",
    "vbios_version",
    "architecture",
];

/// The calls that `fail`, `not_supported` and `hang_call` accept. `all` means every call outside [`IDENTITY`].
pub(crate) const CALLS: &[&str] = &[
    "all",
    "mig_mode",
    "utilization_rates",
    "memory_info",
    "memory_info_v1",
    "power_usage",
    "power_management_limit",
    "enforced_power_limit",
    "power_limit_default",
    "power_limit_constraints",
    "total_energy_consumption",
    "temperature",
    "temperature_threshold",
    "clock_info",
    "max_clock_info",
    "current_throttle_reasons",
    "performance_state",
    "encoder_utilization",
    "decoder_utilization",
    "jpeg_utilization",
    "ofa_utilization",
    "field_values",
    "bar1_memory_info",
    "fans",
    "pcie_link",
    "nvlink_state",
    "processes",
    "process_utilization",
    "ecc_counter",
    "sram_ecc_status",
    "gpm",
    "events",
    "mig_device",
    "mig_memory_info",
];

/// Keys of the control file whose value is one number, and their defaults.
pub(crate) const NUMBERS: &[(&str, u64)] = &[
    ("utilization_percent", 0),
    ("memory_utilization_percent", 0),
    ("memory_total_bytes", 150_754_820_096),
    ("memory_used_bytes", 0),
    ("memory_reserved_bytes", 658_505_728),
    ("power_mw", 75_000),
    ("power_limit_mw", 700_000),
    ("enforced_power_limit_mw", 700_000),
    ("default_power_limit_mw", 700_000),
    ("min_power_limit_mw", 200_000),
    ("max_power_limit_mw", 700_000),
    ("energy_mj", 1_000_000),
    ("temperature_celsius", 30),
    ("shutdown_celsius", 95),
    ("slowdown_celsius", 92),
    ("memory_max_celsius", 95),
    ("gpu_max_celsius", 87),
    ("clock_graphics_mhz", 345),
    ("clock_sm_mhz", 345),
    ("clock_memory_mhz", 3201),
    ("clock_video_mhz", 765),
    ("max_clock_graphics_mhz", 1980),
    ("max_clock_sm_mhz", 1980),
    ("max_clock_memory_mhz", 3201),
    ("max_clock_video_mhz", 1980),
    ("throttle_reasons", 1),
    ("performance_state", 0),
    ("encoder_percent", 0),
    ("decoder_percent", 0),
    ("jpeg_percent", 0),
    ("ofa_percent", 0),
    ("bar1_total_bytes", 274_877_906_944),
    ("bar1_used_bytes", 1_048_576),
    ("pcie_gen", 5),
    ("pcie_gen_max", 5),
    ("pcie_width", 16),
    ("pcie_width_max", 16),
    // 9 is NVML's number for Hopper.
    ("architecture", 9),
    ("nvlinks", 18),
    ("sram_threshold_exceeded", 0),
    ("gpm_supported", 1),
];

/// Ids of the GPM metrics (GPU performance monitoring) that Hopper supports.
pub(crate) const GPM: &[u32] = &[1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 20, 21, 60, 61];

/// The ECC counters of a Hopper GPU, by NVML's numbers: device memory and SRAM, each corrected and uncorrected, since the
/// driver was loaded and over the lifetime of the GPU.
pub(crate) fn ecc() -> BTreeMap<(u32, u32, u32), u64> {
    [2, 7].into_iter().flat_map(|location| (0..4).map(move |kind| ((location, kind / 2, kind % 2), 0))).collect()
}

/// The type of a field's value, as NVML's `NVML_VALUE_TYPE_*`.
pub(crate) fn value_type(id: u32) -> u32 {
    const UNSIGNED_INT: u32 = 1;
    const UNSIGNED_LONG_LONG: u32 = 3;
    match id {
        29..=31 | 82 | 94 | 142..=145 | 186 | 197..=198 | 230 => UNSIGNED_INT,
        _ => UNSIGNED_LONG_LONG,
    }
}

/// Field values of an H200 under driver 580.159.
pub(crate) fn fields() -> BTreeMap<(u32, u32), Result<u64, Code>> {
    let counts = (3..=6).chain(74..=79).chain(142..=145).chain(197..=198).chain(269..=271).chain([94, 230]);
    let mut fields: BTreeMap<_, _> = counts.map(|id| ((id, 0), Ok(0))).collect();
    fields.insert((82, 0), Ok(34));
    fields.insert((186, 0), Ok(75_500));
    for id in 138..=139 {
        fields.insert((id, u32::MAX), Ok(0));
    }
    for (id, link) in (161..=163).flat_map(|id| (0..18).map(move |link| (id, link))) {
        fields.insert((id, link), Ok(0));
    }
    fields
}
