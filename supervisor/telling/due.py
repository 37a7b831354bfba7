"""Which notice is due now, if any: pure, asked at every turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.decisions import Continue, Decision, Recover, Wait
from policies.history import History
from policies.reasons import Reason
from supervisor.telling import notices
from supervisor.telling.again import reminder
from supervisor.telling.notices import Notice, What

if TYPE_CHECKING:
    from policies.rules import Rules
    from supervisor.gate import Held
    from supervisor.telling.incident_facts import Known

LOOK_SOON: Final = notices.IN_THE_NEXT_JOB | {Reason.NO_ROOM, Reason.ARCHIVE_LATE, Reason.SAVE_UNFINISHED}
"""Reasons of a run that goes on, and will be stopped by them if nobody looks."""


def what(history: History, decision: Decision, held: Held | None) -> What | None:
    """What a person is to be told of now; whether they were told already is `due`'s to say."""
    if held is not None and (held.asks or (history.mode == "observe" and isinstance(decision, Recover))):
        return "plan"
    if history.halted is not None:
        return "halt"
    if isinstance(decision, Wait):
        return "warning" if decision.tells else None
    if isinstance(decision, Continue):
        return "warning" if decision.reason in LOOK_SOON else None
    # A pause holds what a fault would need: whoever has paused the run may not know of the fault.
    return "paused" if held is not None and history.paused and history.incident is not None else None


def due(history: History, decision: Decision, about: What, known: Known, rules: Rules) -> Notice | None:
    """The notice, or the reminder of what is open; None when that was told already."""
    if about == "warning":
        assert isinstance(decision, Continue | Wait)  # noqa: S101 - `what` says so
        return notices.warning(history, decision, known)
    if about == "paused":
        return notices.paused(history, known)
    first = notices.notice(history, about, known, rules.hold_s)
    if first is not None or (about == "plan" and history.mode == "observe"):
        return first
    return reminder(history, rules.telling, known, rules.hold_s)
