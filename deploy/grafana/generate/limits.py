"""Reads the limits of the alerts, so that a panel changes its color at the value at which its alert fires."""

import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../prometheus")


def limit(alert):
    """The first number that the alert's expression compares with."""
    for name in ("alerts.yml", "alerts-gpu.yml"):
        with open(os.path.join(FOLDER, name)) as file:
            found = re.search(rf"- alert: {alert}\n.*?[<>] (?:ignoring \([^)]*\) )?(\d+(?:\.\d+)?)", file.read(), re.S)
        if found:
            return float(found[1]) if "." in found[1] else int(found[1])
    raise ValueError(f"no limit of {alert}")
