"""Measures when Alertmanager notifies that a model does not serve, with a real Prometheus, a real Alertmanager and simulated servers.

usage: dying_model.py EXPORTER SIM_SERVE [--minutes N]     (run in the repository root)
All intervals and waiting times are those of deploy/prometheus, and time is not scaled: the run takes as long as it measures. The servers
run for two minutes with 20 requests at a time. Then each case happens at the same moment. Prints a table of the notifications
that the receivers got, with their times since then. Exit code 1 if a case differs from EXPECTED, 77 if a program is not installed.
"""

import argparse
import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from exporter import ROOT, until
from free_port import free_port
from notified import Notified, alertmanager
from prometheus import Prometheus, needs

WARM_UP = 120
SERVING = "sim:?rate=20&in_flight=20"
# By case: seconds until the server is back (None: never), its known load in seconds, and what is killed.
CASES = {
    "killed": (None, None, "engine"),
    "killed-load-3m": (None, 180, "engine"),
    "redeployed-3m": (180, None, "engine"),
    "redeployed-3m-known": (180, 180, "engine"),
    "redeployed-12m": (720, None, "engine"),
    "redeployed-12m-known": (720, 720, "engine"),
    "one-of-two": (None, None, "engine"),
    "sidecar-gone": (None, None, "exporter"),
}
# By case: the minutes in which the ticket and the page must come. Alertmanager adds up to half a minute, Prometheus two intervals.
TICKET = (2, 3.5)
EXPECTED = {
    "killed": (TICKET, (10, 11.5)),
    "killed-load-3m": (TICKET, (6, 7.5)),
    "redeployed-3m": (TICKET, None),
    "redeployed-3m-known": (TICKET, None),
    "redeployed-12m": (TICKET, (10, 11.5)),
    "redeployed-12m-known": (TICKET, None),
    "one-of-two": (None, None),
    "sidecar-gone": (TICKET, (10, 11.5)),
}
MODELS = {"TrtllmModelNotServing": 0, "TrtllmModelUnavailable": 1}


class Server:
    """A simulated server. If its load is known, a proxy adds it to the answer of /server_info."""

    def __init__(self, program, model, load):
        self.program, self.model, self.port = program, model, free_port()
        self.behind = self.port if load is None else free_port()
        self.load, self.proxy = load, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [self.program, SERVING, f"--port={self.behind}", f"--model={self.model}", "--backend=pytorch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if self.load is not None:
            self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self.handler())
            threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def handler(self):
        behind, load = self.behind, self.load

        class Proxy(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self):
                try:
                    there = http.client.HTTPConnection("127.0.0.1", behind, timeout=5)
                    there.request("GET", self.path)
                    answer = there.getresponse()
                    body = answer.read()
                except OSError:
                    return self.connection.close()
                if self.path == "/server_info":
                    body = json.dumps({"startup_metrics": {"weight_loading_seconds": load}}).encode()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.getheader("Content-Type") or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Proxy

    def kill(self):
        self.process.kill()  # SIGKILL
        self.process.wait()
        if self.proxy:
            self.proxy.shutdown()
            self.proxy.server_close()


def exporter(program, folder, name, engines):
    path, port = os.path.join(folder, f"{name}.yml"), free_port()
    with open(path, "w") as file:
        file.write("engines:\n" + "".join(f"  - {{source: 'trtllm-serve:http://127.0.0.1:{at}', model: {model}, version: '{version}'}}\n" for model, version, at in engines))
    log = open(os.path.join(folder, f"{name}.log"), "w")
    command = [program, f"--config.file={path}", f"--web.listen-address=127.0.0.1:{port}", "--gpu=off"]
    return port, subprocess.Popen(command, stdout=log, stderr=log)


def table(told, begin):
    """By case: the firing and resolved notifications of its model, as (minutes, receiver, alerts)."""
    rows = {case: [] for case in CASES}
    for at, receiver, message in told:
        model = message["groupLabels"].get("model")
        names = sorted({f"{alert['labels']['alertname']}{'' if alert['status'] == 'firing' else ' (resolved)'}" for alert in message["alerts"]})
        if model in rows:
            rows[model].append((round((at - begin) / 60, 1), receiver, names))
    return rows


def findings(rows):
    for case, expected in EXPECTED.items():
        for name, index in MODELS.items():
            found = [minutes for minutes, _, names in rows[case] if name in names]
            within = expected[index]
            if within is None and found:
                yield f"{case}: {name} after {found[0]} minutes, but it must not come"
            elif within and not (found and within[0] <= found[0] <= within[1]):
                yield f"{case}: {name} after {found[:1]} minutes, not within {within}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exporter")
    parser.add_argument("sim_serve")
    parser.add_argument("--minutes", type=float, default=16)
    args = parser.parse_args()
    needs("prometheus", alertmanager())
    processes, servers = [], {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for case, (_, load, _) in CASES.items():
                servers[case] = Server(args.sim_serve, case, load)
            second = Server(args.sim_serve, "one-of-two", None)
            for server in [*servers.values(), second]:
                until("a server", lambda server=server: socket.create_connection(("127.0.0.1", server.behind), 1), 60)
            engines = [(case, "1", server.port) for case, server in servers.items() if CASES[case][2] == "engine"]
            port, process = exporter(args.exporter, folder, "exporter", [*engines, ("one-of-two", "2", second.port)])
            processes.append(process)
            alone, sidecar = exporter(args.exporter, folder, "sidecar", [("sidecar-gone", "1", servers["sidecar-gone"].port)])
            notified = Notified(folder)
            processes.append(notified.process)
            config = {
                "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
                "rule_files": [str(ROOT / f"deploy/prometheus/{name}.yml") for name in ("recording", "alerts", "alerts-gpu")],
                **notified.alerting,
                "scrape_configs": [{"job_name": "trtllm-exporter", "static_configs": [{"targets": [f"127.0.0.1:{port}", f"127.0.0.1:{alone}"]}]}],
            }
            with Prometheus(folder, config) as prometheus:
                time.sleep(WARM_UP)
                for labels, value in sorted(prometheus.values('nv_trt_llm_request_metrics{request_type="active"}').items()):
                    print(f"{dict(labels)['model']}: {value:.0f} running requests", flush=True)
                begin = time.time()
                back = []
                for case, (away, _, victim) in CASES.items():
                    if victim == "exporter":
                        sidecar.kill()
                        sidecar.wait()
                        continue
                    servers[case].kill()
                    if away is not None:
                        back.append((begin + away, servers[case]))
                for at, server in sorted(back, key=lambda entry: entry[0]):
                    time.sleep(max(0, at - time.time()))
                    server.start()
                time.sleep(max(0, begin + 60 * args.minutes - time.time()))
                rows = table(notified.messages, begin)
                for at, _, message in notified.messages:
                    for alert in message["alerts"]:
                        print(f"{(at - begin) / 60:5.1f} {alert['status']} {alert['labels']['alertname']} {alert['labels'].get('model')}: {alert['annotations']['description']}")
        finally:
            for server in [*servers.values(), *([second] if "second" in locals() else [])]:
                server.process.kill()
            for process in [*processes, *([sidecar] if "sidecar" in locals() else [])]:
                process.kill()
    print("| case | notifications, in minutes after the event |\n| --- | --- |")
    for case, notified in rows.items():
        told = [f"{minutes}: {receiver} {', '.join(names)}" for minutes, receiver, names in notified]
        print(f"| {case} | {'; '.join(told) or 'none'} |")
    wrong = list(findings(rows))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
