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
ONLY_ARCHIVED: Final = "only in the archive; the store has one"
GONE_SHOWN: Final = 3
"""Of those, the newest are named: over a long run most saves have been deleted as they should."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Where the ladder ends.

    `checkpoint`: restore from this one. `wait`: a newer one may still turn out to be completed.
    `from_nothing`: no save has ever been completed and none may still be, so a start from nothing loses nothing.
    `lost`: saves have been completed and none can be used: never start from nothing, ask a person.
    `unseen`: the store has none, and the archive can't be read: nothing is known to be lost, and nothing to be there.
    With a choice that can't be used, all are False and `rejected` says why.
    """

    checkpoint: CheckpointState | None
    rejected: tuple[Rejected, ...] = ()
    wait: bool = False
    from_nothing: bool = False
    lost: bool = False
    unseen: bool = False


def climb(
    checkpoints: tuple[CheckpointState, ...],
    choice: str | None = None,
    excluded: Mapping[str, str] = EMPTY,
    ever: tuple[str, ...] = (),
    *,
    unfit: tuple[Rejected, ...] = (),
    blind: bool = False,
) -> Rung:
    """Choose a checkpoint among those of the store and the copies in the archive.

    `choice`: the id that a person chose; it overrules `excluded`, but must be completed too. `excluded`: id -> why it
    must not be used (a verdict that was awaited too long goes here). `ever`: ids of all saves ever completed, as the
    journal has them. `unfit`: what could not be made ready; in the store, the archive's copy may still be good; in the
    archive, neither is. `blind`: the archive can't be read.
    """
    had = {c.id for c in checkpoints if c.location == "store" and c.phase is CheckpointPhase.COMPLETED}
    known = tuple(c for c in checkpoints if c.location == "store" or c.id not in had)
    if choice is not None:
        return _chosen(known, choice, ever, blind=blind)
    why = {(c.id, c.location): _why_not(c, excluded, unfit) for c in known}
    ladder = sorted(known, key=_height, reverse=True)
    best = next((c for c in ladder if why[c.id, c.location] is None), None)
    passed = [c for c in ladder if best is None or _is_above(c, best)]
    rejected = [Rejected(c.id, why[c.id, c.location] or ONLY_ARCHIVED, c.location) for c in passed]
    # A copy in the archive is the last rung: nobody waits for it while the store has one.
    awaited = [c for c in passed if best is None or best.location == "archive" or c.location == "store"]
    wait = any(c.phase in MAY_STILL_COMPLETE and c.id not in excluded for c in awaited)
    here = {c.id for c in known}
    gone = [Rejected(name, GONE) for name in _after(ever, best) if name not in here]
    rejected += reversed(gone[-GONE_SHOWN:])
    if best is not None:
        return Rung(best, tuple(rejected), wait)
    completed_once = bool(ever) or any(c.phase is CheckpointPhase.COMPLETED for c in known)
    none = not wait and not blind
    return Rung(
        None,
        tuple(rejected),
        wait,
        from_nothing=none and not completed_once,
        lost=none and completed_once,
        unseen=blind and not wait,
    )


def _after(ever: tuple[str, ...], best: CheckpointState | None) -> tuple[str, ...]:
    """Of the saves ever completed, those that a start from `best` gives up: none where it comes from the store."""
    if best is None:
        return ever
    if best.location == "store":
        return ()
    return ever[ever.index(best.id) + 1 :] if best.id in ever else ever


def _chosen(checkpoints: tuple[CheckpointState, ...], choice: str, ever: tuple[str, ...], *, blind: bool) -> Rung:
    copies = sorted((c for c in checkpoints if c.id == choice), key=_height, reverse=True)
    best = next((c for c in copies if c.phase is CheckpointPhase.COMPLETED), None)
    if best is not None:
        return Rung(best)
    wait = any(c.phase in MAY_STILL_COMPLETE for c in copies)
    if not copies:
        rejected = (Rejected(choice, GONE if choice in ever else "there is no such save"),)
    else:
        rejected = (Rejected(choice, _phase_says(copies[0]), copies[0].location),)
    return Rung(None, rejected, wait, unseen=blind and not wait)


def _height(checkpoint: CheckpointState) -> tuple[bool, int, float, int, str]:
    """The store above the archive, then by step, then by completion; the rest only makes the order total."""
    done_at = checkpoint.completed_at if checkpoint.completed_at is not None else float("-inf")
    return (checkpoint.location == "store", checkpoint.step, done_at, checkpoint.attempt, checkpoint.id)


def _is_above(checkpoint: CheckpointState, best: CheckpointState) -> bool:
    """Would it have saved more work, or been nearer, than the best?"""
    if checkpoint.location != best.location:
        return checkpoint.location == "store" or checkpoint.step > best.step
    return checkpoint.step > best.step


def _why_not(checkpoint: CheckpointState, excluded: Mapping[str, str], unfit: tuple[Rejected, ...]) -> str | None:
    """None for one that may be used."""
    if checkpoint.id in excluded:
        return excluded[checkpoint.id]
    for one in unfit:
        if one.id == checkpoint.id and (one.location == "archive" or checkpoint.location == "store"):
            return one.why
    return None if checkpoint.phase is CheckpointPhase.COMPLETED else _phase_says(checkpoint)


def _phase_says(checkpoint: CheckpointState) -> str:
    if checkpoint.location == "archive" and checkpoint.phase is CheckpointPhase.IN_PROGRESS:
        return "its copy is not complete"
    words = {
        CheckpointPhase.IN_PROGRESS: "still being written",
        CheckpointPhase.FRAMEWORK_DONE: "written, but not verified yet",
        CheckpointPhase.BROKEN: "broken",
        CheckpointPhase.NOT_YET: "not readable yet",
        CheckpointPhase.ABANDONED: "never finished",
    }[checkpoint.phase]
    return f"{words}: {'; '.join(checkpoint.reasons)}" if checkpoint.reasons else words
