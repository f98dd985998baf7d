#!/usr/bin/env python3
"""CPU time of the exporter while its engines are idle: 1 and 64 engines on one ingest socket, and 1 and 64 over HTTP.

    benches/idle.py [--seconds 30] [--binary target/release/trtllm-exporter]

Nothing is scraped during the measurement.
"""

import argparse
import json
import pathlib
import socket
import sys
import tempfile
import time

from intake import Exporter, record, trtllm_serve


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
    options = "?prometheus_metrics=false&perf_metrics=false"
    entries = [f"- source: trtllm-serve:http://127.0.0.1:{server.server_port}{options}\n  model: engine-{server.server_port}\n"
               for server in servers]
    config = folder / "engines.yaml"
    config.write_text("engines:\n" + "".join(entries))
    return Exporter(binary, f"--config.file={config}"), servers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--binary", default="target/release/trtllm-exporter")
    options = parser.parse_args()
    for way in (on_a_socket, over_http):
        for count in (1, 64):
            with tempfile.TemporaryDirectory() as folder:
                daemon, kept = way(options.binary, pathlib.Path(folder), count)
                while len(daemon.page().values("nv_trt_llm_iterations_total")) < count:
                    time.sleep(0.1)
                time.sleep(2)
                before = daemon.cpu_seconds()
                time.sleep(options.seconds)
                used = (daemon.cpu_seconds() - before) * 1000 / options.seconds
                daemon.stop()
                del kept
                name = way.__name__.replace("_", " ")
                print(f"{count} idle engine{'s' * (count > 1)} {name}: {used:.2f} ms CPU per second, "
                      f"{used / count:.2f} ms per engine", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
