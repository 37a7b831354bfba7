"""Where the journal's segments are kept: a folder; the simulated world has a disk of its own (`memory.py`)."""

from __future__ import annotations

import os
import re
from typing import BinaryIO, Protocol

from supervisor.durable import create_whole

_SEGMENT = re.compile(r"(\d{6})\.jsonl\Z")
_TAKEN = re.compile(r"(\d{6})\.(?:jsonl|claim)\Z")


def name_of(epoch: int) -> str:
    """The name of an epoch's segment."""
    return f"{epoch:06d}.jsonl"


class Segments(Protocol):
    """One segment an epoch."""

    def epochs(self) -> list[int]:
        """The epochs that have a segment, in order. Raises OSError."""
        ...

    def open(self, epoch: int) -> BinaryIO:
        """Read a segment from its start. Raises OSError."""
        ...

    def create(self, epoch: int, line: bytes) -> bool:
        """Create a segment, whole and exclusively, with its first line; False when it is there. Raises OSError."""
        ...

    def append(self, epoch: int, data: bytes) -> None:
        """Write at the end of a segment that this process has created, durably. Raises OSError."""
        ...

    def claim(self, epoch: int) -> bool:
        """Claim an epoch exclusively, before anything is read: from here on older epochs are fenced. Raises OSError."""
        ...

    def claimed(self) -> int:
        """The highest epoch that was claimed; 0 for none. Raises OSError."""
        ...

    def taken(self, epoch: int) -> bool:
        """Has somebody claimed this epoch?"""
        ...

    def close(self) -> None:
        """No more will be written."""
        ...


class FolderSegments:
    """Segments as files of a folder. Not for use from several threads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: int | None = None

    def epochs(self) -> list[int]:
        """The epochs that have a segment."""
        return sorted(int(m[1]) for name in os.listdir(self._folder) if (m := _SEGMENT.match(name)))

    def open(self, epoch: int) -> BinaryIO:
        """Read a segment."""
        return open(self._path(epoch), "rb")

    def create(self, epoch: int, line: bytes) -> bool:
        """Create a segment and keep it open for writing."""
        path = self._path(epoch)
        if not create_whole(path, line):
            return False
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return True

    def append(self, epoch: int, data: bytes) -> None:
        """Write at the end of the open segment."""
        if self._file is None:
            raise OSError(9, "this process did not begin the segment", self._path(epoch))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)

    def claim(self, epoch: int) -> bool:
        """Leave `NNNNNN.claim`."""
        return create_whole(self._claim(epoch), b"")

    def claimed(self) -> int:
        """The highest claim, or segment where there is no claim."""
        found = (_TAKEN.match(name) for name in os.listdir(self._folder))
        return max((int(m[1]) for m in found if m), default=0)

    def taken(self, epoch: int) -> bool:
        """Is the claim or the segment there?"""
        return os.path.exists(self._claim(epoch)) or os.path.exists(self._path(epoch))

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _claim(self, epoch: int) -> str:
        return os.path.join(self._folder, f"{epoch:06d}.claim")

    def _path(self, epoch: int) -> str:
        return os.path.join(self._folder, name_of(epoch))
