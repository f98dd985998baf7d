"""Checks every PromQL expression of the dashboards and the rules, and the structure of the dashboards.

usage: expressions.py dashboard FILE... [--promtool PATH]  checks the structure, and the syntax of each expression with promtool
       expressions.py names PROFILE EXPORTER FILE...       checks that each metric and fixed label value is on the page of a
                                                           busy simulated engine, or in allowed_absent.txt. For the profile
                                                           default, leaves out the panels of the rows that need the full page
Prints one line per finding. Exit code 1 if there is a finding.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from exporter import Exporter, conclude, until

OURS = re.compile(r"\b(?:nv_|trtllm_exporter_|process_)[a-z0-9_]+")
RECORDED = re.compile(r"\b(?:engine|gpu|model|model_version|trtllm_slo):[\w:]+")
# Labels that Prometheus adds (job), or that it writes in another form than the page (le).
NOT_ON_A_PAGE = ("job", "le")
# Selectors of the exporter's series and of recorded series. NO_MODEL: series of GPUs and of exporters have no label model.
SELECTOR = re.compile(r"(?<![\w:])((?:nv_|trtllm_exporter_|model_version:|ALERTS|up(?=\{))[\w:]*)(?:\{([^}]*)\})?")
NO_MODEL = re.compile(r"nv_gpu_|nv_energy|up$")
NEEDS_FULL = "--metrics.profile full"
LOOKS_LIKE_RATE = re.compile(r"\b(?:rate|increase|irate|deriv)\(")


def table_queries_of(markdown):
    """The queries in the column "PromQL" of the tables of a document."""
    column = None
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            column = None
        elif "PromQL" in cells:
            column = cells.index("PromQL")
        elif column is not None:
            yield from re.findall("`([^`]+)`", cells[column])


def queries_of(markdown):
    """The queries in the ```promql blocks and in the tables of a document, without comments. In a block, an empty
    line ends a query."""
    yield from table_queries_of(markdown)
    for block in re.findall(r"```promql\n(.*?)```", markdown, re.S):
        for query in block.strip().split("\n\n"):
            yield re.sub(r"(?m)^#.*\n", "", query)


def panels_of(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def structure_findings(dashboard):
    """Finds mistakes in a dashboard that Grafana accepts without a message, and that its builder does not prevent."""
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    if not {"datasource", "cluster", "job", "namespace"} <= variables or not ({"model", "version"} <= variables or "gpu" in variables):
        yield f"variables datasource, cluster, job, namespace, and model and version or gpu are required; found {sorted(variables)}"
    single = any(variable["name"] == "instance" and not variable.get("multi") for variable in dashboard["templating"]["list"])
    titles = set()
    for panel in panels_of(dashboard):
        title = panel.get("title")
        name = f"panel {panel.get('id')} {title!r}"
        if not title or title in titles:
            yield f"{name}: title is empty or used twice"
        titles.add(title)
        if panel["type"] == "row":
            continue
        if not panel.get("description"):
            yield f"{name}: no description"
        if not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{name}: no unit"
        for target in panel.get("targets", []):
            expression = target["expr"]
            if not target.get("legendFormat"):
                yield f"{name}: no legend"
            if LOOKS_LIKE_RATE.search(expression) and set(re.findall(r"\[([^\]]+)\]", expression)) != {"$__rate_interval"}:
                yield f"{name}: a rate does not use $__rate_interval"
            used = set(re.findall(r"\$\{?(\w+)", expression)) - {"__rate_interval"}
            if used - variables:
                yield f"{name}: unknown variables {sorted(used - variables)}"
            for metric, selector in SELECTOR.findall(expression):
                wanted = variables - {"datasource"} - ({"model", "version"} if NO_MODEL.match(metric) else set())
                missing = [one for one in sorted(wanted) if f'=~"${one}"' not in selector]
                # For GPU metrics, a join with the GPUs of an engine is a filter, too.
                if missing and not (NO_MODEL.match(metric) and "nv_trt_llm_engine_gpu_info{" in expression):
                    yield f"{name}: {metric}{{{selector}}} is not filtered by {missing}"
            legend = target.get("legendFormat") or ""
            if "gpu_uuid" in legend:
                yield f"{name}: the legend has a UUID; people know the index of a GPU"
            if not single and panel["type"] == "timeseries" and re.search(r"{{(model|instance)}}", legend) and not re.search(r"\b(topk|bottomk)\(", expression):
                yield f"{name}: a line for each engine or GPU; 200 of them cannot be read"
            if panel["type"] == "state-timeline" and not single:
                yield f"{name}: a bar for each engine or GPU; 200 of them cannot be read"
            # A Prometheus may store classic or native histograms, and a quantile must work with both.
            quantiles = re.findall(r"histogram_quantile\(([^,]+), sum by \(([^)]*)\) \(rate\((\w+?)(_bucket)?\{", expression)
            if len(quantiles) != expression.count("histogram_quantile"):
                yield f"{name}: a quantile is not of the form histogram_quantile(Q, sum by (...) (rate(NAME{{...}}[...])))"
            for _, by, family, classic in quantiles:
                if ("le" in by.replace(" ", "").split(",")) != bool(classic):
                    yield f"{name}: {family}: classic buckets need the label le, native ones must not have it"
            of = [{(quantile, family) for quantile, _, family, classic in quantiles if bool(classic) == wanted} for wanted in (True, False)]
            if of[0] != of[1]:
                yield f"{name}: a quantile of classic buckets needs `or` with the same of the native histogram"


def link_findings(dashboards):
    """Finds data links that do not lead to one of our dashboards, or do not pass on the data source, the time range and
    variables that exist there."""
    known = {dashboard["uid"]: {variable["name"] for variable in dashboard["templating"]["list"]} for dashboard in dashboards}
    for dashboard in dashboards:
        urls = re.findall(r'"url": "(/d/[^"]+)"', json.dumps(dashboard).replace('\\"', "'"))
        for url in sorted(set(urls)):
            uid, _, parameters = url.removeprefix("/d/").partition("?")
            carried = set(re.findall(r"var-(\w+)=", parameters)) | set(re.findall(r"\$\{(\w+):queryparam\}", parameters))
            if uid not in known or not carried <= known[uid] or not {"datasource", "cluster", "job", "namespace"} < carried or "${__url_time_range}" not in url:
                yield f"{dashboard['uid']}: the link {url} does not fit {sorted(known.get(uid, []))}"
        if not urls:
            yield f"{dashboard['uid']}: no link leads on"


def dashboard_expressions(dashboard, without_full=False):
    if without_full:
        dashboard = dashboard | {"panels": [panel for panel in dashboard["panels"] if NEEDS_FULL not in panel["title"]]}
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"]
    for panel in panels_of(dashboard):
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])[1]


def concrete(expression, values=None, window="10s"):
    """The query that Grafana sends. Variables without a value are `All`, even if the dashboard's default is one value."""
    expression = expression.replace("$__rate_interval", window)
    return re.sub(r"\$\{?(\w+)(:\w+)?\}?", lambda found: (values or {}).get(found[1], ".*"), expression)


def syntax_findings(expressions, promtool):
    rules = [{"record": f"dashboard:e{number}", "expr": concrete(expression)} for number, expression in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        result = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
    if result.returncode:
        yield (result.stdout + result.stderr).strip()


def rule_expressions(text):
    """The `expr:` values of a rule file, with folded lines joined. Parses only the subset of YAML that our files use,
    so it needs no library."""
    for _, value, folded in re.findall(r"(?m)^( *)(?:- )?expr: (.*)\n((?:\1 +.*\n)*)", text):
        yield " ".join(map(str.strip, folded.splitlines())) if value == ">-" else value


def may_be_absent(name):
    lines = pathlib.Path(__file__).with_name("allowed_absent.txt").read_text().splitlines()
    allowed = [line.split(None, 1)[0] for line in lines if line.strip() and not line.startswith("#")]
    return any(name == entry or entry.endswith("*") and name.startswith(entry[:-1]) for entry in allowed)


def busy_page(binary, profile):
    """The page of an exporter with a busy simulated engine, when it has all families about requests."""
    # Histograms of requests appear when the first request has ended, and the verdict after several intervals of five seconds.
    wanted = ["nv_trt_llm_goodput_tokens_total", "nv_trt_llm_limited_by_since_timestamp_seconds"]
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--record.dir={folder}/recording", f"--metrics.profile={profile}", "--objectives=ttft=500ms,tpot=50ms,e2e=10s"]
        with Exporter(binary, "--source=sim:", *options) as exporter:

            def attempt():
                page = exporter.page()
                return page.values("nv_trt_llm_engine_state", state="busy") == [1] and all(map(page.labels, wanted)) and page

            return until("a page with all families", attempt)


def absent_from(page, expressions):
    used = set()
    for expression in expressions:
        labels_only = re.sub(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)", "", RECORDED.sub("", expression))
        for found in re.finditer(OURS.pattern + r"(\{[^}]*\})?", labels_only):
            used.add((re.match(OURS, found[0])[0], found[1] or ""))
    for name, selector in sorted(used):
        present = page.labels(name) or page.labels(f"{name}_bucket")  # a native histogram has the name without a suffix
        if not present:
            if not may_be_absent(name):
                yield f"{name}: not on the page"
            continue
        for label, operator, wanted in re.findall(r'(\w+)(=~|=)"([^"$]*)"', selector):
            for value in wanted.split("|") if operator == "=~" else [wanted]:
                if label in NOT_ON_A_PAGE or may_be_absent(f'{name}{{{label}="{value}"}}'):
                    continue
                if not any(labels.get(label) == value for labels in present):
                    yield f'{name}: no series with {label}="{value}" on the page'
    yield None, len(used)


def main():
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if command == "dashboard" and arguments:
        promtool = arguments[arguments.index("--promtool") + 1] if "--promtool" in arguments else "promtool"
        paths = arguments[: arguments.index("--promtool")] if "--promtool" in arguments else arguments
        dashboards = [json.load(open(path)) for path in paths]
        expressions = [expression for dashboard in dashboards for expression in dashboard_expressions(dashboard)]
        findings = [f"{path}: {finding}" for path, dashboard in zip(paths, dashboards) for finding in structure_findings(dashboard)]
        findings += [*syntax_findings(expressions, promtool), *link_findings(dashboards)]
        if len({dashboard["uid"] for dashboard in dashboards}) != len(dashboards):
            findings.append("two dashboards have the same uid")
        panels = sum(panel["type"] != "row" for dashboard in dashboards for panel in panels_of(dashboard))
        summary = f"{len(dashboards)} dashboards, {panels} panels, {len(expressions)} expressions"
    elif command == "names" and len(arguments) > 2 and arguments[0] in ("default", "full"):
        page, expressions = busy_page(arguments[1], arguments[0]), []
        for path in arguments[2:]:
            with open(path) as file:
                text = file.read()
            if path.endswith(".json"):
                expressions += dashboard_expressions(json.loads(text), arguments[0] == "default")
            else:
                expressions += [*rule_expressions(text), *OURS.findall(RECORDED.sub("", text))]  # annotations mention metrics too
        findings = list(dict.fromkeys(absent_from(page, expressions)))
        summary = f"{findings.pop()[1]} selectors in {len(expressions)} expressions"
    else:
        sys.exit(__doc__)
    conclude(findings, summary)


if __name__ == "__main__":
    main()
