"""What agents have told of one attempt -> the case that `verdict.judge` decides, as it does for a folder of logs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from policies.clues import Case, Clue, Stack
from policies.detect import how
from policies.facts import AttemptView, Finding, RankExit, RankStack
from policies.history import Attempt
from policies.layout import Layout

SIGTERM: Final = 15
"""It reaches a rank from a launcher that stops it; it is seldom the first cause."""
BY_ITSELF: Final = frozenset({6, SIGTERM})
"""Signals with which a victim ends: its own abort when its collective timed out, and its launcher's."""
LATER: Final = 1 << 40
"""The line of an exit: after everything that the rank has written."""
STEPS_SURVIVED: Final = 2
"""A run that has made so many steps after an error has survived it."""


def case(
    attempt: Attempt,
    layout: Layout,
    findings: Iterable[Finding],
    exits: Sequence[RankExit],
    shown: AttemptView | None,
    stacks: Iterable[RankStack],
) -> Case:
    """Findings, ends and stacks of an attempt. `findings` and `exits` are those from before it was stopped."""
    logged = [clue(one, attempt.slots, shown) for one in findings]
    hurt = victims(logged, exits)
    ends = [end(one) for one in exits if not one.clean and one.rank not in hurt]
    return Case(
        clues=(*logged, *ends),
        nodes=attempt.slots,
        world=layout.world,
        per_node=layout.ranks_per_node,
        completed=False,
        last_step=shown.last_step.step if shown and shown.last_step else None,
        stacks=tuple(_stack(one) for one in stacks),
        is_job=True,
    )


def victims(clues: Iterable[Clue], exits: Iterable[RankExit]) -> frozenset[int]:
    """Ranks that say themselves that a peer went away or never came, and then ended of it: not the first of anything."""
    counting = [one for one in clues if one.rank is not None and not one.survived]
    waited = {one.rank for one in counting if one.role == "cascade"}
    cause = {one.rank for one in counting if one.role == "root"}
    ended = {e.rank for e in exits if not e.clean and (e.signal is None or e.signal in BY_ITSELF)}
    return frozenset(rank for rank in ended if rank in waited and rank not in cause)


def clue(found: Finding, slots: Collection[str], shown: AttemptView | None) -> Clue:
    """A finding, with the bounds of its time. A peer that is no node of `slots` by name is not known."""
    early = None if found.wall is None else found.wall - found.offset_bound
    late = None if found.wall is None else found.wall + found.offset_bound
    return Clue(
        kind=found.kind,
        role=found.role,
        grade=found.grade,
        category=found.category,
        blames=found.blames,
        restart=found.restart,
        text=found.text,
        file=found.file or _speaker(found.rank, found.node),
        line=found.line or 0,
        rank=found.rank,
        node=found.node,
        peer=found.peer if found.peer in slots else None,
        earliest=early,
        latest=late,
        survived=late is not None and _went_on(shown, late),
        speaker=_speaker(found.rank, found.node),
        seq=found.seq,
        op=found.op,
    )


def end(one: RankExit) -> Clue:
    """How a rank ended, as the last line of its log. Its node's agent saw it, so the time is that of the controller's clock."""
    by_signal = one.signal is not None
    return Clue(
        kind="exit-signal" if by_signal else "exit-code",
        role="cascade" if one.signal == SIGTERM else "root",
        grade=2,
        category="hang.unknown" if by_signal else "software.user",
        blames="reporter",
        restart=True,
        text=f"rank {one.rank} {how(one)}",
        file=_speaker(one.rank, one.node),
        line=LATER,
        rank=one.rank,
        node=one.node,
        earliest=one.wall,
        latest=one.wall,
        speaker=_speaker(one.rank, one.node),
        code=one.code if one.signal is None else -one.signal,
    )


def _stack(one: RankStack) -> Stack:
    return Stack(
        _speaker(one.rank, one.node), 0, one.rank, one.node, "stopped" if one.stopped else one.waits_in, one.top
    )


def _speaker(rank: int | None, node: str | None) -> str:
    return f"rank {rank}" if rank is not None else node or ""


def _went_on(shown: AttemptView | None, late: float) -> bool:
    row = shown.last_step if shown else None
    if row is None or shown is None:
        return False
    return late < row.at - STEPS_SURVIVED * max(row.seconds, shown.slowest_step_s)
