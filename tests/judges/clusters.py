"""Two clusters in one real Prometheus: the same engine under two targets that differ only in the label `cluster`.

usage: clusters.py EXPORTER [PROMETHEUS]     (run in the repository root)
Every rule and every dashboard query must work. The rules must keep the clusters apart, and the variable `cluster` of the dashboards must
select one of them. Prints one line per finding. Exit code 1 if there is a finding.
"""

import glob
import json
import os
import pathlib
import sys
import tempfile

from exporter import Exporter, conclude, until
from expressions import concrete, dashboard_expressions
from fleet import shortened
from prometheus import Prometheus, scraping, target

CLUSTERS = "trtllm_exporter_build_info"  # the query of the variable `cluster` itself
RULES = ["recording.yml", "alerts.yml", "alerts-gpu.yml"]


def main():
    binary, *program = sys.argv[1:]
    findings, compared = [], 0
    with tempfile.TemporaryDirectory() as folder, Exporter(binary, "--source=sim:", "--objectives=ttft=500ms") as exporter:
        for name in RULES:
            pathlib.Path(folder, name).write_text(shortened(pathlib.Path("deploy/prometheus", name).read_text(), 60))
        targets = [target(exporter.address, namespace="n", pod="p", cluster=cluster) for cluster in ("east", "west")]
        config = scraping(targets, rule_files=[os.path.join(folder, name) for name in RULES])
        with Prometheus(folder, config, **({"program": program[0]} if program else {})) as prometheus:
            for metric in ("model_version:nv_trt_llm_goodput_tokens:rate5m", "model:nv_trt_llm_ready:timestamp_seconds", "nv_trt_llm_limited_by_severity"):
                until(metric, lambda: len(prometheus.query(metric)) == 2)
            for group in json.loads(prometheus.read("/api/v1/rules"))["data"]["groups"]:
                findings += [f"{rule['name']}: {rule['lastError']}" for rule in group["rules"] if rule["health"] == "err"]
            for series in prometheus.query('{__name__=~"(engine|model|model_version):.+"}'):
                compared += 1
                if "cluster" not in series["metric"]:
                    findings.append(f"{series['metric']} has no cluster")
            for path in sorted(glob.glob("deploy/grafana/*.json")):
                for expression in {*dashboard_expressions(json.loads(pathlib.Path(path).read_text()))} - {CLUSTERS}:
                    # Each query works for all clusters, and finds nothing in a cluster that does not exist.
                    prometheus.query(concrete(expression))
                    elsewhere = prometheus.query(concrete(expression, {"cluster": "north"}))
                    if [one for one in elsewhere if one["metric"] or "vector(0)" not in expression and float(one["value"][1]) > 0]:
                        findings.append(f"{os.path.basename(path)}: not filtered by the cluster: {expression}")
                    compared += 1
    conclude(findings if compared else ["nothing was compared"], f"{compared} series and queries")


if __name__ == "__main__":
    main()
