"""However a run fails, the number of restarts within the window stays bounded, and progress is never punished."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import INFRASTRUCTURE, FaultClass
from policies.halting import judge
from policies.history import Attempt, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import BudgetRules, Rules

REPEATABLE = settings(derandomize=True, max_examples=200, deadline=None)
faults = st.lists(st.tuples(st.sampled_from(FaultClass), st.integers(1, 300), st.integers(-3, 3)), max_size=25)


@REPEATABLE
@given(faults, st.integers(0, 4), st.integers(0, 4), st.integers(1, 4))
def test_a_run_restarted_until_told_to_stop(
    story: list[tuple[FaultClass, int, int]], infrastructure: int, software: int, row: int
) -> None:
    budget = BudgetRules(infrastructure=infrastructure, software=software, window_s=1000, no_progress_attempts=row)
    history, now, furthest, idle, allowed = History(), 0.0, 0, 0, []
    for number, (fault, wait, gain) in enumerate(story, 1):
        now += wait
        attempt = Attempt(number, ("n0",), None, 0, now - 1, None, closed_at=now, last_step=max(0, furthest + gain))
        idle = 0 if attempt.last_step > furthest else idle + 1
        furthest = max(furthest, attempt.last_step)
        trouble = Trouble(fault, Reason(fault.value), now, number, died=True, text="")
        history = replace(
            history,
            attempts=(*history.attempts, attempt),
            incidents=(*history.incidents, Incident(number, number, trouble, Times(), 0, 0)),
        )
        stop = judge(history, Rules(budget=budget), now)
        recent = [f for f, at in [*allowed, (fault, now)] if at > now - 1000]
        hardware = sum(f in INFRASTRUCTURE for f in recent)
        if stop is not None:
            assert stop.reason in {Reason.BUDGET_INFRASTRUCTURE, Reason.BUDGET_SOFTWARE, Reason.NO_PROGRESS}
            assert hardware > infrastructure or len(recent) - hardware > software or idle >= row
            return
        assert hardware <= infrastructure
        assert len(recent) - hardware <= software
        assert idle < row
        allowed.append((fault, now))
