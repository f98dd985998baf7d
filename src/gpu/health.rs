//! The slow poll of a GPU, for what changes rarely or costs more: limits, PCIe link, ECC, page retirement, row remapping,
//! NVLink by link.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, MemoryLocation, TemperatureThreshold};
use nvml_wrapper::error::NvmlError;

use super::probe::Probe;
use super::processes::ProcessReader;
use super::units::{ratio_from_percent, watts_from_milliwatts};
use super::{clocks, fields, raw};
use crate::model::gpu::{EccLocation, GpuHealth, NvLink};

/// More than any GPU has. Bounds the loops where the driver returns no count or a wrong one.
const MOST_LINKS: u32 = 36;
const MOST_FANS: u32 = 16;

const THRESHOLDS: [(TemperatureThreshold, &str); 4] = [
    (TemperatureThreshold::Shutdown, "temperature_threshold_shutdown"),
    (TemperatureThreshold::Slowdown, "temperature_threshold_slowdown"),
    (TemperatureThreshold::MemoryMax, "temperature_threshold_memory_max"),
    (TemperatureThreshold::GpuMax, "temperature_threshold_gpu_max"),
];

/// The parts of a GPU with ECC counters of their own, and their label values.
const LOCATIONS: [(MemoryLocation, &str); 8] = [
    (MemoryLocation::Device, "dram"),
    (MemoryLocation::SRAM, "sram"),
    (MemoryLocation::L1Cache, "l1_cache"),
    (MemoryLocation::L2Cache, "l2_cache"),
    (MemoryLocation::RegisterFile, "register_file"),
    (MemoryLocation::Texture, "texture_memory"),
    (MemoryLocation::Shared, "texture_shared"),
    (MemoryLocation::Cbu, "cbu"),
];
/// In the order of [`EccLocation::errors`].
const ECC: [(MemoryError, EccCounter); 4] = [
    (MemoryError::Corrected, EccCounter::Volatile),
    (MemoryError::Uncorrected, EccCounter::Volatile),
    (MemoryError::Corrected, EccCounter::Aggregate),
    (MemoryError::Uncorrected, EccCounter::Aggregate),
];

pub(super) fn read(device: &Device<'_>, processes: &mut ProcessReader, probe: &mut Probe<'_>) -> GpuHealth {
    let bar1 = probe.call("bar1_memory_info", || device.bar1_memory_info());
    let constraints = probe.call("power_limit_constraints", || device.power_management_limit_constraints());
    let enforced = probe.call("enforced_power_limit", || device.enforced_power_limit());
    let default = probe.call("power_limit_default", || device.power_management_limit_default());
    let limits =
        [enforced, default, constraints.as_ref().map(|limit| limit.min_limit), constraints.map(|l| l.max_limit)];
    let single = [
        fields::RETIRED_PENDING,
        fields::REMAPPED_PENDING,
        fields::REMAPPED_FAILURE,
        fields::PCIE_REPLAYS,
        fields::RECOVERY_ACTION,
    ];
    let lists = fields::ECC_ERRORS.into_iter().chain(fields::RETIRED_PAGES).chain(fields::REMAPPED_ROWS);
    let values = probe.fields(device, single.into_iter().chain(lists));
    let flag = |field| values.get(field).map(|value| value != 0);
    GpuHealth {
        bar1_bytes: [bar1.as_ref().map(|bar1| bar1.total), bar1.as_ref().map(|bar1| bar1.used)],
        power_limits_watts: limits.map(|limit| limit.map(watts_from_milliwatts)),
        temperature_limits_celsius: THRESHOLDS
            .map(|(threshold, call)| probe.call(call, || device.temperature_threshold(threshold)).map(f64::from)),
        clock_max_hertz: clocks::max_hertz(device, probe),
        fan_speed_ratio: fans(device, probe),
        pcie_link_generation: [
            probe.call("current_pcie_link_gen", || device.current_pcie_link_gen()),
            probe.call("max_pcie_link_gen", || device.max_pcie_link_gen()),
        ],
        pcie_link_width: [
            probe.call("current_pcie_link_width", || device.current_pcie_link_width()),
            probe.call("max_pcie_link_width", || device.max_pcie_link_width()),
        ],
        pcie_replays: values.get(fields::PCIE_REPLAYS),
        ecc_errors: values.all(fields::ECC_ERRORS),
        ecc_locations: ecc_locations(device, probe),
        ecc_sram_threshold_exceeded: probe.call("sram_ecc_error_status", || raw::sram_ecc_threshold_exceeded(device)),
        retired_pages: values.all(fields::RETIRED_PAGES),
        retired_pages_pending: flag(fields::RETIRED_PENDING),
        remapped_rows: values.all(fields::REMAPPED_ROWS),
        remapped_rows_pending: flag(fields::REMAPPED_PENDING),
        remapped_rows_failure: flag(fields::REMAPPED_FAILURE),
        recovery_action: values.get(fields::RECOVERY_ACTION),
        nvlinks: nvlinks(device, probe),
        processes: processes.count(device, probe),
        process_list: processes.list(device, probe),
    }
}

/// The parts for which this GPU has counters.
fn ecc_locations(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<EccLocation> {
    let mut kinds = 0_u32..;
    let locations = LOCATIONS.map(|(part, location)| {
        let errors = ECC.map(|(error, counter)| {
            let count = || device.memory_error_counter(error, counter, part);
            probe.call_kind("memory_error_counter", kinds.next()?, count)
        });
        EccLocation { location, errors }
    });
    locations.into_iter().filter(|part| part.errors.iter().any(Option::is_some)).collect()
}

/// The target speed of each fan. Boards without fans return "not supported".
fn fans(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<Option<f64>> {
    let count = probe.call("num_fans", || device.num_fans()).unwrap_or(0).min(MOST_FANS);
    (0..count).map(|fan| probe.call("fan_speed", || device.fan_speed(fan)).map(ratio_from_percent)).collect()
}

/// Reads the state of every link, then the error counters of all links with one call.
fn nvlinks(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<NvLink> {
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        // The number after the last link is an invalid argument.
        let state = probe.call("nvlink_state", || match device.link_wrapper_for(link).is_active() {
            Err(NvmlError::InvalidArg) => Ok(None),
            state => state.map(Some),
        });
        match state.flatten() {
            Some(up) => links.push(NvLink { link, up, errors: [None; 4] }),
            None => break,
        }
    }
    let counters: Vec<_> = links.iter().map(|link| fields::link_errors(link.link)).collect();
    let fields = counters.iter().flatten().flat_map(|(new, old)| [*new, *old]).flatten();
    let values = probe.fields(device, fields);
    for (link, counters) in links.iter_mut().zip(&counters) {
        link.errors = counters.map(|(new, old)| {
            let value = |field: Option<_>| field.and_then(|field| values.get(field));
            value(new).or_else(|| value(old))
        });
    }
    links
}
