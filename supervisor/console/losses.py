"""Loss curves out of steps/*.jsonl: the first pass, and apart from it the steps that were done again.

The rows of 76 days are over 100 MB; a viewer asks for a window of them. A file is never read whole: rows stand in the
order of their steps, so the first one wanted is found by halving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from supervisor.console.reading import SCHEMA, Reading
from supervisor.step_rows import window

WINDOW_MAX = 5_000
WINDOW = 1_000

Count = Annotated[int, Field(ge=0, le=2**62)]


@checked(frozen=True, slots=True)
class Point:
    """One step of one attempt. `loss` null: it was no finite number, or nobody told."""

    attempt: Count
    step: Count
    samples: Count
    loss: Annotated[float, Field(allow_inf_nan=False)] | None
    lr: Annotated[float, Field(allow_inf_nan=False)] | None
    grad_norm: Annotated[float, Field(allow_inf_nan=False)] | None
    seconds: Annotated[float, Field(allow_inf_nan=False)]
    at: Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class LossesDocument:
    """Steps `from` to `to` (both included). `replayed` were done before; `next`: where to go on, null at the end."""

    start: int
    end: int
    first: tuple[Point, ...]
    replayed: tuple[Point, ...]
    next: int | None
    schema: int = SCHEMA


_POINT = TypeAdapter(Point)


def losses(reading: Reading, start: int | None, limit: int = WINDOW) -> LossesDocument:
    """A window of at most `limit` steps from `start` on; without a start, the newest ones."""
    history = reading.history
    seen = reading.status.view.attempt if reading.status else None
    newest = max([a.last_step for a in history.attempts] + [seen.frontier if seen else 0], default=0)
    begin = max(1, newest - limit + 1) if start is None else start
    end = begin + limit - 1
    first: list[Point] = []
    replayed: list[Point] = []
    reached = 0
    for attempt in history.attempts:
        if attempt.start_step < end:
            for _, point in window(reading.run, attempt.number, begin, end, _stepped):
                (replayed if point.step <= reached else first).append(point)
        reached = max(reached, attempt.last_step)
    more = end + 1 if end < newest else None
    return LossesDocument(begin, end, tuple(first), tuple(replayed), more)


def _stepped(line: bytes) -> tuple[int, Point] | None:
    point = _point(line)
    return (point.step, point) if point is not None else None


def _point(line: bytes) -> Point | None:
    try:
        return _POINT.validate_json(line)
    except ValidationError:
        return _lenient(line)


def _lenient(line: bytes) -> Point | None:
    """A row whose numbers are not all finite: those become null."""
    cleaned = line.replace(b"NaN", b"null").replace(b"-Infinity", b"null").replace(b"Infinity", b"null")
    try:
        return _POINT.validate_json(cleaned) if cleaned != line else None
    except ValidationError:
        return None
