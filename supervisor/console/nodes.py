"""The wall of nodes: slots by pipeline stage and replica, spares, quarantine; each with why it is not well. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from policies import spares
from policies.facts import NodeState, NodeView
from policies.history import Bar
from policies.layout import Layout
from supervisor.console.reading import SCHEMA, Reading


@dataclass(frozen=True, slots=True)
class Place:
    """Which pipeline stages and replicas the ranks of a slot belong to."""

    pp: tuple[int, ...]
    dp: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node that is not in a slot, or the one that is. `well`: nothing is known against it; `why`: what is."""

    node: str
    state: str
    well: bool
    why: tuple[str, ...]
    unchecked: tuple[str, ...] = ()
    checked_at: float | None = None
    checks: int = 0
    since: float | None = None
    agent: bool = False
    switch: str | None = None


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot and who holds it."""

    slot: int
    first_rank: int
    ranks: int
    place: Place
    holder: NodeRow


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A barred node. `until` null: for good; once that time is over it comes back only through a check."""

    node: str
    since: float
    until: float | None
    incident: int
    reason: str
    state: str


@dataclass(frozen=True, slots=True)
class NodesDocument:
    """All nodes of a run. `known` is false where the cluster cannot be read now: then every state is unknown."""

    known: bool
    as_of: float | None
    tp: int
    pp: int
    dp: int
    slots: tuple[SlotRow, ...]
    spares: tuple[NodeRow, ...]
    quarantined: tuple[Quarantined, ...]
    past_bars: tuple[Bar, ...]
    schema: int = SCHEMA


def nodes(reading: Reading) -> NodesDocument:
    """The wall of nodes."""
    history, layout = reading.history, reading.settings.shape()
    seen = _nodes(reading)
    holders = history.attempt.slots if history.attempt else ()
    barred = history.barred(reading.now)
    suspects = _suspects(reading)
    bars = [b for b in history.bars if b.node in barred and (b.returned_at is None or b.returned_at > reading.now)]
    free = sorted(name for name in seen or {} if name not in holders and name not in barred)
    return NodesDocument(
        known=seen is not None,
        as_of=reading.status.view.cluster_as_of if reading.status else None,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        slots=tuple(
            SlotRow(
                slot=slot,
                first_rank=layout.ranks_of_slot(slot).start,
                ranks=layout.ranks_per_node,
                place=_place(layout, slot),
                holder=_row(
                    name, (seen or {}).get(name), (f"suspect of incident {suspects[name]}",) if name in suspects else ()
                ),
            )
            for slot, name in enumerate(holders[: layout.slots_needed])
        ),
        spares=tuple(_spare(seen[name], holders, barred) for name in free) if seen else (),
        quarantined=tuple(
            Quarantined(b.node, b.at, b.until, b.incident, b.reason.value, _state((seen or {}).get(b.node)))
            for b in bars
        ),
        past_bars=tuple(b for b in history.bars if b not in bars),
    )


def counts(reading: Reading) -> tuple[int | None, int | None]:
    """Slots whose node is up, and spares that could take one now; None where the nodes cannot be seen."""
    seen = _nodes(reading)
    if seen is None:
        return None, None
    holders, barred = reading.history.attempt, reading.history.barred(reading.now)
    slots = holders.slots if holders else ()
    up = sum(1 for name in slots if name in seen and seen[name].state is NodeState.UP)
    return up, sum(1 for node in seen.values() if spares.why_not(node, slots, barred) is None)


def _nodes(reading: Reading) -> dict[str, NodeView] | None:
    seen = reading.status.view.nodes if reading.status else None
    return dict(seen) if seen is not None and not isinstance(seen, str) else None


def _suspects(reading: Reading) -> dict[str, int]:
    """Nodes that the open incident blames."""
    incident = reading.history.incident
    named = incident.diagnosis.suspects if incident and incident.diagnosis else ()
    return dict.fromkeys(named, incident.number) if incident else {}


def _place(layout: Layout, slot: int) -> Place:
    places = [layout.place(rank) for rank in layout.ranks_of_slot(slot)]
    return Place(tuple(sorted({p.pp for p in places})), tuple(sorted({p.dp for p in places})))


def _state(node: NodeView | None) -> str:
    return (node.state if node else NodeState.UNKNOWN).value


def _row(name: str, node: NodeView | None, more: tuple[str, ...] = ()) -> NodeRow:
    if node is None:
        return NodeRow(name, NodeState.UNKNOWN.value, well=False, why=("not seen", *more))
    why = [f"its state is {node.state}"] if node.state is not NodeState.UP else []
    why += ["no agent answers there"] if not node.agent else []
    why += ["drained by somebody else"] if node.drained_by_other else []
    why += [*node.unhealthy, *more]
    return NodeRow(
        node=name,
        state=node.state.value,
        well=not why,
        why=tuple(why),
        unchecked=node.unchecked,
        checked_at=node.checked_at,
        checks=node.checks,
        since=node.since,
        agent=node.agent,
        switch=node.switch,
    )


def _spare(node: NodeView, holders: tuple[str, ...], barred: frozenset[str]) -> NodeRow:
    """A spare is well when it could take a slot now; the policies' own word for why not comes first."""
    row = _row(node.name, node)
    why_not = spares.why_not(node, holders, barred)
    if why_not is None or not row.well:
        return row
    return _row(node.name, node, (why_not,))
