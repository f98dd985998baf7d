"""Runs each query of the dashboard against the look-alike engine, the real exporter and a real Prometheus.

usage: check_panels.py EXPORTER [--prometheus PATH] [--seconds S]
Prints queries with an empty result. Exit code 1 if allowed_absent.txt does not list one, 77 if Prometheus is not installed.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from check_expressions import OURS, dashboard_expressions, may_be_absent
from check_lookalike import PROGRAM

HERE = os.path.dirname(os.path.abspath(__file__))
DASHBOARD = os.path.join(HERE, "../../deploy/grafana/trtllm-engine.json")
RULES = os.path.join(HERE, "../../deploy/prometheus/alerts.yml")


def read(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def wait_for(what, seconds, until):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := until():
                return found
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.1)
    sys.exit(f"{what}: not ready within {seconds} s")


def query(base, expression):
    answer = json.loads(read(f"{base}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    return [series for series in answer["data"]["result"] if series.get("value", [0, ""])[1] != "NaN"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exporter")
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    if not shutil.which(args.prometheus):
        print("prometheus is not installed")
        sys.exit(77)
    started = []
    with tempfile.TemporaryDirectory() as work:
        try:
            engine = subprocess.Popen([sys.executable, PROGRAM, "--port", "0", "--rate", "200", "--backend", "tensorrt", "--idle-every", "400"],
                                      stdout=subprocess.PIPE, text=True)
            started.append(engine)
            source = "trtllm-serve:http://" + engine.stdout.readline().split()[-1]
            bound, log = os.path.join(work, "address"), open(os.path.join(work, "log"), "w+")
            started.append(subprocess.Popen([args.exporter, f"--source={source}", "--model=m", "--web.listen-address=127.0.0.1:0",
                                             f"--web.port-file={bound}"], stdout=log, stderr=log))
            wait_for("the exporter's address", 10, lambda: os.path.exists(bound) and open(bound).read().strip())
            address = open(bound).read().split()[0]
            if ":" not in address:
                address = "127.0.0.1:" + address
            config = os.path.join(work, "prometheus.yml")
            with open(config, "w") as file:
                json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "900ms", "evaluation_interval": "1s"},
                           "rule_files": [os.path.abspath(RULES)],
                           "scrape_configs": [{"job_name": "trtllm-exporter", "static_configs": [{"targets": [address]}]}]}, file)
            base = f"http://127.0.0.1:{free_port()}"
            started.append(subprocess.Popen([args.prometheus, f"--config.file={config}", f"--storage.tsdb.path={work}/data",
                                             f"--web.listen-address={base[7:]}", "--log.level=error"], stdout=log, stderr=log))
            wait_for("Prometheus", 20, lambda: read(f"{base}/-/ready"))
            wait_for("a scrape", 20, lambda: query(base, 'up{job="trtllm-exporter"} == 1'))
            time.sleep(args.seconds)
            with open(DASHBOARD) as file:
                expressions = list(dict.fromkeys(dashboard_expressions(json.load(file))))
            failed, excuses = 0, 0
            for expression in expressions:
                concrete = expression.replace("$__rate_interval", "10s")
                for name in ("model", "version", "instance"):
                    concrete = concrete.replace(f"${name}", ".*")
                if not query(base, concrete):
                    if any(map(may_be_absent, OURS.findall(expression))):
                        excuses += 1
                        continue
                    failed += 1
                    print(f"empty: {concrete}")
            firing = [a["labels"]["alertname"] for a in json.loads(read(f"{base}/api/v1/alerts"))["data"]["alerts"] if a["state"] == "firing"]
            if firing:
                failed += 1
                print(f"alerts fire for a healthy engine: {firing}")
            if not query(base, "model:nv_trt_llm_backlog_requests:sum"):
                failed += 1
                print("the recording rule of the backlog has no result")
            print(f"{len(expressions)} queries, {failed} empty or wrong, {excuses} allowed to be empty")
            if failed:
                log.seek(0)
                print(log.read()[-2000:])
            sys.exit(failed > 0)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=10)


if __name__ == "__main__":
    main()
