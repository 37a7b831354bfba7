"""A save that was judged and is no way back: told when that is seen, not only when a fault asks for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.facts import UNKNOWN, CheckpointPhase

if TYPE_CHECKING:
    from policies.facts import CheckpointState, View
    from policies.history import History

_JUDGED = frozenset({CheckpointPhase.COMPLETED, CheckpointPhase.BROKEN})


@dataclass(frozen=True, slots=True)
class BrokenSave:
    """The newest save of the attempt, broken; `before` is the newest completed one that there is."""

    save: CheckpointState
    before: str | None


def newest_broken(view: View, history: History) -> BrokenSave | None:
    """The newest judged save of the newest attempt where it is broken; None where it is whole, and before there is any."""
    attempt = history.attempt
    if attempt is None or view.checkpoints is UNKNOWN:
        return None
    judged = [one for one in view.checkpoints if one.phase in _JUDGED]
    newest = max((one for one in judged if one.attempt == attempt.number), key=lambda one: one.step, default=None)
    if newest is None or newest.phase is not CheckpointPhase.BROKEN:
        return None
    whole = [one for one in judged if one.phase is CheckpointPhase.COMPLETED]
    before = max(whole, key=lambda one: (one.attempt, one.step), default=None)
    return BrokenSave(newest, before.id if before else None)
