"""Lay the steps of this attempt over the same steps before the fault, one by one as they come. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from policies.facts import EMPTY, Replay, StepRow

NOT_COMPARABLE: Final = 1e9
"""The relative difference that stands for a loss that is not a number on one side: no real one comes near it."""

_SMALLEST: Final = 1e-12
"""Losses below this are divided by this, so that zero against zero is no difference."""


def difference(now: float | None, before: float | None) -> float:
    """Relative difference of two losses. None is "not a finite number": that differs from every number, and from itself not.

    A loss that is not finite again is the same fault again, and told as such; the replay has nothing against it.
    """
    if now is None and before is None:
        return 0.0
    if now is None or before is None:
        return NOT_COMPARABLE
    return abs(now - before) / max(abs(before), _SMALLEST)


class Overlay:
    """Compares rows with a reference (rows of the earlier lineage, by step). A loss differs when it is off by more than
    `tolerance`, relative; 0 asks for the same bits. `window`: how many compared steps in a row are judged together.
    """

    def __init__(self, reference: Mapping[int, StepRow] = EMPTY, tolerance: float = 0.0, window: int = 16) -> None:
        self._reference = dict(reference)
        self._tolerance = tolerance
        self._latest: deque[bool] = deque(maxlen=window)
        self._close = 0
        self._not_finite: int | None = None
        self._compared = 0
        self._differing = 0
        self._worst = 0.0
        self._first: int | None = None
        self._data: int | None = None

    def add(self, row: StepRow) -> None:
        """Compare one row; each step counts once."""
        before = self._reference.pop(row.step, None)
        if before is None:
            return
        self._compared += 1
        off = difference(row.loss, before.loss)
        self._worst = max(self._worst, off)
        self._latest.append(off > self._tolerance)
        self._close = max(self._close, sum(self._latest))
        if row.loss is None and before.loss is not None and self._not_finite is None:
            self._not_finite = row.step
        if off > self._tolerance:
            self._differing += 1
            self._first = row.step if self._first is None else min(self._first, row.step)
        if row.batch is not None and before.batch is not None and row.batch != before.batch:
            self._data = row.step if self._data is None else min(self._data, row.step)

    def result(self) -> Replay | None:
        """What has been compared so far; None when nothing has."""
        if not self._compared:
            return None
        return Replay(
            self._compared, self._differing, self._worst, self._first, self._data, self._close, self._not_finite
        )
