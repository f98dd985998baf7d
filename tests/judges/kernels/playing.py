"""Plays the lines of many engines to the socket of one exporter in real time, and reads the exporter meanwhile."""

import heapq
import json
import socket
import threading
import time

from exporter import fetch
from records import stamped


class Playing(threading.Thread):
    """Sends each line when its engine would. `streams`: the hello and the lines of each engine."""

    def __init__(self, path, streams):
        super().__init__(daemon=True)
        self.connections, self.late, self.failure = [], 0.0, None
        for hello, _ in streams:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(path))
            connection.sendall(hello.encode() + b"\n")
            self.connections.append(connection)
        marked = [[(due, number, stamp, text) for due, stamp, text in lines] for number, (_, lines) in enumerate(streams)]
        self.lines, self.begin = heapq.merge(*marked, key=lambda line: line[0]), time.time() + 0.5

    def run(self):
        try:
            for due, number, stamp, text in self.lines:
                ahead = self.begin + due - time.time()
                if ahead > 0:
                    time.sleep(ahead)
                self.late = max(self.late, -ahead)
                self.connections[number].sendall(stamped(text, stamp, self.begin))
        except OSError as failure:
            self.failure = failure


def watch(exporter, playing, seconds, moments):
    """Reads the verdicts every five seconds, and the slowdown of each engine at these moments, until the time is over."""
    verdicts, slowdowns = {}, {}
    times = sorted({*range(5, int(seconds) + 1, 5), *moments, seconds})
    for at in times:
        time.sleep(max(0.0, playing.begin + at - time.time()))
        if playing.failure:
            raise SystemExit(f"the exporter has closed a connection: {playing.failure}\n{exporter.log()[-2000:]}")
        engines = json.loads(fetch(exporter.url + "/api/v1/engines"))
        for engine in engines:
            verdicts.setdefault(engine["model"], []).append(engine.get("verdict") or {})
        if at in moments:
            page = exporter.page()
            for labels in page.labels("nv_trt_llm_iteration_slowdown_ratio"):
                value = page.value("nv_trt_llm_iteration_slowdown_ratio", **labels)
                slowdowns.setdefault(labels["model"], {})[at] = value
    return verdicts, slowdowns
