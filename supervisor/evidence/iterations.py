"""Megatron-LM's own iteration line -> numbers, so that a run without our training call is supervised too.

The line is `iteration N/ M | name: value | name: value | ...`; which names it has, their order, the spaces and what
stands before it (a time, a rank) differ from version to version, so nothing but the names is relied on.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

_HEAD: Final = re.compile(r"(?:^|[\s\]|:])iteration\s+(\d{1,15})\s*/\s*\d{1,15}\s*\|")
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration as the log tells it. `skipped` counts since the line before; `seconds` is per iteration."""

    step: int
    samples: int
    skipped: int
    loss: float | None
    lr: float | None
    grad_norm: float | None
    seconds: float
    non_finite: bool


def read_iteration(line: str) -> Iteration | None:
    """The numbers of an iteration line, or None when it is another kind of line."""
    line = line[:_LONGEST]
    head = _HEAD.search(line) if "iteration" in line else None
    if head is None:
        return None
    fields: dict[str, float] = {}
    for part in line[head.end() :].split("|"):
        name, _, value = part.partition(":")
        try:
            fields[name.strip().lower()] = float(value)
        except ValueError:
            continue
    loss = _loss(fields)
    return Iteration(
        step=int(head[1]),
        samples=_count(fields.get("consumed samples")),
        skipped=_count(fields.get("number of skipped iterations")),
        loss=_finite(loss),
        lr=_finite(fields.get("learning rate")),
        grad_norm=_finite(fields.get("grad norm")),
        seconds=_seconds(fields),
        non_finite=loss is not None and not math.isfinite(loss),
    )


def _loss(fields: dict[str, float]) -> float | None:
    if "lm loss" in fields:
        return fields["lm loss"]
    return next((value for name, value in fields.items() if name == "loss" or name.endswith(" loss")), None)


def _seconds(fields: dict[str, float]) -> float:
    for name, unit in (("elapsed time per iteration (ms)", 1e-3), ("elapsed time per iteration (s)", 1.0)):
        value = _finite(fields.get(name))
        if value is not None and value > 0:
            return value * unit
    return 0.0


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _count(value: float | None) -> int:
    value = _finite(value)
    return int(value) if value is not None and 0 <= value < 1e18 else 0
