"""Invents records with the keys of the fixtures and the quirks of TensorRT-LLM.

A step contains the `records` that one poll of trtllm-serve returns. `corrected` are the same records without the quirks: one record
per iteration, and each event counted once.
"""
import json
from collections import namedtuple
from functools import cache, partial
from pathlib import Path

CPP, PYTORCH = "metrics_trt_v1.0.0rc4.json", "metrics_record_SHAPE_2026H2.json"
VIEWS = ("kvCacheIterationStats", "requestStats")
CUMULATIVE = ("reusedBlocks", "missedBlocks")
# `requests` are entries of /perf_metrics.
Step = namedtuple("Step", ["records", "corrected", "requests"], defaults=[[]])


@cache
def fixture(name):
    content = json.loads((Path(__file__).parents[1] / "fixtures" / name).read_text())
    return content["payload"] if isinstance(content, dict) else content


def vary(rand, value, key=""):
    """A copy of a value with other numbers. A 0 stays 0, except in keys that start with `iter`."""
    if isinstance(value, dict):
        return {key: vary(rand, inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [vary(rand, inner, key) for inner in value]
    if isinstance(value, (int, float)):
        return rand.choice((0, 0, value, value + 3)) if key.startswith("iter") else rand.randrange(2 * int(value) + 1)
    return value


class Engine:
    """One engine. Each call of `record` is one pass of its loop."""

    def __init__(self, rand, template=PYTORCH, without=VIEWS, idles=False, scale=1):
        self.rand, self.template, self.without, self.idles, self.scale = rand, template, without, idles, scale
        self.iter = self.sequence = self.active = self.ended = self.reused = self.missed = 0
        self.flushed = False

    def record(self):
        rand, cpp = self.rand, self.template == CPP
        self.iter += not self.flushed  # the record after the C++ executor's idle flush repeats its number
        new = rand.randrange(3) if self.active else 1 + rand.randrange(3)
        self.active += new
        ended = min(self.active - (not self.idles), sum(rand.random() < 0.4 for _ in range(self.active)))
        context, used = min(new, self.active), 7 * self.active
        self.reused, self.missed = (total + rand.randrange(6) * self.scale for total in (self.reused, self.missed))
        template = rand.choice(fixture(self.template))
        record = vary(rand, {key: value for key, value in template.items() if key not in self.without})
        record |= {
            "iter": self.iter, "numNewActiveRequests": new, "numActiveRequests": self.active,
            "numQueuedRequests": rand.choice((0, 0, 3)), "maxNumActiveRequests": 64,
            # A PyTorch engine reports the requests that this batch completed. The C++ executor reports those that the previous
            # pass completed.
            "numCompletedRequests": self.ended if cpp else ended,
            "iterLatencyMS": 0.0 if self.flushed else 4 + 20 * rand.random(), "gpuMemUsage": record["gpuMemUsage"] * self.scale}
        record["inflightBatchingStats"] |= {
            "numScheduledRequests": self.active, "numContextRequests": context, "numGenRequests": self.active - context,
            "numPausedRequests": rand.randrange(2), "numCtxTokens": context * rand.randrange(1, 900) * self.scale}
        record["kvCacheStats"] |= {
            "maxNumBlocks": 1000, "freeNumBlocks": 1000 - used, "usedNumBlocks": used, "tokensPerBlock": 32,
            "reusedBlocks": self.reused, "missedBlocks": self.missed, "allocTotalBlocks": self.missed,
            "allocNewBlocks": self.missed,
            "cacheHitRate": self.reused / (self.reused + self.missed or 1)}
        if "statsSequence" in record:
            self.sequence += 1
            record |= {"statsSequence": self.sequence, "statsDroppedFrames": 0}
        self.active, self.ended, self.flushed = self.active - ended, ended, False
        self.iter += not self.active and not cpp  # PyTorch also numbers a pass without a batch, but writes no record of it
        return record

    def flush(self, last):
        """The record that the C++ executor writes when it becomes idle."""
        self.iter, self.flushed = self.iter + 1, True
        batch = dict.fromkeys(last["inflightBatchingStats"], 0)
        return last | {"iter": self.iter, "iterLatencyMS": 0.0, "numActiveRequests": 0, "numQueuedRequests": 0,
                       "numCompletedRequests": self.ended, "inflightBatchingStats": batch}


class Correction:
    """Removes values that an engine's records report twice. If the engine ran before the exporter started, shifts its counts
    so that they start at 0."""

    def __init__(self, before=None):
        self.iter, self.counted = None, 0
        self.offset = before or {}  # what to add to each count: the counts of earlier engines, or minus the first count

    def apply(self, record):
        completed = record.get("numCompletedRequests", 0)
        before = self.counted if record["iter"] == self.iter else 0
        self.iter, self.counted = record["iter"], max(completed, before)
        kv = record.get("kvCacheStats") or {}
        grown = {key: kv[key] + self.offset.setdefault(key, -kv[key] * (record["iter"] > 1)) for key in CUMULATIVE if key in kv}
        return record | {"numCompletedRequests": max(0, completed - before), "kvCacheStats": kv | grown}


def added(rows):
    """Adds up all numbers of several rows. Other values are copied from the first row."""
    return {key: added([row[key] for row in rows]) if isinstance(value, dict)
            else sum(row[key] for row in rows) if isinstance(value, (int, float)) else value
            for key, value in rows[0].items()}


def plain(rand, count, decorate=lambda rand, record, number: None, **traits):
    """Records of one engine. `decorate` adds the values that only this kind of engine has."""
    engine, correction = Engine(rand, **traits), Correction()
    for number in range(count):
        record = engine.record()
        decorate(rand, record, number)
        yield Step([record], [correction.apply(record)])
        if engine.template == CPP and not engine.active:
            flush = engine.flush(record)
            yield Step([flush], [correction.apply(flush)])


def speculation(rand, record, number):
    drafted = rand.choice((0, 3, 40))
    record["specDecodingStats"] = {"numDraftTokens": drafted, "numAcceptedTokens": drafted // 2, "iterLatencyMS": 1.5,
                                   "acceptanceLength": 1 + drafted / 9, "draftOverhead": 1.5 / record["iterLatencyMS"]}


def sampled(rand, record, number):
    """Only every tenth iteration has a record (iter_perf_stats_interval is 10), and only every second record has
    kvCacheIterationStats."""
    record["iter"] = number * 10
    for name in [name for name in record if name.startswith("kvCacheIterationStats") and number % 2]:
        del record[name]


def sparse(rand, record, number):
    """Removes some values or sets them to 0, and makes some sections null or empty."""
    for section in (record["kvCacheStats"], record["inflightBatchingStats"], record):
        for key in rand.sample(sorted(section.keys() - {"iter"}), 3):
            if isinstance(section[key], dict):
                section[key] = rand.choice((None, {}))
            elif isinstance(section[key], int) and key not in CUMULATIVE and rand.random() < 0.5:
                section[key] = 0
            else:
                del section[key]


def fixed_batches(rand, count):
    for step in plain(rand, count, template=CPP):
        for record in step.records:
            batch = record["inflightBatchingStats"] | {"emptyGenSlots": 2}
            record |= {"staticBatchingStats": batch, "inflightBatchingStats": None}
        yield step  # the corrected record keeps the batch in inflightBatchingStats, where upstream reads it


def disaggregated(rand, record, number):
    record["requestStats"] = [{"id": number, "stage": "GENERATION_IN_PROGRESS", "numGeneratedTokens": 3, "scheduled": True,
                               "disServingStats": {"kvCacheTransferMS": 3.5, "kvCacheSize": 4096}}]


def restarts(rand, count):
    before = {}
    for _ in range(4):
        engine, correction = Engine(rand), Correction(before)
        for _ in range(count // 4):
            record = engine.record()
            corrected = correction.apply(record)
            yield Step([record], [corrected])
        before = {key: corrected["kvCacheStats"][key] for key in CUMULATIVE}


def attention_dp(rand, count):
    """Rows (records) of 4 ranks. Only the batch is the rank's own. All other values are copies from rank 0, or 0."""
    engine, correction = Engine(rand), Correction()
    none = dict.fromkeys(("numQueuedRequests", "numCompletedRequests", "numNewActiveRequests"), 0)
    for _ in range(count // 4):
        first = engine.record()
        own = [first["inflightBatchingStats"] | {key: rand.randrange(9) for key in first["inflightBatchingStats"]
                                                 if key.startswith("num")} for _ in range(3)]
        rows = [first] + [first | none | {"attentionDpRank": rank + 1, "inflightBatchingStats": own[rank]} for rank in range(3)]
        whole = {key: added(rows)[key] for key in ("inflightBatchingStats", "maxNumActiveRequests")}
        yield Step(rows, [correction.apply(first | whole)])


def all_ranks(rand, count):
    """Rows (records) of 4 ranks with each rank's own values, as with TLLM_METRICS_ALL_RANKS."""
    engines = [Engine(rand, without=VIEWS + ("attentionDpRank",)) for _ in range(4)]
    corrections = [Correction() for _ in range(4)]
    for number in range(count // 4):
        rows = [engine.record() | {"iter": number, "rank": rank} for rank, engine in enumerate(engines)]
        whole = added([one.apply(row) for one, row in zip(corrections, rows)])
        kv = added([row["kvCacheStats"] for row in rows])
        whole["iterLatencyMS"] = rows[0]["iterLatencyMS"]
        rate = kv["reusedBlocks"] / (kv["reusedBlocks"] + kv["missedBlocks"] or 1)
        whole["kvCacheStats"] |= {"tokensPerBlock": 32, "cacheHitRate": rate}
        yield Step(rows, [whole])


def perf_metrics(rand, count):
    """Finished requests. A time of 0 means unknown. Two times may be equal. A time may be before the previous one, because
    they may come from the clocks of two hosts."""
    for number, step in enumerate(plain(rand, count)):
        times = [1000.0 + number]
        for _ in range(3):
            times.append(times[-1] + rand.choice((0.0, rand.random() / 9, rand.random() * 9, -0.5)))
        names = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
        times = {name: 0.0 if rand.random() < 0.1 else time for name, time in zip(names, times)}
        # Only a publisher knows the cached tokens and the length of a request.
        cached = rand.choice((0, 64, 65, 700, 9000))
        yield step._replace(requests=[{"request_id": number, "cachedTokens": cached, "outputTokens": rand.choice((1, 2, 40, 900)),
                                       "perf_metrics": {"timing_metrics": times}}])


with_views = partial(plain, without=("requestStats",))
COLD_TIERS = "metrics_v2_cold_tiers_sampled.json"
KINDS = {
    "C++": partial(plain, template=CPP, idles=True),
    "PyTorch": partial(plain, without=VIEWS + ("schedulerMode", "statsSequence", "statsDroppedFrames")),
    "PyTorch, overlap": plain,
    "speculation": partial(plain, decorate=speculation),
    "V1 windows": with_views,
    "V2, shared pools": partial(with_views, template="metrics_v2_shared_pools_host.json"),
    "V2, cold tiers": partial(with_views, template=COLD_TIERS),
    "V2, SSM": partial(with_views, template="metrics_v2_ssm.json"),
    "sampled": partial(with_views, template=COLD_TIERS, decorate=sampled),
    "attention DP": attention_dp,
    "rows of all ranks": all_ranks,
    "disaggregated": partial(plain, decorate=disaggregated),
    "idle gaps": partial(plain, idles=True),
    "restarts": restarts,
    "zero and absent": partial(plain, decorate=sparse),
    "static batching": fixed_batches,
    "huge values": partial(with_views, scale=1 << 22),
    "perf metrics": perf_metrics,
}
