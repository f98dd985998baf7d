"""Reads the stand-in with nvidia-ml-py and compares with the control file, which it writes to the path given."""

import os
import sys

import pynvml as nvml

PATH = sys.argv[1]


def state(*lines):
    draft = PATH + ".draft"
    with open(draft, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.rename(draft, PATH)


def equal(what, seen, truth):
    if seen != truth:
        sys.exit(f"{what}: nvidia-ml-py sees {seen!r}, the control file says {truth!r}")
    print(f"ok  {what} = {seen!r}")


def fails(what, error, call):
    try:
        seen = call()
    except nvml.NVMLError as raised:
        equal(what, raised.value, error)
    else:
        sys.exit(f"{what}: no error but {seen!r}")


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
equal("enforced limit", nvml.nvmlDeviceGetEnforcedPowerLimit(gpu), SECOND["power_limit_mw"])
equal("energy", nvml.nvmlDeviceGetTotalEnergyConsumption(gpu), SECOND["energy_mj"])
equal("temperature", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU), 61)
equal("mig mode", list(nvml.nvmlDeviceGetMigMode(gpu)), [0, 0])
by_uuid = nvml.nvmlDeviceGetHandleByUUID(SECOND["uuid"])
equal("by uuid", nvml.nvmlDeviceGetIndex(by_uuid), 1)
by_bus = nvml.nvmlDeviceGetHandleByPciBusId("00000000:ca:00.0")
equal("by pci bus id", nvml.nvmlDeviceGetIndex(by_bus), 1)

fails("an index too many", nvml.NVML_ERROR_INVALID_ARGUMENT, lambda: nvml.nvmlDeviceGetHandleByIndex(2))
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
