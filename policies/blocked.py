"""Processes that hang in the kernel: for storage that does not answer, or so that Slurm cannot end them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from policies.clues import Case, Clue, Verdict
from policies.inferring import TIMED_OUT, inferred

_WAITS: Final = ("storage-waiting", "storage-blocked")
_ANSWERS: Final = "storage-answers"
SUSPECTS: Final = 4
"""More nodes than this with processes that cannot be ended share a fault, and are not to blame for it."""


def waits_of(live: Iterable[Clue], node: str | None) -> list[Clue]:
    """The lines in which a node's kernel waits for storage that has not answered since."""
    if node is None:
        return []
    own = [c for c in live if c.node == node and not c.survived]
    last = max((c.line for c in own if c.kind == _ANSWERS), default=0)
    return sorted((c for c in own if c.kind in _WAITS and c.line > last), key=lambda c: (c.file, c.line))


def _stood_still(case: Case, live: Iterable[Clue]) -> bool:
    return case.idle_s is not None or any(c.kind in TIMED_OUT for c in live)


def storage_wait(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Nobody is singled out among those that hang, but machines say that they wait for storage."""
    nodes = sorted({c.node for c in live if c.kind in _WAITS and c.node is not None})
    waits = [clue for node in nodes for clue in waits_of(live, node)]
    if not waits or not _stood_still(case, live):
        return None
    first = min(waits, key=lambda c: (c.earliest if c.earliest is not None else float("inf"), c.file, c.line))
    why = f"The job stood still, and {len({c.node for c in waits})} of its nodes wait for storage that does not answer."
    return inferred("storage.io", first, why, live, restart=True, confidence="low")


def unkillable(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """A job that stood still, and on one node a process that not even SIGKILL ends: it hangs in that node's kernel."""
    told = [c for c in live if c.kind == "step-unkillable" and (c.peer or c.node) is not None]
    if not told or not _stood_still(case, live):
        return None
    nodes = sorted({str(c.peer or c.node) for c in told})
    first = min(told, key=lambda c: (c.earliest if c.earliest is not None else float("inf"), c.file, c.line))
    node = str(first.peer or first.node)
    ended = {task for c in live if c.kind == "srun-terminated" for task in c.tasks}
    left = [rank for rank in case.ranks_of(node) if rank not in ended] if ended else []
    if waits := waits_of(live, node):
        why = f"A process on {node} cannot be ended: the kernel there waits for storage that does not answer."
        return inferred("storage.io", waits[0], why, live, restart=True)
    first = replace(first, node=node, rank=left[0] if len(left) == 1 else None)
    why = (
        f"The job stood still, and on {', '.join(nodes[:SUSPECTS])} a process cannot be ended: it hangs in the kernel."
    )
    return inferred(
        "hang.unknown", first, why, live, restart=True, suspects=tuple(nodes) if len(nodes) <= SUSPECTS else ()
    )
