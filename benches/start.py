"""Measures the time from exec to the first complete page, compared with the constant axum server that serves the same bytes.

usage: benches/start.py [STARTS]        (40 of each; builds both programs)

The page is complete once it contains the engine's first poll. The engine is a recording, so it has records immediately. The
starts of both servers are in random order. Prints medians and their ratio; exit code 1 if the ratio is above 2.
"""
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/judges"))
from free_port import free_port  # noqa: E402

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
COMPLETE = b"nv_trt_llm_request_metrics{"


def scrape(port):
    """The body, or None if the port refuses the connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(REQUEST)
            response = b""
            while part := peer.recv(1 << 16):
                response += part
    except OSError:
        return None
    return response.partition(b"\r\n\r\n")[2]


def start(command, port):
    """Seconds to the first response, seconds to the first complete page, and that page."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    responded = None
    try:
        while time.perf_counter() - begun < 10:
            body = scrape(port)
            if body is not None:
                now = time.perf_counter() - begun
                responded = responded or now
                if COMPLETE in body:
                    return responded, now, body
        sys.exit(f"start.py: no complete page within 10 s: {command}")
    finally:
        process.kill()
        process.wait()


def main():
    starts = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    build = ["cargo", "build", "--release", "--quiet", "--bin", "trtllm-exporter", "--example", "constant"]
    subprocess.run(build, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as work:
        page = pathlib.Path(work) / "page"

        def exporter(port):
            source = f"replay:{ROOT}/tests/fixtures/session.ndjson?speed=max"
            return [TARGET / "trtllm-exporter", "--source", source, "--gpu", "off", "--web.listen-address", f"127.0.0.1:{port}"]

        def constant(port):
            return [TARGET / "examples/constant", f"127.0.0.1:{port}", page, "text/plain; version=0.0.4; charset=utf-8"]

        port = free_port()
        page.write_bytes(start(exporter(port), port)[2])
        order = [exporter, constant] * starts
        random.Random(1).shuffle(order)
        times = {exporter: [], constant: []}
        for side in order:
            port = free_port()
            times[side].append(start(side(port), port)[:2])
        response, complete = ([statistics.median(run[at] for run in times[side]) for side in (exporter, constant)] for at in (0, 1))
        print(f"a page of {page.stat().st_size} bytes, {starts} starts of each")
        for what, (ours, constant_server) in (("first response", response), ("first complete page", complete)):
            print(f"{what:20} exporter {ours * 1e3:6.2f} ms  constant {constant_server * 1e3:6.2f} ms  {ours / constant_server:5.2f}x")
        sys.exit(0 if complete[0] <= 2 * complete[1] else 1)


main()
