"""The engines: their models, limits and loads, the cause that limits each, and the questions that are asked about them."""

import dataclasses
import random

from engine import Request, Settings


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Lengths are drawn from log-normal distributions, and cut at the largest."""

    prompt: int
    output: int
    most_prompt: int = 4096
    most_output: int = 1024
    spread: float = 0.6


@dataclasses.dataclass(frozen=True)
class Case:
    """`load`: the rate of the requests as a share of the capacity. `causes`: those that are right. `unseen_in`: kinds of records
    that do not show the cause, so that `none` is right."""

    name: str
    model: str
    causes: tuple
    load: float
    lengths: Lengths
    settings: Settings = Settings()
    questions: tuple = ("--rate 0.7x", "--rate 1.2x")
    unseen_in: tuple = ()

    def causes_in(self, kind):
        return ("none",) if kind in self.unseen_in else self.causes


CHAT = Lengths(800, 220)
SMALL_CHUNKS = "--set max_num_tokens=2048 --set enable_chunked_prefill=true"
CASES = (
    Case("8b-light", "llama-8b", ("none",), 0.3, CHAT, questions=("--rate 0.7x", "--rate 1.5x", "--set max_batch_size=16")),
    Case("8b-half", "llama-8b", ("none",), 0.5, CHAT, questions=("--rate 0.7x", "--rate 1.4x", SMALL_CHUNKS)),
    Case("8b-fp8-busy", "llama-8b-fp8", ("none",), 0.7, CHAT),
    Case(
        "8b-batch-limit", "llama-8b", ("batch_limit",), 1.3, CHAT, Settings(max_batch_size=16),
        ("--set max_batch_size=32", "--set max_batch_size=64", "--rate 0.5x"),
    ),
    Case(
        "8b-long-chunked", "llama-8b", ("context_work",), 1.2, Lengths(4000, 60, 8000, 200), Settings(max_num_tokens=2048),
        ("--rate 0.5x", "--set replicas=2"),
    ),
    Case(
        "8b-long-whole", "llama-8b", ("context_blocking",), 0.5, Lengths(3000, 250, 8000, 1000, 0.8), Settings(chunked=False),
        ("--rate 0.6x", SMALL_CHUNKS),
    ),
    Case(
        "8b-small-cache", "llama-8b", ("kv_capacity",), 1.2, Lengths(500, 400, 1500, 1000, 0.4),
        Settings(blocks=1200, policy="MAX_UTILIZATION"), ("--set max_tokens=153600", "--rate 0.6x"),
    ),
    Case("70b-half", "llama-70b-fp8-tp8", ("none",), 0.45, CHAT),
    Case(
        "70b-decoding", "llama-70b-fp8-tp8", ("generation_work",), 1.4, Lengths(400, 900, 1000, 2000, 0.3),
        Settings(max_batch_size=512, blocks=48000), ("--set replicas=2", "--rate 0.5x"),
    ),
    Case("moe-half", "qwen3-30b-a3b", ("none",), 0.5, CHAT, questions=("--rate 0.7x", "--rate 1.4x")),
    Case("8b-host", "llama-8b", ("host",), 0.5, CHAT, Settings(host=16e-3), unseen_in=("stable",)),
    Case(
        "8b-token-limit", "llama-8b", ("token_limit",), 1.3, Lengths(1500, 100, 4096, 400), Settings(max_num_tokens=256),
        ("--set max_num_tokens=1024", "--rate 0.5x"),
    ),
    Case("8b-slower", "llama-8b", ("slowdown",), 0.3, CHAT, questions=()),
    Case("moe-slower", "qwen3-30b-a3b", ("slowdown",), 0.25, CHAT, questions=()),
)


def draw(lengths, count, seed):
    """Requests with random lengths and without arrivals. One answer in three ends by a stop word."""
    rand = random.Random(seed)

    def size(median, most):
        return int(min(max(rand.lognormvariate(0, lengths.spread) * median, 8), most))

    found = []
    for number in range(count):
        prompt, output = size(lengths.prompt, lengths.most_prompt), size(lengths.output, lengths.most_output)
        found.append(Request(number, 0.0, prompt, output, rand.random() < 1 / 3))
    return found


def arrivals(lengths, rate, seconds, seed):
    """Requests of a Poisson process."""
    rand, now, found = random.Random(seed), 0.0, []
    for request in draw(lengths, int(rate * seconds * 1.5) + 50, seed + 1):
        now += rand.expovariate(rate)
        if now >= seconds:
            break
        found.append(request.again(len(found) + 1, now))
    return found
