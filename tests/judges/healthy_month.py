"""Evaluates the alerts over a month of healthy days in virtual time, with promtool: only alerts of severity info may fire.

usage: healthy_month.py [--promtool PATH] [--native] [--days 30]      (run in the repository root; 8 minutes of CPU time)
There are two replicas of a model with objectives, a batch model that is stopped at night, and a node with two GPUs. The month has days and
nights, a deploy per week by a rolling restart, node reboots, upgrades of the exporter and of TensorRT-LLM, MIG, a model that is removed, a
label that is added, and at the end dcgm-exporter takes over the GPUs. One more day is not healthy: an engine hangs, and the critical alert
must fire, which shows that the test can fail. When the node of the batch model's only replica reboots, a warning says that it loads. The histograms are classic or, with --native (promtool 3), native. They are judged by the
common limits of recording.yml. Parts of five days are evaluated at the same time. Prints the alerts that fired. Exit code 1 if a check
fails, 77 if promtool is not installed.
"""

import argparse
import concurrent.futures
import math
import os
import subprocess
import sys
import tempfile

from prometheus import needs

STEP = 120  # seconds between two scrapes, and between two evaluations
DAY = 86400 // STEP  # number of scrapes per day
PART = 5  # number of days that one process evaluates
LOADING, STARTUP = 13, 660  # an engine is away for 13 minutes per load, or 17 with a reboot, and reports a start of 660 seconds
DRAINING = 16  # minutes without a request before a model is scaled to zero: cooldownPeriod in deploy/kubernetes/autoscaling
REBOOT = 4 * DAY + 600 * 60 // STEP  # the first reboot
EXPORTER = {"job": "trtllm-exporter", "namespace": "prod"}


class Series:
    """The values that Prometheus stores for each series: a value or a gap for each scrape."""

    def __init__(self, first, last):
        self.first, self.last, self.found = first, last, {}

    def put(self, at, name, labels, value):
        key = name + "{" + ", ".join(f'{label}="{text}"' for label, text in labels.items()) + "}"
        self.found.setdefault(key, {})[at] = value

    def written(self):
        """The series in promtool's notation. A series that ends gets a stale marker, as Prometheus adds one when a series is
        missing in a scrape."""
        for name, values in self.found.items():
            words, times = [], 0
            for at in range(self.first, self.last):
                word = values.get(at)
                word = ("stale" if at - 1 in values else "_") if word is None else word if isinstance(word, str) else f"{word:g}" if abs(word) < 1e5 else f"{word:.0f}"
                if words and words[-1] == word:
                    times += 1
                    continue
                if words:
                    yield_word(words, times)
                words.append(word)
                times = 0
            yield_word(words, times)
            yield f"      - series: '{name}'\n        values: '{' '.join(words)}'\n"


def yield_word(words, times):
    """Shortens repeated values. In promtool's notation, `5x2` means three times 5, and `_x2` means two gaps."""
    if times:
        words[-1] = f"_x{times + 1}" if words[-1] == "_" else f"{words[-1]}x{times}" if words[-1] != "stale" else words[-1]


class Engine:
    """An engine and its counters. The counters restart at 0 when the engine's exporter restarts."""

    def __init__(self, model, version, node, replica=0, objectives=True):
        self.model, self.version, self.node, self.replica, self.objectives = model, version, node, replica, objectives
        self.since, self.counts = 0, {}

    def count(self, name, more, grow):
        key = (name, tuple(more.items()))
        self.counts[key] = self.counts.get(key, 0) + grow
        return self.counts[key]


def daily(at):
    """The load at this time of day. It is 0 from two to five at night."""
    hour = at % DAY * 24 / DAY
    return 0 if 2 <= hour < 5 else 0.15 + 0.85 * max(0, math.sin(math.pi * (hour - 5) / 21))


def state_of(engine, at, days):
    """The state of the engine (starting, idle, busy, unreachable, or gone with its pod or its configuration), and the state
    of its exporter (up or down)."""
    day, minute = at // DAY, at % DAY * STEP // 60
    exporter = "up"
    if day in (4, 17) and engine.node == f"n{day % 2 + 1}" and 600 <= minute < 604:
        return "gone", "down"  # the node of the engine reboots
    if day in (4, 17) and engine.node == f"n{day % 2 + 1}" and 604 <= minute < 604 + LOADING:
        return "unreachable", "up"  # the engine loads after the reboot
    if day in (8, 22) and 840 <= minute < 842:
        exporter = "down"  # the exporter is upgraded
    if day % 7 == 1 and engine.model == "chat":  # a deploy: the replicas are drained and loaded again, one after the other
        begin = 900 + 40 * engine.replica
        if begin <= minute < begin + LOADING:
            return "unreachable", exporter
    if engine.model == "batch" and (minute < 6 * 60 or minute >= 22 * 60):
        return "unreachable", exporter  # scaled to zero
    if engine.model == "batch" and minute >= 22 * 60 - DRAINING:
        return "idle", exporter
    if engine.model == "batch" and 6 * 60 <= minute < 6 * 60 + LOADING:
        return "starting", exporter
    if engine.model == "old" and day >= 19:
        return "gone", exporter  # the model is removed
    if engine.model == "chat" and engine.version == "2" and day < 13:
        return "gone", exporter  # from day 13 on, a new release of TensorRT-LLM runs beside the old one
    return "idle" if daily(at) == 0 or engine.model == "old" else "busy", exporter


def scrape_engine(series, engine, at, args, target):
    state, exporter = state_of(engine, at, args.days)
    last_day = at >= args.days * DAY
    if last_day and engine.model == "chat" and engine.replica == 0 and engine.version == "1" and at % DAY > DAY // 2:
        state = "stalled"  # the only fault of the month
    if exporter == "down":
        engine.counts.clear()
        return
    if state == "gone":
        engine.counts.clear()
        return
    labels = target | {"model": engine.model, "version": engine.version}
    if state != getattr(engine, "state", None):
        if state in ("busy", "idle") and getattr(engine, "state", "") == "unreachable":
            engine.count("restarts", {}, 1)
        engine.state, engine.since = state, (at - series.first) * STEP
    answers = state not in ("unreachable", "starting")
    for name in ("starting", "busy", "idle", "stalled", "unreachable"):
        series.put(at, "nv_trt_llm_engine_state", labels | {"state": name}, int(name == state))
    series.put(at, "trtllm_exporter_source_up", labels | {"source": "trtllm-serve"}, int(answers))
    unavailable = state in ("unreachable", "stalled")
    for cause in ("none", "unavailable"):
        series.put(at, "nv_trt_llm_limited_by", labels | {"cause": cause}, int((cause == "unavailable") == unavailable))
    series.put(at, "nv_trt_llm_limited_by_severity", labels, 3 if state == "stalled" else 2 if unavailable else 0)
    series.put(at, "nv_trt_llm_limited_by_since_timestamp_seconds", labels, engine.since)
    series.put(at, "nv_trt_llm_engine_restarts_total", labels, engine.count("restarts", {}, 0))
    requests = round(100 * daily(at)) if state == "busy" else 0
    if answers:
        for stage, seconds in (("load", STARTUP - 20), ("warmup", 20)):
            series.put(at, "nv_trt_llm_startup_seconds", labels | {"stage": stage}, seconds)
        # Before a planned stop, the engine is drained, so its last record has no requests.
        nearly_gone = state == "idle" or state_of(engine, at + 1, args.days)[0] == "unreachable"
        series.put(at, "nv_trt_llm_request_metrics", labels | {"request_type": "active"}, 0 if nearly_gone and state != "stalled" else round(12 * daily(at)) + (state == "stalled"))
        series.put(at, "nv_trt_llm_queued_requests", labels, 0)
    for name, grow in (("iterations", 1500 * (state == "busy")), ("requests_completed", requests), ("iterations_lost", 0), ("generation_tokens", 200 * requests)):
        series.put(at, f"nv_trt_llm_{name}_total", labels, engine.count(name, {}, grow))
    for reason, share in (("length", 0.6), ("stop", 0.4), ("timeout", 0)):
        series.put(at, "nv_trt_llm_requests_finished_total", labels | {"reason": reason}, engine.count("finished", {"reason": reason}, round(requests * share)))
    if engine.objectives:
        for outcome, share in (("met", 0.98), ("missed", 0.02)):
            series.put(at, "nv_trt_llm_objective_requests_total", labels | {"objective": "ttft", "outcome": outcome}, engine.count("objective", {"outcome": outcome}, round(requests * share)))
        return
    # 2 % of the requests take longer than the common limit.
    fast, count = engine.count("fast", {}, round(requests * 0.98)), engine.count("all", {}, requests)
    for family, limit, offset in (("time_to_first_token", "0.25", -3), ("e2e_request_latency", "30", 4)):
        name = f"nv_trt_llm_{family}_seconds"
        if args.native:  # buckets of schema 0 end at powers of two; the last one is above the limit
            series.put(at, name, labels, f"{{{{schema:0 sum:{count} count:{count} offset:{offset} buckets:[{fast} 0 {count - fast}]}}}}")
            continue
        for le, value in ((limit, fast), ("+Inf", count)):
            series.put(at, f"{name}_bucket", labels | {"le": le}, value)
        series.put(at, f"{name}_count", labels, count)


def scrape_gpus(series, node, at, args, target):
    """Adds the series of two GPUs. On day 11, MIG is enabled on one of them, so the driver resets this GPU. From day 27 on,
    dcgm-exporter monitors the GPUs, and the exporter runs with --gpu off."""
    day, minute = at // DAY, at % DAY * STEP // 60
    for state in ("up", "off"):
        series.put(at, "trtllm_exporter_nvml_state", target | {"state": state}, int((state == "off") == (day >= 27)))
    if day >= 27:
        return
    for index in (0, 1):
        uuid = target | {"gpu_uuid": f"GPU-{node}-{index}"}
        mig = node == "n1" and index == 1 and (day, minute) >= (11, 600)
        if mig and (day, minute) < (11, 602):
            continue
        load = daily(at)
        series.put(at, "nv_gpu_up", uuid, 1)
        series.put(at, "nv_gpu_temperature_celsius", uuid | {"sensor": "gpu"}, round(35 + 40 * load))
        series.put(at, "nv_gpu_temperature_limit_celsius", uuid | {"threshold": "slowdown"}, 92)
        series.put(at, "nv_gpu_memory_free_bytes", uuid, 6_000_000_000)
        series.put(at, "nv_gpu_clocks_event_active", uuid | {"reason": "sw_power_cap"}, int(load > 0.9 and minute % 3 == 0))
        series.put(at, "nv_gpu_clocks_event_active", uuid | {"reason": "hw_thermal_slowdown"}, 0)
        series.put(at, "nv_gpu_ecc_errors_total", uuid | {"error": "uncorrected", "persistence": "volatile"}, 0)
        if not mig:
            series.put(at, "nv_gpu_utilization", uuid, round(load, 1))
            for link in range(2):
                series.put(at, "nv_gpu_nvlink_up", uuid | {"link": str(link)}, 1)


def play(args, first, last):
    """Returns the series of the days from first to last. They begin and end at noon, because a Prometheus that starts while
    a model is scaled to zero at night cannot know the model."""
    series = Series(first * DAY + DAY // 2, last * DAY + DAY // 2)
    engines = {
        "n1": [Engine("chat", "1", "n1"), Engine("batch", "1", "n1", objectives=False), Engine("old", "1", "n1")],
        "n2": [Engine("chat", "1", "n2", 1), Engine("chat", "2", "n2", 2)],
    }
    born = dict.fromkeys(engines, 0)
    for at in range(series.first, series.last):
        series.put(at, "trtllm_slo:common_limits:enabled", {}, 1)
        for node, here in engines.items():
            # On day 24, relabelling adds a label.
            target = EXPORTER | {"instance": f"{node}:8002", "pod": f"exporter-{node}"} | ({"rack": "r7"} if at >= 24 * DAY + 700 else {})
            exporters = {state_of(engine, at, args.days)[1] for engine in here}
            series.put(at, "up", target, int("down" not in exporters))
            if "down" in exporters:
                born[node] = (at + 1 - series.first) * STEP
            else:
                series.put(at, "process_start_time_seconds", target, born[node])
                series.put(at, "trtllm_exporter_config_last_reload_successful", target, 1)
                scrape_gpus(series, node, at, args, target)
            for engine in here:
                scrape_engine(series, engine, at, args, target)
    return series


def test(series, is_healthy):
    """Writes a test for promtool: on healthy days, only alerts of severity info may fire. On the last day, the alert about
    the engine that hangs must fire."""
    rules = os.path.abspath("deploy/prometheus")
    files = ", ".join(f"{rules}/{name}.yml" for name in ("recording", "alerts", "alerts-gpu"))
    severity = '!="info"' if is_healthy else '="critical"'
    end = (series.last - series.first - 1) * STEP
    yield f"rule_files: [{files}]\nevaluation_interval: {STEP}s\ntests:\n  - name: days\n    interval: {STEP}s\n    input_series:\n"
    yield from series.written()
    yield f"    promql_expr_test:\n      - expr: group by (alertname, model) (count_over_time(ALERTS{{alertstate=\"firing\", severity{severity}}}[{end}s]))\n"
    yield f"        eval_time: {end}s\n        exp_samples: "
    name, model = ("ModelNotServing", "batch") if is_healthy else ("EngineStalled", "chat")
    fires = not is_healthy or series.first <= REBOOT < series.last
    yield f"[{{labels: '{{alertname=\"Trtllm{name}\", model=\"{model}\"}}', value: 1}}]\n" if fires else "[]\n"


def judge(args, first, last):
    """Returns the unexpected alerts of these days, and the number of series."""
    series = play(args, first, last)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "days_test.yml")
        with open(path, "w") as file:
            file.writelines(test(series, last <= args.days))
        result = subprocess.run([args.promtool, "test", "rules", path], capture_output=True, text=True)
    return result.returncode, f"days {first} to {last}: {len(series.found)} series; {(result.stdout + result.stderr).strip()[-3000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--days", type=int, default=30)
    args = parser.parse_args()
    needs(args.promtool)
    parts = [(first, min(first + PART, args.days)) for first in range(0, args.days, PART)] + [(args.days, args.days + 1)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        for code, text in pool.map(lambda part: judge(args, *part), parts):
            print(text, flush=True)
            failed += bool(code)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
