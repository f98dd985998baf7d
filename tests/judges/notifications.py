"""Runs an engine with the trouble of each cause, and prints which notification arrives after how many seconds. The rules and routes are
those of deploy/prometheus; Prometheus and Alertmanager are real.

usage: notifications.py EXPORTER [--gpus STANDIN] [--factor F] [--seconds S] [--only REGEX]
Each engine is a process (trtllm-sim-serve; SIM_SERVE names a built one) with the server's page and rows of requests, and one is healthy.
All times of the rules and of the Alertmanager are divided by the factor; with --factor=1 they are as shipped. The exporter's own times
are not: it judges the last minute. So a real notification comes later than in the table by at most (factor - 1) times what the rule waits.
Prints a line for each engine. Exit code 1 if no notification follows a verdict of severity warning or critical, if one names a wrong cause
or a healthy engine, or if its link leads nowhere; 77 if a program is not installed.
"""

import pathlib
import re
import tempfile
import time

from docs import sections_of
from exporter import ROOT, conclude, options, until
from fleet import RULES, shortened
from live import ALSO_RIGHT, scenarios, told, watched
from notified import Notified, alertmanager
from prometheus import Prometheus, needs, scraping, target

SETUP = "both"
# Alerts that name no cause, and the causes that they stand for.
NAMELESS = {
    "TrtllmEngineStalled": {"unavailable"}, "TrtllmEngineUnreachable": {"unavailable"}, "TrtllmModelUnavailable": {"unavailable"},
    "TrtllmModelNotServing": {"unavailable"}, "TrtllmStatisticsLost": {"statistics"}, "TrtllmRequestsFailing": {"errors", "memory"},
    "TrtllmGpuThrottled": {"clocks"}, "TrtllmGpuPowerCapped": {"clocks"}, "TrtllmGpuHot": {"clocks"},
}


def leads_nowhere(link):
    """Whether the page or the heading of a runbook link is missing."""
    path, heading = re.fullmatch(r"https://github\.com/\S+?/blob/main/([^#]+)#(.+)", link).groups()
    return heading not in sections_of(ROOT / path)


def notifications(messages, begin):
    """By model: seconds since the begin, receiver, name, cause and link of each alert when it was first told."""
    first = {}
    for at, receiver, message in messages:
        for alert in message["alerts"]:
            labels = alert["labels"]
            of = (labels.get("model", ""), labels["alertname"], labels.get("cause"))
            if alert["status"] == "firing":
                first.setdefault(of, (at - begin, receiver, labels["alertname"], labels.get("cause"), alert["annotations"]["runbook_url"]))
    by_model = {}
    for (model, *_), one in first.items():
        by_model.setdefault(model.removeprefix(f"{SETUP}/"), []).append(one)
    return by_model


def findings(name, expected, verdict, heard, also_right):
    right = {expected} | also_right.get(expected, set())
    for _, _, alert, cause, link in heard:
        causes = {cause} if cause else NAMELESS.get(alert, right)
        if expected == "none" or not causes & right:
            yield f"{name}: {alert} names {', '.join(causes)}, but the cause is {expected}"
        if leads_nowhere(link):
            yield f"{name}: {link} leads nowhere"
    if verdict and verdict["severity"] in ("warning", "critical") and not heard:
        yield f"{name}: the verdict is {verdict['cause']} ({verdict['severity']}), but no notification arrived"


def main():
    parser = options(__doc__)
    parser.add_argument("exporter")
    parser.add_argument("--gpus", metavar="STANDIN")
    parser.add_argument("--factor", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="^(?!drill-|healthy)", metavar="REGEX")
    args = parser.parse_args()
    needs("prometheus", alertmanager())
    causes = {one["cause"]: one["name"] for one in reversed(scenarios(args.exporter, args.only))}
    causes |= {"none": "healthy-default"}
    engines = {(SETUP, name): (f"sim:?scenario={name}", (), {}) for name in causes.values()}
    missed = []
    with tempfile.TemporaryDirectory() as work:
        for rules in RULES:
            pathlib.Path(work, rules).write_text(shortened((ROOT / "deploy/prometheus" / rules).read_text(), args.factor))
        with Notified(work, args.factor) as notified, watched(args.exporter, engines, 0, standin=args.gpus) as ours:
            until("all engines", lambda: all(ours.page().values("trtllm_exporter_source_up")))
            begin = time.time()
            interval = f"{max(1, round(15 / args.factor))}s"
            with Prometheus(work, scraping([target(ours.address)], interval, rule_files=list(RULES), **notified.alerting)):
                time.sleep(args.seconds)
                verdicts = told(ours)
    by_model = notifications(notified.messages, begin)
    print("| cause | verdict | told | after |\n| --- | --- | --- | --- |")
    for expected, name in sorted(causes.items()):
        verdict, heard = verdicts.get((SETUP, name)), sorted(by_model.get(name, []))
        said = verdict and f"{verdict['cause']}, {verdict['severity']}, {verdict['confidence']}"
        texts = [f"{who}: [{alert}]({link.split('/blob/main/')[1]}){f', {cause}' if cause else ''}" for _, who, alert, cause, link in heard]
        print(f"| {expected} (`{name}`) | {said} | {'<br>'.join(texts) or 'nobody'} | {'<br>'.join(f'{after:.0f} s' for after, *_ in heard)} |")
        missed += findings(name, expected, verdict, heard, {} if args.gpus else ALSO_RIGHT)
    conclude(missed, f"{len(causes)} engines, times of the rules ÷ {args.factor:g}, watched for {args.seconds:.0f} s")


if __name__ == "__main__":
    main()
