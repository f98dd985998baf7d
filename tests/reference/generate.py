#!/usr/bin/env python3
"""Writes the records of an invented engine as NDJSON, with everything that makes them hard to count.

  generate.py --records N [--entries] [--seed S] > FILE

Several runs of an engine: the C++ Executor with request rows and with static batching, and the PyTorch engine with
attention-DP ranks. There are idle times with their flush record and the record that repeats it, lost records, restarts with
and without a new process, and cumulative counts that restart. With --entries finished requests also have exact times. Uses
only Python's standard library.
"""
import argparse
import json
import random
import sys
from datetime import datetime, timedelta, timezone

START = datetime(2025, 7, 25, 12, 0, 0, tzinfo=timezone.utc)
EPOCH = 5000  # approximate iterations between two restarts
MAX_ACTIVE = 12


class Clock:
    def __init__(self):
        self.us = 0

    def text(self):
        return (START + timedelta(microseconds=self.us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Life:
    """One engine from its start to its end."""

    def __init__(self, rand, clock, kind, first_iter, ids, entries):
        self.rand, self.clock, self.kind, self.ids, self.entries = rand, clock, kind, ids, entries
        self.iter = first_iter
        self.queue, self.active, self.ended = [], [], []
        self.alloc_total = self.alloc_new = self.reused = self.missed = 0
        self.stale_new = 0
        self.repeat = None  # completed requests that the next record repeats
        self.since_idle, self.idle_us = 0, 0
        self.last_ms = 0.0
        self.sequence, self.dropped = rand.randrange(100), 0

    def arrive(self):
        rand = self.rand
        for _ in range(rand.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 1)) if self.active else rand.choice((0, 1, 2))):
            self.ids[0] += 1
            prompt, reused = rand.randrange(1, 400), rand.choice((0, 0, rand.randrange(5)))
            self.queue.append({
                "id": self.ids[0], "arrived": self.clock.us - rand.randrange(4000), "prompt": prompt, "done": 0,
                "left": rand.randrange(1, 12), "tokens": 0, "paused": False, "scheduled": False, "scheduled_us": None,
                "first_us": None, "blocks": prompt // 32 + 1 + reused, "reused": reused,
                "missed": prompt // 32 + 1, "first_iter": None,
                "transfer": rand.random() * 30 if rand.random() < 0.05 else 0.0,
                "reason": rand.choice(("stop", "stop", "length", "timeout", "cancelled"))})

    def one_pass(self):
        """The lines of one pass of the engine's loop."""
        rand, clock = self.rand, self.clock
        if not self.active and not self.queue:
            lines = self.flush() if self.kind != "pytorch" else []
            self.idle_us = rand.randrange(1_000_000, 90_000_000)
            clock.us += self.idle_us
            self.since_idle = 0
            while not self.queue:
                self.arrive()
            return lines + self.work()
        self.arrive()
        return self.work()

    def work(self):
        rand, clock = self.rand, self.clock
        new, waited = 0, 0.0
        while self.queue and len(self.active) < MAX_ACTIVE:
            request = self.queue.pop(0)
            self.active.append(request)
            new += 1
            waited += (clock.us - request["arrived"]) / 1000
        start = clock.us
        ms = round(4 + 20 * rand.random(), 6)
        clock.us += int(ms * 1000)
        contexts = context_tokens = generating = generated = drafted = accepted = drafting = 0
        paused = 0
        finished = []
        for request in self.active:
            request["paused"] = request["tokens"] > 0 and rand.random() < 0.02
            request["scheduled"] = not request["paused"]
            if request["paused"]:
                paused += 1
                continue
            if request["scheduled_us"] is None:
                request["scheduled_us"], request["first_iter"] = start, self.iter
                self.alloc_total += request["blocks"]
                self.alloc_new += request["blocks"] - request["reused"]
                self.reused += request["reused"]
                self.missed += request["missed"]
            if request["done"] < request["prompt"]:  # chunks of 256 tokens
                chunk = min(256, request["prompt"] - request["done"])
                request["done"] += chunk
                contexts += 1
                context_tokens += chunk
                if request["done"] == request["prompt"]:
                    request["tokens"] = 1
                    request["first_us"] = clock.us
            else:
                more = 1
                if self.kind == "pytorch":
                    draft = rand.randrange(0, 4)
                    kept = rand.randrange(0, draft + 1)
                    drafted, accepted, drafting = drafted + draft, accepted + kept, drafting + (draft > 0)
                    more += kept
                generating += 1
                generated += more
                request["tokens"] += more
            if request["tokens"] >= request["left"]:
                request["last_us"] = clock.us
                finished.append(request)
        for request in finished:
            self.active.remove(request)
        entries = [self.entry(request) for request in finished] if self.entries else []
        if self.kind == "pytorch":
            record = self.record(ms, len(self.active) + len(finished), len(finished), new, waited, contexts, context_tokens,
                                 generating, 0.0, paused)
            lines = self.ranks(record, drafted, accepted, drafting, generating)
        else:
            # Completions are reported one pass late. After an idle time the record repeats those of the flush.
            completed = len(self.ended) if self.repeat is None else self.repeat
            self.repeat = None
            record = self.record(self.told_ms(ms), len(self.active) + len(finished), completed, new, waited, contexts,
                                 context_tokens, generating, 1.0, paused)
            record["requestStats"] = [self.row(request) for request in self.active + finished]
            record["requestStats"] += [{"id": request["id"], "stage": "QUEUED", "contextPrefillPosition": 0,
                                        "numGeneratedTokens": 0, "scheduled": False, "paused": False}
                                       for request in self.queue]
            record["requestStats"] += [self.row(request, complete=True) for request in self.ended]
            self.ended = finished
            lines = [record]
        self.stale_new = new
        self.iter += 1
        self.since_idle += 1
        self.last_ms = ms
        return entries + lines

    def told_ms(self, ms):
        """iterLatencyMS is the latency of the previous pass, which may contain the wait for work."""
        if self.since_idle == 0:
            return 0.0
        return self.last_ms + (self.idle_us / 1000 if self.since_idle == 1 else 0.0)

    def flush(self):
        """The idle flush: the number of the next iteration, old new requests, no latency."""
        completed = len(self.ended)
        record = self.record(0.0, 0, completed, self.stale_new, 0.0, 0, 0, 0, 1.0, 0)
        record["requestStats"] = [self.row(request, complete=True) for request in self.ended]
        self.ended = []
        self.repeat = completed
        return [record]

    def record(self, ms, active, completed, new, waited, contexts, context_tokens, generating, average, paused):
        used = sum(request["blocks"] for request in self.active)
        lookups = self.reused + self.missed
        kv = {"maxNumBlocks": 4096, "freeNumBlocks": 4096 - used, "usedNumBlocks": used, "tokensPerBlock": 32,
              "allocTotalBlocks": self.alloc_total, "allocNewBlocks": self.alloc_new, "reusedBlocks": self.reused,
              "missedBlocks": self.missed, "cacheHitRate": self.reused / lookups if lookups else 0.0}
        batch = {"numScheduledRequests": contexts + generating, "numContextRequests": contexts,
                 "numCtxTokens": context_tokens}
        record = {
            "timestamp": self.clock.text(), "iter": self.iter, "iterLatencyMS": ms,
            "newActiveRequestsQueueLatencyMS": waited, "numNewActiveRequests": new, "numActiveRequests": active,
            "numQueuedRequests": len(self.queue), "numCompletedRequests": completed, "maxNumActiveRequests": 64,
            "gpuMemUsage": 36100332423, "cpuMemUsage": 68172, "pinnedMemUsage": 2952841216, "kvCacheStats": kv}
        if self.kind == "static":
            record["staticBatchingStats"] = {**batch, "numGenTokens": generating, "emptyGenSlots": MAX_ACTIVE - generating}
        else:
            record["inflightBatchingStats"] = {
                **batch, "numGenRequests": generating, "numPausedRequests": paused, "microBatchId": 0,
                "avgNumDecodedTokensPerIter": average}
        return record

    def ranks(self, record, drafted, accepted, drafting, generating):
        """One row per rank. Requests and KV cache of the first rank are copied to the others, or 0 there."""
        rand = self.rand
        record.update(schedulerMode="overlap", statsSequence=self.sequence, statsDroppedFrames=self.dropped, attentionDpRank=0,
                      hostStepTimeMS=round(3 + rand.random(), 6), prevDeviceStepTimeMS=round(2 + rand.random(), 6),
                      gpuForwardTimeMS=round(1 + rand.random(), 6))
        record["iterSuspendedRequests"] = rand.choice((0, 0, 0, 1))
        record["specDecodingStats"] = {
            "numDraftTokens": drafted, "numAcceptedTokens": accepted, "numRequestsWithDraftTokens": drafting,
            "acceptanceLength": (accepted + generating) / generating if generating else 0.0, "iterLatencyMS": 0.5,
            "draftOverhead": 0.1}
        record["kvCacheIterationStats"] = {
            str(size): {"primaryUsedNumBlocks": rand.randrange(100), "iterReusedBlocks": rand.randrange(5),
                        "iterMissedBlocks": rand.randrange(5), "iterOnboardBytes": rand.choice((0, 1 << 20))}
            for size in (4096, 32768)}
        self.sequence += 1
        rows = [record]
        for rank in range(1, 4):
            row = {key: value for key, value in record.items() if key not in (
                "kvCacheIterationStats", "specDecodingStats", "iterSuspendedRequests")}
            row.update(attentionDpRank=rank, numQueuedRequests=0, numCompletedRequests=0, numNewActiveRequests=0,
                       newActiveRequestsQueueLatencyMS=0.0)
            contexts, gens = rand.randrange(2), rand.randrange(4)
            row["inflightBatchingStats"] = {
                "numScheduledRequests": contexts + gens, "numContextRequests": contexts, "numGenRequests": gens,
                "numPausedRequests": 0, "numCtxTokens": 64 * contexts, "microBatchId": 0, "avgNumDecodedTokensPerIter": 0.0}
            rows.append(row)
        return rows

    def row(self, request, complete=False):
        stage = "GENERATION_COMPLETE" if complete else (
            "GENERATION_IN_PROGRESS" if request["done"] == request["prompt"] else "CONTEXT_IN_PROGRESS")
        return {
            "id": request["id"], "stage": stage, "contextPrefillPosition": request["done"],
            "numGeneratedTokens": request["tokens"], "avgNumDecodedTokensPerIter": 1.0,
            "scheduled": request["scheduled"] and not complete, "paused": request["paused"],
            "disServingStats": {"kvCacheTransferMS": request["transfer"], "kvCacheSize": request["prompt"] * 1000}
            if request["transfer"] else None,
            "allocTotalBlocksPerRequest": request["blocks"],
            "allocNewBlocksPerRequest": request["blocks"] - request["reused"],
            "reusedBlocksPerRequest": request["reused"], "missedBlocksPerRequest": request["missed"]}

    def entry(self, request):
        seconds = lambda us: us / 1e6
        timing = {"arrival_time": seconds(request["arrived"]), "first_scheduled_time": seconds(request["scheduled_us"]),
                  "first_token_time": seconds(request["first_us"]), "last_token_time": seconds(request["last_us"])}
        if request["transfer"]:
            timing.update(kv_cache_size=request["prompt"] * 1000, kv_cache_transfer_start=timing["arrival_time"],
                          kv_cache_transfer_end=timing["arrival_time"] + request["transfer"] / 1000)
        return {"request_id": request["id"], "finish_reason": request["reason"], "output_tokens": request["tokens"],
                "prompt_tokens": request["prompt"],
                "perf_metrics": {
                    "first_iter": request["first_iter"], "last_iter": self.iter, "timing_metrics": timing,
                    "kv_cache_metrics": {
                        "num_total_allocated_blocks": request["blocks"],
                        "num_new_allocated_blocks": request["blocks"] - request["reused"],
                        "num_reused_blocks": request["reused"], "num_missed_blocks": request["missed"]},
                    "speculative_decoding": {"total_draft_tokens": 9, "total_accepted_draft_tokens": request["id"] % 10,
                                             "acceptance_rate": 0.5}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--entries", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rand, clock, ids = random.Random(args.seed), Clock(), [0]
    write = lambda line: sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    kinds, lives = ("executor", "pytorch", "executor", "static"), 0
    pid, records, first_iter = 4711, 0, 60
    write({"hello": {"model": "any", "version": "1", "pid": pid}})
    if args.entries:  # an entry first, so that exact times are used from the start
        write({"perf_metrics": {"timing_metrics": {}}})
    epoch = max(200, min(EPOCH, args.records // 8))
    while records < args.records:
        kind = kinds[lives % len(kinds)]
        lives += 1
        life = Life(rand, clock, kind, first_iter, ids, args.entries)
        lose = 0
        for _ in range(int(epoch * (0.5 + rand.random()))):
            for line in life.one_pass():
                if "perf_metrics" in line:
                    write(line)
                    continue
                if lose == 0 and rand.random() < 0.002:
                    lose = rand.choice((1, 1, 2, 5, 30))
                if lose:
                    lose -= 1
                    if life.kind == "pytorch" and rand.random() < 0.5 and line["attentionDpRank"] == 0:
                        life.dropped += 1  # the engine may count the dropped records itself
                    continue
                write(line)
                records += 1
        clock.us += rand.randrange(2_000_000, 60_000_000)  # the engine restarts
        if rand.random() < 0.3:  # a new process whose numbers happen to continue
            pid += 1
            write({"hello": {"pid": pid}})
            first_iter = life.iter + 1000
        else:
            first_iter = rand.randrange(1, 20)
    print(f"{records} records, {ids[0]} requests", file=sys.stderr)


if __name__ == "__main__":
    main()
