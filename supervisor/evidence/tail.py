"""Follow a file that grows: whole lines, each once, however it is written. It is asked; it does not watch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

BLOCK: Final = 1 << 20
"""Bytes read at one look, so that one loud rank does not hold up the others."""

OLD: Final = 16 << 20
"""Bytes. A file that is larger at the first look is read from its last block on; line numbers are not known then."""

LONGEST: Final = 64 << 10
"""Bytes of one line; a longer one is cut and its rest goes as the next."""


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line; `number` counts from 1, None when the file was not read from its start."""

    text: str
    number: int | None
    changed: float  # wall seconds at which the file was last written, as the file system says


class Tail:
    """The lines of one file since the last look. A file that is not there yet has none; one cut short starts anew."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self._number: int | None = 0
        self._begun = False

    def look(self) -> list[Line]:
        """What has been added, up to 1 MiB of it. Never raises; what can't be read has no lines now."""
        try:
            stat = os.stat(self.path)
            if stat.st_size < self._offset:
                self._offset, self._rest, self._number = 0, b"", 0
            if not self._begun and stat.st_size > OLD:
                self._offset, self._number = stat.st_size - BLOCK, None
            self._begun = True
            if stat.st_size == self._offset:
                return []
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(BLOCK)
        except OSError:
            return []
        self._offset += len(data)
        return self._lines(self._rest + data, stat.st_mtime)

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
