"""Probation: what differs fails at once, what is equal is pending until the old frontier."""

from __future__ import annotations

import pytest

from policies.facts import AttemptView, Replay
from policies.probation import Outcome, judge
from policies.rules import ProbationRules

RULES = ProbationRules()
EQUAL = Replay(compared=28, differing=0, worst=0.0, first_differing=None, data_differing=None)


def view(frontier: int, replay: Replay | None) -> AttemptView:
    return AttemptView(3, running=True, frontier=frontier, replay=replay)


def test_pending_until_the_old_frontier() -> None:
    assert judge(view(67, EQUAL), 68, RULES) == Outcome(
        "pending", "step 67 of 68: 28 losses laid over the first pass, all equal"
    )
    assert judge(view(68, EQUAL), 68, RULES) == Outcome(
        "passed", "old frontier 68 reached: 28 losses laid over the first pass, all equal"
    )


@pytest.mark.parametrize("replay", [None, Replay(0, 0, 0.0, None, None)])
def test_nothing_to_compare_with_is_said(replay: Replay | None) -> None:
    assert judge(view(68, replay), 68, RULES).text == (
        "old frontier 68 reached: no losses of before the fault to compare with"
    )


@pytest.mark.parametrize("frontier", [50, 68])
def test_other_samples_fail(frontier: int) -> None:
    replay = Replay(28, 0, 0.0, None, data_differing=47)
    assert judge(view(frontier, replay), 68, RULES) == Outcome(
        "failed", "step 47 read other samples than before the fault"
    )


def test_other_losses_fail_beyond_what_is_allowed() -> None:
    replay = Replay(28, 2, 0.0123, 44, None)
    assert judge(view(50, replay), 68, RULES) == Outcome(
        "failed",
        "2 of 28 replayed losses differ (allowed 0), first at step 44, by 0.0123 at most (tolerance 0.001)",
    )
    lenient = ProbationRules(differing_max=2)
    assert judge(view(68, replay), 68, lenient) == Outcome(
        "passed", "old frontier 68 reached: 28 losses laid over the first pass, 2 differ, which is allowed"
    )
    assert judge(view(50, Replay(28, 3, 0.1, 44, None)), 68, lenient).state == "failed"
