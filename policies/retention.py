"""Which saves may go. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.facts import CheckpointPhase, CheckpointState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def by_age(states: Iterable[CheckpointState]) -> list[CheckpointState]:
    """The completed saves, the newest at the end: by attempt, then step. A late seal does not make an older save newer."""
    done = [s for s in states if s.phase is CheckpointPhase.COMPLETED]
    return sorted(done, key=lambda s: (s.attempt, s.step))


def superfluous(states: Iterable[CheckpointState], keep: int, protect: Collection[str]) -> list[CheckpointState]:
    """The completed saves beyond the newest `keep` (1 or more) that nothing needs, oldest first."""
    return [s for s in by_age(states)[:-keep] if s.id not in protect]


def choose(states: Sequence[CheckpointState], keep: int, protect: Collection[str]) -> tuple[str, ...]:
    """The ids that may be deleted, oldest first.

    Of the completed ones the newest `keep` stay (at least one), and each that is protected. Broken and abandoned ones
    go once every completed save that stays by number was begun after them: until then they may still explain a fault.
    What is in progress or can't be judged is never chosen. Raises ValueError when `keep` is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep = {keep}: the newest completed save is never deleted")
    chosen = superfluous(states, keep, protect)
    kept = by_age(states)[-keep:]
    if kept:
        oldest = min((s.attempt, s.step) for s in kept)
        useless = {CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
        chosen += [s for s in states if s.phase in useless and (s.attempt, s.step) < oldest and s.id not in protect]
    return tuple(s.id for s in sorted(chosen, key=lambda s: (s.attempt, s.step)))
