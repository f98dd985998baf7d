//! GPU telemetry.

macro_rules! gpu {
    ($($before:tt)*) => { exporter! { $($before)*
    // GPU: Triton's six exactly, then ours.
    GpuUtilization = "nv_gpu_utilization" Gauge Gpu GPU
        "GPU utilization rate [0.0 - 1.0)"
        from "nvmlDeviceGetUtilizationRates";
    GpuMemoryTotal = "nv_gpu_memory_total_bytes" Gauge Gpu GPU unit "bytes"
        "GPU total memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuMemoryUsed = "nv_gpu_memory_used_bytes" Gauge Gpu GPU unit "bytes"
        "GPU used memory, in bytes"
        from "nvmlDeviceGetMemoryInfo_v2";
    GpuPowerUsage = "nv_gpu_power_usage" Gauge Gpu GPU
        "GPU power usage in watts"
        from "nvmlDeviceGetPowerUsage";
    GpuPowerLimit = "nv_gpu_power_limit" Gauge Gpu GPU
        "GPU power management limit in watts"
        from "nvmlDeviceGetPowerManagementLimit";
    EnergyConsumption = "nv_energy_consumption" LegacyCounter Gpu GPU
        "GPU energy consumption in joules since the Triton Server started"
        from "increases of nvmlDeviceGetTotalEnergyConsumption since this exporter started, over driver reloads";
    GpuTemperature = "nv_gpu_temperature_celsius" Gauge Gpu GPU unit "celsius"
        "GPU temperature in degrees Celsius."
        from "nvmlDeviceGetTemperature";
    GpuUp = "nv_gpu_up" Gauge Gpu GPU
        "Whether the last poll of the GPU answered."
        from "the GPU's worker";
    GpuState = "nv_gpu_state" Gauge Gpu GPU ["state": "ok" | "lost" | "stalled" | "reset_required" | "no_permission"]
        "How the GPU answers: 1 for the state it is in."
        from "the GPU's worker";
    GpuInfo = "nv_gpu_info" Gauge Gpu GPU_INFO
        "Which GPU this is."
        from "nvmlDeviceGetName, nvmlDeviceGetIndex, nvmlDeviceGetPciInfo_v3";
    } };
}
