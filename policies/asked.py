"""What processes say that were told to end: it is no cause. The order came from a person or from the scheduler. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from policies.clues import Clue
from policies.ordering import surely_before

_TOLD: Final = re.compile(
    r"SIGTERM|SIGINT|signal:? ?\(?(15|2)\b|\b(15|2) death signal|SignalException|KeyboardInterrupt"
)
"""Words of a process, or of its launcher, that got the signal to end."""

_OF_ALL: Final = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED")
"""Slurm's word that the whole job was cancelled: a step also is when one of its tasks has failed, a job only by an order."""

ORDERS: Final = frozenset(
    {"cancelled-by", "other-cancelled", "time-limit", "preempted", "other-time-limit", "other-preempted"}
)
"""Kinds by which a scheduler says that somebody, or a limit, ended the job."""

ENDINGS: Final = ("software.", "config", "data", "oom.host", "storage.io", "hang.")
"""Categories of what a process says that is torn down: broken pipes, workers that went away, half-written messages."""


def was_told(clue: Clue) -> bool:
    """Does a process, or its launcher, say here that it got the signal to end?"""
    return clue.kind == "launcher-stops" and _TOLD.search(clue.text) is not None


def still_meant(live: Sequence[Clue]) -> list[Clue]:
    """Without what came after the order to end, in the file in which a process says that it got the signal."""
    orders = [c for c in live if c.kind in ORDERS or (c.kind == "cancelled" and _OF_ALL.search(c.text))]
    heard: dict[str, int] = {}
    for clue in live:
        if was_told(clue):
            heard[clue.file] = min(heard.get(clue.file, clue.line), clue.line)
    if not orders or not heard:
        return list(live)
    return [c for c in live if not _torn_down(c, heard, orders)]


def _torn_down(clue: Clue, heard: dict[str, int], orders: Sequence[Clue]) -> bool:
    if clue.role not in ("root", "cascade") or clue.grade > 3 or not clue.category.startswith(ENDINGS):
        return False
    if clue in orders or clue.kind == "launcher-stops" or heard.get(clue.file, clue.line) >= clue.line:
        return False
    # Slurm's own lines come into a log late: in the same file their place says nothing.
    return any(order.file == clue.file or not surely_before(clue, order) for order in orders)
