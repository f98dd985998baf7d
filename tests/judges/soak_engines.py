"""The engines of the soak: each sends records at a fixed rate, restarts now and then, and counts what it sent."""

import http.server
import json
import socket
import threading
import time

# The numbers of a C++ executor.
RECORD = """{
  "iter": 0, "iterLatencyMS": 12.5, "numActiveRequests": 3, "numQueuedRequests": 0, "numCompletedRequests": 0,
  "numNewActiveRequests": 0, "maxNumActiveRequests": 64, "gpuMemUsage": 40560164864, "cpuMemUsage": 0,
  "pinnedMemUsage": 0,
  "kvCacheStats": {"maxNumBlocks": 1000, "freeNumBlocks": 900, "usedNumBlocks": 100, "tokensPerBlock": 32,
    "allocTotalBlocks": 30, "allocNewBlocks": 28, "reusedBlocks": 5, "missedBlocks": 23, "cacheHitRate": 0.18},
  "inflightBatchingStats": {"numScheduledRequests": 3, "numContextRequests": 1, "numGenRequests": 2,
    "numPausedRequests": 0, "numCtxTokens": 128, "microBatchId": 0, "avgNumDecodedTokensPerIter": 1.0}
}"""
HEAD, TAIL = json.dumps(json.loads(RECORD)).split('"iter": 0', 1)
# A finished request of the executor's own statistics: its times in seconds, and its place in the answer of /perf_metrics.
TIMES = '{"arrival_time":1000.0,"first_scheduled_time":1000.01,"first_token_time":1000.1,"last_token_time":1001.0}'
ENTRY = '{"request_id":%d,"perf_metrics":{"timing_metrics":' + TIMES + "}}"
# The rows of a request that begins, and of its predecessor, which ends.
ROW = '{"id":%d,"stage":"%s","contextPrefillPosition":96,"numGeneratedTokens":%d,"scheduled":true,"paused":false}'
# Iterations of one request.
REQUEST = 10
# Records of one answer or write. More than a poll of a slow machine collects.
MOST = 20_000


class Engine(threading.Thread):
    # The series that counts each finished request.
    request_count = "nv_trt_llm_e2e_request_latency_seconds_count"

    def __init__(self, name, options):
        super().__init__(daemon=True)
        self.name, self.options = name, options
        self.stop = threading.Event()
        self.sent = self.restarts = self.iteration = 0
        # Finished requests: all, and those whose row or entry has been sent.
        self.finished = self.requests = 0
        self.begin = self.started = time.monotonic()

    def due(self):
        """The records that are due now."""
        due = int((time.monotonic() - self.begin) * self.options.rate) - self.sent
        records = []
        for _ in range(min(due, MOST)):
            self.iteration += 1
            records.append(f'{HEAD}"iter": {self.iteration}{TAIL}')
        return records

    def finish_requests(self):
        """The entries of the requests that have finished since the last call."""
        first, self.finished = self.finished, (self.sent + REQUEST - 1) // REQUEST
        return [ENTRY % (number + 1) for number in range(first, self.finished)]

    def restart_is_due(self):
        # Only an engine that has sent records can be seen to restart.
        return self.iteration > 0 and time.monotonic() - self.started > self.options.restart

    def restart(self):
        self.restarts, self.iteration, self.started = self.restarts + 1, 0, time.monotonic()


class SocketEngine(Engine):
    """A publisher that connects again, with another process id, when it restarts."""

    def __init__(self, name, path, options, with_rows):
        super().__init__(name, options)
        self.with_rows = with_rows
        if with_rows:
            # A row has no times.
            self.request_count = "nv_llm_output_token_len_count"
        self.path, self.source = str(path), f"socket:{path}"

    def run(self):
        self.begin = time.monotonic()
        while not self.stop.is_set():
            stream = socket.socket(socket.AF_UNIX)
            stream.connect(self.path)
            stream.sendall(b'{"hello": {"model": "m", "pid": %d}}\n' % (self.restarts + 1))
            self.publish(stream)
            stream.close()
            if not self.stop.is_set():
                # The exporter reads the last lines of a connection before the first ones of the next only by time.
                time.sleep(1)
                self.restart()

    def publish(self, stream):
        while not self.stop.is_set() and not self.restart_is_due():
            first, records = self.iteration + 1, self.due()
            if records:
                lines = self.with_request_rows(first, records) if self.with_rows else records
                stream.sendall("\n".join([*lines, ""]).encode())
                self.sent += len(records)
                if not self.with_rows:
                    entries = self.finish_requests()
                    stream.sendall("".join(entry + "\n" for entry in entries).encode())
                    self.requests += len(entries)
            time.sleep(0.02)

    def with_request_rows(self, first, records):
        """The records of the iterations from `first` on. One request follows the other, each of ten iterations."""
        lines = []
        for iteration, record in enumerate(records, first):
            lines.append(record)
            number, place = divmod(iteration, REQUEST)
            if place == 0:
                rows = [ROW % (number + 1, "GENERATION_IN_PROGRESS", 1)]
                if number > 1:
                    rows.append(ROW % (number, "GENERATION_COMPLETE", REQUEST))
                    self.requests += 1
                lines.append('{"iter":%d,"requestStats":[%s]}' % (iteration, ",".join(rows)))
        return lines


class HttpEngine(Engine):
    """A trtllm-serve stand-in. When it restarts, its server is away for a second."""

    def __init__(self, name, options):
        super().__init__(name, options)
        self.server = self.serve(0)
        self.port = self.server.server_address[1]
        self.source = f"trtllm-serve:http://127.0.0.1:{self.port}"

    def serve(self, port):
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                known = {"/metrics": engine.answer, "/perf_metrics": engine.answer_requests, "/version": lambda: '{"version": "1.0"}'}
                body = known.get(self.path, lambda: "")().encode()
                self.send_response(200 if self.path in known else 404)
                self.send_header("content-length", str(len(body)))
                if engine.stopping:
                    self.send_header("connection", "close")
                    self.close_connection = True
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.stopping = False
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)

    def answer(self):
        if self.stopping or self.stop.is_set():
            return "[]"
        records = self.due()
        self.sent += len(records)
        return "[" + ",".join(records) + "]"

    def answer_requests(self):
        if self.stopping:
            return "[]"
        entries = self.finish_requests()
        self.requests += len(entries)
        return "[" + ",".join(entries) + "]"

    def run(self):
        self.begin = self.started = time.monotonic()
        while not self.stop.is_set():
            serving = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
            serving.start()
            while not self.stop.is_set() and not self.restart_is_due():
                time.sleep(0.05)
            if self.stop.is_set():
                # Keeps answering, so that the exporter reads everything.
                return
            # Ends the connection with its next answer.
            self.stopping = True
            time.sleep(0.5)
            self.server.shutdown()
            self.server.server_close()
            time.sleep(1)
            self.server = self.serve(self.port)
            self.restart()
