#!/usr/bin/env python3
"""A simulated trtllm-serve for tests of monitoring clients. It also reports what its engine really did.

It loads no model. A small simulation of in-flight batching writes iteration records into a ring, and GET /metrics
drains the ring as trtllm-serve does, with the quirks of the chosen backend. It needs only Python's standard library.

  trtllm_serve_lookalike.py --port 0 --rate 50                   prints: listening on 127.0.0.1:PORT
  GET  /metrics /perf_metrics /version /health                    like trtllm-serve; the first two drain
  POST /kv_cache_events                                           drains; [] without --kv-events
  GET  /truth                                                     what the engine really did (trtllm-serve does not have it)
  POST /control  {"stop": true} | {"drain": true} | {"mode": M}   stop now | finish all requests, then idle | make /metrics misbehave
"""
import argparse
import json
import math
import random
import socket
import sys
import threading
import time
from collections import deque, namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

MODES = ("ok", "not-json", "truncated", "huge", "hang", "500", "slow-body")
MAX_ACTIVE, MAX_SCHEDULED, MAX_CONTEXTS = 24, 16, 2  # limits of active requests, of running ones, of starts per iteration
KV_BLOCKS, TOKENS_PER_BLOCK = 2048, 32
MEAN_DECODE_ITERATIONS = 48

# TensorRT-LLM 1.x uses nlohmann::json, which sorts the keys alphabetically.
RECORD = (
    '{"cpuMemUsage":%(cpu)d,"gpuMemUsage":%(gpu)d,"inflightBatchingStats":{"avgNumDecodedTokensPerIter":%%s,'
    '"microBatchId":0,"numContextRequests":%%d,"numCtxTokens":%%d,"numGenRequests":%%d,"numPausedRequests":0,'
    '"numScheduledRequests":%%d},"iter":%%d,"iterLatencyMS":%%.6f,"kvCacheStats":{"allocNewBlocks":%%d,'
    '"allocTotalBlocks":%%d,"cacheHitRate":%%.6f,"freeNumBlocks":%%d,"maxNumBlocks":%(blocks)d,"missedBlocks":%%d,'
    '"reusedBlocks":%%d,"tokensPerBlock":%(per_block)d,"usedNumBlocks":%%d},"maxBatchSizeRuntime":%(batch)d,'
    '"maxBatchSizeStatic":%(batch)d,"maxBatchSizeTunerRecommended":%(batch)d,"maxNumActiveRequests":%(active)d,'
    '"maxNumTokensRuntime":%(tokens)d,"maxNumTokensStatic":%(tokens)d,"maxNumTokensTunerRecommended":%(tokens)d,'
    '"newActiveRequestsQueueLatencyMS":%%.9f,"numActiveRequests":%%d,"numCompletedRequests":%%d,'
    '"numNewActiveRequests":%%d,"numQueuedRequests":%%d,"pinnedMemUsage":%(pinned)d,"specDecodingStats":null,'
    '"staticBatchingStats":%(static)s,"timestamp":"%%s"%(frame)s}'
)
COMMON = {"blocks": KV_BLOCKS, "per_block": TOKENS_PER_BLOCK, "active": 2048}
# The PyTorch backend does not set the limits, reports the memory of the whole GPU, and sends zeros for static batching.
PYTORCH = RECORD % {
    **COMMON, "cpu": 0, "gpu": 40560164864, "pinned": 0, "batch": 0, "tokens": 0,
    "frame": ',"statsSequence":%d,"statsDroppedFrames":%d',
    "static": '{"emptyGenSlots":0,"numContextRequests":0,"numCtxTokens":0,"numGenTokens":0,"numScheduledRequests":0}',
}
TENSORRT = RECORD % {
    **COMMON, "cpu": 68172, "gpu": 36100332423, "pinned": 2952841216, "batch": 256, "tokens": 8192, "static": "null", "frame": "",
}


# The real numbers of a record, for /truth. A flush record repeats an old number of new requests; its `started` is 0.
Entry = namedtuple("Entry", "iter flush repeats_flush started completed context_tokens generation_tokens")


class KvEvents:
    """The events of the KV cache. Finished requests store blocks, some blocks are offloaded, the oldest are removed."""

    def __init__(self, enabled):
        self.enabled, self.waiting, self.next_id, self.next_hash, self.blocks = enabled, [], 0, 1 << 63, {}
        self.truth = dict.fromkeys("events stored removed_gpu removed_host updated_host".split(), 0)
        self.emit(type="created", num_blocks_per_cache_level=[KV_BLOCKS, KV_BLOCKS // 2])

    def emit(self, **data):
        self.waiting += [{"event_id": self.next_id, "data": data, "window_size": 4096}] * self.enabled
        self.next_id = self.truth["events"] = self.next_id + self.enabled

    def finish(self, count):
        new, self.next_hash = range(self.next_hash, self.next_hash + count), self.next_hash + count
        if not (self.enabled and new): return
        block = {"type": "stored_block", "tokens": [{"type": "unique_token", "token_id": 1}], "cache_level": 0, "priority": 35}
        self.emit(type="stored", parent_hash=None, blocks=[{**block, "block_hash": number} for number in new])
        self.truth["stored"] += count
        self.blocks.update(dict.fromkeys(new, "gpu"))
        if count % 3 == 0:
            self.emit(type="updated", block_hash=new[0], cache_level={"type": "event_diff", "new_value": 1, "old_value": 0})
            self.truth["updated_host"] += 1
            self.blocks[new[0]] = "host"
        if removed := list(self.blocks)[:-200]:
            self.emit(type="removed", block_hashes=removed)
        for number in removed:
            self.truth["removed_" + self.blocks.pop(number)] += 1


class Engine:
    """The simulated engine. It does nothing between calls; `advance` runs all iterations that are due."""

    def __init__(self, args):
        self.tensorrt = args.backend == "tensorrt"
        self.period = 1.0 / args.rate
        self.idle_every, self.idle_for = args.idle_every, args.idle_for
        self.random = random.Random(args.seed)
        self.lock = threading.Lock()
        self.counted, self.uncounted = threading.Condition(self.lock), 0  # responses that are drained but not counted yet
        self.ring = deque()
        self.ring_size = args.ring
        self.finished = deque()  # per-request entries of /perf_metrics
        self.kv_events = KvEvents(args.kv_events)
        self.due = time.monotonic()
        self.wall = time.time() - self.due
        self.stopped = self.draining = False
        self.iter = args.first_iter  # the number of the next iteration
        self.next_id = 1
        self.queued = deque()  # arrival times of the requests in the executor's queue
        self.pending = deque()  # (id, arrival) of the active requests that are not scheduled yet
        self.running = 0  # number of requests in the generation phase
        self.ends = {}  # iter -> requests that finish in this iteration
        self.arrivals_due = 0.0
        self.quiet_at = self.iter + self.idle_every if self.idle_every else math.inf
        self.just_finished = self.stale_new = 0  # numbers of the previous iteration
        self.repeat_completed = None  # set between a flush record and the record that repeats its number
        self.since_idle, self.idle_began = 0, self.due
        self.queue_seconds = 0.0  # of all requests since the start, as PyTorch reports it
        self.frames = 0
        self.alloc_total = self.alloc_new = self.reused = self.missed = self.used = 0
        self.truth = dict.fromkeys(
            ("iterations records lost lost_iterations completed_requests started_requests context_tokens "
             "generation_tokens served cut cut_iterations flush_records perf_metrics perf_metrics_lost perf_metrics_served").split(), 0)
        self.truth.update(queue_time_ms=0.0, latencies=0, latency_ms=0.0)
        totals = dict.fromkeys("records iterations completed_requests started_requests context_tokens generation_tokens".split(), 0)
        self.handed_out, self.salvageable = totals, dict(totals)  # in complete responses | complete records of aborted responses
        self.served_flush = self.first_blocks = None

    def advance(self):
        """Run all iterations that are due. The caller holds the lock."""
        now = time.monotonic()
        while not self.stopped and self.due <= now:
            self.run_iteration(self.due)

    def run_iteration(self, now):
        outstanding = self.running + len(self.pending) + len(self.queued)
        quiet = self.draining or self.iter >= self.quiet_at
        if quiet and not outstanding:
            return self.go_idle(now)
        if not quiet:
            self.arrive(now, at_least=0 if outstanding else 1)

        new, waited = 0, 0.0
        while self.queued and self.running + len(self.pending) < MAX_ACTIVE:
            arrival = self.queued.popleft()
            self.pending.append((self.next_id, arrival))
            self.next_id += 1
            new += 1
            waited += (now - arrival) * 1000
        generating, contexts, context_tokens = self.running, 0, 0
        while self.pending and contexts < MAX_CONTEXTS and self.running < MAX_SCHEDULED:
            context_tokens += self.start(*self.pending.popleft(), now)
            contexts += 1
        active = self.running + len(self.pending)
        finished = self.ends.pop(self.iter, ())
        self.running -= len(finished)
        for request in finished:
            self.finish(request, now)

        if self.tensorrt:  # reports completions one iteration late, and repeats them in the iteration after a flush
            completed = self.just_finished if self.repeat_completed is None else self.repeat_completed
            counted = self.just_finished if self.repeat_completed is None else 0
            self.just_finished = len(finished)
        else:
            completed = counted = len(finished)
        repeated, self.repeat_completed = self.repeat_completed is not None, None
        # C++ reports 1.0 without speculative decoding, PyTorch 0.0. The 1.25 is two tokens for a quarter of the batch.
        average = (1.25 if self.iter % 16 == 0 else 1.0) if self.tensorrt else 0.0
        generated = int(generating * (average or 1.0) + 0.5)

        latency = self.period * 1000 * (0.85 + 0.3 * self.random.random())
        regular = True
        if self.tensorrt and self.since_idle < 2:  # iterLatencyMS is that of the previous iteration, which may include idle time
            latency, regular = 0.0 if self.since_idle == 0 else latency + (now - self.period - self.idle_began) * 1000, False
        elif not (self.tensorrt or outstanding) and (self.truth["iterations"] or self.iter <= 1):  # may include idle time
            latency, regular = latency + (now - self.idle_began) * 1000 * (self.since_idle == 0), False
        self.since_idle += 1
        truth = self.truth
        truth["iterations"] += 1
        truth["started_requests"] += new
        truth["completed_requests"] += counted
        truth["context_tokens"] += context_tokens
        truth["generation_tokens"] += generated
        truth["queue_time_ms"] += waited
        if regular:
            truth["latencies"] += 1
            truth["latency_ms"] += latency
        self.queue_seconds += waited / 1000
        reported = waited if self.tensorrt else self.queue_seconds
        self.push(now, (average, contexts, context_tokens, generating, contexts + generating), latency,
                  (reported, active, completed, new, len(self.queued)),
                  Entry(self.iter, False, repeated, new, completed, context_tokens, generated))
        self.stale_new = new
        self.iter += 1
        self.due = now + self.period

    def arrive(self, now, at_least):
        capacity = MAX_SCHEDULED / (MEAN_DECODE_ITERATIONS + 1)
        swing = 0.9 + 0.35 * math.sin(now * 2 * math.pi / 20)  # over and under capacity every 20 s
        self.arrivals_due += capacity * swing * 2 * self.random.random()
        arrivals = max(at_least, int(self.arrivals_due))
        self.arrivals_due = max(0.0, self.arrivals_due - arrivals)
        for _ in range(arrivals):
            self.queued.append(now - self.period * self.random.random())

    def start(self, number, arrival, now):
        """Run the context phase of one request. Return how many tokens it computes (a prefix may be cached)."""
        rand = self.random
        context_blocks = 1 + int(rand.random() * 24)
        hits = int(rand.random() * context_blocks) if rand.random() < 0.5 else 0
        decode = 1 + int(rand.random() * 2 * MEAN_DECODE_ITERATIONS)
        blocks = context_blocks + 1 + decode // TOKENS_PER_BLOCK
        self.alloc_total += blocks
        self.alloc_new += blocks - hits
        self.reused += hits
        self.missed += context_blocks - hits
        self.used += blocks
        self.running += 1
        last = self.iter + decode
        self.ends.setdefault(last, []).append((number, arrival, now, self.iter, last, blocks, hits, context_blocks))
        return (context_blocks - hits) * TOKENS_PER_BLOCK - int(rand.random() * TOKENS_PER_BLOCK)

    def finish(self, request, now):
        self.used -= request[5]
        self.truth["perf_metrics"] += 1
        self.finished.append((request, now))
        self.kv_events.finish(request[7] - request[6])
        if len(self.finished) > self.ring_size:
            self.finished.popleft()
            self.truth["perf_metrics_lost"] += 1

    def go_idle(self, now):
        """Become idle. C++ first writes one more record, a flush record with the number of the next iteration."""
        if self.tensorrt:
            completed, self.just_finished = self.just_finished, 0
            self.repeat_completed = completed
            self.truth["completed_requests"] += completed
            self.truth["flush_records"] += 1
            self.push(now, (1.0, 0, 0, 0, 0), 0.0, (0.0, 0, completed, self.stale_new, 0),
                      Entry(self.iter, True, False, 0, completed, 0, 0))
        else:
            self.iter += 1  # PyTorch counts the pass that only ends the last batch
        self.since_idle, self.idle_began = 0, now
        self.quiet_at = self.iter + self.idle_every * (0.8 + 0.4 * self.random.random()) if self.idle_every else math.inf
        self.due = math.inf if self.draining else now + self.idle_for

    def push(self, now, batch, latency, requests, entry):
        looked_up = self.reused + self.missed
        kv = (self.alloc_new, self.alloc_total, self.reused / looked_up if looked_up else 0.0, KV_BLOCKS - self.used,
              self.missed, self.reused, self.used)
        self.truth["records"] += 1
        self.frames += 1
        frame = (self.frames, self.truth["lost"] + (len(self.ring) >= self.ring_size))
        self.ring.append((now, (*batch, self.iter, latency, *kv, *requests), entry, frame))
        if len(self.ring) > self.ring_size:  # TensorRT-LLM drops the oldest record without notice
            lost = self.ring.popleft()
            self.truth["lost"] += 1
            self.truth["lost_iterations"] += not lost[2].flush

    def drain_records(self):
        with self.lock:
            self.advance()
            records, self.ring = self.ring, deque()
            self.uncounted += 1
        if self.tensorrt:
            return records, [TENSORRT % (*values, self.timestamp(now)) for now, values, _, _ in records]
        return records, [PYTORCH % (*values, "", *frame) for _, values, _, frame in records]

    def count_served(self, records, whole=None):
        """Count drained records. A client that received all responses must have the same numbers.

        `whole`: the response was aborted after this many complete records."""
        with self.lock:
            out = self.handed_out if whole is None else self.salvageable
            for _, values, entry, _ in list(records)[:whole]:
                if self.first_blocks is None:  # clients can only see increases from the first record on
                    blocks = dict(zip(("newly_allocated", "allocated"), values[7:9]), missed=values[11], reused=values[12])
                    self.first_blocks = blocks if entry.iter > 1 else dict.fromkeys(blocks, 0)  # the engine's first record
                out["records"] += 1
                out["iterations"] += not entry.flush
                out["started_requests"] += entry.started
                out["context_tokens"] += entry.context_tokens
                out["generation_tokens"] += entry.generation_tokens
                if entry.flush:
                    self.served_flush = entry.iter
                if not (entry.repeats_flush and self.served_flush == entry.iter):
                    out["completed_requests"] += entry.completed
            self.truth["served"] = self.handed_out["iterations"]
            self.uncounted -= 1
            self.counted.notify_all()
            if whole is not None:
                self.truth["cut"] += len(records) - whole
                self.truth["cut_iterations"] += sum(not entry.flush for _, _, entry, _ in list(records)[whole:])

    def timestamp(self, now):
        seconds = now + self.wall
        day = time.strftime("%m-%d-%Y %H:%M:%S", time.localtime(seconds))  # TensorRT-LLM writes local time without a time zone
        return "%s.%06d" % (day, seconds % 1 * 1e6)

    def drain_perf_metrics(self):
        with self.lock:
            self.advance()
            finished, self.finished = self.finished, deque()
            self.truth["perf_metrics_served"] += len(finished)
        entries = []
        for (number, arrival, scheduled, first, last, blocks, hits, context_blocks), end in finished:
            token = scheduled + self.period
            entries.append({"request_id": number, "perf_metrics": {
                "first_iter": first, "last_iter": last,
                "timing_metrics": {
                    "server_arrival_time": arrival - 0.0002, "arrival_time": arrival, "first_scheduled_time": scheduled,
                    "first_token_time": token, "server_first_token_time": token + 0.0002,
                    "last_token_time": max(token, end)},
                "kv_cache_metrics": {
                    "num_total_allocated_blocks": blocks, "num_new_allocated_blocks": blocks - hits,
                    "num_reused_blocks": hits, "num_missed_blocks": context_blocks - hits}}})
        return json.dumps(entries, separators=(",", ":"))

    def drain_kv_events(self):
        with self.lock:
            self.advance()
            events, self.kv_events.waiting = self.kv_events.waiting, []
        return json.dumps(events, separators=(",", ":"))

    def truth_json(self):
        with self.lock:
            # Records of a response in progress are in no count yet. Wait for them, but not for a slow response.
            self.counted.wait_for(lambda: not self.uncounted, timeout=1)
            self.advance()
            return json.dumps({
                **self.truth, "handed_out": self.handed_out, "salvageable": self.salvageable, "in_ring": len(self.ring), "next_iter": self.iter,
                "active_requests": self.running + len(self.pending), "queued_requests": len(self.queued),
                "stopped": self.stopped, "idle": self.due == math.inf,
                "kv_cache_blocks": {"allocated": self.alloc_total, "newly_allocated": self.alloc_new,
                                    "reused": self.reused, "missed": self.missed, "used": self.used},
                "kv_cache_blocks_first": self.first_blocks,
                "kv_events": {**self.kv_events.truth, "waiting": len(self.kv_events.waiting)}})

    def control(self, stop=None, drain=None):
        with self.lock:
            self.advance()
            if drain is not None:
                self.draining = drain
            if stop is not None:
                self.stopped = stop
            if not self.stopped and not self.draining:
                self.due = min(self.due, time.monotonic()) if self.due == math.inf else max(self.due, time.monotonic())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    mode = "ok"
    drain_wait = 0.0
    model = ""

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, kind="application/json"):
        body = body.encode()
        self.wfile.write(self.head(status, kind, len(body)) + body)  # one write, because a second segment would wait for a delayed ACK

    def head(self, status, kind, length):
        reason = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}[status]
        return (f"HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\n"
                f"content-length: {length}\r\n\r\n").encode()

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self.metrics()
        elif path == "/perf_metrics":
            self.answer(self.engine.drain_perf_metrics())
        elif path == "/truth":
            self.answer(self.engine.truth_json())
        elif path == "/version":
            self.answer('{"version":"1.0.0rc4"}')
        elif path == "/health":
            self.answer("", kind="text/plain")
        elif path == "/v1/models":
            self.answer(json.dumps({"object": "list", "data": [
                {"id": self.model, "object": "model", "created": 0, "owned_by": "tensorrt_llm"}]}))
        else:
            self.answer('{"detail":"Not Found"}', 404)

    def metrics(self):
        mode, engine = Handler.mode, self.engine
        time.sleep(self.drain_wait)
        if mode == "500":
            return self.answer("Internal Server Error", 500, "text/plain")
        if mode == "not-json":
            return self.answer("<html><body>Bad gateway</body></html>", kind="text/html")
        if mode in ("hang", "huge"):
            self.close_connection = True
            return self.hang() if mode == "hang" else self.huge()
        records, lines = engine.drain_records()
        if mode == "truncated" and lines:
            engine.count_served(records, whole=len(lines) - 1)
            lines[-1] = lines[-1][:len(lines[-1]) // 2]
            return self.answer("[" + ",".join(lines))
        body = "[" + ",".join(lines) + "]"
        try:
            if mode == "slow-body":
                sent = self.send_slowly(body)
                if sent < len(body):
                    whole = sum(end <= sent for end in accumulate(len(line) + 1 for line in lines))
                    return engine.count_served(records, whole)
            else:
                self.answer(body)
            engine.count_served(records)
        except OSError:
            self.close_connection = True
            engine.count_served(records, whole=0)

    def hang(self):
        while Handler.mode == "hang" and not self.client_disconnected():
            time.sleep(0.1)

    def client_disconnected(self):
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.setblocking(True)

    def huge(self):
        chunk = b"x" * 65536
        try:
            self.wfile.write(self.head(200, "application/json", (100 << 20) + 4) + b'["')
            for _ in range((100 << 20) // len(chunk)):
                self.wfile.write(chunk)
            self.wfile.write(b'"]')
        except OSError:
            pass

    def send_slowly(self, body):
        """Send one byte per second until the mode changes, then the rest. Return how many bytes the client got."""
        body = body.encode()
        self.wfile.write(self.head(200, "application/json", len(body)))
        sent = 0
        while sent < len(body):
            if self.client_disconnected():  # the first write after a disconnect would still succeed
                self.close_connection = True
                break
            end = sent + 1 if Handler.mode == "slow-body" else len(body)
            self.wfile.write(body[sent:end])
            sent = end
            time.sleep(1 if sent < len(body) else 0)
        return sent

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/kv_cache_events":
            return self.answer(self.engine.drain_kv_events())
        try:
            command = json.loads(body)
            unknown = set(command) - {"stop", "drain", "mode"}
            mode = command.get("mode", Handler.mode)
            if self.path != "/control" or unknown or mode not in MODES:
                raise ValueError(f"invalid request; use POST /control with stop, drain or mode ({', '.join(MODES)})")
        except (ValueError, TypeError) as error:
            return self.answer(json.dumps({"detail": str(error)}), 400)
        Handler.mode = mode
        self.engine.control(command.get("stop"), command.get("drain"))
        self.answer(self.engine.truth_json())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client may disconnect at any time
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 picks a free port (default %(default)s)")
    parser.add_argument("--model", default="lookalike", help="name of the model at /v1/models (default %(default)s)")
    parser.add_argument("--rate", type=float, default=50, help="iterations per second (default %(default)s)")
    parser.add_argument("--ring", type=int, default=1000, help="size of the ring in records; when it is full, the oldest is dropped (default %(default)s)")
    parser.add_argument("--backend", choices=("pytorch", "tensorrt"), default="pytorch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle-every", type=int, default=0, metavar="N", help="become idle about every N iterations (0: never)")
    parser.add_argument("--idle-for", type=float, default=0.3, metavar="S", help="duration of each idle period in seconds (default %(default)s)")
    parser.add_argument("--first-iter", type=int, default=1)
    parser.add_argument("--kv-events", action="store_true", help="report the events of KV cache blocks at /kv_cache_events")
    parser.add_argument("--drain-wait", type=float, default=0.0, metavar="S", help="duration of GET /metrics in seconds; releases up to 1.2 take about 2")
    args = parser.parse_args()
    if args.rate <= 0 or args.ring < 1:
        parser.error("--rate and --ring must be positive")
    server = Server((args.host, args.port), Handler)
    Handler.engine, Handler.drain_wait, Handler.model = Engine(args), args.drain_wait, args.model
    print("listening on %s:%d" % server.server_address[:2], flush=True)
    threading.Thread(target=advance_regularly, args=(Handler.engine,), daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


def advance_regularly(engine):
    """Run due iterations while there are no requests. Otherwise the next request would have to run all of them."""
    while True:
        time.sleep(0.5)
        with engine.lock:
            engine.advance()


if __name__ == "__main__":
    main()
