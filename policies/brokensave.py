"""A save that was judged and is no way back: told when that is seen, not only when a fault asks for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.facts import UNKNOWN, CheckpointPhase
from policies.rollback import way_back

if TYPE_CHECKING:
    from policies.facts import CheckpointState
    from policies.ladder import Rung
    from policies.situation import Situation

_JUDGED = frozenset({CheckpointPhase.COMPLETED, CheckpointPhase.BROKEN})


@dataclass(frozen=True, slots=True)
class BrokenSave:
    """The newest save of the attempt, broken; `back` is where a fault would lead now."""

    save: CheckpointState
    back: Rung


def newest_broken(s: Situation) -> BrokenSave | None:
    """The newest judged save of the newest attempt where it is broken; None where it is whole, and before there is any."""
    attempt, found = s.history.attempt, s.view.checkpoints
    if attempt is None or found is UNKNOWN:
        return None
    judged = [one for one in found if one.attempt == attempt.number and one.phase in _JUDGED]
    newest = max(judged, key=lambda one: one.step, default=None)
    if newest is None or newest.phase is not CheckpointPhase.BROKEN:
        return None
    return BrokenSave(newest, way_back(s))
