"""When a save is copied into the archive, comes back from it, and is read again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from policies.decisions import Recover, Restores
from policies.facts import UNKNOWN, CheckpointPhase
from policies.retention import by_age

if TYPE_CHECKING:
    from policies.facts import CheckpointState, View
    from policies.history import History
    from policies.rules import Rules

AHEAD_S: Final = 3600.0
"""Clocks of two hosts differ by seconds; a time that is further ahead of ours is of a clock that was set wrong."""
LATE: Final = 2
"""So many times `archive_every_s` without a copy, and a person is told."""


@dataclass(frozen=True, slots=True)
class Due:
    """Something to be done with a save, from this moment on (wall seconds)."""

    checkpoint: str
    at: float


def is_calm(history: History) -> bool:
    """Does the run train, so that nobody waits for the store or the archive?"""
    attempt = history.attempt
    trains = attempt is not None and attempt.accepted_at is not None and attempt.closed_at is None
    open_plan = isinstance(history.decision, Recover)
    return trains and not (history.incident or history.halted or history.ended or open_plan)


def to_archive(view: View, history: History, rules: Rules, now: float = inf) -> Due | None:
    """The save to copy next, and when; None while there is none, or it can't be seen what there is.

    A copy that was begun is finished, though a newer save has been completed since: the next one has its own day. One
    that has failed gives way to the newest.
    """
    if not view.has_archive or view.checkpoints is UNKNOWN or view.archive is UNKNOWN:
        return None
    there = {c.id for c in view.archive if c.phase is CheckpointPhase.COMPLETED}
    saves = [c.id for c in by_age(view.checkpoints)]
    done = [name for name in saves if name not in there]
    if not saves or saves[-1] in there:
        return None  # nothing was completed since the last copy
    begun = [n for n in done if (intent := history.intents.get(f"archive:{n}")) and not intent.failed]
    last = last_copy(view, history, now)
    return Due(
        begun[-1] if begun else done[-1], 0.0 if last is None or begun else last + rules.checkpoint.archive_every_s
    )


def last_copy(view: View, history: History, now: float = inf) -> float | None:
    """When the last copy was seen to be there; of a run whose journal does not know, when its newest save was completed.

    A time that is far ahead was told by a clock that was wrong: nobody waits for it.
    """
    copies = () if view.archive is UNKNOWN else view.archive
    known = [c.completed_at for c in copies if c.phase is CheckpointPhase.COMPLETED and c.completed_at is not None]
    told = [history.archived.at] if history.archived else []
    return max([at for at in (*known, *told) if at <= now + AHEAD_S], default=None)


def to_read(view: View, rules: Rules) -> Due | None:
    """The completed save in the store whose last full reading is the oldest, and when it is read again.

    Its seal was the first reading.
    """
    saves = () if view.checkpoints is UNKNOWN else view.checkpoints
    known = [(_read_at(c), c.id) for c in saves if c.phase is CheckpointPhase.COMPLETED and c.location == "store"]
    at, checkpoint = min(known, default=(0.0, ""))
    return Due(checkpoint, at + rules.checkpoint.reread_every_s) if checkpoint else None


def _read_at(one: CheckpointState) -> float:
    return max(one.read_at or 0.0, one.completed_at or 0.0)


def late(view: View, history: History, rules: Rules, now: float) -> str:
    """What a person is told when no copy has come into the archive for too long; empty while all is well."""
    newest = () if view.checkpoints is UNKNOWN else by_age(view.checkpoints)[-1:]
    there = () if view.archive is UNKNOWN else tuple(c.id for c in view.archive)
    if not view.has_archive or not newest or newest[-1].archived or newest[-1].id in there:
        return ""
    last = last_copy(view, history, now)
    begun = (at for at in (history.started_at, history.resumed_at) if at is not None and at <= now + AHEAD_S)
    since = max(last or 0.0, *begun, 0.0)
    every = rules.checkpoint.archive_every_s
    if now - since < LATE * every:
        return ""
    hours = f"{(now - since) / 3600:.0f} h"
    why = view.archive_why or next(
        (text for key, text in (*view.delays, *view.failures) if key.startswith("archive:")), ""
    )
    what = "The last copy in the archive is older than" if last is not None else "The archive has no copy after"
    return f"{what} {hours}; one is made every {every / 3600:.3g} h" + (f". It says: {why}" if why else "")


def restores(one: CheckpointState, view: View, history: History) -> Restores:
    """What comes back from the archive, and how long that takes at the pace of the last drill, or copy in either direction."""
    known = [
        c for c in (*history.restored[-1:], history.archived, view.drilled) if c is not None and c.took_s and c.bytes
    ]
    newest = max(known, key=lambda c: c.at, default=None)
    about = one.bytes * newest.took_s / newest.bytes if newest is not None and newest.took_s else None
    return Restores(one.bytes, about)


def no_room(one: CheckpointState, view: View, history: History, rules: Rules) -> str:
    """Why a copy can't come back now, and what to free; empty when it fits.

    The next save must still find room beside it; where a person has chosen this copy, it only has to fit itself.
    """
    free = view.store_free_bytes
    beside = 0.0 if history.choice.checkpoint == one.id else rules.checkpoint.room_factor
    wanted = one.bytes * (1 + beside)
    if free is None or free >= wanted or _is_begun(one, history):
        return ""
    void = {CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
    useless = [c.id for c in (() if view.checkpoints is UNKNOWN else view.checkpoints) if c.phase in void]
    what = f", for instance what is broken or abandoned: {', '.join(useless[-3:])}" if useless else ""
    return (
        f"{one.id} can only come from the archive, and needs {wanted / 1e9:.3g} GB in the store with the next save; "
        f"{free / 1e9:.3g} GB are free. Free {(wanted - free) / 1e9:.3g} GB{what}"
    )


def _is_begun(one: CheckpointState, history: History) -> bool:
    """What has come so far takes room already."""
    return f"restore:{one.id}" in history.intents
