"""Starts the exporter as a process, reads its page, and waits for conditions. All judges and benchmarks in Python
use this module."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
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


class Exporter:
    """A running exporter, on a free port unless the arguments name another. It monitors GPUs only if the arguments mention them."""

    def __init__(self, binary, *arguments, environment=None):
        self._folder = tempfile.TemporaryDirectory(prefix="exporter-")
        port, log = pathlib.Path(self._folder.name, "port"), pathlib.Path(self._folder.name, "log")
        arguments = [str(argument) for argument in arguments]
        if not any(argument.startswith("--gpu") for argument in arguments):
            arguments.append("--gpu=off")
        if not any(argument.startswith("--web.listen-address") for argument in arguments):
            arguments.append("--web.listen-address=127.0.0.1:0")
        with open(log, "w") as file:
            command = [str(binary), f"--web.port-file={port}", *arguments]
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            self.address = until("the exporter", lambda: self._ended() or port.exists() and port.read_text().split())[0]
        except BaseException:
            self.stop()
            raise
        self.url = f"http://{self.address}"

    def _ended(self):
        if self.process.poll() is not None:
            raise SystemExit(f"the exporter ended with code {self.process.returncode}: {self.log()}")

    def log(self):
        return pathlib.Path(self._folder.name, "log").read_text()

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
        self.process.terminate()
        self.process.wait(timeout=30)
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def simulated_gpus(standin, folder, state):
    """Copies the stand-in for NVML and writes its control file. Returns the path of the copy, for --gpu.library."""
    library = shutil.copy(standin, os.path.join(folder, "libnvidia-ml.so.1"))
    pathlib.Path(f"{library}.state").write_text(state)
    return library
