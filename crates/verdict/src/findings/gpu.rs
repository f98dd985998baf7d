//! Findings about GPUs that are lost, slow or faulty.

use trtllm_records::gpu::{ClockReasons, Gpu, GpuInventory, GpuState, NvmlState};

use super::finding::{Finding, TEXTS};
use crate::finding_rules;
use crate::gpu_window::GpuWindow;
use crate::verdict::{Severity, Unit};

finding_rules! {
    TEXTS;
    LOST = "gpu-lost", Gpu, Critical;
    DENIED = "gpu-no-permission", Gpu, Warning;
    ABSENT = "gpu-absent", Exporter, Critical;
    THROTTLED = "gpu-throttled", Gpu, Warning;
    CAPPED = "gpu-power-capped", Gpu, Info;
    ERRORS = "gpu-errors", Gpu, Warning;
    UNREAD = "gpus-unread", Exporter, Info;
}

/// Limited clocks are a finding from this share of the last minute on. The second share is for limits by power.
pub const THROTTLED_SHARE: f64 = 0.05;
pub const CAPPED_SHARE: f64 = 0.5;
/// Reasons for limited clocks that show a fault of the cooling or the power supply.
const FAULTS: [&str; 4] = ["sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"];
const MINUTE: f64 = 60.0;

/// All findings about the GPUs. `exporter` is the subject of findings about the whole host.
pub fn findings(inventory: &GpuInventory, windows: &[GpuWindow], exporter: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if inventory.nvml == NvmlState::Up && inventory.missing > 0 {
        let absent = ABSENT.about(exporter).with("GPUs", f64::from(inventory.visible()), Unit::Count, None);
        found.push(absent.with("GPUs before", f64::from(inventory.expected), Unit::Count, None));
    }
    let had_gpus = inventory.expected > 0;
    let is_unread = match inventory.nvml {
        NvmlState::Off | NvmlState::Starting | NvmlState::Up | NvmlState::Released => false,
        NvmlState::LibraryNotFound => had_gpus,
        NvmlState::DriverNotLoaded | NvmlState::VersionMismatch | NvmlState::NoPermission | NvmlState::Failed => true,
    };
    if is_unread {
        let severity = if had_gpus { Severity::Warning } else { UNREAD.severity };
        found.push(Finding { severity, ..UNREAD.about(exporter).detail(inventory.nvml.name()) });
    }
    if inventory.nvml == NvmlState::Up {
        for gpu in &inventory.gpus {
            let window = windows.iter().find(|window| window.uuid == gpu.identity.uuid);
            of_gpu(gpu, window, &mut found);
        }
    }
    found
}

fn of_gpu(gpu: &Gpu, window: Option<&GpuWindow>, found: &mut Vec<Finding>) {
    let readings = &gpu.readings;
    let subject = format!("{} {}", gpu.identity.index, gpu.identity.uuid);
    match gpu.state {
        GpuState::Ok => {}
        GpuState::NoPermission => found.push(DENIED.about(&*subject)),
        state => found.push(LOST.about(&*subject).detail(state.name())),
    }
    let span = window.and_then(|window| window.span(MINUTE)).unwrap_or_default();
    let throttled = span.throttled_by_heat + span.throttled_by_hardware;
    let reasons = readings.clocks_event_reasons.into_iter().flat_map(ClockReasons::names);
    // Some drivers report this reason of idle GPUs that are cool.
    let is_idle = readings.utilization_ratio == Some(0.0);
    let is_fault = |reason: &&str| FAULTS.contains(reason) && !(is_idle && *reason == "sw_thermal_slowdown");
    let reasons: Vec<&str> = reasons.filter(is_fault).collect();
    let heat = |finding: Finding| {
        let finding = finding.with("temperature in °C", readings.temperature_celsius.gpu, Unit::Count, None);
        finding.with("power", readings.power_usage_watts, Unit::Watts, None)
    };
    if throttled >= THROTTLED_SHARE || !reasons.is_empty() {
        let by = match reasons.is_empty() {
            false => reasons.join(", "),
            true if span.throttled_by_heat > 0.0 => "heat".to_owned(),
            true => "power brake".to_owned(),
        };
        let finding = THROTTLED.about(&*subject).detail(&by);
        found.push(heat(finding.with("time throttled", throttled.min(1.0), Unit::Share, THROTTLED_SHARE)));
    }
    if span.throttled_by_power >= CAPPED_SHARE {
        let finding = CAPPED.about(&*subject);
        found.push(heat(finding.with("time throttled", span.throttled_by_power, Unit::Share, CAPPED_SHARE)));
    }
    let action = readings.health.recovery_action.map_or(0.0, |action| action as f64);
    if span.xids > 0.0 || span.ecc_errors > 0.0 || action > 0.0 {
        let finding = ERRORS
            .about(&*subject)
            .with("Xid errors", span.xids, Unit::Count, None)
            .with("uncorrected ECC errors", span.ecc_errors, Unit::Count, None)
            .with("nv_gpu_recovery_action", action, Unit::Count, None);
        found.push(finding.with("last Xid", gpu.last_xid.map(|code| code as f64), Unit::Count, None));
    }
}
