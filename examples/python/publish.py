#!/usr/bin/env python3
"""Publish an LLM's iteration statistics to trtllm-exporter's socket, from inside your own Python server.

    from publish import Publisher, forward
    llm = LLM(model, enable_iter_perf_stats=True)
    publisher = Publisher("/run/trtllm-exporter/ingest.sock", model="llama-3-8b")
    asyncio.create_task(forward(llm, publisher))

The server never waits for the exporter. A record that cannot be written immediately is dropped and counted. The
publisher reconnects once a second. llm.get_stats() returns each record once, so nothing else may call it.

    publish.py --demo [--socket PATH] [--model NAME]        publishes simulated records, without TensorRT-LLM
"""
import argparse
import asyncio
import json
import os
import random
import socket
import time


class Publisher:
    def __init__(self, path, model, version="1", retry=1.0):
        self.path, self.retry = path, retry
        self.hello = {"hello": {"model": model, "version": version, "pid": os.getpid()}}
        self.sent = self.dropped = 0
        self._socket, self._unsent, self._retry_at = None, b"", 0.0

    def publish(self, record):
        """Write one record, or drop it. Return False if it was dropped."""
        if not self._connected() or not self._flush():
            self.dropped += 1
            return False
        line = record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))  # releases before 1.0 return str
        self._unsent = line.encode() + b"\n"
        if not self._flush() and self._socket is None:
            self.dropped += 1
            return False
        self.sent += 1
        return True

    def close(self):
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unsent, self._retry_at = None, b"", time.monotonic() + self.retry

    def _connected(self):
        if self._socket is None and time.monotonic() >= self._retry_at:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            try:
                self._socket.connect(self.path)
                self._unsent = json.dumps(self.hello).encode() + b"\n"
            except OSError:  # the exporter does not run, or its accept queue is full
                self.close()
        return self._socket is not None

    def _flush(self):
        """Send the rest of the current line. Return False if the exporter does not read fast enough or disconnected."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_NOSIGNAL):]
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True


async def forward(llm, publisher, timeout=2):
    """Publish all statistics of `llm` until cancelled. `get_stats_async` returns after `timeout` seconds without a record."""
    while True:
        async for stat in llm.get_stats_async(timeout):
            publisher.publish(stat)
        await asyncio.sleep(0.1)  # get_stats_async returns immediately if statistics are disabled


class DemoLLM:
    """Replaces tensorrt_llm.LLM. It simulates a busy engine with fifty iterations per second."""

    def __init__(self):
        self.iter, self.active, self.reused, self.missed = 0, 0, 0, 0

    async def get_stats_async(self, timeout):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            yield self.record()

    def record(self):
        new = self.active == 0 or self.active < 60 and random.random() < 0.3
        done = self.active > 1 and random.random() < 0.3
        self.iter += 1
        self.active += new - done
        self.reused += 3 * new
        self.missed += 5 * new
        return {
            "timestamp": "", "iter": self.iter, "iterLatencyMS": random.uniform(15, 25),
            "newActiveRequestsQueueLatencyMS": random.uniform(0, 8) * new, "numNewActiveRequests": int(new),
            "numActiveRequests": self.active, "numQueuedRequests": 0, "numCompletedRequests": int(done),
            "maxNumActiveRequests": 64, "gpuMemUsage": 40560164864, "cpuMemUsage": 0, "pinnedMemUsage": 0,
            "kvCacheStats": {
                "maxNumBlocks": 1000, "freeNumBlocks": 1000 - 8 * self.active, "usedNumBlocks": 8 * self.active,
                "tokensPerBlock": 32, "allocTotalBlocks": self.reused + self.missed, "allocNewBlocks": self.missed,
                "reusedBlocks": self.reused, "missedBlocks": self.missed,
                "cacheHitRate": self.reused / max(1, self.reused + self.missed)},
            "staticBatchingStats": None, "specDecodingStats": None,
            "inflightBatchingStats": {
                "numScheduledRequests": self.active, "numContextRequests": int(new), "numGenRequests": self.active - new,
                "numPausedRequests": 0, "numCtxTokens": 160 * new, "microBatchId": 0, "avgNumDecodedTokensPerIter": 1.0}}


async def demo(publisher):
    task = asyncio.create_task(forward(DemoLLM(), publisher))
    while True:
        await asyncio.sleep(1)
        print(f"sent {publisher.sent}, dropped {publisher.dropped}", flush=True)
        if task.done():
            task.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="store_true", required=True)
    parser.add_argument("--socket", default="/run/trtllm-exporter/ingest.sock")
    parser.add_argument("--model", default="demo")
    args = parser.parse_args()
    try:
        asyncio.run(demo(Publisher(args.socket, args.model)))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
