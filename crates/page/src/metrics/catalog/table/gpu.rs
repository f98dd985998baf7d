//! GPU telemetry: Triton's six families with its HELP, then the exporter's own. A counter "since the driver was loaded"
//! restarts at 0 with the driver. Prometheus handles that as a counter reset. A counter never rises by more than a GPU
//! can count in the time.

use trtllm_records::gpu::{
    ClockReasons, Clocks, EccErrors, Gpu, GpuHealth, GpuProcess, GpuReadings, GpuState, NvLinkErrors, PowerLimits,
    RemappedRows, RetiredPages, TemperatureLimits, Temperatures, ThrottleTimes,
};
use trtllm_records::named_numbers::NamedNumbers as _;

use super::{FamilyWriter, Group, InDefault, Metric, Stability, Value, families};

const TRITON: Metric = Metric::area(Group::Gpu, Stability::Inherited, &["gpu_uuid"]).in_default();
const GPU: Metric = Metric::area(Group::Gpu, Stability::Stable, &["gpu_uuid"]);

/// One GPU at one moment.
pub(in crate::metrics) struct GpuView<'g> {
    pub(in crate::metrics) gpu: &'g Gpu,
    pub(in crate::metrics) readings: &'g GpuReadings,
    pub(in crate::metrics) health: &'g GpuHealth,
    /// Empty if it is unknown.
    pub(in crate::metrics) driver_version: &'g str,
}

/// An unknown text is an empty label value.
pub(in crate::metrics) fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// Each count with its labels `error` and `persistence`.
fn ecc_counts(errors: &EccErrors) -> [(&'static str, &'static str, Option<u64>); 4] {
    [
        ("corrected", "volatile", errors.corrected_volatile),
        ("uncorrected", "volatile", errors.uncorrected_volatile),
        ("corrected", "aggregate", errors.corrected_aggregate),
        ("uncorrected", "aggregate", errors.uncorrected_aggregate),
    ]
}

fn by_process<V: Into<Value>>(gpu: &GpuView<'_>, series: &mut FamilyWriter<'_>, read: fn(&GpuProcess) -> Option<V>) {
    for process in &gpu.health.process_list {
        let labels = [("name", process.name.clone().unwrap_or_default()), ("pid", process.pid.to_string())];
        series.with(labels, read(process));
    }
}

families! {
    Gpu of GpuView<'_> => FamilyWriter<'_>;

    GpuUtilization(|gpu| gpu.readings.utilization_ratio) = TRITON.gauge("nv_gpu_utilization")
        .help("GPU utilization rate [0.0 - 1.0)");
    GpuMemoryTotal(|gpu| gpu.readings.memory.total_bytes) = TRITON.gauge("nv_gpu_memory_total_bytes").unit("bytes")
        .help("GPU total memory, in bytes");
    GpuMemoryUsed(|gpu| gpu.readings.memory.used_bytes) = TRITON.gauge("nv_gpu_memory_used_bytes").unit("bytes")
        .help("GPU used memory, in bytes");
    GpuPowerUsage(|gpu| gpu.readings.power_usage_watts) = TRITON.gauge("nv_gpu_power_usage")
        .help("GPU power usage in watts");
    GpuPowerLimit(|gpu| gpu.readings.power_limit_watts) = TRITON.gauge("nv_gpu_power_limit")
        .help("GPU power management limit in watts");
    EnergyConsumption(|gpu| gpu.readings.energy_joules) = TRITON.legacy_counter("nv_energy_consumption")
        .help("GPU energy consumption in joules since the Triton Server started");

    // State and inventory.
    GpuUp(|gpu| gpu.gpu.state == GpuState::Ok) = GPU.gauge("nv_gpu_up").in_default()
        .help("1 if the last poll of the GPU succeeded.");
    GpuState(|gpu, series| series.one_of(gpu.gpu.state as usize)) = GPU.gauge("nv_gpu_state")
        .shown_in_default(InDefault::CurrentState).by("state", &GpuState::NAMES)
        .help("1 for the current state of the GPU.");
    GpuLastPoll(|gpu| gpu.gpu.last_poll?.at_us as f64 / 1e6) = GPU.gauge("nv_gpu_last_poll_timestamp_seconds")
        .unit("seconds").help("Last successful poll of the GPU as a Unix timestamp in seconds.");
    GpuPollDuration(|gpu| gpu.gpu.last_poll?.took.as_secs_f64()) = GPU.gauge("nv_gpu_poll_duration_seconds")
        .unit("seconds").help("Duration of the last successful GPU poll in seconds.");
    GpuInfo(|gpu, series| {
        let identity = &gpu.gpu.identity;
        let (index, minor) = (identity.index.to_string(), identity.minor.map(|minor| minor.to_string()));
        let about = [
            ("architecture", text(&identity.architecture)),
            ("driver_version", gpu.driver_version),
            ("index", &*index),
            ("minor", text(&minor)),
            ("name", text(&identity.name)),
            ("pci_bus_id", text(&identity.pci_bus_id)),
            ("serial", text(&identity.serial)),
            ("vbios_version", text(&identity.vbios)),
        ];
        series.with(about.map(|(name, value)| (name, value.to_owned())), 1_u64)
    }) = GPU.gauge("nv_gpu_info").in_default()
        .labels(&[
            "architecture", "driver_version", "gpu_uuid", "index", "minor", "name", "pci_bus_id", "serial",
            "vbios_version",
        ]).help("GPU description in labels (name, architecture, addresses, serial number, versions); always 1.");
    GpuDriverInfo = GPU.gauge("nv_gpu_driver_info").in_default()
        .labels(&["cuda_version", "driver_version", "nvml_version"])
        .help("Versions of the NVIDIA driver, of NVML and of the newest supported CUDA in labels; always 1.");
    GpuPodInfo = GPU.gauge("nv_gpu_pod_info").in_default()
        .labels(&["container", "gpu_uuid", "mig_uuid", "namespace", "pod"])
        .experimental()
        .help("Kubernetes container that uses the GPU or MIG instance, in labels; always 1, one series per container.");
    GpuProcesses(|gpu| gpu.health.processes) = GPU.gauge("nv_gpu_processes")
        .help("Processes with a compute context on the GPU.");
    GpuProcessMemory(|gpu, series| by_process(gpu, series, |process| process.bytes)) =
        GPU.gauge("nv_gpu_process_memory_bytes").in_default().labels(&["gpu_uuid", "name", "pid"]).unit("bytes")
        .experimental()
        .help("GPU memory used by a process in bytes.");
    GpuProcessSm(|gpu, series| by_process(gpu, series, |process| process.sm_ratio)) =
        GPU.gauge("nv_gpu_process_sm_utilization_ratio").in_default().labels(&["gpu_uuid", "name", "pid"]).unit("ratio")
        .experimental().help("Share (0-1) of time in which a process had a kernel running on the GPU.");

    // Load.
    GpuMemoryController(|gpu| gpu.readings.memory_controller_utilization_ratio) =
        GPU.gauge("nv_gpu_memory_controller_utilization_ratio").unit("ratio")
        .help("Share (0-1) of time in which GPU memory was read or written.");
    GpuEncoderUtilization(|gpu| gpu.readings.engine_utilization.encoder) = GPU.gauge("nv_gpu_encoder_utilization_ratio")
        .unit("ratio").help("Share (0-1) of time in which the video encoder was busy.");
    GpuDecoderUtilization(|gpu| gpu.readings.engine_utilization.decoder) = GPU.gauge("nv_gpu_decoder_utilization_ratio")
        .unit("ratio").help("Share (0-1) of time in which the video decoder was busy.");
    GpuJpegUtilization(|gpu| gpu.readings.engine_utilization.jpeg) = GPU.gauge("nv_gpu_jpeg_utilization_ratio")
        .unit("ratio").help("Share (0-1) of time in which the JPEG engine was busy.");
    GpuOfaUtilization(|gpu| gpu.readings.engine_utilization.ofa) = GPU.gauge("nv_gpu_ofa_utilization_ratio")
        .unit("ratio").help("Share (0-1) of time in which the optical flow engine was busy.");

    // Load from NVML's GPU performance monitoring (GPM, Hopper and later), over the time since the previous poll.
    GpuGpmGraphics(|gpu| gpu.readings.activity.graphics) = GPU.gauge("nv_gpu_graphics_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which any graphics or compute engine was active.");
    GpuGpmSm(|gpu| gpu.readings.activity.sm) = GPU.gauge("nv_gpu_sm_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which an SM had a warp assigned, averaged over SMs.");
    GpuGpmSmOccupancy(|gpu| gpu.readings.activity.sm_occupancy) = GPU.gauge("nv_gpu_sm_occupancy_ratio").unit("ratio")
        .help("Resident warps as a share (0-1) of the maximum an SM can hold, averaged over SMs.");
    GpuGpmTensor(|gpu| gpu.readings.activity.tensor) =
        GPU.gauge("nv_gpu_tensor_active_ratio").in_default().unit("ratio")
        .help("Share (0-1) of time in which any tensor pipe was active.");
    GpuGpmTensorDfma(|gpu| gpu.readings.activity.tensor_dfma) = GPU.gauge("nv_gpu_tensor_dfma_active_ratio")
        .unit("ratio").help("Share (0-1) of time in which the tensor pipe executed FP64 operations.");
    GpuGpmTensorHmma(|gpu| gpu.readings.activity.tensor_hmma) = GPU.gauge("nv_gpu_tensor_hmma_active_ratio")
        .unit("ratio").help("Share (0-1) of time in which the tensor pipe executed FP16 or BF16 operations.");
    GpuGpmTensorImma(|gpu| gpu.readings.activity.tensor_imma) = GPU.gauge("nv_gpu_tensor_imma_active_ratio")
        .unit("ratio").help("Share (0-1) of time in which the tensor pipe executed integer operations.");
    GpuGpmDram(|gpu| gpu.readings.activity.dram) = GPU.gauge("nv_gpu_dram_active_ratio").in_default().unit("ratio")
        .help("Share (0-1) of the GPU memory bandwidth in use.");
    GpuGpmFp64(|gpu| gpu.readings.activity.fp64) = GPU.gauge("nv_gpu_fp64_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP64 pipe was active.");
    GpuGpmFp32(|gpu| gpu.readings.activity.fp32) = GPU.gauge("nv_gpu_fp32_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP32 pipe was active.");
    GpuGpmFp16(|gpu| gpu.readings.activity.fp16) = GPU.gauge("nv_gpu_fp16_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP16 pipe was active.");
    GpuGpmPcieTransmit(|gpu| gpu.readings.activity.pcie_bytes_per_second.transmit) =
        GPU.gauge("nv_gpu_pcie_transmit_bytes_per_second")
        .help("PCIe transmit rate since the previous poll in bytes per second.");
    GpuGpmPcieReceive(|gpu| gpu.readings.activity.pcie_bytes_per_second.receive) =
        GPU.gauge("nv_gpu_pcie_receive_bytes_per_second")
        .help("PCIe receive rate since the previous poll in bytes per second.");
    GpuGpmNvlinkTransmit(|gpu| gpu.readings.activity.nvlink_bytes_per_second.transmit) =
        GPU.gauge("nv_gpu_nvlink_transmit_bytes_per_second")
        .help("NVLink transmit rate since the previous poll in bytes per second.");
    GpuGpmNvlinkReceive(|gpu| gpu.readings.activity.nvlink_bytes_per_second.receive) =
        GPU.gauge("nv_gpu_nvlink_receive_bytes_per_second")
        .help("NVLink receive rate since the previous poll in bytes per second.");

    // Memory.
    GpuMemoryFree(|gpu| gpu.readings.memory.free_bytes) =
        GPU.gauge("nv_gpu_memory_free_bytes").in_default().unit("bytes")
        .help("Free GPU memory in bytes, neither used nor reserved.");
    GpuMemoryReserved(|gpu| gpu.readings.memory.reserved_bytes) = GPU.gauge("nv_gpu_memory_reserved_bytes")
        .unit("bytes").help("GPU memory reserved by driver and firmware in bytes.");
    GpuBar1Total(|gpu| gpu.health.bar1_total_bytes) = GPU.gauge("nv_gpu_bar1_memory_total_bytes").unit("bytes")
        .help("Size of the BAR1 window, through which the host maps GPU memory, in bytes.");
    GpuBar1Used(|gpu| gpu.health.bar1_used_bytes) = GPU.gauge("nv_gpu_bar1_memory_used_bytes").unit("bytes")
        .help("Used part of the BAR1 window in bytes.");

    // Power, temperature, clocks.
    GpuPowerInstant(|gpu| gpu.readings.power_instant_watts) = GPU.gauge("nv_gpu_power_instant_watts").unit("watts")
        .help("Instantaneous GPU power in watts; nv_gpu_power_usage is an average on most GPUs.");
    GpuPowerLimits(|gpu, series| series.each(gpu.health.power_limits_watts)) = GPU.gauge("nv_gpu_power_limit_watts")
        .unit("watts").by("kind", PowerLimits::NAMES)
        .help("Power limits in watts: enforced (the lowest of all limits), default, and the range that can be set \
            (min, max).");
    GpuTemperature(|gpu, series| series.each(gpu.readings.temperature_celsius)) =
        GPU.gauge("nv_gpu_temperature_celsius").in_default().unit("celsius").by("sensor", Temperatures::NAMES)
        .help("Temperature in degrees Celsius.");
    GpuTemperatureLimit(|gpu, series| series.each(gpu.health.temperature_limits_celsius)) =
        GPU.gauge("nv_gpu_temperature_limit_celsius").in_default().unit("celsius")
        .by("threshold", TemperatureLimits::NAMES)
        .help("Temperature thresholds in degrees Celsius: shutdown, slowdown, and maximum operating temperature of \
            memory and GPU.");
    GpuClock(|gpu, series| series.each(gpu.readings.clock_hertz)) = GPU.gauge("nv_gpu_clock_hertz").unit("hertz")
        .by("type", Clocks::NAMES).help("Clock frequency in hertz.");
    GpuClockMax(|gpu, series| series.each(gpu.health.clock_max_hertz)) = GPU.gauge("nv_gpu_clock_max_hertz")
        .unit("hertz").by("type", Clocks::NAMES).help("Maximum clock frequency in hertz.");
    GpuClocksEvent(|gpu, series| series.all(gpu.readings.clocks_event_reasons?.active().map(Some))) =
        GPU.gauge("nv_gpu_clocks_event_active").in_default().by("reason", &ClockReasons::NAMES)
        .help("1 if this reason is limiting the clocks.");
    GpuThrottle(|gpu, series| series.all(gpu.readings.throttle_ns.numbers().map(|ns| Some(ns? as f64 / 1e9)))) =
        GPU.counter("nv_gpu_throttle_seconds_total").unit("seconds").by("policy", ThrottleTimes::NAMES)
        .help("Time in seconds for which this policy limited the clocks since the driver was loaded.");
    GpuPerformanceState(|gpu| gpu.readings.performance_state.map(u64::from)) = GPU.gauge("nv_gpu_performance_state")
        .help("Performance state from 0 (fastest) to 15 (slowest).");
    GpuFanSpeed(|gpu, series| {
        for (fan, speed) in gpu.health.fan_speed_ratio.iter().enumerate() {
            series.with([("fan", fan.to_string())], *speed);
        }
    }) = GPU.gauge("nv_gpu_fan_speed_ratio").labels(&["fan", "gpu_uuid"]).unit("ratio")
        .help("Intended fan speed as a share (0-1) of its maximum; it can exceed 1.");

    // Links.
    GpuPcieGeneration(|gpu| gpu.health.pcie_link_generation.map(u64::from)) = GPU.gauge("nv_gpu_pcie_link_generation")
        .help("Current generation of the PCIe link; an idle GPU lowers it.");
    GpuPcieGenerationMax(|gpu| gpu.health.pcie_link_generation_max.map(u64::from)) =
        GPU.gauge("nv_gpu_pcie_link_generation_max")
        .help("Highest generation of the PCIe link that both GPU and system support.");
    GpuPcieWidth(|gpu| gpu.health.pcie_link_width.map(u64::from)) = GPU.gauge("nv_gpu_pcie_link_width")
        .help("Current width of the PCIe link in lanes.");
    GpuPcieWidthMax(|gpu| gpu.health.pcie_link_width_max.map(u64::from)) = GPU.gauge("nv_gpu_pcie_link_width_max")
        .help("Maximum width of the PCIe link in lanes that both GPU and system support.");
    GpuPcieReplays(|gpu| gpu.health.pcie_replays) = GPU.counter("nv_gpu_pcie_replays_total")
        .help("PCIe replays since the driver was loaded.");
    GpuNvlinkUp(|gpu, series| {
        for link in &gpu.health.nvlinks {
            series.with([("link", link.link.to_string())], link.up);
        }
    }) = GPU.gauge("nv_gpu_nvlink_up").labels(&["gpu_uuid", "link"]).help("1 if the NVLink is active.");
    GpuNvlinksUp(|gpu| {
        let links = &gpu.health.nvlinks;
        (!links.is_empty()).then(|| links.iter().filter(|link| link.up).count() as u64)
    }) = GPU.gauge("nv_gpu_nvlinks_up").in_default()
        .help("Active NVLinks of the GPU.");
    GpuNvlinkErrors(|gpu, series| {
        for link in &gpu.health.nvlinks {
            let number = link.link.to_string();
            for (kind, count) in NvLinkErrors::NAMES.iter().zip(link.errors.numbers()) {
                series.with([("link", number.clone()), ("kind", (*kind).to_owned())], count);
            }
        }
    }) = GPU.counter("nv_gpu_nvlink_errors_total").labels(&["gpu_uuid", "link"]).by("kind", NvLinkErrors::NAMES)
        .help("NVLink errors since the driver was loaded, by kind.");
    GpuNvlinkTransmit(|gpu| gpu.readings.nvlink_bytes.transmit) = GPU.counter("nv_gpu_nvlink_transmit_bytes_total")
        .unit("bytes").help("NVLink payload bytes transmitted over all links since the driver was loaded.");
    GpuNvlinkReceive(|gpu| gpu.readings.nvlink_bytes.receive) = GPU.counter("nv_gpu_nvlink_receive_bytes_total")
        .unit("bytes").help("NVLink payload bytes received over all links since the driver was loaded.");

    // Errors.
    GpuXids(|gpu, series| {
        for (code, count) in &gpu.gpu.xids_by_code {
            series.with([("xid", code.to_string())], *count);
        }
    }) = GPU.counter("nv_gpu_xid_errors_total").in_default().labels(&["gpu_uuid", "xid"])
        .help("Xid errors of the GPU since this exporter started, by code; absent before a code's first error.");
    GpuLastXid(|gpu| gpu.gpu.last_xid) = GPU.gauge("nv_gpu_last_xid").in_default()
        .help("Code of the last Xid error since this exporter started.");
    GpuLastXidTime(|gpu| gpu.gpu.last_xid_us? as f64 / 1e6) =
        GPU.gauge("nv_gpu_last_xid_timestamp_seconds").in_default()
        .unit("seconds").help("Last Xid error as a Unix timestamp in seconds.");
    GpuEcc(|gpu, series| {
        for (error, persistence, count) in ecc_counts(&gpu.health.ecc_errors) {
            series.with([("error", error), ("persistence", persistence)], count);
        }
    }) = GPU.counter("nv_gpu_ecc_errors_total").in_default().labels(&["error", "gpu_uuid", "persistence"])
        .help("ECC errors of GPU memory since the driver was loaded (volatile) and over the GPU's lifetime \
            (aggregate).");
    GpuEccLocations(|gpu, series| {
        for part in &gpu.health.ecc_locations {
            for (error, persistence, count) in ecc_counts(&part.errors) {
                let labels = [("error", error), ("location", part.location), ("persistence", persistence)];
                series.with(labels, count);
            }
        }
    }) = GPU.counter("nv_gpu_ecc_location_errors_total").labels(&["error", "gpu_uuid", "location", "persistence"])
        .experimental()
        .help("ECC errors by GPU location since the driver was loaded (volatile) and over the GPU's lifetime \
            (aggregate).");
    GpuEccSram(|gpu| gpu.health.ecc_sram_threshold_exceeded) =
        GPU.gauge("nv_gpu_ecc_sram_threshold_exceeded").in_default()
        .experimental().help("1 if uncorrected SRAM errors have reached NVIDIA's threshold for replacing the GPU.");
    GpuRetiredPages(|gpu, series| series.each(gpu.health.retired_pages)) = GPU.gauge("nv_gpu_retired_pages")
        .by("cause", RetiredPages::NAMES).help("Retired pages of GPU memory, by cause (GPUs before Ampere).");
    GpuRetiredPending(|gpu| gpu.health.retired_pages_pending) = GPU.gauge("nv_gpu_retired_pages_pending").in_default()
        .help("1 if pages will be retired at the next GPU reset.");
    GpuRemappedRows(|gpu, series| series.each(gpu.health.remapped_rows)) = GPU.gauge("nv_gpu_remapped_rows")
        .by("cause", RemappedRows::NAMES).help("Remapped rows of GPU memory, by cause (Ampere and later).");
    GpuRemappedPending(|gpu| gpu.health.remapped_rows_pending) = GPU.gauge("nv_gpu_remapped_rows_pending").in_default()
        .help("1 if rows will be remapped at the next GPU reset.");
    GpuRemappedFailure(|gpu| gpu.health.remapped_rows_failure) = GPU.gauge("nv_gpu_remapped_rows_failure").in_default()
        .help("1 if a row remapping has failed and the GPU must be replaced.");
    GpuRecoveryAction(|gpu| gpu.health.recovery_action) = GPU.gauge("nv_gpu_recovery_action").in_default()
        .help("Recovery action requested by the driver: 0 none, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and \
            reset.");

    // MIG.
    GpuMigEnabled(|gpu| gpu.readings.mig_enabled) = GPU.gauge("nv_gpu_mig_enabled").help("1 if MIG is enabled.");
}
