"""Checks README.md and docs/: relative links, metric names, and the syntax of the PromQL examples.

usage: check_docs.py [--promtool PATH]     (run in the repository root)
Prints one line per finding. Exit code 1 if there is one.
"""
import glob
import os
import re
import sys

from check_expressions import syntax_findings

REFERENCE = "docs/METRICS.md"
METRIC = re.compile(r"`((?:nv_|trtllm_exporter_)[a-z0-9_]+[a-z0-9])[`{]|\b(nv_[a-z0-9_]+)(?=[\[{])")
HISTOGRAM_SERIES = re.compile(r"_(bucket|sum|count)$")


def findings_of(path, text, families):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http") and not os.path.exists(os.path.join(os.path.dirname(path), target)):
            yield f"{path}: broken link {target}"
    for name in sorted({match[0] or match[1] for match in METRIC.findall(text)}):
        if name not in families and HISTOGRAM_SERIES.sub("", name) not in families:
            yield f"{path}: {name} is not a metric of the exporter"


def main():
    promtool = sys.argv[sys.argv.index("--promtool") + 1] if "--promtool" in sys.argv else None
    if not os.path.exists(REFERENCE):
        sys.exit(f"{REFERENCE} is missing; create it with: trtllm-exporter catalog >{REFERENCE}")
    with open(REFERENCE) as file:
        families = set(re.findall(r"^\| `(\w+)` \|", file.read(), re.M))
    paths = sorted({*glob.glob("*.md"), *glob.glob("docs/**/*.md", recursive=True)} - {REFERENCE})
    findings, queries = [], []
    for path in paths:
        with open(path) as file:
            text = file.read()
        findings += findings_of(path, text, families)
        for block in re.findall(r"```promql\n(.*?)```", text, re.S):
            queries += [re.sub(r"(?m)^#.*\n", "", query) for query in block.strip().split("\n\n")]
    if promtool:
        findings += syntax_findings(queries, promtool)
    for finding in findings:
        print(finding)
    print(f"{len(paths)} documents, {len(queries)} queries, {len(families)} families")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
