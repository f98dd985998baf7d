#!/usr/bin/env python3
"""Runs hostile and broken peers against the daemon, and prints the cost of each: python3 tests/judges/hostile.py [TRIAL...]

Each trial starts one daemon and measures one number, such as memory or seconds. If the number is above the limit, the trial fails,
and the exit code is 1. docs/ARCHITECTURE.md, "What peers can cost", has the rules. Time limits are generous, because other
processes may use the machine. tests/it/memory.rs, fairness.rs and file_faults.rs have the peers of one kind; these trials have many
kinds at once, and those that are too large for a test.
"""

import argparse
import contextlib
import itertools
import pathlib
import socket
import sys
import tempfile
import threading
import time

from exporter import ROOT, Exporter, fetch, simulated_gpus, until
from hostile_peers import DrippingServer, Publisher, array, record

MB = 1_000_000
TRIALS = {}
# Duration of `everything_at_once` in seconds.
SECONDS = 30


def trial(limit, unit):
    """Registers a trial: a function of a binary and a folder that returns a number."""

    def add(function):
        TRIALS[function.__name__] = (function, limit, unit)
        return function

    return add


def peak(exporter):
    return exporter.status("VmHWM") * 1024 / MB


def resident(exporter):
    return exporter.status("VmRSS") * 1024 / MB


def engine_memory(engines):
    """The memory limit in MB: 48 MB, and 0.6 MB for each engine."""
    return 48 + 0.6 * engines


# Memory.


def slow_reader(address, path="/metrics"):
    """Opens a connection that requests a page and reads nothing."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.connect(tuple([address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])]))
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return stream


def named_engines(path, number, records=150):
    publishers = []
    for engine in range(number):
        publisher = Publisher(path)
        publisher.send(b'{"hello":{"model":"engine-%d"}}\n' % engine)
        publisher.send(b"".join(record(n) for n in range(records)))
        publishers.append(publisher)
    return publishers


@trial(engine_memory(64), "MB at most")
def many_names_and_readers(binary, folder):
    """64 engines, and two readers that request every page in every format."""
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter:
        publishers = named_engines(path, 64)
        until("the engines", lambda: len(exporter.page().values("nv_trt_llm_iterations_total")) == 64)
        read_all_forms(exporter, seconds=15)
        for publisher in publishers:
            publisher.close()
        return peak(exporter)


PAGES = [
    "/metrics",
    "/metrics/gateway",
    "/prometheus/metrics",
    "/api/v1/engines",
    "/api/v1/iterations?engine=engine-1&last=128",
    "/api/v1/history",
    "/api/v1/findings",
    "/api/v1/model?engine=engine-1",
    "/",
]
FORMS = [
    {},
    {"Accept-Encoding": "gzip"},
    {"Accept-Encoding": "zstd"},
    {"Accept": "application/openmetrics-text"},
    {"Accept": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"},
]


def read_all_forms(exporter, seconds):
    end = time.monotonic() + seconds

    def read():
        while time.monotonic() < end:
            for page in PAGES:
                for form in FORMS:
                    with contextlib.suppress(OSError):
                        fetch(exporter.url + page, headers=form)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


@trial(engine_memory(48), "MB at most")
def every_selection(binary, folder):
    """48 idle engines, and three readers that request the page with every selection of its groups, in two formats."""
    path = f"{folder}/socket"
    groups = ["triton", "engine", "compat", "gpu", "exporter"]
    selections = [chosen for size in range(1, len(groups) + 1) for chosen in itertools.combinations(groups, size)]
    with Exporter(binary, "--source", f"socket:{path}") as exporter:
        publishers = named_engines(path, 48)
        until("the engines", lambda: len(exporter.page().values("nv_trt_llm_iterations_total")) == 48)
        end = time.monotonic() + 15

        def read():
            for chosen in itertools.cycle(selections):
                if time.monotonic() > end:
                    return
                query = "&".join(f"collect[]={group}" for group in chosen)
                for form in ({}, {"Accept": "application/openmetrics-text"}):
                    with contextlib.suppress(OSError):
                        fetch(f"{exporter.url}/metrics?{query}", headers=form)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        for publisher in publishers:
            publisher.close()
        return peak(exporter)


@trial(engine_memory(64), "MB at most")
def slow_readers(binary, folder):
    """200 connections that request the page of 64 engines and read nothing."""
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter:
        publishers = named_engines(path, 64)
        until("the engines", lambda: len(exporter.page().values("nv_trt_llm_iterations_total")) == 64)
        readers = []
        for _ in range(200):
            with contextlib.suppress(OSError):
                readers.append(slow_reader(exporter.address))
        time.sleep(5)
        highest = peak(exporter)
        for stream in readers + publishers:
            stream.close()
        return highest


@trial(engine_memory(50), "MB at most")
def everything_at_once(binary, folder):
    """Readers, slow readers, half lines, floods, a server that sends 15 MiB and then single bytes, and a recorder, for --seconds.
    Then a quiet minute follows."""
    a, b = f"{folder}/a", f"{folder}/b"
    with contextlib.ExitStack() as stack:
        drip = stack.enter_context(DrippingServer(15 << 20))
        words = ["--source", drip.source, "--record.dir", f"{folder}/kept", "--source", f"socket:{a}", "--source", f"socket:{b}"]
        publishers = []
        exporter = stack.enter_context(Exporter(binary, *words))
        publishers += named_engines(b, 48)
        end = time.monotonic() + SECONDS

        def repeat(attempt):
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    attempt()

        def half_line():
            with Publisher(a) as publisher:
                publisher.send(b'{"iter":1,"unknown":"' + b"x" * 70_000)
                publisher.stream.settimeout(5)
                publisher.stream.recv(1)

        def flood():
            with Publisher(a) as publisher:
                publisher.stream.settimeout(5)
                publisher.send(b'{"iter":1,"requestStats":' + array(b"{}", 60_000) + b"}\n")

        def read_little():
            stream = slow_reader(exporter.address)
            time.sleep(3)
            stream.close()

        attempts = [half_line] * 30 + [flood] * 8 + [read_little] * 60
        threads = [threading.Thread(target=repeat, args=(attempt,)) for attempt in attempts]
        for thread in threads:
            thread.start()
        read_all_forms(exporter, SECONDS - 5)
        for thread in threads:
            thread.join()
        for publisher in publishers:
            publisher.close()
        time.sleep(60)
        print(f"     everything_at_once: {resident(exporter):.1f} MB a minute later", flush=True)
        # The peak includes the quiet minute, because the dripping server is still running.
        return peak(exporter)


# GPUs.

STANDIN = ROOT / "target/debug/libnvml_standin.so"


def gpus(binary, folder, state, seconds, *more):
    """Number of threads and peak memory of a daemon with simulated GPUs in this state.
    `cargo build -p nvml-standin` builds the library."""
    library = simulated_gpus(STANDIN, folder, state)
    with Exporter(binary, "--source", f"socket:{folder}/socket", "--gpu.library", library, "--gpu=required", *more) as exporter:
        until("the GPUs", lambda: exporter.page().values("nv_gpu_utilization"))
        time.sleep(seconds)
        exporter.page()
        return exporter.status("Threads"), peak(exporter)


@trial(300, "threads")
def hundreds_of_gpus(binary, folder):
    return gpus(binary, folder, "gpus=600\n", 5)[0]


@trial(engine_memory(1), "MB at most")
def thousands_of_processes(binary, folder):
    processes = ",".join(f"{pid}:none" for pid in range(1, 20_000))
    return gpus(binary, folder, f"gpus=1\ngpu.0.processes={processes}\n", 5, "--gpu.processes")[1]


# Lines.


@trial(3, "seconds until the record after the descriptors is counted")
def lines_with_descriptors(binary, folder):
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter, Publisher(path) as publisher:
        begun = time.monotonic()
        for number in range(1, 200):
            socket.send_fds(publisher.stream, [record(number)], [0] * 200)
        until("the records", lambda: exporter.page().values("nv_trt_llm_iterations_total") == [199.0], 30)
        return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="*", help="names; all without any")
    parser.add_argument("--binary", default=str(ROOT / "target/release/trtllm-exporter"))
    parser.add_argument("--seconds", type=int, default=SECONDS, help="how long everything_at_once lasts (%(default)s)")
    options = parser.parse_args()
    globals()["SECONDS"] = options.seconds
    failed = []
    for name in options.trials or TRIALS:
        function, limit, unit = TRIALS[name]
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            try:
                number = function(options.binary, folder)
                ok, shown = number <= limit, f"{number:10.1f}"
            except Exception as error:  # noqa: BLE001 after a trial that fails, the other trials must still run
                ok, shown = False, f"{type(error).__name__}: {str(error)[:200]}"
        failed += [] if ok else [name]
        print(f"{'ok  ' if ok else 'FAIL'} {name:28} {shown} {unit}, limit {limit:g}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
