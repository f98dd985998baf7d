"""Runs a real Alertmanager with deploy/prometheus/alertmanager.yml, and collects the alerts that its receivers get."""

import http.server
import json
import os
import re
import shutil
import subprocess
import threading

from exporter import ROOT, fetch, until
from free_port import free_port

RECEIVERS = ("pager", "ticket")


class Notified:
    """Starts the Alertmanager with shorter waiting times. This process is the receiver for the pager and for
    tickets."""

    def __init__(self, folder):
        told = self.told = {receiver: {} for receiver in RECEIVERS}

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in message["alerts"]:
                    told[self.path.strip("/")].setdefault(alert["labels"]["alertname"], alert["labels"]["severity"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        with open(ROOT / "deploy/prometheus/alertmanager.yml") as file:
            text = re.sub("group_wait: 30s", "group_wait: 1s", file.read()).replace("group_interval: 5m", "group_interval: 2s")
        for receiver in RECEIVERS:
            to = f"http://127.0.0.1:{self.server.server_port}/{receiver}"
            text = re.sub(f"- name: {receiver}\\b.*", f"- name: {receiver}\n    webhook_configs: [{{url: '{to}', send_resolved: false}}]", text)
        path = os.path.join(folder, "alertmanager.yml")
        with open(path, "w") as file:
            file.write(text)
        address = f"127.0.0.1:{free_port()}"
        program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        command = [program, f"--config.file={path}", f"--storage.path={folder}/alertmanager", f"--web.listen-address={address}", "--cluster.listen-address="]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until("the Alertmanager", lambda: fetch(f"http://{address}/-/ready"))
        self.alerting = {"alerting": {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}}

    def findings(self, expected):
        """Finds receivers that did not get the expected alerts. `expected` has the set of alerts for each receiver."""
        for receiver, names in expected.items():
            for name in sorted(names - set(self.told[receiver])):
                yield f"the {receiver} was not told of {name}; it was told of {sorted(self.told[receiver])}"
        for receiver, severity in zip(RECEIVERS, ("critical", "warning")):
            for name, found in self.told[receiver].items():
                if found != severity:
                    yield f"the {receiver} was told of {name}, which is {found}"

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.server.shutdown()
