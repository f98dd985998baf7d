#!/usr/bin/env python3
"""Runs hostile and broken peers against the daemon, and prints the cost of each: python3 tests/judges/hostile.py [--seconds N]

Each trial starts one daemon and measures one number, such as memory or seconds. If the number is above the limit, the trial fails,
and the exit code is 1. docs/ARCHITECTURE.md, "What peers can cost", has the rules. Time limits are generous, because other
processes may use the machine. tests/it/memory.rs, fairness.rs and file_faults.rs have the peers of one kind; these trials have many
kinds at once, and those that are too large for a test.
"""

import contextlib
import socket
import sys
import tempfile
import threading
import time

from exporter import PROTOBUF, ROOT, Answers, Exporter, fetch, options, serve, simulated_gpus, until

MB = 1_000_000
STANDIN = ROOT / "target/debug/libnvml_standin.so"
PAGES = [
    "/metrics",
    "/metrics?collect[]=triton&collect[]=engine",
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
    {"Accept": PROTOBUF},
]


def engine_memory(engines):
    """The memory limit in MB: 48 MB, and 0.6 MB for each engine."""
    return 48 + 0.6 * engines


def record(number):
    return b'{"iter":%d,"iterLatencyMS":5.5,"numActiveRequests":2,"numQueuedRequests":0,"numCompletedRequests":1}\n' % number


def publisher(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    return stream


def named_engines(path, number):
    publishers = []
    for engine in range(number):
        publishers.append(publisher(path))
        publishers[-1].sendall(b'{"hello":{"model":"engine-%d"}}\n' % engine + b"".join(record(n) for n in range(150)))
    return publishers


def slow_reader(address):
    """Opens a connection that requests a page and reads nothing."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = address.rsplit(":", 1)
    stream.connect((host, int(port)))
    stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return stream


def read_all_forms(exporter, end):
    while time.monotonic() < end:
        for page in PAGES:
            for form in FORMS:
                with contextlib.suppress(OSError):
                    fetch(exporter.url + page, headers=form)


def dripping_server(size):
    """A server that announces no length, sends `size` bytes of records, and then single bytes with pauses between them. Returns its source."""
    start = b"[" + b",".join([record(7).strip()] * (size // 100))

    class Handler(Answers):
        protocol_version = "HTTP/1.0"

        def do_GET(self):
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.end_headers()
                if self.path != "/metrics":
                    return self.wfile.write(b"[]")
                self.wfile.write(start)
                while True:
                    time.sleep(0.5)
                    self.wfile.write(b" ")

    return f"trtllm-serve:http://127.0.0.1:{serve(Handler).server_port}"


def everything_at_once(args, folder):
    """48 named engines, readers of every page in every format, slow readers, half lines, floods, a server that sends 15 MiB and then single
    bytes, and a recorder, for --seconds. Then a quiet minute follows."""
    a, b = f"{folder}/a", f"{folder}/b"
    with contextlib.ExitStack() as stack:
        words = ["--source", dripping_server(15 << 20), "--record.dir", f"{folder}/kept", "--source", f"socket:{a}", "--source", f"socket:{b}"]
        exporter = stack.enter_context(Exporter(args.binary, *words))
        publishers = named_engines(b, 48)
        end = time.monotonic() + args.seconds

        def repeat(attempt):
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    attempt()

        def half_line():
            with publisher(a) as stream:
                stream.sendall(b'{"iter":1,"unknown":"' + b"x" * 70_000)
                stream.settimeout(5)
                stream.recv(1)

        def flood():
            with publisher(a) as stream:
                stream.settimeout(5)
                stream.sendall(b'{"iter":1,"requestStats":[' + b"{}," * 20_000 + b"{}]}\n")

        def read_little():
            with slow_reader(exporter.address):
                time.sleep(3)

        attempts = [half_line] * 30 + [flood] * 8 + [read_little] * 60
        threads = [threading.Thread(target=repeat, args=(attempt,)) for attempt in attempts]
        threads += [threading.Thread(target=read_all_forms, args=(exporter, end)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in publishers:
            stream.close()
        time.sleep(60)
        print(f"     everything_at_once: {exporter.status('VmRSS') * 1024 / MB:.1f} MB a minute later", flush=True)
        # The peak includes the quiet minute, because the dripping server is still running.
        return exporter.status("VmHWM") * 1024 / MB


@contextlib.contextmanager
def gpus(binary, folder, state, *more):
    """A daemon that has monitored simulated GPUs in this state for five seconds. `cargo build -p nvml-standin` builds the library."""
    library = simulated_gpus(STANDIN, folder, state)
    with Exporter(binary, "--source", f"socket:{folder}/socket", "--gpu.library", library, "--gpu=required", *more) as exporter:
        until("the GPUs", lambda: exporter.page().values("nv_gpu_utilization"))
        time.sleep(5)
        exporter.page()
        yield exporter


def hundreds_of_gpus(args, folder):
    with gpus(args.binary, folder, "gpus=600\n") as exporter:
        return exporter.status("Threads")


def thousands_of_processes(args, folder):
    processes = ",".join(f"{pid}:none" for pid in range(1, 20_000))
    with gpus(args.binary, folder, f"gpus=1\ngpu.0.processes={processes}\n", "--gpu.processes") as exporter:
        return exporter.status("VmHWM") * 1024 / MB


TRIALS = {  # limit and unit of the number that a trial returns
    everything_at_once: (engine_memory(50), "MB at most"),
    hundreds_of_gpus: (300, "threads"),
    thousands_of_processes: (engine_memory(1), "MB at most"),
}


def main():
    parser = options(__doc__)
    parser.add_argument("--binary", default=str(ROOT / "target/release/trtllm-exporter"))
    parser.add_argument("--seconds", type=int, default=30, help="how long everything_at_once lasts (%(default)s)")
    args = parser.parse_args()
    failed = []
    for trial, (limit, unit) in TRIALS.items():
        name = trial.__name__
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            try:
                number = trial(args, folder)
                ok, shown = number <= limit, f"{number:10.1f}"
            except Exception as error:  # noqa: BLE001 after a trial that fails, the other trials must still run
                ok, shown = False, f"{type(error).__name__}: {str(error)[:200]}"
        failed += [] if ok else [name]
        print(f"{'ok  ' if ok else 'FAIL'} {name:28} {shown} {unit}, limit {limit:g}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
