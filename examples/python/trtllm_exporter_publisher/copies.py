"""Publishes copies of what a server reads from its engine itself."""
import functools
import logging

from .engine import publisher_of
from .publisher import DEFAULT_BUFFER, DEFAULT_SOCKET

_log = logging.getLogger(__name__)


class copying:  # noqa: N801: used like a function
    """Context manager: publishes a copy of each record that the server reads from `llm`, a tensorrt_llm.LLM, and of each
    request that finishes. Yields the Publisher.

    It reads no statistics itself, so the server gets all of them. If the server reads none, none are published. An error
    while copying is logged once. The server does not notice it.
    """

    def __init__(self, llm, path=DEFAULT_SOCKET, model=None, version="1", *, config=None, retry=1.0,
                 buffer_bytes=DEFAULT_BUFFER):
        self.publisher = publisher_of(llm, path, model, version, config=config, retry=retry, buffer_bytes=buffer_bytes)
        self._llm, self._failing = llm, False

    def start(self):
        """Starts to copy, for a server without a `with` block, and returns the Publisher."""
        return self.__enter__()

    def stop(self):
        """Ends what `start` started."""
        self.__exit__()

    def __enter__(self):
        for name, copied in (("get_stats", self._all), ("get_stats_async", self._each), ("generate_async", self._request)):
            original = getattr(self._llm, name, None)
            if original is not None:
                setattr(self._llm, name, _then(original, copied))
        return self.publisher

    def __exit__(self, *_exception):
        for name in ("get_stats", "get_stats_async", "generate_async"):
            vars(self._llm).pop(name, None)  # the method of the class is back
        self.publisher.close()

    def _all(self, records):
        for record in records:
            self._copy(self.publisher.publish, record)
        return records

    def _each(self, records):
        return _Copied(records, functools.partial(self._copy, self.publisher.publish))

    def _request(self, result):
        self._copy(_observe, result, functools.partial(self._copy, self.publisher.observe))
        return result

    def _copy(self, publish, *arguments):
        try:
            publish(*arguments)
            self._failing = False
        except Exception as error:  # the server must not fail because of its copies
            if not self._failing:
                _log.warning("cannot copy the engine's statistics: %r", error)
            self._failing = True


def _then(original, copied):
    @functools.wraps(original)  # servers look at the signature
    def method(*arguments, **named):
        return copied(original(*arguments, **named))
    return method


class _Copied:
    """The same asynchronous iterator. Each record is published before the server gets it."""

    def __init__(self, records, publish):
        self._records, self._publish = records, publish

    def __getattr__(self, name):
        return getattr(self._records, name)

    def __aiter__(self):
        return self

    async def __anext__(self):
        record = await self._records.__anext__()
        self._publish(record)
        return record


def _observe(result, publish):
    """Calls `publish` with this result when it is finished."""
    result._publish_when_finished = publish
    result.__class__ = _observed(type(result))


@functools.lru_cache(maxsize=None)
def _observed(kind):
    """The class of a result, with each way to wait for it. It has the same name and the same attributes."""
    def finish(result):
        publish = result._publish_when_finished
        if publish is not None and result.finished:
            result._publish_when_finished = None
            publish(result)

    def waiting(name):
        original = getattr(kind, name)

        @functools.wraps(original)
        def wait(self, *arguments, **named):
            value = original(self, *arguments, **named)
            finish(self)
            return value
        return wait

    def awaiting(name):
        original = getattr(kind, name)

        @functools.wraps(original)
        async def wait(self, *arguments, **named):
            value = await original(self, *arguments, **named)
            finish(self)
            return value
        return wait

    methods = {name: make(name) for make, names in ((waiting, ("__next__", "result")), (awaiting, ("__anext__", "aresult")))
               for name in names if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
