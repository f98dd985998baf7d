"""Runs fire drills (simulated incidents) and prints the table of docs/drills.md, with the alerts that fire.

usage: drills.py EXPORTER [--seconds S] [--pictures FOLDER]     All engines at once, in real time, with a real Prometheus.
trtllm-doctor must be in the folder of EXPORTER. Exit code 1 if it names another cause than the scenario's.
The windows of the rules are shortened to a fifth. --pictures draws the page and a dashboard; it needs matplotlib, Chromium and pngquant.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from exporter import ROOT, Exporter
from fleet import RULES, shortened
from prometheus import Prometheus, scraping, target

DRILLS = [
    "batch-limit", "kv-capacity", "kv-reservation-v1", "kv-thrash", "context-blocking", "generation-work", "speculation", "frontend",
    "context-work", "statistics-lost",
]
SHOWN = {"trtllm-engine": {"model": "kv-thrash", "version": "1"}}


class Drills:
    """All engines in one exporter, and a Prometheus that scrapes it."""

    def __init__(self, program, work):
        self.program, self.start = program, time.time()
        config = os.path.join(work, "drills.yaml")
        with open(config, "w") as file:
            file.write("engines:\n" + "".join(f"- {{source: 'sim:?scenario={name}', model: {name}}}\n" for name in DRILLS))
        for rules in RULES:
            with open(os.path.join(work, rules), "w") as copy:
                copy.write(shortened((ROOT / "deploy/prometheus" / rules).read_text(), 5))
        self.exporter = Exporter(program, f"--config.file={config}", "--gpu=off")
        self.prometheus = Prometheus(work, scraping([target(self.exporter.address)], "5s", rule_files=RULES))

    def query(self, expression, at=None):
        return [series for series in self.prometheus.query(expression, at) if series["value"][1] != "NaN"]

    def doctor(self):
        """The report of doctor about each scenario, by name."""
        # Ignore doctor's exit code, which depends on the worst verdict.
        command = [os.path.join(os.path.dirname(self.program), "trtllm-doctor"), "diagnose", self.exporter.address, "--no-sources"]
        parts = subprocess.run(command, capture_output=True, text=True).stdout.split("\n\n")
        titles = {name: f": engine {name} 1" for name in DRILLS}
        return {name: part.strip("\n") for part in parts for name in DRILLS if part.strip().split("\n")[0].endswith(titles[name])}

    def alerts(self):
        """Names and severities of the alerts that have fired, by scenario."""
        fired = {name: set() for name in DRILLS}
        for alert in self.query('group by (alertname, severity, model) (last_over_time(ALERTS{alertstate="firing"}[1h]))'):
            labels = alert["metric"]
            fired.get(labels.get("model"), set()).add(f"`{labels['alertname']}` ({labels['severity']})")
        return fired

    def draw(self, folder, browser):
        import dashboard_pictures
        import panels

        picture = os.path.join(folder, "drills-page.png")
        browser.screenshot(picture)
        subprocess.run(["pngquant", "--force", "--ext", ".png", "64", picture], check=True)
        panels.WINDOW = "30s"
        for name, dashboard in panels.dashboards():
            if name in SHOWN:
                drawing = dashboard_pictures.Drawing(self, dashboard, self.start, time.time() - 1, SHOWN[name])
                drawing.draw(os.path.join(folder, f"{name.replace('trtllm', 'drills')}.png"))
                print(*drawing.findings, sep="\n", file=sys.stderr)

    def stop(self):
        self.prometheus.stop()
        self.exporter.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("--seconds", type=float, default=120, help="(default %(default)s)")
    parser.add_argument("--pictures", metavar="FOLDER")
    args = parser.parse_args()
    listed = subprocess.run([args.exporter, "catalog", "--scenarios", "--format", "json"], capture_output=True, check=True, text=True)
    scenarios = {scenario["name"]: scenario for scenario in json.loads(listed.stdout)}
    with tempfile.TemporaryDirectory() as work:
        drills, browser = Drills(args.exporter, work), None
        try:
            if args.pictures:
                from webdriver import Browser

                browser = Browser(1280, 900)
                browser.open(drills.exporter.url)
            time.sleep(args.seconds)
            said, fired = drills.doctor(), drills.alerts()
            if args.pictures:
                drills.draw(args.pictures, browser)
        finally:
            drills.stop()
            if browser:
                browser.close()
    print("| scenario | cause | alerts | what cures it |\n|---|---|---|---|")
    for name in DRILLS:
        scenario, alerts = scenarios[name], ", ".join(sorted(fired[name])) or "none"
        print(f"| `{name}` | `{scenario['cause']}` | {alerts} | {scenario['cure']} |")
    wrong = [name for name in DRILLS if f" {scenarios[name]['cause']}: engine " not in said.get(name, "")]
    print(*(f"{name}: doctor says {said.get(name, 'nothing')}" for name in wrong), sep="\n", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
