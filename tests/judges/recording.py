#!/usr/bin/env python3
"""Checks that jq, pandas and DuckDB can read the lines of a recording, with the same rows and sums.
Needs zstdcat, jq, and the packages pandas and duckdb.

    usage: recording.py BINARY [SECONDS]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import duckdb
import pandas
from exporter import Exporter


def main() -> None:
    binary, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        with Exporter(binary, "--source=sim:?scenario=batch-limit", '--model=m,"1"', f"--record.dir={directory}/recording"):
            time.sleep(seconds)
        lines = directory / "lines.ndjson"
        with lines.open("wb") as out:
            subprocess.run(["zstdcat", *sorted((directory / "recording").glob("*.rec.zst"))], check=True, stdout=out)
        truth = [json.loads(line) for line in lines.read_text().splitlines()]
        by_jq(lines, truth)
        by_pandas(lines, truth)
        by_duckdb(lines, truth)
    print(f"{len(truth)} items: jq, pandas {pandas.__version__} and DuckDB {duckdb.__version__} read the lines")


def sums(truth: list) -> tuple:
    records = [line["record"] for line in truth if "record" in line]
    tokens = sum(record["inflightBatchingStats"]["numCtxTokens"] for record in records)
    milliseconds = sum(record["iterLatencyMS"] for record in records)
    return len(records), tokens, milliseconds


def same(what: str, found: tuple, truth: tuple) -> None:
    assert all(abs(one - other) <= 1e-6 * other for one, other in zip(found, truth)), f"{what}: {found}, not {truth}"


def by_jq(path: pathlib.Path, truth: list) -> None:
    query = "[.[].record | select(.)] | [length, (map(.inflightBatchingStats.numCtxTokens) | add), (map(.iterLatencyMS) | add)]"
    found = subprocess.run(["jq", "--slurp", query, str(path)], check=True, stdout=subprocess.PIPE).stdout
    same("jq", tuple(json.loads(found)), sums(truth))


def by_pandas(path: pathlib.Path, truth: list) -> None:
    lines = pandas.read_json(path, lines=True)
    assert len(lines) == len(truth), f"{len(lines)} rows of {len(truth)} items"
    assert set(lines["model"]) == {'m,"1"'}, set(lines["model"])
    assert lines["us"].is_monotonic_increasing
    records = lines["record"].dropna()
    tokens = sum(record["inflightBatchingStats"]["numCtxTokens"] for record in records)
    same("pandas", (len(records), tokens, sum(record["iterLatencyMS"] for record in records)), sums(truth))


def by_duckdb(path: pathlib.Path, truth: list) -> None:
    lines = duckdb.sql(f"""select count(record), sum(record.inflightBatchingStats.numCtxTokens), sum(record.iterLatencyMS)
        from read_json('{path}', format='newline_delimited', sample_size=-1, maximum_object_size=1048576)
        where record is not null""").fetchone()
    same("DuckDB", lines, sums(truth))


if __name__ == "__main__":
    main()
