#!/usr/bin/env python3
"""Generates a sequence of pages of a server, and the values that the exporter's page must have after them. fold.py does the same for
records.

  server_pages.py SEED [--orchestrator]
    prints {"pages": [text, ...], "restart": index, "expected": [[name, [label=value, ...], value], ...]}

The server is a trtllm-serve, or the orchestrator of disaggregated serving. The requests on the first page came before the exporter's start,
so they do not count. The page "restart" is the first one after a restart of the server, so each of its counts began at 0.
Names and buckets are from TensorRT-LLM's tensorrt_llm/metrics/collector.py and tensorrt_llm/serve/perf_metrics.py. Uses only Python's
standard library.
"""
import collections
import json
import random
import sys

from fold import FIRST, LONG, PER_TOKEN, SHORT

CACHED = "0 64 128 256 512 1024 2048 4096 8192"
TIMES = {"time_to_first_token": FIRST, "time_per_output_token": PER_TOKEN, "e2e_request_latency": LONG, "request_queue_time": LONG,
         "request_prefill_time": SHORT, "request_decode_time": LONG, "request_inference_time": LONG}
# Finish reasons: the name on the server's page -> the name on the exporter's page.
REASONS = {"stop": "stop", "length": "length", "cancelled": "cancelled", "timeout": "timeout", "content_filter": "other"}
COMPLETE = "0.1 " + LONG.removesuffix(" 7680")
SIDES = {"ctx": "context", "gen": "generation", "mme": "encoder"}
# The orchestrator's families -> our family and its label. None means that the label is the side.
OF_ORCHESTRATOR = {
    "stream_requests_total": ("requests_total", "mode=stream"),
    "nonstream_requests_total": ("requests_total", "mode=nonstream"),
    "total_responses_total": ("responses_total", ""),
    "validation_exceptions_total": ("request_errors_total", "kind=validation"),
    "http_exceptions_total": ("request_errors_total", "kind=http"),
    "internal_errors_total": ("request_errors_total", "kind=internal"),
    "queue_latency_seconds": ("queue_time_seconds", ""),
    "total_requests_total": ("worker_requests_total", None),
    "retry_requests_total": ("worker_retries_total", None),
    "error_requests_total": ("worker_errors_total", None),
    "completed_requests_total": ("worker_requests_ended_total", None),
    "first_token_latency_seconds": ("worker_time_to_first_byte_seconds", None),
    "per_token_latency_seconds": ("worker_read_interval_seconds", None),
    "complete_latency_seconds": ("worker_request_time_seconds", None),
}


class Process:
    """The counters and histograms of one process."""

    def __init__(self, prefix="", labels=()):
        self.prefix, self.labels = prefix, dict(labels)
        self.counters = collections.Counter()
        # For each histogram: its bounds, and the observed values.
        self.observed = {}

    def histogram(self, name, bounds):
        return self.observed.setdefault(name, (bounds, []))[1]

    def series(self):
        """The values of all series. The key is the name and a label with its value."""
        found = dict(self.counters)
        for name, (bounds, values) in self.observed.items():
            for bound in (*bounds.split(), "+Inf"):
                found[f"{name}_bucket", ("le", bound)] = sum(value <= float(bound) for value in values)
            found[f"{name}_count", None], found[f"{name}_sum", None] = len(values), sum(values)
        return found

    def page(self):
        lines = []
        for (name, label), value in self.series().items():
            labels = dict(self.labels)
            if label:
                labels[label[0]] = label[1] if label[0] != "le" or label[1] == "+Inf" else repr(float(label[1]))
            text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
            lines.append(f"{self.prefix}{name}{f'{{{text}}}' if text else ''} {float(value)!r}\n")
        return "".join(lines)


def some_time(rand, bounds):
    """A random time. Some times are equal to a bound, and some are above all bounds."""
    return rand.choice((rand.random() / 4, 9 * rand.random(), float(rand.choice(bounds.split())), 9999.5))


class Server(Process):
    def __init__(self):
        super().__init__("trtllm_", {"engine_type": "pytorch", "model_name": "m"})

    def serve(self, rand, requests):
        for _ in range(requests):
            if rand.random() < 0.1:
                self.counters["request_error_total", ("http_code", rand.choice(("400", "500")))] += 1
                continue
            prompt, output, cached = rand.randrange(1, 9000), rand.randrange(1, 900), rand.choice((0, 64, 65, 8192, 9000))
            self.counters["request_success_total", ("finished_reason", rand.choice(list(REASONS)))] += 1
            self.counters["prompt_tokens_total", None] += prompt
            self.counters["generation_tokens_total", None] += output
            self.counters["prompt_cached_tokens_total", None] += cached
            for position in range(3):
                drafted = rand.randrange(4)
                self.counters["spec_decode_drafted_tokens_total", ("token_position", str(position))] += drafted
                self.counters["spec_decode_accepted_tokens_total", ("token_position", str(position))] += drafted // 2
            self.histogram("prompt_cached_tokens_per_request", CACHED).append(cached)
            for name, bounds in TIMES.items():
                # A request with one token has no time per token.
                seconds, values = some_time(rand, bounds), self.histogram(f"{name}_seconds", bounds)
                if output > 1 or name != "time_per_output_token":
                    values.append(seconds)

    @staticmethod
    def name_here(name, label):
        """Name and labels on the exporter's page."""
        if name == "request_success_total":
            return "nv_trt_llm_requests_finished_total", [f"reason={REASONS[label[1]]}"]
        if name == "request_error_total":
            return "nv_trt_llm_request_errors_total", [f"code={label[1]}"]
        labels = ["=".join(label)] if label else []
        if name.startswith("prompt_cached_tokens_per_request"):
            return "nv_trt_llm_request_cached_tokens" + name.removeprefix("prompt_cached_tokens_per_request"), labels
        return ("nv_trt_llm_" if "_seconds_" in name else "trtllm_") + name, labels


class Orchestrator(Process):
    def count(self, name, more=1):
        self.counters[name, None] += more

    def serve(self, rand, requests):
        for name in ("validation_exceptions_total", "http_exceptions_total", "internal_errors_total", "total_responses_total"):
            self.count(name, 0)
        for _ in range(requests):
            if rand.random() < 0.05:
                self.count("validation_exceptions_total")
                continue
            streams = rand.random() < 0.7
            self.count("total_requests_total")
            self.count(f"{'stream' if streams else 'nonstream'}_requests_total")
            self.histogram("queue_latency_seconds", FIRST).append(some_time(rand, FIRST))
            # Only some requests have images, which need the encoder, and only the generation side sends a stream.
            if all(self.send(rand, side, streams and side == "gen") for side in SIDES if side != "mme" or rand.random() < 0.3):
                self.count("total_responses_total")
            else:
                self.count(rand.choice(("http_exceptions_total", "internal_errors_total")))

    def send(self, rand, side, streams):
        """Sends a request to a worker. Returns true if the worker served it."""
        first, reads, whole = (self.histogram(f"{side}_{name}_latency_seconds", bounds) for name, bounds in (
            ("first_token", FIRST), ("per_token", FIRST), ("complete", COMPLETE)))
        failed = rand.random() < 0.1
        for name, more in (("total", 1), ("retry", rand.choice((0, 0, 0, 2))), ("error", failed), ("completed", 1)):
            self.count(f"{side}_{name}_requests_total", int(more))
        if not failed:
            whole.append(some_time(rand, COMPLETE))
            if streams:
                first.append(some_time(rand, FIRST))
                reads.extend(some_time(rand, FIRST) for _ in range(rand.randrange(5)))
        return not failed

    @staticmethod
    def name_here(name, label):
        """Name and labels on the exporter's page. `None` for the total, which the exporter shows only as two separate counts."""
        side, _, rest = name.partition("_")
        of_side = side in SIDES
        family = rest if of_side else name
        if family == "total_requests_total" and not of_side:
            return None
        ending = next((end for end in ("_bucket", "_count", "_sum") if family.endswith(end)), "")
        here, own = OF_ORCHESTRATOR[family.removesuffix(ending)]
        labels = [f"side={SIDES[side]}"] if own is None else [own] if own else []
        return f"nv_trt_llm_disagg_{here}{ending}", labels + (["=".join(label)] if label else [])


def main():
    kind = Orchestrator if "--orchestrator" in sys.argv else Server
    rand, server = random.Random(int(sys.argv[1])), kind()
    server.serve(rand, 100)
    pages, increases = [server.page()], collections.Counter()
    for replaced in (False, True, False):
        before = server.series()
        while True:
            # A count of the new server must be lower than that of the old server. Otherwise the exporter could not detect the
            # restart. All other counts begin at 0, too.
            now = kind() if replaced else server
            now.serve(rand, 5 if replaced else 60)
            if not replaced or any(value < before.get(series, 0) for series, value in now.series().items()):
                break
        for series, value in now.series().items():
            increases[series] += value - (0 if replaced else before.get(series, 0))
        server = now
        pages.append(server.page())
    named = ((kind.name_here(*series), value) for series, value in increases.items())
    json.dump({"pages": pages, "restart": 2, "expected": [[*name, value] for name, value in named if name]}, sys.stdout)


if __name__ == "__main__":
    main()
