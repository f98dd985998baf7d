//! The readings of a GPU that verdicts, recordings, the JSON API and people need.

use serde::{Deserialize, Serialize};

use super::{GpuSnapshot, clock_reasons};

/// JSON of `/api/v1/gpus` and of recordings: one GPU. Values are in base units. Absent values were not read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuReading {
    pub uuid: String,
    pub index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the state on the metrics page.
    pub state: String,
    /// In a recording: whether it is known that the engine runs on this GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_active_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// The management limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// The lowest of all limits, and the limit of a GPU whose limit was not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_enforced_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_default_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_hertz: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_hertz: Option<u64>,
    /// What limits the clocks now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_limited_by: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_power_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_thermal_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_sw_thermal_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_hw_thermal_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_power_brake_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_reliability_ns: Option<u64>,
    /// Xid errors since the exporter started. Absent if the driver does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_xid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_xid_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_errors_uncorrected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_action: Option<u64>,
}

impl GpuReading {
    #[must_use]
    pub fn of(gpu: &GpuSnapshot) -> Self {
        let (readings, identity) = (&gpu.readings, &gpu.identity);
        let limits = readings.health.power_limits_watts;
        let micro = |value: Option<f64>| value.map(|value| (value * 1e6).round() / 1e6);
        let has_xids = gpu.reports_xids || !gpu.xids.is_empty();
        Self {
            uuid: identity.uuid.clone(),
            index: identity.index,
            name: identity.name.clone(),
            state: gpu.state.name().to_owned(),
            serves: None,
            utilization_ratio: micro(readings.utilization_ratio),
            sm_active_ratio: micro(readings.activity.sm),
            memory_used_bytes: readings.memory.used_bytes,
            memory_total_bytes: readings.memory.total_bytes,
            power_watts: micro(readings.power_usage_watts),
            power_limit_watts: micro(readings.power_limit_watts),
            power_limit_enforced_watts: micro(limits.enforced),
            power_limit_default_watts: micro(limits.default),
            energy_joules: micro(readings.energy_joules),
            temperature_celsius: readings.temperature_celsius.gpu,
            sm_clock_hertz: readings.clock_hertz.sm,
            sm_clock_max_hertz: readings.health.clock_max_hertz.sm,
            clocks_limited_by: readings.clocks_event_reasons.map(clock_reasons),
            throttle_power_ns: readings.throttle_ns.power,
            throttle_thermal_ns: readings.throttle_ns.thermal,
            throttle_sw_thermal_ns: readings.throttle_ns.sw_thermal_slowdown,
            throttle_hw_thermal_ns: readings.throttle_ns.hw_thermal_slowdown,
            throttle_power_brake_ns: readings.throttle_ns.hw_power_brake_slowdown,
            throttle_reliability_ns: readings.throttle_ns.reliability,
            xids: has_xids.then(|| gpu.xids.iter().map(|(_, count)| *count).sum()),
            last_xid: gpu.last_xid.map(|xid| xid.code),
            last_xid_us: gpu.last_xid.map(|xid| xid.at_us),
            ecc_errors_uncorrected: readings.health.ecc_errors.uncorrected_volatile,
            recovery_action: readings.health.recovery_action,
        }
    }
}
