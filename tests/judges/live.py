"""Asks for the verdict on each scenario through the endpoints of a real deployment, in real time, and prints how often it is right.

usage: live.py EXPORTER [--only REGEX] [--one-a-cause] [--setups NAME,...] [--gpus STANDIN] [--seconds S] [--at-once N] [--json FILE]
Each engine is a process (trtllm-sim-serve; SIM_SERVE names a built one), and the exporter sees only what such a server or publisher
sends. With --gpus, it also reads the engine's GPUs through the stand-in for NVML (libnvml_standin.so); without it, nobody reads them.
Setups:
    records  trtllm-serve with enable_iter_perf_stats only
    page     with return_perf_metrics, too: /prometheus/metrics. Newer releases have no /perf_metrics; nobody reads their files
    rows     with enable_iter_perf_stats and enable_iter_req_stats
    both     page and rows
    socket   a publisher in the engine's process, which also sends finished requests
    sim      no process, but the engine that the exporter simulates, as in a drill; only if --setups names it
    entries  with return_perf_metrics and perf_metrics_max_requests, as releases up to 1.2 have it; only if --setups names it
An answer is right if it has the cause of the scenario. Without readings of a GPU, `slowdown` is right for a slow GPU. It is silent if the
cause is `none` although something limits the engine; a silence is honest if the confidence is low and `blind` is not empty. Everything else
is wrong. Exit code 1 if a wrong answer has the confidence high, or a healthy engine gets a warning.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading
import time

from exporter import Exporter, fetch, simulated_gpus, until
from sim_serve import SimServe

SETUPS = {
    "records": ("", ["--no-perf-metrics"]),
    "page": ("", ["--perf-metrics-dir=UNREAD", "--prometheus"]),
    "rows": ("&request_stats=1", ["--no-perf-metrics"]),
    "both": ("&request_stats=1", ["--perf-metrics-dir=UNREAD", "--prometheus"]),
    "socket": ("", []),
    "entries": ("", ["--prometheus"]),
    "sim": ("", []),
}
# What else is right where nobody reads the GPUs.
ALSO_RIGHT = {"clocks": {"slowdown"}, "gpu": {"slowdown"}}
# These scenarios need an action that a server does not take by itself.
NOT_LIVE = re.compile(r"restarts|loading")
KINDS = ("right", "silent, and says so", "silent", "wrong, low", "wrong, high")


def scenarios(exporter, only):
    listed = subprocess.run([exporter, "catalog", "--scenarios", "--answers", "--format", "json"], capture_output=True, check=True, text=True)
    return [one for one in json.loads(listed.stdout) if re.search(only, one["name"]) and not NOT_LIVE.match(one["name"])]


def serve(setup, name, engine, more, work):
    """Starts an engine, and returns it with its source. `more` are arguments of the server."""
    options, arguments = SETUPS[setup]
    arguments = [argument.replace("UNREAD", work) for argument in (*arguments, *more)]
    engine += options
    if setup != "socket":
        server = SimServe(engine, *arguments)
        return server, server.url.replace("http://", "trtllm-serve:http://")
    path = os.path.join(work, f"{name}.sock")
    return SimServe(engine, *arguments, f"--socket={path}", f"--model={name}"), f"socket:{path}"


class Gpus(threading.Thread):
    """Shows the GPUs of simulated servers through the stand-in for NVML, which reads its control file when it changes."""

    def __init__(self, standin, work):
        super().__init__(daemon=True)
        self.library, self.servers, self.count, self.ended = simulated_gpus(standin, work, ""), [], 0, threading.Event()

    def add(self, server):
        """Returns the UUIDs of the GPUs of this server."""
        own = range(self.count, self.count + len(self.read(server)))
        self.count = own.stop
        self.servers.append(server)
        return [self.uuid(index) for index in own]

    @staticmethod
    def read(server):
        return json.loads(fetch(f"{server.url}/gpus"))

    @staticmethod
    def uuid(index):
        return f"GPU-00000000-0000-0000-0000-{index + 1:012x}"

    def write(self):
        gpus = [gpu for server in self.servers for gpu in self.read(server)]
        lines = [f"gpus={len(gpus)}"]
        for index, gpu in enumerate(gpus):
            lines += [f"gpu.{index}.{key}={value}" for key, value in ({"uuid": self.uuid(index)} | gpu).items()]
        with open(f"{self.library}.draft", "w") as file:
            file.write("\n".join(lines))
        os.replace(f"{self.library}.draft", f"{self.library}.state")

    def run(self):
        with contextlib.suppress(OSError):  # The servers end first.
            while not self.ended.wait(1):
                self.write()

    def stop(self):
        self.ended.set()
        self.join()


@contextlib.contextmanager
def watched(exporter, engines, seconds, *arguments, standin=None):
    """An exporter that has watched these engines for some seconds. `engines`: for each pair of a setup and a name, the engine as in
    `--source`, arguments of its server, and other keys of its entry in the configuration. `arguments` are for the exporter."""
    with contextlib.ExitStack() as running:
        work = running.enter_context(tempfile.TemporaryDirectory())
        entries, gpus = [], standin and Gpus(standin, work)
        for (setup, name), (engine, more, keys) in engines.items():
            folder = os.path.join(work, setup)
            os.makedirs(folder, exist_ok=True)
            source = engine
            if setup != "sim":
                server, source = serve(setup, name, engine, more, folder)
                running.callback(server.stop)
                keys = keys | {"gpus": gpus.add(server)} if gpus else keys
            entries.append({"source": source, "model": f"{setup}/{name}", **keys})
        config = os.path.join(work, "engines.json")  # JSON is YAML
        with open(config, "w") as file:
            json.dump({"engines": entries}, file)
        if gpus:
            gpus.write()
            gpus.start()
            running.callback(gpus.stop)
            arguments += ("--gpu=required", f"--gpu.library={gpus.library}")
        ours = running.enter_context(Exporter(exporter, f"--config.file={config}", *arguments))
        time.sleep(seconds)
        yield ours


def verdicts(exporter, engines, seconds, *arguments, standin=None):
    """The verdict on each engine after some seconds."""
    with watched(exporter, engines, seconds, *arguments, standin=standin) as ours:
        return told(ours)


def told(ours):
    """The present verdict on each engine."""
    answered = json.loads(until("the engines", lambda: fetch(f"{ours.url}/api/v1/engines")))
    return {tuple(engine["model"].split("/")): engine.get("verdict") for engine in answered}


def kind(expected, verdict, also_right=ALSO_RIGHT):
    """Where an answer belongs in the table. `also_right`: other right answers, by the cause."""
    if verdict is None:
        return "silent"
    cause, is_low = verdict["cause"], verdict["confidence"] == "low"
    if cause == expected or cause in also_right.get(expected, ()):
        return "right"
    if cause == "none":
        return "silent, and says so" if is_low and verdict["blind"] else "silent"
    return "wrong, low" if is_low else "wrong, high"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("--only", default="^(?!drill-)", metavar="REGEX")
    parser.add_argument("--one-a-cause", action="store_true", help="only the first scenario of each cause, as a sample")
    parser.add_argument("--gpus", metavar="STANDIN")
    parser.add_argument("--setups", default="records,page,rows,both,socket")
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--at-once", type=int, default=30)
    parser.add_argument("--json", metavar="FILE", help="also write each answer")
    args = parser.parse_args()
    found = scenarios(args.exporter, args.only)
    if args.one_a_cause:
        found = {one["cause"]: one for one in reversed(found)}.values()
    causes = {one["name"]: one["cause"] for one in found}
    pairs = [(setup, name) for setup in args.setups.split(",") for name in causes]
    counts, answers, failed = collections.Counter(), [], False
    for first in range(0, len(pairs), args.at_once):
        played = {pair: (f"sim:?scenario={pair[1]}", (), {}) for pair in pairs[first : first + args.at_once]}
        answered = verdicts(args.exporter, played, args.seconds, standin=args.gpus)
        for setup, name in played:
            verdict, expected = answered.get((setup, name)), causes[name]
            where = kind(expected, verdict, {} if args.gpus else ALSO_RIGHT)
            counts[setup, where] += 1
            alarms = expected == "none" and verdict and verdict["severity"] in ("warning", "critical")
            failed |= where == "wrong, high" or bool(alarms)
            answers.append({"setup": setup, "scenario": name, "expected": expected, "kind": where, "verdict": verdict})
            if where != "right":
                says = verdict and f"{verdict['cause']} ({verdict['severity']}, {verdict['confidence']}): {verdict['says']} blind: {[spot['what'] for spot in verdict['blind']]}"
                print(f"{where:20} {setup:8} {name}: {says}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(answers, file, indent=1)
    for confidence in ("high", "low"):
        kinds = [one["kind"] for one in answers if (one["verdict"] or {}).get("confidence") == confidence]
        print(f"{confidence} confidence: {kinds.count('right')} of {len(kinds)} right")
    print(f"| setup | {' | '.join(KINDS)} |\n| --- |{' --- |' * len(KINDS)}")
    for setup in args.setups.split(","):
        print(f"| {setup} | {' | '.join(str(counts[setup, where]) for where in KINDS)} |")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
