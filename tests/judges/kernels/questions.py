"""Asks what-if about the engines, and compares its answers with what the changed engines really do."""

import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import urllib.parse

from engine import BLOCK, Engine
from exporter import Answers, serve

THROUGHPUT, MEDIANS = 0.02, 0.10  # largest errors of a right answer
ASKED = 2048  # an exporter answers from so many requests, the last that have finished
TIMES = 4  # how often the truth has the measured load


def frozen(models):
    """Serves answers of /api/v1/model, so that all questions are about the same moment. Returns the address."""

    class Handler(Answers):
        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            name = urllib.parse.parse_qs(url.query).get("engine", [""])[0].split(":")[0]
            body = models.get(name, b"") if url.path == "/api/v1/model" else b""
            self.answer(body, 200 if body else 404, Content_Type="application/json")

    return f"http://127.0.0.1:{serve(Handler).server_port}"


def ask(binary, url, engine, question):
    """The answer of the command, or an error."""
    command = [str(pathlib.Path(binary).with_name("trtllm-doctor")), "what-if", url, "--engine", engine, "--format", "json", *question.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def change(settings, question):
    """The changed settings, the factor of the rate, and the number of replicas."""
    rate, replicas, words = 1.0, 1, question.split()
    for option, value in zip(words[::2], words[1::2]):
        name, _, to = value.partition("=")
        if option == "--rate":
            rate = float(value.rstrip("x"))
        elif name == "replicas":
            replicas = int(to)
        elif name == "max_tokens":
            settings = dataclasses.replace(settings, blocks=int(to) // BLOCK)
        elif name == "capacity_scheduler_policy":
            settings = dataclasses.replace(settings, policy=to)
        elif name == "enable_chunked_prefill":
            settings = dataclasses.replace(settings, chunked=to == "true")
        else:
            settings = dataclasses.replace(settings, **{name: int(to)})
    return settings, rate, replicas


def truth(iterations, settings, requests, question, overlap):
    """What the changed engine does with the load of these requests: their lengths and the times between them, several times in
    random order. The first time warms the engine up."""
    settings, rate, replicas = change(settings, question)
    rand, now, load = random.Random(1), 0.0, []
    gaps = [(two.arrival - one.arrival) / rate for one, two in zip(requests, requests[1:])]
    for _ in range(TIMES + 1):
        gaps, requests = rand.sample(gaps, len(gaps)), rand.sample(requests, len(requests))
        for gap, request in zip(gaps, requests):
            now += gap
            load.append(request.again(rand.randrange(replicas), now))
    finished = []
    for replica in range(replicas):
        own = [request for request in load if request.id == replica]
        finished += Engine(iterations, settings, own, overlap, seed=replica + 1).run(now).finished
    period = sum(gaps)
    counted = [request for request in finished if request.last_token > period]
    return {
        "stable": len(counted) > 0.97 * TIMES * len(gaps),
        "requestsPerSecond": len(counted) / (TIMES * period),
        "ttft": statistics.median(request.first_token - request.arrival for request in counted),
        "tpot": statistics.median((request.last_token - request.first_token) / max(request.output - 1, 1) for request in counted),
    }


def judge(answer, true):
    """`right`, `refused` or `wrong`, and the relative errors."""
    if not answer["supported"]:
        return "refused", answer["reason"]
    then, errors = answer["then"], {}
    errors["throughput"] = then["requestsPerSecond"]["value"] / true["requestsPerSecond"] - 1
    right = then["stable"] == true["stable"] and abs(errors["throughput"]) <= THROUGHPUT
    if then["stable"] and true["stable"]:
        for name in ("ttft", "tpot"):
            errors[name] = then[f"{name}Seconds"]["p50"]["value"] / true[name] - 1
            right = right and abs(errors[name]) <= MEDIANS
    else:
        errors["stable"] = f"told {then['stable']}, true {true['stable']}"
    return "right" if right else "wrong", errors


def all_answers(binary, case, iterations, run, overlap, url):
    """Each question about an engine with its outcome, the reason or the errors, the answer and the truth. `run`: the engine."""
    known = min(request.arrival for request in sorted(run.finished, key=lambda request: request.last_token)[-ASKED:])
    # With those that have not finished, whose lengths the exporter does not know.
    requests = [request for request in run.requests if request.arrival >= known]
    found = []
    for question in case.questions:
        answer = ask(binary, url, case.name, question)
        true = truth(iterations, case.settings, requests, question, overlap)
        outcome, why = judge(answer, true)
        found.append({"question": question, "outcome": outcome, "why": why, "then": answer.get("then"), "true": true})
    return found
