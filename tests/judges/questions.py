"""Draws docs/images/questions.png: the panels of docs/drills.md, "After a deploy", before and after a deploy.

usage: questions.py EXPORTER PICTURE [--seconds S]     In real time, with a real Prometheus; it needs matplotlib.
"""

import argparse
import json
import os
import sys
import tempfile
import time

import dashboard_pictures
import panels
from exporter import ROOT, Exporter, simulated_gpus
from free_port import free_port
from prometheus import Prometheus, scraping, target

# Before and after the deploy: requests per second, and the factor by which the engine's costs change.
DEPLOYS = [(20, 1.0), (25, 1.2)]
# The costs of the simulated engine: ms per iteration, µs per prompt token, and µs per decoding request.
COSTS = {"iter_base_ms": 8, "ctx_token_us": 12, "gen_request_us": 60}
SHOWN = ["All finished requests", "Requests that missed ttft", "Time per output token, percentiles", "How far from the limit"]
HEADROOM = {
    "title": "Headroom",
    "targets": [{"expr": "nv_trt_llm_headroom_ratio", "legendFormat": "share of the capacity that is free"}],
}
COST = {
    "title": "Cost of a million tokens",
    "targets": [
        {
            "expr": "1e6 * rate(nv_trt_llm_gpu_cost_total[$__rate_interval]) / on () rate(nv_trt_llm_generation_tokens_total[$__rate_interval])",
            "legendFormat": "all",
        }
    ],
}
GPU = "GPU-00000000-0000-4000-8000-000000000000"
# A report of a benchmark, in which this script replaces the throughput and the GPUs.
REPORT = ROOT / "tests/fixtures/trtllm_bench_report.json"
CONFIG = """
engines:
- source: 'sim:?{options}'
  model: llama
  objectives: {{ttft: 100ms, tpot: 15ms}}
  gpu_hour_cost: 2.5
  gpus: [{gpu}]
  bench_report: {report}
"""


class Fleet:
    """Passes the queries of a dashboard's picture to the Prometheus."""

    def __init__(self, prometheus):
        self.prometheus, self.query = prometheus, prometheus.query


def shown():
    """A dashboard with the panels of SHOWN, HEADROOM and COST, three in a row."""
    dashboard = next(dashboard for name, dashboard in panels.dashboards() if name == "trtllm-engine")
    found = {panel["title"]: panel for row in dashboard["panels"] for panel in (row, *row.get("panels", []))}
    plain = found["Queue time of new requests"]
    chosen = [found[title] for title in SHOWN] + [plain | HEADROOM | unit(plain, "percentunit"), plain | COST | unit(plain, "short")]
    for place, panel in enumerate(chosen):
        chosen[place] = panel | {"gridPos": {"x": place % 3 * 8, "y": place // 3 * 8, "w": 8, "h": 8}}
    return dashboard | {"title": "Before and after a deploy", "panels": chosen}


def unit(panel, name):
    config = panel["fieldConfig"]
    return {"fieldConfig": config | {"defaults": config["defaults"] | {"unit": name}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("picture")
    parser.add_argument("--seconds", type=float, default=480, help="before and after, each (default %(default)s)")
    args = parser.parse_args()
    standin = ROOT / "target/debug/libnvml_standin.so"
    with tempfile.TemporaryDirectory() as work:
        library, address = simulated_gpus(standin, work, "gpus=1\n"), f"127.0.0.1:{free_port()}"
        report, begun = os.path.join(work, "report.json"), time.time()
        with open(report, "w") as file:
            benchmark = json.loads(REPORT.read_text())
            benchmark["performance"]["token_throughput_per_sec"] = 4400
            benchmark["metadata"]["num_gpus"] = 1
            json.dump(benchmark, file)
        with Prometheus(work, scraping([target(address)])) as prometheus:
            for rate, slower in DEPLOYS:
                costs = "&".join(f"{name}={cost * slower:g}" for name, cost in COSTS.items())
                config = os.path.join(work, "config.yaml")
                with open(config, "w") as file:
                    file.write(CONFIG.format(options=f"rate={rate}&kv_blocks=2048&{costs}", gpu=GPU, report=report))
                gpu = ["--gpu=required", f"--gpu.library={library}"]
                with Exporter(args.exporter, f"--config.file={config}", f"--web.listen-address={address}", *gpu):
                    time.sleep(args.seconds)
            panels.WINDOW = "30s"
            values = {"model": "llama", "version": "1"}
            drawing = dashboard_pictures.Drawing(Fleet(prometheus), shown(), begun, time.time() - 1, values)
            drawing.draw(args.picture)
            print(*drawing.findings, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
