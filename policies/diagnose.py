"""Findings, exits and node states of one attempt -> its earliest error, by what the clocks' bounds allow. Pure.

This is the first cut: it orders what it is given. Reading logs is `supervisor/evidence/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from policies.detect import how
from policies.facts import (
    UNKNOWN,
    Attempt,
    AttemptView,
    Diagnosis,
    FaultClass,
    Finding,
    History,
    Incident,
    NodeState,
    Phase,
    RankExit,
    View,
)
from policies.reasons import Reason

_FAULT_REASON = {
    FaultClass.NODE_LOST: Reason.NODE_LOST,
    FaultClass.NODE_SILENT: Reason.NODE_SILENT,
    FaultClass.RANK_DIED: Reason.RANK_DIED,
    FaultClass.RANK_FAILED: Reason.RANK_FAILED,
}
_NODE_FAULTS = frozenset({FaultClass.NODE_LOST, FaultClass.NODE_SILENT})
SIGNAL_CASCADE = 15
"""SIGTERM reaches a rank from a launcher that stops it; it is seldom the first cause."""


def _exit_finding(end: RankExit) -> Finding:
    cascade = end.signal == SIGNAL_CASCADE
    return Finding(
        attempt=end.attempt,
        kind="exit-signal" if end.signal is not None else "exit-code",
        role="cascade" if cascade else "root",
        category="hang.unknown" if end.signal is not None else "software.user",
        text=f"rank {end.rank} {how(end)}",
        rank=end.rank,
        node=end.node,
        wall=end.wall,
        offset_bound=0.0,
    )


def _node_findings(attempt: Attempt, view: View) -> list[Finding]:
    if view.nodes is UNKNOWN:
        return []
    found = []
    for name in attempt.slots:
        node = view.nodes.get(name)
        if node is not None and node.state is NodeState.DOWN:
            found.append(
                Finding(
                    attempt=attempt.number,
                    kind="node-lost",
                    role="root",
                    category="hardware.host",
                    text=f"{name} is gone",
                    node=name,
                    wall=node.since,
                )
            )
    return found


def _silent_findings(attempt: Attempt, view: View) -> list[Finding]:
    """A stall is explained by a silent node when most of the other nodes answer; else the eye is blind."""
    if view.nodes is UNKNOWN:
        return []
    silent = [n for n in view.nodes.values() if n.state is NodeState.SILENT]
    up = sum(1 for n in view.nodes.values() if n.state is NodeState.UP)
    if 2 * up <= len(silent) + up:
        return []
    return [
        Finding(
            attempt=attempt.number,
            kind="node-silent",
            role="root",
            category="hardware.host",
            text=f"{node.name} does not answer, the other nodes do",
            node=node.name,
            wall=node.since,
        )
        for node in silent
        if node.name in attempt.slots
    ]


def earliest(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The root findings that no other is surely before; what the bounds cannot order stays together.

    A finding without a time can only be ordered within its own file; it counts when nothing has a time.
    """
    roots = [f for f in findings if f.role == "root"]
    timed = [f for f in roots if f.wall is not None]
    if not timed:
        return tuple(roots[:1])
    limit = min(f.wall + f.offset_bound for f in timed if f.wall is not None)
    first = [f for f in timed if f.wall is not None and f.wall - f.offset_bound <= limit]
    return tuple(sorted(first, key=lambda f: (f.wall or 0.0, f.rank if f.rank is not None else -1)))


def _cascade(exits: tuple[RankExit, ...], first: tuple[Finding, ...]) -> str:
    named = {f.rank for f in first}
    others = sum(1 for e in exits if not e.clean and e.rank not in named)
    return f"{others} other rank{'' if others == 1 else 's'} failed after it" if others else ""


def _being_done(attempt: Attempt, shown: AttemptView, fault: FaultClass) -> tuple[int, tuple[int, int]] | None:
    """The step that was being done, with first sample and count of its batch; None outside of steps, or when nobody told.

    A loss that is not finite is that of a step which is done, whatever the ranks have gone on to. Before the first step
    it is what the ranks said they read next.
    """
    row = shown.non_finite if fault is FaultClass.NON_FINITE else shown.last_step
    if shown.phase is not Phase.STEP and fault is not FaultClass.NON_FINITE:
        return None
    if row is None:
        parts = {(one.next_batch.first, one.next_batch.count) for one in shown.loaded.values() if one.next_batch}
        whole = (min(first for first, _ in parts), sum(count for _, count in parts)) if parts else None
        return (attempt.start_step + 1, whole) if whole else None
    if row.batch is None:
        return None
    first, count = row.batch.first, row.batch.count
    return (row.step, (first, count)) if fault is FaultClass.NON_FINITE else (row.step + 1, (first + count, count))


def diagnose(history: History, incident: Incident, view: View, before: float) -> Diagnosis:
    """What came first in the incident's attempt. Only what was seen before `before` (wall: when we began to stop it) counts.

    A lost node is the cause of what its ranks and their peers suffer, so it comes first whenever it is seen: the cluster
    shows it seconds after the connections break.
    """
    attempt = next(a for a in history.attempts if a.number == incident.attempt)
    shown = view.attempt if view.attempt is not None and view.attempt.number == attempt.number else None
    exits = tuple(e for e in shown.exits if e.wall < before) if shown else ()
    trouble = incident.trouble
    lost = _node_findings(attempt, view)
    if lost:
        names = tuple(f.node for f in lost if f.node is not None)
        found = Diagnosis(tuple(lost), names, "hardware.host", fault=FaultClass.NODE_LOST)
    elif trouble.fault is FaultClass.STALL and (silent := _silent_findings(attempt, view)):
        names = tuple(f.node for f in silent if f.node is not None)
        found = Diagnosis(tuple(silent), names, "hardware.host", fault=FaultClass.NODE_SILENT)
    elif trouble.fault in {FaultClass.RANK_DIED, FaultClass.RANK_FAILED, FaultClass.LAUNCH_FAILED}:
        logged = [f for f in view.findings if f.attempt == attempt.number and (f.wall is None or f.wall < before)]
        found = _from_exits(exits, logged)
    elif trouble.fault is FaultClass.NON_FINITE and (told := _numeric(attempt, view, before)):
        found = Diagnosis(told, (), "numeric")
    else:
        text = Finding(
            attempt=attempt.number,
            kind=trouble.fault.value,
            role="root",
            category=_category(trouble.fault),
            text=trouble.text,
            rank=trouble.ranks[0] if len(trouble.ranks) == 1 else None,
            node=trouble.nodes[0] if len(trouble.nodes) == 1 else None,
            wall=trouble.at,
        )
        found = Diagnosis((text,), trouble.nodes, text.category)
    cascade = _cascade(exits, found.first)
    reason = None if found.fault is None else _FAULT_REASON.get(found.fault)
    doing = _being_done(attempt, shown, found.fault or trouble.fault) if shown else None
    step, data = doing or (None, None)
    return replace(found, cascade=cascade, reason=reason, data=data, step=step)


def _numeric(attempt: Attempt, view: View, before: float) -> tuple[Finding, ...]:
    """Ranks that told of it in their own logs: the loss that the reporter tells is that of all ranks together."""
    logged = [f for f in view.findings if f.attempt == attempt.number and f.category == "numeric"]
    return earliest(f for f in logged if f.wall is None or f.wall < before)


def keep_earliest(sealed: Diagnosis | None, again: Diagnosis) -> Diagnosis:
    """What stands after a second look. Only earlier evidence takes the place of what was sealed; a lost node always does.

    A controller that came back may know less than the one before: what it does not know is kept from the first look.
    """
    if sealed is None or not sealed.first:
        return again if again.first or sealed is None else sealed
    if not again.first:
        return sealed
    known = {(f.kind, f.node, f.rank, f.text) for f in sealed.first}
    fresh = [f for f in again.first if (f.kind, f.node, f.rank, f.text) not in known]
    lost = again.fault in _NODE_FAULTS and sealed.fault not in _NODE_FAULTS
    if lost or (fresh and _first_wall(again) < _first_wall(sealed)):
        return replace(again, data=again.data or sealed.data, step=again.step or sealed.step)
    return replace(sealed, cascade=again.cascade or sealed.cascade)


def _first_wall(one: Diagnosis) -> float:
    return min((f.wall - f.offset_bound for f in one.first if f.wall is not None), default=inf)


def _category(fault: FaultClass) -> str:
    match fault:
        case FaultClass.NON_FINITE:
            return "numeric"
        case FaultClass.NODE_SILENT:
            return "hardware.host"
        case _:
            return "hang.unknown"


def _from_exits(exits: tuple[RankExit, ...], logged: list[Finding]) -> Diagnosis:
    """A rank's own last words name the cause better than its exit; a signal leaves no words."""
    candidates = [_exit_finding(e) for e in exits] + logged
    cascading = {f.rank for f in logged if f.role == "cascade"} - {f.rank for f in logged if f.role == "root"}
    # a rank whose own log says that a peer went away is a victim, whatever code it then ended with
    candidates = [f for f in candidates if not (f.kind == "exit-code" and f.rank in cascading)]
    first = earliest(candidates)
    if not first:
        first = earliest([replace(_exit_finding(e), role="root") for e in exits])
    if not first:
        return Diagnosis()
    head = first[0]
    died = head.kind == "exit-signal"
    fault = FaultClass.RANK_DIED if died else FaultClass.RANK_FAILED
    # an end and the words before it, of one rank, are one event: the words say of what kind
    words = next((f for f in first if not f.kind.startswith("exit-") and f.rank == head.rank), head)
    confidence = 0.9 if len({f.rank for f in first}) == 1 else 0.5
    return Diagnosis(first, (), words.category, confidence=confidence, fault=fault)
