"""After acceptance, until the old frontier is passed: the replayed steps against those of before the fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from policies.facts import AttemptView, Replay
    from policies.rules import ProbationRules


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where probation stands, in a sentence for people."""

    state: Literal["pending", "passed", "failed"]
    text: str


def judge(attempt: AttemptView, frontier: int, rules: ProbationRules) -> Outcome:
    """Judge the steps up to `frontier`, the last step that had been done before the fault.

    Other samples, a loss that is no longer finite, and more losses off the band than may be in a row of steps fail at
    once: one loss that is off never does, unless the same bits are asked for. What is equal so far is pending until the
    frontier is reached.
    """
    fault = _fault(attempt.replay, rules) if attempt.replay else None
    if fault:
        return Outcome("failed", fault)
    laid_over = _laid_over(attempt.replay)
    if attempt.frontier < frontier:
        return Outcome("pending", f"step {attempt.frontier} of {frontier}: {laid_over}")
    return Outcome("passed", f"old frontier {frontier} reached: {laid_over}")


def _fault(replay: Replay, rules: ProbationRules) -> str | None:
    if replay.data_differing is not None:
        return f"step {replay.data_differing} read other samples than before the fault"
    if replay.not_finite is not None:
        return f"the loss of step {replay.not_finite} is not finite; before the fault it was"
    if replay.close > rules.differing_max:
        return (
            f"{replay.close} of {min(rules.window, replay.compared)} replayed losses in a row differ "
            f"(allowed {rules.differing_max}), first at step {replay.first_differing}, by {replay.worst:.3g} at most "
            f"(tolerance {rules.loss_tolerance:.3g})"
        )
    return None


def _laid_over(replay: Replay | None) -> str:
    if replay is None or replay.compared == 0:
        return "no losses of before the fault to compare with"
    if replay.differing:
        return f"{replay.compared} losses laid over the first pass, {replay.differing} differ, which is allowed"
    return f"{replay.compared} losses laid over the first pass, all equal"
