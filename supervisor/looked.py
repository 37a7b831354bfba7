"""What a decision was made from, small enough for the journal: with it, every decision can be made again from the file alone.

Kept is what the rules in `policies/decide.py` read; the loads and exits of 5,120 ranks are not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from policies.facts import (
    UNKNOWN,
    AttemptView,
    CheckpointPhase,
    CheckpointState,
    Copied,
    JobView,
    NodeState,
    NodeView,
    RankExit,
    View,
)
from policies.history import History

NEWEST = 16
"""So many saves are kept beside those that may be started from; older ones decide nothing."""
EVERY_QUESTION = 1 << 31
"""Of a node that stands among those that are ready: it had answered what was asked, whatever the incident's number."""
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})\Z", re.DOTALL)

Row = tuple[str, int, int, int]
"""Names prefix + number, first to last, zero-filled to a width: ("n", 1, 640, 4) is n0001 to n0640. Width 0: the prefix itself."""


@dataclass(frozen=True, slots=True)
class Look:
    """A slim View. `well` are the nodes in slots that nothing is wrong with, by switch; `ready` the others of them."""

    well: tuple[tuple[str | None, tuple[Row, ...]], ...] = ()
    ready: tuple[tuple[str, str | None, float | None], ...] = ()  # name, switch, checked at
    ill: tuple[NodeView, ...] = ()
    nodes_unknown: bool = False
    unread: frozenset[str] = frozenset()
    checkpoints: tuple[CheckpointState, ...] | None = None  # None: unknown
    archive: tuple[CheckpointState, ...] | None = ()  # None: unknown
    archive_as_of: float | None = None
    drilled: Copied | None = None
    attempt: int | None = None
    all_clean: bool = False
    fenced: frozenset[int] = frozenset()
    store_as_of: float | None = None
    cluster_as_of: float | None = None
    store_free_bytes: int | None = None
    job: JobView | None = None
    failed: bool = False  # a rank of the attempt has not ended well


def look_of(view: View, history: History, world: int) -> Look:
    """The slim form of what was seen. `world`: how many ranks there are."""
    shown, slots = view.attempt, frozenset(history.attempt.slots if history.attempt else ())
    nodes = () if view.nodes is UNKNOWN else tuple(view.nodes.values())
    # What the checks of a node say decides only whether it may be a spare.
    nodes = tuple(replace(n, unchecked=(), unhealthy=n.unhealthy[:1] if n.name not in slots else ()) for n in nodes)
    number = history.incident.number if history.incident else 0
    well = [n for n in nodes if _is_well(n) and (not slots or n.name in slots or _is_checked(n, number))]
    fine = {n.name for n in well}
    settled = [n for n in well if not slots or n.name in slots]
    switches = sorted({n.switch for n in settled}, key=str)
    return Look(
        well=tuple((s, tuple(rows(n.name for n in settled if n.switch == s))) for s in switches),
        ready=tuple((n.name, n.switch, n.checked_at) for n in well if slots and n.name not in slots),
        ill=tuple(n for n in nodes if n.name not in fine),
        nodes_unknown=view.nodes is UNKNOWN,
        unread=view.unread,
        checkpoints=None if view.checkpoints is UNKNOWN else _that_matter(view.checkpoints),
        archive=None if view.archive is UNKNOWN else _that_matter(view.archive),
        archive_as_of=view.archive_as_of,
        drilled=view.drilled,
        attempt=shown.number if shown else None,
        all_clean=shown is not None and shown.ended_well(world),
        fenced=view.fenced,
        store_as_of=view.store_as_of,
        cluster_as_of=view.cluster_as_of,
        store_free_bytes=view.store_free_bytes,
        job=view.job,
        failed=shown is not None and any(not one.clean for one in shown.exits),
    )


def view_of(look: Look, world: int) -> View:
    """The View that decides as the one seen did."""
    nodes = {name: NodeView(name, NodeState.UP, 0.0, True, switch=s) for s, some in look.well for name in names(some)}
    ready = NodeView("", NodeState.UP, 0.0, True, checked_for=EVERY_QUESTION)
    nodes |= {n: replace(ready, name=n, checked_at=at, switch=s) for n, s, at in look.ready}
    nodes |= {n.name: n for n in look.ill}
    exits = tuple(RankExit(r, "", look.attempt or 0, 0.0, 0) for r in range(world if look.all_clean else 0))
    exits = (RankExit(0, "", look.attempt or 0, 0.0, 1),) if look.failed else exits
    return View(
        nodes=UNKNOWN if look.nodes_unknown else nodes,
        unread=look.unread,
        attempt=None if look.attempt is None else AttemptView(look.attempt, UNKNOWN, exits=exits),
        checkpoints=UNKNOWN if look.checkpoints is None else look.checkpoints,
        archive=UNKNOWN if look.archive is None else look.archive,
        archive_as_of=look.archive_as_of,
        drilled=look.drilled,
        fenced=look.fenced,
        store_as_of=look.store_as_of,
        cluster_as_of=look.cluster_as_of,
        store_free_bytes=look.store_free_bytes,
        job=look.job,
    )


def _is_well(node: NodeView) -> bool:
    return node.state is NodeState.UP and node.agent and not node.drained_by_other and not node.unhealthy


def _is_checked(node: NodeView, incident: int) -> bool:
    """Has it told of its checks, and answered what it was asked because of this incident?"""
    return node.checked_at is not None and node.checked_for >= incident


def _that_matter(saves: tuple[CheckpointState, ...]) -> tuple[CheckpointState, ...]:
    """Those that may be started from now or later, and the newest of the others; in the store's order."""
    over = {CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
    newest = sorted((c for c in saves if c.phase in over), key=lambda c: (c.attempt, c.step))[-NEWEST:]
    kept = {c.id for c in newest}
    return tuple(replace(c, reasons=c.reasons[:3]) for c in saves if c.phase not in over or c.id in kept)


def rows(found: Iterable[str]) -> Iterator[Row]:
    """Names as rows of numbers, in order."""
    plain: list[str] = []
    numbered: dict[tuple[str, int], list[int]] = {}
    for name in found:
        match = _NUMBERED.match(name)
        if match is None:
            plain.append(name)
        else:
            numbered.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    yield from ((name, 0, 0, 0) for name in sorted(set(plain)))
    for (prefix, width), numbers in sorted(numbered.items()):
        first = last = min(numbers)
        for number in sorted(set(numbers))[1:]:
            if number != last + 1:
                yield prefix, first, last, width
                first = number
            last = number
        yield prefix, first, last, width


def names(some: Iterable[Row]) -> Iterator[str]:
    """The names again."""
    for prefix, first, last, width in some:
        yield from (f"{prefix}{n:0{width}d}" for n in range(first, last + 1)) if width else (prefix,)
