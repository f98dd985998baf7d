//! The JSON of a GPU in `/api/v1/gpus` and in recordings. It has the values that verdicts and people need.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::Gpu;

/// Implements both directions from a list of the keys and where a [`Gpu`] has their values. An absent value has no key. Keys that
/// are not in the list are ignored. A derive would need an attribute on each reading that JSON does not have, and has
/// no name for the SM clock and its maximum, which are in two structs of the same type.
macro_rules! json {
    ($($key:literal = $($member:ident).+,)*) => {
        impl Serialize for Gpu {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(match serde_json::to_value(&self.$($member).+).map_err(S::Error::custom)? {
                    Value::Null => {}
                    value => map.serialize_entry($key, &value)?,
                })*
                map.end()
            }
        }

        impl<'de> Deserialize<'de> for Gpu {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let (mut values, mut gpu) = (Map::deserialize(deserializer)?, Self::default());
                $(if let Some(value) = values.remove($key) {
                    gpu.$($member).+ = serde_json::from_value(value).map_err(D::Error::custom)?;
                })*
                Ok(gpu)
            }
        }
    };
}

json! {
    "uuid" = identity.uuid,
    "index" = identity.index,
    "name" = identity.name,
    "state" = state,
    "serves" = serves,
    "utilizationRatio" = readings.utilization_ratio,
    "smActiveRatio" = readings.activity.sm,
    "memoryUsedBytes" = readings.memory.used_bytes,
    "memoryTotalBytes" = readings.memory.total_bytes,
    "powerWatts" = readings.power_usage_watts,
    "powerLimitWatts" = readings.power_limit_watts,
    "powerLimitEnforcedWatts" = readings.health.power_limits_watts.enforced,
    "powerLimitDefaultWatts" = readings.health.power_limits_watts.default,
    "energyJoules" = readings.energy_joules,
    "temperatureCelsius" = readings.temperature_celsius.gpu,
    "smClockHertz" = readings.clock_hertz.sm,
    "smClockMaxHertz" = readings.health.clock_max_hertz.sm,
    "clocksLimitedBy" = readings.clocks_event_reasons,
    "throttlePowerNs" = readings.throttle_ns.power,
    "throttleThermalNs" = readings.throttle_ns.thermal,
    "throttleSwThermalNs" = readings.throttle_ns.sw_thermal_slowdown,
    "throttleHwThermalNs" = readings.throttle_ns.hw_thermal_slowdown,
    "throttlePowerBrakeNs" = readings.throttle_ns.hw_power_brake_slowdown,
    "throttleReliabilityNs" = readings.throttle_ns.reliability,
    "xids" = xids,
    "lastXid" = last_xid,
    "lastXidUs" = last_xid_us,
    "eccErrorsUncorrected" = readings.health.ecc_errors.uncorrected_volatile,
    "recoveryAction" = readings.health.recovery_action,
}

#[cfg(test)]
mod tests {
    use super::super::{ClockReasons, GpuState};
    use super::*;

    #[test]
    fn json_is_read_as_it_was_written_and_absent_values_have_no_key() {
        let text = r#"{"uuid":"GPU-a","index":1,"state":"reset_required","serves":true,"powerWatts":412.5,"smClockHertz":1980000000,"smClockMaxHertz":1985000000,"clocksLimitedBy":["sw_power_cap","display_clock_setting"],"throttlePowerNs":0,"xids":0}"#;
        let gpu: Gpu = serde_json::from_str(text).unwrap();
        assert_eq!((gpu.state, gpu.serves, gpu.xids), (GpuState::ResetRequired, Some(true), Some(0)));
        assert_eq!(gpu.readings.clocks_event_reasons, Some(ClockReasons(0x104)));
        assert_eq!((gpu.readings.throttle_ns.power, gpu.readings.throttle_ns.thermal), (Some(0), None));
        assert_eq!(serde_json::to_string(&gpu).unwrap(), text);
        assert_eq!(serde_json::to_string(&Gpu::default()).unwrap(), r#"{"uuid":"","index":0,"state":"lost"}"#);
    }

    #[test]
    fn the_json_of_a_newer_exporter_is_read_without_what_is_unknown() {
        let text = r#"{"uuid":"GPU-a","state":"melted","clocksLimitedBy":["moon","gpu_idle"],"new":{"a":[1]},"powerWatts":null}"#;
        let gpu: Gpu = serde_json::from_str(text).unwrap();
        assert_eq!((gpu.state, gpu.readings.clocks_event_reasons), (GpuState::Lost, Some(ClockReasons(1))));
        assert_eq!((gpu.identity.index, gpu.readings.power_usage_watts), (0, None));
        assert!(serde_json::from_str::<Gpu>(r#"{"powerWatts":"many"}"#).is_err());
    }
}
