"""Which saves may go. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.facts import CheckpointPhase, CheckpointState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def by_age(states: Iterable[CheckpointState]) -> list[CheckpointState]:
    """The completed saves, the newest at the end: by attempt, then step. A late seal does not make an older save newer."""
    done = [s for s in states if s.phase is CheckpointPhase.COMPLETED]
    return sorted(done, key=lambda s: (s.attempt, s.step))


def kept_by_number(states: Iterable[CheckpointState], keep: int) -> list[CheckpointState]:
    """The newest `keep` (1 or more) of the completed saves that are not pinned, oldest first."""
    return [s for s in by_age(states) if not s.pinned][-keep:]


def superfluous(states: Iterable[CheckpointState], keep: int, protect: Collection[str]) -> list[CheckpointState]:
    """The completed saves beyond the newest `keep` (1 or more) that nothing needs and nobody has pinned, oldest first."""
    loose = [s for s in by_age(states) if not s.pinned]
    return [s for s in loose[:-keep] if s.id not in protect]


def choose(states: Sequence[CheckpointState], keep: int, protect: Collection[str]) -> tuple[str, ...]:
    """The ids that may be deleted, oldest first.

    Of the completed ones the newest `keep` stay (at least one), and each that is protected; what is pinned stays and is
    not counted among them. Broken and abandoned ones go once every completed save that stays by number was begun after
    them: until then they may still explain a fault. What is in progress or can't be judged is never chosen.
    Raises ValueError when `keep` is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep = {keep}: the newest completed save is never deleted")
    chosen = superfluous(states, keep, protect)
    kept = kept_by_number(states, keep)
    if kept:
        oldest = min((s.attempt, s.step) for s in kept)
        useless = {CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
        old = [s for s in states if s.phase in useless and (s.attempt, s.step) < oldest]
        chosen += [s for s in old if not s.pinned and s.id not in protect]
    return tuple(s.id for s in sorted(chosen, key=lambda s: (s.attempt, s.step)))


def stays_because(
    state: CheckpointState, states: Sequence[CheckpointState], keep: int, protect: Mapping[str, str]
) -> str:
    """Why `choose` leaves this one, in words for people. `protect`: id -> why nothing may take it away."""
    if state.pinned:
        return "pinned"
    if state.id in protect:
        return protect[state.id]
    match state.phase:
        case CheckpointPhase.COMPLETED:
            number = len(kept_by_number(states, keep))
            return "the newest completed one" if number == 1 else f"one of the newest {number} completed ones"
        case CheckpointPhase.BROKEN | CheckpointPhase.ABANDONED:
            return "not older than the completed ones that stay: it may still explain a fault"
        case CheckpointPhase.NOT_YET:
            return "it can't be judged now"
        case CheckpointPhase.FRAMEWORK_DONE:
            return "it is not sealed yet"
        case CheckpointPhase.IN_PROGRESS:
            return "it is being written"
