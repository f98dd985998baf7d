//! One poll of a GPU, one line per reading. [`Probe::call`](super::probe::Probe::call) has the rules for errors, deadlines
//! and counting. NVML's PCIe throughput is not read on purpose: the call sleeps 20 ms per direction.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

use super::fields;
use super::gpm::GpmSampler;
use super::health;
use super::probe::Probe;
use super::processes::ProcessReader;
use super::units::{ratio_from_percent, watts_from_milliwatts};
use super::{clocks, mig, raw};
use crate::model::gpu::{EngineUtilization, GpuHealth, GpuReadings, Temperatures};

/// Energy is separate, because the driver counts from its own start and the tracker from ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PollResult {
    /// `energy_joules` is empty.
    pub(super) readings: GpuReadings,
    /// Millijoules since the driver was loaded.
    pub(super) energy_mj: Option<u64>,
}

/// What is kept between two polls of one device handle.
#[derive(Debug)]
pub(super) struct PollState<'nvml> {
    /// See [`fields::renumbers_clocks_events`].
    clocks_events_renumbered: bool,
    processes: ProcessReader,
    slow_interval: Duration,
    slow_due: Instant,
    health: GpuHealth,
    gpm: GpmSampler<'nvml>,
    mig_enabled: Option<bool>,
}

impl PollState<'_> {
    pub(super) fn new(
        driver_version: Option<&str>,
        per_process: bool,
        interval: Duration,
        slow_interval: Duration,
    ) -> Self {
        Self {
            clocks_events_renumbered: driver_version.is_some_and(fields::renumbers_clocks_events),
            processes: ProcessReader::new(driver_version, per_process),
            slow_interval,
            slow_due: Instant::now(),
            health: GpuHealth::default(),
            gpm: GpmSampler::new(interval),
            mig_enabled: None,
        }
    }

    /// Makes the next poll a slow one, which also reads [`GpuHealth`].
    pub(super) fn request_slow_poll(&mut self) {
        self.slow_due = Instant::now();
    }
}

pub(super) fn read<'nvml>(device: &Device<'nvml>, kept: &mut PollState<'nvml>, probe: &mut Probe<'_>) -> PollResult {
    // A GPU without MIG returns "not supported", which differs from "disabled". If the call fails, the last mode holds.
    let failures = probe.failures.len();
    let mode = probe.call("mig_mode", || device.mig_mode()).map(|mode| mode.current != 0);
    let mig_enabled = if probe.failures.len() > failures { kept.mig_enabled } else { mode };
    if mig_enabled != kept.mig_enabled {
        kept.mig_enabled = mig_enabled;
        kept.gpm.clear();
        kept.request_slow_poll();
        probe.clear_unsupported();
    }
    let mig = mig_enabled == Some(true);
    // NVML documents utilisation as unsupported with MIG. Some drivers return 0 instead, which would be wrong.
    let utilization = if mig { None } else { probe.call("utilization_rates", || device.utilization_rates()) };
    let memory = probe.call("memory_info", || raw::memory(device)).unwrap_or_default();
    let power_usage_watts = probe.call("power_usage", || device.power_usage()).map(watts_from_milliwatts);
    let power_limit_watts =
        probe.call("power_management_limit", || device.power_management_limit()).map(watts_from_milliwatts);
    let energy_mj = probe.call("total_energy_consumption", || device.total_energy_consumption());
    let temperature = probe.call("temperature", || device.temperature(TemperatureSensor::Gpu)).map(f64::from);
    let clock_hertz = clocks::current_hertz(device, probe);
    let reasons = probe.call("current_throttle_reasons", || device.current_throttle_reasons());
    let performance_state = probe.call("performance_state", || device.performance_state()).map(|state| state.as_c());
    let engine_utilization = if mig { EngineUtilization::default() } else { engine_utilization(device, probe) };
    let from_fields = probe.fields(device, |read| GpuReadings {
        power_instant_watts: read(fields::POWER_INSTANT).map(|milliwatts| milliwatts as f64 / 1000.0),
        temperature_celsius: Temperatures {
            gpu: temperature,
            memory: memory_temperature(read(fields::MEMORY_TEMPERATURE)),
        },
        throttle_ns: fields::throttle_ns(kept.clocks_events_renumbered, read),
        pcie_bytes: fields::pcie_bytes(read),
        nvlink_bytes: fields::nvlink_bytes(read),
        ..GpuReadings::default()
    });
    let activity = kept.gpm.read(device, None, probe);
    let instances = if mig { mig::instances(device, &mut kept.gpm, probe) } else { Vec::new() };
    kept.gpm.end_poll();
    if kept.slow_due <= Instant::now() && !probe.gpu_failed() {
        kept.slow_due = Instant::now() + kept.slow_interval;
        kept.health = health::read(device, &mut kept.processes, probe);
    }
    let readings = GpuReadings {
        utilization_ratio: utilization.as_ref().map(|rates| ratio_from_percent(rates.gpu)),
        memory_controller_utilization_ratio: utilization.map(|rates| ratio_from_percent(rates.memory)),
        memory,
        power_usage_watts,
        power_limit_watts,
        clock_hertz,
        clocks_event_reasons: reasons.map(|reasons| reasons.bits()),
        // 32 is NVML's "unknown".
        performance_state: performance_state.filter(|state| *state <= 15),
        engine_utilization,
        activity,
        mig_enabled,
        mig: instances,
        health: kept.health.clone(),
        ..from_fields
    };
    PollResult { readings, energy_mj }
}

fn engine_utilization(device: &Device<'_>, probe: &mut Probe<'_>) -> EngineUtilization {
    let encoder = probe.call("encoder_utilization", || device.encoder_utilization()).map(|engine| engine.utilization);
    let decoder = probe.call("decoder_utilization", || device.decoder_utilization()).map(|engine| engine.utilization);
    EngineUtilization {
        encoder: encoder.map(ratio_from_percent),
        decoder: decoder.map(ratio_from_percent),
        jpeg: probe.call("jpeg_utilization", || raw::jpeg_utilization(device)).map(ratio_from_percent),
        ofa: probe.call("ofa_utilization", || raw::ofa_utilization(device)).map(ratio_from_percent),
    }
}

/// Some boards without the sensor return 0 instead of "not supported". Memory in use is never that cold.
fn memory_temperature(celsius: Option<u64>) -> Option<f64> {
    celsius.filter(|celsius| *celsius > 0).map(|celsius| celsius as f64)
}
