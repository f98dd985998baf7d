//! dcgm-exporter's names, on request: in its units and with its labels.

macro_rules! dcgm {
    ($($before:tt)*) => { gpu! { $($before)*
    // dcgm: what AIPerf, the llm-d router and DCGM dashboards read.
    DcgmSmClock = "DCGM_FI_DEV_SM_CLOCK" Gauge Compat DCGM "SM clock frequency (in MHz)."
        from "dcgm: nv_gpu_clock_hertz of sm / 1000000";
    DcgmMemClock = "DCGM_FI_DEV_MEM_CLOCK" Gauge Compat DCGM "Memory clock frequency (in MHz)."
        from "dcgm: nv_gpu_clock_hertz of memory / 1000000";
    DcgmMemoryTemp = "DCGM_FI_DEV_MEMORY_TEMP" Gauge Compat DCGM "Memory temperature (in C)."
        from "dcgm: nv_gpu_temperature_celsius of memory";
    DcgmGpuTemp = "DCGM_FI_DEV_GPU_TEMP" Gauge Compat DCGM "GPU temperature (in C)."
        from "dcgm: nv_gpu_temperature_celsius of gpu";
    DcgmPowerUsage = "DCGM_FI_DEV_POWER_USAGE" Gauge Compat DCGM "Power draw (in W)."
        from "dcgm: nv_gpu_power_usage";
    DcgmPowerLimit = "DCGM_FI_DEV_POWER_MGMT_LIMIT" Gauge Compat DCGM "Power management limit (in W)."
        from "dcgm: nv_gpu_power_limit";
    DcgmEnergy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" LegacyCounter Compat DCGM "Total energy consumption since boot (in mJ)."
        from "dcgm: nv_energy_consumption × 1000, so since this exporter's start";
    DcgmPcieReplay = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" LegacyCounter Compat DCGM "Total number of PCIe retries."
        from "dcgm: nv_gpu_pcie_replays_total";
    DcgmGpuUtil = "DCGM_FI_DEV_GPU_UTIL" Gauge Compat DCGM "GPU utilization (in %)."
        from "dcgm: nv_gpu_utilization × 100";
    DcgmMemCopyUtil = "DCGM_FI_DEV_MEM_COPY_UTIL" Gauge Compat DCGM "Memory utilization (in %)."
        from "dcgm: nv_gpu_memory_controller_utilization_ratio × 100";
    DcgmEncUtil = "DCGM_FI_DEV_ENC_UTIL" Gauge Compat DCGM "Encoder utilization (in %)."
        from "dcgm: nv_gpu_encoder_utilization_ratio × 100";
    DcgmDecUtil = "DCGM_FI_DEV_DEC_UTIL" Gauge Compat DCGM "Decoder utilization (in %)."
        from "dcgm: nv_gpu_decoder_utilization_ratio × 100";
    DcgmXid = "DCGM_FI_DEV_XID_ERRORS" Gauge Compat DCGM "Value of the last XID error encountered."
        from "dcgm: nv_gpu_last_xid; 0 while none has been heard";
    DcgmPowerViolation = "DCGM_FI_DEV_POWER_VIOLATION" LegacyCounter Compat DCGM "Throttling duration due to power constraints (in ns)."
        from "dcgm: nv_gpu_throttle_seconds_total of power × 1000000000";
    DcgmThermalViolation = "DCGM_FI_DEV_THERMAL_VIOLATION" LegacyCounter Compat DCGM "Throttling duration due to thermal constraints (in ns)."
        from "dcgm: nv_gpu_throttle_seconds_total of thermal × 1000000000";
    DcgmClocksEvent = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" Gauge Compat DCGM "Current clock event reasons (bitmask)."
        from "dcgm: nvmlDeviceGetCurrentClocksThrottleReasons";
    DcgmPstate = "DCGM_FI_DEV_PSTATE" Gauge Compat DCGM "Performance state (0 is the fastest)."
        from "dcgm: nv_gpu_performance_state";
    DcgmFanSpeed = "DCGM_FI_DEV_FAN_SPEED" Gauge Compat DCGM "Fan speed of the first fan (in %)."
        from "dcgm: nv_gpu_fan_speed_ratio × 100";
    DcgmFbTotal = "DCGM_FI_DEV_FB_TOTAL" Gauge Compat DCGM "Total framebuffer memory (in MiB)."
        from "dcgm: nv_gpu_memory_total_bytes / 1048576";
    DcgmFbFree = "DCGM_FI_DEV_FB_FREE" Gauge Compat DCGM "Framebuffer memory free (in MiB)."
        from "dcgm: nv_gpu_memory_free_bytes / 1048576; of each MIG instance where there are any";
    DcgmFbUsed = "DCGM_FI_DEV_FB_USED" Gauge Compat DCGM "Framebuffer memory used (in MiB)."
        from "dcgm: nv_gpu_memory_used_bytes / 1048576; of each MIG instance where there are any";
    DcgmFbReserved = "DCGM_FI_DEV_FB_RESERVED" Gauge Compat DCGM "Framebuffer memory reserved (in MiB)."
        from "dcgm: nv_gpu_memory_reserved_bytes / 1048576";
    DcgmBar1Used = "DCGM_FI_DEV_BAR1_USED" Gauge Compat DCGM "BAR1 memory used (in MiB)."
        from "dcgm: nv_gpu_bar1_memory_used_bytes / 1048576";
    DcgmEccSbeVol = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL" LegacyCounter Compat DCGM "Total number of single-bit volatile ECC errors."
        from "dcgm: nv_gpu_ecc_errors_total";
    DcgmEccDbeVol = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" LegacyCounter Compat DCGM "Total number of double-bit volatile ECC errors."
        from "dcgm: nv_gpu_ecc_errors_total";
    DcgmEccSbeAgg = "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL" LegacyCounter Compat DCGM "Total number of single-bit persistent ECC errors."
        from "dcgm: nv_gpu_ecc_errors_total";
    DcgmEccDbeAgg = "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL" LegacyCounter Compat DCGM "Total number of double-bit persistent ECC errors."
        from "dcgm: nv_gpu_ecc_errors_total";
    DcgmRetiredSbe = "DCGM_FI_DEV_RETIRED_SBE" LegacyCounter Compat DCGM "Total number of retired pages due to single-bit errors."
        from "dcgm: nv_gpu_retired_pages of multiple_single_bit";
    DcgmRetiredDbe = "DCGM_FI_DEV_RETIRED_DBE" LegacyCounter Compat DCGM "Total number of retired pages due to double-bit errors."
        from "dcgm: nv_gpu_retired_pages of double_bit";
    DcgmRetiredPending = "DCGM_FI_DEV_RETIRED_PENDING" Gauge Compat DCGM "Whether pages are pending retirement."
        from "dcgm: nv_gpu_retired_pages_pending";
    DcgmUncRemapped = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS" LegacyCounter Compat DCGM "Number of remapped rows for uncorrectable errors."
        from "dcgm: nv_gpu_remapped_rows of uncorrectable";
    DcgmCorRemapped = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS" LegacyCounter Compat DCGM "Number of remapped rows for correctable errors."
        from "dcgm: nv_gpu_remapped_rows of correctable";
    DcgmRemapFailure = "DCGM_FI_DEV_ROW_REMAP_FAILURE" Gauge Compat DCGM "Whether remapping of rows has failed."
        from "dcgm: nv_gpu_remapped_rows_failure";
    DcgmNvlinkReplay = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL" LegacyCounter Compat DCGM "Total number of NVLink replay errors."
        from "dcgm: sum of nv_gpu_nvlink_errors_total over links";
    DcgmNvlinkRecovery = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL" LegacyCounter Compat DCGM "Total number of NVLink recovery errors."
        from "dcgm: sum of nv_gpu_nvlink_errors_total over links";
    DcgmNvlinkCrcFlit = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL" LegacyCounter Compat DCGM "Total number of NVLink crc flit errors."
        from "dcgm: sum of nv_gpu_nvlink_errors_total over links";
    DcgmNvlinkCrcData = "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL" LegacyCounter Compat DCGM "Total number of NVLink crc data errors."
        from "dcgm: sum of nv_gpu_nvlink_errors_total over links";
    DcgmPcieGen = "DCGM_FI_DEV_PCIE_LINK_GEN" Gauge Compat DCGM "PCIe link generation."
        from "dcgm: nv_gpu_pcie_link_generation";
    DcgmPcieWidth = "DCGM_FI_DEV_PCIE_LINK_WIDTH" Gauge Compat DCGM "PCIe link width."
        from "dcgm: nv_gpu_pcie_link_width";
    DcgmProfGrEngine = "DCGM_FI_PROF_GR_ENGINE_ACTIVE" Gauge Compat DCGM "Ratio of time the graphics or compute engine was active."
        from "dcgm: nv_gpu_graphics_active_ratio; of each MIG instance where there are any";
    DcgmProfSm = "DCGM_FI_PROF_SM_ACTIVE" Gauge Compat DCGM "Ratio of time at least one warp was assigned to an SM."
        from "dcgm: nv_gpu_sm_active_ratio; of each MIG instance where there are any";
    DcgmProfSmOccupancy = "DCGM_FI_PROF_SM_OCCUPANCY" Gauge Compat DCGM "Ratio of resident warps to the most an SM can hold."
        from "dcgm: nv_gpu_sm_occupancy_ratio; of each MIG instance where there are any";
    DcgmProfTensor = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" Gauge Compat DCGM "Ratio of time the tensor pipe was active."
        from "dcgm: nv_gpu_tensor_active_ratio; of each MIG instance where there are any";
    DcgmProfDram = "DCGM_FI_PROF_DRAM_ACTIVE" Gauge Compat DCGM "Ratio of time device memory was active."
        from "dcgm: nv_gpu_dram_active_ratio; of each MIG instance where there are any";
    DcgmProfFp64 = "DCGM_FI_PROF_PIPE_FP64_ACTIVE" Gauge Compat DCGM "Ratio of time the FP64 pipe was active."
        from "dcgm: nv_gpu_fp64_active_ratio; of each MIG instance where there are any";
    DcgmProfFp32 = "DCGM_FI_PROF_PIPE_FP32_ACTIVE" Gauge Compat DCGM "Ratio of time the FP32 pipe was active."
        from "dcgm: nv_gpu_fp32_active_ratio; of each MIG instance where there are any";
    DcgmProfFp16 = "DCGM_FI_PROF_PIPE_FP16_ACTIVE" Gauge Compat DCGM "Ratio of time the FP16 pipe was active."
        from "dcgm: nv_gpu_fp16_active_ratio; of each MIG instance where there are any";
    DcgmProfPcieTx = "DCGM_FI_PROF_PCIE_TX_BYTES" Gauge Compat DCGM "Rate of data transmitted over PCIe (in bytes a second)."
        from "dcgm: nv_gpu_pcie_transmit_bytes_per_second";
    DcgmProfPcieRx = "DCGM_FI_PROF_PCIE_RX_BYTES" Gauge Compat DCGM "Rate of data received over PCIe (in bytes a second)."
        from "dcgm: nv_gpu_pcie_receive_bytes_per_second";
    DcgmProfNvlinkTx = "DCGM_FI_PROF_NVLINK_TX_BYTES" Gauge Compat DCGM "Rate of data transmitted over NVLink (in bytes a second)."
        from "dcgm: nv_gpu_nvlink_transmit_bytes_per_second";
    DcgmProfNvlinkRx = "DCGM_FI_PROF_NVLINK_RX_BYTES" Gauge Compat DCGM "Rate of data received over NVLink (in bytes a second)."
        from "dcgm: nv_gpu_nvlink_receive_bytes_per_second";
    } };
}
