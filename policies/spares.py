"""Which hot spare takes which slot: one on the same switch first, then the one checked most recently, then by name.

The same facts give the same answer, whatever order they are listed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from policies.facts import NodeState, NodeView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


NOT_CHECKED: Final = "not checked yet"
NOT_CHECKED_AGAIN: Final = "not checked again, as it was asked to"


@dataclass(frozen=True, slots=True)
class Asked:
    """The question to all spares to look at themselves anew, because of this incident. `until`: they may take so long, wall
    seconds; one whose agent came later has `check_s` from then on.
    """

    incident: int
    until: float
    check_s: float
    now: float

    def until_of(self, node: NodeView) -> float:
        """How long this node may take, for this question or for its first look."""
        return self.until if node.agent_since is None else max(self.until, node.agent_since + self.check_s)

    def is_overdue(self, node: NodeView) -> bool:
        """Has it left the question unanswered?"""
        return node.checked_for < self.incident and self.now >= self.until_of(node)


@dataclass(frozen=True, slots=True)
class Filled:
    """The new slot map and its swaps (slot, from, to)."""

    slots: tuple[str, ...]
    swaps: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True)
class Short:
    """There are fewer healthy spares than slots to fill; these slots stay without."""

    slots_without: tuple[int, ...]


def choose(
    slots: tuple[str, ...],
    failing_slots: Collection[int],
    nodes: Mapping[str, NodeView],
    barred: Collection[str],
    preferred: tuple[str, ...] = (),
    late: Collection[str] = (),
    asked: Asked | None = None,
) -> Filled | Short:
    """Fill each failing slot with a healthy spare; no other slot changes.

    `preferred` are spares that a person named, in order: they go first where they are healthy, and nothing makes an
    unhealthy node a spare. `late` are healthy nodes that are used only when no other is left. `asked`: see `why_not`.
    """
    usable = {name for name, node in nodes.items() if why_not(node, slots, barred, asked) is None}
    open_slots = sorted(set(failing_slots))
    first = tuple(name for name in dict.fromkeys(preferred) if name in usable)[: len(open_slots)]
    rest = sorted(usable.difference(first), key=lambda name: (-_checked(nodes[name]), name))
    taken: dict[int, str] = {}
    early = tuple(name for name in rest if name not in late)
    for pool in (first, early, tuple(name for name in rest if name in late)):
        left = [slot for slot in open_slots if slot not in taken]
        taken |= _assign(left, pool, {slot: _switch(nodes.get(slots[slot])) for slot in left}, nodes)
    without = tuple(slot for slot in open_slots if slot not in taken)
    if without:
        return Short(without)
    return Filled(
        slots=tuple(taken.get(slot, node) for slot, node in enumerate(slots)),
        swaps=tuple((slot, slots[slot], taken[slot]) for slot in open_slots),
    )


def why_not(node: NodeView, slots: tuple[str, ...], barred: Collection[str], asked: Asked | None = None) -> str | None:
    """Why a node is no healthy spare; None when it is one. `asked`: the question that it may not leave unanswered.

    A check that could not look is in no node's way; a node of which nobody knows whether anything was looked at is no spare.
    """
    if node.name in slots:
        return "holds a slot"
    if node.name in barred:
        return "in quarantine"
    if node.state is not NodeState.UP:
        return f"its state is {node.state}"
    if not node.agent:
        return "no agent answers there"
    if node.drained_by_other:
        return "drained by somebody else"
    if node.unhealthy:
        return f"unhealthy: {node.unhealthy[0]}"
    if node.checked_at is None:
        return NOT_CHECKED
    return NOT_CHECKED_AGAIN if asked is not None and asked.is_overdue(node) else None


def not_back(name: str, nodes: Mapping[str, NodeView]) -> str | None:
    """Why a barred node whose bar is over is no spare yet; None when only the next look is wanting."""
    return why_not(nodes[name], (), ()) if name in nodes else "not among this run's nodes"


def _assign(
    slots: list[int], pool: tuple[str, ...], switches: Mapping[int, str | None], nodes: Mapping[str, NodeView]
) -> dict[int, str]:
    """Pairs on the same switch first, over all slots, so that no slot takes the neighbour of another one."""
    taken: dict[int, str] = {}
    free = list(pool)
    for same_switch in (True, False):
        for slot in (slot for slot in slots if slot not in taken):
            match = next((n for n in free if not same_switch or _is_on(switches[slot], nodes[n])), None)
            if match is not None:
                taken[slot] = match
                free.remove(match)
    return taken


def _is_on(switch: str | None, node: NodeView) -> bool:
    """An unknown switch is nobody's neighbour."""
    return switch is not None and node.switch == switch


def _switch(node: NodeView | None) -> str | None:
    return node.switch if node else None


def _checked(node: NodeView) -> float:
    return node.checked_at if node.checked_at is not None else -inf
