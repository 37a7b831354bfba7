"""Budgets per kind of cause, and attempts that get nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import INFRASTRUCTURE, FaultClass
from policies.halting import judge
from policies.history import Attempt, Diagnosis, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import BudgetRules, Rules

NOW = 200_000.0
RULES = Rules(budget=BudgetRules(infrastructure=3, software=1, window_s=3600, no_progress_attempts=3))


def incident(number: int, fault: FaultClass, at: float = NOW, attempt: int | None = None) -> Incident:
    trouble = Trouble(fault, Reason(fault.value), at, attempt or number, died=True, text="n1 is gone")
    return Incident(number, attempt or number, trouble, Times(), frontier=0, frontier_samples=0)


def many(count: int, fault: FaultClass, at: float = NOW) -> tuple[Incident, ...]:
    return tuple(incident(n, fault, at) for n in range(1, count + 1))


@pytest.mark.parametrize("fault", FaultClass)
def test_each_class_counts_against_its_own_budget(fault: FaultClass) -> None:
    allowed = 3 if fault in INFRASTRUCTURE else 1
    assert judge(History(incidents=many(allowed, fault)), RULES, NOW) is None
    stop = judge(History(incidents=many(allowed + 1, fault)), RULES, NOW)
    assert stop is not None
    assert stop.reason is (Reason.BUDGET_INFRASTRUCTURE if fault in INFRASTRUCTURE else Reason.BUDGET_SOFTWARE)


def test_it_says_what_was_seen() -> None:
    stop = judge(History(incidents=many(4, FaultClass.NODE_LOST)), RULES, NOW)
    assert stop is not None
    assert stop.seen == (
        "4 infrastructure faults within 1 h (3 restarts allowed), the last one incident 4, node-lost: n1 is gone"
    )
    assert stop.lifts


def test_the_kinds_are_not_added_up() -> None:
    mixed = (*many(3, FaultClass.STALL), incident(4, FaultClass.RANK_FAILED))
    assert judge(History(incidents=mixed), RULES, NOW) is None


def test_the_class_is_the_diagnosis_word() -> None:
    """Two ranks that failed, because their node was lost: infrastructure."""
    found = Diagnosis(fault=FaultClass.NODE_LOST)
    incidents = tuple(replace(i, diagnosis=found) for i in many(2, FaultClass.RANK_FAILED))
    assert judge(History(incidents=incidents), RULES, NOW) is None
    assert judge(History(incidents=many(2, FaultClass.RANK_FAILED)), RULES, NOW) is not None


def test_what_lies_before_the_window_does_not_count() -> None:
    incidents = many(4, FaultClass.NODE_LOST, NOW - 3600)
    assert judge(History(incidents=incidents), RULES, NOW) is None
    assert judge(History(incidents=incidents), RULES, NOW - 1) is not None


def test_a_lifted_halt_counts_anew() -> None:
    incidents = many(4, FaultClass.NODE_LOST, NOW - 60)
    assert judge(History(incidents=incidents, resumed_at=NOW - 30), RULES, NOW) is None
    assert judge(History(incidents=incidents, resumed_at=NOW - 90), RULES, NOW) is not None


def attempts(*spans: tuple[int, int]) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(n, ("n0",), None, start, float(n), None, closed_at=100.0 * n, last_step=last)
        for n, (start, last) in enumerate(spans, 1)
    )


def failed(*spans: tuple[int, int]) -> History:
    """Closed attempts that all ended in an old incident, so that no budget counts them."""
    incidents = tuple(incident(n, FaultClass.STALL, at=0.0) for n in range(1, len(spans) + 1))
    return History(attempts=attempts(*spans), incidents=incidents)


def test_three_attempts_that_only_redo_stop_it() -> None:
    stop = judge(failed((0, 45), (40, 45), (40, 44), (40, 45)), RULES, NOW)
    assert stop is not None
    assert stop.reason is Reason.NO_PROGRESS
    assert stop.seen == "attempts 2, 3, 4 all ended at or before step 45, which had been reached before them"


def test_one_new_step_begins_the_row_anew() -> None:
    assert judge(failed((0, 45), (40, 45), (40, 46), (40, 45), (40, 45)), RULES, NOW) is None


def test_a_run_that_never_makes_a_step_stops() -> None:
    assert judge(failed((0, 0), (0, 0)), RULES, NOW) is None
    stop = judge(failed((0, 0), (0, 0), (0, 0)), RULES, NOW)
    assert stop is not None
    assert stop.reason is Reason.NO_PROGRESS


def test_a_planned_stop_and_an_open_attempt_are_nobodys_fault() -> None:
    history = failed((0, 45), (40, 45), (45, 45), (40, 45))
    planned = replace(history, incidents=tuple(i for i in history.incidents if i.attempt != 3))
    assert judge(planned, RULES, NOW) is None
    last = replace(history.attempts[-1], closed_at=None)
    assert judge(replace(history, attempts=(*history.attempts[:-1], last)), RULES, NOW) is None


def test_attempts_before_a_lifted_halt_do_not_count() -> None:
    history = failed((0, 45), (40, 45), (40, 44), (40, 45))
    assert judge(replace(history, resumed_at=200.0), RULES, NOW) is None
    assert judge(replace(history, resumed_at=199.0), RULES, NOW) is not None


def test_a_fresh_run_goes_on() -> None:
    assert judge(History(), RULES, NOW) is None
