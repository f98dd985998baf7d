"""Finds dashboard keys that Grafana does not know: reads the file with Grafana's schema library, writes it and compares.

usage: dashboard_keys.py FILE...    (needs grafana-foundation-sdk)
"""
import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

# Grafana reads these keys, but the library's schema does not list them.
KNOWN = {"skipUrlSync", "definition"}
CUSTOM = {"timeseries": timeseries.FieldConfig, "state-timeline": statetimeline.FieldConfig}
OPTIONS = {"timeseries": timeseries.Options, "state-timeline": statetimeline.Options, "stat": stat.Options, "table": table.Options}


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
findings, panels = [], 0
for path in sys.argv[1:]:
    with open(path) as file:
        before = json.load(file)
    after = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(before)))))
    findings += [f"{path}: {key}" for key in lost(before, after, "dashboard")]
    for panel in before["panels"]:
        panels += 1
        if panel["type"] in CUSTOM:  # the library does not check the options of a panel
            custom = panel["fieldConfig"]["defaults"]["custom"]
            known = json.loads(JSONEncoder().encode(CUSTOM[panel["type"]].from_json(json.loads(json.dumps(custom)))))
            findings += lost(custom, known, f"{path}: {panel['title']}: custom")
        if panel["type"] in OPTIONS:
            options = panel["options"]
            known = json.loads(JSONEncoder().encode(OPTIONS[panel["type"]].from_json(json.loads(json.dumps(options)))))
            findings += lost(options, known, f"{path}: {panel['title']}: options")
        elif panel["type"] != "row":
            findings.append(f"{path}: {panel['title']}: panels of type {panel['type']} are not checked")
for finding in findings:
    print(f"unknown key {finding}")
print(f"{len(sys.argv) - 1} dashboards, {panels} panels read")
sys.exit(bool(findings) or not panels)
