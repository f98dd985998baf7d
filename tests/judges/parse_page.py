"""Parses a page on stdin with a parser of prometheus_client.   usage: parse_page.py text|openmetrics

Prints a JSON array of families: name, type, unit, samples as [name, labels, value as text], and the number of exemplars.
Fails if the parser fails, or if a value is not finite.
"""
import json
import math
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

families = []
for family in {"text": text, "openmetrics": openmetrics}[sys.argv[1]](sys.stdin.read()):
    samples, exemplars = [], 0
    for sample in family.samples:
        if sample.timestamp is not None:
            sys.exit(f"{sample} has a timestamp")
        if sample.exemplar is not None:
            exemplars += 1
            if list(sample.exemplar.labels) != ["request_id"] or sample.exemplar.timestamp is not None:
                sys.exit(f"{sample} has an exemplar that is not a request id")
        if not math.isfinite(sample.value):
            sys.exit(f"{sample} is not finite")
        samples.append([sample.name, sample.labels, repr(float(sample.value))])
    families.append({"name": family.name, "type": family.type, "unit": family.unit, "samples": samples, "exemplars": exemplars})
json.dump(families, sys.stdout, allow_nan=False)
