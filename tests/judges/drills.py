"""Runs fire drills and prints docs/drills.md: what doctor says about each scenario.

usage: drills.py EXPORTER [--seconds S]     All engines at once, in real time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

from exporter import Exporter

DRILLS = [
    "batch-limit", "kv-capacity", "kv-reservation", "kv-thrash", "context-blocking", "generation-work", "speculation", "frontend",
    "context-work", "statistics-lost",
]
HEAD = """# Fire drills

A fire drill is a simulated engine whose trouble is known. Train on it: start it, look at the page, at the dashboards and the alerts, say
what limits the engine, and compare with what `doctor` says after two minutes.

```
trtllm-exporter --source 'sim:?scenario=kv-thrash' --gpu off
```

`seed=N` gives other requests, and `speed=X` runs X times as fast. All scenarios: `trtllm-exporter catalog --scenarios`. Names with
`-cpp` are for the C++ Executor, and names with `-v1` for the first KV cache manager of the PyTorch backend. `healthy-…` are
engines without trouble, whose load looks alarming or not.

This page is the output of `{command}`. Numbers differ a little from run to run.
"""


def reports(program, seconds):
    """What doctor says about each scenario, by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        entries = [f"- {{source: 'sim:?scenario={name}', model: {name}}}\n" for name in DRILLS]
        config.write("engines:\n" + "".join(entries))
        config.flush()
        with Exporter(program, f"--config.file={config.name}") as exporter:
            time.sleep(seconds)
            # The exit code is that of the worst verdict.
            doctor = subprocess.run([program, "doctor", exporter.address, "--no-sources"], capture_output=True, text=True)
    found = {}
    for part in doctor.stdout.split("\n\n"):
        for name in DRILLS:
            if part.strip().split("\n")[0].endswith(f": engine {name} 1"):
                found[name] = part.strip("\n")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("--seconds", type=float, default=120, help="(default %(default)s)")
    args = parser.parse_args()
    listed = subprocess.run([args.exporter, "catalog", "--scenarios", "--format", "json"], capture_output=True, check=True, text=True)
    scenarios = {scenario["name"]: scenario for scenario in json.loads(listed.stdout)}
    said = reports(args.exporter, args.seconds)
    print(HEAD.format(command="python3 tests/judges/drills.py target/debug/trtllm-exporter"))
    for name in DRILLS:
        scenario = scenarios[name]
        print(f"## {name}\n\n{scenario['description']} The cause is `{scenario['cause']}`.\n")
        print(f"```\ntrtllm-exporter --source 'sim:?scenario={name}' --gpu off\n```\n")
        print(f"What `doctor` says:\n\n```\n{said.get(name, 'nothing')}\n```\n")
        print(f"The change that cures it in the simulation: {scenario['cure']}.\n")


if __name__ == "__main__":
    sys.exit(main())
