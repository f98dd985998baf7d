"""Checks the tables of docs/migration.md. Their columns are a metric of another exporter and a query with the same value. Also checks that
each query in the table of formulas in docs/semantics.md has a value.

usage: migration.py EXPORTER
Each old name must be one of the exporter's compatible names, and the tables must contain all names of Triton's core and of dcgm-exporter.
Then the old metric and the query are evaluated in a real Prometheus that scrapes an exporter with two engines and simulated GPUs
(libnvml_standin.so must be beside EXPORTER). Exit code 1 if a value differs or is missing, 77 if Prometheus is not installed.
"""
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from exporter import ROOT, Exporter, conclude, simulated_gpus, until
from expressions import table_queries_of
from prometheus import Prometheus, scraping, target
from sim_serve import SimServe

DOCUMENT = ROOT / "docs/migration.md"
GPU_STATE = ROOT / "tests/fixtures/busy_gpu.state"
ROW = re.compile(r"^\| `((?:trtllm_|nv_inference_|DCGM_FI_)\w+)` \| (.+) \|$", re.M)
SETS = "trtllm,triton-core,dcgm"
# One of two engines. It uses speculative decoding. The other engine publishes finish reasons to a socket.
SIMULATED = "sim:?rate=15&spec_draft_len=3&spec_acceptance=0.9"
# Names that have a value only with a real trtllm-serve, and the reason. tests/judges/upstream.py compares them.
WITHOUT_VALUE = {"trtllm_request_error_total": "HTTP errors of the server"}

# In an iteration that generates or drafts nothing, these are 0, and our metric is absent, because there is nothing to divide by.
ABSENT_IF_ZERO = {"trtllm_avg_decoded_tokens_per_iter", "trtllm_spec_decode_draft_overhead"}

# Formulas without a value here, because no simulated engine has their families: a word of the query, and what it needs.
FORMULAS_WITHOUT_VALUE = {
    "bench_": "a report of trtllm-bench",
}


def rows():
    """The rows of the tables: the old name, and the query or None."""
    found = ROW.findall(DOCUMENT.read_text())
    return [(old, re.match(r"`(.+?)`", new).group(1) if new.startswith("`") else None) for old, new in found]


def known_names(catalog, table):
    compatible = {m["name"]: m["type"] for m in catalog if m["group"] == "compat"}
    ours = {m["name"] for m in catalog if m["group"] != "compat"}
    for old, new in table:
        if old not in compatible:
            yield f"{old} is not a name of --metrics.compat"
        for name in re.findall(r"\bnv_\w+", new or ""):
            if name not in ours and re.sub(r"_(sum|count)$", "", name) not in ours:
                yield f"{old}: {name} is not a metric of the exporter"
    required = {name for name in compatible if name.startswith(("DCGM_FI_", "nv_inference_"))}
    for name in sorted(required - {old for old, _ in table}):
        yield f"{name} is missing in the tables"
    if len(table) != len({old for old, _ in table}):
        yield "a name is in the tables twice"


def same(left, right, abs_tol):
    return len(left) == len(right) and all(math.isclose(a, b, rel_tol=1e-6, abs_tol=abs_tol) for a, b in zip(left, right))


def compare(prometheus, table, types, at):
    """Returns the number of compared names, the number of names without a value, and findings."""
    compared, empty, findings = [], [], []
    for old, new in table:
        if new is None:
            continue
        # Triton counts whole microseconds, so such values may differ by 1.
        abs_tol = 1 if old.endswith("_us") else 1e-9
        suffixes = ["_sum", "_count"] if types[old] == "histogram" else [""]
        for suffix in suffixes:
            left, right = (sorted(prometheus.values(name + suffix, at).values()) for name in (old, new))
            if old in ABSENT_IF_ZERO:
                left = [value for value in left if value != 0]
            if not left and not right:
                empty.append(old)
            elif same(left, right, abs_tol):
                compared.append(old)
            else:
                findings.append(f"{old}{suffix} is {left}, but {new}{suffix} is {right}")
    return compared, empty, findings


def main():
    exporter = os.path.abspath(sys.argv[1])
    catalog = json.loads(subprocess.check_output([exporter, "catalog", "--format", "json"], text=True))
    types = {m["name"]: m["type"] for m in catalog}
    table = rows()
    findings = list(known_names(catalog, table))
    print(*findings, f"{len(table)} rows", sep="\n")
    if findings:
        sys.exit(1)
    if not shutil.which("prometheus"):
        print("the names are right; prometheus is not installed, so no values were compared")
        sys.exit(77)
    standin = os.path.join(os.path.dirname(exporter), "libnvml_standin.so")
    if not os.path.exists(standin):
        sys.exit(f"{standin} is missing; build it with: cargo build --package nvml-standin")
    with contextlib.ExitStack() as running:
        work = running.enter_context(tempfile.TemporaryDirectory())
        library = simulated_gpus(standin, work, "gpus=2\n" + GPU_STATE.read_text())
        ingest = os.path.join(work, "ingest.sock")
        arguments = (f"--source={SIMULATED}", f"--source=socket:{ingest}", f"--metrics.compat={SETS}", f"--gpu.library={library}")
        ours = running.enter_context(Exporter(exporter, *arguments))
        until("the socket", lambda: os.path.exists(ingest))
        running.enter_context(SimServe.publishing(ingest, "published"))
        prometheus = running.enter_context(Prometheus(work, scraping([target(ours.address)], "2s")))
        time.sleep(20)  # the sources of request times are chosen 15 s after the first finished request
        compared, empty, findings = compare(prometheus, table, types, time.time() - 3)  # both sides are evaluated at the same moment
        formulas = list(table_queries_of((ROOT / "docs/semantics.md").read_text()))
        for formula in formulas:
            known = [word for word in FORMULAS_WITHOUT_VALUE if word in formula]
            if bool(prometheus.values(formula, time.time() - 3)) == bool(known):
                findings.append(f"the formula {formula} has {'a' if known else 'no'} value")
    empty = set(empty)
    findings += [f"{old} and the query for it have no value" for old in sorted(empty - set(WITHOUT_VALUE))]
    findings += [f"{old} has a value; remove it from WITHOUT_VALUE" for old in sorted(set(WITHOUT_VALUE) - empty)]
    if not compared:
        findings.append("no name was compared")
    conclude(findings, f"{len(set(compared))} names have the same value, {len(formulas)} formulas, {len(findings)} findings, {len(empty)} without a value: {' '.join(sorted(empty))}")


if __name__ == "__main__":
    main()
