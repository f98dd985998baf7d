//! GPU telemetry. Families of driver counters restart with the driver, which a reader takes for a counter reset.

macro_rules! gpu {
    ($($before:tt)*) => { exporter! { $($before)*
    // GPU: Triton's six exactly, then ours.
    GpuUtilization = "nv_gpu_utilization" Gauge Gpu GPU
        "GPU utilization rate [0.0 - 1.0)"
        from "nvmlDeviceGetUtilizationRates; absent with MIG";
    GpuMemoryTotal = "nv_gpu_memory_total_bytes" Gauge Gpu GPU unit "bytes"
        "GPU total memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuMemoryUsed = "nv_gpu_memory_used_bytes" Gauge Gpu GPU unit "bytes"
        "GPU used memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2, so without what is reserved; drivers older than 510 count that as used";
    GpuPowerUsage = "nv_gpu_power_usage" Gauge Gpu GPU
        "GPU power usage in watts"
        from "nvmlDeviceGetPowerUsage, a one-second average on most GPUs since Ampere";
    GpuPowerLimit = "nv_gpu_power_limit" Gauge Gpu GPU
        "GPU power management limit in watts"
        from "nvmlDeviceGetPowerManagementLimit";
    EnergyConsumption = "nv_energy_consumption" LegacyCounter Gpu GPU
        "GPU energy consumption in joules since the Triton Server started"
        from "increases of nvmlDeviceGetTotalEnergyConsumption since this exporter started, over driver reloads";
    // State and inventory.
    GpuUp = "nv_gpu_up" Gauge Gpu GPU
        "Whether the last poll of the GPU answered."
        from "the GPU's worker";
    GpuState = "nv_gpu_state" Gauge Gpu GPU ["state": "ok" | "lost" | "stalled" | "reset_required" | "no_permission"]
        "How the GPU answers: 1 for the state it is in."
        from "the GPU's worker";
    GpuLastPoll = "nv_gpu_last_poll_timestamp_seconds" Gauge Gpu GPU unit "seconds"
        "When the GPU last answered a poll, in seconds since 1970."
        from "the GPU's worker";
    GpuPollDuration = "nv_gpu_poll_duration_seconds" Gauge Gpu GPU unit "seconds"
        "Time in seconds that the calls of the last poll that answered took."
        from "the GPU's worker";
    GpuInfo = "nv_gpu_info" Gauge Gpu GPU_INFO
        "Which GPU this is."
        from "nvmlDeviceGetName, Index, PciInfo_v3, MinorNumber, Serial, VbiosVersion, Architecture";
    GpuDriverInfo = "nv_gpu_driver_info" Gauge Gpu DRIVER
        "Versions of the NVIDIA driver, of its management library and of the newest CUDA it runs."
        from "nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion, nvmlSystemGetCudaDriverVersion_v2";
    GpuPodInfo = "nv_gpu_pod_info" Gauge Gpu GPU_POD
        "Which container the kubelet has given the GPU or MIG instance to; one series for each container that shares it."
        from "PodResourcesLister.List of the kubelet, --gpu.pod-resources";
    GpuProcesses = "nv_gpu_processes" Gauge Gpu GPU
        "Processes with a compute context on the GPU."
        from "nvmlDeviceGetComputeRunningProcesses_v3; not asked of drivers 535.0 to 535.97";
    GpuProcessMemory = "nv_gpu_process_memory_bytes" Gauge Gpu GPU_PROCESS unit "bytes"
        "GPU memory of a process in bytes."
        from "nvmlDeviceGetComputeRunningProcesses_v3, with --gpu.processes; at most 64 a GPU";
    GpuProcessSm = "nv_gpu_process_sm_utilization_ratio" Gauge Gpu GPU_PROCESS unit "ratio"
        "Share (0-1) of time in which a process had a kernel running on the GPU; absent if it had none."
        from "the mean of nvmlDeviceGetProcessUtilization's samples since the slow poll before, with --gpu.processes; not with MIG";
    // Load.
    GpuMemoryController = "nv_gpu_memory_controller_utilization_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which GPU memory was read or written."
        from "nvmlDeviceGetUtilizationRates; absent with MIG";
    GpuEncoderUtilization = "nv_gpu_encoder_utilization_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the video encoder was busy."
        from "nvmlDeviceGetEncoderUtilization";
    GpuDecoderUtilization = "nv_gpu_decoder_utilization_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the video decoder was busy."
        from "nvmlDeviceGetDecoderUtilization";
    GpuJpegUtilization = "nv_gpu_jpeg_utilization_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the JPEG engine was busy."
        from "nvmlDeviceGetJpgUtilization";
    GpuOfaUtilization = "nv_gpu_ofa_utilization_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the optical flow engine was busy."
        from "nvmlDeviceGetOfaUtilization";
    // Load by NVML's GPM, Hopper and later: over the time since the poll before.
    GpuGpmGraphics = "nv_gpu_graphics_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which any engine was computing or drawing."
        from "GPM GRAPHICS_UTIL";
    GpuGpmSm = "nv_gpu_sm_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which a warp was assigned to an SM, averaged over SMs."
        from "GPM SM_UTIL";
    GpuGpmSmOccupancy = "nv_gpu_sm_occupancy_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of the warps an SM can hold that were resident, averaged over SMs."
        from "GPM SM_OCCUPANCY";
    GpuGpmTensor = "nv_gpu_tensor_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which any tensor pipe was active."
        from "GPM ANY_TENSOR_UTIL";
    GpuGpmTensorDfma = "nv_gpu_tensor_dfma_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the tensor pipe did FP64."
        from "GPM DFMA_TENSOR_UTIL";
    GpuGpmTensorHmma = "nv_gpu_tensor_hmma_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the tensor pipe did FP16 or BF16."
        from "GPM HMMA_TENSOR_UTIL";
    GpuGpmTensorImma = "nv_gpu_tensor_imma_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the tensor pipe did integers."
        from "GPM IMMA_TENSOR_UTIL";
    GpuGpmDram = "nv_gpu_dram_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which GPU memory was transferring, of what it could."
        from "GPM DRAM_BW_UTIL";
    GpuGpmFp64 = "nv_gpu_fp64_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the FP64 pipe was active."
        from "GPM FP64_UTIL";
    GpuGpmFp32 = "nv_gpu_fp32_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the FP32 pipe was active."
        from "GPM FP32_UTIL";
    GpuGpmFp16 = "nv_gpu_fp16_active_ratio" Gauge Gpu GPU unit "ratio"
        "Share (0-1) of time in which the FP16 pipe was active."
        from "GPM FP16_UTIL";
    GpuGpmPcieTransmit = "nv_gpu_pcie_transmit_bytes_per_second" Gauge Gpu GPU
        "Bytes a second sent over PCIe since the poll before."
        from "GPM PCIE_TX_PER_SEC × 1048576";
    GpuGpmPcieReceive = "nv_gpu_pcie_receive_bytes_per_second" Gauge Gpu GPU
        "Bytes a second received over PCIe since the poll before."
        from "GPM PCIE_RX_PER_SEC × 1048576";
    GpuGpmNvlinkTransmit = "nv_gpu_nvlink_transmit_bytes_per_second" Gauge Gpu GPU
        "Bytes a second sent over NVLink since the poll before."
        from "GPM NVLINK_TOTAL_TX_PER_SEC × 1048576";
    GpuGpmNvlinkReceive = "nv_gpu_nvlink_receive_bytes_per_second" Gauge Gpu GPU
        "Bytes a second received over NVLink since the poll before."
        from "GPM NVLINK_TOTAL_RX_PER_SEC × 1048576";
    // Memory.
    GpuMemoryFree = "nv_gpu_memory_free_bytes" Gauge Gpu GPU unit "bytes"
        "GPU memory that is neither used nor reserved, in bytes."
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuMemoryReserved = "nv_gpu_memory_reserved_bytes" Gauge Gpu GPU unit "bytes"
        "GPU memory that the driver and firmware keep for themselves, in bytes."
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuBar1Total = "nv_gpu_bar1_memory_total_bytes" Gauge Gpu GPU unit "bytes"
        "Window through which the host can map GPU memory, in bytes."
        from "nvmlDeviceGetBAR1MemoryInfo";
    GpuBar1Used = "nv_gpu_bar1_memory_used_bytes" Gauge Gpu GPU unit "bytes"
        "Part of that window in use, in bytes."
        from "nvmlDeviceGetBAR1MemoryInfo";
    // Power, heat, clocks.
    GpuPowerInstant = "nv_gpu_power_instant_watts" Gauge Gpu GPU unit "watts"
        "GPU power at one moment in watts, where nv_gpu_power_usage is an average."
        from "NVML field 186";
    GpuPowerLimits = "nv_gpu_power_limit_watts" Gauge Gpu GPU
        ["kind": "enforced" | "default" | "min" | "max"] unit "watts"
        "Power limits in watts: the one in force over all limits, the default, and the least and the most that may be set."
        from "nvmlDeviceGetEnforcedPowerLimit, PowerManagementDefaultLimit, PowerManagementLimitConstraints";
    GpuTemperature = "nv_gpu_temperature_celsius" Gauge Gpu GPU ["sensor": "gpu" | "memory"] unit "celsius"
        "Temperature in degrees Celsius."
        from "nvmlDeviceGetTemperature, NVML field 82 (0 taken as no sensor)";
    GpuTemperatureLimit = "nv_gpu_temperature_limit_celsius" Gauge Gpu GPU
        ["threshold": "shutdown" | "slowdown" | "memory_max" | "gpu_max"] unit "celsius"
        "Temperature in degrees Celsius at which the GPU shuts down, slows down, or leaves the range its memory or itself should keep to."
        from "nvmlDeviceGetTemperatureThreshold";
    GpuClock = "nv_gpu_clock_hertz" Gauge Gpu GPU ["type": "graphics" | "sm" | "memory" | "video"] unit "hertz"
        "Clock frequency in hertz."
        from "nvmlDeviceGetClockInfo";
    GpuClockMax = "nv_gpu_clock_max_hertz" Gauge Gpu GPU ["type": "graphics" | "sm" | "memory" | "video"] unit "hertz"
        "Highest clock frequency in hertz."
        from "nvmlDeviceGetMaxClockInfo";
    GpuClocksEvent = "nv_gpu_clocks_event_active" Gauge Gpu GPU
        ["reason": "gpu_idle" | "applications_clocks_setting" | "sw_power_cap" | "hw_slowdown" | "sync_boost" | "sw_thermal_slowdown" | "hw_thermal_slowdown" | "hw_power_brake_slowdown" | "display_clock_setting"]
        "Whether this holds the clocks below their maximum now."
        from "nvmlDeviceGetCurrentClocksThrottleReasons";
    GpuThrottle = "nv_gpu_throttle_seconds_total" Counter Gpu GPU
        ["policy": "power" | "thermal" | "sync_boost" | "board_limit" | "low_utilization" | "reliability" | "sw_thermal_slowdown" | "hw_thermal_slowdown" | "hw_power_brake_slowdown"] unit "seconds"
        "Time in seconds for which this has held the clocks down since the driver was loaded."
        from "NVML fields 74 to 79 and 251 to 253 (269 to 271 since driver 580.82)";
    GpuPerformanceState = "nv_gpu_performance_state" Gauge Gpu GPU
        "Performance state: 0 is the fastest, 15 the slowest."
        from "nvmlDeviceGetPerformanceState";
    GpuFanSpeed = "nv_gpu_fan_speed_ratio" Gauge Gpu GPU_FAN unit "ratio"
        "Intended fan speed as a share (0-1) of its maximum; may be more than 1."
        from "nvmlDeviceGetFanSpeed_v2";
    // Links.
    GpuPcieGeneration = "nv_gpu_pcie_link_generation" Gauge Gpu GPU
        "Generation of the PCIe link now; an idle GPU lowers it."
        from "nvmlDeviceGetCurrPcieLinkGeneration";
    GpuPcieGenerationMax = "nv_gpu_pcie_link_generation_max" Gauge Gpu GPU
        "Highest generation of the PCIe link that GPU and system have in common."
        from "nvmlDeviceGetMaxPcieLinkGeneration";
    GpuPcieWidth = "nv_gpu_pcie_link_width" Gauge Gpu GPU
        "Lanes of the PCIe link now."
        from "nvmlDeviceGetCurrPcieLinkWidth";
    GpuPcieWidthMax = "nv_gpu_pcie_link_width_max" Gauge Gpu GPU
        "Most lanes of the PCIe link that GPU and system have in common."
        from "nvmlDeviceGetMaxPcieLinkWidth";
    GpuPcieReplays = "nv_gpu_pcie_replays_total" Counter Gpu GPU
        "PCIe replays since the driver was loaded."
        from "NVML field 94";
    GpuPcieTransmit = "nv_gpu_pcie_transmit_bytes_total" Counter Gpu GPU unit "bytes"
        "Bytes sent over PCIe since the driver was loaded."
        from "NVML field 197";
    GpuPcieReceive = "nv_gpu_pcie_receive_bytes_total" Counter Gpu GPU unit "bytes"
        "Bytes received over PCIe since the driver was loaded."
        from "NVML field 198";
    GpuNvlinkUp = "nv_gpu_nvlink_up" Gauge Gpu GPU_LINK
        "Whether the NVLink is active."
        from "nvmlDeviceGetNvLinkState";
    GpuNvlinkErrors = "nv_gpu_nvlink_errors_total" Counter Gpu GPU_LINK
        ["kind": "replay" | "recovery" | "crc_flit" | "crc_data"]
        "Errors of the NVLink since the driver was loaded."
        from "NVML fields 161 to 163 by link (crc is crc_flit), before Hopper 32 to 58 and 96 to 119";
    GpuNvlinkTransmit = "nv_gpu_nvlink_transmit_bytes_total" Counter Gpu GPU unit "bytes"
        "Bytes of payload sent over all NVLinks since the driver was loaded."
        from "NVML field 138 over all links × 1024";
    GpuNvlinkReceive = "nv_gpu_nvlink_receive_bytes_total" Counter Gpu GPU unit "bytes"
        "Bytes of payload received over all NVLinks since the driver was loaded."
        from "NVML field 139 over all links × 1024";
    // Errors.
    GpuXids = "nv_gpu_xid_errors_total" Counter Gpu GPU_XID
        "Xid errors of the GPU since this exporter started, by code; a code appears with its first error."
        from "nvmlEventSetWait_v2";
    GpuLastXid = "nv_gpu_last_xid" Gauge Gpu GPU
        "Code of the last Xid error since this exporter started."
        from "nvmlEventSetWait_v2";
    GpuLastXidTime = "nv_gpu_last_xid_timestamp_seconds" Gauge Gpu GPU unit "seconds"
        "When that error was heard, in seconds since 1970 UTC."
        from "nvmlEventSetWait_v2";
    GpuEcc = "nv_gpu_ecc_errors_total" Counter Gpu GPU_ECC
        "ECC errors of GPU memory, corrected or not, since the driver was loaded (volatile) and over the GPU's life (aggregate)."
        from "NVML fields 3 to 6";
    GpuEccLocations = "nv_gpu_ecc_location_errors_total" Counter Gpu GPU_ECC_LOCATION
        "ECC errors by part of the GPU, corrected or not, since the driver was loaded (volatile) and over the GPU's life (aggregate)."
        from "nvmlDeviceGetMemoryErrorCounter, of the parts that the GPU counts apart";
    GpuEccSram = "nv_gpu_ecc_sram_threshold_exceeded" Gauge Gpu GPU
        "Whether uncorrected SRAM errors have reached NVIDIA's bound for replacing the GPU."
        from "nvmlDeviceGetSramEccErrorStatus, drivers since 535";
    GpuRetiredPages = "nv_gpu_retired_pages" Gauge Gpu GPU ["cause": "multiple_single_bit" | "double_bit"]
        "Pages of GPU memory taken out of use, before Ampere."
        from "NVML fields 29 and 30";
    GpuRetiredPending = "nv_gpu_retired_pages_pending" Gauge Gpu GPU
        "Whether pages wait for a reset to be taken out of use."
        from "NVML field 31";
    GpuRemappedRows = "nv_gpu_remapped_rows" Gauge Gpu GPU ["cause": "correctable" | "uncorrectable"]
        "Rows of GPU memory replaced by spare ones, Ampere and later."
        from "NVML fields 142 and 143";
    GpuRemappedPending = "nv_gpu_remapped_rows_pending" Gauge Gpu GPU
        "Whether rows wait for a reset to be replaced."
        from "NVML field 144";
    GpuRemappedFailure = "nv_gpu_remapped_rows_failure" Gauge Gpu GPU
        "Whether replacing a row has failed: the GPU must be exchanged."
        from "NVML field 145";
    GpuRecoveryAction = "nv_gpu_recovery_action" Gauge Gpu GPU
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset."
        from "NVML field 230";
    // MIG.
    GpuMigEnabled = "nv_gpu_mig_enabled" Gauge Gpu GPU
        "Whether MIG is enabled."
        from "nvmlDeviceGetMigMode";
    MigInfo = "nv_gpu_mig_info" Gauge Gpu MIG_INFO
        "Which MIG instance this is."
        from "nvmlDeviceGetMigDeviceHandleByIndex, GpuInstanceId, ComputeInstanceId, Name";
    MigMemoryTotal = "nv_gpu_mig_memory_total_bytes" Gauge Gpu MIG unit "bytes"
        "Memory of the MIG instance in bytes."
        from "nvmlDeviceGetMemoryInfo_v2";
    MigMemoryUsed = "nv_gpu_mig_memory_used_bytes" Gauge Gpu MIG unit "bytes"
        "Used memory of the MIG instance in bytes."
        from "nvmlDeviceGetMemoryInfo_v2";
    MigMemoryFree = "nv_gpu_mig_memory_free_bytes" Gauge Gpu MIG unit "bytes"
        "Free memory of the MIG instance in bytes."
        from "nvmlDeviceGetMemoryInfo_v2";
    MigGpmGraphics = "nv_gpu_mig_graphics_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, any engine was computing or drawing."
        from "GPM GRAPHICS_UTIL of the GPU instance, Hopper and later";
    MigGpmSm = "nv_gpu_mig_sm_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, a warp was assigned to an SM, averaged over SMs."
        from "GPM SM_UTIL of the GPU instance, Hopper and later";
    MigGpmSmOccupancy = "nv_gpu_mig_sm_occupancy_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of the warps an SM of the MIG instance can hold that were resident, averaged over its SMs."
        from "GPM SM_OCCUPANCY of the GPU instance, Hopper and later";
    MigGpmTensor = "nv_gpu_mig_tensor_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, any tensor pipe was active."
        from "GPM ANY_TENSOR_UTIL of the GPU instance, Hopper and later";
    MigGpmTensorDfma = "nv_gpu_mig_tensor_dfma_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the tensor pipe did FP64."
        from "GPM DFMA_TENSOR_UTIL of the GPU instance, Hopper and later";
    MigGpmTensorHmma = "nv_gpu_mig_tensor_hmma_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the tensor pipe did FP16 or BF16."
        from "GPM HMMA_TENSOR_UTIL of the GPU instance, Hopper and later";
    MigGpmTensorImma = "nv_gpu_mig_tensor_imma_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the tensor pipe did integers."
        from "GPM IMMA_TENSOR_UTIL of the GPU instance, Hopper and later";
    MigGpmDram = "nv_gpu_mig_dram_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, GPU memory was transferring, of what it could."
        from "GPM DRAM_BW_UTIL of the GPU instance, Hopper and later";
    MigGpmFp64 = "nv_gpu_mig_fp64_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the FP64 pipe was active."
        from "GPM FP64_UTIL of the GPU instance, Hopper and later";
    MigGpmFp32 = "nv_gpu_mig_fp32_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the FP32 pipe was active."
        from "GPM FP32_UTIL of the GPU instance, Hopper and later";
    MigGpmFp16 = "nv_gpu_mig_fp16_active_ratio" Gauge Gpu MIG unit "ratio"
        "Share (0-1) of time in which, in the MIG instance, the FP16 pipe was active."
        from "GPM FP16_UTIL of the GPU instance, Hopper and later";
    } };
}
