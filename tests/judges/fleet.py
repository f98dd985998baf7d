"""Starts a simulated fleet and a real Prometheus. The fleet has two engines of one model in one exporter (the
exporter simulates one engine, and the other publishes to a socket), a second model with another exporter, a third
model with two ranks, objectives and two of the eight GPUs of the stand-in for NVML, and an orchestrator of
disaggregated serving. The rules and the Alertmanager are those of deploy/prometheus, with shorter times. An optional
crowd adds healthy engines, each of which is scraped under many names."""

import contextlib
import json
import os
import random
import re
import signal
import time

from exporter import ROOT, Exporter, MovingGpus, configured, until
from notified import Notified
from prometheus import Prometheus, scraping, target
from sim_serve import SimServe

RULES = ("recording.yml", "alerts.yml", "alerts-gpu.yml")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIMULATED = (
    "sim:?rate={rate}&wave=0.5&wave_period_s=45&prefix_share=1&prefix_tokens=2000&prompt_mean=400&max_num_tokens=8192&kv_blocks=3000"
    "&in_flight=4000&output_mean=300&spec_draft_len=3&spec_acceptance=0.9&disagg=1"
)
GPUS = 8
HEALTHY = 14  # engines in the exporter of the crowd, each with a different load


def shortened(text, factor):
    """The rules with all windows, offsets, `for:` and ages in seconds divided by the factor, but at least 5 s. The names of rules do
    not change."""

    def seconds(number, unit="s"):
        return max(5, round(int(number) * UNITS[unit] / factor))

    text = re.sub(r"(\[|:|offset |for: )(\d+)([smhd])(?![a-z])", lambda found: f"{found[1]}{seconds(found[2], found[3])}s", text)
    return re.sub(r"(_timestamp_seconds < )(\d+)", lambda found: f"{found[1]}{seconds(found[2])}", text)


class Gpus:
    """Readings of GPUs with a changing load. `faults` has further readings of each GPU."""

    def __init__(self):
        self.faults, self.random, self.load = {}, random.Random(7), [0.75 + 0.03 * index for index in range(GPUS)]
        self.energy = [10**9] * GPUS

    def read(self):
        gpus = []
        for index in range(GPUS):
            load = self.load[index] = min(
                0.97, max(0.35, 0.9 * self.load[index] + 0.1 * (0.6 + 0.03 * index) + self.random.gauss(0, 0.03))
            )
            watts = 130 + 480 * load
            self.energy[index] += int(watts * 1000)
            gpu = {
                "utilization_percent": load * 100,
                "memory_used_bytes": 138e9 + index * 4e8,
                "power_mw": watts * 1000,
                "energy_mj": self.energy[index],
                "temperature_celsius": 36 + 32 * load + index % 4,
                "clock_sm_mhz": 1980 - 150 * load,
                "clock_graphics_mhz": 1980 - 150 * load,
                "throttle_reasons": 0,
                "gpm.2": load * 88,
                "gpm.3": load * 40,
                "gpm.5": load * 52,
                "gpm.10": load * 70,
                "gpm.20": 300 * load,
                "gpm.21": 900 * load,
                "gpm.60": 42000 * load,
                "gpm.61": 43000 * load,
                "field.82": 44 + 30 * load,
            }
            gpu = {key: int(value) for key, value in gpu.items()} | {"processes": f"{4000 + index}:135000000000"}
            gpus.append(gpu | self.faults.get(index, {}))
        return gpus


class Fleet:
    """The parameter `args` has the options of incident.py."""

    def __init__(self, args, work, factor, interval="1s", profile="full"):
        self.work, self.exporters, self.native, self.profile = work, {}, args.native, profile
        with contextlib.ExitStack() as self.running:
            self.notified, self.gpus, self.rate = self.start(Notified(work, 150)), Gpus(), 12
            moving = MovingGpus(args.standin, work, self.gpus.read)
            self.running.callback(moving.stop)
            library = f"--gpu.library={moving.library}"
            orchestrator = self.start(SimServe("sim:", "--disaggregated=orchestrator", f"--start={time.time()}"))
            gpus = [f"GPU-00000000-0000-4000-8000-{index:012}" for index in (0, 1)]
            objectives = {"ttft": "250ms", "tpot": "100ms", "e2e": "30s"}
            node = [
                {"source": f"socket:{self.work}/node.sock", "model": "mixtral-8x7b", "gpus": gpus, "objectives": objectives},
                {"source": f"trtllm-disagg:{orchestrator.url}", "model": "disaggregated"},
            ]
            healthy = [
                {"source": f"sim:?rate={2 + index % 7}&seed={index}", "model": ("llama-3-70b", "qwen-2.5-32b")[index % 2], "version": f"{index // 2}", "objectives": {"ttft": "2s"}}
                for index in range(HEALTHY)
            ]
            profile = f"--metrics.profile={profile}"
            for pod, arguments in {
                "llama-0": (self.configure(), "--stale-after=5s", profile),
                "qwen-0": (f"--source=socket:{self.work}/qwen.sock", "--objectives=ttft=250ms,e2e=30s", "--stale-after=5s", profile),
                "gpu-node-0": (configured(self.folder("node"), node), library, "--gpu=required", profile),
                **({"crowd-0": (configured(self.folder("crowd"), healthy), library)} if args.crowd else {}),
            }.items():
                self.exporters[pod] = self.start(Exporter(os.path.abspath(args.exporter), *arguments, "--log.level=warn"))
            self.llama, self.qwen = self.engine("llama", "llama-3-8b", "2"), self.engine("qwen", "qwen-2.5-7b", "1")
            self.engine("node", "mixtral-8x7b", "1", ranks=2)
            self.scrape(args, factor, interval)
            self.running = self.running.pop_all()

    def start(self, program):
        """Lets a program run until the end of the fleet."""
        return self.running.enter_context(program)

    def engine(self, name, model, version, **changes):
        path = os.path.join(self.work, f"{name}.sock")
        until(f"the socket {name}", lambda: os.path.exists(path), 20)
        return self.start(SimServe.publishing(path, model, version, **changes))

    def folder(self, name):
        os.makedirs(os.path.join(self.work, name), exist_ok=True)
        return os.path.join(self.work, name)

    def configure(self):
        """Writes the configuration of the first exporter."""
        llama = {"model": "llama-3-8b", "objectives": {"ttft": "250ms", "e2e": "30s"}}
        sources = {"1": SIMULATED.format(rate=self.rate), "2": f"socket:{self.work}/llama.sock"}
        return configured(self.folder("llama"), [llama | {"source": source, "version": version} for version, source in sources.items()])

    def simulate(self, requests_per_second):
        """Changes the load of the simulated engine by reloading its exporter's configuration."""
        self.rate = requests_per_second
        self.configure()
        self.exporters["llama-0"].process.send_signal(signal.SIGHUP)

    def scrape(self, args, factor, interval):
        for name in RULES:
            with open(ROOT / "deploy/prometheus" / name) as source, open(os.path.join(self.work, name), "w") as copy:
                copy.write(shortened(source.read(), factor))
        targets = [
            target(exporter.address, namespace="inference", pod=name, instance=name)
            for pod, exporter in self.exporters.items()
            for name in ([f"crowd-{number}" for number in range(args.crowd)] if pod == "crowd-0" else [pod])
        ]
        flags = ["--enable-feature=native-histograms"] if args.native else []
        config = scraping(targets, interval, rule_files=RULES, **self.notified.alerting)
        self.prometheus = self.start(Prometheus(self.work, config, *flags, program=args.prometheus))
        until("all targets", lambda: len(self.query("up == 1")) == len(targets), 300)
        until("the end of TrtllmExporterDown, which fires before the first scrape", lambda: not self.alerts(), 300)

    def query(self, expression, at=None):
        """The series of an instant query that have a value."""
        return [series for series in self.prometheus.query(expression, at) if series.get("value", [0, ""])[1] != "NaN"]

    def alerts(self):
        return [alert for alert in json.loads(self.prometheus.read("/api/v1/alerts"))["data"]["alerts"] if alert["state"] == "firing"]

    def broken_rules(self):
        groups = json.loads(self.prometheus.read("/api/v1/rules"))["data"]["groups"]
        return [
            f"{rule['name']}: {rule.get('lastError')}" for group in groups for rule in group["rules"] if rule["health"] == "err"
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.running.close()
