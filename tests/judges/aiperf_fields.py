"""Reads a running exporter over HTTP with AIPerf's DCGM collector, and checks the value of every field in AIPerf's unit."""

import asyncio
import sys

from aiperf.gpu_telemetry.constants import DCGM_TO_FIELD_MAPPING
from aiperf.gpu_telemetry.dcgm_collector import DCGMTelemetryCollector

URL = sys.argv[1]

# tests/fixtures/busy_gpu.state in AIPerf's units: W, MJ, %, GB, Celsius, microseconds.
BUSY = {
    "DCGM_FI_DEV_POWER_USAGE": 412.345,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 0.0,
    "DCGM_FI_DEV_GPU_UTIL": 57.0,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 31.0,
    "DCGM_FI_DEV_FB_USED": (12345678901 >> 20) * 1.048576e-3,
    "DCGM_FI_DEV_GPU_TEMP": 61.0,
    "DCGM_FI_DEV_DEC_UTIL": 12.0,
    "DCGM_FI_PROF_SM_ACTIVE": 82.5,
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
    "DCGM_FI_DEV_POWER_VIOLATION": 0.74,
    # GPU 1 of the fixture is an H100, which has no encoder. GPU 0 has one.
    "DCGM_FI_DEV_ENC_UTIL": None,
}


async def main():
    received = []

    async def keep(records, _collector):
        received.extend(records)

    async def fail(error, _collector):
        sys.exit(f"AIPerf failed: {error}")

    collector = DCGMTelemetryCollector(URL, collection_interval=0.333, record_callback=keep, error_callback=fail)
    if not await collector.is_url_reachable():
        sys.exit(f"AIPerf cannot reach {URL}")
    await collector.initialize()
    await collector.start()
    for _ in range(300):
        if {record.gpu_index for record in received} == {0, 1}:
            break
        await asyncio.sleep(0.1)
    await collector.stop()

    last = {record.gpu_index: record for record in received}
    if set(last) != {0, 1}:
        sys.exit(f"AIPerf read GPUs {sorted(last)}; expected 0 and 1")
    busy, idle = last[1], last[0]
    for name, value in {"gpu_uuid": "GPU-b", "gpu_model_name": "NVIDIA H100 80GB HBM3", "pci_bus_id": "00000000:CA:00.0",
                        "device": "nvidia1"}.items():
        if getattr(busy, name) != value:
            sys.exit(f"{name}: AIPerf read {getattr(busy, name)!r}; expected {value!r}")
        print(f"ok  {name} = {value!r}")
    if not busy.hostname:
        sys.exit("AIPerf read no hostname")
    unknown = set(DCGM_TO_FIELD_MAPPING) - set(BUSY)
    if unknown:
        sys.exit(f"this AIPerf version reads families without an expected value in this script: {sorted(unknown)}")
    for family, field in DCGM_TO_FIELD_MAPPING.items():
        actual, expected = getattr(busy.telemetry_data, field), BUSY[family]
        if (actual is None) != (expected is None) or (
            expected is not None and abs(actual - expected) > 1e-9 * max(1, abs(expected))
        ):
            sys.exit(f"{family} ({field}): AIPerf read {actual!r}; expected {expected!r}")
        if getattr(idle.telemetry_data, field) is None:
            sys.exit(f"{family} ({field}): AIPerf did not read it from the GPU that supports everything")
        print(f"ok  {family} -> {field} = {actual!r}")


asyncio.run(main())
