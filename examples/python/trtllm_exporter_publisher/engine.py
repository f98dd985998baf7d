"""Reads the statistics of an engine until the `with` block ends, and publishes them."""
from __future__ import annotations

import asyncio
import logging
import os
import threading
from types import TracebackType
from typing import Any, Callable, Mapping

from .publisher import DEFAULT_BUFFER, DEFAULT_SOCKET, Publisher, engine_name
from .settings import engine_settings

_INTERVAL = 0.1  # seconds between two drains
_END = 5.0  # seconds for the last drain, so that an engine that hangs does not block its server
_log = logging.getLogger(__name__)


def publisher_of(engine: Any, path: str | os.PathLike[str], model: str | None, version: str, *,
                 config: Mapping[str, object] | None, retry: float, buffer_bytes: int) -> Publisher:
    """A Publisher with the name and the settings of this engine."""
    arguments = getattr(engine, "args", None)
    folder = getattr(arguments, "model", "")
    if getattr(arguments, "enable_iter_perf_stats", None) is False:
        _log.warning("the engine has no iteration statistics; create it with LLM(..., enable_iter_perf_stats=True)")
    config = {**engine_settings(engine), **(config or {})}
    return Publisher(path, model, version, derived_model=engine_name(folder), config=config, retry=retry,
                     buffer_bytes=buffer_bytes)


class publishing:  # noqa: N801: used like a function
    """Context manager: publishes the statistics of `engine` and yields the Publisher.

    `engine` is a tensorrt_llm.LLM or a tensorrt_llm.bindings.executor.Executor. `with` reads the statistics in a thread,
    `async with` in a task of the running loop. Both read a last time at the end. An error of the engine is logged once,
    and the next drain tries again. Leaving the block waits at most 5 s for a drain, and 1 s to send the last records.

    The arguments of an LLM are published as its settings. `config` adds settings or replaces them.
    """

    def __init__(self, engine: Any, path: str | os.PathLike[str] = DEFAULT_SOCKET, model: str | None = None,
                 version: str = "1", *, config: Mapping[str, object] | None = None, retry: float = 1.0,
                 buffer_bytes: int = DEFAULT_BUFFER) -> None:
        self.publisher = publisher_of(engine, path, model, version, config=config, retry=retry, buffer_bytes=buffer_bytes)
        self._engine, self._failing = engine, False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> Publisher:
        """Starts publishing, for a server without a `with` block, and returns the Publisher."""
        return self.__enter__()

    def stop(self) -> None:
        """Stops what `start` started."""
        self.__exit__()

    def __enter__(self) -> Publisher:
        self._thread = threading.Thread(target=self._run, name="trtllm-publish", daemon=True)
        self._thread.start()
        return self.publisher

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_END)
            if self._thread.is_alive():
                self._abandon()
        self.publisher.close()

    async def __aenter__(self) -> Publisher:
        self._task = asyncio.create_task(self._run_async())
        return self.publisher

    async def __aexit__(self, *_exception: object) -> None:
        self._ended.set()
        assert self._task is not None, "async with creates it"
        try:
            ended, _running = await asyncio.wait({self._task}, timeout=_END)
            if not ended:
                self._abandon()
        finally:
            self._task.cancel()
            await asyncio.to_thread(self.publisher.close)  # other tasks continue while the last records are sent

    @staticmethod
    def _abandon() -> None:
        _log.warning("the engine did not return its statistics within %g s; the last ones are lost", _END)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(_INTERVAL)
            with self._logged_once() as each:
                self._drain(each)

    async def _run_async(self) -> None:
        last = False
        while not last:
            await asyncio.sleep(_INTERVAL)
            last = self._ended.is_set()
            with self._logged_once() as each:
                if hasattr(self._engine, "get_stats_async"):
                    async for record in self._engine.get_stats_async(_INTERVAL):
                        each.publish(self.publisher.publish, record)
                        if self._ended.is_set() and not last:
                            break  # the last drain reads the rest
                    self.publisher.open()
                else:
                    self._drain(each)

    def _drain(self, each: _LoggedOnce) -> None:
        if not hasattr(self._engine, "get_latest_iteration_stats"):
            for record in self._engine.get_stats(_INTERVAL):
                each.publish(self.publisher.publish, record)
            self.publisher.open()
            return
        if not self._engine.can_enqueue_requests():
            return  # a worker rank, or shut down
        self.publisher.open()
        for record in self._engine.get_latest_iteration_stats():
            each.publish(self.publisher.publish, record)
        for record in self._engine.get_latest_request_stats():
            each.publish(self.publisher.publish_requests, record)

    def _logged_once(self) -> _LoggedOnce:
        return _LoggedOnce(self)


class _LoggedOnce:
    def __init__(self, owner: publishing) -> None:
        self._owner = owner
        self._invalid: Exception | None = None

    def __enter__(self) -> _LoggedOnce:
        return self

    def publish(self, publish: Callable[[Any], object], record: Any) -> None:
        """Publishes one record, and keeps its error for later. The engine returns each record once, so an invalid
        record must not lose the following ones."""
        try:
            publish(record)
        except Exception as error:
            self._invalid = error

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> bool:
        error = error or self._invalid
        if error is not None and not isinstance(error, Exception):
            return False
        if error is not None and not self._owner._failing:
            _log.warning("cannot read the engine's statistics: %s", error)
        self._owner._failing = error is not None
        return True
