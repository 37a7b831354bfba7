"""Time that goes by events. Nothing here waits; `now` jumps to the next thing that happens."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

MIDNIGHT: Final = 1_796_083_200.0
"""Wall seconds of the night in which every simulated day begins: 2026-12-01 00:00 UTC."""


class Moment:
    """Something that will happen, unless it is called off."""

    __slots__ = ("do",)

    def __init__(self, do: Callable[[], None]) -> None:
        self.do: Callable[[], None] | None = do

    def call_off(self) -> None:
        """It will not happen."""
        self.do = None


class Timeline:
    """What will happen, in order; of two at the same moment, the one that was planned first. Times are wall seconds."""

    def __init__(self, start: float) -> None:
        self.now = start
        self.happened = 0
        self._planned: list[tuple[float, int, Moment]] = []
        self._number = 0

    def at(self, when: float, do: Callable[[], None]) -> Moment:
        """Plan something; what lies in the past happens next."""
        moment = Moment(do)
        self._number += 1
        heapq.heappush(self._planned, (max(when, self.now), self._number, moment))
        return moment

    def after(self, seconds: float, do: Callable[[], None]) -> Moment:
        """Plan something so many seconds from now."""
        return self.at(self.now + seconds, do)

    def step(self, until: float) -> bool:
        """Let the next thing happen, if it lies before `until`; else `now` becomes `until`, and False is returned."""
        while self._planned and self._planned[0][0] <= until:
            when, _, moment = heapq.heappop(self._planned)
            if moment.do is None:
                continue
            self.now = when
            self.happened += 1
            moment.do()
            return True
        self.now = max(self.now, until)
        return False


def clock(text: str) -> float:
    """Wall seconds of a time of the first day: "10:40" or "10:40:05"; a day later is "34:40". Raises ValueError."""
    hours, minutes, *seconds = (int(part) for part in text.split(":"))
    return MIDNIGHT + hours * 3600 + minutes * 60 + sum(seconds)
