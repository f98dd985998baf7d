#!/usr/bin/env python3
"""Writes the records of an invented engine as NDJSON, with everything that is difficult to count.

generate.py --records N [--entries] [--last KIND] [--seed S] > FILE

Simulates several runs of an engine: the C++ Executor with request rows and with static batching, and the PyTorch engine with all
kinds of statistics (see KINDS). There are idle times, in which the engine waits for work, lost, late and absurd records, lost rows of
a rank, restarts with and without a new process, and cumulative counts that restart. With --entries, finished requests also have exact
times. Uses only Python's standard library.
"""
import argparse
import copy
import json
import random
import sys
from datetime import datetime, timedelta, timezone

START = datetime(2025, 7, 25, 12, 0, 0, tzinfo=timezone.utc)
EPOCH = 5000  # approximate number of iterations between two restarts
MAX_ACTIVE = 12
RANKS = 4
NOT_COUNTS = """id microBatchId attentionDpRank rank poolGroupId coldPoolGroupId lifeCycleId windowSize windowSizes slotSize
 iterSnapshotHits""".split()
KINDS = {
    "executor": {},
    "attention_dp": {"scheduler": "overlap", "ranks": "attentionDpRank", "drafts": True, "windows": (4096, 32768)},
    "sampled": {"scheduler": "overlap", "every": 10, "drafts": True, "v2": ("host",), "views_every": 4},
    "static": {},
    "overlap": {"scheduler": "overlap", "drafts": True, "overrun": True},
    "ranks": {"scheduler": "overlap", "ranks": "rank", "drafts": True, "windows": (32768,), "overrun": True},
    "sampled_without_sequence": {"scheduler": "non_overlap", "every": 10, "sequence": False},
    "ssm": {"scheduler": "non_overlap", "windows": (), "v2": (), "ssm": True},
    "cold_tiers": {"scheduler": "overlap", "windows": (1024, 4096, 131072), "v2": ("host", "disk"), "views_every": 3},
    "old": {"sequence": False, "each": True},
    "sequential": {"scheduler": "non_overlap", "drafts": True, "windows": (4096,)},
}


class Clock:
    def __init__(self):
        self.us = 0

    def text(self):
        return (START + timedelta(microseconds=self.us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Life:
    """One run of an engine, from its start to its end. If it started before the file begins, its counts do not start at 0."""

    def __init__(self, rand, clock, kind, first_iter, ids, entries, ran_before=False):
        self.rand, self.clock, self.kind, self.ids, self.entries = rand, clock, kind, ids, entries
        self.iter = self.first_iter = first_iter
        self.queue, self.active = [], []
        self.alloc_total, self.alloc_new, self.reused, self.missed = (700, 600, 100, 500) if ran_before else (0, 0, 0, 0)
        self.sequence, self.dropped = (50, 2) if ran_before else (1, 0)
        self.seconds_waited = 12.5 if ran_before else 0.0

    def arrive(self):
        rand = self.rand
        for _ in range(rand.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 1)) if self.active else rand.choice((0, 1, 2))):
            self.ids[0] += 1
            prompt, reused = rand.randrange(1, 400), rand.choice((0, 0, rand.randrange(5)))
            self.queue.append({
                "id": self.ids[0], "arrived": self.clock.us - rand.randrange(4000), "prompt": prompt, "done": 0,
                "left": rand.randrange(1, 12), "tokens": 0, "paused": False, "scheduled": False, "scheduled_us": None,
                "first_us": None, "chunks": [], "steps": [], "blocks": prompt // 32 + 1 + reused, "reused": reused,
                "missed": prompt // 32 + 1, "first_iter": None,
                "transfer": rand.random() * 30 if rand.random() < 0.05 else 0.0,
                "reason": rand.choice(("stop", "stop", "length", "timeout", "cancelled"))})

    def wait(self):
        """Waits for the next request. Returns the time in microseconds."""
        us = self.rand.randrange(1_000_000, 90_000_000)
        self.clock.us += us
        while not self.queue:
            self.arrive()
        return us

    def work(self, drafts=False):
        """Runs one batch."""
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
        contexts = context_tokens = generating = drafted = accepted = drafting = paused = 0
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
                request["chunks"].append((clock.us, ms))
                if request["done"] == request["prompt"]:
                    request["tokens"] = 1
                    request["first_us"] = clock.us
            else:
                more = 1
                if drafts:
                    draft = rand.randrange(0, 4)
                    kept = rand.randrange(0, draft + 1)
                    drafted, accepted, drafting = drafted + draft, accepted + kept, drafting + (draft > 0)
                    more += kept
                generating += 1
                request["tokens"] += more
                request["steps"].append((clock.us, ms))
            if request["tokens"] >= request["left"]:
                request["last_us"] = clock.us
                finished.append(request)
        for request in finished:
            self.active.remove(request)
        return {"ms": ms, "new": new, "waited": waited, "finished": finished, "contexts": contexts,
                "context_tokens": context_tokens, "generating": generating, "paused": paused, "drafted": drafted,
                "accepted": accepted, "drafting": drafting}

    def record(self, ms, active, completed, new, waited, batch, average):
        used = sum(request["blocks"] for request in self.active)
        lookups = self.reused + self.missed
        kv = {"maxNumBlocks": 4096, "freeNumBlocks": 4096 - used, "usedNumBlocks": used, "tokensPerBlock": 32,
              "allocTotalBlocks": self.alloc_total, "allocNewBlocks": self.alloc_new, "reusedBlocks": self.reused,
              "missedBlocks": self.missed, "cacheHitRate": self.reused / lookups if lookups else 0.0}
        shared = {"numScheduledRequests": batch.get("contexts", 0) + batch.get("generating", 0),
                  "numContextRequests": batch.get("contexts", 0), "numCtxTokens": batch.get("context_tokens", 0)}
        generating = batch.get("generating", 0)
        record = {
            "timestamp": self.clock.text(), "iter": self.iter, "iterLatencyMS": ms,
            "newActiveRequestsQueueLatencyMS": waited, "numNewActiveRequests": new, "numActiveRequests": active,
            "numQueuedRequests": len(self.queue), "numCompletedRequests": completed, "maxNumActiveRequests": 64,
            "gpuMemUsage": 36100332423, "cpuMemUsage": 68172, "pinnedMemUsage": 2952841216, "kvCacheStats": kv}
        if self.kind == "static":
            record["staticBatchingStats"] = {**shared, "numGenTokens": generating, "emptyGenSlots": batch.get("empty", 0)}
        else:
            record["inflightBatchingStats"] = {
                **shared, "numGenRequests": generating, "numPausedRequests": batch.get("paused", 0), "microBatchId": 0,
                "avgNumDecodedTokensPerIter": average}
        return record


class Executor(Life):
    """The C++ engine. It reports completed requests and the latency one pass late."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.ended = []
        self.stale_new = 0
        self.repeat = None  # number of completed requests that the next record reports again
        self.since_idle, self.idle_us = 0, 0
        self.last_ms = 0.0

    def one_pass(self):
        """The frames of one pass of the engine's loop: lists of lines."""
        frames = []
        if self.active or self.queue:
            self.arrive()
        else:
            frames = self.flush()
            self.idle_us, self.since_idle = self.wait(), 0
        batch = self.work()
        finished = batch["finished"]
        if self.entries:
            frames += [[self.entry(request)] for request in finished]
        # After an idle time, the record reports the completed requests of the flush record again.
        completed = len(self.ended) if self.repeat is None else self.repeat
        self.repeat = None
        record = self.record(self.told_ms(batch["ms"]), len(self.active) + len(finished), completed, batch["new"],
                             batch["waited"], batch, 1.0)
        record["requestStats"] = [self.row(request) for request in self.active + finished]
        record["requestStats"] += [{"id": request["id"], "stage": "QUEUED", "contextPrefillPosition": 0,
                                    "numGeneratedTokens": 0, "scheduled": False, "paused": False}
                                   for request in self.queue]
        record["requestStats"] += [self.row(request, complete=True) for request in self.ended]
        self.ended, self.stale_new, self.last_ms = finished, batch["new"], batch["ms"]
        self.iter += 1
        self.since_idle += 1
        return frames + [[record]]

    def told_ms(self, ms):
        """iterLatencyMS is the latency of the previous pass, which may contain the wait for work."""
        if self.since_idle == 0:
            return 0.0
        return self.last_ms + (self.idle_us / 1000 if self.since_idle == 1 else 0.0)

    def flush(self):
        """The flush record at the start of an idle time. It has the number of the next iteration, repeats the number of new
        requests of the previous iteration, and has no latency."""
        completed = len(self.ended)
        record = self.record(0.0, 0, completed, self.stale_new, 0.0, {}, 1.0)
        record["requestStats"] = [self.row(request, complete=True) for request in self.ended]
        self.ended = []
        self.repeat = completed
        return [[record]]

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
        """A finished request, as /perf_metrics or a line of a file reports it: from one server, or from an orchestrator,
        with a part for the context server and a part for the generation server."""
        rand = random.Random(request["id"])
        seconds = lambda us: us / 1e6
        arrived, first, last = (seconds(request[name]) for name in ("arrived", "first_us", "last_us"))
        context = {"arrival_time": arrived, "first_scheduled_time": seconds(request["scheduled_us"]), "first_token_time": first}
        # In some releases, the server's own times are null or missing.
        server = {"server_arrival_time": arrived - 0.002, "server_first_token_time": rand.choice((None, 0.0, first + 0.003))}
        transfer = {}
        if request["transfer"]:
            transfer = {"kv_cache_size": request["prompt"] * 1000, "kv_cache_transfer_start": arrived,
                        "kv_cache_transfer_end": arrived + request["transfer"] / 1000}
        usage = {"kv_cache_metrics": {
            "num_total_allocated_blocks": request["blocks"], "num_new_allocated_blocks": request["blocks"] - request["reused"],
            "num_reused_blocks": request["reused"], "num_missed_blocks": request["missed"]}}
        drafts = {} if request["id"] % 3 == 0 else {"speculative_decoding": {
            "total_draft_tokens": 9, "total_accepted_draft_tokens": request["id"] % 10, "acceptance_rate": 0.5}}
        iterations = {"first_iter": request["first_iter"], "last_iter": self.iter}
        ended = {"finish_reason": request["reason"], "output_tokens": request["tokens"]}
        chunks, steps = self.steps(rand, request["chunks"]), self.steps(rand, request["steps"])
        if request["id"] % 7:
            timing = context | {"last_token_time": last} | server | transfer
            whole = {"request_id": request["id"], "prompt_tokens": request["prompt"], **ended,
                     "perf_metrics": iterations | {"timing_metrics": timing} | usage | drafts}
            if request["id"] % 4:  # servers with num_postprocess_workers leave out the times of steps
                whole["time_breakdown_metrics"] = {"ctx_chunk_metrics": chunks, "step_metrics": steps}
            return whole
        # The generation server receives the request with its first token, and generates the next tokens later.
        span = last - first
        part = {"arrival_time": first, "first_scheduled_time": first + rand.choice((0, span / 4)), "first_token_time": first + span / 3,
                "last_token_time": last}
        if transfer:  # it ends before the request is scheduled, or after that (C++)
            transfer |= {"kv_cache_transfer_start": first, "kv_cache_transfer_end": first + rand.choice((span / 8, span / 3.5))}
        return {"ctx_server": "a:1", "gen_server": "b:1", "disagg_request_id": request["id"], "status": "complete",
                "disagg_server_arrival_time": arrived - 0.004, "disagg_server_first_token_time": rand.choice((None, first + span / 4 + 0.007, last + 0.5)),
                "ctx_perf_metrics": {
                    "request_id": request["id"], "ctx_request_id": request["id"], "prompt_tokens": request["prompt"],
                    "perf_metrics": {"timing_metrics": context | {"last_token_time": first} | server} | usage,
                    "time_breakdown_metrics": {"ctx_chunk_metrics": chunks, "step_metrics": []}},
                "gen_perf_metrics": {
                    "request_id": 1, "ctx_request_id": request["id"], **ended,
                    "perf_metrics": iterations | {"timing_metrics": part | transfer} | drafts,
                    "time_breakdown_metrics": {"ctx_chunk_metrics": [], "step_metrics": steps}}}

    def steps(self, rand, batches):
        """The steps of a request. Their times are from the clock of the engine's process. 0 means not measured."""
        return [{"forward_start_time": 1.0, "token_time": rand.choice((None, *[377_680 + us / 1e6] * 20)), "iter": at,
                 "gpu_forward_time": rand.choice((0, ms * 0.75)), "gpu_sample_time": rand.choice((0, ms / 16))}
                for at, (us, ms) in enumerate(batches)]


class Static(Executor):
    """The C++ engine with static batches. A pass runs a batch from its first to its last token. Then its requests are complete,
    but still active. The next pass ends them, writes a flush record with the number of the record before, and fetches requests."""

    def one_pass(self):
        frames = []
        self.arrive()
        if self.ended:
            self.iter -= 1
            frames = self.flush()
            self.iter += 1
        started = self.clock.us
        if not self.queue:
            self.wait()
        batch = self.whole_batch()
        finished = batch["finished"]
        if self.entries:
            frames += [[self.entry(request)] for request in finished]
        completed, self.repeat = self.repeat or 0, None
        record = self.record(self.last_ms, len(finished), completed, batch["new"], batch["waited"], batch, 1.0)
        record["staticBatchingStats"]["numScheduledRequests"] = len(finished)
        record["requestStats"] = [{**self.row(request, complete=True), "scheduled": True} for request in finished]
        record["requestStats"] += [{"id": request["id"], "stage": "QUEUED", "contextPrefillPosition": 0,
                                    "numGeneratedTokens": 0, "scheduled": False, "paused": False}
                                   for request in self.queue]
        self.ended, self.stale_new = finished, batch["new"]
        self.last_ms = (self.clock.us - started) / 1000
        self.iter += 1
        return frames + [[record]]

    def whole_batch(self):
        requests, self.queue = self.queue[:MAX_ACTIVE], self.queue[MAX_ACTIVE:]
        start = self.clock.us
        steps = max(request["left"] for request in requests)
        self.clock.us += 3000 * (steps + 1) + self.rand.randrange(1000)
        for request in requests:
            request.update(done=request["prompt"], tokens=request["left"], scheduled=True, paused=False, scheduled_us=start,
                           first_iter=self.iter, first_us=start + 3000, last_us=self.clock.us)
            self.alloc_total += request["blocks"]
            self.alloc_new += request["blocks"] - request["reused"]
            self.reused += request["reused"]
            self.missed += request["missed"]
        return {"new": len(requests), "waited": sum((start - request["arrived"]) / 1000 for request in requests),
                "finished": requests, "contexts": len(requests),
                "context_tokens": sum(request["prompt"] for request in requests), "generating": 512 * len(requests)}


class PyTorch(Life):
    """The PyTorch engine. With the overlap scheduler, it prepares a batch before the results of the previous batch are known."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.features = KINDS[self.kind]
        self.overlap = self.features.get("scheduler") == "overlap"
        self.every = self.features.get("every", 1)
        self.passes = [0.0, 0.0]  # milliseconds of each pass, including its wait for work
        self.last_ms = 0.0  # with the overlap scheduler, a pass waits for the batch before
        self.overrun = 0  # finished requests that are still part of the next batch
        self.new = self.completed = 0  # requests of iterations without a record; the next record reports them
        self.others = [{"active": 0, "kv": [0, 0, 0, 0]} for _ in range(1, RANKS)]
        self.batches = 0

    def one_pass(self):
        """The frames of one pass of the engine's loop: lists of lines."""
        frames, idle_us = [], 0
        if self.batches == 0 and self.first_iter == 0 and "ranks" not in self.features:
            frames.append([self.finish(self.record(0.0, 0, 0, 0, 0.0, {}, 0.0), {})])  # this record reports the size of the KV cache
        if self.active or self.overrun or self.queue:
            self.arrive()
        else:
            if self.overlap and self.batches:  # one more pass, which only ends the last batch
                self.iter += 1
                self.passes.append(0.5)
            idle_us = self.wait()
            self.last_ms = 0.5  # the engine only builds a batch
        needless = self.overrun and not self.active and not self.queue  # nobody waits for the tokens of this batch
        batch = self.work(self.features.get("drafts", False))
        self.batches += 1
        self.passes.append((self.last_ms if self.overlap else batch["ms"]) + idle_us / 1000)
        # The overlap scheduler handles a batch one pass later, or after the next idle time.
        latency = self.passes[-1] + (batch["ms"] + (5000.0 if needless else 0.0) if self.overlap else 0.0)
        self.last_ms = batch["ms"]
        finished = len(batch["finished"])
        active = len(self.active) + finished + self.overrun
        batch["generating"] += self.overrun
        self.overrun = finished if self.features.get("overrun") else 0
        self.new, self.completed = self.new + batch["new"], self.completed + finished
        self.seconds_waited += batch["waited"] / 1000
        drained = not self.active and not self.overrun and (self.new or self.completed)
        if self.iter % self.every == 0 or drained:
            record = self.record(latency, active if self.iter % self.every == 0 else 0, self.completed, self.new,
                                 batch["waited"] if self.features.get("each") else self.seconds_waited, batch,
                                 self.rand.choice((0.0, 0.0, 1.25, 1.5)) if "v2" in self.features else 0.0)
            self.new = self.completed = 0
            record = self.finish(record, batch)
            frames.append([record] + [self.other(record, rank) for rank in range(1, RANKS if "ranks" in self.features else 1)])
        self.iter += 1
        return frames

    def finish(self, record, batch):
        """Adds values that only the PyTorch engine reports."""
        rand, features = self.rand, self.features
        record["timestamp"] = ""
        record["staticBatchingStats"] = dict.fromkeys(
            ("numScheduledRequests", "numContextRequests", "numCtxTokens", "numGenTokens", "emptyGenSlots"), 0)
        record["specDecodingStats"] = None
        if features.get("sequence", True):
            record.update(statsSequence=self.sequence, statsDroppedFrames=self.dropped)
            self.sequence += 1
        if "scheduler" in features:
            record.update(schedulerMode=features["scheduler"], attentionDpRank=0)
        if "scheduler" in features and batch:
            host = self.passes[-1 if self.overlap else -2]
            device = self.passes[-2 if self.overlap else -3]
            record.update(hostStepTimeMS=host, prevDeviceStepTimeMS=device, gpuForwardTimeMS=round(1 + rand.random(), 6))
        if features.get("ranks") == "rank":
            record["rank"] = 0
        if features.get("drafts") and batch:
            generating = batch["generating"]
            record["specDecodingStats"] = {
                "numDraftTokens": batch["drafted"], "numAcceptedTokens": batch["accepted"],
                "numRequestsWithDraftTokens": batch["drafting"], "iterLatencyMS": 0.5, "draftOverhead": 0.1,
                "acceptanceLength": (batch["accepted"] + generating) / generating if generating else 0.0}
        if self.iter % features.get("views_every", 1) == 0:
            self.views(record)
        return record

    def views(self, record):
        """Adds events of the KV cache. Several parts of a record report the same events. Their numbers differ here, so that a
        test notices from which part the exporter reads."""
        rand, features = self.rand, self.features
        few = lambda names: {name: rand.randrange(5) for name in names}
        pool = lambda which: {f"{which}{state}NumBlocks": rand.randrange(1, 100)
                              for state in ("Max", "Free", "Used", "Evictable", "PeakFree", "PeakUsed", "PeakEvictable")}
        reuse = ("iterReusedBlocks", "iterFullReusedBlocks", "iterPartialReusedBlocks", "iterMissedBlocks")
        storage = ("iterAllocTotalBlocks", "iterAllocNewBlocks", "iterGenAllocBlocks")
        storage += tuple(f"iter{move}{unit}" for move in ("Onboard", "Offload", "IntraDeviceCopy", "HostDropped")
                         for unit in ("Blocks", "Bytes"))
        v2, windows = "v2" in features, features.get("windows", ())
        if windows or v2:
            record["kvCacheIterationStats"] = {
                str(size): {**pool("primary"), **({} if v2 else pool("secondary")), **few(reuse), **few(storage),
                            "iterCacheHitRate": 0.5} for size in windows}
        if not v2:
            return
        levels = ("gpu", *features["v2"])
        by_level = lambda most: [rand.randrange(most) for _ in levels]
        record.update(few(("iterSuspendedRequests", "iterResumedRequests", "iterDiskPrefetchBlocks")),
                      kvCacheLevelTiers=levels, iterCachedTokensByLevel=rand.choice(([], by_level(500))))
        groups = [list(windows[:1]), list(windows[1:])] if len(windows) > 1 else [list(windows)]
        if features.get("ssm"):
            groups.append([])
        record["kvCacheIterationStatsByPoolGroup"] = {} if rand.random() < 0.1 else {
            str(at): {"poolGroupId": at, "slotSize": [65536], "windowSizes": sizes, **pool("primary"), **few(storage)}
            for at, sizes in enumerate(groups)}
        if features["v2"]:
            record["kvCacheIterationStatsByColdPoolGroup"] = {
                "0": {"coldPoolGroupId": 0, "slotSize": [65536], "windowSizes": list(windows), **pool("secondary")}}
        lifecycles = {}
        for at, size in enumerate(windows):
            if rand.random() < 0.5:  # the engine reports only life cycles with changes
                row = lifecycles[str(at)] = {"lifeCycleId": at, "poolGroupId": 0, "windowSize": size, **few(reuse)}
                if rand.random() < 0.7:
                    row["kind"] = "attention"
                if rand.random() < 0.7:
                    row.update(iterFullReusedBlocksByLevel=by_level(4), iterPartialReusedBlocksByLevel=by_level(4))
        if features.get("ssm") and rand.random() < 0.5:
            aligned, unaligned, misses = (rand.randrange(3) for _ in range(3))
            lifecycles["9"] = {"lifeCycleId": 9, "poolGroupId": 1, "windowSize": None, "kind": "ssm", "snapshotStats": {
                "iterSnapshotLookups": aligned + unaligned + misses, "iterSnapshotHits": aligned + unaligned,
                "iterSnapshotMisses": misses, "iterSnapshotHitRate": 0.5, "iterReusedTokens": rand.randrange(500),
                "iterUnreusedTokens": rand.randrange(500), "iterAlignedSnapshotHits": aligned,
                "iterUnalignedSnapshotHits": unaligned}}
        if lifecycles:
            record["kvCacheIterationStatsByLifecycle"] = lifecycles

    def other(self, first, rank):
        """The row of another rank for the same iteration."""
        rand, row = self.rand, copy.deepcopy(first)
        contexts, gens = rand.randrange(2), rand.randrange(4)
        row["inflightBatchingStats"] |= {
            "numScheduledRequests": contexts + gens, "numContextRequests": contexts, "numGenRequests": gens,
            "numPausedRequests": 0, "numCtxTokens": 64 * contexts}
        if self.features["ranks"] == "attentionDpRank":
            for name in ("kvCacheIterationStats", "iterSuspendedRequests"):
                row.pop(name, None)
            row.update(attentionDpRank=rank, numQueuedRequests=0, numCompletedRequests=0, numNewActiveRequests=0,
                       newActiveRequestsQueueLatencyMS=0.0)
            return row
        other = self.others[rank - 1]
        new = rand.choice((0, 0, 1)) if self.active else 0
        active = other["active"] + new
        completed = rand.randrange(min(active, 2) + 1) if self.active else active  # all ranks become idle at the same time
        other["active"] = active - completed
        other["kv"] = [count + rand.randrange(3) for count in other["kv"]]
        row.update(rank=rank, numActiveRequests=active, numNewActiveRequests=new, numCompletedRequests=completed,
                   numQueuedRequests=0, newActiveRequestsQueueLatencyMS=0.0, hostStepTimeMS=5.0, gpuMemUsage=1 << 30)
        row["kvCacheStats"].update(zip(("allocTotalBlocks", "allocNewBlocks", "reusedBlocks", "missedBlocks"), other["kv"]))
        row["specDecodingStats"].update(numDraftTokens=2 * gens, numAcceptedTokens=gens, numRequestsWithDraftTokens=gens)
        self.views(row)
        return row


class Delivery:
    """Writes the frames (all rows of one iteration). Some frames and rows become lost, late or absurd, but never the
    first three frames after a start of the engine."""

    def __init__(self, rand, life, write):
        self.rand, self.life, self.write = rand, life, write
        self.delivered, self.records, self.told = 0, 0, 0
        self.lose = self.hold = self.keep = 0
        self.held = []

    def frame(self, frame):
        rand, life = self.rand, self.life
        if "iter" not in frame[0]:  # a finished request
            self.write(frame[0])
            return
        if self.delivered >= 3:
            if self.lose == 0 and rand.random() < 0.002:
                self.lose = rand.choice((1, 1, 2, 5, 30))
            if self.lose:
                self.lose -= 1
                if rand.random() < 0.5:
                    life.dropped += 1  # the engine may count the dropped records itself
                return
            if isinstance(life, PyTorch) and not self.held and not self.hold and rand.random() < 0.002:
                self.hold, self.keep = (rand.choice((1, 2, 5)), rand.randrange(1, 12)) if life.every == 1 else (1, 2)
            if self.hold:
                self.hold -= 1
                self.held.append(frame)
                return
            flush = frame[0]["numActiveRequests"] == 0 and frame[0]["iterLatencyMS"] == 0.0
            if len(frame) == 1 and not flush and rand.random() < 0.002:
                frame = [absurd(rand, frame[0])]
                if frame[0]["iter"] >= 2 ** 40 or frame[0].get("statsSequence", 0) >= 2 ** 40:  # refused
                    self.write(frame[0])
                    return
            if len(frame) > 1 and rand.random() < 0.005:
                frame.pop(rand.randrange(len(frame)))
        self.deliver(frame)
        if self.held:
            self.keep -= 1
            if self.keep <= 0:
                for late in self.held:
                    self.deliver(late)
                self.held = []

    def deliver(self, frame):
        for line in frame:
            self.write(line)
            self.records += 1
        self.delivered += 1
        self.told = max(self.told, frame[0]["iter"])


REFUSED = ("iter", "statsSequence")


def spared(label):
    """True if a record counts the same without this number, except for the metrics of the number."""
    return (label in REFUSED or label.endswith(("Blocks", "NumBlocks", "MemUsage", "Bytes", "ByLevel")) and "PerRequest" not in label
            or label == "tokensPerBlock" or label.startswith(("maxBatchSize", "maxNumTokens", "iterSuspended", "iterResumed")))


def absurd(rand, record):
    """A copy of the record in which one number cannot be right: a key, so that the record is refused, or a number that the
    reference can do without."""
    record = copy.deepcopy(record)
    places = []

    def collect(container, name=""):
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            label = key if isinstance(key, str) else name
            if isinstance(value, (dict, list)):
                collect(value, label)
            elif type(value) is int and label not in NOT_COUNTS and spared(label):
                places.append((container, key, label))

    collect(record)
    container, key, label = rand.choice([place for place in places if place[2] in REFUSED] if rand.random() < 0.3 else places)
    if label in REFUSED:
        container[key] = 2 * 10 ** 12
    else:
        cumulative = label in ("allocTotalBlocks", "allocNewBlocks", "reusedBlocks", "missedBlocks")
        bits = 61 if label.endswith(("Bytes", "MemUsage", "kvCacheSize")) else 54 if cumulative else 41
        container[key] = 2 ** bits if cumulative else rand.choice((-1, 2 ** bits))
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--entries", action="store_true")
    parser.add_argument("--last", choices=KINDS, default="executor", help="kind of the engine at the end of the file")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rand, clock, ids = random.Random(args.seed), Clock(), [0]
    write = lambda line: sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    kinds, lives = list(KINDS), 0
    first = (args.seed - 1) % len(kinds)
    kinds = kinds[first:] + kinds[:first]
    pid, records, first_iter = 4711, 0, rand.choice((0, 60))
    write({"hello": {"model": "any", "version": "1", "pid": pid}})
    if args.entries:  # start with a finished request, so that the exporter uses exact times from the beginning
        write({"perf_metrics": {"timing_metrics": {}}})
    epoch = max(200, min(EPOCH, args.records // 16))
    last = False
    while not last:
        last = records >= args.records
        kind = args.last if last else kinds[lives % len(kinds)]
        engine = {"executor": Executor, "static": Static}.get(kind, PyTorch)
        if first_iter is None:  # the iteration numbers begin a little below the last number of the old engine
            sampled = "every" in KINDS[kind]
            first_iter = 5 if sampled else max(2, delivery.told - rand.randrange(1, 60))
        life = engine(rand, clock, kind, first_iter, ids, args.entries, ran_before=lives == 0 and first_iter > 1)
        delivery = Delivery(rand, life, write)
        lives += 1
        for _ in range(int(epoch * (0.5 + rand.random()) * (life.every if engine is PyTorch else 1))):
            for frame in life.one_pass():
                delivery.frame(frame)
        records += delivery.records
        clock.us += rand.randrange(2_000_000, 60_000_000)  # the engine restarts
        choice = rand.random()
        if choice < 0.3:  # a new process, whose iteration numbers are above those of the old process
            if not last:
                pid += 1
                write({"hello": {"pid": pid}})
            first_iter = life.iter + 1000
        elif choice < 0.45:  # the same, but no hello line announces the new process
            first_iter = life.iter + 1000
        else:
            first_iter = rand.choice((None, 0, rand.randrange(1, 20)))
    print(f"{records} records, {ids[0]} requests", file=sys.stderr)


if __name__ == "__main__":
    main()
