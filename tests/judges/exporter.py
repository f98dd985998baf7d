"""What the judges and benchmarks in Python share: starting the exporter, reading its page, waiting for conditions, serving answers over
HTTP, and the form of their options and results."""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


def until(what, attempt, seconds=60):
    """Repeats `attempt` until it returns a true value, and returns the value. After a failed connection, tries again."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if found := attempt():
                return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def fetch(url, data=None, seconds=30, headers=None):
    """The body of the response to a GET, or to a POST if there is data. The body is not decompressed."""
    with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=seconds) as answer:
        return answer.read()


class Page:
    """A page in the text format. `samples` has the name, labels and value of each sample, in page order."""

    SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
    LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        found = map(self.SAMPLE.match, text.splitlines())
        self.samples = [(sample[1], dict(self.LABEL.findall(sample[2] or "")), float(sample[3])) for sample in found if sample]

    def values(self, name, **labels):
        return [value for found, has, value in self.samples if found == name and labels.items() <= has.items()]

    def value(self, name, **labels):
        """The value of the only series with this name and these labels. The series may have further labels."""
        values = self.values(name, **labels)
        assert len(values) == 1, f"{name} {labels}: {len(values)} series"
        return values[0]

    def labels(self, name):
        """The labels of each series with this name."""
        return [labels for found, labels, _ in self.samples if found == name]


class Program:
    """A running program, which stops at the end of a `with` statement. It writes its output to the file `output`."""

    def __init__(self, command, output, environment=None, folder=None):
        self.name, self.output = pathlib.Path(command[0]).name, pathlib.Path(output)
        with open(self.output, "w") as file:
            self.process = subprocess.Popen([*map(str, command)], stdout=file, stderr=file, env=environment, cwd=folder)

    def until_ready(self, attempt):
        """Waits as `until` does, and exits if the program ends first."""

        def running():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with code {self.process.returncode}: {self.log()[-2000:]}")
            return attempt()

        try:
            return until(self.name, running)
        except BaseException:
            self.stop()
            raise

    def log(self):
        return self.output.read_text()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Exporter(Program):
    """A running exporter, on a free port unless the arguments name another. It monitors GPUs only if the arguments mention them."""

    def __init__(self, binary, *arguments, environment=None):
        self._folder = tempfile.TemporaryDirectory(prefix="exporter-")
        port = pathlib.Path(self._folder.name, "port")
        arguments = [str(argument) for argument in arguments]
        if not any(argument.startswith("--gpu") for argument in arguments):
            arguments.append("--gpu=off")
        if not any(argument.startswith("--web.listen-address") for argument in arguments):
            arguments.append("--web.listen-address=127.0.0.1:0")
        super().__init__([binary, f"--web.port-file={port}", *arguments], f"{self._folder.name}/log", environment)
        self.address = self.until_ready(lambda: port.exists() and port.read_text().split())[0]
        self.url = f"http://{self.address}"

    def page(self, path="/metrics"):
        return Page(fetch(self.url + path).decode())

    def cpu_seconds(self):
        """CPU time of all threads in seconds. It is read in nanoseconds, because the ticks of /proc/PID/stat are too
        coarse. The exporter ends no threads, so the sum includes all of them."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def status(self, field):
        """A number from /proc/PID/status. Memory is in kB."""
        return int(re.search(rf"^{field}:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text(), re.M)[1])

    def stop(self):
        super().stop()
        self._folder.cleanup()


def simulated_gpus(standin, folder, state):
    """Copies the stand-in for NVML and writes its control file. Returns the path of the copy, for --gpu.library."""
    library = shutil.copy(standin, os.path.join(folder, "libnvidia-ml.so.1"))
    change_gpus(library, state)
    return library


def change_gpus(library, state):
    """Replaces the control file of the stand-in, so that nobody reads half of it."""
    pathlib.Path(f"{library}.draft").write_text(state)
    os.replace(f"{library}.draft", f"{library}.state")


def gpu_state(gpus):
    """The content of the control file for GPUs with these readings."""
    lines = [f"gpu.{index}.{key}={value}\n" for index, gpu in enumerate(gpus) for key, value in gpu.items()]
    return "".join([f"gpus={len(gpus)}\n", *lines])


class MovingGpus(threading.Thread):
    """Simulated GPUs whose readings are those that `read` returns, each second."""

    def __init__(self, standin, folder, read):
        super().__init__(daemon=True)
        self.library, self.read, self.ended = simulated_gpus(standin, folder, gpu_state(read())), read, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(1):
            with contextlib.suppress(OSError):  # what `read` asks has ended
                change_gpus(self.library, gpu_state(self.read()))

    def stop(self):
        self.ended.set()
        self.join()


def configured(folder, engines):
    """The option for a configuration with these engines."""
    path = pathlib.Path(folder, "engines.json")  # JSON is YAML
    path.write_text(json.dumps({"engines": engines}))
    return f"--config.file={path}"


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers requests over HTTP, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def handle(self):
        with contextlib.suppress(ConnectionError):  # the client has ended
            super().handle()

    def answer(self, body=b"", status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(handler, host="127.0.0.1"):
    """A server on a free port, which runs until the process ends."""
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def options(text):
    """A parser of options. Its help is `text`, the docstring of the judge."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def conclude(findings, summary):
    """Prints the findings and the summary. The exit code is 1 if there is a finding."""
    findings = list(findings)
    print(*findings, summary, sep="\n")
    sys.exit(bool(findings))
