"""When to stop restarting: the same data or slot again, a loss that stays off, a budget that is spent, no progress."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from policies import samedata, sameslot
from policies.facts import INFRASTRUCTURE, FaultClass
from policies.reasons import Reason
from policies.stop import Stop

if TYPE_CHECKING:
    from policies.history import Attempt, History, Incident
    from policies.rules import BudgetRules, Rules

__all__ = ["Stop", "counting", "judge"]


def judge(history: History, rules: Rules, now: float) -> Stop | None:
    """Judge before a restart; None when one more is allowed. Nothing from before a person last lifted a halt counts.

    The open incident counts. A budget of n allows n restarts in the window: the incident after those stops the run.
    """
    found = counting(history)
    recent = [i for i in found if i.trouble.at > now - rules.budget.window_s]
    return (
        samedata.judge(found, rules.data)
        or _loss_off(found)
        or sameslot.judge(history, found, rules.quarantine)
        or _over_budget(recent, rules.budget)
        or _no_progress(history, rules.budget, _lifted(history))
    )


def barren_jobs(history: History, rules: BudgetRules) -> Stop | None:
    """Jobs in a row that the run has left by itself, each without a completed save: one more would do the same steps again."""
    job = history.job
    if job is None or job.barren < rules.no_progress_attempts or _lifted(history) >= job.at:
        return None
    return Stop(
        Reason.NO_PROGRESS,
        f"{job.barren} jobs in a row were trained in and left for the next one, and none has completed a save",
        "a longer time limit, or quicker starts and saves",
    )


def counting(history: History) -> tuple[Incident, ...]:
    """The incidents that count: those since a person last lifted a halt."""
    return tuple(i for i in history.incidents if i.trouble.at > _lifted(history))


def _lifted(history: History) -> float:
    return history.resumed_at if history.resumed_at is not None else -inf


def _loss_off(found: tuple[Incident, ...]) -> Stop | None:
    """Two probations in a row that failed on the same stretch: the second follows the first, so it did the same steps again."""
    if len(found) < 2:
        return None
    before, now = found[-2:]
    if {before.fault, now.fault} != {FaultClass.PROBATION} or now.follows != before.number:
        return None
    return Stop(
        Reason.LOSS_OFF,
        f"Attempt {before.attempt}: {before.trouble.text}; attempt {now.attempt}: {now.trouble.text}. "
        f"The same steps up to {now.frontier}, twice, and twice off",
        "a person who has found which of the passes is wrong, or goes back to an older checkpoint",
    )


def _over_budget(recent: list[Incident], rules: BudgetRules) -> Stop | None:
    for reason, what, allowed, found in (
        (
            Reason.BUDGET_INFRASTRUCTURE,
            "infrastructure",
            rules.infrastructure,
            [i for i in recent if i.fault in INFRASTRUCTURE],
        ),
        (
            Reason.BUDGET_SOFTWARE,
            "software",
            rules.software,
            [i for i in recent if i.fault not in INFRASTRUCTURE],
        ),
    ):
        if len(found) > allowed:
            last = found[-1]
            return Stop(
                reason,
                f"{len(found)} {what} faults within {rules.window_s / 3600:g} h ({allowed} restarts allowed), "
                f"the last one incident {last.number}, {last.fault}: {last.trouble.text}",
                "a person who has found what they have in common",
            )
    return None


def _no_progress(history: History, rules: BudgetRules, lifted: float) -> Stop | None:
    """Closed attempts in a row that did not get past the furthest step of all before them.

    Steps done again are no progress. An attempt that ended as planned is nobody's fault: it neither counts nor
    breaks the row.
    """
    failed = {i.attempt for i in history.incidents}
    furthest = 0
    row: list[Attempt] = []
    for attempt in history.attempts:
        if attempt.closed_at is None:
            continue
        before = max(furthest, attempt.start_step)
        furthest = max(before, attempt.last_step)
        if furthest > before:
            row = []
        elif attempt.number in failed and attempt.closed_at > lifted:
            row.append(attempt)
    if len(row) < rules.no_progress_attempts:
        return None
    numbers = ", ".join(str(a.number) for a in row)
    return Stop(
        Reason.NO_PROGRESS,
        f"attempts {numbers} all ended at or before step {furthest}, which had been reached before them",
        "a person who has found what stops it there",
    )
