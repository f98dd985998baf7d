"""Writes the Grafana dashboards.

usage: python3 deploy/grafana/generate            writes deploy/grafana/*.json
       python3 deploy/grafana/generate --check    exit code 1 if a file is not what would be written
"""

import json
import os
import sys

import engine
import fleet
import gpus
import kv_cache

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DASHBOARDS = {"trtllm-fleet": fleet, "trtllm-engine": engine, "trtllm-kv-cache": kv_cache, "trtllm-gpu": gpus}


def main():
    stale = []
    for name, module in DASHBOARDS.items():
        path = os.path.join(FOLDER, f"{name}.json")
        text = json.dumps(module.build(), indent=1, ensure_ascii=False) + "\n"
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
