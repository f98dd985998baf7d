//! dcgm-exporter's families (`--metrics.compat dcgm`) in its units and with its labels, for AIPerf, the llm-d router
//! and DCGM dashboards.

use trtllm_records::gpu::{GpuActivity, GpuMemory, GpuReadings, NvLinkErrors};

use super::{FamilyWriter, Metric, families};

const DCGM: Metric = Metric::compat(
    "dcgm",
    &["DCGM_FI_DRIVER_VERSION", "Hostname", "UUID", "device", "gpu", "hostname", "modelName", "pci_bus_id"],
);

/// The readings of one GPU or MIG instance that dcgm-exporter's families show.
pub(in crate::metrics) struct DcgmReadings<'g> {
    /// `None` for a MIG instance.
    pub(in crate::metrics) gpu: Option<&'g GpuReadings>,
    /// Code of the last Xid error, 0 before the first. `None` if Xid errors cannot be received.
    pub(in crate::metrics) xid: Option<u64>,
    /// `None` for a GPU with MIG instances.
    pub(in crate::metrics) memory: Option<&'g GpuMemory>,
    pub(in crate::metrics) activity: Option<&'g GpuActivity>,
}

fn percent(ratio: Option<f64>) -> Option<i64> {
    ratio.map(|ratio| (ratio * 100.0).round() as i64)
}

fn mib(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes >> 20)
}

fn mhz(hertz: Option<u64>) -> Option<u64> {
    hertz.map(|hertz| hertz / 1_000_000)
}

fn rate(bytes_per_second: Option<f64>) -> Option<u64> {
    bytes_per_second.map(|rate| rate.round() as u64)
}

/// The sum over all links that have this counter.
fn links(gpu: &GpuReadings, errors: fn(&NvLinkErrors) -> Option<u64>) -> Option<u64> {
    gpu.health.nvlinks.iter().filter_map(|link| errors(&link.errors)).reduce(u64::saturating_add)
}

families! {
    Dcgm of DcgmReadings<'_> => FamilyWriter<'_>;

    DcgmSmClock(|dcgm| mhz(dcgm.gpu?.clock_hertz.sm)) = DCGM.gauge("DCGM_FI_DEV_SM_CLOCK")
        .help("SM clock frequency (in MHz).");
    DcgmMemClock(|dcgm| mhz(dcgm.gpu?.clock_hertz.memory)) = DCGM.gauge("DCGM_FI_DEV_MEM_CLOCK")
        .help("Memory clock frequency (in MHz).");
    DcgmMemoryTemp(|dcgm| dcgm.gpu?.temperature_celsius.memory) = DCGM.gauge("DCGM_FI_DEV_MEMORY_TEMP")
        .help("Memory temperature (in C).");
    DcgmGpuTemp(|dcgm| dcgm.gpu?.temperature_celsius.gpu) = DCGM.gauge("DCGM_FI_DEV_GPU_TEMP")
        .help("GPU temperature (in C).");
    DcgmPowerUsage(|dcgm| dcgm.gpu?.power_usage_watts) = DCGM.gauge("DCGM_FI_DEV_POWER_USAGE")
        .help("Power draw (in W).");
    DcgmPowerLimit(|dcgm| dcgm.gpu?.power_limit_watts) = DCGM.gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT")
        .help("Power management limit (in W).");
    DcgmEnergy(|dcgm| dcgm.gpu?.energy_joules.map(|joules| (joules * 1000.0).round() as u64)) =
        DCGM.legacy_counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
        .help("Total energy consumption since this exporter started (in mJ).");
    DcgmPcieReplay(|dcgm| dcgm.gpu?.health.pcie_replays) = DCGM.legacy_counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
        .help("Total number of PCIe retries.");
    DcgmGpuUtil(|dcgm| percent(dcgm.gpu?.utilization_ratio)) = DCGM.gauge("DCGM_FI_DEV_GPU_UTIL")
        .help("GPU utilization (in %).");
    DcgmMemCopyUtil(|dcgm| percent(dcgm.gpu?.memory_controller_utilization_ratio)) =
        DCGM.gauge("DCGM_FI_DEV_MEM_COPY_UTIL").help("Memory utilization (in %).");
    DcgmEncUtil(|dcgm| percent(dcgm.gpu?.engine_utilization.encoder)) = DCGM.gauge("DCGM_FI_DEV_ENC_UTIL")
        .help("Encoder utilization (in %).");
    DcgmDecUtil(|dcgm| percent(dcgm.gpu?.engine_utilization.decoder)) = DCGM.gauge("DCGM_FI_DEV_DEC_UTIL")
        .help("Decoder utilization (in %).");
    DcgmXid(|dcgm| dcgm.xid) = DCGM.gauge("DCGM_FI_DEV_XID_ERRORS")
        .help("Value of the last XID error since this exporter started, 0 before the first.");
    DcgmPowerViolation(|dcgm| dcgm.gpu?.throttle_ns.power) = DCGM.legacy_counter("DCGM_FI_DEV_POWER_VIOLATION")
        .help("Throttling duration due to power constraints (in ns).");
    DcgmThermalViolation(|dcgm| dcgm.gpu?.throttle_ns.thermal) = DCGM.legacy_counter("DCGM_FI_DEV_THERMAL_VIOLATION")
        .help("Throttling duration due to thermal constraints (in ns).");
    DcgmClocksEvent(|dcgm| dcgm.gpu?.clocks_event_reasons?.0) = DCGM.gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
        .help("Current clock event reasons (bitmask).");
    DcgmPstate(|dcgm| dcgm.gpu?.performance_state.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PSTATE")
        .help("Performance state (0 is the fastest).");
    DcgmFanSpeed(|dcgm| percent(dcgm.gpu?.health.fan_speed_ratio.first().copied().flatten())) =
        DCGM.gauge("DCGM_FI_DEV_FAN_SPEED").help("Fan speed of the first fan (in %).");
    DcgmFbTotal(|dcgm| mib(dcgm.memory?.total_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_TOTAL")
        .help("Total framebuffer memory (in MiB).");
    DcgmFbFree(|dcgm| mib(dcgm.memory?.free_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_FREE")
        .help("Framebuffer memory free (in MiB).");
    DcgmFbUsed(|dcgm| mib(dcgm.memory?.used_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_USED")
        .help("Framebuffer memory used (in MiB).");
    DcgmFbReserved(|dcgm| mib(dcgm.memory?.reserved_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_RESERVED")
        .help("Framebuffer memory reserved (in MiB).");
    DcgmBar1Used(|dcgm| mib(dcgm.gpu?.health.bar1_used_bytes)) = DCGM.gauge("DCGM_FI_DEV_BAR1_USED")
        .help("BAR1 memory used (in MiB).");
    DcgmEccSbeVol(|dcgm| dcgm.gpu?.health.ecc_errors.corrected_volatile) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL").help("Total number of single-bit volatile ECC errors.");
    DcgmEccDbeVol(|dcgm| dcgm.gpu?.health.ecc_errors.uncorrected_volatile) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL").help("Total number of double-bit volatile ECC errors.");
    DcgmEccSbeAgg(|dcgm| dcgm.gpu?.health.ecc_errors.corrected_aggregate) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL").help("Total number of single-bit persistent ECC errors.");
    DcgmEccDbeAgg(|dcgm| dcgm.gpu?.health.ecc_errors.uncorrected_aggregate) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL").help("Total number of double-bit persistent ECC errors.");
    DcgmRetiredSbe(|dcgm| dcgm.gpu?.health.retired_pages.multiple_single_bit) =
        DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_SBE").help("Total number of retired pages due to single-bit errors.");
    DcgmRetiredDbe(|dcgm| dcgm.gpu?.health.retired_pages.double_bit) = DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_DBE")
        .help("Total number of retired pages due to double-bit errors.");
    DcgmRetiredPending(|dcgm| dcgm.gpu?.health.retired_pages_pending) = DCGM.gauge("DCGM_FI_DEV_RETIRED_PENDING")
        .help("1 if pages are pending retirement.");
    DcgmUncRemapped(|dcgm| dcgm.gpu?.health.remapped_rows.uncorrectable) =
        DCGM.legacy_counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for uncorrectable errors.");
    DcgmCorRemapped(|dcgm| dcgm.gpu?.health.remapped_rows.correctable) =
        DCGM.legacy_counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for correctable errors.");
    DcgmRemapFailure(|dcgm| dcgm.gpu?.health.remapped_rows_failure) = DCGM.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE")
        .help("1 if remapping of rows has failed.");
    DcgmNvlinkReplay(|dcgm| links(dcgm.gpu?, |link| link.replay)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink replay errors.");
    DcgmNvlinkRecovery(|dcgm| links(dcgm.gpu?, |link| link.recovery)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink recovery errors.");
    DcgmNvlinkCrcFlit(|dcgm| links(dcgm.gpu?, |link| link.crc_flit)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc flit errors.");
    DcgmNvlinkCrcData(|dcgm| links(dcgm.gpu?, |link| link.crc_data)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc data errors.");
    DcgmPcieGen(|dcgm| dcgm.gpu?.health.pcie_link_generation.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_GEN")
        .help("PCIe link generation.");
    DcgmPcieWidth(|dcgm| dcgm.gpu?.health.pcie_link_width.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH")
        .help("PCIe link width.");
    DcgmProfGrEngine(|dcgm| dcgm.activity?.graphics) = DCGM.gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        .help("Ratio of time the graphics or compute engine was active.");
    DcgmProfSm(|dcgm| dcgm.activity?.sm) = DCGM.gauge("DCGM_FI_PROF_SM_ACTIVE")
        .help("Ratio of time at least one warp was assigned to an SM.");
    DcgmProfSmOccupancy(|dcgm| dcgm.activity?.sm_occupancy) = DCGM.gauge("DCGM_FI_PROF_SM_OCCUPANCY")
        .help("Ratio of resident warps to the maximum an SM can hold.");
    DcgmProfTensor(|dcgm| dcgm.activity?.tensor) = DCGM.gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
        .help("Ratio of time the tensor pipe was active.");
    DcgmProfDram(|dcgm| dcgm.activity?.dram) = DCGM.gauge("DCGM_FI_PROF_DRAM_ACTIVE")
        .help("Ratio of time device memory was active.");
    DcgmProfFp64(|dcgm| dcgm.activity?.fp64) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE")
        .help("Ratio of time the FP64 pipe was active.");
    DcgmProfFp32(|dcgm| dcgm.activity?.fp32) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE")
        .help("Ratio of time the FP32 pipe was active.");
    DcgmProfFp16(|dcgm| dcgm.activity?.fp16) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE")
        .help("Ratio of time the FP16 pipe was active.");
    DcgmProfPcieTx(|dcgm| rate(dcgm.activity?.pcie_bytes_per_second.transmit)) =
        DCGM.gauge("DCGM_FI_PROF_PCIE_TX_BYTES").help("Rate of data transmitted over PCIe (in bytes per second).");
    DcgmProfPcieRx(|dcgm| rate(dcgm.activity?.pcie_bytes_per_second.receive)) = DCGM.gauge("DCGM_FI_PROF_PCIE_RX_BYTES")
        .help("Rate of data received over PCIe (in bytes per second).");
    DcgmProfNvlinkTx(|dcgm| rate(dcgm.activity?.nvlink_bytes_per_second.transmit)) =
        DCGM.gauge("DCGM_FI_PROF_NVLINK_TX_BYTES").help("Rate of data transmitted over NVLink (in bytes per second).");
    DcgmProfNvlinkRx(|dcgm| rate(dcgm.activity?.nvlink_bytes_per_second.receive)) =
        DCGM.gauge("DCGM_FI_PROF_NVLINK_RX_BYTES").help("Rate of data received over NVLink (in bytes per second).");
}
