"""A look-alike of trtllm-serve with several frontends (--num_serve_frontends): processes that share one port and one engine.

usage: frontends.py MODE        prints the port

MODE is one of
  own        each frontend has a page of its own, and takes records from the engine's queue when one of its requests ends
  forwarded  as own, but each GET /metrics is answered by the first frontend, which alone takes records (TensorRT-LLM #19394)
  multiproc  as forwarded, with PROMETHEUS_MULTIPROC_DIR: each page has the sums of all frontends

The engine has no load until GET /test/start, and none after GET /test/stop, which answers with what was really done.
GET /test/lose ends the first frontend, the launcher.
"""

import http.server
import json
import multiprocessing
import os
import queue
import socket
import sys
import threading
import time
import urllib.request

FRONTENDS = 4
RING = 1000
TOKENS = 100
MODES = ("own", "forwarded", "multiproc")


class Engine:
    """What all processes share."""

    def __init__(self):
        self.records = multiprocessing.Queue(RING)
        self.made = multiprocessing.Value("q", 0)
        # Requests that each frontend has finished. They differ, as those of frontends that have run for a while.
        self.finished = multiprocessing.Array("q", [6, 7, 8, 10])
        self.runs = multiprocessing.Value("b", 0)
        self.lost = multiprocessing.Value("b", 0)

    def iterate(self):
        while True:
            time.sleep(0.02)
            if self.runs.value:
                with self.made.get_lock():
                    self.made.value += 1
                    self.records.put(record(self.made.value))

    def take(self):
        taken = []
        while True:
            try:
                # The queue's own thread needs a moment to pass on what was put.
                taken.append(self.records.get(timeout=0.01))
            except queue.Empty:
                return taken


def record(number):
    return {
        "iter": number,
        "statsSequence": number,
        "iterLatencyMS": 20.0,
        "numActiveRequests": 2,
        "maxNumActiveRequests": 8,
        "numQueuedRequests": 0,
        "numCompletedRequests": 0,
        "numNewActiveRequests": 0,
        "inflightBatchingStats": {"numScheduledRequests": 2, "numGenRequests": 2, "numContextRequests": 0},
    }


def page(finished):
    labels = 'engine_type="pytorch",model_name="m"'
    lines = [
        f'trtllm_request_success_total{{finished_reason="stop",{labels}}} {finished}.0',
        f"trtllm_prompt_tokens_total{{{labels}}} {finished * TOKENS}.0",
    ]
    for bound in ("0.1", "0.5", "+Inf"):
        lines.append(f'trtllm_e2e_request_latency_seconds_bucket{{le="{bound}",{labels}}} {finished}.0')
    lines.append(f"trtllm_e2e_request_latency_seconds_count{{{labels}}} {finished}.0")
    lines.append(f"trtllm_e2e_request_latency_seconds_sum{{{labels}}} {finished * 0.05}")
    return "".join(line + "\n" for line in lines)


class Frontend(http.server.BaseHTTPRequestHandler):
    """Answers one connection. Set before the fork: mode, number, engine, launcher, buffer and lock."""

    protocol_version = "HTTP/1.1"
    buffer = []
    lock = threading.Lock()

    def do_GET(self):
        answers = {
            "/health": lambda: "",
            "/version": lambda: json.dumps({"version": "1.3.0"}),
            "/metrics": self.records,
            "/prometheus/metrics": self.page,
            "/test/start": self.start,
            "/test/stop": self.stop,
            "/test/lose": self.lose,
        }
        answer = answers.get(self.path)
        try:
            status, body = (200, answer()) if answer else (404, "")
        except OSError as error:
            status = 503
            body = json.dumps({"error": f"The launcher frontend that serves {self.path} is unavailable: {error!r}"})
        body = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def records(self):
        if self.mode != "own" and self.number != 0:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.launcher}/metrics", timeout=5) as answer:
                return answer.read().decode()
        with self.lock:
            taken, self.buffer[:] = self.buffer + self.engine.take(), []
        return json.dumps(taken)

    def page(self):
        finished = self.engine.finished
        return page(sum(finished) if self.mode == "multiproc" else finished[self.number])

    def start(self):
        self.engine.runs.value = 1
        return ""

    def stop(self):
        self.engine.runs.value = 0
        time.sleep(0.3)
        return json.dumps({"records": self.engine.made.value, "finished": sum(self.engine.finished)})

    def lose(self):
        self.engine.lost.value = 1
        return ""

    def log_message(self, *arguments):
        pass


def finish_requests():
    """Each finished request wakes the collector of its frontend, which takes the records. A frontend ends with its parent."""
    cls, engine, parent = Frontend, Frontend.engine, os.getppid()
    while True:
        if os.getppid() != parent:
            os._exit(0)
        time.sleep(0.1 + 0.05 * cls.number)
        if engine.lost.value and cls.number == 0:
            os._exit(0)
        if not engine.runs.value:
            continue
        with engine.finished.get_lock():
            engine.finished[cls.number] += 1
        if cls.mode == "own":
            with cls.lock:
                cls.buffer.extend(engine.take())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def serve(number, mode, engine, port, launcher, with_parent):
    Frontend.number, Frontend.mode, Frontend.engine = number, mode, engine
    Frontend.launcher = launcher
    threading.Thread(target=finish_requests, daemon=True).start()
    if number == 0:
        threading.Thread(target=Server(("127.0.0.1", launcher), Frontend).serve_forever, daemon=True).start()
    server = Server(("127.0.0.1", port), Frontend)
    with_parent.wait()
    server.serve_forever()


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in MODES:
        sys.exit(__doc__)
    multiprocessing.set_start_method("fork")
    engine, bound = Engine(), multiprocessing.Barrier(FRONTENDS + 1)
    with socket.socket() as shared, socket.socket() as own:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(("127.0.0.1", 0))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.bind(("127.0.0.1", 0))
        port, launcher = shared.getsockname()[1], own.getsockname()[1]
        for number in range(FRONTENDS):
            arguments = (number, sys.argv[1], engine, port, launcher, bound)
            multiprocessing.Process(target=serve, args=arguments, daemon=True).start()
        bound.wait()
    threading.Thread(target=engine.iterate, daemon=True).start()
    print(port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
