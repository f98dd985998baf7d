"""A small engine that publishes records to an ingest socket and misbehaves on request. It knows no exporter and no metric."""

import json
import math
import random
import socket
import threading
import time
from dataclasses import dataclass

STEP = 0.02  # seconds per iteration
MAX_ACTIVE, BLOCK, TOKENS_PER_ITERATION = 64, 32, 4096
ROW_BYTES = 2 << 20  # one KV cache block


@dataclass
class Behaviour:
    """What the engine and its clients do now. A script changes it while the engine runs."""

    rate: float = 7.0  # requests per second
    prompt: int = 1000  # tokens
    output: int = 250
    blocks: int = 1600  # of the KV cache
    shared: float = 0.85  # share of a prompt that is in the KV cache
    acceptance: float = 0.75  # of draft tokens
    failing: float = 0.0  # share of the requests that end with a timeout
    losing: float = 0.0  # share of the records that never arrive
    hanging: bool = False  # the execution loop does not run


class Request:
    def __init__(self, now, behaviour, random):
        self.arrival, self.scheduled, self.first = now - random.uniform(0, STEP), None, None
        self.prompt = max(BLOCK, int(random.gauss(behaviour.prompt, behaviour.prompt / 5)))
        self.output = self.left = max(4, int(random.expovariate(1 / behaviour.output)))
        self.reused = int(self.prompt * min(1.0, max(0.0, random.gauss(behaviour.shared, 0.05))))
        self.to_compute = self.prompt - self.reused
        self.blocks = math.ceil((self.prompt + self.output) / BLOCK)
        self.drafted = self.accepted = 0


class Engine(threading.Thread):
    def __init__(self, path, model, version="1", seed=1, ranks=1):
        super().__init__(daemon=True)
        self.behaviour, self.random, self.ended = Behaviour(), random.Random(seed), False
        self.ranks = ranks
        self.path, self.hello = path, {"hello": {"model": model, "version": version, "pid": 4711}}
        self.queue, self.active, self.iter = [], [], 0
        self.reused = self.missed = self.allocated = self.new_blocks = self.next_id = 0

    def run(self):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.path)
            lines = [self.hello]
            due = time.monotonic()
            while not self.ended:
                try:
                    stream.sendall("".join(json.dumps(line) + "\n" for line in lines).encode())
                except OSError:
                    return
                due = max(due + STEP, time.monotonic() - 0.5)
                time.sleep(max(0.0, due - time.monotonic()))
                lines = self.iterate(time.time())

    def stop(self):
        self.ended = True
        self.join(timeout=2)

    def restart(self):
        """As a crash: requests are lost, and the numbers start again."""
        self.queue, self.active, self.iter = [], [], 0
        self.reused = self.missed = self.allocated = self.new_blocks = 0

    def arrivals(self, now):
        expected, count = self.behaviour.rate * STEP, 0
        limit, product = math.exp(-expected), self.random.random()
        while product > limit:
            count, product = count + 1, product * self.random.random()
        self.queue += [Request(now, self.behaviour, self.random) for _ in range(count)]

    def iterate(self, now):
        """One iteration: the lines that it publishes."""
        behaviour = self.behaviour
        if behaviour.hanging:
            return []
        self.arrivals(now)
        used = sum(request.blocks for request in self.active)
        activated, waited = 0, 0.0
        while self.queue and len(self.active) < MAX_ACTIVE and used + self.queue[0].blocks <= behaviour.blocks:
            request = self.queue.pop(0)
            request.scheduled = now
            used, activated, waited = used + request.blocks, activated + 1, waited + now - request.arrival
            self.active.append(request)
            found = request.reused // BLOCK
            self.reused += found
            self.missed += request.prompt // BLOCK - found
            self.allocated += request.blocks
            self.new_blocks += request.blocks - found
        contexts, context_tokens, cached = [], 0, 0
        for request in self.active:
            if request.first is None and context_tokens < TOKENS_PER_ITERATION:
                part = min(request.to_compute, TOKENS_PER_ITERATION - context_tokens, 512)
                request.to_compute -= part
                context_tokens += part
                contexts.append(request)
                if request.to_compute == 0:
                    request.first, cached = now + STEP, cached + request.reused  # at the end of the iteration
        generating = [request for request in self.active if request.first is not None and request not in contexts]
        drafts = accepted = 0
        for request in generating:
            gained = sum(self.random.random() < behaviour.acceptance for _ in range(3))
            request.drafted, request.accepted = request.drafted + 3, request.accepted + gained
            drafts, accepted = drafts + 3, accepted + gained
            request.left -= 1 + gained
        done = [request for request in generating if request.left <= 0]
        self.active = [request for request in self.active if request.left > 0]
        self.iter += 1
        paused = int(used > 0.95 * behaviour.blocks and bool(self.queue) and self.iter % 10 == 0)  # five per second
        record = self.record(
            now, used, activated, waited, len(contexts), len(generating), context_tokens, cached, drafts, accepted, done, paused
        )
        lost = self.random.random() < behaviour.losing
        rows = self.rows(record) if self.ranks > 1 else [record]
        return ([] if lost else rows) + [self.entry(request, now) for request in done]

    def rows(self, record):
        """A row for each rank. Each rank has its own batch; the others count no requests and have no statistics of the KV cache."""
        rows = [{**record, "attentionDpRank": 0}]
        for rank in range(1, self.ranks):
            row = {key: value for key, value in record.items() if not key.startswith(("kvCacheI", "iterC", "iterS", "iterR", "spec"))}
            row |= {name: 0 for name in ("numNewActiveRequests", "numQueuedRequests", "numCompletedRequests")}
            batch = record["inflightBatchingStats"]
            share = {name: batch[name] * 3 // 4 for name in ("numScheduledRequests", "numGenRequests", "numCtxTokens")}
            rows.append({**row, "attentionDpRank": rank, "inflightBatchingStats": {**batch, **share}})
        return rows

    def record(self, now, used, activated, waited, contexts, generating, context_tokens, cached, drafts, accepted, done, paused):
        total, free = self.behaviour.blocks, max(0, self.behaviour.blocks - used)
        evictable, host_used = free // 2, min(700, self.reused // 40)
        window = {
            "primaryMaxNumBlocks": total,
            "primaryFreeNumBlocks": free,
            "primaryUsedNumBlocks": used,
            "primaryEvictableNumBlocks": evictable,
            "secondaryMaxNumBlocks": 800,
            "secondaryFreeNumBlocks": 800 - host_used,
            "secondaryUsedNumBlocks": host_used,
            "secondaryEvictableNumBlocks": host_used // 2,
            "iterReusedBlocks": cached // BLOCK,
            "iterMissedBlocks": context_tokens // BLOCK,
            "iterOffloadBytes": len(done) * 3 * ROW_BYTES,
            "iterOnboardBytes": (cached // 4096) * ROW_BYTES,
            "iterIntraDeviceCopyBytes": len(done) * ROW_BYTES,
        }
        return {
            "iter": self.iter,
            "statsSequence": self.iter,
            "iterLatencyMS": 6.0 + context_tokens * 0.004 + generating * 0.1,
            "numNewActiveRequests": activated,
            "newActiveRequestsQueueLatencyMS": waited * 1000,
            "numActiveRequests": len(self.active),
            "numQueuedRequests": len(self.queue),
            "numCompletedRequests": len(done),
            "maxNumActiveRequests": MAX_ACTIVE,
            "maxBatchSizeStatic": MAX_ACTIVE,
            "maxBatchSizeRuntime": MAX_ACTIVE,
            "maxNumTokensStatic": TOKENS_PER_ITERATION,
            "maxNumTokensRuntime": TOKENS_PER_ITERATION,
            "gpuMemUsage": 70_000_000_000,
            "kvCacheStats": {
                "maxNumBlocks": total,
                "freeNumBlocks": free,
                "usedNumBlocks": used,
                "tokensPerBlock": BLOCK,
                "allocTotalBlocks": self.allocated,
                "allocNewBlocks": self.new_blocks,
                "reusedBlocks": self.reused,
                "missedBlocks": self.missed,
                "cacheHitRate": self.reused / (self.reused + self.missed) if self.reused + self.missed else 0,
            },
            "inflightBatchingStats": {
                "numScheduledRequests": contexts + generating,
                "numContextRequests": contexts,
                "numGenRequests": generating,
                "numPausedRequests": 0,
                "numCtxTokens": context_tokens,
                "microBatchId": 0,
                "avgNumDecodedTokensPerIter": 1 + accepted / generating if generating else 0.0,
            },
            "specDecodingStats": (
                {
                    "numDraftTokens": drafts,
                    "numAcceptedTokens": accepted,
                    "numRequestsWithDraftTokens": generating,
                    "acceptanceLength": 1 + accepted / generating,
                    "iterLatencyMS": 1.2,
                    "draftOverhead": 0.12,
                }
                if generating
                else None
            ),
            "kvCacheIterationStats": {"4096": window},
            "iterCachedTokensByLevel": [cached - cached // 5, cached // 5],
            "kvCacheLevelTiers": ["gpu", "host"],
            "iterSuspendedRequests": paused,
            "iterResumedRequests": paused,
        }

    def entry(self, request, now):
        self.next_id += 1
        failed = self.random.random() < self.behaviour.failing
        found, blocks = request.reused // BLOCK, request.blocks
        return {
            "request_id": self.next_id,
            "prompt_tokens": request.prompt,
            "output_tokens": request.output,
            "finish_reason": "timeout" if failed else "stop",
            "perf_metrics": {
                "first_iter": 1,
                "last_iter": 1 + request.output // 3,
                "timing_metrics": {
                    "arrival_time": request.arrival,
                    "first_scheduled_time": request.scheduled,
                    "first_token_time": request.first,
                    "last_token_time": now + STEP,
                    "kv_cache_transfer_start": request.scheduled,
                    "kv_cache_transfer_end": request.scheduled + 0.004,
                    "kv_cache_size": request.prompt * 65536,
                },
                "kv_cache_metrics": {
                    "num_total_allocated_blocks": blocks,
                    "num_new_allocated_blocks": blocks - found,
                    "num_reused_blocks": found,
                    "num_missed_blocks": request.prompt // BLOCK - found,
                },
                "speculative_decoding": {
                    "acceptance_rate": request.accepted / max(1, request.drafted),
                    "total_accepted_draft_tokens": request.accepted,
                    "total_draft_tokens": request.drafted,
                },
            },
        }
