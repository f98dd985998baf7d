"""Judges the exporter by engines whose iterations take as long as NVIDIA's measured kernels, and whose causes are known.

The engines are in fleet.py. Each runs in virtual time; its lines are then sent in real time to the socket of one exporter.
Afterwards, the exporter's verdicts, costs, capacities and predictions are compared with the truth.
Needs the Python package aiconfigurator-core 0.12.0; `.ci/full kernels` installs it.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))

from costs import median_errors
from engine import Engine, throughput
from exporter import Exporter, fetch, options, until
from fleet import CASES, arrivals, draw
from playing import Playing, watch
from questions import all_answers, frozen
from records import KINDS, hello, is_overlap, lines
from tables import Iterations

SLOWED = 60  # seconds until the slower engine becomes slow, or half of the time if that is less
AFTER = (20, 40, 70)  # seconds from then to the readings of the slowdown


def simulate(case, iterations, kind, seconds, slow_at, seed):
    """The run of an engine, and its true capacity."""
    capacity = throughput(iterations, case.settings, draw(case.lengths, 1500, 1), is_overlap(kind))
    settings = case.settings
    if case.causes == ("slowdown",):
        settings = dataclasses.replace(settings, slow_at=slow_at)
    requests = arrivals(case.lengths, case.load * capacity, seconds, seed)
    engine = Engine(iterations, settings, requests, is_overlap(kind), seed).run(seconds)
    # The capacity for the lengths of this run, repeated so that the engine fills up.
    repeated = requests * max(1, -(-1500 // len(requests)))
    return engine, throughput(iterations, case.settings, repeated, is_overlap(kind))


def only(page, name, case):
    values = page.values(name, model=case.name)
    return values[0] if values else None


def compare(case, engine, capacity, seconds, kind, page, model, verdicts, slowdowns):
    """What the exporter told of one engine, and the truth."""
    told = verdicts[-1]
    present = json.loads(model).get("present", {})
    until_slow = min(seconds, engine.settings.slow_at)
    judged = [batch for batch in engine.batches if until_slow - 60 < batch.due < until_slow]
    count, total = (only(page, f"nv_trt_llm_iteration_latency_seconds_{part}", case) for part in ("count", "sum"))
    mean = sum(batch.took for batch in engine.batches) / len(engine.batches)
    rate = len(engine.requests) / seconds
    last, causes = [verdict.get("cause") for verdict in verdicts[-9:]], case.causes_in(kind)
    return {
        "expected": causes,
        "cause": told.get("cause"),
        "confidence": told.get("confidence"),
        "severity": told.get("severity"),
        "says": told.get("says"),
        "steady": sum(cause in causes for cause in last) / max(len(last), 1),
        "costErrors": median_errors(present, judged, kind),
        "slowdowns": slowdowns,
        "rate": rate,
        "capacity": {"told": only(page, "nv_trt_llm_capacity_requests_per_second", case), "true": capacity},
        "headroom": {"told": only(page, "nv_trt_llm_headroom_ratio", case), "true": max(0.0, 1 - rate / capacity)},
        "iteration": {"told": total / count if count else None, "true": mean},
    }


def judge(args, cases, iterations, pool):
    """`pool`: processes that were started before any thread."""
    slow_at = min(SLOWED, args.seconds / 2)
    moments = {slow_at + after for after in AFTER if slow_at + after <= args.seconds}
    jobs = {
        name: pool.submit(simulate, case, iterations[case.model], args.kind, args.seconds, slow_at, args.seed + place)
        for place, (name, case) in enumerate(cases.items())
    }
    runs = {name: job.result() for name, job in jobs.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "ingest.sock")
        with Exporter(args.exporter, f"--source=socket:{path}", "--gpu=off") as exporter:
            until("the socket", path.exists)
            streams = [
                (hello(case, args.kind, place + 100), list(lines(runs[name][0], args.kind)))
                for place, (name, case) in enumerate(cases.items())
            ]
            playing = Playing(path, streams)
            playing.start()
            verdicts, slowdowns = watch(exporter, playing, args.seconds, moments)
            page = exporter.page()
            models = {name: fetch(f"{exporter.url}/api/v1/model?engine={name}") for name in cases}
    found = {}
    for name, case in cases.items():
        engine, capacity = runs[name]
        slowed = {at: slowdowns.get(name, {}).get(at) for at in sorted(moments)}
        told = (page, models[name], verdicts[name], slowed)
        found[name] = compare(case, engine, capacity, args.seconds, args.kind, *told)
    jobs, url = {}, frozen(models)
    for name, case in cases.items():
        model, engine = iterations[case.model], runs[name][0]
        jobs[name] = pool.submit(all_answers, args.exporter, case, model, engine, is_overlap(args.kind), url)
    for name, job in jobs.items():
        found[name]["questions"] = job.result()
    return found, playing.late


def share(value):
    return "-" if value is None else f"{value:.1%}"


def row(name, told):
    errors, outcomes = told["costErrors"], [question["outcome"] for question in told["questions"]]
    pairs = [[told[name][whose] for whose in ("told", "true")] for name in ("capacity", "iteration")]
    pairs[1] = [value and value * 1e3 for value in pairs[1]]
    pairs = ["/".join("-" if value is None else f"{value:.1f}" for value in pair) for pair in pairs]
    return (
        name,
        " or ".join(told["expected"]),
        ("" if told["cause"] in told["expected"] else "! ") + str(told["cause"]),
        str(told["confidence"]),
        f"{share(errors['prompts'])} {share(errors['decoding'])}",
        " ".join("-" if value is None else f"{value:.2f}" for value in told["slowdowns"].values()),
        *pairs,
        " ".join(str(outcomes.count(outcome)) for outcome in ("right", "refused", "wrong")),
    )


HEAD = ("engine", "expected", "told", "confidence", "cost error with/without prompts", "slowdown", "requests/s told/true")
HEAD += ("mean ms told/true", "what-if right refused wrong")


def print_table(found):
    rows = [HEAD, tuple("---" for _ in HEAD), *(row(name, told) for name, told in found.items())]
    for cells in rows:
        print("| " + " | ".join(cells) + " |")
    for name, told in found.items():
        for question in told["questions"]:
            why = question["why"]
            if isinstance(why, dict):
                why = ", ".join(f"{what} {error:+.1%}" for what, error in why.items() if not isinstance(error, str))
                why += f"; stable: {question['why']['stable']}" if "stable" in question["why"] else ""
            print(f"{question['outcome']:8}{name} {question['question']}: {why}")


def main():
    parser = options(__doc__)
    option = parser.add_argument
    option("--exporter", type=pathlib.Path, default=os.environ.get("TRTLLM_TEST_BINARY"), help="default: TRTLLM_TEST_BINARY")
    option("--kind", choices=KINDS, default="today", help="the kind of records (default: %(default)s)")
    option("--seconds", type=float, default=135, help="how long the engines run (default: %(default)s)")
    option("--engines", help="some of the engines, separated by commas (default: all)")
    option("--seed", type=int, default=3, help="for the requests (default: %(default)s)")
    args = parser.parse_args()
    cases = {case.name: case for case in CASES}
    if args.engines:
        unknown = set(args.engines.split(",")) - set(cases)
        if unknown:
            parser.error(f"unknown engines: {', '.join(sorted(unknown))}; use {', '.join(cases)}")
        cases = {name: cases[name] for name in args.engines.split(",")}
    iterations = {model: Iterations(model) for model in {case.model for case in cases.values()}}
    if not args.exporter:
        parser.error("no exporter; use --exporter PATH, or set TRTLLM_TEST_BINARY")
    begun = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        found, late = judge(args, cases, iterations, pool)
    print(f"{args.kind}, {args.seconds:g} s; {time.monotonic() - begun:.0f} s in all", end="; ")
    print(f"lines at most {late * 1e3:.0f} ms late\n")
    print_table(found)
    wrong = [name for name, told in found.items() if told["cause"] not in told["expected"]]
    if wrong:
        sys.exit(f"another cause than expected: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
