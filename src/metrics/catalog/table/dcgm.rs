//! dcgm-exporter's families (`--metrics.compat dcgm`) in its units and with its labels, for AIPerf, the llm-d router and
//! DCGM dashboards.

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const DCGM: Area = Area::new(
    Group::Compat,
    Stability::Inherited,
    &["DCGM_FI_DRIVER_VERSION", "Hostname", "UUID", "device", "gpu", "hostname", "modelName", "pci_bus_id"],
);

families! {
    first: super::triton_core::END;

    DcgmSmClock = DCGM.gauge("DCGM_FI_DEV_SM_CLOCK")
        .help("SM clock frequency (in MHz).").origin("dcgm: nv_gpu_clock_hertz of sm / 1000000");
    DcgmMemClock = DCGM.gauge("DCGM_FI_DEV_MEM_CLOCK")
        .help("Memory clock frequency (in MHz).").origin("dcgm: nv_gpu_clock_hertz of memory / 1000000");
    DcgmMemoryTemp = DCGM.gauge("DCGM_FI_DEV_MEMORY_TEMP")
        .help("Memory temperature (in C).").origin("dcgm: nv_gpu_temperature_celsius of memory");
    DcgmGpuTemp = DCGM.gauge("DCGM_FI_DEV_GPU_TEMP")
        .help("GPU temperature (in C).").origin("dcgm: nv_gpu_temperature_celsius of gpu");
    DcgmPowerUsage = DCGM.gauge("DCGM_FI_DEV_POWER_USAGE")
        .help("Power draw (in W).").origin("dcgm: nv_gpu_power_usage");
    DcgmPowerLimit = DCGM.gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT")
        .help("Power management limit (in W).").origin("dcgm: nv_gpu_power_limit");
    DcgmEnergy = DCGM.legacy_counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
        .help("Total energy consumption since boot (in mJ).")
        .origin("dcgm: nv_energy_consumption × 1000, so counted from this exporter's start");
    DcgmPcieReplay = DCGM.legacy_counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
        .help("Total number of PCIe retries.").origin("dcgm: nv_gpu_pcie_replays_total");
    DcgmGpuUtil = DCGM.gauge("DCGM_FI_DEV_GPU_UTIL")
        .help("GPU utilization (in %).").origin("dcgm: nv_gpu_utilization × 100");
    DcgmMemCopyUtil = DCGM.gauge("DCGM_FI_DEV_MEM_COPY_UTIL")
        .help("Memory utilization (in %).").origin("dcgm: nv_gpu_memory_controller_utilization_ratio × 100");
    DcgmEncUtil = DCGM.gauge("DCGM_FI_DEV_ENC_UTIL")
        .help("Encoder utilization (in %).").origin("dcgm: nv_gpu_encoder_utilization_ratio × 100");
    DcgmDecUtil = DCGM.gauge("DCGM_FI_DEV_DEC_UTIL")
        .help("Decoder utilization (in %).").origin("dcgm: nv_gpu_decoder_utilization_ratio × 100");
    DcgmXid = DCGM.gauge("DCGM_FI_DEV_XID_ERRORS")
        .help("Value of the last XID error encountered.").origin("dcgm: nv_gpu_last_xid; 0 until the first error");
    DcgmPowerViolation = DCGM.legacy_counter("DCGM_FI_DEV_POWER_VIOLATION")
        .help("Throttling duration due to power constraints (in ns).")
        .origin("dcgm: nv_gpu_throttle_seconds_total of power × 1000000000");
    DcgmThermalViolation = DCGM.legacy_counter("DCGM_FI_DEV_THERMAL_VIOLATION")
        .help("Throttling duration due to thermal constraints (in ns).")
        .origin("dcgm: nv_gpu_throttle_seconds_total of thermal × 1000000000");
    DcgmClocksEvent = DCGM.gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
        .help("Current clock event reasons (bitmask).").origin("dcgm: nvmlDeviceGetCurrentClocksThrottleReasons");
    DcgmPstate = DCGM.gauge("DCGM_FI_DEV_PSTATE")
        .help("Performance state (0 is the fastest).").origin("dcgm: nv_gpu_performance_state");
    DcgmFanSpeed = DCGM.gauge("DCGM_FI_DEV_FAN_SPEED")
        .help("Fan speed of the first fan (in %).").origin("dcgm: nv_gpu_fan_speed_ratio × 100");
    DcgmFbTotal = DCGM.gauge("DCGM_FI_DEV_FB_TOTAL")
        .help("Total framebuffer memory (in MiB).").origin("dcgm: nv_gpu_memory_total_bytes / 1048576");
    DcgmFbFree = DCGM.gauge("DCGM_FI_DEV_FB_FREE")
        .help("Framebuffer memory free (in MiB).")
        .origin("dcgm: nv_gpu_memory_free_bytes / 1048576; of each MIG instance where there are any");
    DcgmFbUsed = DCGM.gauge("DCGM_FI_DEV_FB_USED")
        .help("Framebuffer memory used (in MiB).")
        .origin("dcgm: nv_gpu_memory_used_bytes / 1048576; of each MIG instance where there are any");
    DcgmFbReserved = DCGM.gauge("DCGM_FI_DEV_FB_RESERVED")
        .help("Framebuffer memory reserved (in MiB).").origin("dcgm: nv_gpu_memory_reserved_bytes / 1048576");
    DcgmBar1Used = DCGM.gauge("DCGM_FI_DEV_BAR1_USED")
        .help("BAR1 memory used (in MiB).").origin("dcgm: nv_gpu_bar1_memory_used_bytes / 1048576");
    DcgmEccSbeVol = DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")
        .help("Total number of single-bit volatile ECC errors.").origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccDbeVol = DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
        .help("Total number of double-bit volatile ECC errors.").origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccSbeAgg = DCGM.legacy_counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL")
        .help("Total number of single-bit persistent ECC errors.").origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmEccDbeAgg = DCGM.legacy_counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL")
        .help("Total number of double-bit persistent ECC errors.").origin("dcgm: nv_gpu_ecc_errors_total");
    DcgmRetiredSbe = DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_SBE")
        .help("Total number of retired pages due to single-bit errors.")
        .origin("dcgm: nv_gpu_retired_pages of multiple_single_bit");
    DcgmRetiredDbe = DCGM.legacy_counter("DCGM_FI_DEV_RETIRED_DBE")
        .help("Total number of retired pages due to double-bit errors.")
        .origin("dcgm: nv_gpu_retired_pages of double_bit");
    DcgmRetiredPending = DCGM.gauge("DCGM_FI_DEV_RETIRED_PENDING")
        .help("1 if pages are pending retirement.").origin("dcgm: nv_gpu_retired_pages_pending");
    DcgmUncRemapped = DCGM.legacy_counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for uncorrectable errors.")
        .origin("dcgm: nv_gpu_remapped_rows of uncorrectable");
    DcgmCorRemapped = DCGM.legacy_counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS")
        .help("Number of remapped rows for correctable errors.").origin("dcgm: nv_gpu_remapped_rows of correctable");
    DcgmRemapFailure = DCGM.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE")
        .help("1 if remapping of rows has failed.").origin("dcgm: nv_gpu_remapped_rows_failure");
    DcgmNvlinkReplay = DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink replay errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkRecovery = DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink recovery errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkCrcFlit = DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc flit errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmNvlinkCrcData = DCGM.legacy_counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")
        .help("Total number of NVLink crc data errors.").origin("dcgm: sum of nv_gpu_nvlink_errors_total over links");
    DcgmPcieGen = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_GEN")
        .help("PCIe link generation.").origin("dcgm: nv_gpu_pcie_link_generation");
    DcgmPcieWidth = DCGM.gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH")
        .help("PCIe link width.").origin("dcgm: nv_gpu_pcie_link_width");
    DcgmProfGrEngine = DCGM.gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        .help("Ratio of time the graphics or compute engine was active.")
        .origin("dcgm: nv_gpu_graphics_active_ratio; of each MIG instance where there are any");
    DcgmProfSm = DCGM.gauge("DCGM_FI_PROF_SM_ACTIVE")
        .help("Ratio of time at least one warp was assigned to an SM.")
        .origin("dcgm: nv_gpu_sm_active_ratio; of each MIG instance where there are any");
    DcgmProfSmOccupancy = DCGM.gauge("DCGM_FI_PROF_SM_OCCUPANCY")
        .help("Ratio of resident warps to the maximum an SM can hold.")
        .origin("dcgm: nv_gpu_sm_occupancy_ratio; of each MIG instance where there are any");
    DcgmProfTensor = DCGM.gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
        .help("Ratio of time the tensor pipe was active.")
        .origin("dcgm: nv_gpu_tensor_active_ratio; of each MIG instance where there are any");
    DcgmProfDram = DCGM.gauge("DCGM_FI_PROF_DRAM_ACTIVE")
        .help("Ratio of time device memory was active.")
        .origin("dcgm: nv_gpu_dram_active_ratio; of each MIG instance where there are any");
    DcgmProfFp64 = DCGM.gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE")
        .help("Ratio of time the FP64 pipe was active.")
        .origin("dcgm: nv_gpu_fp64_active_ratio; of each MIG instance where there are any");
    DcgmProfFp32 = DCGM.gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE")
        .help("Ratio of time the FP32 pipe was active.")
        .origin("dcgm: nv_gpu_fp32_active_ratio; of each MIG instance where there are any");
    DcgmProfFp16 = DCGM.gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE")
        .help("Ratio of time the FP16 pipe was active.")
        .origin("dcgm: nv_gpu_fp16_active_ratio; of each MIG instance where there are any");
    DcgmProfPcieTx = DCGM.gauge("DCGM_FI_PROF_PCIE_TX_BYTES")
        .help("Rate of data transmitted over PCIe (in bytes per second).")
        .origin("dcgm: nv_gpu_pcie_transmit_bytes_per_second");
    DcgmProfPcieRx = DCGM.gauge("DCGM_FI_PROF_PCIE_RX_BYTES")
        .help("Rate of data received over PCIe (in bytes per second).")
        .origin("dcgm: nv_gpu_pcie_receive_bytes_per_second");
    DcgmProfNvlinkTx = DCGM.gauge("DCGM_FI_PROF_NVLINK_TX_BYTES")
        .help("Rate of data transmitted over NVLink (in bytes per second).")
        .origin("dcgm: nv_gpu_nvlink_transmit_bytes_per_second");
    DcgmProfNvlinkRx = DCGM.gauge("DCGM_FI_PROF_NVLINK_RX_BYTES")
        .help("Rate of data received over NVLink (in bytes per second).")
        .origin("dcgm: nv_gpu_nvlink_receive_bytes_per_second");
}
