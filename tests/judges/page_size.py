"""Prints the cost of the default and of the full page (series, bytes and CPU time) for kinds and numbers of engines and GPUs.

usage: page_size.py EXPORTER      EXPORTER must be a release build, with libnvml_standin.so beside it (or NVML_STANDIN=PATH)
The simulated engines are busy and use speculative decoding, reuse and transfers of the KV cache. The GPUs are simulated, with all readings
of an H100. docs/fleet.md has some of the results.
"""

import contextlib
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time

from exporter import PROTOBUF, Exporter, MovingGpus, configured, fetch, until
from sim_serve import SimServe

# Readings of a busy H100. All others are the default, and so are 18 NVLinks.
BUSY = {
    "utilization_percent": 70,
    "memory_used_bytes": 72 << 30,
    "power_mw": 520000,
    "temperature_celsius": 61,
    "clock_sm_mhz": 1800,
    "clock_graphics_mhz": 1800,
    "throttle_reasons": 0,
    "processes": "4000:72000000000",
    **{f"gpm.{metric}": 50 for metric in (1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 20, 21, 60, 61)},
}
# By how much these readings move at most, each second.
MOVING = {"utilization_percent": 20, "power_mw": 60000, "temperature_celsius": 5, "memory_used_bytes": 1 << 30, "clock_sm_mhz": 60}
SIMULATED = "sim:?rate=10&prefix_share=1&prefix_tokens=500&spec_draft_len=3&spec_acceptance=0.9&disagg=1"
# Time in seconds until all families are on the page, including histograms of requests.
WARM_UP = 12
SCRAPES = 60
# Pause between two scrapes in seconds. It is longer than the poll interval, so that each scrape builds and compresses a new page, as
# in practice.
PAUSE = 0.15


@contextlib.contextmanager
def running(program, work, sources, gpus=0, published=0, profile="default", moving=MOVING):
    """Runs an exporter with these sources, simulated GPUs, and engines that publish to its socket."""
    chance = random.Random(1)

    def read():
        return [BUSY | {key: BUSY[key] + chance.randint(-most, most) for key, most in moving.items()} for _ in range(gpus)]

    arguments = ["--log.level=warn", f"--metrics.profile={profile}"]
    if gpus:
        standin = os.environ.get("NVML_STANDIN", os.path.join(os.path.dirname(program), "libnvml_standin.so"))
        moved = MovingGpus(standin, work, read)
        arguments.append(f"--gpu.library={moved.library}")
    ingest, engines = os.path.join(work, "ingest.sock"), []
    for number, source in enumerate(sources):
        engines.append({"source": source, "model": "llama-3-70b", "version": str(number)})
    engines.append({"source": f"socket:{ingest}"})
    with Exporter(program, *arguments, configured(work, engines)) as exporter:
        until("the socket", lambda: os.path.exists(ingest))
        publishers = [SimServe.publishing(ingest, "llama-3-70b", f"p{number}", seed=number) for number in range(published)]
        try:
            yield exporter
        finally:
            for started in [*publishers, *([moved] if gpus else [])]:
                started.stop()


def measure(program, profile, sources, gpus, published):
    with tempfile.TemporaryDirectory() as work, running(program, work, sources, gpus, published, profile, {}) as exporter:
        time.sleep(WARM_UP)
        url = f"{exporter.url}/metrics"
        page = fetch(url)
        # Measures without scrapes, then with many. The difference is the cost of scrapes with gzip, which Prometheus
        # requests.
        began, idle = time.monotonic(), exporter.cpu_seconds()
        time.sleep(8)
        idle = (exporter.cpu_seconds() - idle) / (time.monotonic() - began)
        began, busy = time.monotonic(), exporter.cpu_seconds()
        for _ in range(SCRAPES):
            packed = fetch(url, headers={"Accept-Encoding": "gzip"})
            time.sleep(PAUSE)
        seconds = time.monotonic() - began
        scrape = (exporter.cpu_seconds() - busy - idle * seconds) / SCRAPES
        assert gzip.decompress(packed)
        series = sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))
        native = len(fetch(url, headers={"Accept": PROTOBUF}))
        return series, len(page), len(packed), native, idle * 1000, max(0, scrape) * 1000, exporter.status("VmRSS") * 1024 / 1e6


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    exporter = os.path.abspath(sys.argv[1])
    print(subprocess.check_output([exporter, "--version"], text=True).splitlines()[0])
    print("| page | engines | GPUs | series | text, KB | gzip, KB | protobuf, KB | CPU without scrapes, ms a second | CPU per scrape, ms | resident, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for profile in ("default", "full"):
        for name, sources, published, gpus in (
            ("none", [], 0, 1),
            ("1, C++ Executor", [SIMULATED], 0, 0),
            ("1, C++ Executor", [SIMULATED], 0, 8),
            ("1, PyTorch backend, by the socket", [], 1, 0),
            ("8, C++ Executor", [SIMULATED] * 8, 0, 8),
            ("64, C++ Executor", [SIMULATED] * 64, 0, 0),
        ):
            series, text, packed, native, idle, scrape, resident = measure(exporter, profile, sources, gpus, published)
            print(f"| {profile} | {name} | {gpus} | {series} | {text / 1000:.0f} | {packed / 1000:.1f} | {native / 1000:.0f} | {idle:.1f} | {scrape:.2f} | {resident:.1f} |", flush=True)


if __name__ == "__main__":
    main()
