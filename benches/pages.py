#!/usr/bin/env python3
"""Latency of a scrape while people have the live page open.

benches/pages.py [--pages 20] [--rounds 6] [--binary target/release/trtllm-exporter]

The exporter has a simulated engine with 100 requests a second and, if libnvml_standin.so is beside the binary, 8 GPUs. In turns of five seconds,
either no page is open or N pages are. A page sends what its script sends: four requests every two seconds. Meanwhile a scraper sends 20 requests
a second. Prints the median over the rounds of p50 and p95, and the CPU time of the exporter.
"""

import argparse
import http.client
import multiprocessing
import pathlib
import statistics
import tempfile
import time

from intake import Exporter, simulated_gpus

PAGE = [f"/metrics?{'&'.join('collect[]=' + group for group in ('triton', 'engine', 'gpu', 'exporter'))}",
        "/api/v1/engines", "/api/v1/discovery", "/api/v1/findings"]
EVERY, TURN, PAUSE = 2.0, 5.0, 0.05


def get(connection, path):
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, f"{path}: {answer.status}"


def look(address, number, pages, looking):
    """One page. It has one connection, because a browser sends the four requests nearly one after the other."""
    connection = http.client.HTTPConnection(address)
    time.sleep(EVERY * number / pages)
    while True:
        looking.wait()
        for path in PAGE:
            get(connection, path)
        time.sleep(EVERY)


def scrape(exporter):
    """Latencies in seconds, and CPU seconds of the exporter per second."""
    connection, latencies = http.client.HTTPConnection(exporter.address), []
    began, cpu = time.monotonic(), exporter.cpu_seconds()
    while time.monotonic() < began + TURN:
        time.sleep(PAUSE)
        before = time.perf_counter()
        get(connection, "/metrics")
        latencies.append(time.perf_counter() - before)
    return sorted(latencies), (exporter.cpu_seconds() - cpu) / (time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/trtllm-exporter"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        arguments, standin = [], options.binary.parent / "libnvml_standin.so"
        if standin.exists():
            library = simulated_gpus(standin, work, "gpus=8\n")
            arguments = ["--gpu=required", f"--gpu.library={library}"]
        processes, looking = [], multiprocessing.Event()
        with Exporter(options.binary, "--source=sim:?rate=100", *arguments) as exporter:
            for number in range(options.pages):
                processes.append(multiprocessing.Process(target=look, args=(exporter.address, number, options.pages, looking), daemon=True))
                processes[-1].start()
            time.sleep(3)
            measured = {0: [], options.pages: []}
            for number in range(options.rounds):
                for pages in sorted(measured, reverse=number % 2 == 1):
                    (looking.set if pages else looking.clear)()
                    time.sleep(EVERY)
                    measured[pages].append(scrape(exporter))
            for pages, rounds in measured.items():
                p50, p95 = (statistics.median(latencies[len(latencies) * part // 100] for latencies, _ in rounds) for part in (50, 95))
                cpu = statistics.median(cpu for _, cpu in rounds)
                print(f"{pages:3} pages: scrape p50 {p50 * 1e3:.2f} ms, p95 {p95 * 1e3:.2f} ms, CPU {cpu * 1e3:.1f} ms a second")
            for process in processes:
                process.terminate()


if __name__ == "__main__":
    main()
