"""The journal's segments in memory, for the simulated world: the same bytes, on a disk that may fail in mid-write."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

Writing = Callable[[Callable[[int], None], int], None]
"""Called with `put(n)`, which puts the first n bytes on the disk, and the length of the piece. It may raise; what it put stays."""


def write_all(put: Callable[[int], None], length: int) -> None:
    """A disk that does not fail."""
    put(length)


class MemorySegments:
    """Segments as bytes; they outlive the controllers that write them."""

    def __init__(self, writing: Writing = write_all) -> None:
        self._bytes: dict[int, bytearray] = {}
        self._claims: set[int] = set()
        self._writing = writing

    def epochs(self) -> list[int]:
        """The epochs that have a segment."""
        return sorted(self._bytes)

    def open(self, epoch: int) -> BinaryIO:
        """Read a segment. Raises FileNotFoundError."""
        if epoch not in self._bytes:
            raise FileNotFoundError(2, "no such segment", str(epoch))
        return io.BytesIO(self._bytes[epoch])

    def create(self, epoch: int, line: bytes) -> bool:
        """Create a segment: all of its first line, or nothing."""
        if epoch in self._bytes:
            return False

        def put(length: int) -> None:
            if length == len(line):  # created whole, as with link(2)
                self._bytes[epoch] = bytearray(line)

        self._writing(put, len(line))
        return epoch in self._bytes

    def append(self, epoch: int, data: bytes) -> None:
        """Write at the end of a segment."""
        before = len(self._bytes[epoch])

        def put(length: int) -> None:
            self._bytes[epoch][before:] = data[:length]

        self._writing(put, len(data))

    def claim(self, epoch: int) -> bool:
        """Claim an epoch."""
        if self.taken(epoch):
            return False
        self._claims.add(epoch)
        return True

    def claimed(self) -> int:
        """The highest claim."""
        return max((*self._claims, *self._bytes), default=0)

    def taken(self, epoch: int) -> bool:
        """Is the epoch claimed or begun?"""
        return epoch in self._claims or epoch in self._bytes

    def close(self) -> None:
        """Nothing is open."""

    def whole(self) -> bytes:
        """All segments, one after the other."""
        return b"".join(bytes(self._bytes[epoch]) for epoch in self.epochs())
