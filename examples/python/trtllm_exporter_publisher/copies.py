"""Publishes copies of the statistics that a server itself reads from its engine."""
from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable, Mapping

from .engine import publisher_of
from .publisher import DEFAULT_BUFFER, DEFAULT_SOCKET, Publisher

_log = logging.getLogger(__name__)


class copying:  # noqa: N801: used like a function
    """Context manager: publishes a copy of each record that the server reads from `llm`, a tensorrt_llm.LLM, and of each
    request that finishes. Yields the Publisher.

    It reads no statistics itself, so the server gets all of them. If the server reads none, none are published. An error
    while copying is logged once, and does not affect the server.
    """

    def __init__(self, llm: Any, path: str | os.PathLike[str] = DEFAULT_SOCKET, model: str | None = None, version: str = "1",
                 *, config: Mapping[str, object] | None = None, retry: float = 1.0,
                 buffer_bytes: int = DEFAULT_BUFFER) -> None:
        self.publisher = publisher_of(llm, path, model, version, config=config, retry=retry, buffer_bytes=buffer_bytes)
        self._llm, self._failing, self._active = llm, False, False
        self._methods: dict[str, Any] = {}

    def start(self) -> Publisher:
        """Starts copying, for a server without a `with` block, and returns the Publisher."""
        return self.__enter__()

    def stop(self) -> None:
        """Stops what `start` started."""
        self.__exit__()

    def __enter__(self) -> Publisher:
        self._active = True
        for name, copied in (("get_stats", self._all), ("get_stats_async", self._each), ("generate_async", self._request)):
            original = getattr(self._llm, name, None)
            if original is not None:
                before = vars(self._llm).get(name)  # set by another instrumentation; None means the method of the class
                method = _then(original, copied)
                setattr(self._llm, name, method)
                self._methods[name] = method, before
        return self.publisher

    def __exit__(self, *_exception: object) -> None:
        self._active = False
        for name, (method, before) in self._methods.items():
            if vars(self._llm).get(name) is not method:
                continue  # another instrumentation still calls this method, which no longer copies anything
            if before is None:
                delattr(self._llm, name)
            else:
                setattr(self._llm, name, before)
        self.publisher.close()

    def _all(self, records: Any) -> Any:
        self._open()
        for record in records:
            self._copy(self.publisher.publish, record)
        return records

    def _each(self, records: Any) -> Any:
        self._open()
        return _Copied(records, functools.partial(self._copy, self.publisher.publish))

    def _request(self, result: Any) -> Any:
        self._copy(_observe, result, functools.partial(self._copy, self.publisher.observe))
        return result

    def _open(self) -> None:
        if self._active:
            self.publisher.open()

    def _copy(self, publish: Callable[..., object], *arguments: Any) -> None:
        if not self._active:
            return
        try:
            publish(*arguments)
            self._failing = False
        except Exception as error:  # the server must not fail because of its copies
            if not self._failing:
                _log.warning("cannot copy the engine's statistics: %r", error)
            self._failing = True


def _then(original: Callable[..., Any], copied: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)  # keep the signature, because servers inspect it
    def method(*arguments: Any, **named: Any) -> Any:
        return copied(original(*arguments, **named))
    return method


class _Copied:
    """Wraps an asynchronous iterator, and publishes each record before the server gets it."""

    def __init__(self, records: Any, publish: Callable[[Any], None]) -> None:
        self._records, self._publish = records, publish

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def __aiter__(self) -> _Copied:
        return self

    async def __anext__(self) -> Any:
        record = await self._records.__anext__()
        self._publish(record)
        return record


def _observe(result: Any, publish: Callable[[Any], None]) -> None:
    """Calls `publish` with this result once it is finished."""
    result._publish_when_finished = publish
    kind: Any = type(result)
    result.__class__ = _observed(kind)


def _itself(value: Any) -> Any:
    return value


@functools.lru_cache(maxsize=None)
def _observed(kind: type[Any]) -> type[Any]:
    """A subclass of the result's class that handles each way to wait for the result. It has the same name and the
    same attributes. Its objects are pickled as objects of the engine's class."""
    def finish(result: Any) -> None:
        publish = result._publish_when_finished
        if publish is not None and result.finished:
            result._publish_when_finished = None
            publish(result)

    def waiting(name: str) -> Any:
        original = getattr(kind, name)

        @functools.wraps(original)
        def wait(self: Any, *arguments: Any, **named: Any) -> Any:
            value = original(self, *arguments, **named)
            finish(self)
            return value
        return wait

    def awaiting(name: str) -> Any:
        original = getattr(kind, name)

        @functools.wraps(original)
        async def wait(self: Any, *arguments: Any, **named: Any) -> Any:
            value = await original(self, *arguments, **named)
            finish(self)
            return value
        return wait

    def reduce(self: Any, _protocol: Any) -> Any:
        plain = object.__new__(kind)
        plain.__dict__.update((name, value) for name, value in vars(self).items() if name != "_publish_when_finished")
        return _itself, (plain,)

    methods = {name: make(name) for make, names in ((waiting, ("__next__", "result")), (awaiting, ("__anext__", "aresult")))
               for name in names if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, "__reduce_ex__": reduce, **methods})
