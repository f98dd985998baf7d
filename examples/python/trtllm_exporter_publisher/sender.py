"""The thread that sends a publisher's lines to the exporter."""
from __future__ import annotations

import atexit
import fcntl
import importlib
import os
import select
import socket
import struct
import sys
import termios
import threading
import time

from .lines import Lines
from .reports import Reports

_CHUNK = 64 << 10  # bytes that are sent at once
_LINGER = 0.05  # seconds to wait for more lines, so that each drain needs one send
_IDLE = 1.0  # seconds between two checks of an idle connection
_FULL = 0.2  # seconds to wait for room in the socket
_END = 1.0  # seconds to send the rest when the publisher closes
# Seconds until a connection counts as accepted. If its name is in use, the exporter closes it after one second.
_REFUSAL = 2.0
_READ_AHEAD = 16 << 10  # bytes; before the exporter accepts a name, it reads less than this, and loses it if it refuses

_running: set[Sender] = set()


class Sender:
    """The buffer and its thread. The thread starts with `open` or the first line, so a worker rank, which needs neither,
    never connects: its connection would look like one more engine. Any thread may call any method. No method waits for
    the exporter except `close`."""

    def __init__(self, path: str, hello: bytes, retry: float, buffer_bytes: int) -> None:
        self.process, self.sent, self.dropped = os.getpid(), 0, 0
        self._overflowed = 0  # the part of `dropped` for which there was no room in the buffer
        self._path, self._hello, self._retry = path, hello, retry
        self._wake = threading.Condition()  # guards _lines, sent, dropped, _thread and _stopped
        self._lines = Lines(buffer_bytes)
        self._thread: threading.Thread | None = None
        self._stopped, self._deadline = False, 0.0
        # Only the thread uses the following attributes.
        self._socket: socket.socket | None = None
        self._chunk: list[bytes] = []  # the lines being sent
        self._rest = b""  # the part of these lines that is not sent yet
        self._unread = Lines(buffer_bytes)  # sent lines that the exporter may not have read
        self._connected_at = self._retry_at = 0.0
        self._bytes = 0  # number of bytes sent on this connection
        self._accepted = False  # True once the exporter will no longer refuse this connection
        self._refusals = 0  # how many connections in a row were closed before they were accepted
        self._reports = Reports(path, buffer_bytes)

    def push(self, line: bytes) -> bool:
        """Buffer a line with its line feed. Return False if it was dropped."""
        with self._wake:
            if self._stopped:
                self.dropped += 1
                return False
            before = self._lines.bytes
            self._overflow(self._lines.append(line))
            if self._thread is None:
                self._start()
            if before == 0 or before < _CHUNK <= self._lines.bytes:
                self._wake.notify_all()
            return len(line) <= self._lines.limit

    def open(self) -> None:
        """Connect before the first line, so that the exporter shows an idle engine."""
        with self._wake:
            if self._thread is None and not self._stopped:
                self._start()

    def drop(self) -> None:
        """Count a dropped record that could not be written as a line."""
        with self._wake:
            self.dropped += 1

    def stop(self) -> None:
        """Send the remaining lines in the background, then disconnect. Needs no lock, so the garbage collector may
        call it."""
        if not self._stopped and self.process == os.getpid():
            self._deadline, self._stopped = time.monotonic() + _END, True

    def close(self) -> None:
        """Send the remaining lines for at most one second, then disconnect."""
        self.stop()
        if self.process != os.getpid():
            return
        with self._wake:
            thread = self._thread
            self._wake.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * _END)

    def _overflow(self, lines: int) -> None:
        self.dropped += lines
        self._overflowed += lines

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="trtllm-send", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads; the next line tries again
            self._reports.failed(error)
            return
        self._thread = thread
        _running.add(self)
        if getattr(sys.modules.get("multiprocessing.process"), "parent_process", lambda: None)() is not None:
            # A child of multiprocessing runs no functions of atexit.
            importlib.import_module("multiprocessing.util").Finalize(None, _close_all, exitpriority=0)

    def _run(self) -> None:
        running = True
        while running:
            try:
                running = self._step()
            except Exception as error:  # for example no memory; the thread must continue, and the server must not be affected
                self._lost(reset=False)
                self._reports.failed(error)
                self._retry_at = time.monotonic() + self._retry
        self._end()

    def _step(self) -> bool:
        """Return False when the thread must end."""
        if self._socket is None:
            return self._reconnect()
        if not self._is_open(self._socket):
            return True
        with self._wake:
            if not self._rest:
                self._wake.wait_for(lambda: self._stopped or len(self._lines) > 0, _IDLE)
                self._wake.wait_for(lambda: self._stopped or self._lines.bytes >= _CHUNK, _LINGER if len(self._lines) else 0)
                self._chunk = self._lines.take(_CHUNK)
                self._rest = b"".join(self._chunk)
            if self._stopped and (not self._rest or time.monotonic() >= self._deadline):
                return False
        self._send(self._socket)
        self._reports.overflow(self._overflowed, self._socket is not None)
        return True

    def _reconnect(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._stopped, max(0.0, self._retry_at - time.monotonic()))
            # Without a connection, the remaining lines cannot be sent. But always make the first attempt.
            if self._stopped and self._retry_at > 0:
                return False
        self._retry_at = time.monotonic() + self._retry
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            connection.connect(self._path)
            try:
                connection.sendall(self._hello, socket.MSG_NOSIGNAL)  # a new socket has room for it
            except ConnectionError:
                pass  # the exporter has already closed it; the next step finds out how
        except (OSError, ValueError) as error:  # ValueError: a path that cannot be encoded
            if connection is not None:
                connection.close()
            self._reports.failed(error)
            self._reports.overflow(self._overflowed, False)
            return True
        self._socket, self._connected_at = connection, time.monotonic()
        self._bytes, self._accepted = 0, False
        if not self._refusals:
            self._reports.connected(self._overflowed)
        return True

    def _send(self, connection: socket.socket) -> None:
        """Send as much as fits into the socket."""
        try:
            sent = connection.send(self._rest, socket.MSG_NOSIGNAL) if self._rest else 0
        except BlockingIOError:  # the socket is full
            poll = select.poll()
            poll.register(connection, select.POLLOUT)
            poll.poll(_FULL * 1000)
            return
        except OSError:  # the exporter has closed the connection; the next step finds out how
            return
        self._bytes, self._rest = self._bytes + sent, self._rest[sent:]
        if not self._rest:
            self._delivered()

    def _delivered(self) -> None:
        for line in self._chunk:
            self._unread.append(line)
        with self._wake:
            self.sent += len(self._chunk)
        self._chunk = []

    def _is_open(self, connection: socket.socket) -> bool:
        """Return False if the exporter has closed the connection. Otherwise forget the lines that it has read."""
        unread = _bytes_not_read(connection)  # before the check, because the kernel empties a closed socket
        try:
            ended, reset = not connection.recv(_CHUNK), False
        except BlockingIOError:  # still open: the exporter never sends anything
            ended, reset = False, False
        except OSError:  # the exporter closed it and left lines unread
            ended, reset = True, True
        if ended:
            self._lost(reset)
            return False
        if not self._accepted:
            is_old = time.monotonic() - self._connected_at >= _REFUSAL
            if not is_old and self._bytes - unread < _READ_AHEAD:
                return True
            self._accepted, self._refusals = True, 0
            self._reports.connected(self._overflowed)
        self._unread.keep_last(unread)
        return True

    def _lost(self, reset: bool) -> None:
        """Handle the end of the connection. Lines that the exporter has not read are sent again. `reset` means that
        the exporter left lines unread."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        was_read = self._accepted and not reset
        unread = self._unread.take(self._unread.bytes)
        # A line that was sent only in part is sent again completely.
        whole = _whole_lines(self._chunk, self._rest) if was_read else 0
        again = self._chunk[whole:] if was_read else unread + self._chunk
        with self._wake:
            self.sent += whole if was_read else -len(unread)
            self._overflow(self._lines.put_back(again))
        self._chunk, self._rest = [], b""
        self._refusals = 0 if self._accepted else self._refusals + 1
        # Reconnect immediately, because an exporter that restarts is soon back. But wait if it refused this publisher,
        # because it will refuse it again.
        self._retry_at = time.monotonic() + (self._retry if self._refusals else 0)
        if self._refusals > 1:
            self._reports.refused()
        else:
            self._reports.lost(self._overflowed)

    def _end(self) -> None:
        if self._socket is not None:
            # A forked child may have a copy of the socket, so closing it is not enough.
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the exporter has already closed it
            self._socket.close()
            self._socket = None
        with self._wake:
            whole = _whole_lines(self._chunk, self._rest) - (len(self._unread) if self._refusals else 0)
            self.sent += whole
            rest = len(self._chunk) - whole + len(self._lines)
            self.dropped += rest
            self._lines.keep_last(0)
        self._reports.ended(rest, self._overflowed)
        _running.discard(self)


def _whole_lines(lines: list[bytes], rest: bytes) -> int:
    """How many of these lines have been sent completely."""
    sent = sum(map(len, lines)) - len(rest)
    return b"".join(lines)[:sent].count(b"\n")


def _bytes_not_read(connection: socket.socket) -> int:
    """An upper bound of the unread bytes in the socket, because the kernel's count includes its own structures."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0])
    except OSError:  # not supported here: assume that the exporter reads fast
        return 0


def _close_all() -> None:
    """When the process ends, send the remaining lines of publishers that nobody closed."""
    for sender in list(_running):
        sender.stop()
    for sender in list(_running):
        sender.close()


def _abandon_all() -> None:
    """The child of a fork has copies of the connections but not the threads. Close the copies, so that the exporter
    notices when the parent disconnects. Needs no lock, because the child may have copied a locked one."""
    for sender in _running:
        if sender._socket is not None:
            sender._socket.close()
    _running.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
