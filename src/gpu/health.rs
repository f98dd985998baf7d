//! What is asked of a GPU more seldom, since it changes rarely or costs more: limits, PCIe link, ECC and what became of
//! bad memory, NVLink by link, processes.

use std::fs;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureThreshold;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::fields;
use super::probe::Probe;
use super::readings::{CLOCKS, from_mega, from_milli};
use crate::model::gpu::{GpuHealth, NvLink, ProcessMemory};

/// More than any GPU has; a bound where the driver does not say how many.
const MOST_LINKS: u32 = 36;
const MOST_FANS: u32 = 16;
/// Series of one GPU are bounded, whoever runs there.
const MOST_PROCESSES: usize = 64;

const THRESHOLDS: [(TemperatureThreshold, &str); 4] = [
    (TemperatureThreshold::Shutdown, "temperature_threshold_shutdown"),
    (TemperatureThreshold::Slowdown, "temperature_threshold_slowdown"),
    (TemperatureThreshold::MemoryMax, "temperature_threshold_memory_max"),
    (TemperatureThreshold::GpuMax, "temperature_threshold_gpu_max"),
];

/// Which questions about processes are safe and wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessQuestions {
    count: bool,
    list: bool,
}

impl ProcessQuestions {
    /// Early 535 drivers write past the caller's buffer (nvml-wrapper #48, go-nvml #75): nothing is asked of them.
    pub(super) fn new(driver_version: Option<&str>, per_process: bool) -> Self {
        let mut parts = driver_version.unwrap_or("").split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0_u32), parts.next().unwrap_or(0_u32));
        let safe = !((535, 0)..(535, 98)).contains(&version);
        Self { count: safe, list: safe && per_process }
    }
}

/// One slow poll.
pub(super) fn read(device: &Device<'_>, processes: &ProcessQuestions, probe: &mut Probe<'_>) -> GpuHealth {
    let bar1 = probe.ask("bar1_memory_info", || device.bar1_memory_info());
    let constraints = probe.ask("power_limit_constraints", || device.power_management_limit_constraints());
    let enforced = probe.ask("enforced_power_limit", || device.enforced_power_limit());
    let default = probe.ask("power_limit_default", || device.power_management_limit_default());
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
    let count = if processes.count {
        probe.ask("running_compute_processes_count", || device.running_compute_processes_count()).map(u64::from)
    } else {
        None
    };
    GpuHealth {
        bar1_bytes: [bar1.as_ref().map(|bar1| bar1.total), bar1.as_ref().map(|bar1| bar1.used)],
        power_limits_watts: limits.map(|limit| limit.map(from_milli)),
        temperature_limits_celsius: THRESHOLDS
            .map(|(threshold, call)| probe.ask(call, || device.temperature_threshold(threshold)).map(f64::from)),
        clock_max_hertz: CLOCKS.map(|(clock, _, call)| probe.ask(call, || device.max_clock_info(clock)).map(from_mega)),
        fan_speed_ratio: fans(device, probe),
        pcie_link_generation: [
            probe.ask("current_pcie_link_gen", || device.current_pcie_link_gen()),
            probe.ask("max_pcie_link_gen", || device.max_pcie_link_gen()),
        ],
        pcie_link_width: [
            probe.ask("current_pcie_link_width", || device.current_pcie_link_width()),
            probe.ask("max_pcie_link_width", || device.max_pcie_link_width()),
        ],
        pcie_replays: values.get(fields::PCIE_REPLAYS),
        ecc_errors: values.all(fields::ECC_ERRORS),
        retired_pages: values.all(fields::RETIRED_PAGES),
        retired_pages_pending: flag(fields::RETIRED_PENDING),
        remapped_rows: values.all(fields::REMAPPED_ROWS),
        remapped_rows_pending: flag(fields::REMAPPED_PENDING),
        remapped_rows_failure: flag(fields::REMAPPED_FAILURE),
        recovery_action: values.get(fields::RECOVERY_ACTION),
        nvlinks: nvlinks(device, probe),
        processes: count,
        process_memory: if processes.list { process_memory(device, probe) } else { Vec::new() },
    }
}

/// The intended speed of each fan. Boards without any answer "not supported".
fn fans(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<Option<f64>> {
    let count = probe.ask("num_fans", || device.num_fans()).unwrap_or(0).min(MOST_FANS);
    (0..count)
        .map(|fan| probe.ask("fan_speed", || device.fan_speed(fan)).map(|speed| f64::from(speed) / 100.0))
        .collect()
}

/// Every link that the GPU has, then the error counters of all of them in one call.
fn nvlinks(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<NvLink> {
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        // One past the last is an invalid argument.
        let state = probe.ask("nvlink_state", || match device.link_wrapper_for(link).is_active() {
            Err(NvmlError::InvalidArg) => Ok(None),
            state => state.map(Some),
        });
        match state.flatten() {
            Some(up) => links.push(NvLink { link, up, errors: [None; 4] }),
            None => break,
        }
    }
    let counters: Vec<_> = links.iter().map(|link| fields::link_errors(link.link)).collect();
    let asked = counters.iter().flatten().flat_map(|(new, old)| [*new, *old]).flatten();
    let values = probe.fields(device, asked);
    for (link, counters) in links.iter_mut().zip(&counters) {
        link.errors = counters.map(|(new, old)| {
            let value = |field: Option<_>| field.and_then(|field| values.get(field));
            value(new).or_else(|| value(old))
        });
    }
    links
}

fn process_memory(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<ProcessMemory> {
    let mut processes =
        probe.ask("running_compute_processes", || device.running_compute_processes()).unwrap_or_default();
    processes.sort_by_key(|process| process.pid);
    // With MIG a process is listed once for each instance that it uses.
    processes.dedup_by_key(|process| process.pid);
    processes.truncate(MOST_PROCESSES);
    processes
        .into_iter()
        .map(|process| ProcessMemory {
            pid: process.pid,
            name: fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok().map(|name| name.trim_end().to_owned()),
            bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_whose_process_list_is_unsafe_is_not_asked_for_it() {
        for (version, safe) in [("535.54.03", false), ("535.86.10", false), ("535.104.05", true), ("580.159", true)] {
            let questions = ProcessQuestions::new(Some(version), true);
            assert_eq!((questions.count, questions.list), (safe, safe), "{version}");
        }
        assert!(!ProcessQuestions::new(Some("580.1"), false).list, "not unless it is wanted");
    }
}
