"""A bandwidth limit that all readers of a save share, so that reading never starves the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CancelledError(Exception):
    """The reading was given up by its caller, or because another reader failed."""


class Throttle:
    """Lets `rate` bytes pass a second, over all threads; None: no limit. `cancel` ends every wait at once."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock()
        self._cancelled = threading.Event()

    @property
    def limited(self) -> bool:
        """Is there a limit?"""
        return self._rate is not None

    def cancel(self) -> None:
        """Let nobody read on."""
        self._cancelled.set()

    def take(self, size: int) -> None:
        """Wait until `size` bytes may be read. Raises CancelledError."""
        if self._rate is not None:
            with self._lock:
                now = self._clock()
                begin = max(self._free_at, now)
                self._free_at = begin + size / self._rate
            if begin > now:
                self._cancelled.wait(begin - now)
        if self._cancelled.is_set():
            raise CancelledError
