//! dcgm-exporter's families (`--metrics.compat dcgm`) in its units and with its labels, for AIPerf, the llm-d router and
//! DCGM dashboards.

use trtllm_records::gpu::{GpuActivity, GpuMemory, GpuReadings, NvLinkErrors};

use super::{Area, EngineWriter, Group, Stability, families};

const DCGM: Area = Area::new(
    Group::Compat,
    Stability::Inherited,
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
    Dcgm of DcgmReadings<'_> => EngineWriter<'_>;

    DcgmSmClock(|dcgm| mhz(dcgm.gpu?.clock_hertz.sm)) = DCGM.gauge("DCGM_FI_DEV_SM_CLOCK")
        .help("SM clock frequency (in MHz).").origin("dcgm: nv_gpu_clock_hertz of sm / 1000000");
    DcgmMemClock(|dcgm| mhz(dcgm.gpu?.clock_hertz.memory)) = DCGM.gauge("DCGM_FI_DEV_MEM_CLOCK")
        .help("Memory clock frequency (in MHz).").origin("dcgm: nv_gpu_clock_hertz of memory / 1000000");
    DcgmMemoryTemp(|dcgm| dcgm.gpu?.temperature_celsius.memory) = DCGM.gauge("DCGM_FI_DEV_MEMORY_TEMP")
        .help("Memory temperature (in C).").origin("dcgm: nv_gpu_temperature_celsius of memory");
    DcgmGpuTemp(|dcgm| dcgm.gpu?.temperature_celsius.gpu) = DCGM.gauge("DCGM_FI_DEV_GPU_TEMP")
        .help("GPU temperature (in C).").origin("dcgm: nv_gpu_temperature_celsius of gpu");
    DcgmPowerUsage(|dcgm| dcgm.gpu?.power_usage_watts) = DCGM.gauge("DCGM_FI_DEV_POWER_USAGE")
        .help("Power draw (in W).").origin("dcgm: nv_gpu_power_usage");
    DcgmPowerLimit(|dcgm| dcgm.gpu?.power_limit_watts) = DCGM.gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT")
        .help("Power management limit (in W).").origin("dcgm: nv_gpu_power_limit");
    DcgmEnergy(|dcgm| dcgm.gpu?.energy_joules.map(|joules| (joules * 1000.0).round() as u64)) =
        DCGM.legacy_counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").help("Total energy consumption since this exporter started (in mJ).")
        .origin("dcgm: nv_energy_consumption × 1000; dcgm-exporter counts from the driver's start");
    DcgmPcieReplay(|dcgm| dcgm.gpu?.health.pcie_replays) = DCGM.legacy_counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
        .help("Total number of PCIe retries.").origin("dcgm: nv_gpu_pcie_replays_total");
    DcgmGpuUtil(|dcgm| percent(dcgm.gpu?.utilization_ratio)) = DCGM.gauge("DCGM_FI_DEV_GPU_UTIL")
        .help("GPU utilization (in %).").origin("dcgm: nv_gpu_utilization × 100");
    DcgmMemCopyUtil(|dcgm| percent(dcgm.gpu?.memory_controller_utilization_ratio)) =
        DCGM.gauge("DCGM_FI_DEV_MEM_COPY_UTIL").help("Memory utilization (in %).")
        .origin("dcgm: nv_gpu_memory_controller_utilization_ratio × 100");
    DcgmEncUtil(|dcgm| percent(dcgm.gpu?.engine_utilization.encoder)) = DCGM.gauge("DCGM_FI_DEV_ENC_UTIL")
        .help("Encoder utilization (in %).").origin("dcgm: nv_gpu_encoder_utilization_ratio × 100");
    DcgmDecUtil(|dcgm| percent(dcgm.gpu?.engine_utilization.decoder)) = DCGM.gauge("DCGM_FI_DEV_DEC_UTIL")
        .help("Decoder utilization (in %).").origin("dcgm: nv_gpu_decoder_utilization_ratio × 100");
    DcgmXid(|dcgm| dcgm.xid) = DCGM.gauge("DCGM_FI_DEV_XID_ERRORS").help("Value of the last XID error since this exporter started, 0 before the first.")
        .origin("dcgm: nv_gpu_last_xid; dcgm-exporter also shows errors from before its start");
    DcgmPowerViolation(|dcgm| dcgm.gpu?.throttle_ns.power) = DCGM.legacy_counter("DCGM_FI_DEV_POWER_VIOLATION")
        .help("Throttling duration due to power constraints (in ns).")
        .origin("dcgm: nv_gpu_throttle_seconds_total of power × 1000000000");
    DcgmThermalViolation(|dcgm| dcgm.gpu?.throttle_ns.thermal) = DCGM.legacy_counter("DCGM_FI_DEV_THERMAL_VIOLATION")
        .help("Throttling duration due to thermal constraints (in ns).")
        .origin("dcgm: nv_gpu_throttle_seconds_total of thermal × 1000000000");
    DcgmClocksEvent(|dcgm| dcgm.gpu?.clocks_event_reasons) = DCGM.gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
        .help("Current clock event reasons (bitmask).").origin("dcgm: nvmlDeviceGetCurrentClocksThrottleReasons");
    DcgmPstate(|dcgm| dcgm.gpu?.performance_state.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PSTATE")
        .help("Performance state (0 is the fastest).").origin("dcgm: nv_gpu_performance_state");
    DcgmFanSpeed(|dcgm| percent(dcgm.gpu?.health.fan_speed_ratio.first().copied().flatten())) =
        DCGM.gauge("DCGM_FI_DEV_FAN_SPEED").help("Fan speed of the first fan (in %).")
        .origin("dcgm: nv_gpu_fan_speed_ratio × 100");
    DcgmFbTotal(|dcgm| mib(dcgm.memory?.total_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_TOTAL")
        .help("Total framebuffer memory (in MiB).").origin("dcgm: nv_gpu_memory_total_bytes / 1048576");
    DcgmFbFree(|dcgm| mib(dcgm.memory?.free_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_FREE")
        .help("Framebuffer memory free (in MiB).")
        .origin("dcgm: nv_gpu_memory_free_bytes / 1048576; of each MIG instance where there are any");
    DcgmFbUsed(|dcgm| mib(dcgm.memory?.used_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_USED")
        .help("Framebuffer memory used (in MiB).")
        .origin("dcgm: nv_gpu_memory_used_bytes / 1048576; of each MIG instance where there are any");
    DcgmFbReserved(|dcgm| mib(dcgm.memory?.reserved_bytes)) = DCGM.gauge("DCGM_FI_DEV_FB_RESERVED")
        .help("Framebuffer memory reserved (in MiB).").origin("dcgm: nv_gpu_memory_reserved_bytes / 1048576");
    DcgmBar1Used(|dcgm| mib(dcgm.gpu?.health.bar1_used_bytes)) = DCGM.gauge("DCGM_FI_DEV_BAR1_USED")
        .help("BAR1 memory used (in MiB).").origin("dcgm: nv_gpu_bar1_memory_used_bytes / 1048576");
    DcgmEccSbeVol(|dcgm| dcgm.gpu?.health.ecc_errors.corrected_volatile) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL").help("Total number of single-bit volatile ECC errors.")
        .origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccDbeVol(|dcgm| dcgm.gpu?.health.ecc_errors.uncorrected_volatile) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL").help("Total number of double-bit volatile ECC errors.")
        .origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccSbeAgg(|dcgm| dcgm.gpu?.health.ecc_errors.corrected_aggregate) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL").help("Total number of single-bit persistent ECC errors.")
        .origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccDbeAgg(|dcgm| dcgm.gpu?.health.ecc_errors.uncorrected_aggregate) =
        DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL").help("Total number of double-bit persistent ECC errors.")
        .origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmRetiredSbe(|dcgm| dcgm.gpu?.health.retired_pages.multiple_single_bit) =
        DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_SBE").help("Total number of retired pages due to single-bit errors.")
        .origin("dcgm: nv_gpu_retired_pages of multiple_single_bit");
    DcgmRetiredDbe(|dcgm| dcgm.gpu?.health.retired_pages.double_bit) = DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_DBE")
        .help("Total number of retired pages due to double-bit errors.")
        .origin("dcgm: nv_gpu_retired_pages of double_bit");
    DcgmRetiredPending(|dcgm| dcgm.gpu?.health.retired_pages_pending) = DCGM.gauge("DCGM_FI_DEV_RETIRED_PENDING")
        .help("1 if pages are pending retirement.").origin("dcgm: nv_gpu_retired_pages_pending");
    DcgmUncRemapped(|dcgm| dcgm.gpu?.health.remapped_rows.uncorrectable) =
        DCGM.legacy_counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for uncorrectable errors.")
        .origin("dcgm: nv_gpu_remapped_rows of uncorrectable");
    DcgmCorRemapped(|dcgm| dcgm.gpu?.health.remapped_rows.correctable) =
        DCGM.legacy_counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for correctable errors.").origin("dcgm: nv_gpu_remapped_rows of correctable");
    DcgmRemapFailure(|dcgm| dcgm.gpu?.health.remapped_rows_failure) = DCGM.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE")
        .help("1 if remapping of rows has failed.").origin("dcgm: nv_gpu_remapped_rows_failure");
    DcgmNvlinkReplay(|dcgm| links(dcgm.gpu?, |link| link.replay)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL").help("Total number of NVLink replay errors.")
        .origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkRecovery(|dcgm| links(dcgm.gpu?, |link| link.recovery)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink recovery errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkCrcFlit(|dcgm| links(dcgm.gpu?, |link| link.crc_flit)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc flit errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkCrcData(|dcgm| links(dcgm.gpu?, |link| link.crc_data)) =
        DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc data errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmPcieGen(|dcgm| dcgm.gpu?.health.pcie_link_generation.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_GEN")
        .help("PCIe link generation.").origin("dcgm: nv_gpu_pcie_link_generation");
    DcgmPcieWidth(|dcgm| dcgm.gpu?.health.pcie_link_width.map(u64::from)) = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH")
        .help("PCIe link width.").origin("dcgm: nv_gpu_pcie_link_width");
    DcgmProfGrEngine(|dcgm| dcgm.activity?.graphics) = DCGM.gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        .help("Ratio of time the graphics or compute engine was active.")
        .origin("dcgm: nv_gpu_graphics_active_ratio; of each MIG instance where there are any");
    DcgmProfSm(|dcgm| dcgm.activity?.sm) = DCGM.gauge("DCGM_FI_PROF_SM_ACTIVE")
        .help("Ratio of time at least one warp was assigned to an SM.")
        .origin("dcgm: nv_gpu_sm_active_ratio; of each MIG instance where there are any");
    DcgmProfSmOccupancy(|dcgm| dcgm.activity?.sm_occupancy) = DCGM.gauge("DCGM_FI_PROF_SM_OCCUPANCY")
        .help("Ratio of resident warps to the maximum an SM can hold.")
        .origin("dcgm: nv_gpu_sm_occupancy_ratio; of each MIG instance where there are any");
    DcgmProfTensor(|dcgm| dcgm.activity?.tensor) = DCGM.gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
        .help("Ratio of time the tensor pipe was active.")
        .origin("dcgm: nv_gpu_tensor_active_ratio; of each MIG instance where there are any");
    DcgmProfDram(|dcgm| dcgm.activity?.dram) = DCGM.gauge("DCGM_FI_PROF_DRAM_ACTIVE")
        .help("Ratio of time device memory was active.")
        .origin("dcgm: nv_gpu_dram_active_ratio; of each MIG instance where there are any");
    DcgmProfFp64(|dcgm| dcgm.activity?.fp64) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE")
        .help("Ratio of time the FP64 pipe was active.")
        .origin("dcgm: nv_gpu_fp64_active_ratio; of each MIG instance where there are any");
    DcgmProfFp32(|dcgm| dcgm.activity?.fp32) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE")
        .help("Ratio of time the FP32 pipe was active.")
        .origin("dcgm: nv_gpu_fp32_active_ratio; of each MIG instance where there are any");
    DcgmProfFp16(|dcgm| dcgm.activity?.fp16) = DCGM.gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE")
        .help("Ratio of time the FP16 pipe was active.")
        .origin("dcgm: nv_gpu_fp16_active_ratio; of each MIG instance where there are any");
    DcgmProfPcieTx(|dcgm| rate(dcgm.activity?.pcie_bytes_per_second.transmit)) =
        DCGM.gauge("DCGM_FI_PROF_PCIE_TX_BYTES").help("Rate of data transmitted over PCIe (in bytes per second).")
        .origin("dcgm: nv_gpu_pcie_transmit_bytes_per_second");
    DcgmProfPcieRx(|dcgm| rate(dcgm.activity?.pcie_bytes_per_second.receive)) = DCGM.gauge("DCGM_FI_PROF_PCIE_RX_BYTES")
        .help("Rate of data received over PCIe (in bytes per second).")
        .origin("dcgm: nv_gpu_pcie_receive_bytes_per_second");
    DcgmProfNvlinkTx(|dcgm| rate(dcgm.activity?.nvlink_bytes_per_second.transmit)) =
        DCGM.gauge("DCGM_FI_PROF_NVLINK_TX_BYTES").help("Rate of data transmitted over NVLink (in bytes per second).")
        .origin("dcgm: nv_gpu_nvlink_transmit_bytes_per_second");
    DcgmProfNvlinkRx(|dcgm| rate(dcgm.activity?.nvlink_bytes_per_second.receive)) =
        DCGM.gauge("DCGM_FI_PROF_NVLINK_RX_BYTES").help("Rate of data received over NVLink (in bytes per second).")
        .origin("dcgm: nv_gpu_nvlink_receive_bytes_per_second");
}
