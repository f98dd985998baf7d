"""Asks other tools for the cause of each engine's trouble, on vLLM's names of the exporter, and compares their answers with the verdict.

usage: other_doctors.py EXPORTER [--only REGEX] [--one-a-cause] [--setups NAME,...] [--seconds S]
The engines and set-ups are those of live.py: `both` and `socket` by default. The tools are vllm-doctor 0.6.0 and inference-doctor 0.4.1,
beside the Python that runs this (`.ci/full other-doctors` installs both). Each reads a Prometheus of its own engine every five seconds,
because inference-doctor adds up all series that it finds. Both look at the last minute, as the verdict does. inference-doctor gets 2 s to
the first token and 100 ms for each token as its objectives: the times at which a verdict becomes a warning. Other thresholds are theirs.
A tool is right if its first finding names the cause (NAMES), or, counted apart, another one does; and about a healthy engine if it has no
finding. It is silent if it has none about another engine; everything else is wrong. For the verdict, see live.py: nobody reads GPUs.
These findings cannot appear, because no page here tells their numbers: low_throughput (`vllm:prompt_tokens_per_second`, which vLLM does not
have either), replica_imbalance (one engine), DECODE_PRESSURE (`vllm:inter_token_latency_seconds` needs time_breakdown_metrics; its objective
is kept where decoding is the cause), error_rate (a server and a publisher tell of no failed request, which blinds the verdict, too), and
with the C++ backend preemption_pressure and prefix_cache_efficiency. Where rows are reported (`both`), at most 256 simulated requests
wait, so `batch_limit` is a fair answer to the scenario `load`, too.
Exit code 1 if a tool is right more often than the verdict; 77 if Prometheus is not installed.
"""

import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

from live import kind, parsed, told, watched
from prometheus import Prometheus, needs, scraping, target

# The findings that name a cause, by their titles, explanations and first recommendations. In doubt, a finding does name it: a queue is
# named for a limit on the batch, because one advice is to raise the concurrency; a late first token for limits on prompts, because one
# advice is chunked prefill. Nothing names the causes that are absent.
NAMES = {
    "errors": {"error_rate"},
    "memory": {"error_rate"},  # "Server-side OOM"
    "load": {"queue_pressure", "queue_latency", "QUEUE_PRESSURE"},
    "batch_limit": {"queue_pressure", "queue_latency", "QUEUE_PRESSURE"},
    "token_limit": {"ttft_bottleneck", "PREFILL_PRESSURE"},
    "context_blocking": {"ttft_bottleneck", "PREFILL_PRESSURE"},
    "context_work": {"ttft_bottleneck", "prefix_cache_efficiency", "PREFILL_PRESSURE"},
    "kv_thrash": {"prefix_cache_efficiency"},
    "kv_capacity": {"kv_cache_pressure", "preemption_pressure", "KV_CACHE_PRESSURE"},
    "generation_work": {"tpot_bottleneck", "DECODE_PRESSURE"},
}
OURS, TOOLS, KINDS = "verdict", ("vllm-doctor", "inference-doctor"), ("right", "right, not first", "silent", "wrong")


def findings(tool, prometheus, home):
    """The identifiers of the findings of a tool, the worst first."""
    program = os.path.join(os.path.dirname(sys.executable), tool)
    arguments = {
        "vllm-doctor": [prometheus, "--since=1m", "--output=json"],
        "inference-doctor": [f"--prometheus={prometheus}", "--window=1m", "--ttft-slo-ms=2000", "--tpot-slo-ms=100", "--fail-on=never", "--json"],
    }[tool]
    # vllm-doctor reads a file of settings in its folder and its home.
    answered = subprocess.run([program, "diagnose", *arguments], cwd=home, env={"HOME": home}, stdout=subprocess.PIPE, check=True, text=True)
    answer = json.loads(answered.stdout)
    return [one["id"] for one in answer["checks"] if one["finding"]] if tool == "vllm-doctor" else [one["id"] for one in answer["findings"]]


def kind_of_findings(expected, found):
    if not found:
        return "right" if expected == "none" else "silent"
    right = [one in NAMES.get(expected, ()) for one in found]
    return "right" if right[0] else "right, not first" if any(right) else "wrong"


def answers(exporter, engines, seconds):
    """For each pair of a set-up and a scenario: the verdict, and the findings of each tool."""
    with contextlib.ExitStack() as running:
        work = running.enter_context(tempfile.TemporaryDirectory())
        ours = running.enter_context(watched(exporter, engines, 0, "--metrics.compat=vllm"))
        readers = {}
        for pair in engines:
            config = scraping([target(ours.address)], "5s")
            of_engine = {"source_labels": ["model_name"], "regex": "/".join(pair), "action": "keep"}
            config["scrape_configs"][0] |= {"params": {"collect[]": ["compat"]}, "metric_relabel_configs": [of_engine]}
            readers[pair] = running.enter_context(Prometheus(work, config, name="-".join(pair)))
        time.sleep(seconds)
        for pair, reader in readers.items():
            yield pair, told(ours).get(pair), {tool: findings(tool, reader.base, work) for tool in TOOLS}


def main():
    args = parsed(__doc__, "both,socket", 12)
    needs("prometheus")
    counts, missed, right = collections.Counter(), [], collections.Counter()
    print(f"| set-up | cause | {OURS} | {' | '.join(TOOLS)} |\n| --- | --- | --- | --- | --- |")
    for engines in args.rounds:
        for (setup, name), verdict, by_tool in answers(args.exporter, engines, args.seconds):
            expected = args.causes[name]
            said = {OURS: [f"{verdict['cause']} ({verdict['confidence']})"] if verdict else []} | by_tool
            kinds = {OURS: kind(expected, verdict).split(",")[0]} | {tool: kind_of_findings(expected, by_tool[tool]) for tool in TOOLS}
            counts.update((setup, who, kinds[who]) for who in kinds)
            right.update(who for who in kinds if kinds[who] in KINDS[:2])
            cells = [f"{kinds[who]}: {', '.join(said[who]) or 'nothing'}" for who in kinds]
            print(f"| {setup} | {expected} (`{name}`) | {' | '.join(cells)} |", flush=True)
            missed += [f"{tool} is right, and the verdict is not: {setup}, {name}" for tool in TOOLS if kinds[tool] in KINDS[:2] and kinds[OURS] != "right"]
    print(*missed, sep="\n")
    print(f"| set-up | who | {' | '.join(KINDS)} |\n| --- |{' --- |' * (1 + len(KINDS))}")
    for setup in args.setups:
        for who in (OURS, *TOOLS):
            print(f"| {setup} | {who} | {' | '.join(str(counts[setup, who, one]) for one in KINDS)} |")
    sys.exit(any(right[tool] > right[OURS] for tool in TOOLS))


if __name__ == "__main__":
    main()
