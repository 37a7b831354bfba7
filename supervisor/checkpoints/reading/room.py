"""How much metadata may be read at once: each reading may take 1 GiB and 14 bytes for each of its bytes (`structure.py`)."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Final

from supervisor.checkpoints.reading.structure import limits_for

SHARE: Final = 0.5
"""Of the memory that is available at the start; the other half is for the controller and whoever else is here."""
UNKNOWN: Final = 4 << 30
"""Bytes where nobody tells what is available."""
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d{1,15}) kB", re.MULTILINE)


class NoRoomError(Exception):
    """Others are reading, and there is not memory enough for one more now."""


def available(meminfo: str = "/proc/meminfo") -> int:
    """Bytes that metadata may take here."""
    try:
        with open(meminfo, encoding="ascii", errors="replace") as file:
            found = _AVAILABLE.search(file.read(16384))
    except OSError:
        found = None
    return int(SHARE * 1024 * int(found[1])) if found is not None else UNKNOWN


class Room:
    """So many bytes of memory. One reading always goes, however large it is."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._taken = 0
        self._readings = 0

    @contextlib.contextmanager
    def taken(self, metadata: int) -> Iterator[None]:
        """Room for the reading of so many bytes of metadata. Raises NoRoomError at once."""
        need = limits_for(metadata).memory
        with self._lock:
            if self._readings and self._taken + need > self._size:
                others = f"{self._readings} other save{'s' if self._readings > 1 else ''}"
                gb = f"{need / 1e9:.1f} GB, and {max(0, self._size - self._taken) / 1e9:.1f} GB are left"
                raise NoRoomError(f"the metadata of {others} is being read; this one may take {gb}")
            self._taken += need
            self._readings += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= need
                self._readings -= 1
