"""Checks README.md and docs/: relative links, metric names, and the syntax of the examples of PromQL and of prometheus.yml.

usage: docs.py [--promtool PATH]     (run in the repository root)
Prints one line per finding. Exit code 1 if there is one.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import textwrap

from expressions import queries_of, syntax_findings

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


def configurations_of(text):
    """The examples of prometheus.yml, also those that are indented as a part of a list."""
    for block in re.findall(r"(?ms)^( *```yaml\n.*?)^ *```$", text):
        example = textwrap.dedent(block).removeprefix("```yaml\n")
        if re.match(r"(global|alerting|rule_files|scrape_configs|remote_write):", example):
            yield example


def configuration_findings(path, text, promtool):
    for example in configurations_of(text):
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(example)
            file.flush()
            checked = subprocess.run([promtool, "check", "config", "--syntax-only", file.name], capture_output=True, text=True)
        if checked.returncode:
            yield f"{path}: {checked.stderr.strip()} in:\n{example}"


def main():
    promtool = sys.argv[sys.argv.index("--promtool") + 1] if "--promtool" in sys.argv else None
    if not os.path.exists(REFERENCE):
        sys.exit(f"{REFERENCE} is missing; create it with: trtllm-exporter catalog >{REFERENCE}")
    with open(REFERENCE) as file:
        families = set(re.findall(r"^\| `(\w+)` \|", file.read(), re.M))
    paths = sorted({*glob.glob("*.md"), *glob.glob("docs/**/*.md", recursive=True)} - {REFERENCE})
    findings, queries, examples = [], [], 0
    for path in paths:
        with open(path) as file:
            text = file.read()
        findings += findings_of(path, text, families)
        queries += queries_of(text)
        if promtool:
            findings += configuration_findings(path, text, promtool)
            examples += len(list(configurations_of(text)))
    if promtool:
        findings += syntax_findings(queries, promtool)
    for finding in findings:
        print(finding)
    print(f"{len(paths)} documents, {len(queries)} queries, {examples} configurations, {len(families)} families")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
