"""The buffer of a publisher."""
from __future__ import annotations

import collections


class Lines:
    """Whole lines, of at most `limit` bytes in all. When it is full, it drops the oldest lines."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._lines: collections.deque[bytes] = collections.deque()

    def __len__(self) -> int:
        return len(self._lines)

    def append(self, line: bytes) -> int:
        """Return how many lines were dropped."""
        self._lines.append(line)
        self.bytes += len(line)
        return self._shrink()

    def put_back(self, lines: list[bytes]) -> int:
        """Add lines that are older than all others. Return how many lines were dropped."""
        self._lines.extendleft(reversed(lines))
        self.bytes += sum(map(len, lines))
        return self._shrink()

    def take(self, most: int) -> list[bytes]:
        """Remove the oldest lines: at most this many bytes, or one longer line."""
        taken: list[bytes] = []
        while self._lines and (not taken or most >= len(self._lines[0])):
            most -= len(self._lines[0])
            taken.append(self._remove())
        return taken

    def keep_last(self, least: int) -> None:
        """Remove the oldest lines, but keep at least the newest `least` bytes."""
        while self._lines and self.bytes - len(self._lines[0]) >= least:
            self._remove()

    def _shrink(self) -> int:
        before = len(self._lines)
        while self.bytes > self.limit:
            self._remove()
        return before - len(self._lines)

    def _remove(self) -> bytes:
        line = self._lines.popleft()
        self.bytes -= len(line)
        return line
