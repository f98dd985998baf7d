"""Checks the tables of docs/migration.md: old name | query with the same value here.

usage: check_migration.py EXPORTER
Each old name must be one of the exporter's compatible names, and all of Triton's core and of dcgm-exporter must be there. Then both sides are
evaluated in a real Prometheus that scrapes an exporter with a simulated engine and, if libnvml_standin.so is beside EXPORTER, simulated GPUs.
Exit code 1 if a value differs, 77 if Prometheus is not installed.
"""
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
DOCUMENT = os.path.join(ROOT, "docs/migration.md")
GPU_STATE = os.path.join(ROOT, "tests/fixtures/busy_gpu.state")
ROW = re.compile(r"^\| `((?:trtllm_|nv_inference_|DCGM_FI_)\w+)` \| (.+) \|$", re.M)
SETS = "trtllm,triton-core,dcgm"


def rows():
    """Old name, and the query or None."""
    with open(DOCUMENT) as file:
        found = ROW.findall(file.read())
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def values(base, expression, at):
    query = urllib.parse.urlencode({"query": expression, "time": at})
    with urllib.request.urlopen(f"{base}/api/v1/query?{query}", timeout=10) as answer:
        return sorted(float(series["value"][1]) for series in json.load(answer)["data"]["result"])


def same(left, right):
    return len(left) == len(right) and all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(left, right))


def compare(base, table, types, at):
    """Names compared, names without a value, and findings."""
    compared, empty, findings = [], [], []
    for old, new in table:
        if new is None:
            continue
        suffixes = ["_sum", "_count"] if types[old] == "histogram" else [""]
        for suffix in suffixes:
            left, right = values(base, old + suffix, at), values(base, new + suffix, at)
            if not left:
                empty.append(old)
            elif same(left, right):
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
    started = []
    with tempfile.TemporaryDirectory() as work:
        try:
            arguments = ["--gpu=off"]
            standin = os.path.join(os.path.dirname(exporter), "libnvml_standin.so")
            if os.path.exists(standin):
                library = shutil.copy(standin, os.path.join(work, "libnvidia-ml.so.1"))
                with open(GPU_STATE) as state, open(library + ".state", "w") as file:
                    file.write("gpus=2\n" + state.read())
                arguments = [f"--gpu.library={library}"]
            bound = os.path.join(work, "bound")
            log = open(os.path.join(work, "log"), "w+")
            started.append(subprocess.Popen([exporter, "--source=sim:?rate=15", f"--metrics.compat={SETS}", "--web.listen-address=127.0.0.1:0",
                                             f"--web.port-file={bound}", *arguments], stdout=log, stderr=log))
            while not os.path.exists(bound) or not open(bound).read().strip():
                time.sleep(0.1)
            config = os.path.join(work, "prometheus.yml")
            with open(config, "w") as file:
                json.dump({"global": {"scrape_interval": "2s", "scrape_timeout": "1s"},
                           "scrape_configs": [{"job_name": "x", "static_configs": [{"targets": [open(bound).read().split()[0]]}]}]}, file)
            base = f"http://127.0.0.1:{free_port()}"
            started.append(subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={work}/data",
                                             f"--web.listen-address={base[7:]}", "--log.level=error"], stdout=log, stderr=log))
            time.sleep(14)
            compared, empty, findings = compare(base, table, types, time.time() - 3)  # one moment for both sides
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=10)
    print(*findings, sep="\n")
    print(f"{len(set(compared))} names have the same value, {len(findings)} differ, {len(set(empty))} have no value here: {' '.join(sorted(set(empty)))}")
    wanted = {old.split("_")[0] for old, _ in table} if len(arguments) and "library" in arguments[0] else {"trtllm", "nv"}
    missing = wanted - {old.split("_")[0] for old in compared}
    if missing:
        print(f"no value of {missing} was compared")
    sys.exit(bool(findings or missing))


if __name__ == "__main__":
    main()
