"""Runs a real Alertmanager, and collects the notifications that its receivers get."""

import json
import os
import re
import shutil
import time

from exporter import ROOT, Answers, Program, fetch, serve
from free_port import free_port

CONFIG = ROOT / "deploy/prometheus/alertmanager.yml"
RECEIVERS = ("pager", "ticket")


def alertmanager():
    """The path of the Alertmanager, which Debian gives another name. None if it is not installed."""
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


class Alertmanager(Program):
    """A running Alertmanager with the configuration `config`. It keeps its data in `folder`."""

    def __init__(self, folder, config=CONFIG):
        self.address = f"127.0.0.1:{free_port()}"
        data = f"--storage.path={folder}/alertmanager"
        command = [alertmanager(), f"--config.file={config}", data, f"--web.listen-address={self.address}", "--cluster.listen-address="]
        super().__init__(command, f"{folder}/alertmanager.log")
        self.until_ready(lambda: fetch(f"http://{self.address}/-/ready"))


class Notified(Alertmanager):
    """An Alertmanager with the shipped configuration. This process is the receiver for the pager and for tickets, and the waiting times
    are divided by `factor`. `messages`: the time, the receiver and the text of each notification."""

    def __init__(self, folder, factor=1):
        messages = self.messages = []

        class Receiver(Answers):
            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                messages.append((time.time(), self.path.strip("/"), message))
                self.answer()

        server = serve(Receiver)
        text = CONFIG.read_text()
        for name, seconds in (("group_wait: 30s", 30), ("group_interval: 5m", 300)):
            text = text.replace(name, f"{name.split(':')[0]}: {max(1, round(seconds / factor))}s")
        for receiver in RECEIVERS:
            to = f"http://127.0.0.1:{server.server_port}/{receiver}"
            text = re.sub(f"- name: {receiver}\\b.*", f"- name: {receiver}\n    webhook_configs: [{{url: '{to}', send_resolved: true}}]", text)
        path = os.path.join(folder, "alertmanager.yml")
        with open(path, "w") as file:
            file.write(text)
        super().__init__(folder, path)
        self.alerting = {"alerting": {"alertmanagers": [{"static_configs": [{"targets": [self.address]}]}]}}

    def findings(self, expected):
        """Finds receivers that did not get the expected alerts. `expected` has the set of alerts for each receiver."""
        told = {receiver: {} for receiver in RECEIVERS}
        for _, receiver, message in self.messages:
            for alert in message["alerts"]:
                told[receiver].setdefault(alert["labels"]["alertname"], alert["labels"]["severity"])
        for receiver, names in expected.items():
            for name in sorted(names - set(told[receiver])):
                yield f"the {receiver} was not told of {name}; it was told of {sorted(told[receiver])}"
        for receiver, severity in zip(RECEIVERS, ("critical", "warning")):
            for name, found in told[receiver].items():
                if found != severity:
                    yield f"the {receiver} was told of {name}, which is {found}"
