"""Runs the queries of deploy/kubernetes/autoscaling in a real Prometheus that scrapes two exporters with simulated engines.

usage: autoscaling.py EXPORTER      (run tests/deploy/kubernetes.sh first: it builds target/tools/manifests)
One engine gets more requests than it can serve, and the other is idle. The HPA's metrics and KEDA's triggers must distinguish the two
engines, and for a lost exporter they must return no result instead of 0. tests/it/readers/vllm.rs has the queries of llm-d's autoscaler.
Exit code 1 if a check fails, 77 if a tool is missing.
"""
import contextlib
import json
import subprocess
import sys
import tempfile
import time

from exporter import ROOT, Exporter, until
from prometheus import Prometheus, needs, scraping, target

EXAMPLES = ROOT / "deploy/kubernetes/autoscaling"
MANIFESTS = ROOT / "target/tools/manifests"


def objects(*names):
    paths = [EXAMPLES / name for name in names]
    return [json.loads(line) for line in subprocess.check_output([MANIFESTS, "json", *paths], text=True).splitlines()]


def adapter_queries():
    """The queries that prometheus-adapter runs for the metrics of hpa.yaml. Each must return one value per pod."""
    values, hpa = objects("prometheus-adapter-values.yaml", "hpa.yaml")
    rules = {rule["name"]["as"]: rule for rule in values["rules"]["custom"]}
    for metric in hpa["spec"]["metrics"]:
        rule = rules[metric["pods"]["metric"]["name"]]  # an unknown name is a mistake in the examples
        series = rule["seriesQuery"].split("{")[0]
        matchers = 'namespace="default",pod=~"llama-busy|llama-idle"'
        yield metric["pods"]["metric"]["name"], rule["seriesQuery"], (
            rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", "pod"))


def main():
    needs("prometheus", MANIFESTS)
    failures = []

    def check(what, right, found):
        print(f"{'ok   ' if right else 'FAIL '} {what}: {found}")
        failures.extend([] if right else [what])

    with contextlib.ExitStack() as running:
        exporters = {}
        for pod, rate in (("llama-busy", 400), ("llama-idle", 0.0001)):
            source = f"--source=sim:?rate={rate}&in_flight=2000"
            exporters[pod] = running.enter_context(Exporter(sys.argv[1], source, "--model=llama-3.1-8b", "--metrics.profile=default"))
        targets = [target(exporter.address, namespace="default", pod=pod) for pod, exporter in exporters.items()]
        work = running.enter_context(tempfile.TemporaryDirectory())
        query = running.enter_context(Prometheus(work, scraping(targets))).values

        def by_pod(expression):
            return {dict(labels)["pod"]: value for labels, value in query(expression).items()}

        until("both scrapes", lambda: len(query("up == 1")) == 2, 20)
        until("a backlog", lambda: sum(query("nv_trt_llm_waiting_requests_estimate").values()) > 10, 30)
        time.sleep(10)  # rates need several scrapes
        for name, series, expression in adapter_queries():
            check(f"HPA: prometheus-adapter finds {name}", query(series), f"{len(query(series))} series")
            found = by_pod(expression)
            check(f"HPA: {name}", set(found) == {"llama-busy", "llama-idle"} and found["llama-busy"] > found["llama-idle"] == 0, found)
        triggers = [t["metadata"]["query"] for t in objects("keda.yaml")[0]["spec"]["triggers"]]
        for expression in triggers:
            found = list(query(expression).values())
            check(f"KEDA: {expression[:60]}…", len(found) == 1 and found[0] > 0, found)
        for expression in triggers:
            found = list(query(expression.replace("llama-.*", "llama-idle")).values())
            check("KEDA: an engine without a request so far counts as 0", found == [0], found)
        for exporter in exporters.values():
            exporter.process.terminate()
        until("lost exporters", lambda: len(query("up == 0")) == 2, 20)
        for expression in triggers + [e for _, _, e in adapter_queries()]:
            check("no exporter: no result instead of 0", not query(expression), query(expression))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
