"""The way back: the newest completed checkpoint in the store, then an older one, then one in the archive.

Nothing but a completed save is ever restored from. What was passed over is listed with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.facts import EMPTY, CheckpointPhase, CheckpointState, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

MAY_STILL_COMPLETE: Final = frozenset({CheckpointPhase.NOT_YET, CheckpointPhase.FRAMEWORK_DONE})
"""Phases that only our own look can settle: waiting for it may save the work since the one before."""

GONE: Final = "was completed; no longer in the store"
GONE_SHOWN: Final = 3
"""Of those, the newest are named: over a long run most saves have been deleted as they should."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Where the ladder ends.

    `checkpoint`: restore from this one. `wait`: a newer one may still turn out to be completed.
    `from_nothing`: no save has ever been completed and none may still be, so a start from nothing loses nothing.
    `lost`: saves have been completed and none can be used: never start from nothing, ask a person.
    With a choice that can't be used, all are False and `rejected` says why.
    """

    checkpoint: CheckpointState | None
    rejected: tuple[Rejected, ...] = ()
    wait: bool = False
    from_nothing: bool = False
    lost: bool = False


def climb(
    checkpoints: tuple[CheckpointState, ...],
    choice: str | None = None,
    excluded: Mapping[str, str] = EMPTY,
    ever: tuple[str, ...] = (),
) -> Rung:
    """Choose a checkpoint.

    `choice`: the id that a person chose; it overrules `excluded`, but must be completed too. `excluded`: id -> why it
    must not be used (a verdict that was awaited too long goes here). `ever`: ids of all saves ever completed, as the
    journal has them.
    """
    if choice is not None:
        return _chosen(checkpoints, choice, ever)
    ladder = sorted(checkpoints, key=_height, reverse=True)
    best = next((c for c in ladder if _why_not(c, excluded) is None), None)
    passed = [c for c in ladder if best is None or _is_above(c, best)]
    rejected = [Rejected(c.id, _why_not(c, excluded) or "only in the archive; the store has one") for c in passed]
    # A copy in the archive is the last rung: nobody waits for it while the store has one.
    awaited = [c for c in passed if best is None or best.location == "archive" or c.location == "store"]
    wait = any(c.phase in MAY_STILL_COMPLETE and c.id not in excluded for c in awaited)
    if best is not None:
        return Rung(best, tuple(rejected), wait)
    here = {c.id for c in checkpoints}
    gone = [name for name in ever if name not in here]
    rejected += [Rejected(name, GONE) for name in reversed(gone[-GONE_SHOWN:])]
    completed_once = bool(ever) or any(c.phase is CheckpointPhase.COMPLETED for c in checkpoints)
    return Rung(
        None, tuple(rejected), wait, from_nothing=not wait and not completed_once, lost=not wait and completed_once
    )


def _chosen(checkpoints: tuple[CheckpointState, ...], choice: str, ever: tuple[str, ...]) -> Rung:
    copies = sorted((c for c in checkpoints if c.id == choice), key=_height, reverse=True)
    if not copies:
        why = GONE if choice in ever else "there is no such save"
        return Rung(None, (Rejected(choice, why),))
    best = next((c for c in copies if c.phase is CheckpointPhase.COMPLETED), None)
    if best is not None:
        return Rung(best)
    wait = any(c.phase in MAY_STILL_COMPLETE for c in copies)
    return Rung(None, (Rejected(choice, _phase_says(copies[0])),), wait)


def _height(checkpoint: CheckpointState) -> tuple[bool, int, float, int, str]:
    """The store above the archive, then by step, then by completion; the rest only makes the order total."""
    done_at = checkpoint.completed_at if checkpoint.completed_at is not None else float("-inf")
    return (checkpoint.location == "store", checkpoint.step, done_at, checkpoint.attempt, checkpoint.id)


def _is_above(checkpoint: CheckpointState, best: CheckpointState) -> bool:
    """Would it have saved more work, or been nearer, than the best?"""
    if checkpoint.location != best.location:
        return checkpoint.location == "store" or checkpoint.step > best.step
    return checkpoint.step > best.step


def _why_not(checkpoint: CheckpointState, excluded: Mapping[str, str]) -> str | None:
    """None for one that may be used."""
    if checkpoint.id in excluded:
        return excluded[checkpoint.id]
    return None if checkpoint.phase is CheckpointPhase.COMPLETED else _phase_says(checkpoint)


def _phase_says(checkpoint: CheckpointState) -> str:
    words = {
        CheckpointPhase.IN_PROGRESS: "still being written",
        CheckpointPhase.FRAMEWORK_DONE: "written, but not verified yet",
        CheckpointPhase.BROKEN: "broken",
        CheckpointPhase.NOT_YET: "not readable yet",
        CheckpointPhase.ABANDONED: "never finished",
    }[checkpoint.phase]
    return f"{words}: {'; '.join(checkpoint.reasons)}" if checkpoint.reasons else words
