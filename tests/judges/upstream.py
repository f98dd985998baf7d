#!/usr/bin/env python3
"""Compares `--metrics.compat trtllm` with TensorRT-LLM's own collector (upstream), value for value.

  TENSORRT_LLM_SOURCE=DIR upstream.py [--binary PATH] [--kind KIND] [--records N] [--every N] [--seed S]

DIR is a checkout of TensorRT-LLM, or a directory with collector.py, enums.py and perf_utils.py of its tensorrt_llm/metrics.
The exporter and the collector read the same records. Needs the package prometheus_client, which tests/run installs in
target/tools/venv. Exit code 1 if a value differs without a reason in ARGUED.
"""
import argparse
import collections
import importlib
import json
import os
import random
import re
import socket
import sys
import tempfile
import types
from pathlib import Path

import exporter
import upstream_records as records
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

LABELS = {"model_name": "invented", "engine_type": "pytorch"}


def load_upstream(source):
    """Loads upstream's unchanged modules without the rest of their package, which needs a GPU."""
    metrics = source / "tensorrt_llm/metrics"
    sys.modules["upstream"] = types.ModuleType("upstream")
    sys.modules["upstream"].__path__ = [str(metrics if metrics.exists() else source)]
    return importlib.import_module("upstream.collector"), importlib.import_module("upstream.perf_utils")


class Upstream:
    """Upstream's collector, with a separate registry, so that two collectors can run in this process."""

    def __init__(self, modules):
        collector, self.perf_utils = modules
        others = set(REGISTRY._collector_to_names)
        self.collector, self.registry = collector.MetricsCollector(LABELS), CollectorRegistry()
        for metric in set(REGISTRY._collector_to_names) - others:
            REGISTRY.unregister(metric)
            self.registry.register(metric)

    def log(self, iterations, requests, corrected=False):
        for record in iterations:
            self.collector.log_iteration_stats(record)
        for request in requests:
            timing = self.perf_utils.RequestEventTiming
            times = {getattr(timing, name.upper()): time for name, time in request["perf_metrics"]["timing_metrics"].items()}
            knows_both = times.get(timing.FIRST_TOKEN_TIME) and times.get(timing.LAST_TOKEN_TIME)
            length = request["outputTokens"] if knows_both or not corrected else 0
            in_order = (timing.ARRIVAL_TIME, timing.FIRST_SCHEDULED_TIME, timing.FIRST_TOKEN_TIME, timing.LAST_TOKEN_TIME)
            known = [times[event] for event in in_order if times.get(event)]
            times = self.perf_utils.process_req_perf_metrics(times, output_length=length)
            if corrected and known != sorted(known):
                names = self.perf_utils.MetricNames
                for name in (names.TTFT, names.E2E, names.INFERENCE_TIME):
                    times.pop(name, None)
            cached = {self.perf_utils.MetricNames.PROMPT_CACHE_CACHED_TOKENS: request["cachedTokens"]}
            self.collector.log_request_metrics_dict(times | cached | {"finished_reason": "length"})

    def samples(self):
        return samples(generate_latest(self.registry).decode())


class Exporter(exporter.Exporter):
    """The exporter, which reads the records from a socket."""

    def __init__(self, binary, directory):
        path = f"{directory}/socket"
        super().__init__(binary, f"--source=socket:{path}", "--metrics.compat=trtllm", "--poll.interval=10ms", "--log.level=error")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.ends = 0

    def send(self, items):
        self.socket.sendall("".join(json.dumps(item) + "\n" for item in items).encode())

    def samples(self):
        """The page when everything that was sent is counted. To detect this, sends an invalid line and waits until it is counted.
        The exporter counts the line before it publishes the previous lines, so a second invalid line is needed."""
        for _ in range(2):
            self.socket.sendall(b"end\n")
            self.ends += 1
            page = ""
            while not re.search(rf'rejected_total{{.*"not_json".*}} {self.ends}\n', page):
                page = exporter.fetch(f"{self.url}/metrics?collect[]=compat&collect[]=exporter").decode()
        return samples(page)


def samples(page):
    """The values by (family, series). Leaves out the labels that all series have, and histograms without an observation."""
    found = {}
    for family in text_string_to_metric_families(page):
        name = family.name + "_total" * (family.type == "counter")
        empty = family.type == "histogram" and not any(sample.value for sample in family.samples)
        if empty or not name.startswith("trtllm_") or name.startswith("trtllm_exporter_"):
            continue
        for sample in family.samples:
            labels = {key: value for key, value in sorted(sample.labels.items()) if key not in LABELS}
            if "le" in labels:
                labels["le"] = float(labels["le"])  # 64 and 64.0 are the same bound, as in Prometheus 3
            if not sample.name.endswith("_created"):
                found[name, f"{family.type} {sample.name}{labels or ''}"] = sample.value
    return found


def same(a, b):
    return a is not None and b is not None and abs(a - b) <= 1e-9 * max(abs(a), abs(b))


# Cases in which upstream is wrong or reports less: families, test of a point, reason. A point is a series that differs at one time.
# It has the values of the exporter (ours), of upstream's collector (theirs), and of upstream's collector for corrected records
# (corrected). It also has the kind of engine, the last records, and whether the engine is idle.
ARGUED = [
    (r"(request_success|prompt_tokens|generation_tokens|prompt_cached_tokens)_total", lambda p: p.ours is None,
     "only the server knows it: neither /metrics nor /perf_metrics contains it"),
    (r"max_(batch_size|num_tokens)_.*", lambda p: p.ours is None and p.theirs == 0,
     "PyTorch never sets these limits and sends 0; ours are absent"),
    (r"time_per_output_token_seconds", lambda p: same(p.ours, p.corrected),
     "a request without the time of its first token has no time per token; upstream takes the missing time for 0"),
    (r"(time_to_first_token|e2e_request_latency|request_inference_time)_seconds", lambda p: same(p.ours or 0, p.corrected or 0),
     "a request whose times are not in order: a clock was set back, so each time across that moment is too short"),
    (r"spec_decode_.*", lambda p: p.ours is None and not p.records[-1]["specDecodingStats"]["numDraftTokens"],
     "the last iteration drafted nothing; upstream shows ratios of nothing"),
    (r"kv_cache_host_utilization", lambda p: p.ours is None and p.theirs > 1,
     "more blocks in use than there are: the two numbers do not count the same blocks"),
    (r"num_requests_completed_total", lambda p: same(p.ours, p.corrected or 0),
     "the C++ executor repeats the completed requests of its idle flush in the next record; upstream counts them twice"),
    (r"kv_cache_(reused|missed)_blocks_total", lambda p: same(p.ours or 0, p.corrected or 0),
     "counted from the exporter's start and over restarts; upstream ignores counts below those of another engine or rank"),
    (r"num_.*_requests|num_requests_(running|waiting)|total_context_tokens|prefill_batch_occupancy",
     lambda p: p.ours == 0 and p.idle, "an idle engine has no load; upstream keeps the load of the last record"),
    (r"(?!.*_blocks_total|prefill_batch_tokens).*", lambda p: len(p.records) > 1 and same(p.ours, p.corrected),
     "the sum over ranks, once per iteration; upstream shows the rank whose row is last"),
    (r"prefill_batch_tokens", lambda p: p.records[-1].get("inflightBatchingStats") is None and same(p.ours, p.corrected),
     "a static batch has context tokens, too; upstream reads only in-flight batches"),
    (r".*", lambda p: p.ours is None and p.kind == "zero and absent",
     "a value that the last record does not contain, or a share of 0, is unknown; upstream keeps an older one"),
]


def compare(kind, options, modules, directory, differences, reasons):
    """Returns the number of equal points, of points with a reason, and of all points."""
    count = collections.Counter()
    upstream, judge, ours = Upstream(modules), Upstream(modules), Exporter(options.binary, directory)
    steps = records.KINDS[kind](random.Random(f"{options.seed} {kind}"), options.records)
    for number, step in enumerate(steps):
        upstream.log(step.records, step.requests)
        judge.log(step.corrected, step.requests, corrected=True)
        ours.send(step.records + step.requests)
        if number % options.every:
            continue
        last = step.records[-1]
        # A PyTorch engine counts active requests before the batch completes some of them, so subtract the completed ones.
        idle = last.get("numActiveRequests", 0) <= last.get("numCompletedRequests", 0) and not last.get("numQueuedRequests")
        shown = [upstream.samples(), ours.samples(), judge.samples()]
        for family, series in sorted(shown[0].keys() | shown[1].keys()):
            theirs, shown_by_us, corrected = (page.get((family, series)) for page in shown)
            point = types.SimpleNamespace(
                theirs=theirs, ours=shown_by_us, corrected=corrected, kind=kind, records=step.records, idle=idle)
            reason = next((why for families, holds, why in ARGUED if re.fullmatch(families, family[7:]) and holds(point)), None)
            count["all"] += 1
            if same(theirs, shown_by_us):
                count["equal"] += 1
            elif reason:
                count["argued"] += 1
                reasons[reason].add(family)
            else:
                differences[kind, family].append(f"record {number}, {series}: ours {shown_by_us}, upstream {theirs}")
    ours.stop()
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/trtllm-exporter")
    parser.add_argument("--kind", choices=records.KINDS, action="append", help="default: all", metavar="KIND")
    parser.add_argument("--records", type=int, default=240, help="records of each kind")
    parser.add_argument("--every", type=int, default=10, help="compare after every N records")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    modules = load_upstream(Path(os.environ.get("TENSORRT_LLM_SOURCE") or parser.error("set TENSORRT_LLM_SOURCE")))
    differences, reasons, total = collections.defaultdict(list), collections.defaultdict(set), collections.Counter()
    line = "{:20} {:>7} {:>7} {:>7}"
    print(line.format("kind", "equal", "argued", "all"))
    for kind in options.kind or records.KINDS:
        with tempfile.TemporaryDirectory() as directory:
            count = compare(kind, options, modules, directory, differences, reasons)
        total += count
        print(line.format(kind, count["equal"], count["argued"], count["all"]), flush=True)
    print(line.format("all", total["equal"], total["argued"], total["all"]))
    for reason, families in sorted(reasons.items()):
        print(f"argued: {reason}: {' '.join(sorted(families))}")
    for (kind, family), points in differences.items():
        print(f"DIFFERS {kind}: {family}: {len(points)} points; first {points[0]}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
