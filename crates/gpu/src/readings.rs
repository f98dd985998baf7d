//! One poll of a GPU, one line per reading with its limits. [`Probe::call`](super::probe::Probe::call) has the rules for
//! errors, deadlines and counting. NVML's PCIe throughput is not read, because
//! the call sleeps 20 ms per direction, nor are its counters of PCIe bytes (fields 197 and 198): they have 32 bits, which a busy
//! link fills many times between two polls.

use std::path::Path;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::error::NvmlError;

use super::config::GpuConfig;
use super::counters::ENERGY;
use super::fields::{self, NvmlField, ReadField, field};
use super::gpm::GpmSampler;
use super::limits::{
    CELSIUS, ERRORS, FAN_PERCENT, MEGAHERTZ, MEMORY_BYTES, MILLIWATTS, PAGES, PCIE_GENERATION, PCIE_LANES,
    PCIE_REPLAYS, PERCENT, RECOVERY_ACTION, YES_OR_NO,
};
use super::probe::{CallFailure, Probe};
use super::processes::ProcessReader;
use super::{mig, raw};
use trtllm_records::gpu::{
    ClockReasons, Clocks, EccErrors, EccLocation, EngineUtilization, GpuHealth, GpuReadings, NvLink, NvLinkErrors,
    PowerLimits, RemappedRows, RetiredPages, TemperatureLimits, Temperatures,
};

/// Maximum numbers of links and fans that are read, which are more than any GPU has. They limit the loops where the
/// driver returns no count or a wrong count.
const MOST_LINKS: u32 = 36;
const MOST_FANS: u32 = 16;
const CURRENT_CLOCKS: [&str; 4] = ["clock_graphics", "clock_sm", "clock_memory", "clock_video"];
const MAX_CLOCKS: [&str; 4] = ["max_clock_graphics", "max_clock_sm", "max_clock_memory", "max_clock_video"];

/// The parts of a GPU that have their own ECC counters, and their label values.
const LOCATIONS: [(MemoryLocation, &str); 8] = [
    (MemoryLocation::Device, "dram"),
    (MemoryLocation::SRAM, "sram"),
    (MemoryLocation::L1Cache, "l1_cache"),
    (MemoryLocation::L2Cache, "l2_cache"),
    (MemoryLocation::RegisterFile, "register_file"),
    (MemoryLocation::Texture, "texture_memory"),
    (MemoryLocation::Shared, "texture_shared"),
    (MemoryLocation::Cbu, "cbu"),
];

/// What is kept from one poll of a device handle to the next.
#[derive(Debug)]
pub(super) struct PollState<'nvml> {
    /// See [`fields::renumbers_clocks_events`].
    clocks_events_renumbered: bool,
    processes: ProcessReader,
    slow_interval: Duration,
    slow_due: Instant,
    gpm: GpmSampler<'nvml>,
    mig_enabled: Option<bool>,
    /// The readings of the last slow poll.
    health: GpuHealth,
}

impl<'nvml> PollState<'nvml> {
    pub(super) fn new(config: &GpuConfig, driver_version: Option<&str>) -> Self {
        Self {
            clocks_events_renumbered: driver_version.is_some_and(fields::renumbers_clocks_events),
            processes: ProcessReader::new(driver_version, config.per_process, config.pids, Path::new("/proc")),
            slow_interval: config.timing.slow_interval.max(config.interval),
            slow_due: Instant::now(),
            gpm: GpmSampler::new(config.interval),
            mig_enabled: None,
            health: GpuHealth::default(),
        }
    }

    /// Makes the next poll a slow one, which also reads [`GpuHealth`].
    pub(super) fn request_slow_poll(&mut self) {
        self.slow_due = Instant::now();
    }

    /// Reads everything. In a slow poll, also the health, and returns the failures of that; otherwise the last health is kept.
    pub(super) fn read(
        &mut self,
        device: &Device<'nvml>,
        probe: &mut Probe<'_>,
    ) -> (GpuReadings, Option<Vec<CallFailure>>) {
        let readings = self.read_fast(device, probe);
        let fast_failures = probe.failures.len();
        let is_slow = self.slow_due <= Instant::now() && !probe.gpu_failed();
        let slow_failures = is_slow.then(|| {
            self.slow_due = Instant::now() + self.slow_interval;
            self.health = read_health(device, probe);
            self.processes.read(device, probe, &mut self.health);
            probe.failures.split_off(fast_failures)
        });
        (GpuReadings { health: self.health.clone(), ..readings }, slow_failures)
    }

    fn read_fast(&mut self, device: &Device<'nvml>, probe: &mut Probe<'_>) -> GpuReadings {
        self.gpm.begin_poll();
        // A GPU without MIG returns "not supported" and not "disabled". If the call fails, the last mode is kept.
        let failures = probe.failures.len();
        let mode = probe.number("mig_mode", &YES_OR_NO, || device.mig_mode().map(|mode| mode.current));
        let mode = mode.map(|mode| mode == 1);
        let mig_enabled = if probe.failures.len() > failures { self.mig_enabled } else { mode };
        if mig_enabled != self.mig_enabled {
            self.mig_enabled = mig_enabled;
            self.gpm.clear();
            self.request_slow_poll();
            probe.clear_unsupported();
        }
        let mig = mig_enabled == Some(true);
        // NVML documents utilisation as unsupported with MIG. Some drivers return 0 instead, which would be wrong.
        let utilization = if mig { None } else { probe.call("utilization_rates", || device.utilization_rates()) };
        let (gpu, memory_controller) = utilization.map(|rates| (rates.gpu, rates.memory)).unzip();
        let mut share = |percent: Option<u32>| probe.possible("utilization_rates", &PERCENT, percent?).map(ratio);
        let (utilization_ratio, memory_controller_utilization_ratio) = (share(gpu), share(memory_controller));
        let memory = probe.memory("memory_info", device);
        // A GPU without memory of its own (GB10) has no memory controller either, and the driver returns 0 for it.
        let has_memory_controller = memory.total_bytes.is_some() || memory_controller_utilization_ratio != Some(0.0);
        let temperature = probe.number("temperature", &CELSIUS, || device.temperature(TemperatureSensor::Gpu));
        let reasons = probe.call("current_throttle_reasons", || device.current_throttle_reasons());
        let state = probe.call("performance_state", || device.performance_state()).map(|state| state.as_c());
        let energy_counter_mj = probe.call(ENERGY, || device.total_energy_consumption());
        GpuReadings {
            // The driver's counter starts with the driver, the total with this exporter.
            energy_counter_mj: energy_counter_mj.filter(|mj| probe.checked(ENERGY, *mj).is_some()),
            energy_joules: probe.counters.energy_joules(),
            utilization_ratio,
            memory_controller_utilization_ratio: memory_controller_utilization_ratio.filter(|_| has_memory_controller),
            memory,
            power_usage_watts: watts("power_usage", || device.power_usage(), probe),
            power_limit_watts: watts("power_management_limit", || device.power_management_limit(), probe),
            clock_hertz: clocks(CURRENT_CLOCKS, |clock| device.clock_info(clock), probe),
            clocks_event_reasons: reasons.map(|reasons| ClockReasons(reasons.bits())),
            // Numbers above 15 are not states; NVML's "unknown" is 32.
            performance_state: state.filter(|state| *state <= 15),
            engine_utilization: if mig { EngineUtilization::default() } else { engine_utilization(device, probe) },
            activity: self.gpm.read(device, None, probe),
            mig_enabled,
            mig: if mig { mig::instances(device, &mut self.gpm, probe) } else { Vec::new() },
            ..probe.fields(device, |read| GpuReadings {
                power_instant_watts: read(field("field_power_instant", 186).at_most(u64::from(*MILLIWATTS.end())))
                    .map(|milliwatts| milliwatts as f64 / 1000.0),
                temperature_celsius: Temperatures {
                    gpu: temperature.map(f64::from),
                    // Some boards without the sensor return 0 degrees, but memory in use is never that cold.
                    memory: read(field("field_memory_temp", 82).at_most(u64::from(*CELSIUS.end())))
                        .filter(|celsius| *celsius > 0)
                        .map(|celsius| celsius as f64),
                },
                throttle_ns: fields::throttle_ns(self.clocks_events_renumbered, read),
                nvlink_bytes: fields::nvlink_bytes(read),
                ..GpuReadings::default()
            })
        }
    }
}

/// Reads what changes rarely or costs more: limits, PCIe link, ECC, page retirement, row remapping, each NVLink.
fn read_health(device: &Device<'_>, probe: &mut Probe<'_>) -> GpuHealth {
    let bar1 = probe.call("bar1_memory_info", || device.bar1_memory_info());
    let (bar1_total, bar1_used) = bar1.map(|bar1| (bar1.total, bar1.used)).unzip();
    let mut bar1 = |bytes: Option<u64>| probe.possible("bar1_memory_info", &MEMORY_BYTES, bytes?);
    let (bar1_total_bytes, bar1_used_bytes) = (bar1(bar1_total), bar1(bar1_used));
    let sram = probe.number("sram_ecc_error_status", &YES_OR_NO, || raw::sram_ecc_threshold_exceeded(device));
    GpuHealth {
        bar1_total_bytes,
        bar1_used_bytes,
        power_limits_watts: power_limits(device, probe),
        temperature_limits_celsius: temperature_limits(device, probe),
        clock_max_hertz: clocks(MAX_CLOCKS, |clock| device.max_clock_info(clock), probe),
        fan_speed_ratio: fans(device, probe),
        pcie_link_generation: probe
            .number("current_pcie_link_gen", &PCIE_GENERATION, || device.current_pcie_link_gen()),
        pcie_link_generation_max: probe.number("max_pcie_link_gen", &PCIE_GENERATION, || device.max_pcie_link_gen()),
        pcie_link_width: probe.number("current_pcie_link_width", &PCIE_LANES, || device.current_pcie_link_width()),
        pcie_link_width_max: probe.number("max_pcie_link_width", &PCIE_LANES, || device.max_pcie_link_width()),
        ecc_locations: ecc_locations(device, probe),
        ecc_sram_threshold_exceeded: sram.map(|exceeded| exceeded == 1),
        nvlinks: nvlinks(device, probe),
        ..probe.fields(device, |read| GpuHealth {
            pcie_replays: read(field("field_pcie_replay", 94).counter(PCIE_REPLAYS)),
            // NVML counts corrected errors as single-bit errors and uncorrected errors as double-bit errors.
            ecc_errors: EccErrors {
                corrected_volatile: read(field("field_ecc_sbe_volatile", 3).counter(ERRORS)),
                uncorrected_volatile: read(field("field_ecc_dbe_volatile", 4).counter(ERRORS)),
                corrected_aggregate: read(field("field_ecc_sbe_aggregate", 5).counter(ERRORS)),
                uncorrected_aggregate: read(field("field_ecc_dbe_aggregate", 6).counter(ERRORS)),
            },
            retired_pages: RetiredPages {
                multiple_single_bit: read(field("field_retired_sbe", 29).at_most(PAGES)),
                double_bit: read(field("field_retired_dbe", 30).at_most(PAGES)),
            },
            retired_pages_pending: yes_or_no(read, field("field_retired_pending", 31)),
            remapped_rows: RemappedRows {
                correctable: read(field("field_remapped_cor", 142).at_most(PAGES)),
                uncorrectable: read(field("field_remapped_unc", 143).at_most(PAGES)),
            },
            remapped_rows_pending: yes_or_no(read, field("field_remapped_pending", 144)),
            remapped_rows_failure: yes_or_no(read, field("field_remapped_failure", 145)),
            recovery_action: read(field("field_recovery_action", 230).at_most(RECOVERY_ACTION)),
            ..GpuHealth::default()
        })
    }
}

/// Reads milliwatts.
fn watts(
    call: &'static str,
    milliwatts: impl FnOnce() -> Result<u32, NvmlError>,
    probe: &mut Probe<'_>,
) -> Option<f64> {
    probe.number(call, &MILLIWATTS, milliwatts).map(from_milliwatts)
}

fn from_milliwatts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

/// Converts from a percentage.
fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn yes_or_no(read: ReadField<'_>, field: NvmlField) -> Option<bool> {
    read(field.at_most(1)).map(|answer| answer == 1)
}

/// Reads four clocks with calls of these names, which are in the order of the fields of [`Clocks`].
fn clocks(
    [graphics, sm, memory, video]: [&'static str; 4],
    megahertz: impl Fn(Clock) -> Result<u32, NvmlError>,
    probe: &mut Probe<'_>,
) -> Clocks {
    let mut hertz = |call, clock| {
        probe.number(call, &MEGAHERTZ, || megahertz(clock)).map(|megahertz| u64::from(megahertz) * 1_000_000)
    };
    Clocks {
        graphics: hertz(graphics, Clock::Graphics),
        sm: hertz(sm, Clock::SM),
        memory: hertz(memory, Clock::Memory),
        video: hertz(video, Clock::Video),
    }
}

fn engine_utilization(device: &Device<'_>, probe: &mut Probe<'_>) -> EngineUtilization {
    let mut share = |call, read: &dyn Fn() -> Result<u32, NvmlError>| probe.number(call, &PERCENT, read).map(ratio);
    EngineUtilization {
        encoder: share("encoder_utilization", &|| device.encoder_utilization().map(|engine| engine.utilization)),
        decoder: share("decoder_utilization", &|| device.decoder_utilization().map(|engine| engine.utilization)),
        jpeg: share("jpeg_utilization", &|| raw::jpeg_utilization(device)),
        ofa: share("ofa_utilization", &|| raw::ofa_utilization(device)),
    }
}

fn power_limits(device: &Device<'_>, probe: &mut Probe<'_>) -> PowerLimits {
    let range = probe.call("power_limit_constraints", || device.power_management_limit_constraints());
    let (min, max) = range.map(|range| (range.min_limit, range.max_limit)).unzip();
    let mut end = |limit: Option<u32>| probe.possible("power_limit_constraints", &MILLIWATTS, limit?);
    let (min, max) = (end(min), end(max));
    PowerLimits {
        enforced: watts("enforced_power_limit", || device.enforced_power_limit(), probe),
        default: watts("power_limit_default", || device.power_management_limit_default(), probe),
        min: min.map(from_milliwatts),
        max: max.map(from_milliwatts),
    }
}

fn temperature_limits(device: &Device<'_>, probe: &mut Probe<'_>) -> TemperatureLimits {
    let mut celsius =
        |call, threshold| probe.number(call, &CELSIUS, || device.temperature_threshold(threshold)).map(f64::from);
    TemperatureLimits {
        shutdown: celsius("temperature_threshold_shutdown", TemperatureThreshold::Shutdown),
        slowdown: celsius("temperature_threshold_slowdown", TemperatureThreshold::Slowdown),
        memory_max: celsius("temperature_threshold_memory_max", TemperatureThreshold::MemoryMax),
        gpu_max: celsius("temperature_threshold_gpu_max", TemperatureThreshold::GpuMax),
    }
}

/// The ECC counters of each part of the GPU that has any.
fn ecc_locations(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<EccLocation> {
    // A GPU may count one kind of error in one part and not in another. So each combination of part and kind has an id of its
    // own, by which it is skipped if it is unsupported.
    let mut combinations = 0_u32..;
    let locations = LOCATIONS.map(|(part, location)| {
        let mut count = |error, counter| {
            let read = || device.memory_error_counter(error, counter, part);
            probe.counter(field("memory_error_counter", combinations.next()?).counter(ERRORS), read)
        };
        let errors = EccErrors {
            corrected_volatile: count(MemoryError::Corrected, EccCounter::Volatile),
            uncorrected_volatile: count(MemoryError::Uncorrected, EccCounter::Volatile),
            corrected_aggregate: count(MemoryError::Corrected, EccCounter::Aggregate),
            uncorrected_aggregate: count(MemoryError::Uncorrected, EccCounter::Aggregate),
        };
        EccLocation { location, errors }
    });
    locations.into_iter().filter(|part| part.errors != EccErrors::default()).collect()
}

/// The target speed of each fan. Boards without fans return "not supported".
fn fans(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<Option<f64>> {
    let count = probe.call("num_fans", || device.num_fans()).unwrap_or(0).min(MOST_FANS);
    (0..count).map(|fan| probe.number("fan_speed", &FAN_PERCENT, || device.fan_speed(fan)).map(ratio)).collect()
}

/// Reads the state of every link, then the error counters of all links with one call.
fn nvlinks(device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<NvLink> {
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        // A link that the board does not use is unsupported, and others with higher numbers may be in use (GB200). So each link
        // has an id of its own, by which it is skipped.
        let state = probe.call(field("nvlink_state", link), || match device.link_wrapper_for(link).is_active() {
            // NVML calls the number after the last link an invalid argument.
            Err(NvmlError::InvalidArg) => Ok(None),
            state => state.map(Some),
        });
        match state {
            Some(Some(up)) => links.push(NvLink { link, up, errors: NvLinkErrors::default() }),
            Some(None) => break,
            None => {}
        }
    }
    probe.fields(device, |read| {
        let with_errors = |link: &NvLink| NvLink { errors: fields::link_errors(link.link, read), ..*link };
        links.iter().map(with_errors).collect()
    })
}
