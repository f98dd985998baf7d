"""The connection to the exporter."""
import json
import logging
import math
import os
import re
import socket
import threading
import time

from .records import finished_request, iteration, request_rows

DEFAULT_SOCKET = "/run/trtllm-exporter/ingest.sock"
DEFAULT_MODEL = "tensorrt_llm"
_log = logging.getLogger(__name__)
# Folders that say how an engine was built: 1, 2-gpu, tp2pp2, fp8, engines. As in detail/options.h of the C++ publisher.
_BUILD = {"", "gpu", "gpus", "tp", "pp", "tppp", "engine", "engines", "trtengine", "trtengines", "fp", "bf", "nvfp", "int"}


def engine_name(path):
    """The model name for an engine's folder or a model's name: /models/llama/1 and org/llama are "llama"."""
    for folder in reversed(str(path).split("/")):
        if re.sub(r"[-0-9_.]", "", folder) not in _BUILD:
            return folder[:64]
    return DEFAULT_MODEL


class Publisher:
    """Writes records to the exporter. Never waits for it: a record that cannot be written immediately is dropped and
    counted. Connects with the first record, and again once a second. Any thread may call any method.

    `model` is the label of this engine; without it, the exporter uses `derived_model` and the lowest free version.
    `config` has settings of the engine, such as {"quantization": "FP8", "tensor_parallel_size": 2}.
    """

    def __init__(self, path=DEFAULT_SOCKET, model=None, version="1", *, derived_model=DEFAULT_MODEL, config=None,
                 retry=1.0):
        self.path, self.retry = path, retry
        self.sent = self.dropped = 0
        self._name = {"model": model or derived_model, "version": version}
        if model is None:
            self._name["derived"] = True
        if config:
            self._name["config"] = {name: str(value) for name, value in config.items()}
        self._start()

    def _start(self):
        self._process, self._lock = os.getpid(), threading.Lock()
        self._socket, self._unsent, self._retry_at = None, b"", 0.0
        self._connected_at, self._refused = 0.0, False

    def publish(self, record):
        """Write one record of the engine: a dict, JSON text, or an object of the bindings with `to_json_str()`.
        Return False if it was dropped."""
        return self._write(iteration(record))

    def publish_requests(self, record):
        """Write the request statistics of one iteration, in the same forms."""
        return self._write(request_rows(record))

    def observe(self, output):
        """Write times, finish reason and lengths of a finished request: a RequestOutput of the LLM API or a Response of
        the Executor. Others are ignored. Return False if it was dropped."""
        entry = finished_request(output)
        return entry is None or self._write(json.dumps(entry, separators=(",", ":")))

    def close(self):
        """Disconnect. Later records are dropped."""
        with self._lock:
            self._disconnect()
            self._retry_at = math.inf

    def _write(self, line):
        if os.getpid() != self._process:
            # A fork copied the connection, and maybe a locked lock. The exporter must see when the parent disconnects.
            if self._socket is not None:
                self._socket.close()
            self._start()
        with self._lock:
            if self._connected() and self._flush():
                self._unsent = line.encode() + b"\n"
                if self._flush() or self._socket is not None:
                    self.sent += 1
                    return True
            self.dropped += 1
            return False

    def _connected(self):
        if self._socket is None and time.monotonic() >= self._retry_at:
            try:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.setblocking(False)
                self._socket.connect(self.path)
                self._connected_at = time.monotonic()
                self._unsent = json.dumps({"hello": {**self._name, "pid": os.getpid()}}).encode() + b"\n"
            except OSError:  # no exporter, a full accept queue, or no free descriptor
                self._disconnect()
        return self._socket is not None

    def _flush(self):
        """Send the rest of the current line. Return False if the exporter does not read fast enough or disconnected."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_NOSIGNAL):]
        except BlockingIOError:
            return False
        except OSError:
            refused = time.monotonic() - self._connected_at < 1
            if refused and not self._refused:
                _log.warning("the exporter at %s closes the connection; another process may publish with the same model "
                             "and version, or --ingest.allow-uid excludes this user; retrying", self.path)
            self._refused = refused
            self._disconnect()
            return False
        return True

    def _disconnect(self):
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unsent, self._retry_at = None, b"", time.monotonic() + self.retry
