"""prometheus_client's parsers as judges of a page on stdin.   usage: parse_page.py text|openmetrics

Prints a JSON array of families: name, type, unit, samples as [name, labels, value]. Fails where the parser does, and on
a value that is not finite.
"""
import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

families = []
for family in {"text": text, "openmetrics": openmetrics}[sys.argv[1]](sys.stdin.read()):
    samples = []
    for sample in family.samples:
        if sample.timestamp is not None or sample.exemplar is not None:
            sys.exit(f"{sample} has a timestamp or an exemplar")
        samples.append([sample.name, sample.labels, float(sample.value)])
    families.append({"name": family.name, "type": family.type, "unit": family.unit, "samples": samples})
json.dump(families, sys.stdout, allow_nan=False)
