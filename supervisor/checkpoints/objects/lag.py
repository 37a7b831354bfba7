"""How long something has looked wrong: until the bound has passed a cache may be behind, and nothing is concluded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_REMEMBERED: Final = 10_000
"""Things remembered; the one longest not looked at is forgotten, which only starts its wait anew."""


class Lag:
    """`bound_s`: NFS keeps attributes and absent names for up to 60 s; an object store of today has no lag."""

    def __init__(self, bound_s: float, clock: Callable[[], float]) -> None:
        self.bound_s = bound_s
        self._clock = clock
        self._since: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def passed(self, what: str) -> bool:
        """It looks wrong now: has it looked so, each time, for longer than the bound?"""
        now = self._clock()
        with self._lock:
            since = self._since.setdefault(what, now)
            self._since.move_to_end(what)
            while len(self._since) > _REMEMBERED:
                self._since.popitem(last=False)
        return now - since >= self.bound_s

    def well(self, what: str) -> None:
        """It looks right."""
        with self._lock:
            self._since.pop(what, None)
