#!/usr/bin/env python3
"""Latency of a scrape while people have the live page open.

    benches/pages.py [--pages 20] [--rounds 6] [--binary target/release/trtllm-exporter]

A simulated engine of 100 records a second and, if libnvml_standin.so is beside the binary, 8 GPUs. In turns of five seconds, nobody or N
pages look; a page sends what its script sends: four requests every two seconds. Meanwhile a scraper asks 20 times a second. Prints the
median over the rounds of p50 and p95, and the CPU time of the exporter.
"""

import argparse
import http.client
import multiprocessing
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from idle import cpu_ns

PAGE = [f"/metrics?{'&'.join('collect[]=' + group for group in ('triton', 'engine', 'gpu', 'exporter'))}",
        "/api/v1/engines", "/api/v1/discovery", "/api/v1/findings"]
EVERY, TURN, PAUSE = 2.0, 5.0, 0.05


def get(connection, path):
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, f"{path}: {answer.status}"


def look(address, number, pages, looking):
    """One page: a connection, because a browser sends the four requests of one look one after the other or nearly so."""
    connection = http.client.HTTPConnection(address)
    time.sleep(EVERY * number / pages)
    while True:
        looking.wait()
        for path in PAGE:
            get(connection, path)
        time.sleep(EVERY)


def scrape(address, pid):
    """Latencies in seconds, and CPU seconds of the exporter a second."""
    connection, latencies = http.client.HTTPConnection(address), []
    began, cpu = time.monotonic(), cpu_ns(pid)
    while time.monotonic() < began + TURN:
        time.sleep(PAUSE)
        before = time.perf_counter()
        get(connection, "/metrics")
        latencies.append(time.perf_counter() - before)
    return sorted(latencies), (cpu_ns(pid) - cpu) / 1e9 / (time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/trtllm-exporter"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        gpu, standin = ["--gpu", "off"], options.binary.parent / "libnvml_standin.so"
        if standin.exists():
            library = shutil.copy(standin, f"{work}/libnvidia-ml.so.1")
            pathlib.Path(f"{library}.state").write_text("gpus=8\n")
            gpu = ["--gpu", "required", "--gpu.library", library]
        port = pathlib.Path(work, "port")
        exporter = subprocess.Popen([options.binary, "--source", "sim:?rate=100", "--web.listen-address", "127.0.0.1:0",
                                     "--web.port-file", port, *gpu], stderr=subprocess.DEVNULL)
        processes = []
        try:
            while not port.exists() or not port.read_text().strip():
                time.sleep(0.05)
            address, looking = port.read_text().split()[0], multiprocessing.Event()
            for number in range(options.pages):
                processes.append(multiprocessing.Process(target=look, args=(address, number, options.pages, looking), daemon=True))
                processes[-1].start()
            time.sleep(3)
            measured = {0: [], options.pages: []}
            for number in range(options.rounds):
                for pages in sorted(measured, reverse=number % 2 == 1):
                    (looking.set if pages else looking.clear)()
                    time.sleep(EVERY)
                    measured[pages].append(scrape(address, exporter.pid))
            for pages, rounds in measured.items():
                p50, p95 = (statistics.median(latencies[len(latencies) * part // 100] for latencies, _ in rounds) for part in (50, 95))
                cpu = statistics.median(cpu for _, cpu in rounds)
                print(f"{pages:3} pages: scrape p50 {p50 * 1e3:.2f} ms, p95 {p95 * 1e3:.2f} ms, CPU {cpu * 1e3:.1f} ms a second")
        finally:
            for process in processes:
                process.terminate()
            exporter.terminate()
            exporter.wait(timeout=10)


if __name__ == "__main__":
    main()
