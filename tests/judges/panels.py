"""The panels of the dashboards and their queries, with the variables filled in."""

import glob
import json
import os
import re

from exporter import ROOT
from expressions import NEEDS_FULL, concrete


def dashboards():
    for path in sorted(glob.glob(f"{ROOT}/deploy/grafana/*.json")):
        with open(path) as file:
            yield os.path.basename(path).removesuffix(".json"), json.load(file)


def queries(dashboard, profile="full"):
    """For each query of each panel whose families are on the page of this profile: (panel, target, query). A target is Grafana's
    object that contains the query."""
    for row in dashboard["panels"]:
        if profile == "default" and NEEDS_FULL in row["title"]:
            continue
        for panel in (row, *row.get("panels", [])):
            for target in panel.get("targets", []):
                yield panel, target, concrete(target["expr"])


def legend(target, labels):
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), target["legendFormat"]).strip()
