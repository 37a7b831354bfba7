"""The layout: Megatron's order, sizes that do not fit, and the proof of a swap against planted faults."""

from __future__ import annotations

import pytest

from policies.facts import Place
from policies.layout import FAULTS_SHOWN, Layout, prove_swap

SMALL = Layout(tp=2, pp=2, dp=2, ranks_per_node=2)
FOUR = ("n0", "n1", "n2", "n3")


def test_the_order_is_that_of_the_contract() -> None:
    """tp = r % TP, dp = (r // TP) % DP, pp = r // (TP x DP)."""
    layout = Layout(tp=4, pp=3, dp=5, ranks_per_node=4)
    for rank in range(layout.world):
        assert layout.place(rank) == Place(tp=rank % 4, pp=rank // 20, dp=rank // 4 % 5)


def test_the_groups_of_eight_ranks() -> None:
    assert SMALL.groups("tp") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert SMALL.groups("dp") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert SMALL.groups("pp") == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_slots_hold_ranks_in_order() -> None:
    assert SMALL.slots_needed == 4
    assert SMALL.slot_of(5) == 2
    assert tuple(SMALL.ranks_of_slot(2)) == (4, 5)


@pytest.mark.parametrize(("field", "value"), [("tp", 0), ("pp", -1), ("dp", 0), ("ranks_per_node", 0)])
def test_a_size_below_one_is_named(field: str, value: int) -> None:
    sizes = {"tp": 2, "pp": 2, "dp": 2, "ranks_per_node": 2} | {field: value}
    with pytest.raises(ValueError, match=rf"layout\.{field} = {value}: must be at least 1"):
        Layout(**sizes)


def test_ranks_that_do_not_fill_nodes_get_a_dp_that_does() -> None:
    with pytest.raises(ValueError, match=r"layout\.dp = 79: 2 x 2 x 79 ranks .* nodes of 8\. Did you mean dp = 80\?"):
        Layout(tp=2, pp=2, dp=79, ranks_per_node=8)
    assert Layout(tp=2, pp=2, dp=80, ranks_per_node=8).slots_needed == 40


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"layout\.order = 'pp-dp-tp': not known; the one that is known is 'tp-dp-pp'"):
        Layout(tp=1, pp=1, dp=1, ranks_per_node=1, order="pp-dp-tp")


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_outside_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=rf"rank {rank} is outside 0\.\.7"):
        SMALL.place(rank)
    with pytest.raises(ValueError, match=rf"rank {rank} is outside 0\.\.7"):
        SMALL.slot_of(rank)
    with pytest.raises(ValueError, match="slot 4 is outside"):
        SMALL.ranks_of_slot(4)


@pytest.mark.parametrize("place", [Place(2, 0, 0), Place(0, 2, 0), Place(0, 0, -1)])
def test_a_place_outside_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="is outside"):
        SMALL.rank(place)


def test_a_swap_of_one_node_is_good() -> None:
    proof = prove_swap(SMALL, FOUR, ("n0", "n9", "n2", "n3"))
    assert proof.changed == ((1, "n1", "n9"),)
    assert proof.good


def test_no_change_is_good() -> None:
    assert prove_swap(SMALL, FOUR, FOUR).good


def test_two_nodes_that_changed_places_are_caught() -> None:
    proof = prove_swap(SMALL, FOUR, ("n1", "n0", "n2", "n3"))
    assert not proof.groups_same
    assert proof.faults == ("n1 moved from slot 1 to slot 0", "n0 moved from slot 0 to slot 1")


def test_ranks_that_shift_up_are_caught() -> None:
    """What a launcher does that numbers the nodes anew: the spare comes last, and everybody after the gap moves."""
    proof = prove_swap(SMALL, FOUR, ("n0", "n2", "n3", "n9"))
    assert not proof.groups_same
    assert proof.faults == ("n2 moved from slot 2 to slot 1", "n3 moved from slot 3 to slot 2")


def test_a_node_in_two_slots_is_caught() -> None:
    proof = prove_swap(SMALL, FOUR, ("n0", "n0", "n2", "n3"))
    assert "after the swap n0 holds slot 0 and slot 1" in proof.faults
    assert not proof.good
    proof = prove_swap(SMALL, FOUR, ("n9", "n9", "n2", "n3"))
    assert "after the swap n9 holds slot 0 and slot 1" in proof.faults
    assert not prove_swap(SMALL, ("n0", "n0", "n2", "n3"), FOUR).good


def test_a_map_of_another_length_is_caught() -> None:
    proof = prove_swap(SMALL, FOUR, FOUR[:3])
    assert proof.faults == ("the map after has 3 slots; the layout has 4",)
    assert not proof.good


def test_many_faults_are_counted() -> None:
    layout = Layout(tp=1, pp=1, dp=20, ranks_per_node=1)
    before = tuple(f"n{i}" for i in range(20))
    proof = prove_swap(layout, before, (*before[1:], before[0]))
    assert len(proof.faults) == FAULTS_SHOWN + 1
    assert proof.faults[-1] == "and 12 more"
    eight = prove_swap(layout, before, (*before[1:8], before[0], *before[8:]))
    assert len(eight.faults) == FAULTS_SHOWN


def test_the_reference_run() -> None:
    """TP8 PP8 DP80 on 640 nodes: 5,120 ranks; one swap changes one slot."""
    layout = Layout(tp=8, pp=8, dp=80, ranks_per_node=8)
    assert (layout.world, layout.slots_needed) == (5120, 640)
    assert [len(layout.groups(kind)) for kind in ("tp", "pp", "dp")] == [640, 640, 64]
    before = tuple(f"n{i:04d}" for i in range(640))
    after = (*before[:417], "n0643", *before[418:])
    proof = prove_swap(layout, before, after)
    assert proof.changed == ((417, "n0417", "n0643"),)
    assert proof.good
