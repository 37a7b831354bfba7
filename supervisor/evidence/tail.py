"""Follow a file that grows: whole lines, each once, however it is written. It is asked; it does not watch."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

BLOCK: Final = 1 << 20
"""Bytes read at one look, so that one loud rank does not hold up the others."""

OLD: Final = 16 << 20
"""Bytes. A file that is larger at the first look is read from its last block on; line numbers are not known then."""

LONGEST: Final = 64 << 10
"""Bytes of one line; a longer one is cut and its rest goes as the next."""

RECORDS: Final = 4096
"""Kernel records taken at one look; the ring of a usual kernel holds about as many."""


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line; `number` counts from 1, None when the file was not read from its start."""

    text: str
    number: int | None
    changed: float  # wall seconds: when the file was last written, as the file system says; inf: since the last look
    since_boot: float | None = None  # seconds on the kernel's clock at which a kernel record was written
    wall: float | None = None  # wall seconds at which it was written, where the source knows
    bound: float = 0.0  # give or take


class Follows(Protocol):
    """What gives the lines of one log as they come."""

    path: str

    def look(self) -> list[Line]:
        """The lines since the last look. Never raises."""
        ...

    def losses(self) -> list[str]:
        """What is known to be missing since the last time that this was asked: rotated, cut short, overrun."""
        ...


def follow(path: str) -> Follows:
    """A follower for the path: the kernel's ring for a character device, else a file."""
    try:
        device = stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        device = False
    return Kmsg(path) if device else Tail(path)


class Tail:
    """The lines of one file since the last look. A file that is not there yet has none; one cut short starts anew."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self._number: int | None = 0
        self._inode: int | None = None
        self._losses: list[str] = []
        self._looked = False

    def losses(self) -> list[str]:
        """See Follows."""
        told, self._losses = self._losses, []
        return told

    def look(self) -> list[Line]:
        """What has been added, up to 1 MiB of it. Never raises; what can't be read has no lines now."""
        looked, self._looked = self._looked, True
        try:
            status = os.stat(self.path)
            if self._inode is None:
                if status.st_size > OLD:
                    self._offset, self._number = status.st_size - BLOCK, None
                    self._losses.append(f"the first {self._offset} bytes were there before and were not read")
            elif status.st_ino != self._inode or status.st_size < self._offset:
                what = "cut short" if status.st_ino == self._inode else "rotated"
                self._losses.append(f"{what} after line {self._number}: lines in between may be missing")
                self._offset, self._rest, self._number = 0, b"", 0
            self._inode = status.st_ino
            if status.st_size == self._offset:
                return []
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(BLOCK)
        except OSError:
            return []
        self._offset += len(data)
        # The file system's clock may be another machine's: it is asked only where nothing better is known.
        return self._lines(self._rest + data, inf if looked else status.st_mtime)

    def _lines(self, data: bytes, changed: float) -> list[Line]:
        *whole, self._rest = data.split(b"\n")
        if len(self._rest) > LONGEST:
            whole.append(self._rest)
            self._rest = b""
        lines = []
        for raw in whole:
            if self._number is not None:
                self._number += 1
            lines.append(Line(raw[:LONGEST].decode("utf-8", "replace").rstrip("\r"), self._number, changed))
        return lines


_RECORD: Final = re.compile(rb"^\d+,(\d{1,18}),(\d{1,18}),[^;]*;([^\n]*)")


def read_record(raw: bytes) -> tuple[int, float, str] | None:
    """One record of /dev/kmsg -> (sequence number, seconds since boot, text); None when it is none."""
    match = _RECORD.match(raw)
    return None if match is None else (int(match[1]), int(match[2]) / 1e6, match[3].decode("utf-8", "replace"))


class Kmsg:
    """The kernel's ring of messages. Each read gives one record; EPIPE says that some were overwritten unread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        self._losses: list[str] = []
        self._last: int | None = None

    def losses(self) -> list[str]:
        """See Follows."""
        told, self._losses = self._losses, []
        return told

    @property
    def is_open(self) -> bool:
        """Could it be opened at the last look?"""
        return self._file is not None

    def close(self) -> None:
        """Let go of the device."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def look(self) -> list[Line]:
        """The records since the last look, up to RECORDS. Never raises; a device that may not be read has none."""
        lines: list[Line] = []
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            for _ in range(RECORDS):
                try:
                    raw = os.read(self._file, 8192)
                except BrokenPipeError:
                    continue
                record = read_record(raw)
                if record is None:
                    if not raw:
                        break
                    continue
                number, since_boot, text = record
                if self._last is not None and number > self._last + 1:
                    self._losses.append(f"{number - self._last - 1} kernel messages were overwritten unread")
                self._last = number
                lines.append(Line(text, None, 0.0, since_boot))
        except OSError:
            return lines
        return lines
