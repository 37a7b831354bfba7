"""What nobody has answered is told again, and to more people. Pure: History and the time in, a notice out.

Reminders come after remind_s, twice that, four times that and so on, at most a day apart; after escalate_s the next circle of
people is told too, and from then on with every reminder. Nothing is ever done because nobody answered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policies.reasons import Reason
from supervisor.telling import notices
from supervisor.telling.incident_facts import Known, begin
from supervisor.telling.notices import Notice
from supervisor.telling.say import span
from supervisor.telling.told import matter

if TYPE_CHECKING:
    from policies.history import History
    from policies.rules import TellingRules

DAY_S = 86_400.0
A_PERSON_HALTED = frozenset({Reason.PERSON_HALTED, Reason.REFUSED})
"""Halts that a person made: that person knows."""


def reminder(history: History, rules: TellingRules, known: Known, hold_s: float = 0.0) -> Notice | None:
    """The newest reminder that is due for what is open and was told; None when none is, or it was told already.

    `known.now` must be there. Whether the open plan waits for a person at all is the caller's to know (the gate's word).
    """
    key, now = matter(history), known.now
    first = history.tellings.get(key or "")
    if key is None or first is None or now is None or _answered(history):
        return None
    waited = now - first.at
    due = _due(waited, rules)
    own = f"again:{due:.0f}:{key}" if due is not None else ""
    if due is None or own in history.told:
        return None
    told = replace(history, told=frozenset())  # its text is made anew: costs have grown
    again = notices.notice(told, "halt" if history.halted else "plan", known, hold_s)
    if again is None:
        return None
    state = "still halted" if history.halted else "still waiting"
    waited -= waited % (60 if waited >= 60 else 1)  # whole minutes: it is read at a glance
    title = f"relight {again.run}: {state}, {span(waited)}{_lost(history, known)}"
    escalates = 0 < rules.escalate_s <= due
    title += "; nobody has answered" if escalates else ""
    return replace(again, key=own, what="reminder", title=title, escalates=escalates)


def _answered(history: History) -> bool:
    """Has a person acted on the halt, by making it? (On a plan: then it is not open.)"""
    return history.paused or (history.halted is not None and history.halted.reason in A_PERSON_HALTED)


def _due(waited: float, rules: TellingRules) -> float | None:
    """The newest moment of the schedule that has passed, in seconds after the first notice."""
    moments = [rules.escalate_s] if 0 < rules.escalate_s <= waited else []
    if rules.remind_s > 0:
        moment, step = rules.remind_s, rules.remind_s
        while moment <= waited:
            moments.append(moment)
            moment, step = moment + step, min(2 * step, max(DAY_S, rules.remind_s))
    return max(moments, default=None)


def _lost(history: History, known: Known) -> str:
    """GPU-hours that all ranks have stood still for, since the last good update; a rank is a GPU."""
    incident = history.incidents[-1] if history.incidents else None
    if known.layout is None or known.now is None or incident is None or incident.closed:
        return ""
    hours = known.layout.world * max(0.0, known.now - begin(incident)) / 3600
    return f", {hours:,.1f} GPU-hours so far" if hours < 100 else f", {hours:,.0f} GPU-hours so far"
