"""Which of two clues is surely the earlier one, which tell of the same thing, which names its cause best. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from policies.clues import Clue

LOCAL_DISKS: Final = frozenset({"disk-error", "disk-read-only", "disk-lost"})
"""What a kernel says of a disk of its own machine."""

LINKS: Final = frozenset({"link-down", "link-flap"})
"""What a kernel says of a link of its own machine that was lost."""

_LOCAL_PATH: Final = re.compile(
    r"['\" (:=](/tmp|/var|/run|/dev/shm|/local\w*|/lscratch|/scratch[-_]?local|/scratch/local|/nvme\w*|/ssd\w*|/raid"
    r"|/mnt/(nvme|local|ssd|resource|ephemeral|scratch_local)\w*|/opt/dlami/nvme|/job_?tmp|/root)(/|['\")\s:,]|$)"
)
"""Paths that mostly lie on a disk of the machine, by custom; what is only called scratch may be shared."""


def is_local(clue: Clue) -> bool:
    """Is a fault of storage that of one machine's own disk, by what tells of it or by the path that it names?"""
    return clue.kind in LOCAL_DISKS or _LOCAL_PATH.search(clue.text) is not None


def surely_before(one: Clue, other: Clue) -> bool:
    """Is the first line surely earlier? Line order holds within a speaker's file, else the bounds decide."""
    if one.file == other.file and (one.speaker == other.speaker or one.latest is None or other.earliest is None):
        return one.line < other.line
    if one.latest is None or other.earliest is None:
        return False
    return one.latest < other.earliest


def minimal(clues: Sequence[Clue], *, apart: bool = False) -> list[Clue]:
    """Those that no other is surely before (`apart`: no other that tells of something else). All, where clocks and the order
    of lines contradict each other in a circle: then nothing is known of their order.
    """
    found = [
        clue
        for clue in clues
        if not any(surely_before(other, clue) and not (apart and same_event(other, clue)) for other in clues)
    ]
    return found or list(clues)


def same_event(one: Clue, other: Clue) -> bool:
    """Lines of one speaker that tell of the same thing: a few lines, or a few seconds, apart."""
    if one.file != other.file:
        return False
    if one.speaker == other.speaker:
        return abs(one.line - other.line) <= 60
    if one.rank is not None and other.rank is not None:
        return False
    return abs(one.line - other.line) <= 6 and (one.node == other.node or None in (one.node, other.node))


def still_down(causes: Sequence[Clue], live: Iterable[Clue]) -> list[Clue]:
    """Without links that came up again and stayed so, where another one did not."""
    up: dict[tuple[str, str | None], int] = {}
    for clue in live:
        if clue.kind == "link-up":
            up[clue.file, clue.node] = max(up.get((clue.file, clue.node), 0), clue.line)
    down = [c for c in causes if c.kind in LINKS]
    last = {(c.file, c.node): c.line for c in sorted(down, key=lambda c: c.line)}
    back = {place for place, line in last.items() if up.get(place, 0) > line}
    if not back or all((c.file, c.node) in back for c in down):
        return list(causes)
    return [c for c in causes if c.kind not in LINKS or (c.file, c.node) not in back]


def best_evidence(clue: Clue) -> tuple[object, ...]:
    """Among lines that no bound orders: the better-named cause, then the earlier time, then the earlier line."""
    early = clue.earliest if clue.earliest is not None else float("inf")
    sharp = clue.earliest is not None and clue.latest is not None and clue.latest - clue.earliest < 10
    return (-clue.grade, not sharp, early if sharp else 0.0, clue.file, clue.line)


def cascade(live: Iterable[Clue], first: Clue | None) -> str:
    """What followed, in one sentence."""
    ranks: dict[str, set[object]] = {}
    for clue in live:
        if clue.role == "cascade" and (first is None or clue.speaker != first.speaker):
            ranks.setdefault(clue.kind, set()).add(clue.rank if clue.rank is not None else clue.speaker)
    parts = [
        f"{kind.replace('-', ' ')} on {len(who)} rank{'' if len(who) == 1 else 's'}" for kind, who in ranks.items()
    ]
    return ("Then: " + ", ".join(parts[:5]) + ".") if parts else ""
