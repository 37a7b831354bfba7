"""A fault that stays with its slot when the node is changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import FaultClass
from policies.history import Attempt, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import QuarantineRules
from policies.sameslot import judge, staying

RULES = QuarantineRules(soon_steps=10, soon_s=600)


def row(*nodes: str, fault: FaultClass = FaultClass.NODE_LOST, apart: float = 60.0, steps: int = 1) -> History:
    """Attempt n ran with `nodes[n]` in slot 1, and that node was blamed."""
    attempts = tuple(Attempt(n, ("n0", node, "n9"), None, 0, 0.0, None) for n, node in enumerate(nodes, 1))
    incidents = []
    for n, node in enumerate(nodes, 1):
        trouble = Trouble(fault, Reason(fault.value), n * apart, n, True, "", nodes=(node,))
        incidents.append(Incident(n, n, trouble, Times(), n * steps, 0))
    return History(attempts=attempts, incidents=tuple(incidents))


def both(history: History) -> tuple[list[str], bool]:
    """(nodes that stay in use, whether it halts)."""
    kept = list(staying(history, history.incidents, RULES))
    return kept, judge(history, history.incidents, RULES) is not None


@pytest.mark.parametrize(
    ("nodes", "kept", "halts"),
    [
        (("n1",), [], False),
        (("n1", "n1"), [], False),  # nothing was swapped: it may well be the node
        (("n1", "n3"), ["n3"], False),
        (("n1", "n1", "n3"), ["n3"], False),
        (("n1", "n3", "n4"), ["n4"], True),
        (("n1", "n3", "n3"), ["n3"], True),
        (("n1", "n3", "n1"), ["n1"], True),
    ],
)
def test_the_second_time_spares_the_node_and_the_third_halts(
    nodes: tuple[str, ...], kept: list[str], halts: bool
) -> None:
    assert both(row(*nodes)) == (kept, halts)


def test_what_was_seen_is_told() -> None:
    history = row("n1", "n3", "n4")
    stop = judge(history, history.incidents, RULES)
    assert stop is not None
    assert stop.reason is Reason.NOT_THE_NODE
    assert stop.seen == (
        "node-lost on slot 1: n1, n3 before, and n4 since the swap. It stays with the slot, not with the node"
    )


def test_late_or_far_is_another_story() -> None:
    assert both(row("n1", "n3", apart=600))[0] == []
    assert both(row("n1", "n3", steps=10))[0] == []
    assert both(row("n1", "n3", steps=-5))[0] == ["n3"]


def test_the_time_that_a_person_takes_does_not_count() -> None:
    history = row("n1", "n3", apart=6000)
    first = replace(history.incidents[0], times=Times(relaunched=11_900.0))
    assert both(replace(history, incidents=(first, history.incidents[1])))[0] == ["n3"]


def test_another_class_slot_or_attempt_breaks_the_row() -> None:
    history = row("n1", "n3")
    one, other = history.incidents
    stall = replace(one, trouble=replace(one.trouble, fault=FaultClass.STALL))
    assert both(replace(history, incidents=(stall, other)))[0] == []
    elsewhere = replace(one, trouble=replace(one.trouble, nodes=("n0",)))
    assert both(replace(history, incidents=(elsewhere, other)))[0] == []
    same = replace(one, attempt=2)
    assert both(replace(history, incidents=(same, other)))[0] == []
    nowhere = replace(other, trouble=replace(other.trouble, nodes=("spare",)))
    assert both(replace(history, incidents=(one, nowhere)))[0] == []
    unknown = replace(one, attempt=0)  # a slot map that is no longer known
    assert both(replace(history, incidents=(unknown, other)))[0] == []


def test_without_incidents_there_is_no_row() -> None:
    assert staying(History(), (), RULES) == {}
