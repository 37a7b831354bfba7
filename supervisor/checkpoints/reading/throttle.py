"""A bandwidth limit that all readers share, so that reading never starves the training.

A `Pace` is the limit itself: one for a store, and changed while it is in use, as when an attempt stops. A `Throttle` is
one reading's way to it, and can be cancelled alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CancelledError(Exception):
    """The reading was given up by its caller, or because another reader failed."""


def _never() -> bool:
    return False


class Pace:
    """`rate` bytes a second over everybody who reads; None: no limit. `set` changes it at once, also for who waits now."""

    def __init__(self, rate: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._changed = threading.Condition()
        self._free_at = clock()
        self._changes = 0
        self._ended = False

    @property
    def ended(self) -> bool:
        """Is it over with all reading at this pace?"""
        return self._ended

    def end(self) -> None:
        """Let nobody who goes by this pace read on, now or later."""
        self._ended = True
        self.wake()

    @property
    def rate(self) -> float | None:
        """Bytes a second; None: no limit."""
        return self._rate

    def set(self, rate: float | None) -> None:
        """Another limit from now on. What was booked under the old one is forgotten, and nobody waits for it."""
        with self._changed:
            if rate != self._rate:
                self._rate = rate
                self._free_at = self._clock()
                self._changes += 1
                self._changed.notify_all()

    def wait_s(self) -> float:
        """Seconds until something more may be read."""
        with self._changed:
            return 0.0 if self._rate is None else max(0.0, self._free_at - self._clock())

    def book(self, size: int) -> float:
        """Take `size` bytes of the limit without waiting; when their reading may begin, by the clock."""
        with self._changed:
            return self._book(size)

    def _book(self, size: int) -> float:
        begin = max(self._free_at, self._clock())
        self._free_at = begin + (size / self._rate if self._rate is not None else 0.0)
        return begin

    def take(self, size: int, is_over: Callable[[], bool] = _never) -> None:
        """Wait until `size` bytes may be read, or until `is_over` (asked again at each `wake`)."""
        if self._rate is None:
            return
        with self._changed:
            begin, seen = self._book(size), self._changes
            while self._changes == seen and not is_over() and (left := begin - self._clock()) > 0:
                self._changed.wait(left)

    def wake(self) -> None:
        """Have everybody who waits look whether it is over."""
        with self._changed:
            self._changed.notify_all()


class Throttle:
    """One reading's share of a pace, over all its threads. `cancel` ends every wait of this reading at once."""

    def __init__(self, pace: Pace | float | None) -> None:
        """`pace`: one that is shared with others; or bytes a second, for this reading alone."""
        self.pace = pace if isinstance(pace, Pace) else Pace(pace)
        self._cancelled = threading.Event()

    @property
    def limited(self) -> bool:
        """Is there a limit now?"""
        return self.pace.rate is not None

    @property
    def cancelled(self) -> bool:
        """Is it over?"""
        return self._cancelled.is_set() or self.pace.ended

    def cancel(self) -> None:
        """Let nobody read on."""
        self._cancelled.set()
        self.pace.wake()

    def take(self, size: int) -> None:
        """Wait until `size` bytes may be read. Raises CancelledError."""
        self.pace.take(size, lambda: self.cancelled)
        if self.cancelled:
            raise CancelledError
