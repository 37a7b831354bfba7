"""Automation is earned, a fault class at a time."""

from __future__ import annotations

from dataclasses import replace

from policies.agreement import Agreement, by_class
from policies.facts import FaultClass
from policies.history import History, Incident, Times, Trouble
from policies.reasons import Reason
from supervisor.telling.story import run_story, to_json


def judged(count: int, fault: FaultClass = FaultClass.NODE_LOST, **what: object) -> list[Incident]:
    trouble = Trouble(fault, Reason(fault.value), 1.0, 1, True, "")
    one = Incident(1, 1, trouble, Times(), 0, 0, approved_by="li")
    return [replace(one, **what)] * count  # type: ignore[arg-type]


def test_ten_approved_as_they_were_earn_it() -> None:
    assert not by_class(judged(9))[0].earned
    assert by_class(judged(10)) == (Agreement(FaultClass.NODE_LOST, 10, 0, 0),)
    assert by_class(judged(10))[0].earned


def test_five_in_a_hundred_may_be_changed_and_none_refused() -> None:
    assert by_class([*judged(19), *judged(1, plan_changed=True)])[0].earned
    assert not by_class([*judged(18), *judged(1, plan_changed=True)])[0].earned
    refused = by_class([*judged(99), *judged(1, plan_refused=True, plan_changed=True)])[0]
    assert (refused.agreed, refused.changed, refused.wrong) == (99, 0, 1)
    assert refused.share == 0.99
    assert not refused.earned


def test_classes_are_counted_apart_and_only_what_a_person_has_judged() -> None:
    found = [*judged(1, FaultClass.STALL), *judged(2), *judged(5, approved_by=None)]
    assert [(a.fault, a.agreed) for a in by_class(found)] == [(FaultClass.NODE_LOST, 2), (FaultClass.STALL, 1)]
    assert by_class([]) == ()


def test_the_run_tells_its_agreement_a_line_a_class() -> None:
    found = (
        *judged(10),
        *judged(1, FaultClass.STALL, plan_changed=True),
        *judged(2, FaultClass.STALL, plan_refused=True),
    )
    history = History(run="demo", incidents=tuple(replace(one, number=n) for n, one in enumerate(found, 1)))
    lines = [line for line in run_story(history).splitlines() if line.startswith("Plans for")]
    assert lines == [
        "Plans for node-lost: 10 of 10 approved as they were; automation earned.",
        "Plans for stall: 0 of 3 approved as they were (1 changed first, 2 refused); automation not earned yet.",
    ]
    told = to_json(history)["agreement"]
    assert [(a["fault"], a["agreed"], a["changed"], a["wrong"], a["share"], a["earned"]) for a in told] == [
        ("node-lost", 10, 0, 0, 1.0, True),
        ("stall", 0, 1, 2, 0.0, False),
    ]
