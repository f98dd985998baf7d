"""Runs fire drills and prints docs/drills.md: what the page of each scenario shows, beside a healthy engine.

usage: drills.py EXPORTER [--seconds S]     One engine after the other, at six times real speed.
"""

import argparse
import json
import subprocess
import sys
import time

from exporter import Exporter, until

HEALTHY = "healthy-default"
DRILLS = [
    "batch-limit", "kv-capacity", "kv-reservation", "kv-thrash", "context-blocking", "generation-work", "speculation", "frontend",
    "context-work", "statistics-lost",
]
SPEED = 6
HEAD = """# Fire drills

A fire drill is a simulated engine whose trouble is known. Train on it: start it, look at the page, at `doctor`, at the
dashboards and the alerts, say what limits the engine, and compare with the cause below.

```
trtllm-exporter --source 'sim:?scenario=kv-thrash' --gpu off
```

`seed=N` gives other requests, and `speed=X` runs X times as fast. All scenarios: `trtllm-exporter catalog --scenarios`. Names with
`-cpp` are for the C++ Executor, and names with `-v1` for the first KV cache manager of the PyTorch backend. `healthy-…` are
engines without trouble, whose load looks alarming or not.

The tables have what differs from the engine `{healthy}` by more than a quarter, as `{command}` measured it. Times and rates are those
of the engine's own clock.
"""


def mean(before, after, name):
    total, count = (after.value(f"{name}_{end}") - before.value(f"{name}_{end}") for end in ("sum", "count"))
    return total / count if count else None


def measures(before, after, seconds):
    """The measures of an engine by name. A measure that the page does not have is absent."""

    def rate(name):
        return (after.value(name) - before.value(name)) / seconds if after.values(name) else None

    def ratio(part, other):
        part, other = rate(part), rate(other)
        return 100 * part / (part + other) if part and other else None

    blocks = {kind: after.values("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind) for kind in ("used", "max")}
    queued = after.values("nv_trt_llm_queued_requests")
    state = [has["state"] for name, has, value in after.samples if name == "nv_trt_llm_engine_state" and value == 1]
    found = {
        "state (`nv_trt_llm_engine_state`)": state[0],
        "requests completed a second (`nv_trt_llm_requests_completed_total`)": rate("nv_trt_llm_requests_completed_total"),
        "tokens generated a second (`nv_trt_llm_generation_tokens_total`)": rate("nv_trt_llm_generation_tokens_total"),
        "requests in the queue (`nv_trt_llm_queued_requests`)": queued[0] if queued else None,
        "requests of a batch, mean (`nv_trt_llm_iteration_scheduled_requests`)": mean(before, after, "nv_trt_llm_iteration_scheduled_requests"),
        "time to first token, mean, s (`nv_trt_llm_server_time_to_first_token_seconds`)": mean(before, after, "nv_trt_llm_server_time_to_first_token_seconds"),
        "queue time, mean, s (`nv_trt_llm_request_queue_time_seconds`)": mean(before, after, "nv_trt_llm_request_queue_time_seconds"),
        "time of an iteration, mean, s (`nv_trt_llm_iteration_latency_seconds`)": mean(before, after, "nv_trt_llm_iteration_latency_seconds"),
        "KV cache in use, % (`nv_trt_llm_kv_cache_block_metrics`)": 100 * blocks["used"][0] / blocks["max"][0] if blocks["used"] else None,
        "blocks of prompts found in the cache, % (`nv_trt_llm_kv_cache_blocks_reused_total`)": ratio("nv_trt_llm_kv_cache_blocks_reused_total", "nv_trt_llm_kv_cache_blocks_missed_total"),
        "requests suspended a second (`nv_trt_llm_request_suspensions_total`)": rate("nv_trt_llm_request_suspensions_total"),
        "iterations lost a second (`nv_trt_llm_iterations_lost_total`)": rate("nv_trt_llm_iterations_lost_total"),
    }
    return {name: value for name, value in found.items() if value is not None}


def watched(program, name, seconds):
    """What the page says about a scenario, after a start of five seconds."""
    with Exporter(program, f"--source=sim:?scenario={name}&speed={SPEED}") as exporter:
        until("the first requests", lambda: exporter.page().value("nv_trt_llm_requests_completed_total") > 0)
        time.sleep(5)
        before, began = exporter.page(), time.monotonic()
        time.sleep(seconds)
        return measures(before, exporter.page(), SPEED * (time.monotonic() - began))


def shown(value):
    return value if isinstance(value, str) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def differs(value, healthy):
    if isinstance(value, str) or healthy is None:
        return value != healthy
    return abs(value - healthy) > 0.25 * max(abs(value), abs(healthy)) and max(abs(value), abs(healthy)) > 0.001


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("--seconds", type=float, default=8, help="real seconds (default %(default)s)")
    args = parser.parse_args()
    listed = subprocess.run([args.exporter, "catalog", "--scenarios", "--format", "json"], capture_output=True, check=True, text=True)
    scenarios = {scenario["name"]: scenario for scenario in json.loads(listed.stdout)}
    measured = {name: watched(args.exporter, name, args.seconds) for name in (HEALTHY, *DRILLS)}
    print(HEAD.format(healthy=HEALTHY, command="python3 tests/judges/drills.py target/debug/trtllm-exporter"))
    healthy = measured[HEALTHY]
    for name in DRILLS:
        scenario = scenarios[name]
        print(f"## {name}\n\n{scenario['description']} The cause is `{scenario['cause']}`.\n")
        print(f"```\ntrtllm-exporter --source 'sim:?scenario={name}'\n```\n")
        print("| measure | healthy | drill |\n| --- | --- | --- |")
        for measure, value in measured[name].items():
            if differs(value, healthy.get(measure)):
                print(f"| {measure} | {shown(healthy.get(measure, '–'))} | {shown(value)} |")
        print(f"\nRemedy: {scenario['cure']}.\n")


if __name__ == "__main__":
    sys.exit(main())
