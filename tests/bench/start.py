"""From exec to the first complete scrape, beside the bare axum server with the same bytes, in one run and shuffled.

    usage: tests/bench/start.py [STARTS]        (40 of each; builds what it needs)

A start of the exporter is complete once the page has its engine's first poll on it; the engine is a recorded one, which has
something to say at once. Prints medians and their ratio; at most
2 is meant. Absolute figures do not carry from machine to machine.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
COMPLETE = b"nv_trt_llm_request_metrics{"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scrape(port):
    """The body, or None while nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(REQUEST)
            answer = b""
            while part := peer.recv(1 << 16):
                answer += part
    except OSError:
        return None
    return answer.partition(b"\r\n\r\n")[2]


def start(command, port):
    """Seconds to the first answer, to the first complete one, and the body."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    answered = None
    try:
        while time.perf_counter() - begun < 10:
            body = scrape(port)
            if body is not None:
                now = time.perf_counter() - begun
                answered = answered or now
                if COMPLETE in body:
                    return answered, now, body
        sys.exit(f"{command} has no complete page")
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
        answer, complete = ([statistics.median(run[at] for run in times[side]) for side in (exporter, constant)] for at in (0, 1))
        print(f"a page of {page.stat().st_size} bytes, {starts} starts of each")
        for what, (ours, floor) in (("first answer", answer), ("first complete page", complete)):
            print(f"{what:20} exporter {ours * 1e3:6.2f} ms  constant {floor * 1e3:6.2f} ms  {ours / floor:5.2f}x")
        sys.exit(0 if complete[0] <= 2 * complete[1] else 1)


main()
