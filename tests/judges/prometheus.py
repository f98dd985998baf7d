"""Runs a real Prometheus as a process, and queries it or any server with the same API."""

import json
import os
import shutil
import sys
import urllib.parse

from exporter import Program, fetch
from free_port import free_port


def needs(*programs):
    """Exits with code 77, which means skipped, if one of these programs is not installed. A program without a path is None."""
    missing = [str(program) for program in programs if not program or not shutil.which(program)]
    if missing:
        print(f"not installed: {', '.join(missing)} (apt-get install prometheus prometheus-alertmanager; tests/deploy/kubernetes.sh builds target/tools/manifests)")
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


class Prometheus(Program, Api):
    """Runs Prometheus in `folder` with this configuration, which is a dictionary or YAML."""

    def __init__(self, folder, config, *arguments, program="prometheus", name="prometheus"):
        Api.__init__(self, f"127.0.0.1:{free_port()}")
        self.data = os.path.join(folder, name)
        with open(f"{self.data}.yml", "w") as file:
            file.write(config if isinstance(config, str) else json.dumps(config))
        storage = "agent" if "--enable-feature=agent" in arguments else "tsdb"
        command = [program, f"--config.file={self.data}.yml", f"--storage.{storage}.path={self.data}"]
        command += [f"--web.listen-address={self.address}", "--log.level=warn", *arguments]
        Program.__init__(self, command, f"{self.data}.log")
        self.until_ready(lambda: self.read("/-/ready"))


def scraping(targets, interval="1s", **settings):
    """A configuration that scrapes these targets under the job name of the shipped rules."""
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": "trtllm-exporter", "static_configs": targets}],
        **settings,
    }
