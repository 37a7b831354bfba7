"""The checkpoint store on a POSIX file system that all nodes share.

A verdict has three values. What was read in full and is wrong is BROKEN; what could not be read is NOT_YET, with the
reason; only what was checked to the end and marked so is COMPLETED.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from policies.facts import CheckpointPhase, CheckpointState, Expected
from slurm.cluster import Unreadable
from supervisor.checkpoints import posix, publishing, retention, sealing, views
from supervisor.checkpoints.framework import framework_done
from supervisor.checkpoints.manifest import (
    Committed,
    CommittedReader,
    Outcome,
    UnsoundError,
    expected_of,
    read_outcome,
)
from supervisor.checkpoints.tree import SaveId, Tree, attempt_of, step_of

SETTLE_S = 60.0
"""Seconds that a missing name or a short file may be a lagging cache: NFS keeps attributes for up to 60 s."""
DEEP_LIMIT = 256 << 30
"""Bytes up to which a view reads all content again: about 4 minutes at the 1.2 GB/s of one cold reader."""
SAMPLE_BYTES = 8 << 30


class NotRestorable(Exception):  # noqa: N818  # the name is the verdict, as the contract has it
    """No attempt may start from this save. `not_yet`: it could not be judged; otherwise it was and is no good."""

    def __init__(self, *reasons: str, not_yet: bool = False) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
        self.not_yet = not_yet


class PosixStore:
    """One run's saves under `root`. `world` ranks write each; `clock` gives wall seconds.

    `settle_s` should be near 0 where the file system is local. `step` is called at each boundary of a change.
    Methods may be called from several threads and processes at once. Ids are `aNNNN-iNNNNNNN`; another text raises
    ValueError.
    """

    def __init__(
        self,
        root: str,
        world: int,
        clock: Callable[[], float],
        *,
        settle_s: float = SETTLE_S,
        threads: int | None = None,
        step: posix.Step = posix.no_step,
    ) -> None:
        self._tree = Tree(os.path.abspath(root))
        self._world = world
        self._clock = clock
        self._settle_s = settle_s
        self._threads = threads or min(16, 2 * (os.cpu_count() or 1))
        self._step = step
        self._committed = CommittedReader(self._tree)

    # --- looking -------------------------------------------------------------------------------------------------

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every save that is known and not deleted, in the order in which they were begun. Hashes nothing.

        A store that has vanished, or was never made, is Unreadable; never empty.
        """
        try:
            deleted = set(os.listdir(self._tree.deleted))
            saves = {_parse(name) for name in os.listdir(self._tree.seals)}
            attempts = sorted(os.listdir(self._tree.saves))
        except OSError as error:
            return Unreadable(f"{self._tree.root}: {posix.why(error)}")
        hidden = []
        for name in attempts:
            found, state = self._saves_of(name)
            saves |= found
            hidden += [state] if state else []
        known = {save for save in saves if save is not None and str(save) not in deleted}
        self._committed.forget_all_but(known)
        hidden = [state for state in hidden if state.id not in deleted]
        states = sorted([*map(self._look_safely, known), *hidden], key=lambda s: (s.attempt, s.step))
        try:
            self._require_folders()
        except OSError as error:
            return Unreadable(f"{self._tree.root}: {posix.why(error)}")
        return tuple(states)

    def state(self, checkpoint: str) -> CheckpointState:
        """Where one save stands."""
        return self._state(SaveId.parse(checkpoint))

    def expected(self, checkpoint: str) -> Expected:
        """What every rank must have loaded. Raises NotRestorable."""
        return expected_of(self._read_committed(SaveId.parse(checkpoint)))

    def latest(self) -> str | None:
        """The id that the pointer names; None when there is none. Raises OSError."""
        return publishing.read_latest(self._tree)

    def free_bytes(self) -> int | None:
        """Room that is left for us, in bytes; None when it can't be seen."""
        try:
            found = os.statvfs(self._tree.root)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def room_for_next(self, factor: float) -> bool:
        """Is there room for `factor` times the save completed last? What can't be seen is no room."""
        free, states = self.free_bytes(), self.scan()
        if free is None or isinstance(states, Unreadable):
            return False
        done = retention.completion_order(states)
        return free >= factor * done[-1].bytes if done else free > 0

    # --- changing ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the folders (0700), or leave what is there; bring list and pointer up to the marks. Raises OSError."""
        os.makedirs(self._tree.root, mode=0o700, exist_ok=True)
        for path in (self._tree.seals, self._tree.views, self._tree.deleted, self._tree.saves):
            posix.make_folder(path)
        publishing.publish(self._tree, self._step)

    def begin(self, checkpoint: str) -> bool:
        """Note that a save has begun; True when this call noted it. Raises OSError, ValueError for a deleted id."""
        save = SaveId.parse(checkpoint)
        if posix.exists(self._tree.tombstone(save)):
            raise ValueError(f"{checkpoint} was deleted; an id is never used again")
        posix.make_folder(self._tree.seal(save))
        body = f'{{"schema":1,"id":"{save}","began_at":{self._clock()!r}}}\n'
        return posix.create_whole(self._tree.mark(save, "IN_PROGRESS"), body.encode(), self._step)

    def save_dir(self, attempt: int) -> str:
        """Make the folder that an attempt saves under, and return its path. Raises OSError."""
        path = self._tree.attempt_saves(attempt)
        posix.make_folder(path)
        return path

    def seal(self, checkpoint: str) -> CheckpointState:
        """Check a save to the end and settle what it is.

        It may be killed anywhere and called again, by several at once: all end with the same. Never raises OSError.
        """
        save = SaveId.parse(checkpoint)
        try:
            self._require_folders()
            if posix.exists(self._tree.tombstone(save)):
                return _plain(save, CheckpointPhase.BROKEN, "deleted by retention")
            standing = sealing.standing_outcome(self._tree, save)
            return self._settle(save, standing or self._verdict(save))
        except sealing.UnfinishedError as error:
            return _plain(save, CheckpointPhase.IN_PROGRESS, *error.reasons)
        except (sealing.NotYetError, UnsoundError) as error:
            return _plain(save, CheckpointPhase.NOT_YET, *map(str, error.args))
        except OSError as error:
            return _plain(save, CheckpointPhase.NOT_YET, posix.why(error))

    def abandon(self, checkpoint: str, why: str) -> CheckpointState:
        """Give a save up for good: its attempt is fenced and the framework had not finished. Returns what stands.

        Whatever appears in its folder later, it is never sealed. A save that was settled before stays as it is.
        Raises OSError, UnsoundError.
        """
        return self._settle(SaveId.parse(checkpoint), Outcome(outcome="ABANDONED", reasons=(why,)))

    def condemn(self, checkpoint: str, *reasons: str) -> CheckpointState:
        """Mark a save as broken, also a completed one whose content was found changed. Raises OSError, UnsoundError."""
        save = SaveId.parse(checkpoint)
        wanted = Outcome(outcome="BROKEN", reasons=sealing.shorten(reasons))
        self._settle(save, wanted)
        posix.create_whole(self._tree.mark(save, "BROKEN"), wanted.to_bytes(), self._step)
        publishing.publish(self._tree, self._step)
        return self._state(save)

    def make_view(
        self,
        attempt: int,
        checkpoint: str | None,
        *,
        deep: bool = True,
        deep_limit: int = DEEP_LIMIT,
        sample_bytes: int = SAMPLE_BYTES,
    ) -> str:
        """Check the save again, make the directory that the attempt loads from, and return its path.

        All content is read when `deep` and the save has at most `deep_limit` bytes; else a sample of `sample_bytes`.
        None makes an empty view: a start from nothing. Raises NotRestorable, views.ViewTakenError, OSError.
        """
        save = SaveId.parse(checkpoint) if checkpoint is not None else None
        if save is not None:
            self._require_sound(save, attempt, deep, deep_limit, sample_bytes)
        views.build(self._tree, attempt, save, self._step)
        return self._tree.view(attempt)

    def drop_view(self, attempt: int) -> None:
        """Remove a view; only for an attempt that was never launched, as when the plan has changed. Raises OSError."""
        views.drop(self._tree, attempt)

    def views(self) -> frozenset[int] | Unreadable:
        """The attempts whose view is whole."""
        try:
            return views.standing(self._tree)
        except OSError as error:
            return Unreadable(f"views: {posix.why(error)}")

    def retain(self, keep: int, protect: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Delete what is no longer needed (see `retention.choose`) and return its ids; finish earlier deletions.

        Each is first named in `deleted/`, from which moment nobody sees it as completed; then it leaves the list; then
        its data goes. What can't be removed now is tried again by the next call. Raises OSError, ValueError.
        """
        states = self.scan()
        if isinstance(states, Unreadable):
            return ()
        chosen = retention.choose(states, keep, protect)
        for checkpoint in chosen:
            posix.create_whole(self._tree.tombstone(SaveId.parse(checkpoint)), b"", self._step)
        publishing.publish(self._tree, self._step)
        for save in self._half_deleted():
            self._remove(save)
        return chosen

    # --- how -----------------------------------------------------------------------------------------------------

    def _verdict(self, save: SaveId) -> Outcome:
        terms = sealing.Terms(self._world, self._clock(), self._settle_s, self._threads, self._step)
        try:
            manifest = sealing.judge(self._tree.save(save), save, terms)
            posix.make_folder(self._tree.seal(save))
            digest = sealing.put_manifest(self._tree, manifest, save, self._step)
        except UnsoundError as error:
            return Outcome(outcome="BROKEN", reasons=sealing.shorten(tuple(map(str, error.args))))
        return Outcome(outcome="COMMITTED", completed_at=max(self._clock(), self._after_last()), manifest_sha256=digest)

    def _after_last(self) -> float:
        """The first moment after the last completion. The clock may be set back; the order of completion may not."""
        listed = publishing.read_list(self._tree).completed
        try:
            last = read_outcome(self._tree.mark(SaveId.parse(listed[-1]), "COMMITTED")).completed_at
        except (IndexError, ValueError, OSError, UnsoundError):
            return 0.0
        # A microsecond is the least that a float of today's seconds can hold with room to spare.
        return (last or 0.0) + 1e-6

    def _settle(self, save: SaveId, wanted: Outcome) -> CheckpointState:
        posix.make_folder(self._tree.seal(save))
        standing = sealing.settle(self._tree, save, wanted, self._step)
        if standing.outcome == "COMMITTED":
            publishing.publish(self._tree, self._step)
        return self._state(save)

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
            return set(), _plain(SaveId(attempt, 0), CheckpointPhase.NOT_YET, posix.why(error))
        return {SaveId(attempt, step) for step in steps if step is not None}, None

    def _require_folders(self) -> None:
        """Raises OSError when the store has vanished: each of its names would then look as if it had never been."""
        for path in (self._tree.saves, self._tree.seals, self._tree.deleted):
            os.stat(path)

    def _state(self, save: SaveId) -> CheckpointState:
        state = self._look_safely(save)
        try:
            self._require_folders()
        except OSError as error:
            return _plain(save, CheckpointPhase.NOT_YET, posix.why(error))
        return state

    def _look_safely(self, save: SaveId) -> CheckpointState:
        try:
            return self._look(save)
        except OSError as error:
            return _plain(save, CheckpointPhase.NOT_YET, posix.why(error))

    def _look(self, save: SaveId) -> CheckpointState:
        if posix.exists(self._tree.tombstone(save)):
            return _plain(save, CheckpointPhase.BROKEN, "deleted by retention")
        marks = set(posix.names_in(self._tree.seal(save)))
        for mark, phase in (("ABANDONED", CheckpointPhase.ABANDONED), ("BROKEN", CheckpointPhase.BROKEN)):
            if mark in marks:
                return _plain(save, phase, *self._reasons(save, mark))
        if "COMMITTED" in marks:
            return self._look_at_committed(save)
        framework = framework_done(self._tree.save(save))
        phase = CheckpointPhase.FRAMEWORK_DONE if framework.done else CheckpointPhase.IN_PROGRESS
        reasons = () if framework.done else (framework.why,)
        return CheckpointState(str(save), save.attempt, save.step, phase, framework.at, reasons=reasons)

    def _look_at_committed(self, save: SaveId) -> CheckpointState:
        try:
            committed = self._committed.read(save)
        except UnsoundError as error:
            return _plain(save, CheckpointPhase.BROKEN, *map(str, error.args))
        manifest = committed.manifest
        # One listing, no stat a file: a scan costs the same for 8 shards and for 5,120.
        gone = sorted(set(manifest.files) - set(posix.names_in(self._tree.save(save))))
        phase = CheckpointPhase.COMPLETED
        reasons: tuple[str, ...] = ()
        if gone:
            young = self._clock() - committed.completed_at < self._settle_s
            phase = CheckpointPhase.NOT_YET if young else CheckpointPhase.BROKEN
            reasons = (f"{len(gone)} of {len(manifest.files)} files are gone, {gone[0]!r} first",)
        return CheckpointState(
            str(save),
            save.attempt,
            save.step,
            phase,
            saved_at=manifest.saved_at,
            completed_at=committed.completed_at,
            manifest_hash=committed.sha256,
            reasons=reasons,
            bytes=manifest.bytes,
            limited=manifest.limited,
        )

    def _reasons(self, save: SaveId, mark: str) -> tuple[str, ...]:
        try:
            return read_outcome(self._tree.mark(save, mark)).reasons
        except UnsoundError as error:
            return tuple(map(str, error.args))

    def _read_committed(self, save: SaveId) -> Committed:
        """Raises NotRestorable for whatever is not COMPLETED."""
        state = self._state(save)
        if state.phase is not CheckpointPhase.COMPLETED:
            unsure = state.phase in {CheckpointPhase.NOT_YET, CheckpointPhase.FRAMEWORK_DONE}
            raise NotRestorable(f"{save} is {state.phase}", *state.reasons, not_yet=unsure)
        try:
            return self._committed.read(save)
        except OSError as error:
            raise NotRestorable(posix.why(error), not_yet=True) from error
        except UnsoundError as error:
            raise NotRestorable(*map(str, error.args)) from error

    def _require_sound(self, save: SaveId, attempt: int, deep: bool, deep_limit: int, sample_bytes: int) -> None:
        manifest = self._read_committed(save).manifest
        budget = None if deep and manifest.bytes <= deep_limit else sample_bytes
        try:
            problems = views.damage(self._tree.save(save), manifest, budget, f"{save}/{attempt}", self._threads)
        except OSError as error:
            raise NotRestorable(posix.why(error), not_yet=True) from error
        if problems:
            raise NotRestorable(*sealing.shorten(tuple(problems)))

    def _half_deleted(self) -> list[SaveId]:
        """Deleted by name, and something of it is left."""
        named = filter(None, map(_parse, posix.names_in(self._tree.deleted)))
        live = set(posix.names_in(self._tree.seals))
        return [save for save in named if str(save) in live or posix.exists(self._tree.save(save))]

    def _remove(self, save: SaveId) -> None:
        self._step("before removal")
        posix.remove_save(self._tree.save(save))
        self._step("after removal")
        # The seal goes last: it is what says that something is left to remove.
        if posix.exists(self._tree.seal(save)):
            shutil.rmtree(self._tree.seal(save))


def _parse(name: str) -> SaveId | None:
    try:
        return SaveId.parse(name)
    except ValueError:
        return None


def _plain(save: SaveId, phase: CheckpointPhase, *reasons: str) -> CheckpointState:
    return CheckpointState(str(save), save.attempt, save.step, phase, reasons=reasons)
