//! GPUs that are lost or slowed down.

use super::super::finding::{Check, Fact, Facts, Rule, Severity, count, share, text};
use super::super::observation::{Exporter, Gpu};

/// Policies that say that something is wrong with cooling or power supply.
const FAULTS: &[&str] =
    &["thermal", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "reliability"];
const POWER: &[&str] = &["power", "board_limit"];
/// The same as momentary reasons, for a GPU without the counters.
const FAULT_REASONS: &[&str] =
    &["sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "gpu-lost",
        severity: Severity::Critical,
        check: Check::Gpu(gpu_lost),
        says: "The GPU is present and cannot be read.",
        when: "nv_gpu_up is 0. Not while GPU monitoring is paused or the driver is unloaded.",
        guideline: "The driver reports the GPU as lost, it needs a reset, or its calls hang.",
        change: "Look for Xid messages in dmesg. Drain the node, then reset the GPU (nvidia-smi --gpu-reset) or reboot.",
        alerts: &["TrtllmGpuLost"],
    },
    Rule {
        name: "gpu-absent",
        severity: Severity::Critical,
        check: Check::Exporter(gpu_absent),
        says: "A GPU of this host has vanished.",
        when: "trtllm_exporter_nvml_gpus is below trtllm_exporter_nvml_gpus_expected. Not while GPU monitoring is paused.",
        guideline: "It has fallen off the bus, the driver was unloaded, or the container lost its devices.",
        change: "Look at lspci and dmesg. Restart the exporter; if the GPU stays absent, drain the node.",
        alerts: &["TrtllmGpuAbsent"],
    },
    Rule {
        name: "gpu-throttled",
        severity: Severity::Warning,
        check: Check::Gpu(gpu_throttled),
        says: "Heat or the power supply slows the GPU down.",
        when: "A thermal, power brake or reliability policy limited the clocks for at least 5 % of the window, or does so now.",
        guideline: "Every iteration takes longer, on all ranks: they wait for the slowest GPU.",
        change: "Check fans, air flow and power supplies (nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE).",
        alerts: &["TrtllmGpuThrottled"],
    },
    Rule {
        name: "gpu-power-capped",
        severity: Severity::Info,
        check: Check::Gpu(gpu_power_capped),
        says: "The power limit keeps the clocks of the GPU down.",
        when: "The power policy limited the clocks for at least 50 % of the window.",
        guideline: "Usual under full load. It matters if the limit is below the GPU's default.",
        change: "Compare nv_gpu_power_limit_watts{kind=\"enforced\"} with kind=\"default\"; nvidia-smi -pl raises it.",
        alerts: &["TrtllmGpuPowerCapped"],
    },
    Rule {
        name: "gpu-errors",
        severity: Severity::Warning,
        check: Check::Gpu(gpu_errors),
        says: "The driver reported errors of the GPU.",
        when: "nv_gpu_xid_errors_total or the uncorrected nv_gpu_ecc_errors_total grew in the window, or nv_gpu_recovery_action is \
               not 0.",
        guideline: "An Xid error often ends the process that uses the GPU.",
        change: "Look up the Xid in NVIDIA's documentation. A recovery action asks for a reset or for draining the node.",
        alerts: &["TrtllmGpuXid", "TrtllmGpuResetNeeded"],
    },
];

fn gpu_lost(gpu: &Gpu) -> Facts {
    let state = gpu.page.after.current("nv_gpu_state", "state").unwrap_or("unknown");
    (gpu.is_monitored && gpu.page.now("nv_gpu_up", &[]) == Some(0.0))
        .then(|| vec![count("nv_gpu_up", 0.0), text("nv_gpu_state", state)])
}

fn gpu_absent(exporter: &Exporter) -> Facts {
    let page = &exporter.page;
    let expected = page.now("trtllm_exporter_nvml_gpus_expected", &[])?;
    let gpus = page.now("trtllm_exporter_nvml_gpus", &[]).unwrap_or(0.0);
    let state = page.after.current("trtllm_exporter_nvml_state", "state")?;
    let applies = gpus < expected && !matches!(state, "released" | "starting" | "off");
    applies
        .then(|| vec![count("GPUs", gpus), count("GPUs before", expected), text("trtllm_exporter_nvml_state", state)])
}

fn heat(gpu: &Gpu) -> Vec<Fact> {
    let now = |name, labels: &[(&str, &str)]| gpu.page.now(name, labels);
    let celsius = now("nv_gpu_temperature_celsius", &[("sensor", "gpu")]).map(|heat| count("temperature in °C", heat));
    let power = now("nv_gpu_power_usage", &[]).map(|watts| count("power in W", watts));
    celsius.into_iter().chain(power).collect()
}

fn gpu_throttled(gpu: &Gpu) -> Facts {
    let (policy, time) = gpu.throttled(FAULTS)?;
    let reason = FAULT_REASONS
        .iter()
        .find(|reason| gpu.page.now("nv_gpu_clocks_event_active", &[("reason", reason)]) == Some(1.0));
    if time < 0.05 && reason.is_none() {
        return None;
    }
    let mut facts = vec![
        text("policy", reason.copied().filter(|_| time < 0.05).unwrap_or(policy)),
        share("time throttled", time.min(1.0)),
    ];
    facts.extend(heat(gpu));
    Some(facts)
}

fn gpu_power_capped(gpu: &Gpu) -> Facts {
    let (policy, time) = gpu.throttled(POWER).filter(|(_, time)| *time >= 0.5)?;
    let mut facts = vec![text("policy", policy), share("time throttled", time.min(1.0))];
    facts.extend(heat(gpu));
    Some(facts)
}

fn gpu_errors(gpu: &Gpu) -> Facts {
    let xids = gpu.page.grew("nv_gpu_xid_errors_total", &[]);
    let ecc = gpu.page.grew("nv_gpu_ecc_errors_total", &[("error", "uncorrected")]);
    let action = gpu.page.now("nv_gpu_recovery_action", &[]).unwrap_or(0.0);
    let applies = xids > 0.0 || ecc > 0.0 || action > 0.0;
    applies.then(|| {
        let mut facts = vec![
            count("Xid errors", xids),
            count("uncorrected ECC errors", ecc),
            count("nv_gpu_recovery_action", action),
        ];
        facts.extend(gpu.page.now("nv_gpu_last_xid", &[]).map(|xid| count("last Xid", xid)));
        facts
    })
}
