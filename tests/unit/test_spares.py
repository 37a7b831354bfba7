"""Which spare takes which slot, and which node is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import NodeState, NodeView
from policies.spares import Filled, Short, choose, why_not

SLOTS = ("n0", "n1", "n2", "n3")


def node(name: str, checked_at: float | None = 100.0, switch: str | None = "a", **more: object) -> NodeView:
    up = NodeView(name, NodeState.UP, since=0.0, agent=True, checked_at=checked_at, switch=switch)
    return replace(up, **more)  # type: ignore[arg-type]


def world(*spares: NodeView, switches: str = "aabb") -> dict[str, NodeView]:
    held = [node(name, switch=switch) for name, switch in zip(SLOTS, switches, strict=True)]
    return {n.name: n for n in (*held, *spares)}


def test_the_same_switch_comes_before_a_fresher_check() -> None:
    nodes = world(node("s0", 900.0, "a"), node("s1", 1.0, "b"))
    assert choose(SLOTS, [2], nodes, ()) == Filled(("n0", "n1", "s1", "n3"), ((2, "n2", "s1"),))


def test_then_the_freshest_check_then_the_name() -> None:
    nodes = world(node("s2", 1.0, "c"), node("s1", 5.0, "c"), node("s0", 5.0, "c"), node("s3", 4.0, "c"))
    filled = choose(SLOTS, [0, 1, 2, 3], nodes, ())
    assert isinstance(filled, Filled)
    assert filled.slots == ("s0", "s1", "s3", "s2")


def test_no_slot_takes_the_neighbour_of_another() -> None:
    nodes = world(node("s0", 900.0, "b"), node("s1", 1.0, "c"))
    filled = choose(SLOTS, [0, 2], nodes, ())
    assert isinstance(filled, Filled)
    assert filled.slots == ("s1", "n1", "s0", "n3")


def test_unknown_switches_are_no_neighbours() -> None:
    nodes = world(node("s0", 1.0, None), node("s1", 2.0, "z")) | {"n0": node("n0", switch=None)}
    filled = choose(SLOTS, [0], nodes, ())
    assert isinstance(filled, Filled)
    assert filled.slots[0] == "s1"


def test_the_failing_node_may_be_gone_from_sight() -> None:
    nodes = world(node("s0"))
    del nodes["n1"]
    assert choose(SLOTS, [1], nodes, ()) == Filled(("n0", "s0", "n2", "n3"), ((1, "n1", "s0"),))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"state": NodeState.SILENT}, "its state is silent"),
        ({"state": NodeState.DOWN}, "its state is down"),
        ({"state": NodeState.UNKNOWN}, "its state is unknown"),
        ({"agent": False}, "no agent answers there"),
        ({"drained_by_other": True}, "drained by somebody else"),
    ],
)
def test_an_unhealthy_node_is_no_spare(fault: dict[str, object], why: str) -> None:
    nodes = world(node("s0", **fault))
    assert choose(SLOTS, [1], nodes, (), ("s0",)) == Short((1,))
    assert why_not(nodes["s0"], SLOTS, ()) == why


def test_nodes_barred_or_in_a_slot_are_no_spares() -> None:
    nodes = world(node("s0"))
    assert choose(SLOTS, [1], nodes, {"s0"}, ("s0", "n2", "s7")) == Short((1,))
    assert why_not(nodes["s0"], SLOTS, {"s0"}) == "in quarantine"
    assert why_not(nodes["n2"], SLOTS, {"s0"}) == "holds a slot"


def test_one_spare_for_two_slots_is_short() -> None:
    assert choose(SLOTS, [3, 1], world(node("s0", switch="b")), ()) == Short((1,))


def test_a_person_goes_first() -> None:
    nodes = world(node("s0", 900.0, "a"), node("s1", 1.0, "c"), node("s2", 0.0, "c"))
    filled = choose(SLOTS, [0], nodes, (), ("s2", "s1", "s2"))
    assert filled == Filled(("s2", "n1", "n2", "n3"), ((0, "n0", "s2"),))


def test_the_rest_follows_a_persons_choice() -> None:
    nodes = world(node("s0", 900.0, "a"), node("s1", 1.0, "c"))
    filled = choose(SLOTS, [0, 1], nodes, (), ("s1",))
    assert isinstance(filled, Filled)
    assert filled.slots == ("s1", "s0", "n2", "n3")


def test_nothing_to_fill_changes_nothing() -> None:
    assert choose(SLOTS, [], world(), ()) == Filled(SLOTS, ())


def test_a_node_on_probation_is_the_last_to_be_taken() -> None:
    """Even on the same switch and with the freshest check; named by a person, or alone, it is taken."""
    nodes = world(node("s0", 900.0, "a"), node("s1", 1.0, "c"))
    for preferred, failing, slots in (
        ((), [0], ("s1", "n1", "n2", "n3")),
        (("s0",), [0], ("s0", "n1", "n2", "n3")),
        ((), [0, 1], ("s1", "s0", "n2", "n3")),
    ):
        filled = choose(SLOTS, failing, nodes, (), preferred, late={"s0"})
        assert isinstance(filled, Filled)
        assert filled.slots == slots
