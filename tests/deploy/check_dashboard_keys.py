"""Finds dashboard keys that Grafana does not know: reads the file with Grafana's schema library, writes it and compares.

usage: check_dashboard_keys.py FILE       (needs grafana-foundation-sdk)
"""
import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.timeseries import FieldConfig

# Grafana reads these keys, but the library's schema does not list them.
KNOWN = {"skipUrlSync", "definition"}


def lost(before, after, path):
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                if value not in (None, [], {}, "", False) and key not in KNOWN:
                    yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for number, pair in enumerate(zip(before, after)):
            yield from lost(*pair, f"{path}[{number}]")


register_default_plugins()
with open(sys.argv[1]) as file:
    before = json.load(file)
after = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(before)))))
findings = list(lost(before, after, "dashboard"))
for panel in before["panels"]:
    if panel["type"] == "timeseries":  # the library does not check the options of a panel
        custom = panel["fieldConfig"]["defaults"]["custom"]
        known = json.loads(JSONEncoder().encode(FieldConfig.from_json(json.loads(json.dumps(custom)))))
        findings += lost(custom, known, f"{panel['title']}: custom")
for finding in findings:
    print(f"unknown key {finding}")
print(f"{len(before['panels'])} panels read")
sys.exit(bool(findings))
