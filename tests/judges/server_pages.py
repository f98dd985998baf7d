#!/usr/bin/env python3
"""Pages of a trtllm-serve one after the other, and what the exporter's page must show after them: the second implementation of what
fold.py does for records.

  server_pages.py SEED      prints {"pages": [text, ...], "expected": [[name, [label=value, ...], value], ...]}

The requests of the first page came before the exporter. Between two of the pages the server is replaced. Names and buckets are those of
TensorRT-LLM's tensorrt_llm/metrics/collector.py. Uses only Python's standard library.
"""
import collections
import json
import random
import sys

from fold import FIRST, LONG, PER_TOKEN, SHORT

CACHED = "0 64 128 256 512 1024 2048 4096 8192"
TIMES = {"time_to_first_token": FIRST, "time_per_output_token": PER_TOKEN, "e2e_request_latency": LONG, "request_queue_time": LONG,
         "request_prefill_time": SHORT, "request_decode_time": LONG, "request_inference_time": LONG}
# The reason on the server's page, and here.
REASONS = {"stop": "stop", "length": "length", "cancelled": "cancelled", "timeout": "timeout", "content_filter": "other"}


class Server:
    """What one process has counted."""

    def __init__(self):
        self.counters = collections.Counter()
        self.observed = {name: [] for name in (*TIMES, "prompt_cached_tokens_per_request")}

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
            self.observed["prompt_cached_tokens_per_request"].append(cached)
            for name, bounds in TIMES.items():
                # Some at a bound, and some above all of them. One token has no time per token.
                seconds = rand.choice((rand.random() / 4, 9 * rand.random(), float(rand.choice(bounds.split())), 9999.5))
                if output > 1 or name != "time_per_output_token":
                    self.observed[name].append(seconds)

    def series(self):
        """(name, label and value) -> value"""
        found = dict(self.counters)
        for name, values in self.observed.items():
            cached = name == "prompt_cached_tokens_per_request"
            family, bounds = (name, CACHED) if cached else (f"{name}_seconds", TIMES[name])
            for bound in (*bounds.split(), "+Inf"):
                found[f"{family}_bucket", ("le", bound)] = sum(value <= float(bound) for value in values)
            found[f"{family}_count", None], found[f"{family}_sum", None] = len(values), sum(values)
        return found

    def page(self):
        lines = []
        for (name, label), value in self.series().items():
            labels = {"engine_type": "pytorch", "model_name": "m"}
            if label:
                labels[label[0]] = label[1] if label[0] != "le" or label[1] == "+Inf" else repr(float(label[1]))
            text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
            lines.append(f"trtllm_{name}{{{text}}} {float(value)!r}\n")
        return "".join(lines)


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


def main():
    rand, server = random.Random(int(sys.argv[1])), Server()
    server.serve(rand, 100)
    pages, increases = [server.page()], collections.Counter()
    for replaced in (False, True, False):
        before = server.series()
        while True:
            # The new server has counted less of everything: else nobody could tell its counts from those of the old one.
            now = Server() if replaced else server
            now.serve(rand, 5 if replaced else 60)
            if not replaced or all(value < before.get(series, 0) or not value for series, value in now.series().items()):
                break
        for series, value in now.series().items():
            increases[series] += value - (0 if replaced else before.get(series, 0))
        server = now
        pages.append(server.page())
    expected = [[*name_here(*series), value] for series, value in increases.items()]
    json.dump({"pages": pages, "expected": expected}, sys.stdout)


if __name__ == "__main__":
    main()
