"""Compares two moments while a simulated engine gets more and more requests: when the autoscaler's queries ask for another replica, and
when users notice the load.

usage: ramp.py EXPORTER [SECONDS]     (600 seconds by default; needs prometheus, and target/tools/manifests of tests/deploy/kubernetes.sh)
The engine is simulated in the exporter's process. Each request has exact times and is judged by objectives. A real Prometheus
answers the queries of deploy/kubernetes/autoscaling/keda.yaml while the load rises. Exit code 1 if the queries report saturation only
after one in a hundred requests has missed an objective, 77 if a tool is missing.
"""
import contextlib
import os
import random
import sys
import tempfile
import time

from autoscaling import MANIFESTS, objects
from exporter import Exporter
from prometheus import Prometheus, needs, scraping, target

FIRST, LAST = 2.0, 26.0  # requests per second at the start and at the end; the engine serves about 19
OBJECTIVES = "ttft=1s,tpot=60ms"
STEP = 5


def trace(path, seconds):
    """Writes arrivals of requests to a file: a Poisson process whose rate grows linearly."""
    rand, now = random.Random(7), 0.0
    with open(path, "w") as file:
        while now < seconds:
            now += rand.expovariate(FIRST + (LAST - FIRST) * now / seconds)
            file.write(f"{now:.3f} {rand.randint(64, 960)} {rand.randint(32, 224)}\n")


def keda():
    triggers = objects("keda.yaml")[0]["spec"]["triggers"]
    return {trigger["name"]: (trigger["metadata"]["query"], float(trigger["metadata"]["threshold"])) for trigger in triggers}


def main():
    needs("prometheus", MANIFESTS)
    exporter, seconds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600
    with contextlib.ExitStack() as running:
        work = running.enter_context(tempfile.TemporaryDirectory())
        requests = os.path.join(work, "requests")
        trace(requests, seconds)
        source = f"--source=sim:?prefix_share=0&trace={requests}"
        ours = running.enter_context(Exporter(exporter, source, f"--objectives={OBJECTIVES}"))
        begin = time.time()
        targets = [target(ours.address, namespace="default", pod="llama-0")]
        prometheus = running.enter_context(Prometheus(work, scraping(targets, f"{STEP}s")))
        time.sleep(begin + seconds - time.time())
        for program in (ours, prometheus):
            if program.process.poll() is not None:
                sys.exit(f"{program.name} has ended: {program.log()[-1000:]}")

        def over_time(expression):
            results = prometheus.query_range(expression, begin, begin + seconds, STEP)
            return [(at - begin, float(value)) for at, value in results[0]["values"]] if results else []

        def first(expression, reached):
            return next((at for at, value in over_time(expression) if reached(value)), None)

        moments = {}
        for name, (query, threshold) in keda().items():
            moments[f"KEDA's trigger {name} is at {threshold:g}"] = first(query, lambda value, limit=threshold: value >= limit)
        query, threshold = keda()["saturation"]
        for other in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
            if other != threshold:
                moments[f"KEDA's trigger saturation would be at {other:g}"] = first(query, lambda value, limit=other: value >= limit)
        missed = 'nv_trt_llm_objective_requests_total{objective="all",outcome="missed"}'
        all_judged = 'nv_trt_llm_objective_requests_total{objective="all"}'
        moments[f"the first request misses {OBJECTIVES}"] = first(f"sum({missed})", lambda value: value > 0)
        noticed = "one in a hundred requests of a minute misses it"
        of_a_minute, judged = (f"sum(increase({series}[1m]))" for series in (missed, all_judged))
        moments[noticed] = first(f"{of_a_minute} / ({judged} > 0)", lambda value: value >= 0.01)
        for what, at in sorted(moments.items(), key=lambda moment: (moment[1] is None, moment[1])):
            rate = "" if at is None else f"  ({FIRST + (LAST - FIRST) * at / seconds:.1f} requests per second)"
            print(f"{'never' if at is None else f'{at:5.0f} s'}  {what}{rate}")
        saturated = next(at for what, at in moments.items() if "trigger saturation is at" in what)
        users = moments[noticed]
        if saturated is None or users is None or saturated >= users:
            sys.exit("the saturation did not come before users noticed")
        print(f"{users - saturated:.0f} s between saturation and users")


if __name__ == "__main__":
    main()
