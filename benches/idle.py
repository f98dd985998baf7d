#!/usr/bin/env python3
"""CPU time of the exporter while its engines are idle: 1 and 64 engines on one ingest socket, and 1 and 64 over HTTP.

    benches/idle.py [--seconds 30] [--binary target/release/trtllm-exporter]

Nothing is scraped during the measurement.
"""

import json
import pathlib
import socket
import sys
import tempfile
import time

from intake import record, trtllm_serve  # first: it finds the folder of the judges
from exporter import Exporter, configured, options, until


def on_a_socket(binary, folder, count):
    path = folder / "ingest.sock"
    daemon = Exporter(binary, f"--source=socket:{path}")
    publishers = []
    for engine in range(count):
        publisher = socket.socket(socket.AF_UNIX)
        publisher.connect(str(path))
        hello = {"hello": {"model": f"engine-{engine}", "pid": engine + 1}}
        lines = [hello, record(1), dict(record(2), numActiveRequests=0, numQueuedRequests=0)]
        publisher.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        publishers.append(publisher)
    return daemon, publishers


def over_http(binary, folder, count):
    sent = set()

    def answer(path, host):
        if path != "/metrics" or host in sent:
            return "[]"
        sent.add(host)
        return json.dumps([record(1), dict(record(2), numActiveRequests=0, numQueuedRequests=0)])

    servers = [trtllm_serve(answer) for _ in range(count)]
    settings = "?prometheus_metrics=false&perf_metrics=false"
    engines = [{"source": f"trtllm-serve:http://127.0.0.1:{server.server_port}{settings}", "model": f"engine-{server.server_port}"} for server in servers]
    return Exporter(binary, configured(folder, engines)), servers


def main():
    parser = options(__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--binary", default="target/release/trtllm-exporter")
    args = parser.parse_args()
    for way in (on_a_socket, over_http):
        for count in (1, 64):
            with tempfile.TemporaryDirectory() as folder:
                daemon, kept = way(args.binary, pathlib.Path(folder), count)
                until("all engines", lambda: len(daemon.page().values("nv_trt_llm_iterations_total")) == count)
                time.sleep(2)
                before = daemon.cpu_seconds()
                time.sleep(args.seconds)
                used = (daemon.cpu_seconds() - before) * 1000 / args.seconds
                daemon.stop()
                del kept
                name = way.__name__.replace("_", " ")
                print(f"{count} idle engine{'s' * (count > 1)} {name}: {used:.2f} ms CPU per second, "
                      f"{used / count:.2f} ms per engine", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
