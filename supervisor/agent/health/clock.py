"""Did the node's clock jump? The wall clock against the monotonic one: slewing moves both, a step only the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from supervisor.agent.health.results import Verdict, healthy, unhealthy, unknown

STEP_S: Final = 0.128
"""A step of this size counts: ntpd slews what is smaller (its step threshold)."""

_PAIR_S: Final = 0.005
"""Both clocks are read within this time, or the pair says nothing."""


class ClockStep:
    """The check; it compares with its own last look, so the first one knows nothing."""

    names = ("clock",)

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._apart: float | None = None

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        return {"clock": self._judge()}

    def _judge(self) -> Verdict:
        apart = self._read()
        if apart is None:
            return unknown("the two clocks could not be read at one moment: the machine is too busy")
        before, self._apart = self._apart, apart
        if before is None:
            return unknown("looked at for the first time")
        step = apart - before
        if abs(step) >= STEP_S:
            return unhealthy("clock-step", f"the wall clock jumped by {step:+.3f} s", mark=f"{step:+.3f}")
        return healthy("no step since the last look")

    def _read(self) -> float | None:
        """Wall minus monotonic seconds. A pause between the two readings would look like a step."""
        for _ in range(10):
            first = self._monotonic()
            wall = self._wall()
            last = self._monotonic()
            if last - first <= _PAIR_S:
                return wall - (first + last) / 2
        return None
