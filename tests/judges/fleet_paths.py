"""Runs the configurations of docs/fleet.md for federation, remote write and an agent with real programs.

usage: fleet_paths.py EXPORTER [PROMETHEUS3]
Two Prometheus servers each scrape an exporter and evaluate the shipped recording rules. A third server federates from them, and both write
to VictoriaMetrics. An agent also scrapes, and writes to PROMETHEUS3, which evaluates the rules. Each recorded series must arrive with the
value that the server which recorded it has at the same moment. Exit code 1 if a series is missing or differs.
"""
import contextlib
import json
import math
import os
import re
import sys
import tempfile
import time

from exporter import ROOT, Exporter, Program
from free_port import free_port
from prometheus import Api, Prometheus

RULES = ROOT / "deploy/prometheus"
DOCUMENT = ROOT / "docs/fleet.md"
RECORDED = '{__name__=~"(model_version|model|trtllm_slo):.+"}'
SECONDS = 75


def snippet(heading):
    """The first YAML block after a bold heading of the document."""
    return re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text().split(f"**{heading}", 1)[1], re.S).group(1)


def replaced(text, old, new):
    if old not in text:
        sys.exit(f"docs/fleet.md: no {old!r} in a configuration that this test runs")
    return text.replace(old, new)


def query(address, expression, at):
    """The values of the expression, by labels."""
    result = Api(address).query(expression, at)
    for series in result:
        # If a federated series has no job, it gets the job of the federation scrape.
        if series["metric"].get("job") == "fleet":
            del series["metric"]["job"]
    return {json.dumps(series["metric"], sort_keys=True): float(series["value"][1]) for series in result}


def with_label(values, **labels):
    return {json.dumps({**json.loads(key), **labels}, sort_keys=True): value for key, value in values.items()}


def compare(name, expected, found):
    wrong = [key for key, value in expected.items() if key not in found or not math.isclose(found[key], value, rel_tol=1e-9, abs_tol=1e-12)]
    print(f"{name}: {len(expected)} series, {len(wrong)} missing or different")
    for key in wrong[:5]:
        print(f"  {key}: {expected[key]}, but {found.get(key)}")
    return bool(wrong or not expected)


def main():
    exporter, prometheus3 = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "prometheus"
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory())

        def prometheus(name, program, config, *arguments):
            return stack.enter_context(Prometheus(work, config, *arguments, program=program, name=name)).address

        targets = [stack.enter_context(Exporter(exporter, "--source=sim:?rate=20")).address for _ in range(2)]
        victoria = f"127.0.0.1:{free_port()}"
        flags = [f"-httpListenAddr={victoria}", f"-storageDataPath={work}/victoria", "-search.latencyOffset=0s"]
        stack.enter_context(Program(["victoria-metrics", *flags], f"{work}/victoria.log"))
        receiver_flags = ("--web.enable-remote-write-receiver",)
        rules = f"rule_files: [{RULES}/recording.yml]\n"
        # The shipped rules set no interval, so this interval applies.
        receiver = prometheus("receiver", prometheus3, f"global: {{evaluation_interval: 5s}}\n{rules}", *receiver_flags)

        def scrape(target):
            return f'scrape_configs:\n  - {{job_name: trtllm-exporter, scrape_interval: 2s, static_configs: [{{targets: ["{target}"]}}]}}\n'

        lower = []
        for part, target in enumerate(targets):
            config = snippet("Remote write")
            config = replaced(config, "https://metrics.example/api/v1/write", f"http://{victoria}/api/v1/write")
            config = replaced(config, 'external_labels: {part: "0"}', f'external_labels: {{part: "{part}"}}\n  evaluation_interval: 5s')
            lower.append(prometheus(f"part{part}", "prometheus", config + rules + scrape(target)))
        federation = replaced(snippet("Federation"), '"prometheus-part-0:9090", "prometheus-part-1:9090"', ", ".join(f'"{address}"' for address in lower))
        upper = prometheus("upper", "prometheus", replaced(federation, "scrape_interval: 30s", "scrape_interval: 1s"))
        agent = f"remote_write: [{{url: 'http://{receiver}/api/v1/write'}}]\n" + scrape(targets[0])
        prometheus("agent", "prometheus", agent, "--enable-feature=agent")

        time.sleep(SECONDS)
        failed = False
        for part, address in enumerate(lower):
            # Compare both sides at one moment some seconds ago, because the recorded values arrive late.
            at = time.time() - 8
            label = {"part": str(part)}
            expected = with_label(query(address, RECORDED, at), **label)
            selector = RECORDED[:-1] + f',part="{part}"}}'
            failed |= compare(f"remote write to VictoriaMetrics, part {part}", expected, query(victoria, selector, at))
            # A federated sample keeps its timestamp, so a query at the same moment finds it.
            failed |= compare(f"federation, part {part}", expected, query(upper, selector, at))
        now = time.time() - 8
        names = 'count by (__name__) ({job="trtllm-exporter", __name__!~".+:.+|scrape_.+|up|ALERTS.*"})'
        failed |= compare("agent, families and their number of series", query(lower[0], names, now), query(receiver, names, now))
        recorded = "count by (__name__) ({__name__=~\"(model_version|model|trtllm_slo):.+\"})"
        failed |= compare("rules in the receiver of the agent", query(lower[0], recorded, now), query(receiver, recorded, now))
        sys.exit(failed)


if __name__ == "__main__":
    main()
