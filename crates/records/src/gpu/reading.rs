//! The readings of a GPU that verdicts, recordings, the JSON API and people need.

use serde::{Deserialize, Deserializer, Serialize};

use super::{GpuSnapshot, clock_reasons};

/// JSON of `/api/v1/gpus` and of recordings: one GPU. Values are in base units. Absent values were not read. Recordings of earlier
/// builds have the names in `alias`.
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
    #[serde(alias = "utilization_ratio", skip_serializing_if = "Option::is_none")]
    pub utilization_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_active_ratio: Option<f64>,
    #[serde(alias = "memory_used_bytes", skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(alias = "memory_total_bytes", skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(alias = "power_watts", skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// The management limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// The lowest of all limits, and the limit of a GPU whose limit was not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_enforced_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_default_watts: Option<f64>,
    #[serde(alias = "energy_joules", skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    #[serde(alias = "temperature_celsius", skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    #[serde(alias = "sm_clock_hertz", skip_serializing_if = "Option::is_none")]
    pub sm_clock_hertz: Option<u64>,
    #[serde(alias = "sm_clock_max_hertz", skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_hertz: Option<u64>,
    /// What limits the clocks now. Recordings of earlier builds have NVML's bit mask.
    #[serde(
        alias = "clocks_event_reasons",
        deserialize_with = "names_or_mask",
        skip_serializing_if = "Option::is_none"
    )]
    pub clocks_limited_by: Option<Vec<String>>,
    #[serde(alias = "throttle_power_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_power_ns: Option<u64>,
    #[serde(alias = "throttle_thermal_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_thermal_ns: Option<u64>,
    #[serde(alias = "throttle_sw_thermal_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_sw_thermal_ns: Option<u64>,
    #[serde(alias = "throttle_hw_thermal_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_hw_thermal_ns: Option<u64>,
    #[serde(alias = "throttle_power_brake_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_power_brake_ns: Option<u64>,
    #[serde(alias = "throttle_reliability_ns", skip_serializing_if = "Option::is_none")]
    pub throttle_reliability_ns: Option<u64>,
    /// Xid errors since the exporter started. Absent if the driver does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xids: Option<u64>,
    #[serde(alias = "last_xid", skip_serializing_if = "Option::is_none")]
    pub last_xid: Option<u64>,
    #[serde(alias = "last_xid_us", skip_serializing_if = "Option::is_none")]
    pub last_xid_us: Option<i64>,
    #[serde(alias = "ecc_errors_uncorrected", skip_serializing_if = "Option::is_none")]
    pub ecc_errors_uncorrected: Option<u64>,
    #[serde(alias = "recovery_action", skip_serializing_if = "Option::is_none")]
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

fn names_or_mask<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Reasons {
        Names(Vec<String>),
        Mask(u64),
    }
    Ok(Option::deserialize(deserializer)?.map(|reasons| match reasons {
        Reasons::Names(names) => names,
        Reasons::Mask(mask) => clock_reasons(mask),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_earlier_recording_is_read() {
        let line = r#"{"uuid":"GPU-1","index":3,"name":"H200","state":"reset_required","serves":true,"utilization_ratio":0.5,
            "memory_used_bytes":1,"memory_total_bytes":2,"power_watts":250.5,"energy_joules":3.5,"temperature_celsius":61.0,
            "sm_clock_hertz":4,"sm_clock_max_hertz":5,"clocks_event_reasons":68,"throttle_power_ns":6,"throttle_thermal_ns":7,
            "throttle_sw_thermal_ns":8,"throttle_hw_thermal_ns":9,"throttle_power_brake_ns":10,"throttle_reliability_ns":11,
            "xids":3,"last_xid":79,"last_xid_us":12,"ecc_errors_uncorrected":13,"recovery_action":1}"#;
        let reading: GpuReading = serde_json::from_str(line).unwrap();
        let now = serde_json::json!({"uuid": "GPU-1", "index": 3, "name": "H200", "state": "reset_required", "serves": true,
            "utilizationRatio": 0.5, "memoryUsedBytes": 1, "memoryTotalBytes": 2, "powerWatts": 250.5, "energyJoules": 3.5,
            "temperatureCelsius": 61.0, "smClockHertz": 4, "smClockMaxHertz": 5,
            "clocksLimitedBy": ["sw_power_cap", "hw_thermal_slowdown"], "throttlePowerNs": 6, "throttleThermalNs": 7,
            "throttleSwThermalNs": 8, "throttleHwThermalNs": 9, "throttlePowerBrakeNs": 10, "throttleReliabilityNs": 11,
            "xids": 3, "lastXid": 79, "lastXidUs": 12, "eccErrorsUncorrected": 13, "recoveryAction": 1});
        assert_eq!(serde_json::to_value(&reading).unwrap(), now);
        assert_eq!(serde_json::from_value::<GpuReading>(now).unwrap(), reading);
    }
}
