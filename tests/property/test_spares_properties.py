"""A filled map is always legal, never depends on listing order, and matches as many switches as can be matched."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import NodeState, NodeView
from policies.layout import Layout, prove_swap
from policies.spares import Filled, Short, choose, why_not

REPEATABLE = settings(derandomize=True, max_examples=200, deadline=None)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[tuple[str, ...], list[int], list[NodeView], frozenset[str], tuple[str, ...]]:
    count = draw(st.integers(1, 5))
    slots = tuple(f"n{i}" for i in range(count))
    names = [*slots, *(f"s{i}" for i in range(draw(st.integers(0, 5))))]
    nodes = [
        NodeView(
            name,
            draw(st.sampled_from([NodeState.UP, NodeState.UP, *NodeState])),
            0.0,
            agent=draw(st.integers(0, 4)) > 0,
            checked_at=draw(st.one_of(st.none(), st.sampled_from([1.0, 2.0]))),
            drained_by_other=draw(st.integers(0, 6)) == 0,
            switch=draw(st.sampled_from(["a", "b", None])),
        )
        for name in names
    ]
    failing = draw(st.lists(st.integers(0, count - 1), unique=True))
    barred = draw(st.frozensets(st.sampled_from(names), max_size=2))
    preferred = tuple(draw(st.lists(st.sampled_from([*names, "gone"]), max_size=3)))
    return slots, failing, nodes, barred, preferred


@REPEATABLE
@given(clusters(), st.randoms(use_true_random=False))
def test_what_is_filled_is_legal(cluster: tuple, order: object) -> None:
    slots, failing, nodes, barred, preferred = cluster
    view = {n.name: n for n in nodes}
    answer = choose(slots, failing, view, barred, preferred)
    order.shuffle(nodes)
    assert choose(slots, failing[::-1], {n.name: n for n in nodes}, barred, preferred) == answer
    healthy = {n.name for n in nodes if why_not(n, slots, barred) is None}
    if isinstance(answer, Short):
        assert len(answer.slots_without) == len(failing) - len(healthy)
        return
    assert len(healthy) >= len(failing)
    layout = Layout(tp=1, pp=1, dp=len(slots), ranks_per_node=1)
    proof = prove_swap(layout, slots, answer.slots)
    assert proof.good
    assert proof.changed == answer.swaps
    assert [slot for slot, _, _ in answer.swaps] == sorted(failing)
    taken = {new for _, _, new in answer.swaps}
    assert taken <= healthy
    wanted = [name for name in dict.fromkeys(preferred) if name in healthy]
    assert set(wanted[: len(failing)]) <= taken


@REPEATABLE
@given(clusters())
def test_as_many_stay_on_their_switch_as_can(cluster: tuple) -> None:
    slots, failing, nodes, barred, _ = cluster
    view = {n.name: n for n in nodes}
    answer = choose(slots, failing, view, barred)
    if isinstance(answer, Filled):
        lost = Counter(view[slots[slot]].switch for slot in failing)
        offered = Counter(n.switch for n in nodes if why_not(n, slots, barred) is None)
        stayed = sum(view[old].switch == view[new].switch is not None for _, old, new in answer.swaps)
        assert stayed == sum(min(lost[s], offered[s]) for s in ("a", "b"))
