//! A reading of a GPU, with the values that verdicts and people need.

use serde::{Deserialize, Serialize};

use trtllm_records::gpu::{GpuHealth, GpuIdentity, GpuReadings, GpuSnapshot, GpuState, LastXid, ThrottleTimes};

/// Values are in base units. Absent values were not read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReading {
    pub uuid: String,
    pub index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the state on the metrics page.
    pub state: String,
    /// Whether it is known that the engine runs on this GPU.
    pub serves: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_hertz: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_hertz: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_event_reasons: Option<u64>,
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
    pub xids: u64,
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
    pub fn of(gpu: &GpuSnapshot, serves: bool) -> Self {
        let (readings, identity) = (&gpu.readings, &gpu.identity);
        let micro = |value: Option<f64>| value.map(|value| (value * 1e6).round() / 1e6);
        Self {
            uuid: identity.uuid.clone(),
            index: identity.index,
            name: identity.name.clone(),
            state: gpu.state.name().to_owned(),
            serves,
            utilization_ratio: micro(readings.utilization_ratio),
            memory_used_bytes: readings.memory.used_bytes,
            memory_total_bytes: readings.memory.total_bytes,
            power_watts: micro(readings.power_usage_watts),
            energy_joules: micro(readings.energy_joules),
            temperature_celsius: readings.temperature_celsius.gpu,
            sm_clock_hertz: readings.clock_hertz.sm,
            sm_clock_max_hertz: readings.health.clock_max_hertz.sm,
            clocks_event_reasons: readings.clocks_event_reasons,
            throttle_power_ns: readings.throttle_ns.power,
            throttle_thermal_ns: readings.throttle_ns.thermal,
            throttle_sw_thermal_ns: readings.throttle_ns.sw_thermal_slowdown,
            throttle_hw_thermal_ns: readings.throttle_ns.hw_thermal_slowdown,
            throttle_power_brake_ns: readings.throttle_ns.hw_power_brake_slowdown,
            throttle_reliability_ns: readings.throttle_ns.reliability,
            xids: gpu.xids.iter().map(|(_, count)| *count).sum(),
            last_xid: gpu.last_xid.map(|xid| xid.code),
            last_xid_us: gpu.last_xid.map(|xid| xid.at_us),
            ecc_errors_uncorrected: readings.health.ecc_errors.uncorrected_volatile,
            recovery_action: readings.health.recovery_action,
        }
    }

    /// The GPU with these readings. All Xid errors get the code of the last one, because a recording has no other codes.
    #[must_use]
    pub fn snapshot(&self) -> GpuSnapshot {
        let mut health = GpuHealth { recovery_action: self.recovery_action, ..GpuHealth::default() };
        health.clock_max_hertz.sm = self.sm_clock_max_hertz;
        health.ecc_errors.uncorrected_volatile = self.ecc_errors_uncorrected;
        let mut readings = GpuReadings {
            utilization_ratio: self.utilization_ratio,
            power_usage_watts: self.power_watts,
            energy_joules: self.energy_joules,
            clocks_event_reasons: self.clocks_event_reasons,
            throttle_ns: ThrottleTimes {
                power: self.throttle_power_ns,
                thermal: self.throttle_thermal_ns,
                sw_thermal_slowdown: self.throttle_sw_thermal_ns,
                hw_thermal_slowdown: self.throttle_hw_thermal_ns,
                hw_power_brake_slowdown: self.throttle_power_brake_ns,
                reliability: self.throttle_reliability_ns,
                ..ThrottleTimes::default()
            },
            health,
            ..GpuReadings::default()
        };
        (readings.memory.used_bytes, readings.memory.total_bytes) = (self.memory_used_bytes, self.memory_total_bytes);
        readings.temperature_celsius.gpu = self.temperature_celsius;
        readings.clock_hertz.sm = self.sm_clock_hertz;
        let state = GpuState::ALL.into_iter().find(|state| state.name() == self.state);
        GpuSnapshot {
            identity: GpuIdentity {
                uuid: self.uuid.clone(),
                index: self.index,
                name: self.name.clone(),
                ..GpuIdentity::default()
            },
            state: state.unwrap_or(GpuState::Lost),
            readings,
            last_poll: None,
            xids: self.last_xid.map(|code| (code, self.xids)).into_iter().collect(),
            last_xid: self.last_xid.map(|code| LastXid { code, at_us: self.last_xid_us.unwrap_or(0) }),
            reports_xids: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_read_again_is_the_same() {
        let reading = GpuReading {
            uuid: "GPU-1".to_owned(),
            state: "reset_required".to_owned(),
            serves: true,
            power_watts: Some(250.5),
            sm_clock_max_hertz: Some(2_000_000_000),
            throttle_thermal_ns: Some(5),
            xids: 3,
            last_xid: Some(79),
            last_xid_us: Some(1),
            ..GpuReading::default()
        };
        assert_eq!(GpuReading::of(&reading.snapshot(), true), reading);
    }
}
