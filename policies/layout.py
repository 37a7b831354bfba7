"""Ranks in groups, ranks in slots, slots on nodes; and the proof that a swap moved nothing but the swapped nodes.

The layout is fixed for a run. A rank's place follows from its number alone (Megatron's order: tensor parallel ranks
are neighbours, then data parallel, then pipeline), so a spare that takes a slot takes over that slot's places.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final, Literal

from policies.facts import Place

Kind = Literal["tp", "dp", "pp"]
KINDS: Final[tuple[Kind, ...]] = ("tp", "dp", "pp")
ORDERS: Final = ("tp-dp-pp",)
FAULTS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """TP x PP x DP ranks, `ranks_per_node` of them in a slot, slot after slot in rank order.

    Raises ValueError, with what would be right, when the sizes are not positive, the ranks do not fill whole nodes,
    or the order is not one that is known here.
    """

    tp: int
    pp: int
    dp: int
    ranks_per_node: int
    order: str = "tp-dp-pp"

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ranks_per_node"):
            if getattr(self, name) < 1:
                raise ValueError(f"layout.{name} = {getattr(self, name)}: must be at least 1")
        if self.order not in ORDERS:
            raise ValueError(f"layout.order = {self.order!r}: not known; the one that is known is {ORDERS[0]!r}")
        if self.world % self.ranks_per_node:
            raise ValueError(
                f"layout.dp = {self.dp}: {self.tp} x {self.pp} x {self.dp} ranks do not fill nodes of "
                f"{self.ranks_per_node}. Did you mean dp = {_next_dp(self.tp * self.pp, self.dp, self.ranks_per_node)}?"
            )

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.tp * self.pp * self.dp

    @property
    def slots_needed(self) -> int:
        """The number of nodes that hold a slot."""
        return self.world // self.ranks_per_node

    def place(self, rank: int) -> Place:
        """The coordinates of a rank. ValueError outside 0..world-1."""
        self._check(rank, self.world, "rank")
        return Place(tp=rank % self.tp, pp=rank // (self.tp * self.dp), dp=rank // self.tp % self.dp)

    def rank(self, place: Place) -> int:
        """The rank at these coordinates. ValueError outside the layout."""
        self._check(place.tp, self.tp, "tp")
        self._check(place.pp, self.pp, "pp")
        self._check(place.dp, self.dp, "dp")
        return place.tp + self.tp * (place.dp + self.dp * place.pp)

    def slot_of(self, rank: int) -> int:
        """The slot that holds a rank. ValueError outside 0..world-1."""
        self._check(rank, self.world, "rank")
        return rank // self.ranks_per_node

    def ranks_of_slot(self, slot: int) -> range:
        """The ranks of a slot. ValueError outside 0..slots_needed-1."""
        self._check(slot, self.slots_needed, "slot")
        return range(slot * self.ranks_per_node, (slot + 1) * self.ranks_per_node)

    def groups(self, kind: Kind) -> tuple[tuple[int, ...], ...]:
        """All groups of one kind, as ranks: those that differ in that coordinate only, ordered by it."""
        tp, dp = self.tp, self.dp
        stage = tp * dp  # ranks of one pipeline stage
        if kind == "tp":
            return tuple(tuple(range(first, first + tp)) for first in range(0, self.world, tp))
        if kind == "dp":
            return tuple(
                tuple(range(first + t, first + stage, tp)) for first in range(0, self.world, stage) for t in range(tp)
            )
        return tuple(tuple(range(first, self.world, stage)) for first in range(stage))

    @staticmethod
    def _check(value: int, below: int, what: str) -> None:
        if not 0 <= value < below:
            raise ValueError(f"{what} {value} is outside 0..{below - 1}")


def _next_dp(ranks_of_replica: int, dp: int, ranks_per_node: int) -> int:
    """The smallest dp not below the given one whose ranks fill whole nodes."""
    unit = ranks_per_node // gcd(ranks_of_replica, ranks_per_node)
    return -(-dp // unit) * unit


@dataclass(frozen=True, slots=True)
class SwapProof:
    """What a swap changed: (slot, from, to). It is good when `groups_same` holds and there are no faults."""

    changed: tuple[tuple[int, str, str], ...]
    groups_same: bool
    faults: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Nothing changed but the nodes of the changed slots."""
        return self.groups_same and not self.faults


def prove_swap(layout: Layout, before: tuple[str, ...], after: tuple[str, ...]) -> SwapProof:
    """Compare two slot maps (node of slot 0, 1, ...).

    The groups are compared by node names: with every newcomer's name put back to the name of the node that it
    relieved, each TP, PP and DP group must be the very same list as before. A node that moved to another slot is no
    newcomer, so its groups differ.
    """
    faults = [
        f"the map {when} has {len(nodes)} slots; the layout has {layout.slots_needed}"
        for when, nodes in (("before", before), ("after", after))
        if len(nodes) != layout.slots_needed
    ]
    if faults:
        return SwapProof(changed=(), groups_same=False, faults=tuple(faults))
    changed = tuple((slot, old, new) for slot, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    was_at = {node: slot for slot, node in reversed(tuple(enumerate(before)))}
    faults += _held_twice("before", before) + _held_twice("after", after)
    faults += [f"{new} moved from slot {was_at[new]} to slot {slot}" for slot, _, new in changed if new in was_at]
    if len(faults) > FAULTS_SHOWN:
        faults[FAULTS_SHOWN:] = [f"and {len(faults) - FAULTS_SHOWN} more"]
    relieved = {new: old for _, old, new in changed if new not in was_at}
    back = tuple(relieved.get(node, node) for node in after)
    return SwapProof(changed, _node_groups(layout, before) == _node_groups(layout, back), tuple(faults))


def _held_twice(when: str, nodes: tuple[str, ...]) -> list[str]:
    first: dict[str, int] = {}
    faults = []
    for slot, node in enumerate(nodes):
        if node in first:
            faults.append(f"{when} the swap {node} holds slot {first[node]} and slot {slot}")
        else:
            first[node] = slot
    return faults


def _node_groups(layout: Layout, nodes: tuple[str, ...]) -> list[list[str]]:
    """Every TP, DP and PP group as the list of the nodes that its ranks sit on."""
    node_of = [nodes[rank // layout.ranks_per_node] for rank in range(layout.world)]
    return [[node_of[rank] for rank in group] for kind in KINDS for group in layout.groups(kind)]
