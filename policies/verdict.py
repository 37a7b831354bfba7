"""A case -> the verdict: what came first, what kind of fault it is, whom to suspect, whether a restart may help. Pure.

The order of the rules is the order of trust: a job that finished, what Slurm itself ended, the earliest line that names a
cause, then inference from who is silent. Suspects are named only for faults of a machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from policies.asked import still_meant
from policies.clues import Case, Clue, Verdict
from policies.endings import finished, weakest
from policies.ordering import (
    LOCAL_DISKS,
    best_evidence,
    cascade,
    is_local,
    minimal,
    same_event,
    still_down,
    surely_before,
)
from policies.programs import in_kernels, says_better
from policies.silence import infer

GPU_SYMPTOMS: Final = frozenset(
    {"cuda-device", "cuda-program", "cuda-init-error", "accelerator-fatal", "launcher-exit"}
)
"""Kinds that another fault of the same node explains: the program saw the device fail, the driver says why."""

NODES_LOST: Final = frozenset({"node-failure", "node-lost", "node-unanswering"})
"""Kinds by which a scheduler or a launcher gives a machine up."""

ABORTS: Final = frozenset({"python-crash", "native-crash", "open-mpi-crash"})
"""Kinds in which a process ends that is being ended."""

_ABORTED: Final = re.compile(r"Abort|SIGTERM|SIGABRT|signal:? \(?(6|15)\b", re.IGNORECASE)

SHADOWS: Final = frozenset({"xid-stopped"})
"""Kinds that any error of a program on the same node explains: the driver only tells that it stopped its work."""

HINTS: Final = frozenset({"machine-check-logged"})
"""Kinds that say that something was, and not how bad: no cause where anything else is one."""

REASONS: Final[Mapping[str, tuple[str, ...]]] = {"cuda-not-ready": ("fabric-manager-down",)}
"""Symptoms, and what a log of the same machine may say of them whenever it was written: the reason lasts till somebody mends it."""

EXPLAINED_WITHIN_S: Final = 600.0
"""A node that Slurm declares lost, or a driver's line, explains symptoms on it within this time (SlurmdTimeout is 300 s)."""

BETWEEN_NODES: Final = "nccl-version-mismatch"
"""What both sides say, whichever of them is wrong."""

SUSPECT: Final = ("hardware.", "performance.straggler")
OF_A_KIND: Final = 100
"""Causes of one kind that are compared with each other; comparing is done pair by pair."""

MANY_NODES: Final = 4
"""More nodes than this with the same fault at the same time are no longer suspects: what they share is."""


def judge(case: Case) -> Verdict:
    """The verdict on a case."""
    live = still_meant([clue for clue in case.clues if clue.role != "benign"])
    roots = [clue for clue in live if clue.role == "root" and not clue.survived]
    strong = _fewer([clue for clue in roots if clue.grade >= 2])
    if done := finished(case, strong):
        return done
    ended = [clue for clue in strong if clue.category.startswith("scheduler.") and clue.kind not in NODES_LOST]
    ended.sort(key=best_evidence)
    causes = still_down([clue for clue in strong if clue not in ended], live)
    by_hand = [c for c in live if c.kind == "cancelled"] if any(c.kind == "cancelled-by" for c in live) else []
    causes = [c for c in causes if not any(_aborted_by(end, c) for end in (*ended, *by_hand))]
    if ended and not _before(causes, ended[0]) and not _hung_before(live, ended[0]):
        return _scheduler(ended[0], live)
    if causes:
        return _explicit(case, causes, live)
    inferred = infer(case, live)
    if inferred is not None:
        return inferred
    return weakest(case, roots, live, _explicit)


def _fewer(causes: Sequence[Clue]) -> list[Clue]:
    """Of each kind the earliest ones, and those that stand first in their files: thousands of ranks may say the same."""
    kinds: dict[str, list[Clue]] = {}
    for clue in causes:
        kinds.setdefault(clue.kind, []).append(clue)
    kept: list[Clue] = []
    for clues in kinds.values():
        if len(clues) > OF_A_KIND:
            early = sorted(clues, key=lambda c: (c.earliest if c.earliest is not None else float("inf"), c.line))
            high = sorted(clues, key=lambda c: (c.line, c.file))
            both = {id(c): c for c in (*early[: OF_A_KIND // 2], *high[: OF_A_KIND // 2])}
            clues = list(both.values())  # noqa: PLW2901 - the same list, only shorter
        kept.extend(clues)
    return kept


def _before(causes: Iterable[Clue], end: Clue) -> bool:
    return any(not surely_before(end, cause) for cause in causes)


def _aborted_by(end: Clue, crash: Clue) -> bool:
    """Is this the end of a process that Slurm was ending? An abort counts only where it surely came first, a fault of memory
    unless it surely came after.
    """
    if crash.kind not in ABORTS or crash.grade > 2:
        return False
    if crash.file == end.file:
        return crash.line > end.line
    return not surely_before(crash, end) if _ABORTED.search(crash.text) else surely_before(end, crash)


def _hung_before(live: Iterable[Clue], end: Clue) -> bool:
    """Collectives had timed out before Slurm ended the job."""
    return any(c.role == "cascade" and c.grade >= 2 and surely_before(c, end) for c in live)


def _scheduler(end: Clue, live: Sequence[Clue]) -> Verdict:
    return Verdict(
        failed=True,
        category=end.category,
        first=end,
        restart_ok=True,
        confidence="high",
        cascade=cascade(live, end),
        why="Slurm ended the job; nothing that could have ended it came before.",
        support=(end,),
    )


def _explicit(case: Case, causes: Sequence[Clue], live: Sequence[Clue]) -> Verdict:
    candidates = _explained(case, causes)
    earliest = minimal(candidates, apart=True)
    first = _first_of_its_numbers(min(earliest, key=best_evidence), earliest)
    peers = [c for c in candidates if c.kind == first.kind and not surely_before(first, c)]
    peers += [c for c in earliest if c.kind == first.kind and c not in peers]
    first, category = _named(case, first, [c for c in causes if c.kind == first.kind], live)
    suspects = _suspects(case, first, category, peers)
    restart = first.restart and not _restart_cannot_help(case, first, category, live)
    unsure = (
        first.grade < 3 or len({c.node for c in peers if c.node}) > 1 or any(c.category != category for c in earliest)
    )
    return Verdict(
        failed=True,
        category=category,
        first=first,
        suspects=suspects,
        restart_ok=restart,
        confidence="medium" if unsure else "high",
        cascade=cascade(live, first),
        why=_why(first, category, suspects),
        support=tuple(c for c in peers if c != first)[:4],
        against=tuple(f"{c.file}:{c.line}: {c.text[:120]}" for c in candidates if c.category != category)[:4],
    )


def _first_of_its_numbers(first: Clue, earliest: Iterable[Clue]) -> Clue:
    """Of lines that tell of the same NaN the first one: it is where the numbers broke, whoever names it best later."""
    if first.category != "numeric":
        return first
    same = [c for c in earliest if c.category == "numeric" and c.file == first.file and c.line < first.line]
    return replace(min(same, key=lambda c: c.line), rank=first.rank, node=first.node) if same else first


def _explained(case: Case, causes: Sequence[Clue]) -> list[Clue]:
    """Without the symptoms that a better-named cause on the same node, or of the same speaker, explains."""
    kept = []
    lost = {clue.peer for clue in causes if clue.kind in NODES_LOST and clue.peer}
    for clue in causes:
        shadow = clue.kind in SHADOWS
        better = (o for o in causes if (o.grade > clue.grade or (shadow and o.kind not in SHADOWS)) and o is not clue)
        if any(_explains(o, clue, case) for o in better) or any(says_better(o, clue, case) for o in causes):
            continue
        if clue.kind in HINTS and any(o.kind not in HINTS for o in causes):
            continue
        if clue.kind in NODES_LOST and clue.peer is None and lost:
            continue
        kept.append(clue)
    return kept


def _explains(cause: Clue, symptom: Clue, case: Case) -> bool:
    if same_event(cause, symptom):
        return cause.category != "numeric" or symptom.category != "numeric" or cause.line < symptom.line
    place = cause.peer if cause.blames == "peer" and cause.peer else cause.node
    if symptom.kind in SHADOWS:
        return place == symptom.node and not cause.kind.startswith("xid-") and not surely_before(symptom, cause)
    if symptom.kind not in GPU_SYMPTOMS and not (cause.grade == 4 and symptom.category == cause.category):
        return False
    if symptom.node is None:
        return cause.kind in NODES_LOST  # nobody else is known to have seen it
    if place != symptom.node and not (place is None and len(case.nodes) == 1):
        return False
    if not (cause.category.startswith(("hardware.", "oom.")) or cause.kind in NODES_LOST | LOCAL_DISKS):
        return False
    if None in (cause.earliest, cause.latest, symptom.earliest, symptom.latest):
        return True
    apart = max((cause.earliest or 0) - (symptom.latest or 0), (symptom.earliest or 0) - (cause.latest or 0))
    return apart < EXPLAINED_WITHIN_S


def _named(case: Case, first: Clue, peers: Sequence[Clue], live: Sequence[Clue]) -> tuple[Clue, str]:
    """The category after all is weighed, and the first line with the place that the line speaks of."""
    category = first.category
    if first.kind in NODES_LOST:
        seen = [c for c in live if c.role == "root" and c.kind in GPU_SYMPTOMS and c.node in (None, first.peer)]
        if any(c.kind != "launcher-exit" for c in seen):
            category = "hardware.host"
    if lasting := [c for c in live if c.kind in REASONS.get(first.kind, ()) and c.node == first.node]:
        first = min(lasting, key=lambda c: (c.file, c.line))
        return first, first.category
    if first.blames == "peer" and first.peer and first.node is None:
        first = replace(first, node=first.peer, rank=None)
    if first.rank is None and first.category.split(".")[0] not in ("scheduler", "hardware"):
        first = _placed(first, live)
    if first.rank is None and first.node is not None and first.category.startswith("hardware."):
        first = replace(first, rank=_rank_that_saw_it(first, live))
    nodes = {c.node for c in peers if c.node}
    speakers = {c.speaker for c in peers}
    if (
        category == "software.env"
        and first.kind not in ("launch-timeout", BETWEEN_NODES)
        and (len(nodes) > 1 or (first.kind == "cuda-busy" and len(speakers) > 1 and len(case.nodes) <= 1))
    ):
        category = "config"  # what all nodes have in common is no node's fault
    if first.kind == "exception" and first.frames == "data":
        category = "data"
    elif (first.kind == "exception" and first.frames == "framework") or (len(nodes) > 1 and in_kernels(first, live)):
        category = "software.framework"
    elif first.kind in ("exception", "missing-file") and first.frames == "load":
        category = "storage.ckpt_corrupt" if first.kind == "exception" else "config"
    return first, category


def _rank_that_saw_it(first: Clue, live: Sequence[Clue]) -> int | None:
    """The rank of a device that the driver names by its address: the one on that node whose program saw it fail first."""
    saw = [
        c
        for c in live
        if c.role == "root" and c.rank is not None and c.node == first.node and c.grade in (2, 3)
        if c.category.startswith("hardware.") or c.kind in GPU_SYMPTOMS
    ]
    saw = _fewer(saw)
    early = {c.rank for c in saw if not any(o.rank != c.rank and surely_before(o, c) for o in saw)}
    return early.pop() if len(early) == 1 else None


def _placed(first: Clue, live: Sequence[Clue]) -> Clue:
    """A line without a speaker, at the place that the roots near it in the file agree on."""
    near = [c for c in live if c.role == "root" and c.file == first.file and c.rank is not None]
    same = [
        c
        for c in near
        if abs(c.line - first.line) <= 40 and (c.category == first.category or c.grade == 1 or c.kind in GPU_SYMPTOMS)
    ]
    places = {(c.rank, c.node) for c in same}
    if len(places) != 1 or (first.node is not None and same[0].node not in (None, first.node)):
        return first
    return replace(first, rank=same[0].rank, node=first.node or same[0].node)


def _suspects(case: Case, first: Clue, category: str, peers: Sequence[Clue]) -> tuple[str, ...]:
    if first.kind == BETWEEN_NODES:
        return ()
    if category == "software.env":
        return (first.node,) if first.node and len(case.nodes) > 1 else ()
    if first.node is None:
        return ()
    if category.startswith("storage.") and len(case.nodes) > 1 and is_local(first):
        return (first.node,) if {c.node for c in peers} <= {first.node, None} else ()
    if not category.startswith(SUSPECT) and first.kind not in NODES_LOST:
        return ()
    together = [first.node]
    for clue in peers:
        node = clue.peer if clue.blames == "peer" and clue.peer else clue.node
        if node and node not in together and not _apart(first, clue):
            together.append(node)
    return tuple(sorted(together)) if len(together) <= MANY_NODES else ()


def _apart(one: Clue, other: Clue) -> bool:
    """Two machines whose lines carry times that differ: the later one is not named."""
    if one.earliest is None or other.earliest is None or one.latest is None or other.latest is None:
        return False
    if one.latest - one.earliest > 10 or other.latest - other.earliest > 10:
        return False
    return other.earliest - one.earliest > 0.05


def _restart_cannot_help(case: Case, first: Clue, category: str, live: Sequence[Clue]) -> bool:
    if category == "config" and first.kind != "port-in-use":
        return True
    if first.kind == "ib-port-error":
        # a port that came back and went again, or whose cable the kernel saw pulled, goes again
        again = Counter(c.speaker for c in live if c.kind == "ib-port-error")
        flapped = any(c.kind == "ib-port-active" for c in live) and any(n > 1 for n in again.values())
        pulled = any(c.kind in ("link-down", "hca-fatal") and c.node in (None, first.node) for c in live)
        return flapped or pulled
    if category in ("software.framework", "storage.io", "numeric"):
        # the same end on many ranks at the same place of the program is no accident
        same = {c.rank for c in live if c.kind == first.kind and c.rank is not None}
        return category != "storage.io" and case.world is not None and len(same) > max(4, case.world // 2)
    return False


def _why(first: Clue, category: str, suspects: Sequence[str]) -> str:
    who = f"rank {first.rank}" if first.rank is not None else "a process"
    where = f" on {first.node}" if first.node else ""
    blame = f" Suspect: {', '.join(suspects)}." if suspects else " No node is suspected."
    return f"The earliest line that names a cause is that of {who}{where}: {first.kind.replace('-', ' ')} ({category}).{blame}"
