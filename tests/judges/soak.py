#!/usr/bin/env python3
"""Runs the daemon under load and checks that its resources do not grow: python3 tests/judges/soak.py [options]

Two publishers of the ingest socket and two simulated trtllm-serve send records and finished requests, as entries and
as rows, and restart now and then. Twenty scrapers read the page in all formats. Once a second, memory, threads,
descriptors and the size of the page are sampled. At the end, every record and every request must be counted, and no column may
have grown in the last quarter of the samples.
"""

import collections
import pathlib
import tempfile
import threading
import time

from exporter import Exporter, conclude, options
from soak_engines import Engine
from soak_scrapers import FORMATS, Scraper, scrape

Row = collections.namedtuple("Row", "resident_kb threads descriptors page_bytes")


def sample(exporter):
    descriptors = len(list(pathlib.Path(f"/proc/{exporter.process.pid}/fd").iterdir()))
    page = len(scrape(exporter.address, FORMATS[0])[1])
    return Row(exporter.status("VmRSS"), exporter.status("Threads"), descriptors, page)


def flat(rows):
    """Finds columns that have grown from the third quarter to the last quarter. Memory may grow by 2 MB, and the page by a
    few digits."""
    quarter = len(rows) // 4
    third, last = rows[2 * quarter : 3 * quarter], rows[3 * quarter :]
    limits = {"resident_kb": 2048, "threads": 2, "descriptors": 8, "page_bytes": 1024}
    mean = lambda rows, column: sum(getattr(row, column) for row in rows) / len(rows)  # noqa: E731
    grown = []
    for column, limit in limits.items():
        before, after = mean(third, column), mean(last, column)
        print(f"{column}: mean {before:.0f} in the third quarter, {after:.0f} in the last")
        if after > before + limit:
            grown.append(column)
    return grown


def main():
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="duration of the load")
    parser.add_argument("--rate", type=float, default=2000, help="records per second of each of the four engines")
    parser.add_argument("--restart", type=float, default=20, help="seconds between two restarts of an engine")
    parser.add_argument("--binary", default="target/release/trtllm-exporter")
    args = parser.parse_args()

    folder = tempfile.TemporaryDirectory()
    work = pathlib.Path(folder.name)
    engines = [Engine(f"socket-{n}", args, work / f"socket-{n}", n == 1) for n in range(2)]
    engines += [Engine(f"http-{n}", args) for n in range(2)]
    arguments = [word for engine in engines for word in ("--source", engine.source, "--model", engine.name)]
    with Exporter(args.binary, *arguments) as exporter:
        rows, scrapes, failures = run(exporter, engines, args.seconds)
        failures += check(exporter, engines)
        cpu = exporter.cpu_seconds()
    failures += [f"{column} has grown" for column in flat(rows)]
    print(f"{cpu:.1f} s CPU time, {sum(engine.restarts for engine in engines)} restarts of engines")
    conclude(failures, f"{sum(engine.sent for engine in engines)} records, {sum(engine.requests for engine in engines)} requests, {scrapes} scrapes")


def run(exporter, engines, seconds):
    stop = threading.Event()
    scrapers = [Scraper(exporter.address, n, stop) for n in range(20)]
    for thread in [*engines, *scrapers]:
        thread.start()
    rows, begin = [], time.monotonic()
    while time.monotonic() < begin + seconds:
        rows.append(sample(exporter))
        time.sleep(max(0, begin + len(rows) - time.monotonic()))
    for engine in engines:
        engine.stop.set()
    stop.set()
    for thread in [*engines, *scrapers]:
        thread.join(120)
    return rows, sum(scraper.scrapes for scraper in scrapers), [failure for scraper in scrapers for failure in scraper.failures[:3]]


def check(exporter, engines):
    """Checks that the exporter has counted every record once, has lost nothing, and has noticed every restart."""
    deadline = time.monotonic() + 30
    while True:
        page = exporter.page()
        failures = []
        for engine in engines:
            for name, wanted in [
                ("nv_trt_llm_iterations_total", engine.sent),
                ("nv_trt_llm_iterations_lost_total", 0),
                ("nv_trt_llm_engine_restarts_total", engine.restarts),
                (engine.request_count, engine.requests),
            ]:
                found = sum(page.values(name, model=engine.name))
                if found != wanted:
                    failures.append(f"{name} of {engine.name} is {found:.0f}, not {wanted}")
        if not failures or time.monotonic() > deadline:
            return failures
        time.sleep(0.5)


if __name__ == "__main__":
    main()
