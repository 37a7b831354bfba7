"""Looking at the store: what every save is now. Nothing is hashed and nothing is changed here."""

from __future__ import annotations

import os
from collections.abc import Callable

from policies.facts import CheckpointPhase, CheckpointState
from slurm.cluster import Unreadable
from supervisor.checkpoints import pins, places, posix, scrubbing
from supervisor.checkpoints.framework import framework_done
from supervisor.checkpoints.manifest import Committed, CommittedReader, UnsoundError, counters_of, read_outcome
from supervisor.checkpoints.places import Place
from supervisor.checkpoints.tree import SaveId, Tree, attempt_of, step_of
from supervisor.errors import NotRestorable


class Looker:
    """Sees the saves of one store. `clock` gives wall seconds; `settle_s` as in `sealing.Terms`."""

    def __init__(self, tree: Tree, clock: Callable[[], float], settle_s: float) -> None:
        self._tree = tree
        self._clock = clock
        self._settle_s = settle_s
        self._committed = CommittedReader()

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every save that is known and not deleted, in the order in which they were begun. Hashes nothing.

        A store that has vanished, or was never made, is Unreadable; never empty.
        """
        try:
            deleted = set(os.listdir(self._tree.deleted))
            saves = {parse_or_none(name) for name in os.listdir(self._tree.seals)}
            attempts = sorted(os.listdir(self._tree.saves))
            copied = places.spoken_of(self._tree)
        except OSError as error:
            return Unreadable(f"{self._tree.root}: {posix.why(error)}")
        hidden = []
        for name in attempts:
            found, state = self._saves_of(name)
            saves |= found
            hidden += [state] if state else []
        known = {save for save in saves if save is not None and str(save) not in deleted} | copied
        self._committed.forget_all_but(known)
        hidden = [state for state in hidden if state.id not in deleted]
        # A save that was deleted may have come back from the archive; a copy of it that is broken is nothing to show.
        shown = [
            s for s in map(self._look_safely, known) if s.id not in deleted or s.phase is not CheckpointPhase.BROKEN
        ]
        looked = [*shown, *hidden]
        states = sorted(pins.marked(self._tree, looked), key=lambda s: (s.attempt, s.step))
        try:
            self.require_folders()
        except OSError as error:
            return Unreadable(f"{self._tree.root}: {posix.why(error)}")
        return tuple(states)

    def _saves_of(self, name: str) -> tuple[set[SaveId | None], CheckpointState | None]:
        """The saves in one attempt's folder; a folder that can't be read stands as one save that can't be judged."""
        attempt = attempt_of(name)
        if attempt is None:
            return set(), None
        try:
            steps = [step_of(entry) for entry in os.listdir(self._tree.attempt_saves(attempt))]
        except FileNotFoundError:
            return set(), None
        except OSError as error:
            return set(), plain(SaveId(attempt, 0), CheckpointPhase.NOT_YET, posix.why(error))
        return {SaveId(attempt, step) for step in steps if step is not None}, None

    def require_folders(self) -> None:
        """Raises OSError when the store has vanished: each of its names would then look as if it had never been."""
        for path in (self._tree.saves, self._tree.seals, self._tree.deleted):
            os.stat(path)

    def state(self, save: SaveId) -> CheckpointState:
        """Where one save stands; NOT_YET when the store has vanished."""
        (state,) = pins.marked(self._tree, [self._look_safely(save)])
        try:
            self.require_folders()
        except OSError as error:
            return plain(save, CheckpointPhase.NOT_YET, posix.why(error))
        return state

    def _look_safely(self, save: SaveId) -> CheckpointState:
        try:
            return self._look(save)
        except OSError as error:
            return plain(save, CheckpointPhase.NOT_YET, posix.why(error))

    def _look(self, save: SaveId) -> CheckpointState:
        place = places.find(self._tree, save)
        if place.kind == "restored":
            return self._look_at_committed(save, place)
        if posix.exists(self._tree.tombstone(save)):
            return plain(save, CheckpointPhase.BROKEN, "deleted by retention")
        marks = set(posix.names_in(place.marks))
        if not marks and (copy := places.condemned(self._tree, save)) is not None:
            return plain(save, CheckpointPhase.BROKEN, *self._reasons(copy, places.BROKEN))
        for mark, phase in (("ABANDONED", CheckpointPhase.ABANDONED), ("BROKEN", CheckpointPhase.BROKEN)):
            if mark in marks:
                return plain(save, phase, *self._reasons(place, mark))
        if "COMMITTED" in marks:
            return self._look_at_committed(save, place)
        framework = framework_done(place.data)
        phase = CheckpointPhase.FRAMEWORK_DONE if framework.done else CheckpointPhase.IN_PROGRESS
        reasons = () if framework.done else (framework.why,)
        return CheckpointState(str(save), save.attempt, save.step, phase, framework.at, reasons=reasons)

    def _look_at_committed(self, save: SaveId, place: Place) -> CheckpointState:
        try:
            committed = self._committed.read(save, place)
        except UnsoundError as error:
            return plain(save, CheckpointPhase.BROKEN, *map(str, error.args))
        manifest = committed.manifest
        # One listing, no stat a file: a scan costs the same for 8 shards and for 5,120.
        gone = sorted(set(manifest.files) - set(posix.names_in(place.data)))
        phase = CheckpointPhase.COMPLETED
        reasons = tuple(f"{name} is written in the view, not in the data" for name in manifest.repairs)
        if gone:
            young = self._clock() - committed.settled_at < self._settle_s
            away = places.is_away(place)
            phase = CheckpointPhase.NOT_YET if young or away else CheckpointPhase.BROKEN
            reasons = (f"{len(gone)} of {len(manifest.files)} files are gone, {gone[0]!r} first",)
            if away:
                reasons = (f"{place.data}: not there; it was deleted, or its file system is not mounted",)
        return CheckpointState(
            str(save),
            save.attempt,
            save.step,
            phase,
            saved_at=manifest.saved_at,
            completed_at=committed.completed_at,
            manifest_hash=committed.sha256,
            counters=counters_of(manifest),
            reasons=reasons,
            bytes=manifest.bytes,
            limited=manifest.limited,
            archived=posix.exists(place.mark("ARCHIVED")),
            read_at=scrubbing.read_at(place.mark(scrubbing.READ)),
        )

    def _reasons(self, place: Place, mark: str) -> tuple[str, ...]:
        try:
            return read_outcome(place.mark(mark)).reasons
        except UnsoundError as error:
            return tuple(map(str, error.args))

    def read_committed(self, save: SaveId) -> Committed:
        """The manifest of a save that is COMPLETED. Raises NotRestorable for any other."""
        state = self.state(save)
        if state.phase is not CheckpointPhase.COMPLETED:
            unsure = state.phase in {CheckpointPhase.NOT_YET, CheckpointPhase.FRAMEWORK_DONE}
            raise NotRestorable(f"{save} is {state.phase}", *state.reasons, not_yet=unsure)
        try:
            return self._committed.read(save, places.find(self._tree, save))
        except OSError as error:
            raise NotRestorable(posix.why(error), not_yet=True) from error
        except UnsoundError as error:
            raise NotRestorable(*map(str, error.args)) from error


def parse_or_none(name: str) -> SaveId | None:
    """The save of this id; None for another name."""
    try:
        return SaveId.parse(name)
    except ValueError:
        return None


def plain(save: SaveId, phase: CheckpointPhase, *reasons: str) -> CheckpointState:
    """A state of which nothing more is known."""
    return CheckpointState(str(save), save.attempt, save.step, phase, reasons=reasons)
