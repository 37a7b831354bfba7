"""The reference layout in process: TP8 x PP8 x DP80 on 640 nodes of 8, and a spare that takes one slot at a time."""

from __future__ import annotations

import random
import time

from policies import spares
from policies.facts import NodeState, NodeView
from policies.layout import KINDS, Layout, prove_swap
from supervisor.bench.proofs.work import Work

LAYOUT = Layout(tp=8, pp=8, dp=80, ranks_per_node=8)
SPARES = 16
SWAPS = 200


def prove(work: Work) -> None:
    """Groups, swaps, and swaps that are wrong."""
    _groups(work)
    rng = random.Random(work.seed)
    slots = tuple(f"n{i:04d}" for i in range(LAYOUT.slots_needed))
    nodes = {
        name: NodeView(name, NodeState.UP, 0.0, agent=True, checked_at=rng.uniform(0, 60))
        for name in (*slots, *(f"s{i:04d}" for i in range(SPARES)))
    }
    began, good = time.perf_counter(), 0
    for _ in range(SWAPS):
        slot = rng.randrange(LAYOUT.slots_needed)
        filled = spares.choose(slots, [slot], nodes, frozenset({slots[slot]}))
        if isinstance(filled, spares.Short):
            continue
        proof = prove_swap(LAYOUT, slots, filled.slots)
        good += proof.good and [one[0] for one in proof.changed] == [slot]
    took = (time.perf_counter() - began) / SWAPS
    work.measured |= {"swaps": SWAPS, "ms_per_swap": round(took * 1e3, 2)}
    work.check(f"{SWAPS} swaps (seed {work.seed}): the proof finds the one slot changed, each time", ok=good == SWAPS)
    _wrong_swaps(work, rng, slots)


def _groups(work: Work) -> None:
    sizes = {"tp": (640, 8), "dp": (64, 80), "pp": (640, 8)}
    for kind in KINDS:
        groups = LAYOUT.groups(kind)
        whole = sorted(rank for group in groups for rank in group) == list(range(LAYOUT.world))
        as_told = (len(groups), len(groups[0])) == sizes[kind] and len({len(g) for g in groups}) == 1
        alike = all(_differ_only_in(kind, group) for group in groups)
        work.check(
            f"{kind}: {len(groups)} groups of {len(groups[0])} hold each rank once", ok=whole and as_told and alike
        )


def _differ_only_in(kind: str, group: tuple[int, ...]) -> bool:
    places = [LAYOUT.place(rank) for rank in group]
    others = {tuple(getattr(p, k) for k in KINDS if k != kind) for p in places}
    return len(others) == 1 and [getattr(p, kind) for p in places] == list(range(len(group)))


def _wrong_swaps(work: Work, rng: random.Random, slots: tuple[str, ...]) -> None:
    """The proof is seen to refuse: two nodes that changed places, and one node in two slots."""
    refused = 0
    for _ in range(20):
        a, b = rng.sample(range(LAYOUT.slots_needed), 2)
        crossed, twice = list(slots), list(slots)
        crossed[a], crossed[b] = slots[b], slots[a]
        twice[a] = slots[b]
        refused += not prove_swap(LAYOUT, slots, tuple(crossed)).good
        refused += not prove_swap(LAYOUT, slots, tuple(twice)).good
    work.check("40 wrong swaps are refused: places exchanged, a node in two slots", ok=refused == 40)
