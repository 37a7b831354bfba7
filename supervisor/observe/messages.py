"""What comes over the network, checked by hand: each reader gives a value that can be believed, or None. Pure.

Checking by hand costs about a microsecond a field group; 640 agents send some 2,500 rank rows a second.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from policies.facts import Batch, Counters, Finding, Loaded, Place, RankExit, RankStack, StepRow

Raw: TypeAlias = dict[str, Any]

LARGEST: Final = 1 << 53
"""Counters stay below this: what JSON readers everywhere hold exactly."""

_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_ROLES: Final = ("root", "cascade", "context", "benign")
_BLAMES: Final = ("reporter", "peer", "nobody")
_WAITS: Final = ("communication", "data", "storage", "other")


def count(value: object, limit: int = LARGEST) -> int | None:
    """Return a whole number from 0 to below `limit`. True and False are none."""
    return value if type(value) is int and 0 <= value < limit else None


def number(value: object) -> float | None:
    """Return a finite number as a float."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    return float(value) if type(value) is int and -LARGEST < value < LARGEST else None


def text(value: object, limit: int) -> str | None:
    """Return a text, cut to `limit` characters, with what a terminal would obey taken out."""
    if not isinstance(value, str):
        return None
    cut = value[:limit]
    return cut if cut.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in cut)


def batch(value: object) -> Batch | None:
    """[first, count, hash]."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    first, size, digest = count(value[0]), count(value[1]), text(value[2], 128)
    return None if first is None or size is None or digest is None else Batch(first, size, digest)


def place(raw: Raw) -> Place | None:
    """Where a rank believes to be."""
    tp, pp, dp = (count(raw.get(key), 1 << 20) for key in ("tp", "pp", "dp"))
    return None if tp is None or pp is None or dp is None else Place(tp, pp, dp)


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line of an agent. `wall` is its clock, seconds."""

    token: str
    node: str
    pid: int
    wall: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A whole round of checks of a node has ended. `incident`: the newest for which it was asked before the round began.

    `at`: when it ended, wall seconds of our clock; `checks`: how many results it had.
    """

    at: float
    checks: int
    incident: int


def checked(raw: Raw, offset: float) -> Checked | None:
    """Read a `checked` message; `offset`: our clock minus the node's."""
    ended, checks = number(raw.get("ended")), count(raw.get("checks"), 1 << 16)
    incident = count(raw.get("for"), 1 << 30)
    if ended is None or checks is None or incident is None:
        return None
    return Checked(ended + offset, checks, incident)


def hello(raw: Raw) -> Hello | None:
    """Read the first line of a connection."""
    token, node, wall = raw.get("token"), raw.get("node"), number(raw.get("wall"))
    pid = count(raw.get("pid"))
    if raw.get("type") != "hello" or not isinstance(token, str) or not isinstance(node, str):
        return None
    if wall is None or pid is None or not _NODE.fullmatch(node):
        return None
    return Hello(token, node, pid, wall)


def step_row(raw: Raw, attempt: int, at: float) -> StepRow | None:
    """Read the row of a `step` message; None when it has no step. `at` is the controller's clock, seconds."""
    step = count(raw.get("step"))
    if step is None:
        return None
    return StepRow(
        attempt=attempt,
        step=step,
        samples=count(raw.get("samples")) or 0,
        updates=count(raw.get("updates")) or 0,
        skipped=count(raw.get("skipped")) or 0,
        loss=number(raw.get("loss")),
        lr=number(raw.get("lr")),
        grad_norm=number(raw.get("grad_norm")),
        seconds=max(0.0, number(raw.get("seconds")) or 0.0),
        at=at,
        batch=batch(raw.get("batch")),
    )


def loaded(raw: Raw, rank: int, node: str, attempt: int) -> Loaded | None:
    """Read a `loaded` message; None when it does not say which checkpoint."""
    checkpoint = text(raw.get("checkpoint"), 64)
    if checkpoint is None:
        return None
    step, samples = count(raw.get("step")), count(raw.get("samples"))
    updates, skipped = count(raw.get("updates")), count(raw.get("skipped"))
    counters = None
    if step is not None and samples is not None and updates is not None and skipped is not None:
        counters = Counters(step, samples, updates, skipped, number(raw.get("lr")))
    digest = text(raw.get("digest"), 128)
    return Loaded(rank, node, attempt, place(raw), checkpoint, counters, digest, batch(raw.get("next")))


def rank_exit(raw: Raw, world: int) -> RankExit | None:
    """Read an exit record, from a message or from a file."""
    rank, attempt = count(raw.get("rank"), world), count(raw.get("attempt"))
    node, wall = raw.get("node"), number(raw.get("wall"))
    if rank is None or attempt is None or wall is None or not isinstance(node, str) or not _NODE.fullmatch(node):
        return None
    code, signal = raw.get("code"), count(raw.get("signal"), 128)
    code = code if type(code) is int and -256 < code < 256 else None
    if (code is None) == (signal is None):
        return None
    return RankExit(rank, node, attempt, wall, code, signal, text(raw.get("refused"), 256))


def stacks(raw: object, node: str, world: int) -> list[RankStack]:
    """Read what the ranks of a node were doing; what makes no sense is left out."""
    found = []
    for key, said in raw.items() if isinstance(raw, dict) else ():
        rank = int(key) if isinstance(key, str) and re.fullmatch(r"[0-9]{1,8}", key) else world
        if not isinstance(said, list) or len(said) != 3 or rank >= world:
            continue
        waits_in, top = text(said[0], 16), text(said[1], 512)
        if waits_in in _WAITS or said[2] is True:
            kind = waits_in if waits_in in _WAITS else "other"
            found.append(
                RankStack(rank, node, cast("Any", kind), top or "calls that could not be read", said[2] is True)
            )
    return found


def finding(raw: object, node: str, offset: float, bound: float) -> Finding | None:
    """Read a finding of an agent. Its wall time is given in the controller's clock: the node's plus `offset`."""
    if not isinstance(raw, dict):
        return None
    attempt, kind, category = count(raw.get("attempt")), text(raw.get("kind"), 64), text(raw.get("category"), 64)
    role, blames, said = raw.get("role"), raw.get("blames", "reporter"), text(raw.get("text"), 512)
    if attempt is None or not kind or category is None or said is None or role not in _ROLES or blames not in _BLAMES:
        return None
    wall, source = number(raw.get("wall")), text(raw.get("source", "log"), 16) or "log"
    return Finding(
        attempt=attempt,
        kind=kind,
        role=cast("Any", role),
        category=category,
        text=said,
        cycle=count(raw.get("cycle"), 1 << 20) or 0,
        rank=count(raw.get("rank"), 1 << 24),
        node=node,
        file=text(raw.get("file"), 512),
        line=count(raw.get("line")),
        wall=None if wall is None else wall + offset,
        monotonic=number(raw.get("monotonic")),
        offset_bound=bound + max(0.0, number(raw.get("offset_bound")) or 0.0),
        blames=cast("Any", blames),
        source=source,
        grade=count(raw.get("grade"), 5) or 2,
        restart=raw.get("restart") is not False,
        peer=text(raw.get("peer"), 256),
        seq=count(raw.get("seq")),
        op=text(raw.get("op"), 64) or "",
    )
