"""Measures what a node costs a Prometheus on disk and over the network, and what 1,000 such nodes cost.

usage: fleet_disk.py EXPORTER [--minutes 31] [--nodes 5] [--gpus 8] [--prometheus PATH]
Starts real exporters with busy simulated engines and GPUs (libnvml_standin.so must be beside EXPORTER): for the default and the full page,
with 1 and with 8 engines on each node. A Prometheus for each kind of node scrapes them every 15 s, without rules, and sends all samples
to a receiver that discards them. A chunk is full after 30 minutes; with less, the bytes per sample are too high. Exit code 1 if a scrape fails.
"""

import contextlib
import os
import tempfile
import time

import page_size
from exporter import Answers, conclude, options, serve
from fleet_size import INTERVAL, Prometheus

DAY = 86400
FLEET = 1000  # nodes of the extrapolation
BLOCKS = 12  # blocks of 2 hours a day: each has an index of its own


class Discard(Answers):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(status=204)


def folder_bytes(path):
    return sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(path) for file in files)


def row(server, kind, nodes, seconds):
    """The line of the table for one kind of node. All numbers but the last three are measured."""
    own = server.own()
    total = sum(value for name, value in own.items() if name.startswith("prometheus_tsdb_head_samples_appended_total"))
    series = server.value("sum(scrape_samples_scraped)")
    sent = sum(value for name, value in own.items() if name.startswith("prometheus_remote_storage_bytes_total"))
    samples = sum(value for name, value in own.items() if name.startswith("prometheus_remote_storage_samples_total"))
    log = folder_bytes(os.path.join(server.data, "wal")) / total
    chunks, index = server.bytes_on_disk()
    up = server.value("min(min_over_time(up[1h]))")
    per_sample, per_series, wire = chunks / total, index / own["prometheus_tsdb_head_series"], sent / samples
    rate = FLEET * own["prometheus_tsdb_head_series"] / nodes / INTERVAL
    disk = rate * DAY * per_sample + BLOCKS * FLEET * own["prometheus_tsdb_head_series"] / nodes * per_series
    print(
        f"| {kind} | {series / nodes:.0f} | {own['prometheus_tsdb_head_series'] / nodes:.0f} | {total / seconds / nodes:.1f} | {per_sample:.2f} | {per_series:.0f} | "
        f"{log:.2f} | {wire:.2f} | {rate:.0f} | {disk / 1e9:.1f} | {rate * DAY * wire / 1e9:.1f} |",
        flush=True,
    )
    return [f"{kind}: a scrape failed"] if up != 1 else []


def main():
    parser = options(__doc__)
    parser.add_argument("exporter")
    parser.add_argument("--minutes", type=float, default=31)
    parser.add_argument("--nodes", type=int, default=5, help="nodes of each kind")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--prometheus", default="prometheus")
    args = parser.parse_args()
    write = [{"url": f"http://127.0.0.1:{serve(Discard).server_port}/", "queue_config": {"max_samples_per_send": 2000}}]
    with contextlib.ExitStack() as stack:
        folder = lambda: stack.enter_context(tempfile.TemporaryDirectory())
        servers = {}
        for profile in ("default", "full"):
            for engines in (1, 8):
                addresses = []
                for node in range(args.nodes):
                    sources = [f"{page_size.SIMULATED}&seed={node * 8 + number}" for number in range(engines)]
                    exporter = stack.enter_context(page_size.running(os.path.abspath(args.exporter), folder(), sources, args.gpus, 0, profile))
                    addresses.append(exporter.address)
                kind = f"{profile}, {engines} engine{'s' if engines > 1 else ''}"
                server = Prometheus(args.prometheus, folder(), addresses, [], remote_write=write)
                servers[kind] = stack.enter_context(server), time.monotonic()
        time.sleep(60 * args.minutes)
        print(f"| page | samples of a page | head series of a node | samples/s of a node | chunks, bytes per sample | index, bytes per series | write-ahead log, bytes per sample | "
              f"sent, bytes per sample | {FLEET} nodes: samples/s | blocks of a day, GB | remote write of a day, GB |")
        print("|" + " --- |" * 11)
        findings = [line for kind, (server, began) in servers.items() for line in row(server, kind, args.nodes, time.monotonic() - began)]
    conclude(findings, f"{args.nodes} nodes of each kind, {args.minutes:g} minutes")


if __name__ == "__main__":
    main()
