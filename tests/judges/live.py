"""Asks for the verdict on each scenario through the endpoints of a real deployment, in real time, and prints how often it is right.

usage: live.py EXPORTER [--only REGEX] [--one-a-cause] [--setups NAME,...] [--gpus STANDIN] [--seconds S]
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

import collections
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time

from exporter import Exporter, MovingGpus, configured, fetch, options, until
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


def readings(servers):
    """The readings of the GPUs of these simulated servers."""
    found = [gpu for server in servers for gpu in json.loads(fetch(f"{server.url}/gpus"))]
    return [{"uuid": f"GPU-00000000-0000-0000-0000-{number:012x}"} | gpu for number, gpu in enumerate(found, 1)]


@contextlib.contextmanager
def watched(exporter, engines, seconds, *arguments, standin=None):
    """An exporter that has watched these engines for some seconds. `engines`: for each pair of a setup and a name, the engine as in
    `--source`, arguments of its server, and other keys of its entry in the configuration. `arguments` are for the exporter."""
    with contextlib.ExitStack() as running:
        work = running.enter_context(tempfile.TemporaryDirectory())
        entries, servers = [], []
        for (setup, name), (engine, more, keys) in engines.items():
            folder = os.path.join(work, setup)
            os.makedirs(folder, exist_ok=True)
            source = engine
            if setup != "sim":
                server, source = serve(setup, name, engine, more, folder)
                running.callback(server.stop)
                if standin:
                    before = len(readings(servers))
                    servers.append(server)
                    keys = keys | {"gpus": [gpu["uuid"] for gpu in readings(servers)[before:]]}
            entries.append({"source": source, "model": f"{setup}/{name}", **keys})
        if standin:
            gpus = MovingGpus(standin, work, lambda: readings(servers))
            running.callback(gpus.stop)
            arguments += ("--gpu=required", f"--gpu.library={gpus.library}")
        ours = running.enter_context(Exporter(exporter, configured(work, entries), *arguments))
        time.sleep(seconds)
        yield ours


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


def parsed(text, setups, at_once, **more):
    """The options of a judge that asks about scenarios. `more` are further options. `causes`: the cause of each chosen scenario. `rounds`:
    the engines that run at the same time, as `watched` takes them."""
    parser = options(text)
    parser.add_argument("exporter")
    parser.add_argument("--only", default="^(?!drill-)", metavar="REGEX")
    parser.add_argument("--one-a-cause", action="store_true", help="only the first scenario of each cause, as a sample")
    parser.add_argument("--setups", default=setups)
    parser.add_argument("--seconds", type=float, default=140)
    for name, metavar in more.items():
        parser.add_argument(f"--{name}", metavar=metavar)
    args = parser.parse_args()
    found = scenarios(args.exporter, args.only)
    if args.one_a_cause:
        found = {one["cause"]: one for one in reversed(found)}.values()
    args.causes, args.setups = {one["name"]: one["cause"] for one in found}, args.setups.split(",")
    pairs = [(setup, name) for setup in args.setups for name in args.causes]
    played = [(pair, (f"sim:?scenario={pair[1]}", (), {})) for pair in pairs]
    args.rounds = [dict(played[first : first + at_once]) for first in range(0, len(played), at_once)]
    return args


def main():
    args = parsed(__doc__, "records,page,rows,both,socket", 30, gpus="STANDIN")
    counts, failed = collections.Counter(), False
    for engines in args.rounds:
        with watched(args.exporter, engines, args.seconds, standin=args.gpus) as ours:
            answered = told(ours)
        for setup, name in engines:
            verdict, expected = answered.get((setup, name)), args.causes[name]
            where = kind(expected, verdict, {} if args.gpus else ALSO_RIGHT)
            counts[setup, where] += 1
            alarms = expected == "none" and verdict and verdict["severity"] in ("warning", "critical")
            failed |= where == "wrong, high" or bool(alarms)
            if verdict:
                counts[verdict["confidence"]] += 1
                counts[verdict["confidence"], "right"] += where == "right"
            if where != "right":
                says = verdict and f"{verdict['cause']} ({verdict['severity']}, {verdict['confidence']}): {verdict['says']} blind: {[spot['what'] for spot in verdict['blind']]}"
                print(f"{where:20} {setup:8} {name}: {says}", flush=True)
    for confidence in ("high", "low"):
        print(f"{confidence} confidence: {counts[confidence, 'right']} of {counts[confidence]} right")
    print(f"| setup | {' | '.join(KINDS)} |\n| --- |{' --- |' * len(KINDS)}")
    for setup in args.setups:
        print(f"| {setup} | {' | '.join(str(counts[setup, where]) for where in KINDS)} |")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
