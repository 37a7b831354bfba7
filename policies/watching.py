"""The rules for a run that trains: is it back, and what will become a fault if nobody looks. Pure."""

from __future__ import annotations

from policies import archiving
from policies.decisions import Continue, Decision, Wait
from policies.detect import stall_at
from policies.reasons import Reason
from policies.situation import Situation
from policies.unfinished import unfinished


def accept(s: Situation) -> Decision | None:
    """The attempt is launched, and has not proved yet that it is really back."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or attempt.accepted_at is not None:
        return None
    until = attempt.intended_at + s.rules.node.launch_s
    shown = s.shown
    launching = shown is None or len(shown.started) < s.layout.world
    stalled = stall_at(s.history, s.view, s.rules)
    until = until if launching else (stalled or until)
    return Wait(Reason.LAUNCHING if launching else Reason.ACCEPTING, max(until, s.now + 0.1))


def room(s: Situation) -> Decision | None:
    """Will the next save find room? Told while there is time; nothing more is deleted for it."""
    attempt, costs, free = s.history.attempt, s.history.save_costs, s.view.store_free_bytes
    if attempt is None or attempt.closed_at is not None or s.history.incident or not costs or free is None:
        return None
    wanted = s.rules.checkpoint.room_factor * costs[-1].bytes
    if free >= wanted:
        return None
    last = f"{costs[-1].id} took {costs[-1].bytes / 1e9:.3g} GB"
    text = f"The store has {free / 1e9:.3g} GB free; {last}, the next save wants {wanted / 1e9:.3g} GB"
    return Continue(Reason.NO_ROOM, stall_at(s.history, s.view, s.rules), text)


def archive_late(s: Situation) -> Decision | None:
    """The daily copy has failed for two days: told, and nothing is stopped for it."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or s.history.incident:
        return None
    text = archiving.late(s.view, s.history, s.rules, s.now)
    return Continue(Reason.ARCHIVE_LATE, stall_at(s.history, s.view, s.rules), text) if text else None


def save_unfinished(s: Situation) -> Decision | None:
    """A save takes far longer than the others did: told, and nothing is stopped for it."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or s.history.incident:
        return None
    text = unfinished(s.view, s.history, s.rules, s.now)
    return Continue(Reason.SAVE_UNFINISHED, stall_at(s.history, s.view, s.rules), text) if text else None


def watch_probation(s: Situation) -> Decision | None:
    """Back, but not yet past the old frontier."""
    last = s.history.incidents[-1] if s.history.incidents else None
    if last is None or not last.closed or last.times.caught_up is not None or last.times.next_good is None:
        return None
    return Continue(Reason.PROBATION, stall_at(s.history, s.view, s.rules))
