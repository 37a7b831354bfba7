"""What each rank of this node has last said: the beat is made of it, and a new controller is told it again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

PHASES: Final = ("start-up", "load", "step", "save", "evaluation", "shutdown")
KINDS: Final = ("start", "hello", "loaded", "phase", "step", "save", "exception", "exit", "done")
"""The kinds of docs/contracts.md, section 4, in the order in which they are told again."""

_ROWS: Final = 64
"""Rows of the reporter that are told again: what was on its way when a controller died was read by nobody."""

_MOST: Final = 4096
"""Ranks that are remembered. A node holds 8 or so; whoever floods the socket with others is not heard."""


@dataclass(slots=True)
class _Rank:
    attempt: int
    phase: str
    step: int
    moved: float  # monotonic seconds at which the phase changed or a step was finished
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_ROWS))


class Board:
    """One entry a rank, of the newest attempt that it has spoken for.

    `launched`: was there such an attempt? One word for an attempt that never was would make the rank unheard from then on.
    """

    def __init__(self, launched: Callable[[int], bool] = lambda _: True) -> None:
        self._launched = launched
        self._ranks: dict[int, _Rank] = {}
        self.dropped = 0  # what the ranks say they could not send
        self.refused = 0  # messages that made no sense, or came from an attempt that is over

    def take(self, message: object, now: float) -> bool:
        """Note one message (at `now`, monotonic seconds). True when the controller is to hear of it at once."""
        if not isinstance(message, dict):
            return self._refuse()
        kind, rank, attempt = message.get("k"), message.get("r"), message.get("a")
        if not isinstance(kind, str) or kind not in KINDS or not _is_count(rank) or not _is_count(attempt):
            return self._refuse()
        known = self._ranks.get(rank)
        if known is None or attempt > known.attempt:
            if (known is None and len(self._ranks) >= _MOST) or not self._launched(attempt):
                return self._refuse()
            known = self._ranks[rank] = _Rank(attempt, "start-up", -1, now)
        elif attempt < known.attempt:
            return self._refuse()
        elif kind == "start" and self._is_other(known, message.get("pid")):
            # Started once more inside the attempt: what was said before is over.
            known = self._ranks[rank] = _Rank(attempt, "start-up", -1, now)
        dropped = message.get("dropped")
        if _is_count(dropped):
            self.dropped += dropped
        if kind == "step" and "loss" in message:
            known.rows.append(message)
        else:
            known.last[kind] = message
        self._move(known, kind, message, now)
        return kind != "step" or "loss" in message

    def rows(self, now: float) -> list[list[Any]]:
        """[rank, attempt, phase, step, idle seconds] for each rank; step -1: none yet."""
        return [
            [rank, known.attempt, known.phase, known.step, round(now - known.moved, 3)]
            for rank, known in self._ranks.items()
            if known.rows or known.last.keys() - {"exit"}  # a rank that was refused has never run
        ]

    def again(self, attempt: int) -> list[dict[str, Any]]:
        """The last message of each kind of each rank of this attempt, and the last rows, in an order that makes sense."""
        told: list[dict[str, Any]] = []
        for known in self._ranks.values():
            if known.attempt == attempt:
                for kind in KINDS:
                    told.extend(known.rows if kind == "step" else ())
                    told.extend([known.last[kind]] if kind in known.last else ())
        return told

    def speaks(self, rank: int, attempt: int) -> bool:
        """Has this rank said anything about its training by itself? Then its log need not be read for steps."""
        known = self._ranks.get(rank)
        return known is not None and known.attempt == attempt and ("hello" in known.last or "loaded" in known.last)

    def has_ended(self, rank: int, attempt: int) -> bool:
        """Is it known how this rank has ended?"""
        known = self._ranks.get(rank)
        return known is not None and known.attempt == attempt and "exit" in known.last

    def pids(self, attempt: int) -> dict[int, int]:
        """The processes that the ranks of this attempt say they are."""
        found: dict[int, int] = {}
        for rank, known in self._ranks.items():
            if known.attempt != attempt or "exit" in known.last:
                continue
            for kind in ("start", "hello"):
                pid = known.last.get(kind, {}).get("pid")
                if _is_count(pid) and pid > 1:
                    found[rank] = pid
        return found

    def _refuse(self) -> bool:
        self.refused += 1
        return False

    @staticmethod
    def _is_other(known: _Rank, pid: object) -> bool:
        """Is this another process than the one known? A word of the shim may come after the first of its rank."""
        told = [known.last[kind].get("pid") for kind in ("start", "hello") if kind in known.last]
        return bool(told) and pid not in told

    @staticmethod
    def _move(known: _Rank, kind: str, message: dict[str, Any], now: float) -> None:
        phase = message.get("phase")
        if kind == "step":
            step = message.get("step")
            if _is_count(step) and step != known.step:
                known.step = step
                known.moved = now
            phase = phase or "step"
        if phase in PHASES and phase != known.phase:
            known.phase = phase
            known.moved = now


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 53
