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
# Records of one answer or write. More than a poll of a slow machine collects.
MOST = 20_000


class Engine(threading.Thread):
    def __init__(self, name, options):
        super().__init__(daemon=True)
        self.name, self.options = name, options
        self.stop = threading.Event()
        self.sent = self.restarts = self.iteration = 0
        self.begin = self.started = time.monotonic()

    def due(self):
        """The records that are due now."""
        due = int((time.monotonic() - self.begin) * self.options.rate) - self.sent
        records = []
        for _ in range(min(due, MOST)):
            self.iteration += 1
            records.append(f'{HEAD}"iter": {self.iteration}{TAIL}')
        return records

    def restart_is_due(self):
        # Only an engine that has sent records can be seen to restart.
        return self.iteration > 0 and time.monotonic() - self.started > self.options.restart

    def restart(self):
        self.restarts, self.iteration, self.started = self.restarts + 1, 0, time.monotonic()


class SocketEngine(Engine):
    """A publisher that connects again, with another process id, when it restarts."""

    def __init__(self, name, path, options):
        super().__init__(name, options)
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
            records = self.due()
            if records:
                stream.sendall("\n".join([*records, ""]).encode())
                self.sent += len(records)
            time.sleep(0.02)


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
                known = {"/metrics": engine.answer, "/version": lambda: '{"version": "1.0"}'}
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
