"""Checks that the alerts agree with their runbooks, with their tests and with the catalog.

usage: alerts.py [--promtool PATH]     (run in the repository root)
Each alert must have a severity, a class that fits it, a summary, a description, a test in which it fires, a test in which it does not
fire, and a runbook section. A critical alert may only use failed requests, objectives, and models that had requests and have no engine
that serves. Each runbook section must belong to an alert, have the three parts, state each limit of the alert's expression, and have
only queries that parse and use metrics of the catalog. If a summary or description states a share, the expression must contain it.
tests/it/doctor.rs compares the limits with those of doctor's rules.
Prints one line per finding. Exit code 1 if there is a finding.
"""

import glob
import os
import re
import sys

from exporter import conclude
from expressions import OURS, RECORDED, queries_of, rule_expressions, syntax_findings

PARTS = ("What it means.", "What to look at.", "What to do.")
# The classes of docs/runbooks/README.md, and their severities. An alert is critical if users are affected now and a person can help.
SEVERITIES = {
    "requests fail": "critical",
    "objective missed": "critical",
    "will hurt": "warning",
    "state unknown": "warning",
    "improvement": "info",
}
# Metrics that a critical alert may use, by class. A full cache, a long queue, a hot GPU or a slow engine alone is not critical, and
# neither is a limit that no user has chosen.
HURTS = {
    "requests fail": r"up|(nv_trt_llm_(engine_state|requests_(finished|completed)_total|request_errors_total|disagg_ready)"
    r"|trtllm_exporter_source_up|model:nv_trt_llm_(absence:ratio|(ready|down):timestamp_seconds)|model:nv_trt_llm_engines_ready:count)",
    "objective missed": r"(model_version:nv_trt_llm_objective_\w+:\w+|trtllm_slo:objective_budget:ratio)",
}
WORDS = {"0.5": "half", "2": "twice", "3": "three"}


def read(path):
    with open(path) as file:
        return file.read()


def rule_files():
    return [f"deploy/prometheus/{name}.yml" for name in ("alerts", "alerts-gpu", "recording")]


def severity_findings(severity, stated, alert):
    """Finds alerts whose severity does not fit their class, and critical alerts that read a metric that HURTS does not
    allow for their class."""
    if SEVERITIES.get(stated) != severity:
        yield f"class {stated!r} does not fit severity {severity!r}"
    if severity == "critical":
        expression = re.split(r"\n\s+(?:for|labels):", alert.split("expr:")[1])[0]
        for name in set(re.findall(r"\b(?:nv_|trtllm_|engine:|model:|model_version:)[\w:]+", re.sub(r"\{[^}]*\}", "", expression))):
            if not re.fullmatch(HURTS.get(stated, ""), name):
                yield f"it is critical and reads {name}, which hurts no user by itself"


def alerts_of(text):
    """For each alert: (name, severity, runbook_url, has summary and description, whole text). Parses only the subset
    of YAML that our files use."""
    for block in re.split(r"\n {6}- alert: ", text)[1:]:
        block = re.split(r"\n {6}- |\n {2}- name:", block)[0]
        value = lambda key: (re.search(rf"\n\s+{key}: (.+)", block) or [None, ""])[1]
        yield block.split("\n")[0].strip(), value("severity"), value("runbook_url"), bool(
            value("summary") and value("description")
        ), block


def limits_of(alert):
    """The numbers with which the alert compares, as they are written, and its codes of Xid errors, but not 0 and 1."""
    expression = re.split(r"\n\s+(?:for|labels):", alert.split("expr:")[1])[0]
    codes = re.findall(r'xid=~"([\d|]+)"', expression)
    rest = re.sub(r"\{[^}]*\}|\[[^\]]*\]|[a-zA-Z_:][\w:]*|\b\d+[smhd]\b", " ", expression)
    return set(re.findall(r"\d+(?:\.\d+)?", " ".join([rest, *codes]))) - {"0", "1"}


def shares_of(number):
    """The forms in which a text may state a share: 0.9 is 90 %, or 10 % are left."""
    return {f"{share * 100:.4g} %" for share in (float(number), 1 - float(number))} if float(number) < 1 else set()


def wrong_shares(limits, alert):
    """Finds shares in the summary and the description that are not in the expression."""
    allowed = set().union(*map(shares_of, limits))
    return sorted(set(re.findall(r"\d+(?:\.\d+)? %", alert.split("annotations:")[1])) - allowed)


def missing_limits(limits, text):
    """Finds limits that a text does not state outside its queries."""
    text = re.sub(r"(?s)```.*?```", "", text)
    stated = lambda form: re.search(rf"(?<![\d.]){re.escape(form)}(?!\w)", text)
    return sorted(number for number in limits if not any(map(stated, {number, WORDS.get(number, number)} | shares_of(number))))


def tested(text):
    """The alerts that fire in some test, and the alerts that do not fire in some test."""
    fires, silent = set(), set()
    for block in re.split(r"\n {6}- (?=alertname: |expr: )", text)[1:]:
        name = re.match(r'alertname: (\w+)|expr: \W?ALERTS\{alertname="(\w+)"', block)
        if name:
            block = block.split("\n  - name:")[0]
            (silent if re.search(r"exp_(alerts|samples): \[\]", block) else fires).add(name[1] or name[2])
    return fires, silent


def sections_of(page):
    return {block.split("\n")[0].strip(): block for block in re.split(r"(?m)^## ", page)[1:]}


def unknown_metrics(expressions, families, recorded):
    for expression in expressions:
        for name in RECORDED.findall(expression):
            if name not in recorded:
                yield f"{name} is not a recording rule"
        for name in OURS.findall(RECORDED.sub("", expression)):
            if name not in families and re.sub(r"_(bucket|sum|count)$", "", name) not in families:
                yield f"{name} is not a metric of the exporter"


def main():
    promtool = sys.argv[sys.argv.index("--promtool") + 1] if "--promtool" in sys.argv else None
    repository = re.search(r'(?m)^repository = "(.+)"', read("Cargo.toml"))[1]
    families = set(re.findall(r"^\| `(\w+)` \|", read("docs/METRICS.md"), re.M))
    rules = {path: read(path) for path in rule_files()}
    recorded = {name for text in rules.values() for name in re.findall(r"- record: (\S+)", text)}
    tests = [tested(read(path)) for path in glob.glob("deploy/prometheus/*_test.yml")]
    fires, silent = (set().union(*column) for column in zip(*tests))
    pages = {path: sections_of(read(path)) for path in sorted(glob.glob("docs/runbooks/*.md"))}
    findings, names, queries = [], set(), []
    for path, text in rules.items():
        findings += [f"{path}: {finding}" for finding in unknown_metrics(rule_expressions(text), families, recorded)]
        for name, severity, url, described, alert in alerts_of(text):
            names.add(name)
            limits = limits_of(alert)
            page = url.removeprefix(f"{repository}/blob/main/").split("#")[0]
            stated = (re.search(r"\n\s+class: (.+)", alert) or [None, ""])[1]
            findings += [f"{name}: {finding}" for finding in severity_findings(severity, stated, alert)]
            if not described:
                findings.append(f"{name}: summary or description is missing")
            if not url.startswith(f"{repository}/blob/main/docs/runbooks/") or not url.endswith(f".md#{name.lower()}"):
                findings.append(f"{name}: runbook_url {url!r} is not {repository}/blob/main/docs/runbooks/PAGE.md#{name.lower()}")
            elif name not in pages.get(page, {}):
                findings.append(f'{name}: {page} has no section "## {name}"')
            else:
                stated = read(page).split("\n## ")[0] + pages[page][name]
                findings += [f"{name}: {page} does not state {number}, which the expression has" for number in missing_limits(limits, stated)]
            findings += [f"{name}: {share} is not a number of the expression" for share in wrong_shares(limits, alert)]
            for what, cases in (("fires", fires), ("stays silent", silent)):
                if name not in cases:
                    findings.append(f"{name}: no test in which it {what}")
    rows = re.findall(r"(?m)^\| (\w+) \| `([\w ]+)` \|", read("docs/runbooks/README.md"))
    listed = {stated: severity for severity, stated in rows}
    if listed != SEVERITIES:
        findings.append(f"docs/runbooks/README.md: has the classes {listed}, not {SEVERITIES}")
    objectives = "docs/runbooks/objectives.md"
    budgets = re.findall(r"_budget:ratio\n +expr: vector\(([\d.]+)\)", rules["deploy/prometheus/recording.yml"])
    findings += [f"{objectives}: does not state the budget {number} of recording.yml" for number in missing_limits(budgets, read(objectives))]
    for path, sections in pages.items():
        if os.path.basename(path) != "README.md" and f"({os.path.basename(path)})" not in read("docs/runbooks/README.md"):
            findings.append(f"docs/runbooks/README.md: does not list {path}")
        for title, section in sections.items():
            if title not in names:
                findings.append(f"{path}: section {title} belongs to no alert")
            findings += [f"{path}: {title}: **{part}** is missing" for part in PARTS if f"**{part}**" not in section]
        of_page = list(queries_of(read(path)))
        queries += of_page
        findings += [f"{path}: {finding}" for finding in unknown_metrics(of_page, families, recorded)]
    if promtool:
        findings += syntax_findings(queries, promtool)
    conclude(findings, f"{len(names)} alerts, {len(pages)} pages, {len(queries)} queries")


if __name__ == "__main__":
    main()
