"""Publishes the records of a simulated engine, without TensorRT-LLM: python3 -m trtllm_exporter_publisher.demo"""
from __future__ import annotations

import argparse
import random
import time
from typing import Any

from .engine import publishing
from .publisher import DEFAULT_SOCKET


class DemoLLM:
    """A stand-in for tensorrt_llm.LLM: a busy engine with fifty iterations per second."""

    def __init__(self) -> None:
        self.iter, self.active, self.reused, self.missed, self._next = 0, 0, 0, 0, time.monotonic()

    def get_stats(self, timeout: float) -> list[dict[str, Any]]:
        time.sleep(timeout)
        records = []
        while self._next < time.monotonic():
            self._next += 0.02
            records.append(self.record())
        return records

    def record(self) -> dict[str, Any]:
        new = self.active == 0 or (self.active < 60 and random.random() < 0.3)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", default=DEFAULT_SOCKET)
    parser.add_argument("--model", default="demo")
    arguments = parser.parse_args()
    with publishing(DemoLLM(), arguments.socket, arguments.model) as publisher:
        try:
            while True:
                time.sleep(1)
                print(f"{publisher.sent} records sent, {publisher.dropped} dropped", end="\r", flush=True)
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
