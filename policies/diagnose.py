"""Findings, exits, stacks and node states of one attempt -> its earliest error, by what the clocks' bounds allow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from policies import livecase
from policies.clues import Case, Clue
from policies.facts import UNKNOWN, AttemptView, FaultClass, Finding, NodeState, Phase, RankExit, View
from policies.history import Attempt, Diagnosis, History, Incident, Trouble
from policies.layout import Layout
from policies.ordering import surely_before
from policies.reasons import Reason
from policies.verdict import judge

_FAULT_REASON = {
    FaultClass.NODE_LOST: Reason.NODE_LOST,
    FaultClass.NODE_SILENT: Reason.NODE_SILENT,
    FaultClass.RANK_DIED: Reason.RANK_DIED,
    FaultClass.RANK_FAILED: Reason.RANK_FAILED,
}
_NODE_FAULTS = frozenset({FaultClass.NODE_LOST, FaultClass.NODE_SILENT})
_DEATHS = frozenset({FaultClass.RANK_DIED, FaultClass.RANK_FAILED, FaultClass.LAUNCH_FAILED})
_NOT_ITS_OWN = ("hardware.", "oom.host", "storage.")
"""Categories of which a rank dies through no fault of its program: they count against the infrastructure."""
_CONFIDENCE = {"high": 0.9, "medium": 0.6, "low": 0.3}


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


def _only_ends(found: Diagnosis) -> bool:
    """Nothing but how ranks ended: no line says why."""
    return all(one.kind.startswith("exit-") for one in found.first)


def _mute(attempt: Attempt, view: View, layout: Layout, exits: Sequence[RankExit]) -> Diagnosis | None:
    """Peers of a node that has gone silent die of it and can't say why; a rank of its own that ended was heard."""
    heard = {layout.slot_of(one.rank) for one in exits}
    silent = [f for f in _silent_findings(attempt, view) if attempt.slots.index(f.node or "") not in heard]
    names = tuple(f.node for f in silent if f.node is not None)
    return (
        Diagnosis(tuple(silent), names, "hardware.host", confidence=_CONFIDENCE["medium"], fault=FaultClass.NODE_SILENT)
        if silent
        else None
    )


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


def diagnose(history: History, incident: Incident, view: View, layout: Layout, before: float) -> Diagnosis:
    """What came first in the incident's attempt. Only what was seen before `before` (wall: when we began to stop it) counts.

    A lost node is the cause of what its ranks and their peers suffer, so it comes first whenever it is seen: the cluster
    shows it seconds after the connections break. All else is judged as a folder of logs is (`policies/verdict.py`).
    """
    attempt = next(a for a in history.attempts if a.number == incident.attempt)
    shown = view.attempt if view.attempt is not None and view.attempt.number == attempt.number else None
    exits = tuple(e for e in shown.exits if e.wall < before) if shown else ()
    trouble = incident.trouble
    lost = _node_findings(attempt, view)
    found: Diagnosis | None = None
    if lost:
        names = tuple(f.node for f in lost if f.node is not None)
        found = Diagnosis(
            tuple(lost), names, "hardware.host", confidence=_CONFIDENCE["high"], fault=FaultClass.NODE_LOST
        )
    elif trouble.fault is FaultClass.STALL and (silent := _silent_findings(attempt, view)):
        names = tuple(f.node for f in silent if f.node is not None)
        found = Diagnosis(
            tuple(silent), names, "hardware.host", confidence=_CONFIDENCE["medium"], fault=FaultClass.NODE_SILENT
        )
    elif trouble.fault is FaultClass.NON_FINITE and (told := _numeric(attempt, view, before)):
        found = Diagnosis(told, (), "numeric")
    elif trouble.fault in _DEATHS | {FaultClass.STALL}:
        logged = [f for f in view.findings if f.attempt == attempt.number and (f.wall is None or f.wall < before)]
        kept = view.capture.stacks if view.capture is not None and view.capture.incident == incident.number else ()
        # What ends after a stall ends of it, or of our own stop.
        ended = () if trouble.fault is FaultClass.STALL else exits
        found = _judged(livecase.case(attempt, layout, logged, ended, shown, kept), attempt, ended, trouble)
        if trouble.fault in _DEATHS and (found is None or _only_ends(found)):
            found = _mute(attempt, view, layout, exits) or found
    if found is None:
        found = _as_seen(attempt, trouble)
    cascade = _cascade(exits, found.first) or found.cascade
    reason = None if found.fault is None else _FAULT_REASON.get(found.fault)
    doing = _being_done(attempt, shown, found.fault or trouble.fault) if shown else None
    step, data = doing or (None, None)
    return replace(found, cascade=cascade, reason=reason, data=data, step=step)


def _as_seen(attempt: Attempt, trouble: Trouble) -> Diagnosis:
    """Nothing says why: what was seen first is what there is."""
    if trouble.fault in _DEATHS:
        return Diagnosis()
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
    return Diagnosis((text,), trouble.nodes, text.category)


def _judged(case: Case, attempt: Attempt, exits: Sequence[RankExit], trouble: Trouble) -> Diagnosis | None:
    """The verdict on what the agents told; None in a stall that singles out nobody by anything but how far its ranks are."""
    verdict = judge(case)
    first = verdict.first
    stalled = trouble.fault is FaultClass.STALL
    if stalled and (first is None or verdict.confidence == "low"):
        return None
    if first is None or (verdict.confidence == "low" and exits):
        first = min((livecase.end(e) for e in exits if not e.clean), key=_when, default=None)
        verdict = replace(verdict, first=first, category=first.category if first else "hang.unknown", suspects=())
    if first is None:
        return Diagnosis()
    inferred = verdict.evidence == "inference"
    beside = [c for c in verdict.support if c.role == "root" and not surely_before(first, c)]
    same = tuple(dict.fromkeys(c.rank for c in (first, *beside)))
    confidence = _CONFIDENCE[verdict.confidence] if len(same) == 1 else 0.5
    return Diagnosis(
        first=tuple(_finding(attempt, c) for c in (first, *beside)),
        suspects=verdict.suspects,
        category=verdict.category,
        confidence=confidence,
        cascade=verdict.cascade.removeprefix("Then: ").rstrip("."),
        fault=None if stalled or inferred else _fault(first, verdict.category, exits),
        why=verdict.why,
        restart_ok=verdict.restart_ok,
        inferred=inferred,
    )


def _when(clue: Clue) -> tuple[float, int]:
    return (clue.earliest or inf, clue.rank if clue.rank is not None else -1)


def _fault(first: Clue, category: str, exits: Iterable[RankExit]) -> FaultClass:
    """How it counts: a rank that was killed, or whose machine failed it, or one that ended by itself."""
    own = next((e for e in exits if e.rank == first.rank and not e.clean), None)
    killed = first.kind == "exit-signal" or (
        own is not None and own.signal is not None and own.signal not in livecase.BY_ITSELF
    )
    return FaultClass.RANK_DIED if killed or category.startswith(_NOT_ITS_OWN) else FaultClass.RANK_FAILED


def _finding(attempt: Attempt, clue: Clue) -> Finding:
    timed = clue.earliest is not None and clue.latest is not None
    early, late = clue.earliest or 0.0, clue.latest or 0.0
    logged = 0 < clue.line < livecase.LATER
    return Finding(
        attempt=attempt.number,
        kind=clue.kind,
        role="root",
        category=clue.category,
        text=clue.text,
        rank=clue.rank,
        node=clue.node,
        file=clue.file if logged else None,
        line=clue.line if logged else None,
        wall=(early + late) / 2 if timed else None,
        offset_bound=(late - early) / 2 if timed else 0.0,
        blames=clue.blames,
        grade=clue.grade,
        restart=clue.restart,
        peer=clue.peer,
    )


def _numeric(attempt: Attempt, view: View, before: float) -> tuple[Finding, ...]:
    """Ranks that told of it in their own logs: the loss that the reporter tells is that of all ranks together."""
    logged = [f for f in view.findings if f.attempt == attempt.number and f.category == "numeric"]
    return earliest(f for f in logged if f.wall is None or f.wall < before)


def look_again(
    sealed: Diagnosis | None, history: History, incident: Incident, view: View, layout: Layout, before: float
) -> Diagnosis:
    """The second look, when everything is in. What was sealed stands, unless something earlier or better has come since."""
    again = diagnose(history, incident, view, layout, before)
    if sealed is None or not sealed.first or not again.first:
        return keep_earliest(sealed, again)
    exits = view.attempt.exits if view.attempt is not None and view.attempt.number == incident.attempt else ()
    logged = (livecase.clue(f, (), view.attempt) for f in view.findings if f.attempt == incident.attempt)
    fallen = livecase.victims(logged, exits)
    only_victims = all(f.kind.startswith("exit-") and f.rank in fallen for f in sealed.first)
    if only_victims or _names_it_better(again.first[0], sealed.first[0]):
        return replace(again, data=again.data or sealed.data, step=again.step or sealed.step)
    return keep_earliest(sealed, again)


def _names_it_better(one: Finding, sealed: Finding) -> bool:
    """The driver's or the kernel's word on what was seen of the same rank, or of a rank on the same node."""
    same = one.rank == sealed.rank if one.rank is not None else one.node == sealed.node
    return same and one.grade > sealed.grade


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
