"""The layout holds together for every shape; a proof accepts exactly the swaps that move nobody else."""

from __future__ import annotations

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.layout import KINDS, Layout, prove_swap

REPEATABLE = settings(derandomize=True, max_examples=150, deadline=None)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, pp, dp = (draw(st.integers(1, 6)) for _ in range(3))
    world = tp * pp * dp
    return Layout(tp, pp, dp, draw(st.sampled_from([n for n in range(1, world + 1) if world % n == 0])))


@REPEATABLE
@given(layouts())
def test_rank_and_place_are_each_others_inverse(layout: Layout) -> None:
    places = [layout.place(rank) for rank in range(layout.world)]
    assert len(set(places)) == layout.world
    assert [layout.rank(place) for place in places] == list(range(layout.world))


@REPEATABLE
@given(layouts())
def test_groups_are_a_partition_that_differs_in_one_coordinate(layout: Layout) -> None:
    for kind in KINDS:
        groups = layout.groups(kind)
        assert sorted(chain.from_iterable(groups)) == list(range(layout.world))
        for group in groups:
            places = [layout.place(rank) for rank in group]
            assert [getattr(p, kind) for p in places] == list(range(getattr(layout, kind)))
            others = {tuple(getattr(p, k) for k in KINDS if k != kind) for p in places}
            assert len(others) == 1


@REPEATABLE
@given(layouts())
def test_every_rank_is_in_its_slot(layout: Layout) -> None:
    for slot in range(layout.slots_needed):
        assert all(layout.slot_of(rank) == slot for rank in layout.ranks_of_slot(slot))


@REPEATABLE
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 40), st.integers(1, 16))
def test_the_dp_that_is_suggested_fits(tp: int, pp: int, dp: int, ranks_per_node: int) -> None:
    try:
        Layout(tp, pp, dp, ranks_per_node)
    except ValueError as error:
        wanted = int(str(error).rpartition("dp = ")[2].rstrip("?"))
        assert wanted > dp
        assert Layout(tp, pp, wanted, ranks_per_node).world % ranks_per_node == 0
        for smaller in range(dp, wanted):
            assert tp * pp * smaller % ranks_per_node
    else:
        assert tp * pp * dp % ranks_per_node == 0


@REPEATABLE
@given(layouts(), st.data())
def test_a_proof_accepts_exactly_fresh_nodes_in_place(layout: Layout, data: st.DataObject) -> None:
    count = layout.slots_needed
    before = tuple(f"n{i}" for i in range(count))
    names = st.sampled_from([*before, "s0", "s1", "s2"])
    after = tuple(data.draw(st.one_of(st.just(name), names)) for name in before)
    fresh = all(new == old or new not in before for old, new in zip(before, after, strict=True))
    proof = prove_swap(layout, before, after)
    assert proof.good == (fresh and len(set(after)) == count)
    assert proof.changed == tuple(
        (slot, old, new) for slot, (old, new) in enumerate(zip(before, after, strict=True)) if old != new
    )
