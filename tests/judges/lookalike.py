"""Checks examples/trtllm_serve_lookalike.py: a second, simple fold of its records must give the totals of its /truth.

usage: lookalike.py [--rate N] [--seconds S]     Prints one line per case. Exit code 1 if a case fails.
"""
import argparse
import http.client
import json
import os
import subprocess
import sys
import time

from exporter import ROOT

PROGRAM = str(ROOT / "examples/trtllm_serve_lookalike.py")


class Running:
    def __init__(self, *args):
        self.process = subprocess.Popen([sys.executable, PROGRAM, "--port", "0", *map(str, args)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), line
        self.port = int(line.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def get(self, path, timeout=5):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, path):
        status, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def control(self, **settings):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("POST", "/control", json.dumps(settings))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, json.loads(body)


class Fold:
    """Totals that a careful client computes from the records, using only the documented quirks of TensorRT-LLM."""

    def __init__(self):
        self.last, self.completed_counted = 0, None  # the first iteration of an engine is 1, so records lost before the first poll count
        self.total = dict.fromkeys("records iterations completed_requests started_requests context_tokens generation_tokens".split(), 0)
        self.lost, self.flushes, self.bad, self.first = 0, 0, [], None
        self.frame = 0  # the first frame of an engine is 1

    def absorb(self, record):
        batch, total, number = record["inflightBatchingStats"], self.total, record["iter"]
        flush = batch["numScheduledRequests"] == 0 and record["numActiveRequests"] == 0
        total["records"] += 1
        # The cumulative counts of an engine that is read from its first record begin at 0.
        at_start = record["iter"] <= 1
        self.first = self.first or {key: 0 if at_start else value for key, value in record["kvCacheStats"].items()}
        if self.completed_counted != number:
            total["completed_requests"] += record["numCompletedRequests"]
        if flush:
            self.flushes += 1
            self.completed_counted = number
            return
        if number <= self.last:
            self.bad.append(f"iter {number} after {self.last}")
        # PyTorch also counts passes without a record, so only its frames show a loss.
        if "statsSequence" in record:
            self.lost += record["statsSequence"] - self.frame - 1
            self.frame = record["statsSequence"]
        else:
            self.lost += number - self.last - 1
        self.last = number
        total["iterations"] += 1
        total["started_requests"] += record["numNewActiveRequests"]
        total["context_tokens"] += batch["numCtxTokens"]
        total["generation_tokens"] += int(batch["numGenRequests"] * (batch["avgNumDecodedTokensPerIter"] or 1) + 0.5)
        cache = record["kvCacheStats"]
        if cache["usedNumBlocks"] + cache["freeNumBlocks"] != cache["maxNumBlocks"] or cache["usedNumBlocks"] < 0:
            self.bad.append(f"kv blocks of iter {number}")


def every_record_counted(backend, rate, seconds):
    with Running("--backend", backend, "--rate", rate, "--ring", 100000, "--idle-every", rate // 2, "--idle-for", 0.2) as server:
        fold, until = Fold(), time.monotonic() + seconds
        while time.monotonic() < until:
            for record in server.json("/metrics"):
                fold.absorb(record)
            time.sleep(0.05)
        server.control(stop=True)
        for record in server.json("/metrics"):
            fold.absorb(record)
        perf = server.json("/perf_metrics")
        truth = server.json("/truth")
    for key, value in fold.total.items():
        assert truth[key] == value == truth["handed_out"][key], (key, value, truth)
    assert truth["lost"] == 0 and fold.lost == 0 and not fold.bad, (truth, fold.bad)
    assert fold.flushes == truth["flush_records"] and (fold.flushes > 0) == (backend == "tensorrt"), fold.flushes
    for ours, theirs in (("allocated", "allocTotalBlocks"), ("newly_allocated", "allocNewBlocks"), ("reused", "reusedBlocks"), ("missed", "missedBlocks")):
        assert truth["kv_cache_blocks_first"][ours] == fold.first[theirs], (ours, truth)
    assert len(perf) == truth["perf_metrics"] - truth["perf_metrics_lost"] > 0
    assert truth["iterations"] > rate * seconds * 0.3, truth["iterations"]
    return f"{truth['iterations']} iterations, {truth['completed_requests']} completed, {fold.flushes} flush records"


def small_ring_loses_the_oldest(backend):
    with Running("--backend", backend, "--rate", 1000, "--ring", 100) as server:
        fold = Fold()
        for _ in range(5):
            for record in server.json("/metrics"):
                fold.absorb(record)
            time.sleep(0.3)
        server.control(stop=True)
        for record in server.json("/metrics"):
            fold.absorb(record)
        truth = server.json("/truth")
    assert truth["lost_iterations"] == fold.lost > 500, (fold.lost, truth)
    assert truth["records"] == truth["lost"] + truth["handed_out"]["records"] + truth["in_ring"], truth
    for key, value in fold.total.items():
        assert truth["handed_out"][key] == value, (key, value, truth)
    return f"{fold.lost} of {truth['iterations']} lost and visible as gaps"


def drain_ends_with_nothing_outstanding(backend):
    with Running("--backend", backend, "--rate", 500) as server:
        time.sleep(0.3)
        server.control(drain=True)
        until = time.monotonic() + 10
        while not server.json("/truth")["idle"]:
            assert time.monotonic() < until, "still busy"
            time.sleep(0.05)
        last, truth = server.json("/metrics")[-1], server.json("/truth")
        # PyTorch counts active requests before the iteration that completes them.
        left = last["numActiveRequests"] - (last["numCompletedRequests"] if backend == "pytorch" else 0)
        assert left == last["numQueuedRequests"] == 0, last
        assert truth["started_requests"] == truth["completed_requests"] > 0, truth
        assert server.json("/metrics") == []
        server.control(drain=False)
        time.sleep(0.1)
        assert server.json("/metrics"), "no records after drain: false"
    return f"{truth['completed_requests']} started and completed"


def broken_responses():
    with Running("--rate", 200) as server:
        def mode(name):
            assert server.control(mode=name)[0] == 200
        time.sleep(0.2)
        mode("500")
        assert server.get("/metrics")[0] == 500
        mode("not-json")
        assert server.get("/metrics")[1].startswith(b"<html>")
        mode("truncated")
        body = server.get("/metrics")[1]
        try:
            json.loads(body)
            raise AssertionError("the truncated body is valid JSON")
        except ValueError:
            pass
        fold = Fold()
        for record in json.loads(body[: body.rindex(b',{"cpuMemUsage"')] + b"]"):
            fold.absorb(record)
        truth = server.json("/truth")
        assert truth["salvageable"] == fold.total and truth["cut"] == 1 and truth["served"] == 0, truth
        mode("huge")
        status, body = server.get("/metrics", timeout=20)
        assert status == 200 and len(body) == (100 << 20) + 4
        for name in ("hang", "slow-body"):
            mode(name)
            try:
                server.get("/metrics", timeout=1.5 if name == "hang" else 0.5)
                raise AssertionError(f"mode {name} did not time out")
            except TimeoutError:
                pass
        mode("ok")
        assert server.json("/metrics") and server.get("/health")[0] == 200
        assert server.control(mode="nonsense")[0] == 400
    return "500, not-json, truncated, huge, hang, slow-body"


def cpu_at_1000():
    with Running("--rate", 1000, "--ring", 100000, "--backend", "tensorrt") as server:
        connection, until, start = http.client.HTTPConnection("127.0.0.1", server.port), time.monotonic() + 5, None
        while time.monotonic() < until:
            if start is None:
                start, began = cpu_seconds(server.process.pid), time.monotonic()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            time.sleep(0.1)
        share = (cpu_seconds(server.process.pid) - start) / (time.monotonic() - began)
        truth = server.json("/truth")
        connection.close()
    assert truth["lost"] == 0 and truth["iterations"] > 4500, truth
    return f"{share * 100:.1f} % of a core at 1000 iterations/s, polled each 100 ms"


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    cases = [("broken responses", broken_responses, ()), ("cpu", cpu_at_1000, ())]
    for backend in ("pytorch", "tensorrt"):
        cases += [(f"{backend}: every record counted", every_record_counted, (backend, args.rate, args.seconds)),
                  (f"{backend}: a small ring", small_ring_loses_the_oldest, (backend,)),
                  (f"{backend}: drain", drain_ends_with_nothing_outstanding, (backend,))]
    failed = 0
    for name, case, arguments in cases:
        try:
            print(f"ok    {name}: {case(*arguments)}")
        except AssertionError as error:
            failed += 1
            print(f"FAIL  {name}: {error}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
