"""How often to save: the time that saves block against the work that a rollback throws away.

The formulas leave out correlated faults, changing recovery times and conflicts between saves: they name candidates,
and records decide. C: seconds that one save blocks training. M: mean seconds between rollbacks. T: seconds between
saves. All are positive; ValueError otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Final

DAY_S: Final = 86_400
CANDIDATES_S: Final = (1800.0, 3600.0, 5400.0, 7200.0)


@dataclass(frozen=True, slots=True)
class Loss:
    """Shares of the training time lost to saving, and to work done again after rollbacks."""

    save: float
    redo: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.save + self.redo


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate: seconds between saves, what it loses, and bytes written a day (None: size unknown)."""

    interval_s: float
    loss: Loss
    bytes_per_day: float | None


def young(save_s: float, mtbf_s: float) -> float:
    """The interval with the least loss to first order, sqrt(2CM) (Young 1974)."""
    _positive(C=save_s, M=mtbf_s)
    return sqrt(2 * save_s * mtbf_s)


def daly(save_s: float, mtbf_s: float) -> float:
    """The higher-order estimate of the computing time between saves (Daly 2006, FGCS 22:303); M when C >= 2M."""
    _positive(C=save_s, M=mtbf_s)
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return young(save_s, mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s


def loss(interval_s: float, save_s: float, mtbf_s: float, completion_s: float = 0.0) -> Loss:
    """C/T for saving; T/(2M) for work done again: on average a rollback falls in the middle of an interval.

    A save counts only when it is completed, `completion_s` after training goes on: that much more is thrown away, so
    completion_s/M is added to the work done again.
    """
    _positive(T=interval_s, C=save_s, M=mtbf_s)
    if not (isfinite(completion_s) and completion_s >= 0):
        raise ValueError(f"completion delay = {completion_s:g} s: must not be negative")
    return Loss(save=save_s / interval_s, redo=interval_s / (2 * mtbf_s) + completion_s / mtbf_s)


def write_per_day(size: float, interval_s: float) -> float:
    """Bytes a day that saves of `size` bytes put on the store."""
    _positive(size=size, T=interval_s)
    return size * DAY_S / interval_s


def table(
    save_s: float,
    mtbf_s: float,
    size: float | None = None,
    completion_s: float = 0.0,
    candidates_s: tuple[float, ...] = CANDIDATES_S,
) -> tuple[Row, ...]:
    """The candidates and Young's optimum, by interval."""
    return tuple(
        Row(t, loss(t, save_s, mtbf_s, completion_s), None if size is None else write_per_day(size, t))
        for t in sorted({*candidates_s, young(save_s, mtbf_s)})
    )


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value:g}: must be a positive number")
