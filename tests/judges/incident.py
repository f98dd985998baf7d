"""Causes incidents in a simulated fleet, and checks alerts, notifications and dashboards with a real Prometheus and Alertmanager.

usage: incident.py EXPORTER NVML_STANDIN [--prometheus PATH] [--short] [--native] [--draw FOLDER [--crowd N]]
Each query of each dashboard must have data before, during and after the incidents. The expected alerts must fire and no others. Critical
alerts must reach the pager, and other alerts must not. --short causes three faults at the same time, in less than a minute. Without it,
six faults take five minutes. --draw only writes a picture of each dashboard during three faults; it needs matplotlib. With --crowd, there are also N times 14 healthy engines.
Exit code 1 if a check fails, 77 if Prometheus or the Alertmanager is not installed.
"""

import re
import tempfile
import time

import panels
from exporter import conclude, options
from fleet import Fleet
from notified import RECEIVERS, alertmanager
from prometheus import needs
from sim_serve import usual

LOST, HOT, BROKEN = 3, 5, 6  # indexes of GPUs


class Fault:
    """A fault. The functions `begin` and `end` start and stop it. It must cause the alerts `must`, and may cause the alerts
    `may`. Both are sets of pairs: the name of the alert, and the engine or GPU. `pager` or `ticket` names the alert that a
    person must receive. This alert may mute the other alerts."""

    def __init__(self, name, begin, end, must, may=(), pager=None, ticket=None):
        self.name, self.begin, self.end = name, begin, end
        self.must, self.may = set(must), set(may)
        self.told = {"pager": {f"Trtllm{pager}"} if pager else set(), "ticket": {f"Trtllm{ticket}"} if ticket else set()}


def llama(**changes):
    return lambda fleet: fleet.llama.control(engine=usual(**changes))


def qwen(**command):
    return lambda fleet: fleet.qwen.control(**command)


def break_gpus(fleet):
    fleet.gpus.faults = {
        LOST: {"lost": 1},
        HOT: {"temperature_celsius": 91, "throttle_reasons": 72, "clock_sm_mhz": 900},
        BROKEN: {"xids": 48, "field.4": 4},
    }


def heal_gpus(fleet):
    fleet.gpus.faults = {BROKEN: {"xids": 48, "field.4": 4}}  # the counters of the driver keep their values


def crash(fleet):
    for _ in range(4):
        fleet.qwen.control(restart=True)
        time.sleep(2)


def hurt(engine):
    """Alerts that may also fire for an engine. The test is short, so even the long windows of the objectives contain mainly
    the incident."""
    return on(engine, "EngineLimited", "EngineTuning") | on(engine.split(" v")[0], "ObjectiveBudgetBurn", "ObjectiveBudgetBurnSlow")


def on(engine, *names):
    return {(f"Trtllm{name}", engine) for name in names}


LLAMA1, LLAMA2, QWEN = "llama-3-8b v1", "llama-3-8b v2", "qwen-2.5-7b v1"
QUEUE = Fault(
    "queue build-up",
    lambda fleet: fleet.simulate(90),
    lambda fleet: fleet.simulate(12),
    on("llama-3-8b", "ObjectiveBudgetBurn"),
    hurt(LLAMA1),
    pager="ObjectiveBudgetBurn",
)
FULL = Fault(
    "KV cache exhausted",
    llama(rate=22, output_mean=500),
    llama(),
    on(LLAMA2, "EngineLimited"),
    hurt(LLAMA2),
    ticket="EngineLimited",
)
HANG = Fault(
    "engine hangs",
    qwen(stop=True),
    qwen(stop=False),
    on(QWEN, "EngineStalled") | on("qwen-2.5-7b", "ModelNotServing", "ModelUnavailable"),
    hurt(QWEN),
    pager="ModelUnavailable",
)
GPU = Fault(
    "GPU lost, GPU hot, GPU with errors",
    break_gpus,
    heal_gpus,
    on(LOST, "GpuLost") | on(HOT, "GpuThrottled", "GpuHot") | on(BROKEN, "GpuXid", "GpuEccUncorrected"),
    ticket="GpuLost",
)
POOR = Fault(
    "poor drafts, poor reuse, records lost, requests time out",
    llama(spec_acceptance=0.3, losing=0.1, timeout_s=2, prefix_share=0.2),
    llama(),
    on(LLAMA2, "EngineLimited", "StatisticsLost", "RequestsFailing"),
    hurt(LLAMA2),
    pager="RequestsFailing",
)
CRASH = Fault("engine restarts", crash, lambda fleet: None, on(QWEN, "EngineRestartLoop"), hurt(QWEN), ticket="EngineRestartLoop")
# For each phase: (seconds, faults that begin, faults that end).
SHORT = [(14, [], []), (24, [QUEUE, HANG, GPU], []), (12, [], [QUEUE, HANG, GPU])]
LONG = [
    (50, [], []),
    (50, [QUEUE, FULL], []),
    (30, [], [QUEUE, FULL]),
    (35, [HANG, GPU], []),
    (25, [], [HANG]),
    (80, [POOR], [GPU]),
    (20, [CRASH], [POOR]),
    (25, [], [CRASH]),
]
# For pictures: first a healthy phase, then faults that continue until the end.
DRAWN = [(75, [], []), (90, [QUEUE, HANG, GPU], [])]
SHOWN = {"trtllm-engine": {"model": "llama-3-8b", "version": "1", "instance": "llama-0"}, "trtllm-gpu": {"instance": "gpu-node-0"}}


class Watch:
    """Records the alerts that have fired since the beginning, and findings about them."""

    def __init__(self, fleet):
        self.fleet, self.fired, self.findings = fleet, {}, []

    def look(self):
        now = set()
        for alert in self.fleet.alerts():
            labels = alert["labels"]
            # Alerts of severity info notify nobody, and an advice to tune an engine may fire at any time. In windows of a few
            # seconds, requests to the orchestrator that wait while the machine is busy look like requests without an answer.
            if labels["severity"] == "info" or labels["alertname"] == "TrtllmDisaggRequestsFailing":
                continue
            on = int(labels["gpu_uuid"][-4:], 16) if "gpu_uuid" in labels else labels.get("model", labels.get("instance"))
            key = (labels["alertname"], f"{on} v{labels['version']}" if "version" in labels else on)
            now.add(key)
            if key not in self.fired:
                text = " ".join(alert["annotations"].values())
                if re.search(r"<error|<no value>|{{|%!", text):
                    self.findings.append(f"{key}: bad annotation {text}")
            self.fired.setdefault(key, time.time())
        return now

    def until(self, end):
        while time.time() < end:
            now = self.look()
            time.sleep(max(0, min(0.5, end - time.time())))
        return now


# MAY_BE_EMPTY: these panels are empty while no engine has a problem. ABSENT: the stand-in for NVML has no MIG and no pods.
MAY_BE_EMPTY = {"Causes", "Causes over time", "Limited by", "Verdict over time"}
ABSENT = ("nv_gpu_mig_", "nv_gpu_pod_info", "nv_trt_llm_missed_request_time_seconds_total", "nv_trt_llm_capacity_requests_per_second", "nv_trt_llm_headroom_ratio", "nv_trt_llm_throughput_of_reference_ratio", "nv_trt_llm_tokens_per_joule_of_reference_ratio")
# The series of an Xid code appears with the first such error of a GPU.
ABSENT_BEFORE = ("nv_gpu_xid_errors_total",)


def native(query):
    """True if a heatmap's query is for native histograms."""
    return "_bucket{" not in query


def empty_queries(fleet, at, phase, more_absent):
    """Finds panels without data at the time `at`. A busy machine may have missed a scrape, so two earlier times are tried
    too."""
    absent = ABSENT + more_absent
    for name, dashboard in panels.dashboards():
        for panel, _, query in panels.queries(dashboard, fleet.profile):
            if panel["title"] in MAY_BE_EMPTY or any(word in query for word in absent) or panel["type"] == "heatmap" and native(query) != fleet.native:
                continue
            if not any(fleet.query(query, at - before) for before in (0, 2, 4)):
                yield f"{phase}: {name}: {panel['title']}: no data: {query}"


def engines_look_healthy(fleet, at):
    """Checks the panel State over time, which encodes states as numbers. It must not add up the numbers of two healthy engines of
    one model in one exporter, because the sum would look like another state."""
    dashboard = dict(panels.dashboards())["trtllm-engine"]
    query = next(query for panel, _, query in panels.queries(dashboard) if panel["title"] == "State over time")
    states = {
        (series["metric"]["model"], series["metric"]["version"]): float(series["value"][1]) for series in fleet.query(query, at)
    }
    expected = {("llama-3-8b", "1"), ("llama-3-8b", "2"), ("qwen-2.5-7b", "1"), ("mixtral-8x7b", "1")}
    if set(states) != expected or not all(value in (1, 2) for value in states.values()):
        yield f"before: the panel State over time shows {states}; expected idle (1) or busy (2) for each of {sorted(expected)}"


def play(fleet, phases):
    watch, active, seen, moments, expected, allowed = Watch(fleet), [], [], [], set(), set()
    start = time.time()
    for number, (seconds, begin, end) in enumerate(phases):
        for fault in end:
            fault.end(fleet)
            active.remove(fault) if fault in active else None
        for fault in begin:
            fault.begin(fleet)
            active.append(fault)
            seen.append(fault)
            expected |= fault.must
            allowed |= fault.must | fault.may
        now = watch.until(time.time() + seconds)
        phase = "before" if number == 0 else " and ".join(fault.name for fault in active) or "after"
        moments.append((time.time() - 0.5, phase, GPU in seen))
        print(
            f"{time.time() - start:5.0f} s  {phase}: {', '.join(sorted(f'{name} {on}' for name, on in now)) or 'no alert'}",
            flush=True,
        )
        if number == 0 and now:
            watch.findings.append(f"before: alerts fire for a healthy fleet: {sorted(now)}")
    for key in sorted(expected - set(watch.fired), key=str):
        watch.findings.append(f"{key} did not fire")
    for key in sorted(set(watch.fired) - allowed, key=str):
        watch.findings.append(f"{key} fired {watch.fired[key] - start:.0f} s after the start, without a reason")
    # After the faults, alerts with long windows continue to fire, and the exporter retries a lost GPU only from time to time.
    slow = re.compile(r"Trtllm(\w+BudgetBurn(Slow)?|GpuEccUncorrected|GpuLost|EngineRestartLoop|EngineLimited)")
    watch.findings += [f"after: {key} still fires" for key in sorted(now, key=str) if not slow.fullmatch(key[0])]
    for at, phase, has_xids in moments:
        watch.findings += empty_queries(fleet, at, phase, () if has_xids else ABSENT_BEFORE)
    watch.findings += engines_look_healthy(fleet, moments[0][0])
    told = {receiver: set().union(*(fault.told[receiver] for fault in seen)) for receiver in RECEIVERS}
    watch.findings += fleet.notified.findings(told)
    watch.findings += [f"rule fails: {rule}" for rule in fleet.broken_rules()]
    return start, watch


def main():
    parser = options(__doc__)
    parser.add_argument("exporter")
    parser.add_argument("standin")
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--native", action="store_true", help="Prometheus keeps native histograms and drops classic ones")
    parser.add_argument("--draw", metavar="FOLDER", help="write a picture of each dashboard")
    parser.add_argument("--crowd", type=int, default=0, metavar="N")
    args = parser.parse_args()
    needs(args.prometheus, alertmanager())
    factor = 12 if args.draw else 90 if args.short else 60
    interval, profile = "5s" if args.draw else "1s", "default" if args.short else "full"  # 200 engines take longer
    with tempfile.TemporaryDirectory() as work, Fleet(args, work, factor, interval, profile) as fleet:
        start, watch = play(fleet, DRAWN if args.draw else SHORT if args.short else LONG)
        if args.draw:
            import dashboard_pictures

            suffix = "-many" if args.crowd else ""
            dashboard_pictures.all_dashboards(fleet, args.draw, start, time.time() - 1, SHOWN, suffix)
            watch.findings = []
    conclude(watch.findings, f"{len(watch.fired)} alerts fired, {len(watch.findings)} findings, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
