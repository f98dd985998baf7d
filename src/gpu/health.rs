//! The slow poll of a GPU, for what changes rarely or costs more: limits, PCIe link, ECC, page retirement, row remapping,
//! NVLink by link.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, MemoryLocation, TemperatureThreshold};
use nvml_wrapper::error::NvmlError;

use super::probe::Probe;
use super::processes::ProcessReader;
use super::units::{ratio_from_percent, watts_from_milliwatts};
use super::{clocks, fields, raw};
use crate::model::gpu::{EccErrors, EccLocation, GpuHealth, NvLink, NvLinkErrors, PowerLimits, TemperatureLimits};

/// More than any GPU has. Bounds the loops where the driver returns no count or a wrong one.
const MOST_LINKS: u32 = 36;
const MOST_FANS: u32 = 16;

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

pub(super) fn read(device: &Device<'_>, processes: &mut ProcessReader, probe: &mut Probe<'_>) -> GpuHealth {
    let bar1 = probe.call("bar1_memory_info", || device.bar1_memory_info());
    let power_limits_watts = power_limits(device, probe);
    let from_fields = probe.fields(device, |read| GpuHealth {
        pcie_replays: read(fields::PCIE_REPLAYS),
        ecc_errors: fields::ecc_errors(read),
        retired_pages: fields::retired_pages(read),
        retired_pages_pending: read(fields::RETIRED_PENDING).map(|pending| pending != 0),
        remapped_rows: fields::remapped_rows(read),
        remapped_rows_pending: read(fields::REMAPPED_PENDING).map(|pending| pending != 0),
        remapped_rows_failure: read(fields::REMAPPED_FAILURE).map(|failure| failure != 0),
        recovery_action: read(fields::RECOVERY_ACTION),
        ..GpuHealth::default()
    });
    GpuHealth {
        bar1_total_bytes: bar1.as_ref().map(|bar1| bar1.total),
        bar1_used_bytes: bar1.map(|bar1| bar1.used),
        power_limits_watts,
        temperature_limits_celsius: temperature_limits(device, probe),
        clock_max_hertz: clocks::max_hertz(device, probe),
        fan_speed_ratio: fans(device, probe),
        pcie_link_generation: probe.call("current_pcie_link_gen", || device.current_pcie_link_gen()),
        pcie_link_generation_max: probe.call("max_pcie_link_gen", || device.max_pcie_link_gen()),
        pcie_link_width: probe.call("current_pcie_link_width", || device.current_pcie_link_width()),
        pcie_link_width_max: probe.call("max_pcie_link_width", || device.max_pcie_link_width()),
        ecc_locations: ecc_locations(device, probe),
        ecc_sram_threshold_exceeded: probe.call("sram_ecc_error_status", || raw::sram_ecc_threshold_exceeded(device)),
        nvlinks: nvlinks(device, probe),
        processes: processes.count(device, probe),
        process_list: processes.list(device, probe),
        ..from_fields
    }
}

fn power_limits(device: &Device<'_>, probe: &mut Probe<'_>) -> PowerLimits {
    let range = probe.call("power_limit_constraints", || device.power_management_limit_constraints());
    let enforced = probe.call("enforced_power_limit", || device.enforced_power_limit());
    let default = probe.call("power_limit_default", || device.power_management_limit_default());
    PowerLimits {
        enforced: enforced.map(watts_from_milliwatts),
        default: default.map(watts_from_milliwatts),
        min: range.as_ref().map(|range| watts_from_milliwatts(range.min_limit)),
        max: range.map(|range| watts_from_milliwatts(range.max_limit)),
    }
}

fn temperature_limits(device: &Device<'_>, probe: &mut Probe<'_>) -> TemperatureLimits {
    let mut celsius = |call, threshold| probe.call(call, || device.temperature_threshold(threshold)).map(f64::from);
    TemperatureLimits {
        shutdown: celsius("temperature_threshold_shutdown", TemperatureThreshold::Shutdown),
        slowdown: celsius("temperature_threshold_slowdown", TemperatureThreshold::Slowdown),
        memory_max: celsius("temperature_threshold_memory_max", TemperatureThreshold::MemoryMax),
        gpu_max: celsius("temperature_threshold_gpu_max", TemperatureThreshold::GpuMax),
    }
}

/// The parts for which this GPU has counters.
fn ecc_locations(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<EccLocation> {
    // A GPU may count one kind of error in one part and not in another, so each combination has a number of its own.
    let mut combinations = 0_u32..;
    let locations = LOCATIONS.map(|(part, location)| {
        let mut count = |error, counter| {
            let read = || device.memory_error_counter(error, counter, part);
            probe.call_kind("memory_error_counter", combinations.next()?, read)
        };
        let errors = EccErrors {
            corrected_volatile: count(MemoryError::Corrected, EccCounter::Volatile),
            uncorrected_volatile: count(MemoryError::Uncorrected, EccCounter::Volatile),
            corrected_aggregate: count(MemoryError::Corrected, EccCounter::Aggregate),
            uncorrected_aggregate: count(MemoryError::Uncorrected, EccCounter::Aggregate),
        };
        EccLocation { location, errors }
    });
    locations.into_iter().filter(|part| part.errors != EccErrors::default()).collect()
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
            Some(up) => links.push(NvLink { link, up, errors: NvLinkErrors::default() }),
            None => break,
        }
    }
    probe.fields(device, |read| {
        let with_errors = |link: &NvLink| NvLink { errors: fields::link_errors(link.link, read), ..*link };
        links.iter().map(with_errors).collect()
    })
}
