"""Builds public reports of slow TensorRT-LLM engines from their numbers, and asks for the verdict on each.

usage: public_cases.py EXPORTER [--only REGEX] [--seconds S]
Each engine is a process (trtllm-sim-serve; SIM_SERVE names a built one) with the release, limits, lengths and measured step times of the
report. The exporter sees only what such a server or publisher sends; see live.py for the setups. Nobody reads GPUs, except where the name
says so: the stand-in for NVML then shows for how much of the time kernels run.
An answer is right if it names the cause and the setting of the report, and `finding` if the finding of the case does. It is `blind` if
the confidence is low, the cause is `none` and the blind spot of the case is named: nothing that this deployment sends shows the cause.
Then the costs that the exporter learns from engines with measured step times are compared with these.
Exit code 1 for any other answer, except a silence for a known reason, and if a median error is above 5 %.
Needs target/debug/libnvml_standin.so (cargo build --package nvml-standin).
"""

import csv
import dataclasses
import json
import os
import re
import statistics
import sys
import tempfile
import urllib.parse

sys.path.append(os.path.join(os.path.dirname(__file__), "kernels"))

from costs import predicted
from exporter import ROOT, fetch, gpu_state, options, simulated_gpus
from live import kind, told, watched

# Milliseconds of a step that decodes so many requests on H100 (waynehacking8/trtllm-triton-serving).
with open(os.path.join(ROOT, "tests/fixtures/tables/wayne_h100_itl_ms.csv")) as table:
    (_, *names), *lines = csv.reader(table)
SIZES = tuple(int(name.removeprefix("c")) for name in names)
CURVES = {name: tuple(map(float, steps)) for name, *steps in lines}
CLOSED = {"rate": 1000, "wave": 0, "prefix_share": 0, "spread": 0.1, "jitter": 0.02}
FP8 = {"steps_ms": CURVES["llama31-8b-fp8-tp2"], "ctx_token_us": 15, "kv_blocks": 20000, "max_batch_size": 256, "max_num_tokens": 8192}


@dataclasses.dataclass(frozen=True)
class Case:
    """`engine`: options of the engine, beside CLOSED. `server`: arguments of the server. `blind`: what hides the cause. `finding`: the rule
    that names it beside the verdict. `remedy`: what helped there, which the answer must name. `silent`: why nothing names the cause. `gpu`:
    percent of the time in which kernels run, for one more engine whose GPU is read."""

    number: int
    name: str
    source: str
    cause: str
    engine: dict
    server: tuple
    setups: tuple = ("records", "entries")
    blind: tuple = ()
    finding: str = ""
    remedy: str = ""
    silent: str = ""
    gpu: int | None = None


TRITON = ("socket",)
CASES = (
    # 73 and 194 tokens/s at 1 and 100 clients; 99 active, 5 scheduled; 31 of 40 blocks of 64 tokens used.
    Case(1, "small-pool", "server#7548", "kv_capacity",
         {"kv_blocks": 40, "tokens_per_block": 64, "max_batch_size": 256, "max_num_tokens": 4096, "in_flight": 100, "prompt_mean": 250,
          "output_mean": 230, "steps_ms": {1: 13.7, 5: 25.8}, "ctx_token_us": 100},
         ("--backend=tensorrt", "--release=0.11"), TRITON, remedy="max_tokens_in_paged_kv_cache"),
    # 27 B on two A100: about 177,000 tokens of cache, of which a request without max_tokens reserves 131,072.
    Case(2, "no-max-tokens", "#9412", "kv_reservation",
         {"kv_blocks": 5530, "max_batch_size": 32, "max_num_tokens": 8192, "max_tokens": 130000, "in_flight": 16, "prompt_mean": 500,
          "output_mean": 200, "steps_ms": {1: 17, 32: 22}, "ctx_token_us": 150},
         ("--release=1.2",), remedy="max_tokens"),
    # 32 B on an A10: the cache has one sequence of 12,288 tokens, which a request with max_tokens reserves.
    Case(2, "huge-max-tokens", "#2866", "kv_reservation",
         {"kv_blocks": 200, "tokens_per_block": 64, "max_batch_size": 16, "max_num_tokens": 11776, "max_tokens": 11776, "in_flight": 8,
          "prompt_mean": 100, "output_mean": 300, "steps_ms": {1: 35, 16: 45}, "ctx_token_us": 500},
         ("--backend=tensorrt", "--release=0.16"), TRITON, remedy="max_tokens"),
    # 32 clients with 16,384 + 512 tokens, 70 B on one H200: 96 tokens/s, and 161 without eviction.
    Case(3, "evictions", "#16827", "kv_capacity",
         {"kv_blocks": 5700, "max_batch_size": 64, "max_num_tokens": 8192, "policy": "max_utilization", "max_tokens": 512, "in_flight": 32,
          "prompt_mean": 16384, "output_mean": 512, "spread": 0, "steps_ms": {1: 16, 32: 30}, "ctx_token_us": 115},
         ("--release=1.2",), remedy="GUARANTEED_NO_EVICT"),
    # 25,664 tokens/s with 54 % of the tokens of balanced ranks, and 33,499 with 84 %.
    Case(4, "uneven-ranks", "blog 10", "ranks",
         {"ranks": 8, "kv_blocks": 30000, "max_batch_size": 512, "max_num_tokens": 4096, "in_flight": 1536, "prompt_mean": 250,
          "output_mean": 1000, "spread": 0.3, "steps_ms": {1: 27, 192: 45, 384: 63}, "ctx_token_us": 20, "imbalance": 0.2},
         ("--release=1.4",), ("records",), remedy="enable_balance"),
    Case(4, "uneven-ranks-1.1", "blog 10", "ranks",
         {"ranks": 8, "kv_blocks": 30000, "max_batch_size": 512, "max_num_tokens": 4096, "in_flight": 1536, "prompt_mean": 250,
          "output_mean": 1000, "spread": 0.3, "steps_ms": {1: 27, 192: 45, 384: 63}, "ctx_token_us": 20, "imbalance": 0.2},
         ("--release=1.1",), ("records",), blind=("ranks",)),
    # 162 tokens/s with one client, and 374 with CUDA graphs.
    Case(5, "graphs-off", "wayne", "host", FP8 | {"graphs": None, "eager_ms": 6.17, "in_flight": 1, "prompt_mean": 128, "output_mean": 256},
         ("--release=1.1",), blind=("host", "gpu"), gpu=42, remedy="cuda_graph_config"),
    # A list of graphs up to 128 while more decode (#7031).
    Case(5, "batch-not-in-list", "#7031", "host",
         FP8 | {"graphs": (1, 2, 4, 8, 16, 32, 64, 128), "eager_ms": 20, "rate": 40, "wave": 0.95, "wave_period_s": 40, "in_flight": 256,
                "prompt_mean": 128, "output_mean": 256},
         ("--release=1.1",), finding="decoding-step", gpu=50, remedy="cuda_graph_config"),
    # One preprocessing instance: 5,769 tokens/s with 128 clients instead of 14,663; 2.97 s to the first token.
    Case(6, "one-preprocessor", "wayne", "frontend",
         FP8 | {"steps_ms": CURVES["triton-ensemble-bf16"], "frontend_request_ms": 44, "in_flight": 128, "prompt_mean": 128,
                "output_mean": 256},
         ("--backend=tensorrt", "--release=1.0"), TRITON, silent="the Executor's times begin after Triton's preprocessing"),
    # 128 clients get half of the 22,912 tokens/s that the same engine makes offline.
    Case(7, "streaming", "wayne", "frontend",
         FP8 | {"frontend_token_us": 84, "in_flight": 128, "prompt_mean": 12, "output_mean": 256},
         ("--release=1.1",), ("entries",), remedy="stream_interval"),
    # A step of 58.25 ms, in which the GPU is idle for 16.9 ms because the host waits for results.
    Case(8, "host-syncs", "DSpark", "host",
         FP8 | {"steps_ms": {1: 58.25, 122: 58.25}, "in_flight": 122, "prompt_mean": 500, "output_mean": 400}, ("--release=1.4",),
         ("records", "page"), blind=("gpu",), gpu=71),
    # A generation server with 256 active requests schedules nothing for 49 minutes.
    Case(9, "deadlock", "id 62662751463", "unavailable",
         {"disagg": "generation", "wedge_s": 45, "max_batch_size": 1024, "kv_blocks": 20000, "in_flight": 256, "output_mean": 1000,
          "steps_ms": {1: 10, 256: 20}},
         ("--release=1.4",), ("records", "page")),
    # Each step waits 0.58 ms for the host: 13,806 tokens/s with 64 clients, and 15,638 without.
    Case(10, "host-0.6-ms", "#13957", "host",
         FP8 | {"steps_ms": {1: 3, 64: 4.06}, "overlap": 0, "host_ms": 0.58, "in_flight": 64, "prompt_mean": 1000, "output_mean": 1000},
         ("--release=1.4",), ("records", "page"), blind=("gpu",), gpu=87, silent="12 % of the time is below the limit of the cause"),
    # The host needs 45.1 ms for a step.
    Case(10, "host-45-ms", "#10273", "host",
         FP8 | {"steps_ms": {1: 4, 64: 12}, "host_ms": 45.1, "in_flight": 64, "prompt_mean": 1000, "output_mean": 300}, ("--release=1.4",),
         ("records", "page")),
    Case(10, "host-45-ms-1.2", "#10273", "host",
         FP8 | {"steps_ms": {1: 4, 64: 12}, "host_ms": 45.1, "in_flight": 64, "prompt_mean": 1000, "output_mean": 300}, ("--release=1.2",),
         blind=("host",), gpu=27),
    # max_num_tokens has no room for a batch and a prompt.
    Case(11, "few-tokens", "#3486", "token_limit",
         FP8 | {"max_num_tokens": 160, "in_flight": 128, "prompt_mean": 1000, "output_mean": 100},
         ("--release=1.1",), blind=("token_limit",), remedy="max_num_tokens"),
    # The response of each token costs more than the token.
    Case(12, "token-responses", "#2613", "frontend",
         FP8 | {"steps_ms": CURVES["compiled-bf16"], "frontend_token_us": 300, "in_flight": 32, "prompt_mean": 128, "output_mean": 256},
         ("--backend=tensorrt", "--release=1.0"), ("entries",), remedy="stream_interval"),
    # Cached tokens count against max_num_tokens, so an iteration begins about one prompt.
    Case(13, "reuse-not-credited", "#15065", "token_limit",
         FP8 | {"policy": "max_utilization", "credits_reuse": 0, "prefix_share": 1, "prefix_tokens": 7900, "prompt_mean": 8000, "spread": 0,
                "output_mean": 30, "in_flight": 256, "steps_ms": {1: 12, 64: 18}},
         ("--release=1.3",), ("records", "page"), blind=("token_limit",)),
    # max_batch_size × (1 + drafts) is above max_num_tokens: a rank fails its assertion, and all hang.
    Case(14, "hanging-ranks", "#14481", "unavailable",
         {"ranks": 8, "iterations": 1500, "kv_blocks": 20000, "max_batch_size": 256, "in_flight": 512, "output_mean": 500,
          "steps_ms": {1: 27, 192: 45}},
         ("--release=1.4",), ("records",)),
)


def url(options):
    """The engine as in `--source`."""
    written = []
    for key, value in options.items():
        if key == "steps_ms":
            steps = value if isinstance(value, dict) else dict(zip(SIZES, value))
            value = ",".join(f"{size}:{ms}" for size, ms in steps.items())
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        if value is not None:
            written.append(f"{key}={value}")
    return "sim:?" + "&".join(written)


def play(exporter, cases, seconds):
    """The verdict on each case, by setup and name."""
    engines, gpus = {}, []
    for case in cases:
        engine = url(CLOSED | case.engine)
        for setup in case.setups:
            engines[setup, case.name] = (engine, case.server, {})
        if case.gpu is not None:
            engines[case.setups[-1], f"{case.name}, GPU read"] = (engine, case.server, {"gpus": [f"GPU-00000000-0000-4000-8000-{len(gpus):012x}"]})
            gpus.append({"utilization_percent": case.gpu})
    with tempfile.TemporaryDirectory() as folder:
        library = simulated_gpus(ROOT / "target/debug/libnvml_standin.so", folder, gpu_state([*gpus, {}]))
        with watched(exporter, engines, seconds, f"--gpu.library={library}", "--gpu=required") as ours:
            found = json.loads(fetch(f"{ours.url}/api/v1/findings"))["findings"]
            return told(ours), {(finding["subject"], finding["rule"]) for finding in found}


def judged(case, name, verdict, is_found):
    """The kind of the answer, with `blind` for one whose blind spot is that of the case."""
    if is_found:
        return "finding"
    where = kind(case.cause, verdict)
    if where == "right" and case.remedy not in verdict["remedy"]:
        return "another remedy"
    spots = {spot["what"] for spot in (verdict or {}).get("blind", [])}
    hidden = where == "silent, and says so" and spots & set(case.blind) and not name.endswith("read")
    return "blind" if hidden else "silent, as known" if case.silent and where == "silent, and says so" else where


def errors(exporter, seconds):
    """For each curve, the relative errors of the learned costs at the measured sizes."""
    engines = {}
    for name, steps in CURVES.items():
        # The load goes from a few requests to somewhat more than 128 can serve.
        waves = {"in_flight": 160, "rate": 300 / steps[-1], "wave": 0.95, "wave_period_s": 40, "prompt_mean": 128, "output_mean": 256}
        engines["page", name] = (url(CLOSED | FP8 | waves | {"steps_ms": steps}), ("--release=1.4",), {})
    found = {}
    with watched(exporter, engines, seconds) as ours:
        for name, steps in CURVES.items():
            model = json.loads(fetch(f"{ours.url}/api/v1/model?engine={urllib.parse.quote(f'page/{name}')}"))["present"]
            told_ms = [predicted(model, 0, size, 256 * size) for size in SIZES]
            found[name] = [told and told * 1e3 / ms - 1 for told, ms in zip(told_ms, steps)]
    return found


def main():
    parser = options(__doc__)
    parser.add_argument("exporter")
    parser.add_argument("--only", default=".", metavar="REGEX", help="cases, or the curves by the name curves")
    parser.add_argument("--seconds", type=float, default=140)
    args = parser.parse_args()
    cases = [case for case in CASES if re.search(args.only, case.name)]
    answers, findings = play(args.exporter, cases, args.seconds) if cases else ({}, set())
    failed = False
    head = ("#", "report", "engine", "setup", "cause found there", "answer", "confidence", "blind", "")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for case in cases:
        for (setup, name), verdict in sorted(answers.items()):
            if name.removesuffix(", GPU read") != case.name:
                continue
            where = judged(case, name, verdict, (f"{setup}/{name} 1", case.finding) in findings)
            verdict = verdict or {}
            failed |= where not in ("right", "finding", "blind", "silent, as known")
            spots = ", ".join(spot["what"] for spot in verdict.get("blind", []))
            cells = case.number, case.source, name, setup, case.cause, verdict.get("cause"), verdict.get("confidence"), spots, where
            print("| " + " | ".join(map(str, cells)) + " |")
            print(f"    {verdict.get('severity')}: {verdict.get('says')} {verdict.get('consequences')}", file=sys.stderr)
    curves = errors(args.exporter, args.seconds) if re.search(args.only, "curves") else {}
    if curves:
        sizes = " | ".join(f"{size} requests" for size in SIZES)
        print(f"\n| step times of | {sizes} | median error |\n|" + " --- |" * (len(SIZES) + 2))
    for name, found in curves.items():
        known = [abs(error) for error in found if error is not None]
        middle = statistics.median(known) if known else 1.0
        failed |= middle > 0.05
        print(f"| {name} | {' | '.join('-' if error is None else f'{error:+.1%}' for error in found)} | {middle:.1%} |")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
