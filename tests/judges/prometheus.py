"""Runs a real Prometheus as a process, and queries it or any server with the same API."""

import json
import os
import shutil
import subprocess
import sys
import urllib.parse

from exporter import fetch, until
from free_port import free_port


def needs(*programs):
    """Exits with code 77, which means skipped, if one of these programs is not installed. A program without a path is None."""
    missing = [str(program) for program in programs if not program or not shutil.which(program)]
    if missing:
        print(f"not installed: {', '.join(missing)} (apt-get install prometheus prometheus-alertmanager)")
        sys.exit(77)


def target(address, **labels):
    """The entry of static_configs for an exporter that is to be scraped."""
    return {"targets": [address], "labels": labels}


class Api:
    """A server with the API of Prometheus."""

    def __init__(self, address):
        self.address, self.base = address, f"http://{address}"

    def read(self, path, data=None, **parameters):
        return fetch(f"{self.base}{path}?{urllib.parse.urlencode(parameters)}", data, seconds=120).decode()

    def query(self, expression, at=None):
        """The series of an instant query."""
        return json.loads(self.read("/api/v1/query", query=expression, **({"time": at} if at else {})))["data"]["result"]

    def query_range(self, expression, start, end, step=1):
        return json.loads(self.read("/api/v1/query_range", query=expression, start=start, end=end, step=step))["data"]["result"]

    def values(self, expression, at=None):
        """The values of an instant query. The keys are the labels, as sorted pairs."""
        return {tuple(sorted(series["metric"].items())): float(series["value"][1]) for series in self.query(expression, at)}


class Prometheus(Api):
    """Runs Prometheus in `folder` with this configuration, which is a dictionary or YAML. Writes its log to
    `folder`."""

    def __init__(self, folder, config, *arguments, program="prometheus", name="prometheus"):
        super().__init__(f"127.0.0.1:{free_port()}")
        path = os.path.join(folder, name)
        with open(f"{path}.yml", "w") as file:
            file.write(config if isinstance(config, str) else json.dumps(config))
        data = "--storage.agent.path" if "--enable-feature=agent" in arguments else "--storage.tsdb.path"
        self.log = open(f"{path}.log", "w+")
        command = [program, f"--config.file={path}.yml", f"{data}={path}", f"--web.listen-address={self.address}", "--log.level=warn"]
        self.process = subprocess.Popen([*command, *arguments], stdout=self.log, stderr=self.log)
        until("Prometheus", lambda: self.process.poll() is not None or self.read("/-/ready"))
        if self.process.poll() is not None:
            sys.exit(f"Prometheus ended: {self.logged()}")

    def logged(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def scraping(targets, interval="1s", **settings):
    """A configuration that scrapes these targets under the job name of the shipped rules."""
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": "trtllm-exporter", "static_configs": targets}],
        **settings,
    }
