//! What is asked of a GPU: who it is, and one poll of it. One line per reading; the rules for errors, deadlines and
//! counting are in [`Probe::ask`](super::probe::Probe::ask) and hold for every line.
//! Not asked on purpose: PCIe throughput, which sleeps 20 ms per direction.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::DeviceArchitecture;

use super::fields::{self, Field};
use super::gpm::Gpm;
use super::health;
use super::probe::Probe;
use super::processes::ProcessQuestions;
use super::units::{ratio_from_percent, watts_from_milliwatts};
use super::{clocks, mig, raw};
use crate::model::gpu::{GpuHealth, GpuIdentity, GpuReadings};

/// One poll. Energy is apart because the driver counts it from its own start, and the ledger makes it ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// `energy_joules` is not filled in.
    pub(super) gauges: GpuReadings,
    /// Millijoules since the driver was loaded.
    pub(super) energy_mj: Option<u64>,
}

/// What is kept of one GPU from poll to poll, as long as its handle is.
#[derive(Debug)]
pub(super) struct Rounds<'nvml> {
    throttle: [Field; 9],
    processes: ProcessQuestions,
    slow: Duration,
    slow_due: Instant,
    health: GpuHealth,
    gpm: Gpm<'nvml>,
    mig_enabled: Option<bool>,
}

impl Rounds<'_> {
    /// `slow`: from one look at what changes rarely to the next.
    pub(super) fn new(driver_version: Option<&str>, per_process: bool, interval: Duration, slow: Duration) -> Self {
        Self {
            throttle: fields::throttle(driver_version),
            processes: ProcessQuestions::new(driver_version, per_process),
            slow,
            slow_due: Instant::now(),
            health: GpuHealth::default(),
            gpm: Gpm::new(interval),
            mig_enabled: None,
        }
    }

    /// The next poll asks for what changes rarely too.
    pub(super) fn ask_all(&mut self) {
        self.slow_due = Instant::now();
    }
}

/// Who the GPU is; `None` without a UUID, since nothing could be said of it.
pub(super) fn identify(device: &Device<'_>, index: u32, probe: &mut Probe<'_>) -> Option<GpuIdentity> {
    let architecture = |known: DeviceArchitecture| match known {
        DeviceArchitecture::Unknown => None,
        known => Some(format!("{known:?}").to_lowercase()),
    };
    Some(GpuIdentity {
        uuid: probe.ask("uuid", || device.uuid())?,
        index,
        name: probe.ask("name", || device.name()),
        pci_bus_id: probe.ask("pci_info", || device.pci_info()).map(|pci| pci.bus_id),
        minor: probe.ask("minor_number", || device.minor_number()),
        serial: probe.ask("serial", || device.serial()),
        vbios: probe.ask("vbios_version", || device.vbios_version()),
        // The wrapper calls an architecture that is newer than itself an error; it is only a word of the info series.
        architecture: probe.ask("architecture", || Ok(device.architecture().ok().and_then(architecture))).flatten(),
    })
}

/// Asks for everything that changes.
pub(super) fn read<'nvml>(device: &Device<'nvml>, rounds: &mut Rounds<'nvml>, probe: &mut Probe<'_>) -> Reading {
    // A GPU that does not have MIG answers "not supported", which is not "disabled"; one that fails to say it is as before.
    let failed = probe.failures.len();
    let answer = probe.ask("mig_mode", || device.mig_mode()).map(|mode| mode.current != 0);
    let mig_enabled = if probe.failures.len() > failed { rounds.mig_enabled } else { answer };
    if mig_enabled != rounds.mig_enabled {
        rounds.mig_enabled = mig_enabled;
        rounds.gpm.clear();
        rounds.slow_due = Instant::now();
        probe.forget_lacking();
    }
    let mig = mig_enabled == Some(true);
    // NVML documents utilisation as not supported under MIG; a driver that answers 0 there must not be believed.
    let utilization = if mig { None } else { probe.ask("utilization_rates", || device.utilization_rates()) };
    let memory = probe.ask("memory_info", || raw::memory(device)).unwrap_or_default();
    let power_usage_watts = probe.ask("power_usage", || device.power_usage()).map(watts_from_milliwatts);
    let power_limit_watts =
        probe.ask("power_management_limit", || device.power_management_limit()).map(watts_from_milliwatts);
    let energy_mj = probe.ask("total_energy_consumption", || device.total_energy_consumption());
    let temperature = probe.ask("temperature", || device.temperature(TemperatureSensor::Gpu)).map(f64::from);
    let clock_hertz = clocks::current_hertz(device, probe);
    let reasons = probe.ask("current_throttle_reasons", || device.current_throttle_reasons());
    let performance_state = probe.ask("performance_state", || device.performance_state()).map(|state| state.as_c());
    let engines = if mig { [None; 4] } else { engine_utilization(device, probe) };
    let single = [fields::MEMORY_TEMPERATURE, fields::POWER_INSTANT];
    let counts = rounds.throttle.into_iter().chain(fields::PCIE_BYTES).chain(fields::NVLINK_KIB);
    let values = probe.fields(device, single.into_iter().chain(counts));
    let activity = rounds.gpm.read(device, None, probe);
    let instances = if mig { mig::instances(device, &mut rounds.gpm, probe) } else { Vec::new() };
    rounds.gpm.settle();
    if rounds.slow_due <= Instant::now() && !probe.faulted() {
        rounds.slow_due = Instant::now() + rounds.slow;
        rounds.health = health::read(device, &mut rounds.processes, probe);
    }
    let gauges = GpuReadings {
        utilization_ratio: utilization.as_ref().map(|rates| ratio_from_percent(rates.gpu)),
        memory_controller_utilization_ratio: utilization.map(|rates| ratio_from_percent(rates.memory)),
        memory,
        power_usage_watts,
        power_instant_watts: values.get(fields::POWER_INSTANT).map(|milli| milli as f64 / 1000.0),
        power_limit_watts,
        energy_joules: None,
        temperature_celsius: [temperature, memory_temperature(values.get(fields::MEMORY_TEMPERATURE))],
        clock_hertz,
        clocks_event_reasons: reasons.map(|reasons| reasons.bits()),
        throttle_ns: values.all(rounds.throttle),
        // 32 is NVML's "unknown".
        performance_state: performance_state.filter(|state| *state <= 15),
        engine_utilization_ratio: engines,
        pcie_bytes: values.all(fields::PCIE_BYTES),
        nvlink_bytes: values.all(fields::NVLINK_KIB).map(|kib| kib.map(|kib| kib.saturating_mul(1024))),
        activity,
        mig_enabled,
        mig: instances,
        health: rounds.health.clone(),
    };
    Reading { gauges, energy_mj }
}

/// encoder, decoder, jpeg, ofa.
fn engine_utilization(device: &Device<'_>, probe: &mut Probe<'_>) -> [Option<f64>; 4] {
    [
        probe.ask("encoder_utilization", || device.encoder_utilization()).map(|engine| engine.utilization),
        probe.ask("decoder_utilization", || device.decoder_utilization()).map(|engine| engine.utilization),
        probe.ask("jpeg_utilization", || raw::jpeg_utilization(device)),
        probe.ask("ofa_utilization", || raw::ofa_utilization(device)),
    ]
    .map(|percent| percent.map(ratio_from_percent))
}

/// Some boards without the sensor answer 0 rather than "not supported"; no memory in use is that cold.
fn memory_temperature(celsius: Option<u64>) -> Option<f64> {
    celsius.filter(|celsius| *celsius > 0).map(|celsius| celsius as f64)
}
