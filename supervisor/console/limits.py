"""How much anybody may ask of the console at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


class Bucket:
    """A token bucket: `rate` a second, `burst` at once."""

    def __init__(self, rate: float, burst: float, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._ticks = rate, burst, ticks
        self._left, self._at = burst, ticks()

    def take(self) -> bool:
        """Take one; False when there is none."""
        now = self._ticks()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def wait_s(self) -> int:
        """Whole seconds until there is one again; at least 1."""
        return max(1, -int(-(1 - self._left) // self._rate))


@dataclass(frozen=True, slots=True)
class Limits:
    """Calls a second and at once: readings and requests by token; bytes of a body; seconds for a client to say what it wants."""

    reads: tuple[float, float] = (20.0, 100.0)
    asks: tuple[float, float] = (0.5, 10.0)
    body_bytes: int = 16_384
    body_s: float = 10.0
    head_s: float = 10.0
    streams: int = 8
    pending: int = 32
    """So many requests may wait in a run directory; the controller looks at each of them in every tick."""


class Buckets:
    """One bucket a key. The oldest ones are forgotten, so that many keys take no memory."""

    KEPT = 4_096

    def __init__(self, rate: float, burst: float, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._ticks = rate, burst, ticks
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, key: str) -> Bucket:
        """The bucket of a key."""
        bucket = self._buckets.get(key) or Bucket(self._rate, self._burst, self._ticks)
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        if len(self._buckets) > self.KEPT:
            self._buckets.popitem(last=False)
        return bucket
