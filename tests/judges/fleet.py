"""Starts a simulated fleet and a real Prometheus: two engines of one model in one exporter (one simulated by the exporter, one that
publishes to a socket), a second model with another exporter, a third one with two ranks, objectives and two of the eight GPUs of the
stand-in NVML, and the rules of deploy/prometheus with shorter times."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from fleet_engine import Engine

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from free_port import free_port  # noqa: E402
RULES = ("recording.yml", "alerts.yml", "alerts-gpu.yml")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIMULATED = (
    "sim:?rate={rate}&wave=0.5&wave_period_s=45&prefix_share=1&prefix_tokens=2000&prompt_mean=400&max_num_tokens=8192&kv_blocks=3000"
    "&in_flight=4000&output_mean=300&spec_draft_len=3&spec_acceptance=0.9&disagg=1"
)
GPUS = 8


def shortened(text, factor):
    """The rules with all windows, offsets and `for:` divided by the factor, but at least 5 s. Names stay."""

    def short(found):
        seconds = max(5, round(int(found[2]) * UNITS[found[3]] / factor))
        return f"{found[1]}{seconds}s"

    return re.sub(r"(\[|offset |for: )(\d+)([smhd])(?![a-z])", short, text)


class Gpus(threading.Thread):
    """Writes the stand-in's control file every second. `faults` has extra lines by GPU."""

    def __init__(self, library):
        super().__init__(daemon=True)
        self.path, self.faults, self.ended = f"{library}.state", {}, False
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
    def __init__(self, work, binary, library, prometheus, factor, native=False):
        self.work, self.started, self.base = work, [], f"http://127.0.0.1:{free_port()}"
        self.log = open(os.path.join(work, "log"), "w+")
        self.binary = binary
        copy = shutil.copy(library, os.path.join(work, "libnvidia-ml.so.1"))
        self.gpus = Gpus(copy)
        self.rate = 12
        self.configure()
        pods = {
            "llama-0": (f"--config.file={work}/engines.yaml", "--gpu=off", "--stale-after=5s"),
            "qwen-0": (f"--source=socket:{work}/qwen.sock", "--objectives=ttft=250ms,e2e=30s", "--gpu=off", "--stale-after=5s"),
            "gpu-node-0": (f"--config.file={work}/node.yaml", f"--gpu.library={copy}", "--gpu=required"),
        }
        self.exporters = {pod: self.exporter(*arguments) for pod, arguments in pods.items()}
        self.llama, self.qwen = self.engine("llama", "llama-3-8b", "2"), self.engine("qwen", "qwen-2.5-7b", "1")
        self.mixtral = self.engine("node", "mixtral-8x7b", "1", ranks=2)
        self.gpus.start()
        self.prometheus(prometheus, factor, native)

    def spawn(self, *command):
        self.started.append(subprocess.Popen(command, stdout=self.log, stderr=self.log))
        return self.started[-1]

    def exporter(self, *arguments):
        port = free_port()
        return port, self.spawn(self.binary, *arguments, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")

    def engine(self, name, model, version, ranks=1):
        path = os.path.join(self.work, f"{name}.sock")
        self.wait(f"the socket {name}", 20, lambda: os.path.exists(path))
        engine = Engine(path, model, version, ranks=ranks)
        engine.start()
        return engine

    def configure(self):
        sources = {"1": SIMULATED.format(rate=self.rate), "2": f"socket:{self.work}/llama.sock"}
        gpus = [f"GPU-00000000-0000-4000-8000-{index:012}" for index in (0, 1)]
        objectives = {"ttft": "250ms", "tpot": "100ms", "e2e": "30s"}
        node = {"source": f"socket:{self.work}/node.sock", "model": "mixtral-8x7b", "gpus": gpus, "objectives": objectives}
        with open(os.path.join(self.work, "node.yaml"), "w") as file:
            json.dump({"engines": [node]}, file)
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
        """Another load for the simulated engine, by a reload of its exporter's configuration."""
        self.rate = requests_per_second
        self.configure()
        self.exporters["llama-0"][1].send_signal(signal.SIGHUP)

    def prometheus(self, program, factor, native):
        folder = os.path.join(REPOSITORY, "deploy/prometheus")
        for name in RULES:
            with open(os.path.join(folder, name)) as source, open(os.path.join(self.work, name), "w") as copy:
                copy.write(shortened(source.read(), factor))
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "inference", "pod": pod, "instance": pod}}
            for pod, (port, _) in self.exporters.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "900ms", "evaluation_interval": "1s"},
            "rule_files": list(RULES),
            "scrape_configs": [{"job_name": "trtllm-exporter", "static_configs": targets}],
        }
        with open(os.path.join(self.work, "prometheus.yml"), "w") as file:
            json.dump(config, file)
        self.spawn(
            program,
            f"--config.file={self.work}/prometheus.yml",
            f"--storage.tsdb.path={self.work}/data",
            f"--web.listen-address={self.base[7:]}",
            "--log.level=error",
            *(["--enable-feature=native-histograms"] if native else []),
        )
        self.wait("Prometheus", 30, lambda: self.read("/-/ready"))
        self.wait("all targets", 30, lambda: len(self.query("up == 1")) == len(targets))
        self.wait("the end of TrtllmExporterDown, which fires before the first scrape", 30, lambda: not self.alerts())

    def read(self, path, **parameters):
        with urllib.request.urlopen(f"{self.base}{path}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
            return answer.read().decode()

    def query(self, expression, at=None):
        """The series of an instant query that have a value."""
        data = json.loads(self.read("/api/v1/query", query=expression, **({"time": at} if at else {})))["data"]["result"]
        return [series for series in data if series.get("value", [0, ""])[1] != "NaN"]

    def query_range(self, expression, start, end, step=1):
        return json.loads(self.read("/api/v1/query_range", query=expression, start=start, end=end, step=step))["data"]["result"]

    def alerts(self):
        return [alert for alert in json.loads(self.read("/api/v1/alerts"))["data"]["alerts"] if alert["state"] == "firing"]

    def broken_rules(self):
        groups = json.loads(self.read("/api/v1/rules"))["data"]["groups"]
        return [
            f"{rule['name']}: {rule.get('lastError')}" for group in groups for rule in group["rules"] if rule["health"] == "err"
        ]

    @staticmethod
    def wait(what, seconds, until):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if until():
                    return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.1)
        raise TimeoutError(f"{what}: not ready within {seconds} s")

    def stop(self):
        self.gpus.ended = True
        for engine in (getattr(self, name, None) for name in ("llama", "qwen", "mixtral")):
            if engine:
                engine.stop()
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
