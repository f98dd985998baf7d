"""Reads the stand-in for NVML with nvidia-ml-py, and compares the values with the control file, which this script writes to
the given path."""

import os
import sys

import pynvml as nvml

PATH = sys.argv[1]


def state(*lines):
    draft = PATH + ".draft"
    with open(draft, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.rename(draft, PATH)


def equal(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: nvidia-ml-py read {actual!r}; the control file has {expected!r}")
    print(f"ok  {what} = {actual!r}")


def fails(what, error, call):
    try:
        actual = call()
    except nvml.NVMLError as raised:
        equal(what, raised.value, error)
    else:
        sys.exit(f"{what}: expected an error, got {actual!r}")


BASE = ["driver=550.163.01", "nvml=12.550.163.01", "cuda=12040", "gpus=2"]
SECOND = {
    "uuid": "GPU-8f1d0c52-7a55-4c5e-9f1e-0d6f2b3c4a5b",
    "name": "NVIDIA H100 80GB HBM3",
    "bus": 202,
    "utilization_percent": 57,
    "memory_utilization_percent": 31,
    "memory_total_bytes": 85520809984,
    "memory_used_bytes": 12345678901,
    "memory_reserved_bytes": 600000000,
    "power_mw": 412345,
    "power_limit_mw": 650000,
    "energy_mj": 987654321012,
    "temperature_celsius": 61,
}
LINES = BASE + [f"gpu.1.{key}={value}" for key, value in SECOND.items()]

state("init=9")
fails("init without a driver", nvml.NVML_ERROR_DRIVER_NOT_LOADED, nvml.nvmlInit)
state(*LINES)
fails("a call before init", nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)

nvml.nvmlInit()
equal("driver version", nvml.nvmlSystemGetDriverVersion(), "550.163.01")
equal("nvml version", nvml.nvmlSystemGetNVMLVersion(), "12.550.163.01")
equal("cuda version", nvml.nvmlSystemGetCudaDriverVersion_v2(), 12040)
equal("count", nvml.nvmlDeviceGetCount(), 2)
gpu = nvml.nvmlDeviceGetHandleByIndex(1)
equal("uuid", nvml.nvmlDeviceGetUUID(gpu), SECOND["uuid"])
equal("name", nvml.nvmlDeviceGetName(gpu), SECOND["name"])
equal("index", nvml.nvmlDeviceGetIndex(gpu), 1)
equal("minor number", nvml.nvmlDeviceGetMinorNumber(gpu), 1)
pci = nvml.nvmlDeviceGetPciInfo(gpu)
equal("pci bus id", pci.busId, "00000000:CA:00.0")
equal("legacy pci bus id", pci.busIdLegacy, "0000:CA:00.0")
equal("pci bus", pci.bus, SECOND["bus"])
rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
equal("utilisation", (rates.gpu, rates.memory), (57, 31))
memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
equal("memory v2", (memory.total, memory.used, memory.reserved), (85520809984, 12345678901, 600000000))
equal("memory v2 adds up", memory.free + memory.used + memory.reserved, memory.total)
memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
equal("memory v1", (memory.total, memory.used), (85520809984, 12345678901 + 600000000))
equal("power", nvml.nvmlDeviceGetPowerUsage(gpu), SECOND["power_mw"])
equal("power limit", nvml.nvmlDeviceGetPowerManagementLimit(gpu), SECOND["power_limit_mw"])
equal("enforced limit", nvml.nvmlDeviceGetEnforcedPowerLimit(gpu), 700000)
equal("energy", nvml.nvmlDeviceGetTotalEnergyConsumption(gpu), SECOND["energy_mj"])
equal("temperature", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU), 61)
equal("mig mode", list(nvml.nvmlDeviceGetMigMode(gpu)), [0, 0])
by_uuid = nvml.nvmlDeviceGetHandleByUUID(SECOND["uuid"])
equal("by uuid", nvml.nvmlDeviceGetIndex(by_uuid), 1)
by_bus = nvml.nvmlDeviceGetHandleByPciBusId("00000000:ca:00.0")
equal("by pci bus id", nvml.nvmlDeviceGetIndex(by_bus), 1)

MORE = [
    "gpu.1.serial=1650123", "gpu.1.vbios=96.00.74.00.01", "gpu.1.bar1_used_bytes=2097152",
    "gpu.1.default_power_limit_mw=690000", "gpu.1.min_power_limit_mw=210000", "gpu.1.max_power_limit_mw=710000",
    "gpu.1.slowdown_celsius=91", "gpu.1.clock_sm_mhz=1900", "gpu.1.max_clock_memory_mhz=2620", "gpu.1.throttle_reasons=68",
    "gpu.1.performance_state=2", "gpu.1.decoder_percent=12", "gpu.1.jpeg_percent=13", "gpu.1.fans=40,105",
    "gpu.1.pcie_gen=4", "gpu.1.pcie_width_max=8", "gpu.1.nvlinks=3", "gpu.1.nvlink_down=1",
    "gpu.1.processes=4242:1048576,4243:none", "gpu.1.process_utilization=4242:40:1000,4242:60:2000",
    "gpu.1.ecc.7.1.1=711", "gpu.1.sram_threshold_exceeded=1", "gpu.1.field.82=71", "gpu.1.field.5=5000000000",
    "gpu.1.field.138/all=1380", "gpu.1.field.161/2=1612", "gpu.1.field.94=none", "gpu.1.gpm.2=82.5", "gpu.1.gpm.20=200",
]
state(*LINES, *MORE)
equal("serial", nvml.nvmlDeviceGetSerial(gpu), "1650123")
equal("vbios", nvml.nvmlDeviceGetVbiosVersion(gpu), "96.00.74.00.01")
equal("architecture", nvml.nvmlDeviceGetArchitecture(gpu), nvml.NVML_DEVICE_ARCH_HOPPER)
equal("bar1", nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Used, 2097152)
equal("default limit", nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu), 690000)
equal("limits", list(nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)), [210000, 710000])
equal("slowdown", nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN), 91)
equal("sm clock", nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), 1900)
equal("max memory clock", nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM), 2620)
equal("throttle reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu), 68)
equal("performance state", nvml.nvmlDeviceGetPerformanceState(gpu), 2)
equal("decoder", nvml.nvmlDeviceGetDecoderUtilization(gpu)[0], 12)
equal("jpeg", nvml.nvmlDeviceGetJpgUtilization(gpu)[0], 13)
equal("fans", [nvml.nvmlDeviceGetFanSpeed_v2(gpu, fan) for fan in range(nvml.nvmlDeviceGetNumFans(gpu))], [40, 105])
equal("pcie generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu), 4)
equal("pcie width", nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu), 8)
equal("nvlinks", [nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(3)], [1, 0, 1])
fails("a link out of range", nvml.NVML_ERROR_INVALID_ARGUMENT, lambda: nvml.nvmlDeviceGetNvLinkState(gpu, 3))
processes = [(process.pid, process.usedGpuMemory) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
equal("processes", processes, [(4242, 1048576), (4243, None)])
samples = [(sample.pid, sample.smUtil, sample.timeStamp) for sample in nvml.nvmlDeviceGetProcessUtilization(gpu, 1000)]
equal("process utilisation since a timestamp", samples, [(4242, 60, 2000)])
fails("process utilisation since the newest sample", nvml.NVML_ERROR_NOT_FOUND, lambda: nvml.nvmlDeviceGetProcessUtilization(gpu, 2000))
uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
equal("ecc of sram", nvml.nvmlDeviceGetMemoryErrorCounter(gpu, *uncorrected, nvml.NVML_MEMORY_LOCATION_SRAM), 711)
fails("unsupported ecc of a part", nvml.NVML_ERROR_NOT_SUPPORTED,
      lambda: nvml.nvmlDeviceGetMemoryErrorCounter(gpu, *uncorrected, nvml.NVML_MEMORY_LOCATION_L1_CACHE))
status = nvml.c_nvmlEccSramErrorStatus_v1_t()
# This function of nvidia-ml-py passes its argument on unchanged, so the caller must create the pointer.
nvml.nvmlDeviceGetSramEccErrorStatus(gpu, nvml.byref(status))
equal("sram threshold", status.bThresholdExceeded, 1)
fields = nvml.nvmlDeviceGetFieldValues(gpu, [82, 5, (138, 0xFFFFFFFF), (161, 2), 94])
equal("field return codes", [field.nvmlReturn for field in fields], [0, 0, 0, 0, nvml.NVML_ERROR_NOT_SUPPORTED])
equal("a 32-bit field", (fields[0].valueType, fields[0].value.uiVal), (nvml.NVML_VALUE_TYPE_UNSIGNED_INT, 71))
equal("a 64-bit field", (fields[1].valueType, fields[1].value.ullVal), (nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 5000000000))
equal("fields with a scope", [fields[2].value.ullVal, fields[3].value.ullVal], [1380, 1612])


def gpm(take):
    """Takes two samples. Returns SM utilisation in percent and PCIe transmit in MiB/s."""
    samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    for sample in samples:
        take(sample)
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
    request.sample1, request.sample2 = samples
    request.metrics[0].metricId, request.metrics[1].metricId = nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
    nvml.nvmlGpmMetricsGet(request)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    return [(metric.nvmlReturn, metric.value) for metric in request.metrics[:2]]


equal("gpm support", nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice, 1)
equal("gpm", gpm(lambda sample: nvml.nvmlGpmSampleGet(gpu, sample)), [(0, 82.5), (0, 200.0)])

events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
fails("no event", nvml.NVML_ERROR_TIMEOUT, lambda: nvml.nvmlEventSetWait_v2(events, 10))
state(*LINES, "gpu.1.xids=79")
event = nvml.nvmlEventSetWait_v2(events, 10000)
equal("an Xid", (event.eventType, event.eventData), (nvml.nvmlEventTypeXidCriticalError, 79))
equal("its GPU", nvml.nvmlDeviceGetIndex(event.device), 1)
nvml.nvmlEventSetFree(events)

state(*LINES, "gpu.1.mig=on", "gpu.1.mig.2=MIG-a,5,1,1c.2g.35gb,37580963840,2147483648,70")
equal("maximum number of instances", nvml.nvmlDeviceGetMaxMigDeviceCount(gpu), 7)
fails("an empty slot", nvml.NVML_ERROR_NOT_FOUND, lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))
mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)
equal("instance", (nvml.nvmlDeviceGetUUID(mig), nvml.nvmlDeviceGetName(mig)), ("MIG-a", "NVIDIA H100 80GB HBM3 MIG 1c.2g.35gb"))
equal("instance ids", (nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig)), (5, 1))
memory = nvml.nvmlDeviceGetMemoryInfo(mig)
equal("instance memory", (memory.total, memory.used), (37580963840, 2147483648))
parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
equal("its parent", nvml.nvmlDeviceGetIndex(parent), 1)
fails("power of an instance", nvml.NVML_ERROR_NOT_SUPPORTED, lambda: nvml.nvmlDeviceGetPowerUsage(mig))
equal("instance gpm", gpm(lambda sample: nvml.nvmlGpmMigSampleGet(gpu, 5, sample))[0], (0, 70.0))
state(*LINES)

fails("an index out of range", nvml.NVML_ERROR_INVALID_ARGUMENT, lambda: nvml.nvmlDeviceGetHandleByIndex(2))
fails("an unknown uuid", nvml.NVML_ERROR_NOT_FOUND, lambda: nvml.nvmlDeviceGetHandleByUUID("GPU-none"))
state(*LINES, "gpu.1.not_supported=temperature", "gpu.1.fail=power_usage:999")
fails(
    "not supported",
    nvml.NVML_ERROR_NOT_SUPPORTED,
    lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
)
fails("a failing call", nvml.NVML_ERROR_UNKNOWN, lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
state(*LINES, "gpu.1.mig=on")
fails("utilisation under MIG", nvml.NVML_ERROR_NOT_SUPPORTED, lambda: nvml.nvmlDeviceGetUtilizationRates(gpu))
equal("mig mode", list(nvml.nvmlDeviceGetMigMode(gpu)), [1, 1])
state(*LINES, "gpu.1.lost=1")
fails("a lost GPU", nvml.NVML_ERROR_GPU_IS_LOST, lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
fails("its handle", nvml.NVML_ERROR_GPU_IS_LOST, lambda: nvml.nvmlDeviceGetHandleByIndex(1))
equal("the other GPU", nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)), 75000)
state(*LINES, "session=18")
fails("a driver update", nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
state(*LINES)
nvml.nvmlShutdown()
fails("a call after shutdown", nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)
