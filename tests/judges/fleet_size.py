"""Measures a Prometheus that scrapes a fleet: 125 nodes with 8 GPUs each, and the shipped rules run.

usage: fleet_size.py EXPORTER [--minutes 12] [--targets 125] [--gpus 8] [--engines 1] [--prometheus PATH]
EXPORTER runs once, with busy simulated engines and GPUs (libnvml_standin.so must be beside it). A server at 125 addresses of this machine
passes its page on, each with its own GPUs and one of 10 models. Prints head series, memory, CPU, bytes per sample and the time of the
rules. Exit code 1 if a target or a rule fails, 77 if Prometheus is not installed.
"""

import contextlib
import gzip
import json
import os
import re
import subprocess
import tempfile
import time

import page_size
import prometheus
from exporter import ROOT, Answers, conclude, fetch, options, serve

RULES = [f"{ROOT}/deploy/prometheus/{name}.yml" for name in ("recording", "alerts", "alerts-gpu")]
INTERVAL = 15  # seconds between scrapes
MODELS = 10


def fleet(exporter):
    """A server whose port has the page of a node at each address of this machine."""

    class Node(Answers):
        def do_GET(self):
            node = int(self.headers["Host"].split(":")[0].split(".")[3])
            page = fetch(f"{exporter.url}/metrics")
            page = page.replace(b"GPU-00000000-", b"GPU-%08x-" % node).replace(b'model="llama-3-70b"', b'model="model-%d"' % (node % MODELS))
            self.answer(gzip.compress(page, 1), Content_Type="text/plain; version=0.0.4; charset=utf-8", Content_Encoding="gzip")

    return serve(Node, "0.0.0.0").server_port


class Prometheus(prometheus.Prometheus):
    def __init__(self, program, folder, targets, rule_files=RULES, **settings):
        config = prometheus.scraping([{"targets": targets}], f"{INTERVAL}s", rule_files=rule_files, **settings)
        super().__init__(folder, config, "--web.enable-admin-api", program=program)

    def own(self):
        """The server's own metrics: a map from name and labels to the value."""
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in self.read("/metrics").splitlines() if line and line[0] != "#"}

    def value(self, expression):
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else float("nan")

    def slowest_rules(self):
        groups = json.loads(self.read("/api/v1/rules"))["data"]["groups"]
        return sorted(((rule["evaluationTime"], rule["name"]) for group in groups for rule in group["rules"]), reverse=True)

    def bytes_on_disk(self):
        """Size in bytes of the chunks and the index of all samples so far, measured in a snapshot of the database."""
        name = json.loads(self.read("/api/v1/admin/tsdb/snapshot", data=b""))["data"]["name"]
        top, chunks, index = os.path.join(self.data, "snapshots", name), 0, 0
        for folder, _, files in os.walk(top):
            for file in files:
                size = os.path.getsize(os.path.join(folder, file))
                chunks += size if folder.endswith("chunks") else 0
                index += size if file == "index" else 0
        return chunks, index


def report(server, half, targets):
    """Prints the table of results. Returns the findings."""
    (then, before), now, after = half, time.monotonic(), server.own()
    grown = lambda name: (after[name] - before[name]) / (now - then)
    appended = [name for name in after if name.startswith("prometheus_tsdb_head_samples_appended_total")]
    total, rate = sum(after[name] for name in appended), sum(grown(name) for name in appended)
    chunks, index = server.bytes_on_disk()
    groups = {re.search(r";([\w-]+)\"", name)[1]: value * 1000 for name, value in after.items() if name.startswith("prometheus_rule_group_last_duration_seconds")}
    failures = sum(value for name, value in after.items() if name.startswith("prometheus_rule_evaluation_failures_total"))
    up, scraped = server.value("sum(up)"), server.value("avg(scrape_samples_scraped)")
    rows = [
        ("targets up", f"{up:.0f}"),
        ("samples per page", f"{scraped:.0f}"),
        ("head series", f"{after['prometheus_tsdb_head_series']:.0f}"),
        ("of these, series of rules and alerts", f"{server.value('count({__name__=~%s})' % json.dumps('.+:.+|ALERTS.*')):.0f}"),
        ("samples a second", f"{rate:.0f}"),
        ("resident memory", f"{after['process_resident_memory_bytes'] / 2**20:.0f} MiB, {after['process_resident_memory_bytes'] / after['prometheus_tsdb_head_series']:.0f} bytes per series"),
        ("CPU, scrapes and rules", f"{100 * grown('process_cpu_seconds_total'):.1f} % of a core"),
        ("samples in a block", f"{chunks / total:.2f} bytes per sample, and an index of {index / 2**20:.0f} MiB"),
        ("scrape", f"{1000 * server.value('avg(scrape_duration_seconds)'):.0f} ms on average, {1000 * server.value('max(scrape_duration_seconds)'):.0f} ms at most, with gzip"),
        ("all rules, each 15 s", f"{sum(groups.values()):.0f} ms: {', '.join(f'{name} {value:.0f}' for name, value in sorted(groups.items()))}"),
        ("slowest rules", ", ".join(f"{name} {1000 * seconds:.0f} ms" for seconds, name in server.slowest_rules()[:3])),
        ("alerts that fire", ", ".join(sorted({alert["metric"]["alertname"] for alert in server.query('ALERTS{alertstate="firing"}')})) or "none"),
    ]
    print("| measured | value |\n| --- | --- |", *(f"| {name} | {value} |" for name, value in rows), sep="\n")
    findings = [f"only {up:.0f} of {targets} targets are up"] if up != targets else []
    findings += [f"{failures:.0f} evaluations of rules failed"] if failures else []
    if after["prometheus_tsdb_head_series"] < targets * scraped:
        findings.append(f"{after['prometheus_tsdb_head_series']:.0f} head series are fewer than {targets} pages have")
    return findings


def main():
    parser = options(__doc__)
    parser.add_argument("exporter")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--targets", type=int, default=125)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--engines", type=int, default=1, help="engines on each node")
    parser.add_argument("--prometheus", default="prometheus")
    args = parser.parse_args()
    prometheus.needs(args.prometheus)
    if not 1 <= args.targets <= 254:
        parser.error("--targets must be from 1 to 254")
    print(subprocess.run([args.prometheus, "--version"], capture_output=True, text=True).stdout.splitlines()[0])
    with contextlib.ExitStack() as stack:
        folder = lambda: stack.enter_context(tempfile.TemporaryDirectory())
        sources = [page_size.SIMULATED] * args.engines
        exporter = stack.enter_context(page_size.running(os.path.abspath(args.exporter), folder(), sources, args.gpus))
        port = fleet(exporter)
        targets = [f"127.0.1.{node}:{port}" for node in range(1, args.targets + 1)]
        time.sleep(page_size.WARM_UP)
        server = stack.enter_context(Prometheus(args.prometheus, folder(), targets))
        time.sleep(args.minutes * 30)
        half = time.monotonic(), server.own()
        time.sleep(args.minutes * 30)
        findings = report(server, half, args.targets)
    conclude(findings, f"{args.targets} targets, {args.minutes:g} minutes")


if __name__ == "__main__":
    main()
