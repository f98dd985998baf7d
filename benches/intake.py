#!/usr/bin/env python3
"""CPU time of the exporter while engines send many records, through the ingest socket and over HTTP.

benches/intake.py [--records-per-second 20000] [--seconds 20] [--binary target/release/trtllm-exporter]

All records are created before the measurement. Each record must be counted exactly once; otherwise the exit code is 1.
"""

import contextlib
import json
import pathlib
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/judges"))
from exporter import ROOT, Answers, Exporter, options, serve, until  # noqa: E402

FIXTURE = json.loads((ROOT / "tests/fixtures/metrics_trt_v1.0.0rc4.json").read_text())["payload"][0]


def record(number):
    """A record of a C++ executor, about 1 KB."""
    return FIXTURE | {"iter": number}


def iterations(daemon):
    """The numbers of counted and of lost records."""
    page = daemon.page()
    return int(page.value("nv_trt_llm_iterations_total")), int(page.value("nv_trt_llm_iterations_lost_total"))


def through_socket(binary, folder, batches, interval):
    path = folder / "ingest.sock"
    daemon = Exporter(binary, f"--source=socket:{path}")
    publisher = socket.socket(socket.AF_UNIX)
    publisher.connect(str(path))
    lines = [b"".join(json.dumps(record).encode() + b"\n" for record in batch) for batch in batches]
    begun, cpu = time.monotonic(), daemon.cpu_seconds()
    for index, batch in enumerate(lines):
        publisher.sendall(batch)
        time.sleep(max(0, begun + (index + 1) * interval - time.monotonic()))
    return daemon, begun, cpu


def trtllm_serve(answer):
    """A server on its own port. It answers each request with the JSON text `answer(path, host)`."""

    class Engine(Answers):
        def do_GET(self):
            self.answer(answer(self.path, self.headers["Host"]).encode())

    return serve(Engine)


def over_http(binary, _folder, batches, interval):
    answers = iter([json.dumps(batch) for batch in batches])
    done = threading.Event()

    def answer(path, _host):
        batch = next(answers, None) if path == "/metrics" else "[]"
        if batch is None:
            done.set()
        return batch or "[]"

    source = f"trtllm-serve:http://127.0.0.1:{trtllm_serve(answer).server_port}?prometheus_metrics=false"
    begun = time.monotonic()
    daemon = Exporter(binary, f"--source={source}")
    done.wait()
    return daemon, begun, 0.0


def main():
    parser = options(__doc__)
    parser.add_argument("--records-per-second", type=int, default=20000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--binary", default="target/release/trtllm-exporter")
    args = parser.parse_args()
    # Each poll gets one batch.
    interval = 0.1
    size = int(args.records_per_second * interval)
    count = int(args.seconds / interval)
    batches = [[record(1 + batch * size + index) for index in range(size)] for batch in range(count)]
    wrong = False
    for way in (through_socket, over_http):
        with tempfile.TemporaryDirectory() as folder:
            daemon, begun, cpu = way(args.binary, pathlib.Path(folder), batches, interval)
            expected = size * count
            with contextlib.suppress(TimeoutError):
                until("all records", lambda: iterations(daemon)[0] >= expected, 10)
            seconds = time.monotonic() - begun
            used, (counted, lost), peak = daemon.cpu_seconds() - cpu, iterations(daemon), daemon.status("VmHWM") / 1000
            daemon.stop()
            wrong |= counted != expected or lost != 0
            name = way.__name__.replace("_", " ")
            print(f"{name}: {counted} of {expected} records, {lost} lost, {expected / seconds:.0f} per second, "
                  f"{used / seconds:.3f} of a core, {used / expected * 1e6:.2f} us per record, at most {peak:.1f} MB")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
