"""Starts a simulated fleet and a real Prometheus. The fleet has two engines of one model in one exporter (the
exporter simulates one engine, and the other publishes to a socket), a second model with another exporter, a third
model with two ranks, objectives and two of the eight GPUs of the stand-in for NVML, and an orchestrator of
disaggregated serving. The rules and the Alertmanager are those of deploy/prometheus, with shorter times. An optional
crowd adds healthy engines, each of which is scraped under many names."""

import json
import os
import random
import re
import signal
import threading
import time

from exporter import ROOT, Exporter, simulated_gpus, until
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


class Gpus(threading.Thread):
    """Rewrites the control file of the stand-in for NVML every second. `faults` has extra lines for each GPU."""

    def __init__(self, standin, work):
        super().__init__(daemon=True)
        self.library, self.faults, self.ended = simulated_gpus(standin, work, ""), {}, False
        self.path = f"{self.library}.state"
        self.random, self.load = random.Random(7), [0.75 + 0.03 * index for index in range(GPUS)]
        self.energy = [10**9] * GPUS
        self.write()

    def write(self):
        lines = [f"gpus={GPUS}"]
        for index in range(GPUS):
            load = self.load[index] = min(
                0.97, max(0.35, 0.9 * self.load[index] + 0.1 * (0.6 + 0.03 * index) + self.random.gauss(0, 0.03))
            )
            watts = 130 + 480 * load
            self.energy[index] += int(watts * 1000)
            values = {
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
            lines += [f"gpu.{index}.{key}={int(value)}" for key, value in values.items()]
            lines += [f"gpu.{index}.processes={4000 + index}:135000000000"]
            lines += [f"gpu.{index}.{line}" for line in self.faults.get(index, [])]
        with open(f"{self.path}.draft", "w") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(f"{self.path}.draft", self.path)

    def run(self):
        while not self.ended:
            time.sleep(1)
            self.write()


class Fleet:
    def __init__(self, work, binary, library, prometheus, factor, native=False, crowd=0, interval="1s", profile="full"):
        self.work, self.exporters, self.engines, self.prometheus = work, {}, [], None
        self.crowd, self.native, self.interval, self.profile = crowd, native, interval, profile
        self.notified = Notified(work, 150)
        self.gpus = Gpus(library, work)
        self.rate, self.orchestrator = 12, SimServe("sim:", "--disaggregated=orchestrator", f"--start={time.time()}")
        self.configure()
        try:
            self.start(binary, prometheus, factor, native)
        except BaseException:
            self.stop()
            raise

    def start(self, binary, prometheus, factor, native):
        for pod, arguments in {
            "llama-0": (f"--config.file={self.work}/engines.yaml", "--stale-after=5s"),
            "qwen-0": (f"--source=socket:{self.work}/qwen.sock", "--objectives=ttft=250ms,e2e=30s", "--stale-after=5s"),
            "gpu-node-0": (f"--config.file={self.work}/node.yaml", f"--gpu.library={self.gpus.library}", "--gpu=required"),
        }.items():
            self.exporters[pod] = Exporter(binary, *arguments, f"--metrics.profile={self.profile}", "--log.level=warn")
        if self.crowd:
            library = f"--gpu.library={self.gpus.library}"
            self.exporters["crowd-0"] = Exporter(binary, f"--config.file={self.work}/crowd.yaml", library, "--log.level=warn")
        self.llama, self.qwen = self.engine("llama", "llama-3-8b", "2"), self.engine("qwen", "qwen-2.5-7b", "1")
        self.mixtral = self.engine("node", "mixtral-8x7b", "1", ranks=2)
        self.gpus.start()
        self.scrape(prometheus, factor, native)

    def engine(self, name, model, version, **changes):
        path = os.path.join(self.work, f"{name}.sock")
        until(f"the socket {name}", lambda: os.path.exists(path), 20)
        self.engines.append(SimServe.publishing(path, model, version, **changes))
        return self.engines[-1]

    def configure(self):
        sources = {"1": SIMULATED.format(rate=self.rate), "2": f"socket:{self.work}/llama.sock"}
        gpus = [f"GPU-00000000-0000-4000-8000-{index:012}" for index in (0, 1)]
        objectives = {"ttft": "250ms", "tpot": "100ms", "e2e": "30s"}
        node = {"source": f"socket:{self.work}/node.sock", "model": "mixtral-8x7b", "gpus": gpus, "objectives": objectives}
        with open(os.path.join(self.work, "node.yaml"), "w") as file:
            json.dump({"engines": [node, {"source": f"trtllm-disagg:{self.orchestrator.url}", "model": "disaggregated"}]}, file)
        healthy = [
            {"source": f"sim:?rate={2 + index % 7}&seed={index}", "model": ("llama-3-70b", "qwen-2.5-32b")[index % 2], "version": f"{index // 2}", "objectives": {"ttft": "2s"}}
            for index in range(HEALTHY)
        ]
        with open(os.path.join(self.work, "crowd.yaml"), "w") as file:
            json.dump({"engines": healthy}, file)
        with open(os.path.join(self.work, "engines.yaml"), "w") as file:
            file.write(
                "engines:\n"
                + "".join(
                    f"  - source: {json.dumps(source)}\n    model: llama-3-8b\n    version: {json.dumps(version)}\n"
                    "    objectives: {ttft: 250ms, e2e: 30s}\n"
                    for version, source in sources.items()
                )
            )

    def simulate(self, requests_per_second):
        """Changes the load of the simulated engine by reloading its exporter's configuration."""
        self.rate = requests_per_second
        self.configure()
        self.exporters["llama-0"].process.send_signal(signal.SIGHUP)

    def scrape(self, program, factor, native):
        for name in RULES:
            with open(ROOT / "deploy/prometheus" / name) as source, open(os.path.join(self.work, name), "w") as copy:
                copy.write(shortened(source.read(), factor))
        targets = [
            target(exporter.address, namespace="inference", pod=name, instance=name)
            for pod, exporter in self.exporters.items()
            for name in ([f"crowd-{number}" for number in range(self.crowd)] if pod == "crowd-0" else [pod])
        ]
        flags = ["--enable-feature=native-histograms"] if native else []
        self.prometheus = Prometheus(self.work, scraping(targets, self.interval, rule_files=RULES, **self.notified.alerting), *flags, program=program)
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

    def stop(self):
        self.gpus.ended = True
        if self.gpus.is_alive():
            self.gpus.join()  # the thread writes into the folder, which is deleted next
        for started in (*self.engines, self.orchestrator, self.prometheus, *self.exporters.values(), self.notified):
            if started:
                started.stop()
