"""Probation: what differs fails at once, what is equal is pending until the old frontier."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

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
    replay = Replay(28, 5, 0.0123, 44, None, close=3)
    assert judge(view(50, replay), 68, RULES) == Outcome(
        "failed",
        "3 of 16 replayed losses in a row differ (allowed 2), first at step 44, by 0.0123 at most (tolerance 0.001)",
    )
    assert judge(view(68, replace(replay, close=2)), 68, RULES) == Outcome(
        "passed", "old frontier 68 reached: 28 losses laid over the first pass, 5 differ, which is allowed"
    )
    bits = ProbationRules(loss_tolerance=0, differing_max=0)
    assert judge(view(50, Replay(5, 1, 1e-9, 44, None, close=1)), 68, bits).text.startswith("1 of 5 replayed losses")


def test_a_loss_that_is_no_longer_finite_fails() -> None:
    replay = Replay(4, 1, 1e9, 44, None, close=1, not_finite=44)
    assert judge(view(44, replay), 68, RULES) == Outcome(
        "failed", "the loss of step 44 is not finite; before the fault it was"
    )


@pytest.mark.parametrize("wrong", [{"differing_max": 0}, {"differing_max": 16}, {"window": 1}])
def test_one_loss_off_is_never_a_verdict(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="one loss off is no verdict"):
        ProbationRules(**wrong)  # type: ignore[arg-type]
