"""Checks all documents: relative links and their sections, names of metrics and of code, command lines, the sources of measured
figures, and the syntax of the examples of PromQL and prometheus.yml.

usage: docs.py [--promtool PATH] [--binary PATH]     (run in the repository root)
--binary is the exporter. It and trtllm-doctor in the same folder parse their own command lines.
Prints one line per finding. Exit code 1 if there is a finding.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import textwrap

from alerts import read, rule_files
from command_lines import command_findings, commands_of, figure_findings
from exporter import conclude
from expressions import OURS, queries_of, syntax_findings, table_queries_of

REFERENCE = "docs/METRICS.md"
NEEDS_FULL = "--metrics.profile full"
LINK = re.compile(r"\]\(([^)#]*)#?([^)]*)\)")
METRIC = re.compile(r"`((?:nv_|trtllm_exporter_)[a-z0-9_]+[a-z0-9])[`{]|\b(nv_[a-z0-9_]+)(?=[\[{])")
HISTOGRAM_SERIES = re.compile(r"_(bucket|sum|count)$")


def sections_of(path):
    """The anchors of a document, which GitHub derives from its headings."""
    with open(path) as file:
        headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^ *```.*?^ *```$", "", file.read()))
    return set(map(anchor, headings))


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def findings_of(path, text, families):
    for target, section in LINK.findall(text):
        if target.startswith("http"):
            continue
        file = os.path.join(os.path.dirname(path), target) if target else path
        if not os.path.exists(file):
            yield f"{path}: broken link {target}"
        elif section and section not in sections_of(file):
            yield f"{path}: {target or path} has no section #{section}"
    for name in sorted({match[0] or match[1] for match in METRIC.findall(text)}):
        if name not in families and HISTOGRAM_SERIES.sub("", name) not in families:
            yield f"{path}: {name} is not a metric of the exporter"


def reader_findings(paths):
    """A page of docs/ begins with what its reader can do afterwards, and is at most two links away from README.md: the third click
    is its section."""
    reached = {"README.md"}
    for _ in range(2):
        reached |= {os.path.normpath(os.path.join(os.path.dirname(path), target)) for path in reached & set(paths) for target, _ in LINK.findall(read(path))}
    for path in paths:
        if path.startswith("docs/") and not re.match(r"# .+\n\nAfter this page, ", read(path)):
            yield f"{path}: say in the first sentence what the reader can do after this page"
        if path.startswith("docs/") and path not in reached:
            yield f"{path}: more than two links away from README.md"


# What an outsider looks for. The way from README.md: the targets of links, and the text that answers.
SEARCHES = {
    "metrics of a model in Prometheus": ["docs/monitoring.md", "sum by (model)"],
    "why a model is slow": ["docs/doctor.md", "$ trtllm-doctor diagnose"],
    "embedding in C++": ["docs/embedding.md", "cmake --build build"],
    "embedding in Python": ["docs/embedding-python.md", "publisher.observe("],
    "adding a metric": ["CONTRIBUTING.md#add-a-metric", "\n## Add a field"],
}
SECONDS, WORDS_PER_MINUTE, CLICKS = 120, 240, 3
ALERT = re.compile(r"(?m)^## (Trtllm\w+)\n\n\*\*What it means\.\*\* (?:.+\n)*?(.+)\n(?=\n)")


def search_findings():
    """An outsider needs at most three clicks and two minutes from README.md to an answer. The time is that of reading each page on the way, or the
    section to which its link leads, from its beginning to the end of the line with the next link or with the answer."""
    searches = dict(SEARCHES)
    for path in glob.glob("docs/runbooks/*.md"):
        for alert, end in ALERT.findall(read(path)):
            searches[f"the meaning of {alert}"] = ["docs/runbooks/README.md", f"{os.path.basename(path)}#{alert.lower()}", end]
    for what, (*links, answer) in searches.items():
        page, section, words, clicks = "README.md", "", 0, 0
        for stop in [*links, answer]:
            text = read(page)
            start = next((match.start() for match in re.finditer(r"(?m)^#+ (.+)$", text) if section and anchor(match[1]) == section), 0)
            link, _, section = stop.partition("#")
            texts = [f"({stop})", f"({link})"] if stop in links else [stop]
            at, sought = next(((text.find(sought, start), sought) for sought in texts if text.find(sought, start) >= 0), (-1, stop))
            if at < 0:
                yield f"{page}: nothing leads to {what}: {stop} is missing"
                break
            words += len(text[start:text.find("\n", at + 1)].split())
            if stop in links:
                clicks += 1 + (sought != texts[0])  # the second click is on the page's outline
                page = os.path.normpath(os.path.join(os.path.dirname(page), link))
        if words * 60 > SECONDS * WORDS_PER_MINUTE or clicks > CLICKS:
            yield f"README.md: {what}: {words * 60 // WORDS_PER_MINUTE} s and {clicks} clicks"


def rule_findings(path, text):
    """Finds names of alerts, recorded series or rule groups in a document that do not exist."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    rules = "".join(read(os.path.join(root, file)) for file in rule_files())
    known = set(re.findall(r"- (?:alert|record|name): (\S+)", rules))
    for name in sorted(set(re.findall(r"\bTrtllm[A-Z]\w+|\b(?:engine|gpu|model|model_version|trtllm_slo|trtllm_cost):\w+:\w+|\btrtllm-[\w-]+-recording\b|\btrtllm-backlog\b", text)) - known):
        yield f"{path}: no rule has the name {name}"


NAMED = re.compile(r"`(\w+)`(?: in|)\s*\(?\[`([\w.]+)`\]\(([^)#]+)\)")


def names_of_code(path, text):
    """If a document contains `name` in [`file`](path), or `name` ([`file`](path)), the file must define a function or a
    type with this name."""
    for name, file, target in NAMED.findall(re.sub(r"\s+", " ", text)):
        source = os.path.join(os.path.dirname(path), target)
        if os.path.basename(target) != file:
            yield f"{path}: the link `{file}` leads to {target}"
        elif os.path.isfile(source):
            with open(source) as code:
                if not re.search(rf"\b(?:fn|struct|enum|type|trait) {name}\b", code.read()):
                    yield f"{path}: {target} has no function and no type {name}"


def configurations_of(text):
    """The examples of prometheus.yml, including those that are indented as part of a list."""
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
    promtool, binary = (sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else None for flag in ("--promtool", "--binary"))
    if not os.path.exists(REFERENCE):
        sys.exit(f"{REFERENCE} is missing; create it with: trtllm-exporter catalog >{REFERENCE}")
    with open(REFERENCE) as file:
        reference = file.read()
    families = set(re.findall(r"^\| `(\w+)` \|", reference, re.M))
    full_only = set(re.findall(r"^\| `(\w+)` \|", reference.split("\n## Only on the full page\n")[1].split("\n## ")[0], re.M))
    patterns = ("*.md", "docs/**/*.md", "deploy/**/*.md")
    paths = sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)} - {REFERENCE})
    findings, queries, examples, commands = [], [], 0, 0
    for path in paths:
        with open(path) as file:
            text = file.read()
        findings += findings_of(path, text, families)
        named = {HISTOGRAM_SERIES.sub("", match[0] or match[1]) for match in METRIC.findall(text)} & full_only
        if named and NEEDS_FULL not in text and path != "CHANGELOG.md":
            findings.append(f"{path}: say that {', '.join(sorted(named))} needs {NEEDS_FULL}")
        findings += rule_findings(path, text)
        findings += command_findings(path, text, binary)
        findings += figure_findings(path, text)
        commands += len(list(commands_of(text)))
        findings += names_of_code(path, text)
        queries += queries_of(text)
        for query in table_queries_of(text):
            for name in sorted(set(OURS.findall(query))):
                if name not in families and HISTOGRAM_SERIES.sub("", name) not in families:
                    findings.append(f"{path}: {name} in {query} is not a metric of the exporter")
        if promtool:
            findings += configuration_findings(path, text, promtool)
            examples += len(list(configurations_of(text)))
    findings += reader_findings([*paths, REFERENCE])
    findings += search_findings()
    if promtool:
        findings += syntax_findings(queries, promtool)
    conclude(findings, f"{len(paths)} documents, {commands} command lines, {len(queries)} queries, {examples} configurations, {len(families)} families")


if __name__ == "__main__":
    main()
