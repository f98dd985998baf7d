#!/usr/bin/env python3
"""Computes the page that a file of records must produce: a second implementation of the exporter's counting.

fold.py FILE        prints a JSON object: series without model and version -> value

It follows the rules of the metric reference and TensorRT-LLM's own code, not the code of the exporter. It is simple and
slow. It computes all counters and histograms, and the gauges of an idle engine. Uses only Python's standard library.
A flush record is the record that a C++ engine sends when it becomes idle.
"""
import collections
import json
import math
import sys
from datetime import datetime, timezone

LONG = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
SHORT = "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 20 40 80 160 640 2560"
FIRST = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
PER_TOKEN = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
ITERATION = "0.001 0.0025 0.005 0.0075 0.01 0.015 0.02 0.03 0.05 0.075 0.1 0.15 0.2 0.3 0.5 0.75 1 2.5 5 10"
TENTHS = "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1"
POWERS = " ".join(str(1 << n) for n in range(13))
BOUNDS = {
    "nv_llm_input_token_len": "10 50 100 500 1000",
    "nv_llm_output_token_len": "10 50 100 500 1000",
    "nv_trt_llm_iteration_latency_seconds": ITERATION,
    "nv_trt_llm_iteration_scheduled_requests": POWERS,
    "nv_trt_llm_iteration_context_tokens": " ".join(str(64 << n) for n in range(10)),
    "nv_trt_llm_new_request_queue_time_seconds": SHORT,
    "nv_trt_llm_time_to_first_token_seconds": FIRST,
    "nv_trt_llm_time_per_output_token_seconds": PER_TOKEN,
    "nv_trt_llm_e2e_request_latency_seconds": LONG,
    "nv_trt_llm_request_queue_time_seconds": LONG,
    "nv_trt_llm_request_prefill_time_seconds": SHORT,
    "nv_trt_llm_request_decode_time_seconds": LONG,
    "nv_trt_llm_request_inference_time_seconds": LONG,
    "nv_trt_llm_kv_cache_transfer_seconds": SHORT,
    "nv_trt_llm_kv_cache_transfer_bytes": " ".join(str(1 << n) for n in range(16, 35, 2)),
    "nv_trt_llm_request_kv_cache_hit_ratio": TENTHS,
}
# Histograms that are not on the page before their first observation.
LATER = {
    "nv_trt_llm_generation_queue_time_seconds": LONG,
    "nv_trt_llm_host_step_seconds": ITERATION,
    "nv_trt_llm_device_step_seconds": ITERATION,
    "nv_trt_llm_gpu_forward_seconds": ITERATION,
    "nv_trt_llm_rank_imbalance_ratio": "1 1.05 1.1 1.2 1.3 1.5 1.75 2 2.5 3 4 6 8",
    "nv_trt_llm_request_kv_cache_blocks": POWERS,
    "nv_trt_llm_request_kv_cache_new_blocks": POWERS,
    "nv_trt_llm_request_iterations": "1 2 5 10 20 50 100 200 500 1000 2000 5000 10000 20000 50000",
    "nv_trt_llm_request_decoded_tokens_per_iteration": "1 1.25 1.5 1.75 2 2.5 3 4 5 6 8",
    "nv_trt_llm_request_spec_decode_acceptance_ratio": TENTHS,
    "nv_trt_llm_server_time_to_first_token_seconds": FIRST,
    "nv_trt_llm_inter_token_latency_seconds": PER_TOKEN,
    "nv_trt_llm_inter_step_latency_seconds": PER_TOKEN,
    **{f'nv_trt_llm_request_gpu_{kind}_time_seconds{{phase="{phase}"}}': SHORT
       for kind in ("forward", "sample") for phase in ("context", "generation")},
}
COUNTERS = """iterations iterations_lost iterations_unreported engine_restarts requests_started requests_completed context_tokens generation_tokens
 kv_cache_blocks_allocated kv_cache_blocks_newly_allocated kv_cache_blocks_reused kv_cache_blocks_missed
 spec_decode_draft_tokens spec_decode_accepted_tokens spec_decode_drafted_requests spec_decode_draft_seconds
 request_pauses recomputed_tokens""".split()
# Counters that add up numbers of batches. They are incomplete if the engine reports only some of its iterations.
OF_BATCHES = ["context_tokens", "generation_tokens", *(name for name in COUNTERS if name.startswith("spec_decode"))]
CUMULATIVE = {"allocTotalBlocks": "allocated", "allocNewBlocks": "newly_allocated", "reusedBlocks": "reused",
              "missedBlocks": "missed"}
REUSE = {"iterReusedBlocks": "reused", "iterFullReusedBlocks": "full_reused", "iterPartialReusedBlocks": "partial_reused",
         "iterMissedBlocks": "missed"}
STORAGE = {"iterAllocTotalBlocks": "allocated", "iterAllocNewBlocks": "newly_allocated",
           "iterGenAllocBlocks": "generation_allocated", "iterOnboardBlocks": "onboarded", "iterOffloadBlocks": "offloaded",
           "iterIntraDeviceCopyBlocks": "copied", "iterHostDroppedBlocks": "host_dropped"}
MOVED_BYTES = {"iterOnboardBytes": "onboarded", "iterOffloadBytes": "offloaded", "iterIntraDeviceCopyBytes": "copied",
               "iterHostDroppedBytes": "host_dropped"}
SNAPSHOTS = {"iterSnapshotLookups": "lookups_total", "iterSnapshotMisses": "misses_total",
             "iterAlignedSnapshotHits": 'hits_total{alignment="aligned"}',
             "iterUnalignedSnapshotHits": 'hits_total{alignment="unaligned"}',
             "iterReusedTokens": 'tokens_total{outcome="reused"}', "iterUnreusedTokens": 'tokens_total{outcome="unreused"}'}
POOL_STATES = {"max": "Max", "free": "Free", "used": "Used", "evictable": "Evictable", "peak_free": "PeakFree",
               "peak_used": "PeakUsed", "peak_evictable": "PeakEvictable"}
NOT_COUNTS = """id microBatchId poolGroupId coldPoolGroupId lifeCycleId windowSize windowSizes slotSize
 iterSnapshotHits""".split()
LATE_WITHIN = 64  # a late record is at most this many numbers behind the newest one


KEYS = ("iter", "statsSequence", "rank", "attentionDpRank")


def possible(value, key=""):
    """The value without the numbers in it that cannot be right. A list of numbers is dropped as a whole."""
    if isinstance(value, dict):
        return {name: possible(inner, name) for name, inner in value.items() if not absurd(inner, name)}
    if isinstance(value, list):
        return [possible(inner, key) for inner in value]
    return value


def absurd(value, key=""):
    """True if a number, or a number in a list, cannot be right."""
    if isinstance(value, list):
        return any(absurd(inner, key) for inner in value)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or key in NOT_COUNTS:
        return False
    if key.endswith("MS"):
        limit = 10 ** 12
    elif key == "tokensPerBlock":
        limit = 2 ** 20
    elif key.endswith(("Bytes", "MemUsage", "kvCacheSize")):
        limit = 2 ** 60
    elif key in CUMULATIVE:
        limit = 2 ** 53
    else:
        limit = 2 ** 40
    return value < 0 or value > limit


def is_pytorch(r):
    static = r.get("staticBatchingStats")
    return (not r.get("timestamp") or r.get("schedulerMode") is not None or r.get("attentionDpRank") is not None
            or r.get("inflightBatchingStats") is not None and static is not None and not any(static.values()))


def is_static(r):
    return r.get("inflightBatchingStats") is None and r.get("staticBatchingStats") is not None


def scheduled(r):
    return (r.get("inflightBatchingStats") or r.get("staticBatchingStats") or {}).get("numScheduledRequests")


def sums(rows, names):
    """For each key, the sum over the rows that have the key."""
    told = {key: [row[key] for row in rows if row.get(key) is not None] for key in names}
    return {key: sum(values) for key, values in told.items() if values}


def rows_of(view):
    return list((view or {}).values())


def reuse_rows(r):
    """The rows of a record that report reused blocks: one per life cycle of kind attention, or else one per window."""
    rows = [row for row in rows_of(r.get("kvCacheIterationStatsByLifecycle")) if row.get("kind", "attention") == "attention"]
    return rows or rows_of(r.get("kvCacheIterationStats"))


def storage_rows(r):
    """The rows of a record that report allocated and moved blocks. Windows can share the blocks of a pool, so rows of
    pool groups are preferred: they count shared blocks once."""
    return rows_of(r.get("kvCacheIterationStatsByPoolGroup")) or rows_of(r.get("kvCacheIterationStats"))


class Iteration:
    """The rows of one iteration that have arrived so far."""

    def __init__(self, number, late, missing):
        self.number, self.late, self.missing = number, late, missing
        self.ranks = set()
        self.tokens = {}  # rank -> [context tokens, generated tokens]
        self.scheduled = self.context_tokens = 0
        self.active = self.queued = self.started = self.completed = 0
        self.queue_time = None  # (seconds of one request, requests)
        self.waited = None  # seconds that the requests of all ranks waited, reported by rank 0


class Fold:
    def __init__(self, objectives):
        self.objectives = objectives  # microseconds, by name
        self.judged, self.goodput = {}, None
        for objective in (*objectives, *(["all"] if objectives else [])):
            for outcome in ("met", "missed", "unknown"):
                self.judged[objective, outcome] = 0
        self.counts = dict.fromkeys((f"nv_trt_llm_{name}_total" for name in COUNTERS), 0)
        self.observed = {name: [] for name in (*BOUNDS, *LATER)}
        self.transfers, self.transfer_ms = 0, 0.0
        self.events = {}
        self.exact = self.rows_seen = False
        self.lengths_from = None  # "rows" or "entries", decided once an epoch by the first request that shows it
        self.running_seen = False  # rows of running requests show that those of finished ones will come
        self.undecided = []  # lengths and transfers of entries that wait for such rows
        self.process = None
        self.by_rank = {}  # label -> [context tokens, generated tokens]; empty until a second rank appears
        self.last = self.last_end = None  # the last record, and its time
        self.sampled = self.static = False
        self.begin(met_running=True)

    def begin(self, met_running):
        """Prepares for the first record of an engine, also after a restart. If the engine was already running (`met_running`),
        its first counts are only a baseline."""
        self.seen = None  # every iteration up to this one has been counted as received, lost or unreported
        self.open = None  # the iteration whose rows are arriving
        self.ranks = set()
        self.gaps = []  # gaps in the iteration numbers: (first number, last number, cumulative counts before the gap)
        self.skipped = 0  # absurd records since the last valid one
        self.completed_of = (None, 0)
        self.waited_through = None  # C++ only: iterations up to this one may contain the wait for work
        self.sequence, self.gap, self.dropped = None, 0, 0
        self.lost_before = self.counts["nv_trt_llm_iterations_lost_total"]
        self.from_start = not met_running
        self.cumulative = {}  # rank -> key -> value
        self.queue_value, self.queue_carried, self.queue_kind = None, 0.0, None
        self.carried_wait = 0.0
        self.stride, self.active_records = 0, 0
        self.aside, self.by_rank_aside = {}, {}  # sums since the restart; not counted while the statistics are assumed to be sampled
        self.idle, self.account = False, None
        self.pools, self.cold_pools = {}, {}  # the last records with rows of pools
        self.waits = []  # ranges of iteration numbers that may contain the wait for work
        self.handled = None  # PyTorch: the last record whose batch was handled when it says so
        self.end = None  # end of the last iteration, microseconds
        self.was_idle = False  # C++ only: the last record is a flush without queued requests
        self.had_batch = True  # C++ only: the last pass had a batch
        self.typical = 0
        self.lives, self.rounds = {}, 0
        self.ended = set()  # requests whose end was read

    def count(self, name, more):
        if self.sampled and name in OF_BATCHES:
            self.aside[name] = self.aside.get(name, 0) + more
        else:
            self.counts[f"nv_trt_llm_{name}_total"] += more

    def know_sampling(self, r):
        """After a restart, assumes that a PyTorch engine still skips iterations in its records if it did before, until the
        spacing of the iteration numbers is known."""
        if self.active_records >= 3:
            self.sampled = self.stride > 1
        elif not is_pytorch(r):
            self.sampled = False
        if not self.sampled:
            for name, more in self.aside.items():
                self.count(name, more)
            for label, more in self.by_rank_aside.items():
                self.count_rank(label, more)
            self.aside, self.by_rank_aside = {}, {}

    def count_rank(self, label, more):
        totals = self.by_rank_aside if self.sampled else self.by_rank
        before = totals.get(label, [0, 0])
        totals[label] = [before[0] + more[0], before[1] + more[1]]
        self.by_rank.setdefault(label, [0, 0])

    def observe(self, name, value, times=1):
        self.observed[name if name.startswith("nv_llm") else f"nv_trt_llm_{name}"].append((value, times))

    def add_event(self, series, more):
        if more is not None:
            self.events[series] = self.events.get(series, 0) + more

    def line(self, line):
        if "hello" in line:
            pid = line["hello"].get("pid")
            if pid is not None:
                if self.process not in (None, pid) and self.seen is not None:
                    self.restart()
                self.process = pid
        elif "iter" not in line:
            self.entry(line)
        else:
            self.record(line)

    def restart(self):
        self.close()
        self.count_undecided()
        self.lengths_from, self.running_seen = None, False
        self.count("engine_restarts", 1)
        self.begin(met_running=False)

    def record(self, r):
        """Counts one record. A flush record is not an iteration. It has the number of the next iteration."""
        if any(absurd(r[key], key) for key in KEYS if key in r):
            self.skipped += 1
            return
        r = possible(r)
        n, rank = r["iter"], r.get("rank", r.get("attentionDpRank"))
        batch = r.get("inflightBatchingStats")
        flush = (r["numActiveRequests"] == 0 and r["iterLatencyMS"] == 0.0
                 and (batch or {}).get("numScheduledRequests", 0) == 0)
        if self.open and self.open.number == n and not flush and rank not in self.open.ranks | {None}:
            self.other_row(r, rank)
            return
        self.close()
        if self.is_late(r, flush):
            self.iteration(r, Iteration(n, late=True, missing=False), rank, False)
            return
        if self.seen is not None and self.restarted(r, flush):
            self.restart()
        if self.seen is None:
            first = n <= 1 or r.get("statsSequence") is not None and r["statsSequence"] <= 1
            self.from_start = self.from_start or first
            self.idle = n <= 1
        self.know_sampling(r)
        lost_before, rejected = self.counts["nv_trt_llm_iterations_lost_total"], self.skipped > 0
        missing, gap = self.losses(r, flush)
        self.kv(r)
        lost_more = self.counts["nv_trt_llm_iterations_lost_total"] > lost_before or rejected
        latency = (self.flush(r) if flush
                   else self.iteration(r, Iteration(n, late=False, missing=missing), rank, lost_more))
        times = self.time(r, latency, flush, gap)
        self.block = (r.get("kvCacheStats") or {}).get("tokensPerBlock")
        if r.get("requestStats") is not None:
            self.rows(r["requestStats"], times)
        self.last = r

    # Iteration numbers

    def is_late(self, r, flush):
        """True if the record fills a gap in the iteration numbers. The KV cache counts distinguish such a record from the
        first record of a restarted engine."""
        n = r["iter"]
        if flush or self.seen is None or not self.seen - LATE_WITHIN < n < self.seen:
            return False
        for at, (first, last, before) in enumerate(self.gaps):
            if first <= n <= last:
                if self.falls(r, before):
                    return False
                self.gaps[at:at + 1] = [(first, n - 1, before), (n + 1, last, before)]
                return True
        return False

    def falls(self, r, before):
        before, now = before.get(r.get("rank", 0), {}), r["kvCacheStats"]
        return any(now[key] < before[key] for key in CUMULATIVE if key in before and key in now)

    def restarted(self, r, flush):
        n, sequence = r["iter"], r.get("statsSequence")
        if n < self.seen or None not in (sequence, self.sequence) and sequence < self.sequence:
            return True
        return n - self.seen > 1 and self.falls(r, self.cumulative)

    def losses(self, r, flush):
        """Counts the iterations without a record before this record. Returns two values: whether records may be missing,
        and whether iteration numbers are missing."""
        before = max(self.gap, self.dropped)
        n, sequence = r["iter"], r.get("statsSequence")
        through = n - 1 if flush else n
        numbers = missing = 0  # iteration numbers without a record; records that may be missing
        if self.seen is not None:
            numbers = max(0, n - self.seen - 1)
            if numbers:
                self.gaps.append((self.seen + 1, n - 1, {rank: dict(kv) for rank, kv in self.cumulative.items()}))
                del self.gaps[:-LATE_WITHIN]
            if None not in (sequence, self.sequence):
                missing = lost = min(numbers, max(0, sequence - self.sequence - 1))
            else:
                missing, lost = numbers // max(self.stride, 1), 0 if is_pytorch(r) else numbers
            self.gap += lost
            self.count("iterations_unreported", numbers - lost)
        self.sequence = sequence if sequence is not None else self.sequence
        self.seen = through if self.seen is None else max(self.seen, through)
        self.dropped += self.increase(0, "statsDroppedFrames", r.get("statsDroppedFrames"))
        skipped, self.skipped = self.skipped, 0
        lost = max(self.gap, self.dropped)
        self.counts["nv_trt_llm_iterations_lost_total"] = self.lost_before + lost
        return missing + skipped > 0, numbers > 0 or lost > before

    def increase(self, rank, name, value):
        """The increase of a cumulative count of the engine. If the count is lower than before, it has restarted from 0."""
        if value is None:
            return 0
        of_rank = self.cumulative.setdefault(rank, {})
        last = of_rank.get(name, 0 if self.from_start else None)
        of_rank[name] = value
        return 0 if last is None else value - last if value >= last else value

    def kv(self, r):
        for key, name in CUMULATIVE.items():
            self.count(f"kv_cache_blocks_{name}", self.increase(r.get("rank", 0), key, r["kvCacheStats"].get(key)))

    # Iterations

    def flush(self, r):
        n = r["iter"]
        self.completed(r, flush=True)
        if is_pytorch(r):  # a PyTorch engine sends a record without work at its start
            self.idle, self.account = True, 0
        elif not is_static(r):
            self.waited_through = n + 1
        elif not r["numQueuedRequests"]:
            # The next pass waits for work, and the record after the next one has its latency.
            self.waits = [*self.waits[-1:], range(n + 2, n + 3)]

    def completed(self, r, flush=False):
        """Counts completed requests. A C++ engine repeats those of its flush record in the next record, which has the
        same iteration number, or the following one with static batching."""
        n, now = r["iter"] + (flush and is_static(r)), r["numCompletedRequests"]
        already = self.completed_of[1] if self.completed_of[0] == n else 0
        self.count("requests_completed", max(0, now - already))
        self.completed_of = (n, max(already, now))

    def iteration(self, r, it, rank, lost):
        """Counts the first row (record of a rank) of an iteration. Returns the latency if a C++ engine reports it."""
        self.open = it
        it.ranks.add(rank)
        self.ranks.add(rank)
        self.count("iterations", 1)
        if it.late:
            self.count("requests_completed", r["numCompletedRequests"])
        else:
            self.completed(r)
        self.started(r)
        self.account_of(r)
        if is_pytorch(r):
            if r["numActiveRequests"] > 0:
                self.stride, self.active_records = math.gcd(self.stride, r["iter"]), self.active_records + 1
            self.know_sampling(r)
            self.steps(r, it.late)
            if not it.late:
                self.batch_time(r, lost)
            latency = None
        else:
            latency = self.latency(r, it.number)
            if latency is not None:
                self.observe("iteration_latency_seconds", latency)
        if "rank" not in r:
            it.queue_time = self.queue_time(r, it.late)
        elif r["rank"] == 0 and not it.late:
            it.waited = self.wait_of_ranks(r)
        self.batch(r, own=not r.get("attentionDpRank") or "rank" in r)
        self.views(r)
        return latency

    def other_row(self, r, rank):
        """Counts the row of another rank for the same iteration. A row with `rank` has the rank's own numbers. In a row
        with only attentionDpRank, the batch is the rank's own; all other values are copies from rank 0, or 0."""
        self.open.ranks.add(rank)
        self.ranks.add(rank)
        self.skipped = 0
        if "rank" not in r:
            self.batch(r, own=False)
            return
        if not self.open.late:
            self.kv(r)
        self.count("requests_completed", r["numCompletedRequests"])
        self.started(r)
        self.account_of(r)
        self.batch(r, own=True)
        self.views(r)

    def close(self):
        """Ends the open iteration. No more rows of it are expected."""
        it, self.open = self.open, None
        if it is None:
            return
        self.observe("iteration_scheduled_requests", it.scheduled)
        if it.context_tokens:
            self.observe("iteration_context_tokens", it.context_tokens)
        if it.queue_time and len(self.ranks) == 1:
            self.observe("new_request_queue_time_seconds", *it.queue_time)
        if it.waited is not None and it.ranks == self.ranks:
            seconds, self.carried_wait = it.waited + self.carried_wait, 0.0
            if it.started:
                self.observe("new_request_queue_time_seconds", seconds / it.started, it.started)
            else:
                self.carried_wait = seconds
        tokens = [sum(row) for row in it.tokens.values()]
        if len(tokens) >= 2 and len(tokens) == len(self.ranks) and sum(tokens):  # the rows of all ranks arrived
            self.observe("rank_imbalance_ratio", max(tokens) / (sum(tokens) / len(tokens)))
        if it.late:
            return
        left = it.active - it.completed
        if self.account is None or it.missing or it.active <= it.started:
            self.account = max(0, left)
        else:
            self.account = max(0, self.account + it.started - it.completed)
        self.idle = (left <= 0 or self.account <= 0) and it.queued == 0

    def started(self, r):
        self.count("requests_started", r["numNewActiveRequests"])

    def account_of(self, r):
        self.open.active += r["numActiveRequests"]
        self.open.queued += r["numQueuedRequests"]
        self.open.started += r["numNewActiveRequests"]
        self.open.completed += r["numCompletedRequests"]

    def latency(self, r, n):
        """The latency in seconds that a C++ engine reports. None for the 0 after an idle time, and for a latency that
        contains the wait for work."""
        ms = r["iterLatencyMS"]
        if ms <= 0:
            self.waited_through = n + 1
            return None
        if self.waited_through is not None and n <= self.waited_through or any(n in wait for wait in self.waits):
            return None
        return ms / 1000 if self.had_batch else None

    def steps(self, r, late):
        """Observes the times that a PyTorch engine reports, except those that contain the wait for work. The first pass
        after an idle time contains the wait. Its number is that of the first record after the idle time or, if the engine
        reports only some iterations, one of the numbers since the previous record. The host step in a record is that of
        this pass or of the previous pass, and the device step is one pass older."""
        n, overlap = r["iter"], r.get("schedulerMode") == "overlap"
        if self.idle and not late:
            self.waits = [*self.waits[-1:], range(n - max(self.stride, 1) + 1, n + 1)]
        host_of = n if overlap else n - 1
        for name, value, of in (("host_step", r.get("hostStepTimeMS"), host_of),
                                ("device_step", r.get("prevDeviceStepTimeMS"), host_of - 1),
                                ("gpu_forward", r.get("gpuForwardTimeMS"), None)):
            if value and not any(of in wait for wait in self.waits):
                self.observe(f"{name}_seconds", value / 1000)

    def batch_time(self, r, lost):
        """Observes the time of the record's batch. With the overlap scheduler, a record has the latency from the begin of the pass
        that builds the batch until the next pass has handled it, and the duration of the first of the two passes. Thus, the time
        between two batches that were handled is the difference of their latencies, plus the first pass of the earlier one. Without the
        record before, it is the part of the latency in the next pass."""
        n, ms, before = r["iter"], r["iterLatencyMS"], self.handled
        if ms <= 0:
            return
        waited = any(n in wait for wait in self.waits)
        if r.get("schedulerMode") != "overlap":
            if not waited and not (lost and "schedulerMode" in r):
                self.observe("iteration_latency_seconds", ms / 1000)
            return
        if waited and before and not lost and not r["numNewActiveRequests"]:
            return  # all requests of the batch had ended, so it is handled after the idle time; the record before stays the last one
        host = r["hostStepTimeMS"]
        follows = before and not lost and not waited and before["iter"] == n - 1
        taken = ms - before["iterLatencyMS"] + before["hostStepTimeMS"] if follows else ms - host
        self.handled = r
        if taken <= 0:
            return
        self.observe("iteration_latency_seconds", taken / 1000)

    def queue_time(self, r, late):
        """The mean queue time in seconds and the number of new requests. A C++ engine reports how many milliseconds the
        new requests of this iteration waited. A PyTorch engine reports how many seconds all requests have waited since
        its start."""
        value, new, last = r["newActiveRequestsQueueLatencyMS"], r["numNewActiveRequests"], self.queue_value
        if not late:
            if last is not None and value < last:
                self.queue_kind = "each"
            elif last is not None and value == last > 0 and not new:
                self.queue_kind = "sum"
            self.queue_value = value
        if (self.queue_kind or ("sum" if is_pytorch(r) else "each")) == "each":
            return (value / 1000 / new, new) if new else None
        if late:  # an earlier record has already contained the increase
            return None
        if last is None:
            last = 0.0 if self.from_start else value
        self.queue_carried += value - last
        if new and self.queue_carried > 0:
            mean, self.queue_carried = self.queue_carried / new, 0.0
            return mean, new
        return None

    def wait_of_ranks(self, r):
        """The seconds that requests of all ranks have waited since the previous record. Rank 0 reports the sum since the
        start, and the other ranks report 0."""
        value, last = r["newActiveRequestsQueueLatencyMS"], self.queue_value
        self.queue_value = value
        if last is None:
            last = 0.0 if self.from_start else value
        return value - last if value > last else None

    def batch(self, r, own):
        """Counts the batch of one row, with its drafts. A static batch does not tell how many tokens it decodes."""
        batch = r.get("inflightBatchingStats")
        drafts = self.drafts(r, own)
        if batch is None:
            batch, generated, self.static = r["staticBatchingStats"], 0, True
        else:
            generated = batch["numGenRequests"]
            mean = batch.get("avgNumDecodedTokensPerIter")
            generated = math.floor(generated * mean + 0.5) if mean else generated + drafts.get("numAcceptedTokens", 0)
        for key, name in (("numDraftTokens", "draft_tokens"), ("numAcceptedTokens", "accepted_tokens"),
                          ("numRequestsWithDraftTokens", "drafted_requests")):
            self.count(f"spec_decode_{name}", drafts.get(key, 0))
        if own and drafts and drafts["numDraftTokens"] and drafts["numRequestsWithDraftTokens"]:  # else the last time is repeated
            self.count("spec_decode_draft_seconds", drafts["iterLatencyMS"] / 1000)
        self.count("context_tokens", batch["numCtxTokens"])
        self.count("generation_tokens", generated)
        rank = r.get("rank", r.get("attentionDpRank"))
        if rank is not None:
            self.rank(rank, [batch["numCtxTokens"], generated])
        self.open.scheduled += batch["numScheduledRequests"]
        self.open.context_tokens += batch["numCtxTokens"]

    def rank(self, rank, tokens):
        """Counts the tokens of one rank. Counting starts when a second rank appears, and then includes all rows of this
        iteration."""
        self.open.tokens[rank] = tokens
        rows = {rank: tokens}
        if not self.by_rank:
            rows = self.open.tokens if len(self.ranks - {None}) > 1 else {}
        for number, more in rows.items():
            label = str(number) if 0 <= number < 64 else "other"
            self.count_rank(label, more)

    def drafts(self, r, own):
        """The drafts of one row. If it is not the rank's `own` row, its drafts are a copy of those of rank 0. The requests of the
        rank have as many drafts and accepted tokens as those of rank 0 on average, rounded so that no error adds up."""
        drafts = r.get("specDecodingStats") or {}
        if own or not drafts:
            return drafts
        of, requests, n = drafts["numRequestsWithDraftTokens"], r["inflightBatchingStats"]["numGenRequests"], r["iter"]
        if not of:
            return {}
        def share(total):
            whole, rest = divmod(total * requests, of)
            return whole + (n % of + 1) * rest // of - n % of * rest // of
        return {"numDraftTokens": share(drafts["numDraftTokens"]), "numAcceptedTokens": share(drafts["numAcceptedTokens"]),
                "numRequestsWithDraftTokens": requests}

    def views(self, r):
        """Counts events of the KV cache since the previous record. Several parts of a record report the same events, and
        each event is counted from one of them."""
        self.add_event("nv_trt_llm_request_suspensions_total", r.get("iterSuspendedRequests"))
        self.add_event("nv_trt_llm_request_resumptions_total", r.get("iterResumedRequests"))
        self.add_event("nv_trt_llm_kv_cache_disk_prefetched_blocks_total", r.get("iterDiskPrefetchBlocks"))
        for family, names, rows in (("blocks", REUSE, reuse_rows(r)), ("blocks", STORAGE, storage_rows(r)),
                                    ("bytes", MOVED_BYTES, storage_rows(r))):
            for key, value in sums(rows, names).items():
                self.add_event(f'nv_trt_llm_kv_cache_window_{family}_total{{event="{names[key]}"}}', value)
        tiers = r.get("kvCacheLevelTiers") or []
        self.by_tier("cached_tokens", r.get("iterCachedTokensByLevel"), tiers)
        for row in rows_of(r.get("kvCacheIterationStatsByLifecycle")):
            if row.get("kind", "attention") == "attention":
                self.by_tier("kv_cache_full_reused_blocks", row.get("iterFullReusedBlocksByLevel"), tiers)
                self.by_tier("kv_cache_partial_reused_blocks", row.get("iterPartialReusedBlocksByLevel"), tiers)
            for key, value in (row.get("snapshotStats") or {}).items():
                if key in SNAPSHOTS:
                    self.add_event(f"nv_trt_llm_ssm_snapshot_{SNAPSHOTS[key]}", value)
        if storage_rows(r):
            self.pools = r
        if rows_of(r.get("kvCacheIterationStatsByColdPoolGroup")) or storage_rows(r):
            self.cold_pools = r

    def by_tier(self, name, levels, tiers):
        for tier, value in zip(tiers, levels or []):
            self.add_event(f'nv_trt_llm_{name}_total{{tier="{tier}"}}', value)

    # Requests

    def time(self, r, latency, flush, gap):
        """Times of events in this iteration. It starts at the end of the previous iteration. After an idle time or a loss,
        it starts at its own end minus the last latency."""
        if not r.get("timestamp"):
            self.last_end = None  # without a timestamp, the exporter uses the time of receipt
            return None
        if latency is not None:
            self.typical = int(r["iterLatencyMS"] * 1000)
        stamp = datetime.fromisoformat(r["timestamp"].replace("Z", "+00:00"))
        delta = stamp - datetime(1970, 1, 1, tzinfo=timezone.utc)
        end = (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
        continuous = self.end is not None and not gap
        if self.end is None:
            start = end - self.typical
        elif continuous and not self.was_idle:
            start = self.end
        else:
            start = max(end - self.typical, self.end)
        woken = self.was_idle and self.end is not None
        self.end, self.last_end, self.was_idle = end, end, flush and not r["numQueuedRequests"]
        if not flush:
            self.had_batch = scheduled(r) != 0
        # A pass ends the previous batch, starts its own batch, and then sets the timestamp of the record. A static batch
        # has already run before the timestamp.
        begun = start if is_static(r) else end
        return {"arrived": begun if woken else start, "scheduled": begun, "first": end, "ended": end, "continuous": continuous}

    def rows(self, rows, times):
        """Reads the request rows of a record. A request arrives with its first row, is scheduled with the first row that
        says so, has its first token with the first row with tokens, and ends with the pass that reports it complete. Times
        in lost iterations are unknown, and so are times of requests that started before the first record. A request
        without a token was cancelled, so it is unknown whether it met an objective."""
        self.rounds += 1
        self.running_seen = self.running_seen or bool(rows)
        known = times["continuous"] and self.rounds > 1
        for row in rows:
            number, tokens = row["id"], row["numGeneratedTokens"]
            if row["stage"] == "GENERATION_COMPLETE":
                if number in self.ended:
                    continue
                self.ended.add(number)
                self.recomputed(self.lives.get(number), row)
                unseen = None
                if row["scheduled"] and known:  # a whole static batch can run between two records
                    unseen = {"arrived": times["arrived"], "scheduled": None, "first": None, "tokens": 0}
                self.complete(row, self.lives.pop(number, unseen), times, known)
                continue
            life = self.lives.get(number)
            if life is None or tokens < life["tokens"]:
                life = self.lives[number] = {"arrived": times["arrived"] if known else None, "scheduled": None, "first": None,
                                             "paused": False}
            self.recomputed(life, row)
            life["tokens"], life["round"], life["queued"] = tokens, self.rounds, row["stage"] == "QUEUED"
            if row["scheduled"] and life["scheduled"] is None:
                life["scheduled"] = times["scheduled"]
                life["arrived"] = life["arrived"] if known else None
            if tokens > 0 and life["first"] is None:
                life["first"] = times["first"]
                life["arrived"] = life["arrived"] if known else None
            if row["paused"] and not life["paused"]:
                self.count("request_pauses", 1)
            life["paused"] = row["paused"]
        if self.rounds % 64 == 0:  # forget requests without recent rows: their last row was lost
            self.lives = {number: life for number, life in self.lives.items()
                          if life["round"] >= self.rounds - (65536 if life["queued"] else 64)}

    def recomputed(self, life, row):
        """Counts the tokens of a context that is computed again, because the request was paused. It has computed all tokens but the
        last one if it has an answer, and else those up to its highest position. A block that it finds is not computed."""
        if life is None or "reusedBlocksPerRequest" not in row or not self.block:
            return
        place, blocks, generates = row["contextPrefillPosition"], row["reusedBlocksPerRequest"], row["stage"].startswith("GEN")
        was, reused, highest, generated = life.get("context", (0, 0, 0, False))
        highest = max(highest, was)
        begin = 0 if place < was or generated and place > was else was
        end = place - generates if life.get("tokens") else min(place, highest)
        self.count("recomputed_tokens", max(0, end - begin - max(0, blocks - reused) * self.block))
        life["context"] = place, blocks, highest, generates

    def complete(self, row, life, times, known):
        self.rows_seen = True
        self.lengths_from = self.lengths_from or "rows"
        ended, transfer = times["ended"], row["disServingStats"]
        if self.lengths_from == "rows":
            self.undecided = []
            self.lengths(row["contextPrefillPosition"], row["numGeneratedTokens"])
        if transfer and self.lengths_from == "rows":
            self.transfers += 1
            self.transfer_ms += transfer["kvCacheTransferMS"]
        self.observe("request_decoded_tokens_per_iteration", row["avgNumDecodedTokensPerIter"])
        if self.exact:
            return
        tokens = row["numGeneratedTokens"]
        judged = (None, None, None)
        if life and life["arrived"] is not None and (tokens >= life["tokens"] or not tokens) and (
                known or None not in (life["scheduled"], life["first"])):
            first = life["first"] if life["first"] is not None else ended if tokens else None
            scheduled = life["scheduled"]
            if scheduled is None and tokens:
                scheduled = times["scheduled"]
            seconds = [None if us is None else us / 1e6 for us in (life["arrived"], scheduled, first, ended)]
            self.times(*seconds, max(tokens, life["tokens"]))
            judged = (seconds[0], seconds[2], seconds[3])
        if not self.sampled:  # if the engine skips iterations, some requests have no rows
            self.judge(*(judged if tokens else (None, None, None)), tokens or None, failed=False)
        self.blocks(row["allocTotalBlocksPerRequest"], row["allocNewBlocksPerRequest"], row["reusedBlocksPerRequest"],
                    row["missedBlocksPerRequest"])
        if transfer:
            self.transfer(transfer["kvCacheTransferMS"] / 1000, transfer["kvCacheSize"])

    def lengths(self, prompt, output):
        if prompt:
            self.observe("nv_llm_input_token_len", prompt)
        if output is not None:
            self.observe("nv_llm_output_token_len", output)

    def times(self, arrived, scheduled, first, ended, tokens, skipped=0, computed=None):
        """Observes the times of a request. If another server sends the tokens, `computed` is when the prompt was, and `skipped`
        tokens are sent between the first one and `first`."""
        between = lambda a, b: None if a is None or b is None else b - a
        computed = first if computed is None else computed
        pairs = {"time_to_first_token": (arrived, first), "e2e_request_latency": (arrived, ended),
                 "request_prefill_time": (scheduled, computed), "request_decode_time": (first, ended),
                 "request_inference_time": (scheduled, ended)}
        for name, (a, b) in pairs.items():
            if (between(a, b) or 0) > 0:
                self.observe(f"{name}_seconds", b - a)
        waited, decode = between(arrived, scheduled), between(first, ended)
        if waited is not None and waited >= 0:  # a queue time of 0 is valid
            self.observe("request_queue_time_seconds", waited)
        if tokens is not None and tokens >= 2 + skipped and (decode or 0) > 0:
            self.observe("time_per_output_token_seconds", decode / (tokens - 1 - skipped))

    def judge(self, arrived, first, ended, tokens, failed, skipped=0, seen=None):
        """Counts a request for each objective. For `all`, it is unknown if any objective is unknown, otherwise missed if
        any is missed, otherwise met. A time equal to the limit meets the objective."""
        def micros(a, b):
            return None if a is None or b is None or b < a else round((b - a) * 1e6)
        took = {"ttft": micros(arrived, first) if seen is None else round(seen * 1e6), "e2e": micros(arrived, ended), "tpot": None}
        steps = 1
        if tokens is not None:
            steps = max(tokens - 1 - skipped, 1)
            took["tpot"] = 0 if tokens < 2 else None if tokens < 2 + skipped else micros(first, ended)
        outcomes = []
        for objective, limit in self.objectives.items():
            time, parts = took[objective], steps if objective == "tpot" else 1
            outcomes.append("missed" if failed else "unknown" if time is None else "met" if time <= limit * parts else "missed")
            self.judged[objective, outcomes[-1]] += 1
        if outcomes:
            together = next((worst for worst in ("unknown", "missed") if worst in outcomes), "met")
            self.judged["all", together] += 1
            if tokens is not None:
                self.goodput = (self.goodput or 0) + (tokens if together == "met" else 0)

    def blocks(self, total, new, reused, missed):
        if reused + missed > 0:
            self.observe("request_kv_cache_hit_ratio", reused / (reused + missed))
        self.observe("request_kv_cache_blocks", total)
        self.observe("request_kv_cache_new_blocks", new)

    def transfer(self, seconds, size):
        if seconds > 0:
            self.observe("kv_cache_transfer_seconds", seconds)
        if size > 0:
            self.observe("kv_cache_transfer_bytes", size)

    def entry(self, line):
        """Counts a finished request with exact times. After the first one, latencies come only from such entries."""
        if not self.exact:
            assert not self.rows_seen, "the test's entries begin before its rows"
        self.exact = True
        of_pair = "ctx_perf_metrics" in line and "gen_perf_metrics" in line
        parts = [line[side] for side in ("ctx_perf_metrics", "gen_perf_metrics") if side in line] or [line]
        context, last = parts[0], parts[-1]
        reason, tokens, prompt = last.get("finish_reason"), last.get("output_tokens"), context.get("prompt_tokens")
        if reason:
            for name in ("stop", "length", "timeout", "cancelled", "other"):
                self.add_event(f'nv_trt_llm_requests_finished_total{{reason="{name}"}}', int(name == reason))
        begun, t = (part["perf_metrics"]["timing_metrics"] for part in (context, last))
        moved = t["kv_cache_transfer_end"] - t["kv_cache_transfer_start"] if "kv_cache_transfer_start" in t else None
        if not self.lengths_from and not self.running_seen:
            self.lengths_from = "entries"
        if self.lengths_from != "rows":
            self.undecided.append((prompt, tokens, moved))
        if self.lengths_from == "entries":
            self.count_undecided()
        # A generation server sends the context server's token when it schedules the request after the transfer. Otherwise the
        # first token that it stamps is the second of the answer.
        own, scheduled, arrived = t.get("first_token_time"), t.get("first_scheduled_time"), t.get("arrival_time")
        end = t.get("kv_cache_transfer_end")
        is_received = moved is not None and scheduled is not None and end <= scheduled
        if is_received and arrived is not None:
            ready = begun.get("first_token_time") if of_pair else None
            start = arrived if ready is None or ready > scheduled else max(arrived, ready)
            queue = scheduled - start - max(0, end - max(start, t["kv_cache_transfer_start"]))
            if queue >= 0:
                self.observe("generation_queue_time_seconds", queue)
        receives = of_pair or moved is not None and own is not None and end <= own
        sent, skipped = (scheduled, 0) if receives and is_received else (own, 1 if receives else 0)
        arrival, ended = begun.get("arrival_time"), t.get("last_token_time")
        if of_pair:
            self.times(arrival, begun.get("first_scheduled_time"), sent, ended, tokens, skipped, begun.get("first_token_time"))
        else:
            self.times(arrival, begun.get("first_scheduled_time"), own, ended, tokens)
        times = [arrival, sent, ended, tokens]
        whole = None if not of_pair or None in (arrival, ended) or ended < arrival else ended - arrival
        if whole is not None and 0 <= arrival - (line.get("disagg_server_arrival_time") or arrival) <= 60:
            whole = ended - line["disagg_server_arrival_time"] if line.get("disagg_server_arrival_time") else whole
        at_server = self.at_server(line, begun, whole)
        if reason in ("cancelled", "other"):  # the client ended the request, or it may have failed
            times, at_server = [None] * 4, None
        self.judge(*times, failed=reason == "timeout", skipped=skipped, seen=at_server if of_pair else None)
        for part in parts:
            self.token_steps(part)
        if moved is not None:
            self.transfer(moved, t["kv_cache_size"])
        metrics = last["perf_metrics"]
        if "first_iter" in metrics:
            self.observe("request_iterations", metrics["last_iter"] - metrics["first_iter"] + 1)
        kv = context["perf_metrics"].get("kv_cache_metrics")
        if kv:
            self.blocks(kv["num_total_allocated_blocks"], kv["num_new_allocated_blocks"], kv["num_reused_blocks"],
                        kv["num_missed_blocks"])
        spec = metrics.get("speculative_decoding")
        if spec:
            accepted, drafted = spec["total_accepted_draft_tokens"], spec["total_draft_tokens"]
            self.observe("request_spec_decode_acceptance_ratio", accepted / drafted)
            self.add_event('nv_trt_llm_request_draft_tokens_total{outcome="proposed"}', drafted)
            self.add_event('nv_trt_llm_request_draft_tokens_total{outcome="accepted"}', accepted)

    def at_server(self, line, begun, whole):
        """The time to the first token at the orchestrator, or at the server of a request that is not of a pair. 0 and null mean
        unknown. If the answer is not streamed, both stamp the first token when all of it is ready. `whole`: seconds of a pair's answer."""
        is_pair = "ctx_perf_metrics" in line
        times, name = (line, "disagg_server") if is_pair else (begun, "server")
        arrived, first = times.get(f"{name}_arrival_time"), times.get(f"{name}_first_token_time")
        token, last = begun.get("first_token_time"), begun.get("last_token_time")
        if not is_pair and first and token and last and token < last <= first:
            return None
        if not (arrived and first and first > arrived) or whole is not None and first - arrived >= whole:
            return None
        self.observe("server_time_to_first_token_seconds", first - arrived)
        return first - arrived

    def token_steps(self, part):
        """Observes times between tokens and on the GPU. With speculative decoding, a step produces several tokens. The last
        chunk of the prompt produces the first token. 0 means not measured."""
        steps = part.get("time_breakdown_metrics") or {}
        chunks, decoding = steps.get("ctx_chunk_metrics", []), steps.get("step_metrics", [])
        at = lambda of: [step["token_time"] for step in of if step["token_time"]]
        times = at(chunks)[-1:] + at(decoding)
        name = "inter_step" if part["perf_metrics"].get("speculative_decoding") else "inter_token"
        for before, after in zip(times, times[1:]):
            if after > before:
                self.observe(f"{name}_latency_seconds", after - before)
        for phase, of in (("context", chunks), ("generation", decoding)):
            for kind in ("forward", "sample"):
                ms = sum(step[f"gpu_{kind}_time"] for step in of)
                if ms:
                    self.observe(f'request_gpu_{kind}_time_seconds{{phase="{phase}"}}', ms / 1000)

    def count_undecided(self):
        for prompt, output, moved in self.undecided:
            self.lengths(prompt, output)
            if moved is not None:
                self.transfers += 1
                self.transfer_ms += moved * 1000
        self.undecided = []

    def page(self):
        self.count_undecided()
        self.close()
        series = {**self.counts, **self.events}
        if self.exact or not self.sampled:  # otherwise the request rows cover only some of the iterations
            outcomes = collections.Counter()
            for (objective, _), requests in self.judged.items():
                outcomes[objective] += requests
            for (objective, outcome), requests in self.judged.items():
                if outcome == "unknown" and outcomes["all"]:  # completed requests that nothing has judged
                    requests += max(0, self.counts["nv_trt_llm_requests_completed_total"] - outcomes[objective])
                series[f'nv_trt_llm_objective_requests_total{{objective="{objective}",outcome="{outcome}"}}'] = requests
            if self.goodput is not None:
                series["nv_trt_llm_goodput_tokens_total"] = self.goodput
        for rank, tokens in self.by_rank.items():
            for kind, number in zip(("context", "generation"), tokens):
                series[f'nv_trt_llm_rank_{kind}_tokens_total{{rank="{rank}"}}'] = number
        if self.active_records >= 3:
            series["nv_trt_llm_statistics_interval_iterations"] = self.stride
        if self.static:
            del series["nv_trt_llm_generation_tokens_total"]
        if self.sampled:
            for name in OF_BATCHES:
                series.pop(f"nv_trt_llm_{name}_total", None)
            series = {name: value for name, value in series.items() if "_rank_" not in name}
        for name, bounds in {**BOUNDS, **LATER}.items():
            if name in BOUNDS or self.observed[name]:
                histogram(series, name, bounds.split(), self.observed[name])
        disaggregated = "nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type=\"%s\"}"
        series[disaggregated % "kv_cache_transfer_ms"] = self.transfer_ms
        series[disaggregated % "request_count"] = self.transfers
        return {**series, **self.gauges()}

    def gauges(self):
        """Gauges at the end of the file. The engine is idle, so load gauges are 0, and other gauges keep their last value."""
        r, kv = self.last, self.last["kvCacheStats"]
        blocks = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="%s"}'
        requests = 'nv_trt_llm_request_metrics{request_type="%s"}'
        general = 'nv_trt_llm_general_metrics{general_type="%s"}'
        total = lambda name: self.counts[f"nv_trt_llm_kv_cache_blocks_{name}_total"]
        series = {
            blocks % "max": kv["maxNumBlocks"], blocks % "used": kv["usedNumBlocks"],
            blocks % "free": kv["freeNumBlocks"], blocks % "tokens_per": kv["tokensPerBlock"],
            blocks % "reused": kv["reusedBlocks"], blocks % "fraction": kv["usedNumBlocks"] / kv["maxNumBlocks"],
            requests % "max": r["maxNumActiveRequests"], requests % "active": 0, requests % "scheduled": 0,
            requests % "waiting": 0, requests % "context": 0, general % "iteration_counter": r["iter"],
            "nv_trt_llm_queued_requests": 0,
            "nv_trt_llm_kv_cache_pressure_ratio": (kv["maxNumBlocks"] - kv["freeNumBlocks"]) / kv["maxNumBlocks"],
            "nv_trt_llm_kv_cache_hit_ratio": total("reused") / (total("reused") + total("missed")),
            "nv_trt_llm_kv_cache_reuse_efficiency_ratio": total("reused") / (total("reused") + total("missed")),
            'nv_trt_llm_request_latency_info{from="%s"}' % ("perf_metrics" if self.exact else "request_stats"): 1,
        }
        if self.last_end is not None:
            series[general % "timestamp"] = self.last_end
        if len(rows_of(self.pools.get("kvCacheIterationStatsByPoolGroup"))) < 2:  # otherwise the blocks have different sizes
            series["nv_trt_llm_kv_cache_available_tokens"] = kv["freeNumBlocks"] * kv["tokensPerBlock"]
        for key in ("gpu", "cpu", "pinned"):
            series['nv_trt_llm_runtime_memory_metrics{memory_type="%s"}' % key] = r[key + "MemUsage"]
        cold = rows_of(self.cold_pools.get("kvCacheIterationStatsByColdPoolGroup")) or storage_rows(self.cold_pools)
        for pool, rows in (("primary", storage_rows(self.pools)), ("secondary", cold)):
            states = {f"{pool}{field}NumBlocks": state for state, field in POOL_STATES.items()}
            for key, value in sums(rows, states).items():
                series[f'nv_trt_llm_kv_cache_{pool}_pool_blocks{{state="{states[key]}"}}'] = value
        return series


def histogram(series, name, bounds, observed):
    label = {"nv_llm_input_token_len": 'response_metric_type="total_input_tokens"',
             "nv_llm_output_token_len": 'response_metric_type="total_output_tokens"'}.get(name)
    if "{" in name:
        name, label = name.rstrip("}").split("{")
    limits, inner = [float(bound) for bound in bounds], [0] * (len(bounds) + 1)
    total, count = 0.0, 0
    for value, times in observed:
        inner[next((at for at, limit in enumerate(limits) if value <= limit), len(limits))] += times
        total += value * times
        count += times
    below = 0
    for bound, here in zip([*bounds, "+Inf"], inner):
        below += here
        series[f'{name}_bucket{{{label + "," if label else ""}le="{bound}"}}'] = below
    end = f"{{{label}}}" if label else ""
    series[f"{name}_sum{end}"], series[f"{name}_count{end}"] = total, count


def main():
    given = sys.argv[2].split(",") if len(sys.argv) > 2 else []
    fold = Fold({name: int(ms) * 1000 for name, ms in (objective.split("=") for objective in given)})
    with open(sys.argv[1]) as lines:
        for line in lines:
            fold.line(json.loads(line))
    json.dump(fold.page(), sys.stdout)


if __name__ == "__main__":
    main()
