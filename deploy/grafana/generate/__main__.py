"""Writes the Grafana dashboards.

usage: python3 deploy/grafana/generate            writes deploy/grafana/*.json
       python3 deploy/grafana/generate --check    exit code 1 if a file differs from what would be written
Needs Python 3.11 and Grafana's builder: pip install grafana-foundation-sdk==1769699379!11.6.0
"""

import json
import os
import sys

import engine
import fleet
import gpus
import overview
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DASHBOARDS = {"trtllm-overview": overview, "trtllm-fleet": fleet, "trtllm-engine": engine, "trtllm-gpu": gpus}


def written(dashboard):
    """The dashboard as JSON, with one line for each panel and each other key."""
    dashboard = json.loads(json.dumps(dashboard, cls=JSONEncoder))
    parts = []
    for key, value in dashboard.items():
        lines = [f"  {json.dumps(one, ensure_ascii=False)}" for one in value] if key == "panels" else []
        parts.append(f" {json.dumps(key)}: " + ("[\n" + ",\n".join(lines) + "\n ]" if lines else json.dumps(value, ensure_ascii=False)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    stale = []
    for name, module in DASHBOARDS.items():
        path = os.path.join(FOLDER, f"{name}.json")
        text = written(module.build())
        if os.path.exists(path):
            with open(path) as file:
                if file.read() == text:
                    continue
        stale.append(os.path.basename(path))
        if sys.argv[1:] != ["--check"]:
            with open(path, "w") as file:
                file.write(text)
    if stale and sys.argv[1:] == ["--check"]:
        sys.exit(f"not up to date: {', '.join(stale)}; run: python3 deploy/grafana/generate")
    print(f"{len(DASHBOARDS)} dashboards, {len(stale)} written")


if __name__ == "__main__":
    main()
