"""Checks deploy/prometheus/alertmanager.yml with the real amtool and a real Alertmanager.

usage: alertmanager.py     (run in the repository root)
Each alert must go to the receiver of its severity. Each name in an inhibition rule must be an alert. In each case below, exactly the
expected alerts must be muted. Prints one line per finding. Exit code 1 if there is a finding, 77 if the Alertmanager is not installed.
"""

import json
import re
import subprocess
import tempfile
import time

from alerts import alerts_of, read, rule_files
from exporter import conclude, fetch
from notified import Alertmanager, alertmanager
from prometheus import needs

CONFIG = "deploy/prometheus/alertmanager.yml"
RECEIVERS = {"critical": "pager", "warning": "ticket", "info": "nobody"}
HERE = {"job": "trtllm-exporter", "namespace": "prod", "instance": "a:8002", "node": "n1"}
ENGINE = HERE | {"model": "llama", "version": "1"}
MODEL = {"job": "trtllm-exporter", "namespace": "prod", "model": "llama"}
OTHER = ENGINE | {"instance": "b:8002", "node": "n2"}
BARE = {"job": "trtllm-exporter"}
# By the name of the case: the alerts that fire, and the alerts among them that must be muted.
CASES = {
    "a node is down": (
        [("KubeNodeNotReady", {"node": "n1"}), ("TrtllmExporterDown", HERE), ("TrtllmExporterDown", HERE | {"node": "n2", "instance": "b:8002"})],
        [("TrtllmExporterDown", "a:8002")],
    ),
    "a node is down, and alerts have no label node": ([("NodeDown", {"instance": "n1:9100"}), ("TrtllmExporterDown", BARE)], []),
    "an exporter is down": (
        [("TrtllmExporterDown", HERE), ("TrtllmEngineLimited", ENGINE), ("TrtllmEngineLimited", OTHER), ("TrtllmEngineStalled", ENGINE)],
        [("TrtllmEngineLimited", "a:8002")],
    ),
    "no exporter has a target": ([("TrtllmExporterDown", BARE), ("TrtllmEngineUnreachable", BARE | {"model": "m"})], []),
    "a GPU is lost": (
        [("TrtllmGpuLost", HERE | {"gpu_uuid": "1"}), ("TrtllmGpuHot", HERE | {"gpu_uuid": "1"}), ("TrtllmNvlinkDown", HERE | {"gpu_uuid": "2"})],
        [("TrtllmGpuHot", "a:8002")],
    ),
    "the only engine of a model hangs": (
        [
            ("TrtllmModelUnavailable", MODEL),
            ("TrtllmModelNotServing", MODEL),
            ("TrtllmEngineStalled", ENGINE),
            ("TrtllmEngineLimited", ENGINE),
            ("TrtllmRequestsFailing", ENGINE),
            ("TrtllmObjectiveBudgetBurn", MODEL),
            ("TrtllmObjectiveBudgetBurn", MODEL | {"model": "qwen"}),
        ],
        [
            ("TrtllmModelNotServing", "llama"),
            ("TrtllmEngineStalled", "a:8002"),
            ("TrtllmEngineLimited", "a:8002"),
            ("TrtllmRequestsFailing", "a:8002"),
            ("TrtllmObjectiveBudgetBurn", "llama"),
        ],
    ),
    "the engine of a model is limited by its GPU, and a replica is gone": (
        [("TrtllmModelUnavailable", MODEL), ("TrtllmEngineLimited", ENGINE), ("TrtllmEngineUnreachable", OTHER)],
        [("TrtllmEngineUnreachable", "b:8002")],
    ),
    "the only pod of a model is evicted": (
        [("TrtllmModelDown", MODEL), ("TrtllmModelUnavailable", MODEL), ("TrtllmModelNotServing", MODEL), ("TrtllmModelUnavailable", MODEL | {"model": "qwen"})],
        [("TrtllmModelUnavailable", "llama"), ("TrtllmModelNotServing", "llama")],
    ),
    "one of two engines hangs": (
        [("TrtllmEngineStalled", ENGINE), ("TrtllmRequestsFailing", ENGINE), ("TrtllmRequestsFailing", OTHER)],
        [("TrtllmRequestsFailing", "a:8002")],
    ),
    "an engine is away": (
        [("TrtllmEngineUnreachable", ENGINE), ("TrtllmEngineRestartLoop", ENGINE), ("TrtllmRequestsFailing", ENGINE)],
        [("TrtllmEngineRestartLoop", "a:8002")],
    ),
    "an objective is missed, and an alert knows the cause": (
        [("TrtllmObjectiveBudgetBurn", MODEL), ("TrtllmEngineLimited", ENGINE), ("TrtllmGpuThrottled", HERE), ("TrtllmObjectiveBudgetBurnSlow", MODEL)],
        [("TrtllmObjectiveBudgetBurnSlow", "llama")],
    ),
    "requests fail, and an alert knows the cause": ([("TrtllmRequestsFailing", ENGINE), ("TrtllmEngineLimited", ENGINE)], []),
}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def call(base, path, body=None):
    return json.loads(fetch(base + path, json.dumps(body).encode() if body else None, 5, {"Content-Type": "application/json"}) or b"null")


def route_findings(severities):
    for name, severity in severities.items():
        found = run("amtool", "config", "routes", "test", f"--config.file={CONFIG}", f"alertname={name}", f"severity={severity}").stdout.strip()
        if found != RECEIVERS[severity]:
            yield f"{name}: goes to {found}, not to {RECEIVERS[severity]}"


def name_findings(names):
    """Finds expressions on alertname that match no alert. Also checks each alternative (`A|B`) of an expression."""
    for expression in re.findall(r'alertname(?:=~|!=|=)"(Trtllm[^"]+)"', read(CONFIG)):
        grouped = re.match(r"(.*)\((.+?)\)(.*)", expression)
        parts = [grouped[1] + part for part in grouped[2].split("|")] + grouped[3].strip("|").split("|") if grouped else expression.split("|")
        for part in filter(None, parts):
            if not any(re.fullmatch(part, name) for name in names):
                yield f"{CONFIG}: {part} matches no alert"


def key(labels):
    return labels["alertname"], labels.get("instance", labels.get("model"))


def case_findings(base, severities):
    for number, (case, (alerts, muted)) in enumerate(CASES.items()):
        # Each case has its own namespace, node and job, so that alerts of other cases cannot mute it.
        def own(labels):
            return {name: f"{value}-{number}" if name in ("job", "namespace", "node") else value for name, value in labels.items()}

        sent = [{"labels": own(labels) | {"alertname": name, "severity": severities.get(name, "warning"), "case": str(number)}} for name, labels in alerts]
        call(base, "/api/v2/alerts", sent)
        deadline = time.monotonic() + 20
        while True:
            now = call(base, f"/api/v2/alerts?filter=case%3D%22{number}%22")
            found = sorted(key(alert["labels"]) for alert in now if alert["status"]["inhibitedBy"])
            if len(now) == len(sent) and found == sorted(muted) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if found != sorted(muted):
            yield f"{case}: muted are {found}, not {sorted(muted)}"


def main():
    needs(alertmanager(), "amtool")
    severities = {name: severity for path in rule_files() for name, severity, *_ in alerts_of(read(path))}
    checked = run("amtool", "check-config", CONFIG)
    findings = [checked.stdout + checked.stderr] if checked.returncode else []
    findings += route_findings(severities)
    findings += name_findings(severities)
    with tempfile.TemporaryDirectory() as folder, Alertmanager(folder) as running:
        findings += case_findings(f"http://{running.address}", severities)
    conclude(findings, f"{len(severities)} alerts, {len(CASES)} cases")


if __name__ == "__main__":
    main()
