#!/usr/bin/env python3
"""Resident memory of the exporter: at its start, under load, and with many engines.

benches/memory.py [--seconds 25] [--binary target/release/trtllm-exporter] [ROW...]

Rows: start, load, 1, 8, 64; all of them by default. `load` is one engine that sends 1000 records of 1 KB a second. A number is the number of
engines that each send 20 records of KV cache manager V2 a second, 5.9 KB each. All engines answer over HTTP. With 8 engines there are also
8 simulated GPUs, if libnvml_standin.so is beside the binary. The page is scraped once a second.
`file` is memory with the program's own code and tables. `own` is everything else: heap, stacks, and tables that the loader has changed.
Exit code 1 if a row is above its limit.
"""

import json
import pathlib
import sys
import tempfile
import time

from intake import record, trtllm_serve  # first: it finds the folder of the judges
from exporter import Exporter, configured, fetch, options, simulated_gpus

FIXTURE = pathlib.Path(__file__).parent.parent / "tests/fixtures/metrics_v2_cold_tiers_sampled.json"
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"
# Largest total of each row in MB.
TARGETS = {"start": 13.6, "load": 14.5, "1": 14.5, "8": 18, "64": 40}


class Engine:
    """Answers each poll with the records since the previous poll."""

    def __init__(self, rate, make):
        self.rate, self.make, self.began, self.sent = rate, make, time.monotonic(), 0
        self.port = trtllm_serve(self.answer).server_port

    def answer(self, path, _host):
        if path != "/metrics":
            return "[]"
        until = int((time.monotonic() - self.began) * self.rate)
        records = [self.make(number) for number in range(self.sent + 1, until + 1)]
        self.sent = until
        return f"[{','.join(records)}]"


def small(number):
    return json.dumps(record(number))


def v2_records():
    """The records of the fixture in turn, as text. Only the iteration numbers change."""
    rows = [dict(row, iter="ITER") for row in json.loads(FIXTURE.read_text())["payload"]]
    texts = [json.dumps(row).split('"ITER"') for row in rows]
    return lambda number: str(number).join(texts[number % len(texts)])


def memory(exporter):
    """Resident memory in MB: all, file, own."""
    return tuple(exporter.status(field) * 1024 / 1e6 for field in ("VmRSS", "RssFile", "RssAnon"))


def show(name, measured, note=""):
    print(f"{name:34} {measured[0]:6.1f} MB   file {measured[1]:5.1f}   own {measured[2]:5.1f}   {note}", flush=True)


def scrape(exporter):
    return fetch(f"{exporter.url}/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})


def start(binary, work, engines, gpus):
    arguments, standin = [], binary.parent / "libnvml_standin.so"
    if gpus and standin.exists():
        library = simulated_gpus(standin, work, f"gpus={gpus}\n")
        arguments = ["--gpu=required", f"--gpu.library={library}"]
    entries = [{"source": f"trtllm-serve:http://127.0.0.1:{engine.port}", "model": f"model-{number}"} for number, engine in enumerate(engines)]
    return Exporter(binary, configured(work, entries), *arguments)


def measure(row, args):
    make, rate, count = {"start": (small, 0, 1), "load": (small, 1000, 1)}.get(row) or (v2_records(), 20, int(row))
    with tempfile.TemporaryDirectory() as work:
        engines = [Engine(rate, make) for _ in range(count)]
        gpus = 8 if row == "8" else 0
        with start(args.binary, pathlib.Path(work), engines, gpus) as exporter:
            time.sleep(2)
            if row == "start":
                measured = memory(exporter)
                show("start", measured)
                scrape(exporter)
                show("after the first scrape", memory(exporter))
                return measured[0]
            for _ in range(args.seconds):
                time.sleep(1)
                page = scrape(exporter)
            measured = memory(exporter)
            engines_of = f"{count} engine{'s' * (count > 1)} of V2 records"
            name = "1000 records/s of 1 KB" if row == "load" else engines_of + f", {gpus} GPUs" * (gpus > 0)
            show(name, measured, f"page {len(page) / 1000:.1f} KB gzip")
            return measured[0]


def main():
    parser = options(__doc__)
    parser.add_argument("--seconds", type=int, default=25)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/trtllm-exporter"))
    parser.add_argument("rows", nargs="*", metavar="ROW", choices=[[], *TARGETS], default=[])
    args = parser.parse_args()
    wrong = False
    for row in args.rows or TARGETS:
        measured = measure(row, args)
        wrong |= measured > TARGETS[row]
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
