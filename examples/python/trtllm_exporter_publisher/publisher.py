"""The object through which a server publishes."""
from __future__ import annotations

import json
import os
import re
import weakref
from typing import Any, Callable, Mapping

from .records import finished_request, iteration, request_rows
from .sender import Sender

DEFAULT_SOCKET = "/run/trtllm-exporter/ingest.sock"
DEFAULT_MODEL = "tensorrt_llm"
DEFAULT_BUFFER = 4 << 20  # bytes; a record of an iteration takes about 900
# Folder names that say how an engine was built: 1, 2-gpu, tp2pp2, fp8, 7B, engines. detail/options.h of the C++ publisher
# has the same list.
_BUILD = {"", "gpu", "gpus", "tp", "pp", "tppp", "engine", "engines", "trtengine", "trtengines", "fp", "bf", "nvfp", "int",
          "b", "B", "xb", "xB"}


def engine_name(path: object) -> str:
    """The model name for an engine's folder or a model's name: /models/llama/1 and org/llama are "llama"."""
    for folder in reversed(str(path).split("/")):
        if re.sub(r"[-0-9_.]", "", folder) not in _BUILD:
            return folder
    return DEFAULT_MODEL


class Publisher:
    """Writes records to the exporter. No method except `close` waits for the exporter. A thread connects with `open`
    or the first record. If this fails, it tries again every `retry` seconds. Any thread may call any method.

    Records wait in a buffer of `buffer_bytes` while the exporter is slow or does not run. A full buffer drops its oldest
    records: `dropped` counts them. The log reports when the connection fails and when it is back, and how many records were dropped.

    `model` is the label of this engine; without it, the exporter uses `derived_model` and the lowest free version.
    `config` has settings of the engine, such as {"quantization": "FP8", "tensor_parallel_size": 2}.
    """

    def __init__(self, path: str | os.PathLike[str] = DEFAULT_SOCKET, model: str | None = None, version: str = "1", *,
                 derived_model: str = DEFAULT_MODEL, config: Mapping[str, object] | None = None, retry: float = 1.0,
                 buffer_bytes: int = DEFAULT_BUFFER) -> None:
        self.path, self.retry, self.buffer_bytes = os.fspath(path), retry, buffer_bytes
        self._name: dict[str, object] = {"model": model or derived_model, "version": version}
        if model is None:
            self._name["derived"] = True
        if config:
            self._name["config"] = {name: str(value) for name, value in config.items()}
        self._sender = self._start()

    def _start(self) -> Sender:
        hello = json.dumps({"hello": {**self._name, "pid": os.getpid()}}).encode() + b"\n"
        sender = Sender(self.path, hello, self.retry, self.buffer_bytes)
        weakref.finalize(self, sender.stop).atexit = False
        return sender

    @property
    def sent(self) -> int:
        """Number of sent records. A record that the exporter did not read before it ended is sent again, and counted
        once."""
        return self._sender.sent

    @property
    def dropped(self) -> int:
        """Number of records that will not reach the exporter."""
        return self._sender.dropped

    def open(self) -> None:
        """Connect before the first record, so that the exporter shows an idle engine."""
        self._current().open()

    def publish(self, record: Any) -> bool:
        """Write one record of the engine: a dict, JSON text, or an object of the bindings with `to_json_str()`.
        Return False if it was dropped."""
        return self._write(iteration, record)

    def publish_requests(self, record: Any) -> bool:
        """Write the request statistics of one iteration, in the same forms."""
        return self._write(request_rows, record)

    def observe(self, output: Any) -> bool:
        """Write times, finish reason and lengths of a finished request: a RequestOutput of the LLM API or a Response of
        the Executor. Ignore requests that are not finished. Return False if the data was dropped."""
        entry = finished_request(output)
        return entry is None or self._write(iteration, entry)

    def close(self) -> None:
        """Send the remaining records for at most one second, and disconnect. Later records are dropped."""
        self._current().close()

    def _write(self, to_line: Callable[[Any], str], record: Any) -> bool:
        sender = self._current()
        try:
            line = to_line(record).encode() + b"\n"
        except Exception:
            sender.drop()
            raise
        return sender.push(line)

    def _current(self) -> Sender:
        """Return the Sender. In the child of a fork, start a new one first, because the child does not have the thread.
        The parent sends the records that are in the buffer of the previous one."""
        if self._sender.process != os.getpid():
            parent, self._sender = self._sender, self._start()
            self._sender.sent, self._sender.dropped = parent.sent, parent.dropped
        return self._sender
