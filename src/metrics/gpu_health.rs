//! Turns the slowly changing readings of a GPU into samples: limits, links, errors, processes.

use crate::model::gpu::{EccErrors, GpuHealth, NvLinkErrors};
use crate::model::named_numbers::NamedNumbers as _;

use super::catalog::Id;
use super::writer::GpuWriter;

pub(super) fn health_page(health: &GpuHealth, series: &mut GpuWriter<'_>) {
    series.put(Id::GpuBar1Total, health.bar1_total_bytes);
    series.put(Id::GpuBar1Used, health.bar1_used_bytes);
    series.each(Id::GpuPowerLimits, health.power_limits_watts);
    series.each(Id::GpuTemperatureLimit, health.temperature_limits_celsius);
    series.each(Id::GpuClockMax, health.clock_max_hertz);
    for (fan, speed) in health.fan_speed_ratio.iter().enumerate() {
        series.with(Id::GpuFanSpeed, &[("fan", &fan.to_string())], *speed);
    }
    series.put(Id::GpuPcieGeneration, health.pcie_link_generation.map(u64::from));
    series.put(Id::GpuPcieGenerationMax, health.pcie_link_generation_max.map(u64::from));
    series.put(Id::GpuPcieWidth, health.pcie_link_width.map(u64::from));
    series.put(Id::GpuPcieWidthMax, health.pcie_link_width_max.map(u64::from));
    series.put(Id::GpuPcieReplays, health.pcie_replays);
    for link in &health.nvlinks {
        let number = link.link.to_string();
        series.with(Id::GpuNvlinkUp, &[("link", &number)], Some(link.up));
        for (kind, count) in NvLinkErrors::NAMES.iter().zip(link.errors.numbers()) {
            series.with(Id::GpuNvlinkErrors, &[("link", &number), ("kind", kind)], count);
        }
    }
    for (error, persistence, count) in ecc_counts(&health.ecc_errors) {
        series.with(Id::GpuEcc, &[("error", error), ("persistence", persistence)], count);
    }
    for part in &health.ecc_locations {
        for (error, persistence, count) in ecc_counts(&part.errors) {
            let labels = [("error", error), ("location", part.location), ("persistence", persistence)];
            series.with(Id::GpuEccLocations, &labels, count);
        }
    }
    series.put(Id::GpuEccSram, health.ecc_sram_threshold_exceeded);
    series.each(Id::GpuRetiredPages, health.retired_pages);
    series.put(Id::GpuRetiredPending, health.retired_pages_pending);
    series.each(Id::GpuRemappedRows, health.remapped_rows);
    series.put(Id::GpuRemappedPending, health.remapped_rows_pending);
    series.put(Id::GpuRemappedFailure, health.remapped_rows_failure);
    series.put(Id::GpuRecoveryAction, health.recovery_action);
    series.put(Id::GpuProcesses, health.processes);
    for process in &health.process_list {
        let (name, pid) = (process.name.as_deref().unwrap_or(""), process.pid.to_string());
        series.with(Id::GpuProcessMemory, &[("name", name), ("pid", &pid)], process.bytes);
        series.with(Id::GpuProcessSm, &[("name", name), ("pid", &pid)], process.sm_ratio);
    }
}

/// Each count with its labels `error` and `persistence`.
fn ecc_counts(errors: &EccErrors) -> [(&'static str, &'static str, Option<u64>); 4] {
    [
        ("corrected", "volatile", errors.corrected_volatile),
        ("uncorrected", "volatile", errors.uncorrected_volatile),
        ("corrected", "aggregate", errors.corrected_aggregate),
        ("uncorrected", "aggregate", errors.uncorrected_aggregate),
    ]
}
