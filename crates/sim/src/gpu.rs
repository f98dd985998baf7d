//! The readings of a GPU driver while the engine runs.

use crate::config::Slow;

/// One reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    /// Share of the time since the last reading in which a kernel ran.
    pub utilization: f64,
    pub sm_clock_mhz: f64,
    pub max_sm_clock_mhz: f64,
    pub power_watts: f64,
    pub power_limit_watts: f64,
    /// What the limit is if nobody lowers it.
    pub default_power_limit_watts: f64,
    pub energy_joules: f64,
    pub temperature_celsius: f64,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    /// `sw_power_cap` or `hw_thermal_slowdown`.
    pub throttle_reason: Option<&'static str>,
    /// Seconds so far in which power, and heat, limited the clock.
    pub throttled_by_power: f64,
    pub throttled_by_heat: f64,
}

impl Gpu {
    /// The same GPU with this share of the work. A pipeline stage that waits for another one draws less power.
    pub(crate) fn with_share(&self, share: f64, now: f64) -> Self {
        let scaled = |total: f64, idle: f64| idle + (total - idle) * share;
        Self {
            utilization: self.utilization * share,
            power_watts: scaled(self.power_watts, IDLE_WATTS),
            energy_joules: scaled(self.energy_joules, IDLE_WATTS * now),
            ..self.clone()
        }
    }
}

const MAX_CLOCK: f64 = 1980.0;
const IDLE_WATTS: f64 = 90.0;
const LIMIT_WATTS: f64 = 700.0;
const LOWERED_LIMIT_WATTS: f64 = 450.0;
const TOTAL_BYTES: u64 = 80 << 30;
/// Degrees per watt once the temperature has settled, and the time constant with which it follows the power.
const DEGREES_PER_WATT: f64 = 0.07;
const THERMAL_SECONDS: f64 = 20.0;

#[derive(Debug)]
pub(crate) struct GpuState {
    /// When it was read last, and the seconds for which kernels had run until then.
    at: f64,
    busy: f64,
    last: Gpu,
}

impl Default for GpuState {
    fn default() -> Self {
        Self { at: 0.0, busy: 0.0, last: Gpu { temperature_celsius: 30.0, ..Gpu::default() } }
    }
}

impl GpuState {
    /// Reads the GPU at `now`. Kernels have run for `busy` seconds in total.
    pub(crate) fn read(&mut self, now: f64, busy: f64, slow: Option<(f64, Slow)>, memory: u64) -> Gpu {
        let seconds = now - self.at;
        let utilization = if seconds > 0.0 { ((busy - self.busy) / seconds).clamp(0.0, 1.0) } else { 0.0 };
        let (clock, power_share, throttle_reason) = match slow {
            Some((factor, Slow::PowerCap)) => (MAX_CLOCK / factor, 1.0, Some("sw_power_cap")),
            Some((factor, Slow::Thermal)) => (MAX_CLOCK / factor, 0.7, Some("hw_thermal_slowdown")),
            Some((factor, Slow::Silent)) => (MAX_CLOCK, 1.0 / factor, None),
            Some((_, Slow::Regression)) | None => (MAX_CLOCK, 0.9, None),
        };
        let is_capped = throttle_reason == Some("sw_power_cap");
        let limit = if is_capped { LOWERED_LIMIT_WATTS } else { LIMIT_WATTS };
        let power = IDLE_WATTS + utilization * (limit - IDLE_WATTS) * power_share;
        let is_hot = throttle_reason == Some("hw_thermal_slowdown");
        let settled = 30.0 + DEGREES_PER_WATT * power + if is_hot { 25.0 } else { 0.0 };
        let last = &self.last;
        let warmer = (settled - last.temperature_celsius) * (1.0 - (-seconds / THERMAL_SECONDS).exp());
        let gpu = Gpu {
            utilization,
            sm_clock_mhz: clock,
            max_sm_clock_mhz: MAX_CLOCK,
            power_watts: power,
            power_limit_watts: limit,
            default_power_limit_watts: LIMIT_WATTS,
            energy_joules: last.energy_joules + power * seconds,
            temperature_celsius: last.temperature_celsius + warmer,
            memory_used_bytes: memory.min(TOTAL_BYTES),
            memory_total_bytes: TOTAL_BYTES,
            throttle_reason,
            throttled_by_power: last.throttled_by_power + if is_capped { seconds } else { 0.0 },
            throttled_by_heat: last.throttled_by_heat + if is_hot { seconds } else { 0.0 },
        };
        *self = Self { at: now, busy, last: gpu.clone() };
        gpu
    }
}
