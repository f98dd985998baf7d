"""Checks the judge itself: the relations between records and true times, and that the cause of each engine is the cause."""

import csv
import dataclasses
import datetime
import json
import statistics

from engine import Engine, throughput
from fleet import arrivals, draw
from records import KINDS, entry, is_overlap, record

# How much a time in a record may differ from the true time of the batch that it belongs to.
SECONDS, SHARE = 0.9e-3, 0.03


def own_run(case, iterations, kind, seconds=40.0):
    """The records of a short run of an engine, and the true times by the number of the pass."""
    capacity = throughput(iterations, case.settings, draw(case.lengths, 300, 5), is_overlap(kind))
    requests = arrivals(case.lengths, case.load * capacity, seconds, 11)
    engine = Engine(iterations, case.settings, requests, is_overlap(kind)).run(seconds)
    found = []
    for place, batch in enumerate(engine.batches, 1):
        found.append(record(batch, kind, case.settings, place, False) | {"stamp": batch.stamp})
    truth = {told["iter"]: batch.took for told, batch in zip(found, engine.batches)}
    return found, truth, [entry(request) for request in engine.finished]


def sample(folder, kind):
    """The same of a sample: KIND.jsonl and KIND.truth.csv."""
    told = [json.loads(line) for line in open(folder / f"{kind}.jsonl")]
    found = [line for line in told if "iter" in line]
    for line in found:
        line["stamp"] = datetime.datetime.strptime(line["timestamp"], "%m-%d-%Y %H:%M:%S.%f").timestamp()
    with open(folder / f"{kind}.truth.csv") as file:
        truth = {int(row["iter"]): float(row["milliseconds"]) / 1e3 for row in csv.DictReader(file)}
    return found, truth, [line for line in told if "request_id" in line]


def relations(records, truth, kind):
    """The share of the batches for which each relation of a time to the truth holds."""
    held = {}

    def holds(name, value, true):
        held.setdefault(name, []).append(abs(value - true) <= SECONDS + SHARE * true)

    following = list(zip(records, records[1:], records[2:]))
    for one, two, three in following:
        true = truth[one["iter"]]
        follows = two["iter"] == one["iter"] + 1 and three["iter"] == one["iter"] + 2
        latency = one["iterLatencyMS"] / 1e3
        if kind == "serial":
            # After an idle time, the latency contains the wait for the first request.
            before = records[records.index(one) - 1] if one is not records[0] else one
            if before["iter"] + 1 == one["iter"] and latency < 10 * true:
                holds("iterLatencyMS", latency, true)
            holds("hostStepTimeMS of the next record", two["hostStepTimeMS"] / 1e3, latency)
            continue
        if not follows:
            continue
        holds("time between the next two timestamps", three["stamp"] - two["stamp"], true)
        if kind == "today":
            holds("hostStepTimeMS of the next record", two["hostStepTimeMS"] / 1e3, true)
            holds("iterLatencyMS - hostStepTimeMS", (one["iterLatencyMS"] - one["hostStepTimeMS"]) / 1e3, true)
            holds("gpuForwardTimeMS", one["gpuForwardTimeMS"] / 1e3, true)
    return {name: statistics.mean(of) for name, of in held.items()}


def members(value, path=""):
    if not isinstance(value, dict):
        return {path}
    return set().union({path}, *(members(inside, f"{path}.{name}") for name, inside in value.items()))


def causes(case, iterations):
    """What the capacity gains if one limit is doubled. The limit that is the cause must gain most."""
    requests = draw(case.lengths, 1200, 9)
    now = throughput(iterations, case.settings, requests)
    gains = {}
    for name in ("max_batch_size", "max_num_tokens", "blocks"):
        doubled = {name: 2 * getattr(case.settings, name)}
        gains[name] = throughput(iterations, dataclasses.replace(case.settings, **doubled), requests) / now - 1
    return gains


LIMITS = {"batch_limit": "max_batch_size", "token_limit": "max_num_tokens", "kv_capacity": "blocks"}


def run(cases, iterations, folder):
    """Prints the checks; the number of failures. `folder`: samples to compare with, or None."""
    failures = 0

    def check(what, is_right):
        nonlocal failures
        failures += not is_right
        print(f"{'ok  ' if is_right else 'FAIL'} {what}")

    for kind in KINDS:
        records, truth, entries = own_run(cases["8b-light"], iterations["llama-8b"], kind)
        runs = {"own": (records, truth)}
        if folder:
            theirs, their_truth, their_entries = sample(folder, kind)
            runs["sample"] = (theirs, their_truth)
            differ = members(records[0]) ^ members({name: value for name, value in theirs[0].items() if name != "timestamp"})
            check(f"{kind}: members of a record as in the sample: {sorted(differ) or 'all'}", not differ)
            differ = members(entries[0]) ^ members(their_entries[0])
            check(f"{kind}: members of a request as in the sample: {sorted(differ) or 'all'}", not differ)
        for name, (of, true) in runs.items():
            for relation, share in relations(of, true, kind).items():
                check(f"{kind}: {name}: {relation} = true time, for {share:.1%}", share >= 0.95)
    for case in cases.values():
        limit = next((LIMITS[cause] for cause in case.causes if cause in LIMITS), None)
        gains = causes(case, iterations[case.model])
        told = ", ".join(f"{name} {gain:+.0%}" for name, gain in gains.items())
        if limit:
            most = gains[limit] >= 0.15 and gains[limit] == max(gains.values())
            check(f"{case.name}: {limit} limits; capacity with twice: {told}", most)
        elif case.load > 1:
            check(f"{case.name}: no limit serves the load; capacity with twice: {told}", max(gains.values()) + 1 < case.load)
    return failures
