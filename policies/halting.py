"""When to stop restarting: a budget per kind of cause, and attempts that get nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.facts import INFRASTRUCTURE
from policies.reasons import Reason

if TYPE_CHECKING:
    from policies.facts import Attempt, History, Incident
    from policies.rules import BudgetRules


@dataclass(frozen=True, slots=True)
class Stop:
    """Why it halts, what was seen, and what lifts it."""

    reason: Reason
    seen: str
    lifts: str


def must_stop(history: History, rules: BudgetRules, now: float, since: float | None = None) -> Stop | None:
    """Judge before a restart; None when one more is allowed. `since`: when a person last lifted a halt (wall seconds).

    The open incident counts. A budget of n allows n restarts in the window: the incident after those stops the run.
    """
    begin = now - rules.window_s
    if since is not None:
        begin = max(begin, since)
    recent = [i for i in history.incidents if i.trouble.at > begin]
    return _over_budget(recent, rules) or _no_progress(history, rules, since)


def _over_budget(recent: list[Incident], rules: BudgetRules) -> Stop | None:
    for reason, what, allowed, found in (
        (
            Reason.BUDGET_INFRASTRUCTURE,
            "infrastructure",
            rules.infrastructure,
            [i for i in recent if i.trouble.fault in INFRASTRUCTURE],
        ),
        (
            Reason.BUDGET_SOFTWARE,
            "software",
            rules.software,
            [i for i in recent if i.trouble.fault not in INFRASTRUCTURE],
        ),
    ):
        if len(found) > allowed:
            last = found[-1]
            return Stop(
                reason,
                f"{len(found)} {what} faults within {rules.window_s / 3600:g} h ({allowed} restarts allowed), "
                f"the last one incident {last.number}, {last.trouble.fault}: {last.trouble.text}",
                "a person who has found what they have in common",
            )
    return None


def _no_progress(history: History, rules: BudgetRules, since: float | None) -> Stop | None:
    """Closed attempts in a row that did not get past the furthest step of all before them.

    Steps done again are no progress. An attempt that ended as planned is nobody's fault: it neither counts nor
    breaks the row.
    """
    furthest = 0
    row: list[Attempt] = []
    for attempt in history.attempts:
        if attempt.closed_at is None:
            continue
        before = max(furthest, attempt.start_step)
        furthest = max(before, attempt.last_step)
        if furthest > before:
            row = []
        elif _ended_in_incident(history, attempt) and (since is None or attempt.closed_at > since):
            row.append(attempt)
    if len(row) < rules.no_progress_attempts:
        return None
    numbers = ", ".join(str(a.number) for a in row)
    return Stop(
        Reason.NO_PROGRESS,
        f"attempts {numbers} all ended at or before step {furthest}, which had been reached before them",
        "a person who has found what stops it there",
    )


def _ended_in_incident(history: History, attempt: Attempt) -> bool:
    """Named by an incident, or launched for one that was not closed by it."""
    return any(
        i.attempt == attempt.number or (i.number == attempt.incident and attempt.accepted_at is None)
        for i in history.incidents
    )
