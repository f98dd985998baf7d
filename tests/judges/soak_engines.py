"""The engines of the soak test: simulated engines that iterate at a fixed rate, restart now and then, and report what
they have sent."""

import threading
import time

from exporter import until
from free_port import free_port
from sim_serve import SimServe

# The options keep the load steady: all iterations take the same time.
ENGINE = "sim:?iter_base_ms={milliseconds}&ctx_token_us=0&gen_request_us=0&jitter=0&rate={rate}&output_mean=10&in_flight=8"


class Engine(threading.Thread):
    """An engine. With a path, it publishes to this socket and reports requests as entries or as rows. Without a path, it
    is a trtllm-serve."""

    def __init__(self, name, options, path=None, with_rows=False):
        super().__init__(daemon=True)
        self.name, self.options = name, options
        self.engine = ENGINE.format(milliseconds=1000 / options.rate, rate=options.rate / 20)
        self.port = 0 if path else free_port()
        self.source = f"socket:{path}" if path else f"trtllm-serve:http://127.0.0.1:{self.port}"
        # The ring holds more records than one poll collects on a slow machine.
        self.arguments = ["--release=1.1", "--ring=100000", f"--model={name}"] + [f"--socket={path}"] * bool(path)
        # The series that counts each finished request. Requests that are only reported as rows have no times, so another
        # series counts them.
        self.request_count = "nv_trt_llm_e2e_request_latency_seconds_count"
        if with_rows:
            self.engine += "&request_stats=1"
            self.arguments.append("--no-perf-metrics")
            self.request_count = "nv_llm_output_token_len_count"
        self.stop = threading.Event()
        # Number of processes that have ended, and the totals of all processes so far.
        self.restarts = self.sent = self.requests = 0
        self.before = (0, 0)

    def run(self):
        while True:
            with SimServe(self.engine, *self.arguments, port=self.port) as server:
                restart = time.monotonic() + self.options.restart
                while time.monotonic() < restart and not self.stop.wait(0.5):
                    self.count(server.truth())
                server.control(stop=True)
                until("the exporter to read everything", lambda: server.truth()["in_ring"] == 0 and self.is_read(server))
                self.count(server.truth())
                self.before = (self.sent, self.requests)
                if self.stop.is_set():
                    # Keep the engine running until the exporter has read everything.
                    time.sleep(2)
                    return
            # Wait. Only time ensures that the exporter reads the last lines of a connection before the first lines of the
            # next connection.
            time.sleep(1)
            self.restarts += 1

    def is_read(self, server):
        truth = server.truth()
        return truth["perf_metrics"] == truth["perf_metrics_served"]

    def count(self, truth):
        self.sent = self.before[0] + truth["iterations"]
        self.requests = self.before[1] + truth["completed_requests"]
