"""What the cluster's launcher says of an attempt, for what nobody else tells of: ranks that left no exit record. Pure.

A shim that is killed with its rank (by the memory limit, or by somebody's hand) writes nothing, and one that could not be
started has nothing to write with. Slurm's srun says it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from policies.facts import AttemptView, Finding, RankExit
from slurm.cluster import StepRow, TaskEnd
from supervisor.evidence.scan import scan

FEW: Final = 64
"""Of more at once the agents are still telling, who read the records of their ranks once a second."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """Something that was said between two looks, controller's clock. It counts from the first on.

    A rank that falls for another's sake leaves its record; of one that leaves none, it is not to be missed that it was first.
    """

    after: float
    by: float


class LauncherSaid:
    """Keeps when each thing was first heard; a controller that comes later hears it all at once, and later than it was."""

    def __init__(self, world: int) -> None:
        """`world`: how many ranks there are."""
        self._world = world
        self._ends: dict[int, dict[int, tuple[TaskEnd, _Heard]]] = {}
        self._complaints: dict[int, dict[str, _Heard]] = {}
        self._looked: dict[int, float] = {}
        self._asked: set[tuple[int, int]] = set()

    def note(self, attempt: int, row: StepRow, now: float) -> None:
        """A look at the step of an attempt, at `now`."""
        heard = _Heard(self._looked.get(attempt, now), now)
        self._looked[attempt] = now
        for one in row.ends:
            self._ends.setdefault(attempt, {}).setdefault(one.task, (one, heard))
        for line in row.complaints:
            self._complaints.setdefault(attempt, {}).setdefault(line, heard)

    def unasked(self, shown: AttemptView) -> frozenset[int]:
        """Ranks that ended and of which no agent has told, each once: their records are worth a look."""
        fresh = {(shown.number, rank) for rank, _, _ in self._unrecorded(shown)} - self._asked
        self._asked |= fresh
        return frozenset(rank for _, rank in fresh)

    def add_to(self, shown: AttemptView) -> AttemptView:
        """The attempt with the ends of ranks that have left no record."""
        more = tuple(
            RankExit(rank, end.node, shown.number, heard.after, end.code, end.signal)
            for rank, end, heard in self._unrecorded(shown)
        )
        return replace(shown, exits=(*shown.exits, *more)) if more else shown

    def findings(self, shown: AttemptView) -> tuple[Finding, ...]:
        """Its complaints, and its words on those ends. `shown`: as the agents tell it."""
        found = [_finding(shown.number, line, heard) for line, heard in self._complaints.get(shown.number, {}).items()]
        for rank, end, heard in self._unrecorded(shown):
            one = _finding(shown.number, end.line, heard)
            found.append(one and replace(one, rank=rank, node=end.node))
        return tuple(one for one in found if one is not None)

    def _unrecorded(self, shown: AttemptView) -> list[tuple[int, TaskEnd, _Heard]]:
        known = {one.rank for one in shown.exits}
        found = []
        for end, heard in self._ends.get(shown.number, {}).values():
            each = max(1, self._world // end.of)  # a task is a rank, or the launcher of those of a slot
            found += [(r, end, heard) for r in range(end.task * each, (end.task + 1) * each) if r not in known]
        return found if len(found) <= FEW else []


def _finding(attempt: int, line: str, heard: _Heard) -> Finding | None:
    """A line that the signature table knows; what it does not know is no finding."""
    match = scan(line)
    if match is None:
        return None
    return Finding(
        attempt=attempt,
        kind=match.kind,
        role=match.role,
        category=match.category,
        text=line[:512],
        wall=heard.after,
        offset_bound=heard.by - heard.after,
        blames=match.blames,
        grade=match.grade,
        restart=match.restart,
        peer=match.peer,
    )
