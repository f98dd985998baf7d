//! The slowly changing readings of a GPU as samples: limits, links, errors, processes.

use crate::model::gpu::GpuHealth;

use super::catalog::Id;
use super::writer::GpuWriter;

/// The labels of [`GpuHealth::ecc_errors`].
const ECC: [(&str, &str); 4] =
    [("corrected", "volatile"), ("uncorrected", "volatile"), ("corrected", "aggregate"), ("uncorrected", "aggregate")];

pub(super) fn health_page(health: &GpuHealth, series: &mut GpuWriter<'_>) {
    let [total, used] = health.bar1_bytes;
    series.put(Id::GpuBar1Total, total);
    series.put(Id::GpuBar1Used, used);
    series.in_order(Id::GpuPowerLimits, health.power_limits_watts);
    series.in_order(Id::GpuTemperatureLimit, health.temperature_limits_celsius);
    series.in_order(Id::GpuClockMax, health.clock_max_hertz);
    for (fan, speed) in health.fan_speed_ratio.iter().enumerate() {
        series.with(Id::GpuFanSpeed, &[("fan", &fan.to_string())], *speed);
    }
    let [now, most] = health.pcie_link_generation;
    series.put(Id::GpuPcieGeneration, now.map(u64::from));
    series.put(Id::GpuPcieGenerationMax, most.map(u64::from));
    let [now, most] = health.pcie_link_width;
    series.put(Id::GpuPcieWidth, now.map(u64::from));
    series.put(Id::GpuPcieWidthMax, most.map(u64::from));
    series.put(Id::GpuPcieReplays, health.pcie_replays);
    for link in &health.nvlinks {
        let number = link.link.to_string();
        series.with(Id::GpuNvlinkUp, &[("link", &number)], Some(link.up));
        let kinds = Id::GpuNvlinkErrors.metric().variant.map_or(&[][..], |variant| variant.values);
        for (kind, count) in kinds.iter().zip(link.errors) {
            series.with(Id::GpuNvlinkErrors, &[("link", &number), ("kind", kind)], count);
        }
    }
    for ((error, persistence), count) in ECC.into_iter().zip(health.ecc_errors) {
        series.with(Id::GpuEcc, &[("error", error), ("persistence", persistence)], count);
    }
    for part in &health.ecc_locations {
        for ((error, persistence), count) in ECC.into_iter().zip(part.errors) {
            let labels = [("error", error), ("location", part.location), ("persistence", persistence)];
            series.with(Id::GpuEccLocations, &labels, count);
        }
    }
    series.put(Id::GpuEccSram, health.ecc_sram_threshold_exceeded);
    series.in_order(Id::GpuRetiredPages, health.retired_pages);
    series.put(Id::GpuRetiredPending, health.retired_pages_pending);
    series.in_order(Id::GpuRemappedRows, health.remapped_rows);
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
