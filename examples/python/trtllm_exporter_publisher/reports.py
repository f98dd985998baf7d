"""Logs the state of the connection to the exporter."""
from __future__ import annotations

import errno
import logging
import os
import time

_INTERVAL = 60.0  # seconds between two lines about dropped records
_SLOW, _UNCONNECTED = "the exporter does not read fast enough", "there is no connection"
_PUBLISHING, _LOST, _REFUSED = "publishing", "lost", "refused"
_log = logging.getLogger(__name__)

_NO_SOCKET = "this socket does not exist; check the path, and that trtllm-exporter runs with --source socket:{path}"
_NO_PERMISSION = ("permission denied for user {user}; the socket must be writable for it and its folders accessible, for example "
                  "through the socket's group")
_CAUSES = {
    errno.ENOENT: _NO_SOCKET,
    errno.ENOTDIR: _NO_SOCKET,
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.ECONNREFUSED: "no exporter listens there; start trtllm-exporter with --source socket:{path}",
    errno.EAGAIN: "the exporter does not accept connections; too many are waiting",
}


class Reports:
    """Logs each change of the connection's state once, and the dropped records once a minute."""

    def __init__(self, path: str, buffer_bytes: int) -> None:
        self._path, self._buffer = path, buffer_bytes >> 10
        self._state, self._warned = "", False
        self._overflowed_before = 0  # records dropped until the last connection ended
        self._overflowed_logged, self._next = 0, 0.0

    def failed(self, error: BaseException) -> None:
        """Logs that the connection could not be made."""
        cause = _CAUSES.get(getattr(error, "errno", None) or 0)
        cause = cause.format(path=self._path, user=os.geteuid()) if cause else f"{error}" or repr(error)
        if self._changes_to(cause):
            self._warn("cannot publish to %s: %s; retrying, and buffering %d KiB of records before the oldest are dropped",
                       self._path, cause, self._buffer)

    def connected(self, overflowed: int) -> None:
        is_first = not self._state
        if not self._changes_to(_PUBLISHING):
            return
        if is_first:
            _log.info("connected to %s", self._path)
        else:
            # Use the same log level as for the failure.
            _log.log(logging.WARNING if self._warned else logging.INFO,
                     "connected to %s; %d records were dropped meanwhile",
                     self._path, overflowed - self._overflowed_before)
        self._warned, self._overflowed_logged = False, overflowed

    def lost(self, overflowed: int) -> None:
        """Called when the connection ended. Logs only dropped records. If the next attempt fails, it logs the reason."""
        if self._state == _PUBLISHING:
            self._log_overflow(overflowed, _SLOW)
            self._state, self._overflowed_before = _LOST, overflowed

    def refused(self) -> None:
        if self._changes_to(_REFUSED):
            self._warn("the exporter at %s closes the connection; its log says why: name in use, --ingest.allow-uid, too many "
                       "publishers; retrying", self._path)

    def overflow(self, overflowed: int, is_connected: bool) -> None:
        if overflowed > self._overflowed_logged and time.monotonic() >= self._next:
            self._log_overflow(overflowed, _SLOW if is_connected else _UNCONNECTED)
            self._next = time.monotonic() + _INTERVAL

    def _log_overflow(self, overflowed: int, cause: str) -> None:
        new, self._overflowed_logged = overflowed - self._overflowed_logged, overflowed
        if new:
            self._warn("%d records for %s were dropped, because the buffer of %d KiB is full: %s", new, self._path, self._buffer,
                       cause)

    def ended(self, unsent: int, overflowed: int) -> None:
        self._log_overflow(overflowed, _SLOW if self._state == _PUBLISHING else _UNCONNECTED)
        if unsent:
            self._warn("the publisher closed before %d records were sent to %s", unsent, self._path)

    def _changes_to(self, state: str) -> bool:
        changes, self._state = self._state != state, state
        return changes

    def _warn(self, text: str, *arguments: object) -> None:
        self._warned = True
        _log.warning(text, *arguments)
