#!/usr/bin/env python3
"""Runs hostile and broken peers against the daemon, and prints the cost of each: python3 tests/judges/hostile.py [TRIAL...]

Each trial starts one daemon and measures one number, such as memory or seconds. If the number is above the limit, the trial fails,
and the exit code is 1. docs/ARCHITECTURE.md, "What peers can cost", has the rules. Time limits are generous, because other
processes may use the machine.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

from exporter import ROOT, Exporter, fetch, simulated_gpus, until
from hostile_peers import DrippingServer, Publisher, RingServer, array, one_answer, record

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


@trial(64, "MB at most")
def answer_of_tiny_elements(binary, folder):
    """A server answers /server_info with 15 MiB of {"a":0}."""
    body = b'{"startup_metrics":' + array(b'{"a":0}', 15 << 20) + b"}"
    with one_answer("/server_info", body) as source, Exporter(binary, "--source", source) as exporter:
        until("polls", lambda: exporter.page().value("trtllm_exporter_polls_total") > 20)
        return peak(exporter)


@trial(engine_memory(1), "MB at most")
def long_window_ids(binary, folder):
    """A publisher sends 130 lines, each with a window id of one megabyte. Six requests read the records that the daemon keeps."""
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter, Publisher(path) as publisher:
        for number in range(130):
            publisher.send(b'{"iter":%d,"numActiveRequests":1,"kvCacheIterationStats":{"%s":{}}}\n' % (number, b"9" * 1_000_000))
        until("the records", lambda: exporter.page().value("nv_trt_llm_iterations_total") >= 130)
        for _ in range(6):
            fetch(exporter.url + "/api/v1/iterations?last=128")
        return peak(exporter)


@trial(64, "MB at most")
def long_versions(binary, folder):
    """Each of six engines sends 15 MB as its version."""
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(one_answer("/version", b'{"version":"' + b"x" * 15_000_000 + b'"}')) for _ in range(6)]
        words = [word for number, source in enumerate(sources) for word in ("--source", source, "--model", f"m{number}")]
        exporter = stack.enter_context(Exporter(binary, *words))
        until("polls", lambda: min(exporter.page().values("trtllm_exporter_polls_total")) > 20)
        return peak(exporter)


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


# Resources that peers share.


def beside_half_lines(binary, folder, filling):
    """Seconds until a line on one socket is counted, beside sixteen publishers that send half lines of 70 kB on another socket."""
    a, b = f"{folder}/a", f"{folder}/b"
    with Exporter(binary, "--source", f"socket:{a}", "--model", "a", "--source", f"socket:{b}", "--model", "b") as exporter:
        hostile = [Publisher(a) for _ in range(16)]
        for publisher in hostile:
            publisher.send(b'{"iter":1,"unknown":"' + b"x" * 70_000)
        time.sleep(1)
        honest = Publisher(b)
        begun = time.monotonic()
        honest.send(record(1, filling=filling))
        until("the line", lambda: exporter.page().value("nv_trt_llm_iterations_total", model="b") == 1, 60)
        return time.monotonic() - begun


@trial(3, "seconds until a short line is counted")
def short_line_beside_half_lines(binary, folder):
    return beside_half_lines(binary, folder, 20_000)


@trial(30, "seconds until a long line is counted")
def long_line_beside_half_lines(binary, folder):
    """It waits for the eight pairs of half lines before it, each of which ends after two seconds."""
    return beside_half_lines(binary, folder, 100_000)


@trial(0, "lines of 60 missing after 35 s")
def rotating_half_lines(binary, folder):
    """A hundred connections that each send a half line, and reconnect when they are closed. An honest one sends short lines."""
    a, b = f"{folder}/a", f"{folder}/b"
    with Exporter(binary, "--source", f"socket:{a}", "--model", "a", "--source", f"socket:{b}", "--model", "b") as exporter:
        stop = threading.Event()

        def rotate():
            while not stop.is_set():
                with contextlib.suppress(OSError), Publisher(a) as publisher:
                    publisher.send(b'{"iter":1,"unknown":"' + b"x" * 70_000)
                    publisher.stream.settimeout(40)
                    publisher.stream.recv(1)

        for _ in range(100):
            threading.Thread(target=rotate, daemon=True).start()
        time.sleep(1)
        with Publisher(b) as honest:
            honest.stream.settimeout(20)
            with contextlib.suppress(TimeoutError):
                for number in range(1, 61):
                    honest.send(record(number, filling=20_000))
                    time.sleep(0.1)
                until("the lines", lambda: exporter.page().value("nv_trt_llm_iterations_total", model="b") == 60, 15)
            counted = exporter.page().value("nv_trt_llm_iterations_total", model="b")
        stop.set()
        return 60 - counted


@trial(0, "records of an honest engine lost")
def dripping_servers(binary, folder):
    """Six servers that send 200 KiB and then a byte every half second, and an honest server whose ring keeps 1000
    records."""
    with contextlib.ExitStack() as stack:
        drips = [stack.enter_context(DrippingServer(200 << 10)) for _ in range(6)]
        honest = stack.enter_context(RingServer(rate=300, ring=1000, filling=12_000))
        words = [word for number, server in enumerate([*drips, honest]) for word in ("--source", server.source, "--model", f"m{number}")]
        exporter = stack.enter_context(Exporter(binary, *words))
        time.sleep(20)
        honest.pause()
        counted = lambda: exporter.page().value("nv_trt_llm_iterations_total", model="m6")  # noqa: E731
        with contextlib.suppress(TimeoutError):
            until("all that the ring kept", lambda: counted() >= honest.made, 15)
        return honest.made - counted()


@trial(3, "seconds until a newcomer's record is counted")
def silent_crowd(binary, folder):
    """256 publishers that send an empty line every second, and 100 more that wait to be accepted."""
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter:
        stop = threading.Event()
        crowd = [Publisher(path) for _ in range(356)]

        def send_empty():
            while not stop.wait(1):
                for publisher in crowd:
                    with contextlib.suppress(OSError):
                        publisher.stream.send(b"\n", socket.MSG_DONTWAIT)

        threading.Thread(target=send_empty, daemon=True).start()
        time.sleep(7)
        begun = time.monotonic()
        newcomer = Publisher(path)
        newcomer.send(record(1))
        until("the newcomer", lambda: exporter.page().values("nv_trt_llm_iterations_total") == [1.0], 60)
        stop.set()
        return time.monotonic() - begun


# Files.


def recording(binary, folder, change):
    """Seconds from a change of the recorder's files to the next byte that reaches the disk, or infinity."""
    path, kept = f"{folder}/socket", pathlib.Path(folder, "recording")
    with Exporter(binary, "--source", f"socket:{path}", "--record.dir", kept) as exporter, Publisher(path) as publisher:
        numbers = iter(range(1, 10**9))

        def written():
            publisher.send(record(next(numbers)))
            time.sleep(0.1)
            return any(file.stat().st_size > 0 for file in kept.glob("*.rec.zst"))

        until("the first segment", written)
        change(kept)
        begun = time.monotonic()
        try:
            until("a new segment", written, 20)
        except TimeoutError:
            return float("inf")
        failures = exporter.page().values("trtllm_exporter_recorder_errors_total")
        assert failures and failures[0] > 0, "not counted"
        assert "recording failed" in exporter.log(), "not logged"
        return time.monotonic() - begun


@trial(10, "seconds until the recording goes on")
def recorded_file_deleted(binary, folder):
    return recording(binary, folder, lambda kept: [file.unlink() for file in kept.glob("*.rec.zst")])


@trial(10, "seconds until the recording goes on")
def recorded_directory_deleted(binary, folder):
    def delete(kept):
        for file in kept.iterdir():
            file.unlink()
        kept.rmdir()

    return recording(binary, folder, delete)


# GPUs.

STANDIN = ROOT / "target/debug/libnvml_standin.so"


def gpus(binary, folder, state, seconds, *more, later=""):
    """Number of threads, peak memory, and number of log lines about Xid errors of a daemon with simulated GPUs in this state.
    `cargo build -p nvml-standin` builds the library."""
    library = simulated_gpus(STANDIN, folder, state)
    with Exporter(binary, "--source", f"socket:{folder}/socket", "--gpu.library", library, "--gpu=required", *more) as exporter:
        until("the GPUs", lambda: exporter.page().values("nv_gpu_utilization"))
        pathlib.Path(f"{library}.state").write_text(state + later)
        time.sleep(seconds)
        exporter.page()
        return exporter.status("Threads"), peak(exporter), exporter.log().count("Xid error;")


@trial(300, "threads")
def hundreds_of_gpus(binary, folder):
    return gpus(binary, folder, "gpus=600\n", 5)[0]


@trial(engine_memory(1), "MB at most")
def thousands_of_processes(binary, folder):
    processes = ",".join(f"{pid}:none" for pid in range(1, 20_000))
    return gpus(binary, folder, f"gpus=1\ngpu.0.processes={processes}\n", 5, "--gpu.processes")[1]


@trial(150, "log lines")
def endless_xids(binary, folder):
    codes = ",".join(map(str, range(1, 20_000)))
    return gpus(binary, folder, "gpus=1\n", 8, later=f"gpu.0.xids={codes}\n")[2]


# Configuration.


def refused(binary, text, folder, key, seconds=20):
    """Seconds until the daemon rejects a web configuration and names the key."""
    file = pathlib.Path(folder, "web.yml")
    file.write_text(text)
    begun = time.monotonic()
    command = [binary, f"--web.config.file={file}", "--gpu=off", "--web.listen-address=127.0.0.1:0", "--source", f"socket:{folder}/socket"]
    ended = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    assert ended.returncode == 2 and key in ended.stderr.decode(), ended
    return time.monotonic() - begun


@trial(10, "seconds to an error")
def pipe_as_key(binary, folder):
    os.mkfifo(f"{folder}/pipe")
    return refused(binary, f"tls_server_config: {{cert_file: {folder}/pipe, key_file: {folder}/pipe}}\n", folder, "cert_file")


@trial(10, "seconds to an error")
def expensive_password(binary, folder):
    return refused(binary, 'basic_auth_users: {a: "$2y$31$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"}\n', folder, "cost 31")


@trial(3, "seconds until the record after the descriptors is counted")
def lines_with_descriptors(binary, folder):
    path = f"{folder}/socket"
    with Exporter(binary, "--source", f"socket:{path}") as exporter, Publisher(path) as publisher:
        begun = time.monotonic()
        for number in range(1, 200):
            socket.send_fds(publisher.stream, [record(number)], [0] * 200)
        until("the records", lambda: exporter.page().values("nv_trt_llm_iterations_total") == [199.0], 30)
        return time.monotonic() - begun


@trial(0, "negative values")
def received_before_time(binary, folder):
    path = f"{folder}/recording.ndjson"
    header = '{"recording":{"format":1,"exporter":"0","session":1,"model":"m","version":"1","labels":[],"source":"socket","started_us":0}}'
    us = -(2**63)
    text = header + '\n{"received":{"ns":1,"us":%d}}\n' % us + '{"record":{"iter":1,"numActiveRequests":1}}\n' + '{"settled":{"at":{"ns":2,"us":%d},"from_ring":false}}\n' % us
    pathlib.Path(path).write_text(text)
    with Exporter(binary, "--source", f"replay:{path}") as exporter:
        until("the end", lambda: exporter.page().values("nv_trt_llm_iterations_total"))
        return sum(value < 0 for _, _, value in exporter.page().samples)


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
